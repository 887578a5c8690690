//! The one error type of the crate.

use std::io;
use std::path::PathBuf;

use crate::{Bdf, Holder};

/// What can go wrong when a host is examined or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no address of a PCI function.
    #[error("{text:?} is no PCI address such as 0000:01:00.0")]
    ParseBdf {
        /// Text given.
        text: String,
    },
    /// The bus has no such function.
    #[error("no PCI function {bdf} on this host")]
    NoDevice {
        /// Address asked for.
        bdf: Bdf,
    },
    /// The function is something else than an ET-SoC-1.
    #[error("{bdf} is {vendor:04x}:{device:04x}, not an ET-SoC-1")]
    NotACard {
        /// Address asked for.
        bdf: Bdf,
        /// Vendor id found.
        vendor: u16,
        /// Device id found.
        device: u16,
    },
    /// A file does not hold what the kernel writes there.
    #[error("{} holds {text:?}, which is not {expected}", file.display())]
    Malformed {
        /// File that was read.
        file: PathBuf,
        /// Its text.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// File concerned.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}{}", quoted(text), file.display())]
    Write {
        /// File concerned.
        file: PathBuf,
        /// Text to be written; empty for files that are only made or removed.
        text: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A write did not come back.
    #[error("writing to {} did not end in time: the device is in use", file.display())]
    Blocked {
        /// File concerned.
        file: PathBuf,
    },
    /// A node cannot be given to its owner.
    #[error("cannot change the owner of {}", file.display())]
    Chown {
        /// Node concerned.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// No driver of VFIO is registered for PCI.
    #[error("driver vfio-pci is not loaded")]
    NoVfioDriver,
    /// The function is in no IOMMU group.
    #[error("{bdf} has no IOMMU group, so VFIO cannot take it")]
    NoIommu {
        /// Address asked for.
        bdf: Bdf,
    },
    /// Another process has the device or one of its nodes open.
    #[error("{bdf} is in use by process {} ({})", holder.pid, holder.command)]
    Held {
        /// Address asked for.
        bdf: Bdf,
        /// Who has it.
        holder: Holder,
    },
    /// The device backs something the host uses.
    #[error("{bdf} is in use: {by}")]
    InUse {
        /// Address asked for.
        bdf: Bdf,
        /// What would be lost.
        by: String,
        /// What gives it up.
        command: String,
    },
    /// Other members of the IOMMU group belong to drivers that VFIO does not tolerate.
    #[error("IOMMU group {group} of {bdf} has other drivers: {}", list(members))]
    NotViable {
        /// Address asked for.
        bdf: Bdf,
        /// Number of the group.
        group: u32,
        /// Name and driver of each.
        members: Vec<(String, String)>,
    },
    /// The function has virtual functions enabled.
    #[error("{bdf} has {count} virtual functions enabled")]
    VirtualFunctions {
        /// Address asked for.
        bdf: Bdf,
        /// How many.
        count: u32,
    },
    /// Every step was made, and the function still has another driver.
    #[error("{bdf} has {} now, wanted was {}", driver(found.as_ref()), driver(wanted.as_ref()))]
    WrongDriver {
        /// Address asked for.
        bdf: Bdf,
        /// Driver it has.
        found: Option<String>,
        /// Driver it should have.
        wanted: Option<String>,
    },
    /// A step failed, and so did going back.
    #[error("binding failed, and going back failed too: {undo}")]
    NotUndone {
        /// Why going back failed.
        undo: Box<Self>,
        /// Why binding failed.
        #[source]
        source: Box<Self>,
    },
    /// Another process binds or unbinds at the moment.
    #[error("another process holds {}", file.display())]
    Locked {
        /// Lock file.
        file: PathBuf,
    },
    /// The host does not know a user or group.
    #[error("no {kind} named {name:?} in {}", file.display())]
    UnknownName {
        /// `user` or `group`.
        kind: &'static str,
        /// Name given.
        name: String,
        /// Where it was looked for.
        file: PathBuf,
    },
    /// The bound device has no node.
    #[error("{bdf} got no node below /dev/vfio")]
    NoNode {
        /// Address asked for.
        bdf: Bdf,
    },
}

impl Error {
    /// Returns what to do about it: commands where they exist, to be run as root.
    #[must_use]
    pub fn remedy(&self) -> Vec<String> {
        match self {
            Self::ParseBdf { .. } | Self::NoDevice { .. } | Self::NotACard { .. } => {
                vec![format!("lspci -D -d {:04x}:", crate::pci::VENDOR)]
            }
            Self::Read { source, .. } | Self::Write { source, .. } | Self::Chown { source, .. } => {
                let text = match source.kind() {
                    io::ErrorKind::PermissionDenied => "run the same command as root",
                    io::ErrorKind::ReadOnlyFilesystem => {
                        "run the same command on the host, outside of the container"
                    }
                    _ => "dmesg | tail",
                };
                vec![text.to_owned()]
            }
            Self::Malformed { file, .. } => vec![format!("cat {}", file.display())],
            // It takes the card again by its ids, whatever the override says.
            Self::WrongDriver { bdf, found: Some(name), .. }
                if crate::pci::is_vfio_driver(name) =>
            {
                let ids = format!("/sys/bus/pci/devices/{bdf}");
                vec![format!(
                    "echo \"$(cat {ids}/vendor) $(cat {ids}/device)\" > /sys/bus/pci/drivers/{name}/remove_id"
                )]
            }
            Self::Blocked { .. } | Self::WrongDriver { .. } | Self::NotUndone { .. } => {
                vec!["dmesg | tail".to_owned()]
            }
            Self::NoVfioDriver => vec!["modprobe vfio-pci".to_owned()],
            Self::NoIommu { bdf } => vec![format!("et doctor {bdf}")],
            Self::Held { holder, .. } if holder.pid == std::process::id() => {
                vec!["close the device in this process".to_owned()]
            }
            Self::Held { holder, .. } => vec![format!("kill {}", holder.pid)],
            Self::InUse { command, .. } => vec![command.clone()],
            Self::NotViable { members, .. } => {
                members.iter().map(|(name, _)| crate::iommu::release(name)).collect()
            }
            Self::VirtualFunctions { bdf, .. } => {
                vec![format!("echo 0 > /sys/bus/pci/devices/{bdf}/sriov_numvfs")]
            }
            Self::Locked { file } => vec![format!("fuser -v {}", file.display())],
            Self::UnknownName { file, .. } => vec![format!("cut -d: -f1 {}", file.display())],
            Self::NoNode { .. } => vec!["udevadm settle; ls -lR /dev/vfio".to_owned()],
        }
    }
}

fn list(members: &[(String, String)]) -> String {
    let texts: Vec<_> =
        members.iter().map(|(name, driver)| format!("{name} has {driver}")).collect();
    texts.join(", ")
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text:?} to ") }
}

fn driver(name: Option<&String>) -> String {
    name.map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"))
}
