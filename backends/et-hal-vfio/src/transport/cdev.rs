//! The device's own node and iommufd.

use std::mem::offset_of;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use et_hal::DeviceAccess;
use vfio_bindings::bindings::vfio::{vfio_device_attach_iommufd_pt, vfio_device_bind_iommufd};

use super::caps::pairs;
use super::kernel::{Iommu, Kernel, Ownership};
use super::{Addressing, DmaRequest};
use crate::sys::{
    Errno, Handle, IOAS_RANGES_BYTES, IOAS_RANGES_COUNT, IOVA_RANGE_BYTES, Record, Request, Sys,
};
use crate::{Bdf, Call, Mode, VfioError};

// iommufd is not in the VFIO bindings; these are the places of its fields.
/// `IOMMU_IOAS_ALLOC`: size, flags, the new address space.
const ALLOC_BYTES: usize = 12;
const ALLOC_IOAS: usize = 8;
/// `IOMMU_IOAS_IOVA_RANGES`: size, address space, count, reserved, array, alignment.
const RANGES_IOAS: usize = 4;
const RANGES_ALIGNMENT: usize = 24;
/// Ranges asked for at first.
const RANGES_ROOM: u32 = 16;
/// More ranges than any machine has holes.
const MAX_RANGES: u32 = 4096;
/// `IOMMU_IOAS_MAP`: size, flags, address space, reserved, address, length, bus address.
const MAP_BYTES: usize = 40;
const MAP_FLAGS: usize = 4;
const MAP_IOAS: usize = 8;
const MAP_ADDRESS: usize = 16;
const MAP_LENGTH: usize = 24;
const MAP_IOVA: usize = 32;
/// We choose the bus address.
const FLAG_FIXED: u32 = 1;
const FLAG_WRITEABLE: u32 = 2;
const FLAG_READABLE: u32 = 4;
/// `IOMMU_IOAS_UNMAP`: size, address space, bus address, length.
const UNMAP_BYTES: usize = 24;
const UNMAP_IOAS: usize = 4;
const UNMAP_IOVA: usize = 8;
const UNMAP_LENGTH: usize = 16;

/// An address space of an iommufd.
#[derive(Debug)]
pub(crate) struct Ioas {
    iommufd: Handle,
    id: u32,
}

/// Opens a device by its own node.
pub(crate) fn open(
    sys: &Arc<dyn Sys>,
    dev: &Path,
    bdf: Bdf,
    node: &str,
    close_timeout: Duration,
) -> Result<Kernel<Ioas>, VfioError> {
    let path = dev.join("vfio/devices").join(node);
    let failed = |call| move |errno| VfioError::call(call, bdf.to_string(), errno);
    let target = path.display().to_string();
    let device = Handle::open(sys, &path)
        .map_err(|errno| VfioError::call(Call::OpenDevice, target, errno))?;
    let path = dev.join("iommu");
    let target = path.display().to_string();
    let iommufd = Handle::open(sys, &path)
        .map_err(|errno| VfioError::call(Call::OpenIommufd, target, errno))?;

    // The length is that of the first version, which every kernel takes.
    let mut record = Record::new(offset_of!(vfio_device_bind_iommufd, token_uuid_ptr));
    record.put_u32(offset_of!(vfio_device_bind_iommufd, iommufd), iommufd.fd().cast_unsigned());
    device.ask_record(Request::BindIommufd, &mut record).map_err(failed(Call::Bind))?;

    let mut record = Record::new(ALLOC_BYTES);
    iommufd.ask_record(Request::IoasAlloc, &mut record).map_err(failed(Call::Ioas))?;
    let id = record.u32(ALLOC_IOAS);

    let mut record = Record::new(offset_of!(vfio_device_attach_iommufd_pt, pasid));
    record.put_u32(offset_of!(vfio_device_attach_iommufd_pt, pt_id), id);
    device.ask_record(Request::AttachPageTable, &mut record).map_err(failed(Call::Attach))?;
    Kernel::new(bdf, device, Ioas { iommufd, id }, close_timeout)
}

impl Ioas {
    fn ask_ranges(&self, room: u32) -> (Result<u32, Errno>, Record) {
        let bytes = room as usize * IOVA_RANGE_BYTES;
        let mut record = Record::new(IOAS_RANGES_BYTES + bytes);
        // The structure's own length does not count the array.
        record.put_u32(0, 32);
        record.put_u32(RANGES_IOAS, self.id);
        record.put_u32(IOAS_RANGES_COUNT, room);
        let asked = self.iommufd.ask_record(Request::IoasRanges, &mut record);
        (asked, record)
    }
}

impl Iommu for Ioas {
    fn mode(&self) -> Mode {
        Mode::Cdev
    }

    /// The ranges are final only because the device has been attached: attaching narrows them.
    fn addressing(&self) -> Result<Addressing, VfioError> {
        let (mut asked, mut record) = self.ask_ranges(RANGES_ROOM);
        if asked == Err(Errno::MSGSIZE) {
            let room = record.u32(IOAS_RANGES_COUNT).min(MAX_RANGES);
            (asked, record) = self.ask_ranges(room);
        }
        let target = format!("address space {}", self.id);
        asked.map_err(|errno| VfioError::call(Call::IommuInfo, target, errno))?;
        let ranges = pairs(&record, IOAS_RANGES_COUNT, IOAS_RANGES_BYTES);
        let page_bytes = record.u64(RANGES_ALIGNMENT).max(4096);
        Ok(Addressing::Chosen { ranges, page_bytes, entries: None })
    }

    fn map(&self, request: &DmaRequest) -> Result<(), VfioError> {
        let mut record = Record::new(MAP_BYTES);
        let access = match request.access {
            DeviceAccess::Read => FLAG_READABLE,
            DeviceAccess::Write => FLAG_WRITEABLE,
            DeviceAccess::ReadWrite => FLAG_READABLE | FLAG_WRITEABLE,
        };
        record.put_u32(MAP_FLAGS, FLAG_FIXED | access);
        record.put_u32(MAP_IOAS, self.id);
        record.put_u64(MAP_ADDRESS, request.address);
        record.put_u64(MAP_LENGTH, request.len);
        record.put_u64(MAP_IOVA, request.iova);
        let mapped = self.iommufd.ask_record(Request::IoasMap, &mut record);
        let target = format!("{:#x} bytes at {:#x}", request.len, request.iova);
        mapped.map(|_| ()).map_err(|errno| VfioError::call(Call::MapDma, target, errno))
    }

    fn unmap(&self, iova: u64, len: u64) -> Result<u64, VfioError> {
        let mut record = Record::new(UNMAP_BYTES);
        record.put_u32(UNMAP_IOAS, self.id);
        record.put_u64(UNMAP_IOVA, iova);
        record.put_u64(UNMAP_LENGTH, len);
        let unmapped = self.iommufd.ask_record(Request::IoasUnmap, &mut record);
        let target = format!("{len:#x} bytes at {iova:#x}");
        unmapped.map_err(|errno| VfioError::call(Call::UnmapDma, target, errno))?;
        Ok(record.u64(UNMAP_LENGTH))
    }

    fn ownership(&self) -> Ownership<'_> {
        Ownership::Kernel
    }
}
