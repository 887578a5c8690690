//! The driver of VFIO, and which driver has the card.

use super::Context;
use crate::node::{CONTAINER, IOMMUFD};
use crate::{Check, Error, Finding, Function};

/// Exists while the driver is registered, as a module or built in.
pub(crate) const VFIO_PCI: &str = "/sys/bus/pci/drivers/vfio-pci";
/// Whether VFIO takes devices without an IOMMU.
pub(crate) const NO_IOMMU: &str = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

impl Context<'_> {
    pub(super) fn module(&self) -> Result<Finding, Error> {
        let host = self.host;
        if !host.exists(VFIO_PCI) {
            let finding = Finding::problem(Check::Module, format!("{VFIO_PCI} does not exist"));
            let release = host.text("/proc/sys/kernel/osrelease")?.unwrap_or_default();
            let table = host.text(format!("/lib/modules/{release}/modules.dep"))?;
            return Ok(match table {
                Some(table) if !table.contains("vfio-pci.ko") => finding
                    .fix(format!(
                        "apt install linux-modules-extra-{release} # or a kernel with VFIO"
                    ))
                    .fix("modprobe vfio-pci"),
                _ => finding
                    .fix("modprobe vfio-pci")
                    .fix("echo vfio-pci > /etc/modules-load.d/vfio-pci.conf"),
            });
        }
        let present: Vec<_> = [CONTAINER, IOMMUFD].into_iter().filter(|f| host.exists(f)).collect();
        if present.is_empty() {
            let evidence =
                format!("vfio-pci is loaded, but neither {CONTAINER} nor {IOMMUFD} exist");
            return Ok(Finding::problem(Check::Module, evidence)
                .fix("modprobe vfio_iommu_type1 || modprobe iommufd")
                .fix(format!("docker run --device {CONTAINER} # when this is a container")));
        }
        let evidence = format!("vfio-pci is loaded, with {}", present.join(" and "));
        let has_iommu = self.group.as_ref().is_some_and(|group| !group.is_without_iommu());
        if has_iommu && host.text(NO_IOMMU)?.as_deref() == Some("Y") {
            let evidence =
                format!("{evidence}; mode without IOMMU is on, which nothing here needs");
            return Ok(
                Finding::warning(Check::Module, evidence).fix(format!("echo N > {NO_IOMMU}"))
            );
        }
        Ok(Finding::ok(Check::Module, evidence))
    }

    pub(super) fn driver(&self, function: &Function) -> Finding {
        let wanted = match &function.driver_override {
            Some(name) => format!(", driver_override is {name}"),
            None => String::new(),
        };
        let bind = format!("et bind {}", self.bdf);
        match &function.driver {
            Some(name) if function.is_vfio() => Finding::ok(Check::Driver, name.clone()),
            Some(name) => {
                Finding::problem(Check::Driver, format!("{name} has the card{wanted}")).fix(bind)
            }
            None => {
                Finding::problem(Check::Driver, format!("no driver has the card{wanted}")).fix(bind)
            }
        }
    }
}
