//! IOMMU groups: the unit that VFIO hands out.

use crate::pci::is_vfio_driver;
use crate::{Bdf, Error, Host};

/// Devices the IOMMU cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Its number.
    pub number: u32,
    /// What the kernel does for its own drivers: `DMA`, `DMA-FQ`, `identity`, `blocked`; old
    /// kernels do not say.
    pub kind: Option<String>,
    /// A name, if it has one; groups that VFIO made up without an IOMMU are called `vfio-noiommu`.
    pub name: Option<String>,
    /// All devices of the group.
    pub members: Vec<Member>,
}

/// A device of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name, an address for PCI.
    pub name: String,
    /// Driver that has it.
    pub driver: Option<String>,
    /// Whether it is a bridge, which needs no driver of VFIO.
    pub is_bridge: bool,
}

impl Member {
    /// Reports whether VFIO can use the group while this member is as it is.
    #[must_use]
    pub fn is_viable(&self) -> bool {
        let tolerated = |name: &str| name == "pci-stub" || is_vfio_driver(name);
        self.is_bridge || self.driver.as_deref().is_none_or(tolerated)
    }
}

impl Group {
    /// Reports a group that VFIO made up because there is no IOMMU.
    #[must_use]
    pub fn is_without_iommu(&self) -> bool {
        self.name.as_deref() == Some("vfio-noiommu")
    }

    /// Returns the members other than `bdf` that keep VFIO from using the group, with their
    /// drivers.
    #[must_use]
    pub fn foreign(&self, bdf: Bdf) -> Vec<(String, String)> {
        let own = bdf.to_string();
        let others = self.members.iter().filter(|member| member.name != own && !member.is_viable());
        others
            .map(|member| (member.name.clone(), member.driver.clone().unwrap_or_default()))
            .collect()
    }
}

impl Host {
    /// Describes a group.
    ///
    /// # Errors
    /// [`Error::Read`] and [`Error::Malformed`] for its files.
    pub fn group(&self, number: u32) -> Result<Group, Error> {
        let folder = format!("/sys/kernel/iommu_groups/{number}");
        let members = self.names(format!("{folder}/devices"))?;
        Ok(Group {
            number,
            kind: self.text(format!("{folder}/type"))?,
            name: self.text(format!("{folder}/name"))?,
            members: members.into_iter().map(|name| self.member(name)).collect::<Result<_, _>>()?,
        })
    }

    fn member(&self, name: String) -> Result<Member, Error> {
        let folder = format!("/sys/bus/pci/devices/{name}");
        let class = format!("{folder}/class");
        let class = if self.exists(&class) { self.hex(class.into())? } else { 0 };
        Ok(Member {
            driver: self.link_name(format!("{folder}/driver"))?,
            // The kinds with a bridge's configuration header; host bridges have a plain one.
            is_bridge: matches!(class >> 8, 0x0604 | 0x0607 | 0x0609),
            name,
        })
    }
}

/// Returns the command that takes a device from its driver.
pub(crate) fn release(name: &str) -> String {
    format!("echo {name} > /sys/bus/pci/devices/{name}/driver/unbind")
}
