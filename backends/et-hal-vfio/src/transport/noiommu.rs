//! Group without IOMMU: the device puts out physical addresses, and nothing stops it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vfio_bindings::bindings::vfio;

use super::group::{Container, Group, Ready};
use super::kernel::{Iommu, Kernel, Ownership};
use super::{Addressing, DmaRequest};
use crate::sys::Sys;
use crate::{Bdf, Call, Mode, VfioError};

/// The container that maps nothing. The group is closed before it.
#[derive(Debug)]
pub(crate) struct Unprotected {
    group: Group,
    #[expect(dead_code, reason = "keeps the container open; the kernel offers no request on it")]
    container: Container<Ready>,
}

/// Opens a device that no IOMMU watches.
pub(crate) fn open(
    sys: &Arc<dyn Sys>,
    dev: &Path,
    bdf: Bdf,
    group: u32,
    close_timeout: Duration,
) -> Result<Kernel<Unprotected>, VfioError> {
    let kind = vfio::VFIO_NOIOMMU_IOMMU;
    let container = Container::open(sys, &dev.join("vfio/vfio"), kind)?;
    let path = dev.join("vfio").join(format!("noiommu-{group}"));
    let group = Group::open(sys, &path, group, Call::OpenUnprotectedGroup)?;
    let container = container.with_group(&group, kind)?;
    let device = group.device(&container, bdf)?;
    Kernel::new(bdf, device, Unprotected { group, container }, close_timeout)
}

impl Iommu for Unprotected {
    fn mode(&self) -> Mode {
        Mode::NoIommu
    }

    fn addressing(&self) -> Result<Addressing, VfioError> {
        Ok(Addressing::Physical)
    }

    fn map(&self, _request: &DmaRequest) -> Result<(), VfioError> {
        Err(VfioError::NotInMode { what: "mapping memory", mode: Mode::NoIommu })
    }

    fn unmap(&self, _iova: u64, _len: u64) -> Result<u64, VfioError> {
        Err(VfioError::NotInMode { what: "unmapping memory", mode: Mode::NoIommu })
    }

    fn ownership(&self) -> Ownership<'_> {
        Ownership::Group(self.group.number, &self.group.handle)
    }
}
