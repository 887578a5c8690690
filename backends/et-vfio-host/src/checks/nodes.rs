//! The nodes of VFIO: which, may we, and who else.

use std::path::Path;

use super::Context;
use crate::node::{Access, CONTAINER, IOMMUFD, candidates};
use crate::{Check, Error, Finding, Function, Holder, Mode, udev_rules};

/// Where the rules go.
const RULES: &str = "/etc/udev/rules.d/70-et-vfio.rules";

impl Context<'_> {
    pub(super) fn mode(&self, function: &Function) -> Finding {
        let check = Check::Mode;
        if !function.is_vfio() {
            return Finding::skipped(check, "no driver of VFIO has the card");
        }
        let Some(mode) = &self.mode else {
            let nodes: Vec<_> = candidates(function, self.group.as_ref())
                .iter()
                .map(|mode| {
                    format!("{} with {}", mode.node().display(), mode.companion().display())
                })
                .collect();
            if nodes.is_empty() {
                return Finding::problem(check, "the card is in no IOMMU group");
            }
            let evidence = format!("missing below /dev: {}", nodes.join(", or "));
            return Finding::problem(check, evidence)
                .fix("udevadm trigger && udevadm settle")
                .fix("modprobe vfio_iommu_type1 || modprobe iommufd");
        };
        let evidence = format!(
            "{}: {} with {}",
            mode.name(),
            mode.node().display(),
            mode.companion().display()
        );
        match mode {
            Mode::Cdev { .. } | Mode::Group { .. } => Finding::ok(check, evidence),
            Mode::NoIommu { .. } => {
                Finding::warning(check, format!("{evidence}: the card can write to any memory"))
            }
        }
    }

    pub(super) fn permission(&self) -> Result<Finding, Error> {
        let check = Check::Permission;
        let Some(mode) = &self.mode else { return Ok(Finding::skipped(check, "no node to open")) };
        let facts = self.host.facts();
        if matches!(mode, Mode::NoIommu { .. }) && !facts.capabilities.sys_rawio {
            let evidence = format!("{} needs CAP_SYS_RAWIO", mode.node().display());
            return Ok(Finding::problem(check, evidence)
                .fix("setcap cap_sys_rawio,cap_sys_admin+ep PROGRAM # the program that opens the card and looks physical addresses up"));
        }
        for node in [mode.node(), mode.companion()] {
            let Access::Refused { uid, gid, mode: bits } = self.host.access(node)? else {
                continue;
            };
            let evidence = format!(
                "{} is {bits:03o}, owner {uid}:{gid}; this is {}:{}",
                node.display(),
                facts.uid,
                facts.gids.first().copied().unwrap_or(gid),
            );
            let finding = Finding::problem(check, evidence);
            let path = node.display();
            return Ok(match path.to_string().as_str() {
                // The container protects nothing by itself.
                CONTAINER => finding.fix(format!("chmod 0666 {path}")),
                IOMMUFD => finding
                    .fix(format!("chgrp {} {path} && chmod 0660 {path}", self.gid(gid)))
                    .fix(self.rules()),
                _ => finding
                    .fix(format!(
                        "chown {}:{} {path} && chmod 0660 {path}",
                        facts.uid,
                        self.gid(gid)
                    ))
                    .fix(self.rules()),
            });
        }
        Ok(Finding::ok(check, format!("{} can be opened by {}", mode.node().display(), facts.uid)))
    }

    /// Returns this process's group.
    fn gid(&self, other: u32) -> u32 {
        self.host.facts().gids.first().copied().unwrap_or(other)
    }

    /// Returns the command that makes ownership last.
    fn rules(&self) -> String {
        let modes = self.function.as_ref().map(|f| candidates(f, self.group.as_ref()));
        // The group's node is the last resort, and has a name in every mode.
        let node = modes.iter().flatten().last().map(|mode| mode.node().to_owned());
        let name = node.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let uid = self.host.facts().uid;
        let rules = udev_rules(self.bdf, &name, &uid.to_string(), &self.gid(uid).to_string());
        format!("printf '%s\\n' {} > {RULES} && udevadm control --reload", quote(&rules))
    }

    pub(super) fn holder(&self, function: &Function) -> Result<Finding, Error> {
        let check = Check::Holder;
        let nodes: Vec<_> = candidates(function, self.group.as_ref())
            .iter()
            .map(|mode| mode.node().to_owned())
            .collect();
        if nodes.is_empty() || !function.is_vfio() {
            return Ok(Finding::skipped(check, "no node to hold"));
        }
        let holders = self.host.holders(&nodes)?;
        if holders.found.is_empty() {
            return Ok(match holders.unseen {
                0 => Finding::ok(check, "no process has the card open"),
                unseen => Finding::skipped(
                    check,
                    format!("none seen, but {unseen} processes belong to others; root sees them"),
                ),
            });
        }
        let own = std::process::id();
        let describe = |h: &Holder| match h.pid {
            pid if pid == own => format!("this process has {} open", h.node.display()),
            pid => format!("process {pid} ({}) has {} open", h.command, h.node.display()),
        };
        let list: Vec<_> = holders.found.iter().map(describe).collect();
        let others = holders.found.iter().filter(|h| h.pid != own);
        let finding = Finding::problem(check, list.join(", "));
        Ok(others.fold(finding, |finding, h| finding.fix(format!("kill {}", h.pid))))
    }
}

/// One shell word per line.
fn quote(lines: &str) -> String {
    let words: Vec<_> = lines.lines().map(|line| format!("'{line}'")).collect();
    words.join(" ")
}
