//! The IOMMU, the group, and interrupt remapping.

use super::{Context, NO_IOMMU};
use crate::iommu::release;
use crate::{Check, Error, Finding, Mode};

/// Arguments of the kernel that concern the IOMMU.
const ARGUMENTS: [&str; 6] =
    ["iommu=", "intel_iommu=", "amd_iommu=", "intremap=", "nointremap", "iommu.passthrough="];

impl Context<'_> {
    pub(super) fn iommu(&self) -> Result<Finding, Error> {
        let arguments = self.arguments()?;
        let asked = if arguments.is_empty() { "nothing".to_owned() } else { arguments.join(" ") };
        let Some(group) = &self.group else {
            let units = self.host.names("/sys/class/iommu")?;
            let evidence = if units.is_empty() {
                format!("no IOMMU is on; the kernel command line says {asked} about it")
            } else {
                format!("the host has {}, but the card is in no group", units.join(", "))
            };
            // Then the driver makes up a group when it takes the card.
            let finding = if self.host.text(NO_IOMMU)?.as_deref() == Some("Y") {
                let evidence = format!("{evidence}; mode without IOMMU is on: no isolation");
                Finding::warning(Check::Iommu, evidence)
            } else {
                Finding::problem(Check::Iommu, evidence)
            };
            return self.iommu_fixes(finding, &arguments);
        };
        let kind = group.kind.as_deref().unwrap_or("unknown");
        let evidence =
            format!("group {}, kernel domain {kind}, command line {asked}", group.number);
        if group.is_without_iommu() {
            let evidence = format!("group {} has no IOMMU: no isolation", group.number);
            let finding = Finding::warning(Check::Iommu, evidence);
            return self.iommu_fixes(finding, &arguments);
        }
        Ok(match kind {
            // VFIO makes a translated domain of its own, so identity for the kernel does no harm.
            "DMA" | "DMA-FQ" | "identity" | "unmanaged" | "unknown" => {
                Finding::ok(Check::Iommu, evidence)
            }
            _ => Finding::warning(Check::Iommu, evidence),
        })
    }

    /// Whether there is one at all.
    pub(super) fn iommu_of_host(&self) -> Result<Finding, Error> {
        let units = self.host.names("/sys/class/iommu")?;
        if units.is_empty() {
            return self.iommu();
        }
        Ok(Finding::ok(Check::Iommu, format!("the host has {}", units.join(", "))))
    }

    /// The command differs by processor, and by what is on the command line now.
    fn iommu_fixes(&self, finding: Finding, arguments: &[String]) -> Result<Finding, Error> {
        let firmware = "systemctl reboot --firmware-setup # enable VT-d or AMD-Vi (IOMMU)";
        if let Some(off) = arguments.iter().find(|a| a.ends_with("=off")) {
            return Ok(finding.fix(self.without_kernel_argument(off)));
        }
        let vendor = self.processor()?;
        let enabled = arguments.iter().any(|argument| argument == "intel_iommu=on");
        Ok(match vendor.as_deref() {
            Some("GenuineIntel") if !enabled => {
                finding.fix(self.kernel_argument("intel_iommu=on")).fix(firmware)
            }
            _ => finding.fix(firmware),
        })
    }

    pub(super) fn viable(&self) -> Finding {
        let Some(group) = &self.group else {
            return Finding::skipped(Check::Group, "no IOMMU group");
        };
        let foreign = group.foreign(self.bdf);
        let others = group.members.len().saturating_sub(1);
        if foreign.is_empty() {
            let evidence = match others {
                0 => format!("group {}: the card alone", group.number),
                _ => format!("group {}: the card and {others} more, none in the way", group.number),
            };
            return Finding::ok(Check::Group, evidence);
        }
        let list: Vec<_> =
            foreign.iter().map(|(name, driver)| format!("{name} has driver {driver}")).collect();
        let evidence = format!("group {} is not viable: {}", group.number, list.join(", "));
        let finding = Finding::problem(Check::Group, evidence);
        foreign.iter().fold(finding, |finding, (name, _)| finding.fix(release(name)))
    }

    pub(super) fn interrupts(&self) -> Result<Finding, Error> {
        let check = Check::Interrupts;
        if self.group.as_ref().is_none_or(crate::Group::is_without_iommu) {
            return Ok(Finding::skipped(check, "no IOMMU"));
        }
        if self.processor()?.is_none() {
            return Ok(Finding::skipped(check, "not an x86 host: the kernel decides at attach"));
        }
        let Some(table) = self.host.text("/proc/interrupts")? else {
            return Ok(Finding::skipped(check, "/proc/interrupts does not exist"));
        };
        // The kernel prefixes the names of remapped interrupt chips.
        if let Some(chip) = table.split_whitespace().find(|word| word.starts_with("IR-")) {
            return Ok(Finding::ok(check, format!("remapped: {chip} in /proc/interrupts")));
        }
        let module = match self.mode {
            Some(Mode::Cdev { .. }) => "iommufd",
            _ => "vfio_iommu_type1",
        };
        let parameter = format!("/sys/module/{module}/parameters/allow_unsafe_interrupts");
        if self.host.text(&parameter)?.as_deref() == Some("Y") {
            let evidence = format!("not remapped; allowed by {parameter}: the card can forge them");
            return Ok(Finding::warning(check, evidence));
        }
        let finding =
            Finding::problem(check, "not remapped: the kernel refuses to attach the group");
        let arguments = self.arguments()?;
        let off = arguments.iter().find(|a| *a == "intremap=off" || *a == "nointremap");
        Ok(match off {
            Some(off) => finding.fix(self.without_kernel_argument(off)),
            None => finding
                .fix("systemctl reboot --firmware-setup # enable interrupt remapping")
                .fix(format!("echo 1 > {parameter} # gives up isolation")),
        })
    }

    fn arguments(&self) -> Result<Vec<String>, Error> {
        let line = self.host.text("/proc/cmdline")?.unwrap_or_default();
        let concerns = |word: &&str| ARGUMENTS.iter().any(|start| word.starts_with(start));
        Ok(line.split_whitespace().filter(concerns).map(str::to_owned).collect())
    }

    /// Returns the vendor of an x86 processor.
    fn processor(&self) -> Result<Option<String>, Error> {
        let text = self.host.text("/proc/cpuinfo")?.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("vendor_id"));
        Ok(line.map(|line| line.trim_matches([' ', '\t', ':']).to_owned()))
    }

    /// Returns the command that adds an argument of the kernel from the next boot on.
    pub(super) fn kernel_argument(&self, argument: &str) -> String {
        if self.has_grubby() {
            return format!("grubby --update-kernel=ALL --args={argument} && reboot");
        }
        format!(
            "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{argument} /' /etc/default/grub && update-grub && reboot"
        )
    }

    fn without_kernel_argument(&self, argument: &str) -> String {
        if self.has_grubby() {
            return format!("grubby --update-kernel=ALL --remove-args={argument} && reboot");
        }
        format!("sed -i 's/\\b{argument}\\b//' /etc/default/grub && update-grub && reboot")
    }

    fn has_grubby(&self) -> bool {
        ["/usr/sbin/grubby", "/sbin/grubby", "/usr/bin/grubby"].iter().any(|f| self.host.exists(f))
    }
}
