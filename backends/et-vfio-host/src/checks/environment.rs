//! Lockdown and containers.

use super::Context;
use super::driver::VFIO_PCI;
use crate::{Check, Error, Finding, Function};

impl Context<'_> {
    pub(super) fn lockdown(&self) -> Result<Finding, Error> {
        let check = Check::Lockdown;
        let Some(text) = self.host.text("/sys/kernel/security/lockdown")? else {
            return Ok(Finding::skipped(check, "the kernel has no lockdown, or does not show it"));
        };
        // All levels are listed, the present one in brackets.
        let level = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let level = level.map_or(text.as_str(), |(level, _)| level);
        Ok(match level {
            "none" => Finding::ok(check, "none"),
            // VFIO works under both levels once it is loaded.
            _ if self.host.exists(VFIO_PCI) => {
                Finding::ok(check, format!("{level}, VFIO is allowed"))
            }
            _ => Finding::warning(check, format!("{level}: only signed modules can be loaded"))
                .fix("modinfo -F signer vfio-pci"),
        })
    }

    pub(super) fn sysfs(&self, function: &Function) -> Result<Finding, Error> {
        let check = Check::Sysfs;
        let place = match self.container() {
            Some(file) => format!(" in a container ({file})"),
            None => String::new(),
        };
        let Some(table) = self.host.text("/proc/self/mounts")? else {
            return Ok(Finding::skipped(check, "/proc/self/mounts does not exist"));
        };
        // The last mount on a place hides the others.
        let mounts = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut options =
            mounts.filter(|m| m.get(1) == Some(&"/sys")).filter_map(|m| m.get(3).copied());
        let Some(options) = options.next_back() else {
            return Ok(Finding::skipped(check, "nothing is mounted on /sys"));
        };
        if !options.split(',').any(|option| option == "ro") {
            return Ok(Finding::ok(check, format!("writable{place}")));
        }
        let evidence = format!("/sys is read-only{place}");
        if function.is_vfio() {
            return Ok(Finding::ok(check, format!("{evidence}; nothing must be written")));
        }
        let group = self
            .group
            .as_ref()
            .map_or(String::new(), |group| format!(" --device /dev/vfio/{}", group.number));
        Ok(Finding::problem(check, format!("{evidence}: the card cannot be bound here"))
            .fix(format!("et bind {} # on the host", self.bdf))
            .fix(format!(
                "docker run --device /dev/vfio/vfio{group} --ulimit memlock={}",
                self.needs.pinned_bytes
            )))
    }

    fn container(&self) -> Option<&'static str> {
        let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        marks.into_iter().find(|mark| self.host.exists(mark))
    }
}
