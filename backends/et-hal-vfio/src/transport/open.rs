//! Finding the nodes of a device and choosing the way to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Transport, cdev, group, noiommu};
use crate::sys::{Errno, Sys};
use crate::{Bdf, Call, Mode, VfioAddress, VfioError, VfioOptions};

/// Opens the device by the mode of its address.
pub(crate) fn open(
    sys: &Arc<dyn Sys>,
    address: &VfioAddress,
    options: &VfioOptions,
) -> Result<Arc<dyn Transport>, VfioError> {
    let bdf = address.bdf;
    let dev = options.dev.as_path();
    let patience = options.close_timeout;
    let function = options.sysfs.join("bus/pci/devices").join(bdf.to_string());
    let transport: Arc<dyn Transport> = match address.mode {
        Mode::Cdev => Arc::new(cdev::open(sys, dev, bdf, &node(sys, &function)?, patience)?),
        Mode::Group => {
            Arc::new(group::open(sys, dev, bdf, group_number(sys, &function)?, patience)?)
        }
        Mode::NoIommu => {
            if !options.unsafe_no_iommu {
                return Err(VfioError::NoIommuNotAllowed { address: bdf });
            }
            tracing::warn!(%bdf, "no IOMMU: the device can write to all memory of this machine");
            Arc::new(noiommu::open(sys, dev, bdf, group_number(sys, &function)?, patience)?)
        }
        Mode::User => {
            return Err(VfioError::NotInMode { what: "opening by address", mode: Mode::User });
        }
        Mode::Auto => automatic(sys, dev, bdf, &function, patience)?,
    };
    tracing::debug!(%bdf, mode = %transport.mode(), "connected");
    Ok(transport)
}

/// The device's own node if kernel and administrator offer it, else its group.
fn automatic(
    sys: &Arc<dyn Sys>,
    dev: &Path,
    bdf: Bdf,
    function: &Path,
    patience: Duration,
) -> Result<Arc<dyn Transport>, VfioError> {
    if let Ok(node) = node(sys, function) {
        match cdev::open(sys, dev, bdf, &node, patience) {
            Ok(kernel) => return Ok(Arc::new(kernel)),
            // The nodes are missing or closed to this user: a kernel with one half of the
            // interface, a container without it, or an administrator who gave away the group only.
            Err(VfioError::Call {
                call: Call::OpenDevice | Call::OpenIommufd,
                errno: Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::ACCESS | Errno::PERM,
                ..
            }) => tracing::debug!(%bdf, "no iommufd, trying the group"),
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(group::open(sys, dev, bdf, group_number(sys, function)?, patience)?))
}

/// Name of the device's own node.
fn node(sys: &Arc<dyn Sys>, function: &Path) -> Result<String, VfioError> {
    let path = function.join("vfio-dev");
    let names = sys
        .list(&path)
        .map_err(|errno| VfioError::call(Call::Sysfs, path.display().to_string(), errno))?;
    names.into_iter().find(|name| name.starts_with("vfio")).ok_or(VfioError::Lacking {
        what: "a VFIO node of the device",
        remedy: "bind it to vfio-pci, or use mode=group",
    })
}

/// Number of the device's group.
fn group_number(sys: &Arc<dyn Sys>, function: &Path) -> Result<u32, VfioError> {
    let path = function.join("iommu_group");
    let link = sys
        .read_link(&path)
        .map_err(|errno| VfioError::call(Call::Sysfs, path.display().to_string(), errno))?;
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    number.ok_or(VfioError::Lacking {
        what: "an IOMMU group for the device",
        remedy: "turn the IOMMU on and bind the device to vfio-pci",
    })
}
