//! The nodes that VFIO is opened by, and whether this process may.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{Error, Function, Group, Host};

/// The container of type 1; open to everybody by design.
pub(crate) const CONTAINER: &str = "/dev/vfio/vfio";
/// The node of iommufd.
pub(crate) const IOMMUFD: &str = "/dev/iommu";

/// A way to open a device through VFIO, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The device's own node, with iommufd.
    Cdev {
        /// Node of the device.
        node: PathBuf,
    },
    /// The node of the group, with a container of type 1.
    Group {
        /// Node of the group.
        node: PathBuf,
    },
    /// The node of a group without IOMMU: the device may write to any memory of the host.
    NoIommu {
        /// Node of the group.
        node: PathBuf,
    },
}

impl Mode {
    /// Returns the node of the device or of its group.
    #[must_use]
    pub fn node(&self) -> &Path {
        let (Self::Cdev { node } | Self::Group { node } | Self::NoIommu { node }) = self;
        node
    }

    /// Returns the second node this way needs.
    #[must_use]
    pub fn companion(&self) -> &'static Path {
        Path::new(match self {
            Self::Cdev { .. } => IOMMUFD,
            Self::Group { .. } | Self::NoIommu { .. } => CONTAINER,
        })
    }

    /// Returns the name: `cdev`, `group` or `noiommu`, as in locators.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cdev { .. } => "cdev",
            Self::Group { .. } => "group",
            Self::NoIommu { .. } => "noiommu",
        }
    }
}

/// Returns the modes whose nodes should exist for a function that a VFIO driver has, best first.
pub(crate) fn candidates(function: &Function, group: Option<&Group>) -> Vec<Mode> {
    let mut modes = Vec::new();
    let Some(group) = group else { return modes };
    if group.is_without_iommu() {
        let node = format!("/dev/vfio/noiommu-{}", group.number).into();
        return vec![Mode::NoIommu { node }];
    }
    if let Some(name) = &function.vfio_dev {
        modes.push(Mode::Cdev { node: format!("/dev/vfio/devices/{name}").into() });
    }
    modes.push(Mode::Group { node: format!("/dev/vfio/{}", group.number).into() });
    modes
}

/// What the mode of a node lets this process do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Granted,
    Refused { uid: u32, gid: u32, mode: u32 },
    Missing,
}

impl Host {
    /// Returns the best mode whose nodes exist; one that this process may open before one it may
    /// not.
    #[must_use]
    pub fn mode(&self, function: &Function, group: Option<&Group>) -> Option<Mode> {
        let present = |mode: &Mode| self.exists(mode.node()) && self.exists(mode.companion());
        let mut modes = candidates(function, group);
        modes.retain(present);
        let granted = |node: &Path| matches!(self.access(node), Ok(Access::Granted));
        let may = |mode: &&Mode| granted(mode.node()) && granted(mode.companion());
        modes.iter().find(may).or(modes.first()).cloned()
    }

    /// Reports whether the mode of a file lets this process read and write.
    ///
    /// The mode is read, not tried: opening a group's node would make it busy for others.
    pub(crate) fn access(&self, node: &Path) -> Result<Access, Error> {
        let metadata = match std::fs::metadata(self.path(node)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Access::Missing);
            }
            Err(source) => return Err(Error::Read { file: node.to_owned(), source }),
        };
        let facts = self.facts();
        let (uid, gid, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o777);
        // The first class that fits decides, also when a later one allows more.
        let shift = match () {
            () if facts.uid == uid => 6,
            () if facts.gids.contains(&gid) => 3,
            () => 0,
        };
        let granted = facts.capabilities.dac_override || mode >> shift & 0o6 == 0o6;
        Ok(if granted { Access::Granted } else { Access::Refused { uid, gid, mode } })
    }
}
