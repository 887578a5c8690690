//! Group and container.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use et_hal::DeviceAccess;
use vfio_bindings::bindings::vfio::{
    self, vfio_group_status, vfio_iommu_type1_dma_map, vfio_iommu_type1_dma_unmap,
    vfio_iommu_type1_info, vfio_iommu_type1_info_cap_iova_range, vfio_iommu_type1_info_dma_avail,
};

use super::caps::{capability, pairs};
use super::kernel::{Iommu, Kernel, Ownership};
use super::{Addressing, DmaRequest};
#[cfg(any(test, feature = "vfio-ioctls"))]
use crate::sys::Fd;
use crate::sys::{Errno, Handle, Record, Request, Sys};
use crate::{Bdf, Call, Mode, VfioError};

/// What the kernel must be if it does not name ranges: the narrowest IOMMU there is, without the
/// window of interrupt messages.
const OLD_KERNEL_RANGES: [(u64, u64); 2] = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

/// State of a container: no group, or no IOMMU type yet.
#[derive(Debug)]
pub(crate) enum Empty {}
/// State of a container: mappings can be made.
#[derive(Debug)]
pub(crate) enum Ready {}

/// A container. Only a [`Ready`] one can map, so that no mapping is tried before the IOMMU type is
/// set.
#[derive(Debug)]
pub(crate) struct Container<S> {
    handle: Handle,
    state: PhantomData<fn() -> S>,
}

impl Container<Empty> {
    /// Opens a container and checks that the kernel speaks our version and has this IOMMU type.
    pub(crate) fn open(sys: &Arc<dyn Sys>, path: &Path, kind: u32) -> Result<Self, VfioError> {
        let failed = |call| {
            let target = path.display().to_string();
            move |errno| VfioError::call(call, target, errno)
        };
        let handle = Handle::open(sys, path).map_err(failed(Call::OpenContainer))?;
        let version = handle.ask(Request::ApiVersion).map_err(failed(Call::Version))?;
        if version != vfio::VFIO_API_VERSION {
            return Err(VfioError::Lacking {
                what: "version 0 of the VFIO interface",
                remedy: "use a kernel this crate knows",
            });
        }
        let has = handle.ask_value(Request::CheckExtension, kind).map_err(failed(Call::Version))?;
        if has == 0 {
            return Err(if kind == vfio::VFIO_NOIOMMU_IOMMU {
                VfioError::Lacking {
                    what: "VFIO without IOMMU",
                    remedy: "load vfio with enable_unsafe_noiommu_mode=1, or use the IOMMU",
                }
            } else {
                VfioError::Lacking {
                    what: "IOMMU type 1 version 2",
                    remedy: "load vfio_iommu_type1 and turn the IOMMU on",
                }
            });
        }
        Ok(Self { handle, state: PhantomData })
    }

    /// Adds the group and sets the IOMMU type.
    pub(crate) fn with_group(
        self,
        group: &Group,
        kind: u32,
    ) -> Result<Container<Ready>, VfioError> {
        let target = || format!("group {}", group.number);
        let mut record = Record::of_bytes(&self.handle.fd().to_le_bytes());
        let set = group.handle.ask_record(Request::SetContainer, &mut record);
        set.map_err(|errno| VfioError::call(Call::SetContainer, target(), errno))?;
        let set = self.handle.ask_value(Request::SetIommu, kind);
        set.map_err(|errno| VfioError::call(Call::SetIommu, target(), errno))?;
        Ok(Container { handle: self.handle, state: PhantomData })
    }
}

/// An open group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) handle: Handle,
    pub(crate) number: u32,
}

impl Group {
    /// Opens a group and checks that no other driver has a member of it.
    pub(crate) fn open(
        sys: &Arc<dyn Sys>,
        path: &Path,
        number: u32,
        call: Call,
    ) -> Result<Self, VfioError> {
        let target = || path.display().to_string();
        let handle =
            Handle::open(sys, path).map_err(|errno| VfioError::call(call, target(), errno))?;
        let mut record = Record::new(size_of::<vfio_group_status>());
        let asked = handle.ask_record(Request::GroupStatus, &mut record);
        asked.map_err(|errno| VfioError::call(Call::GroupStatus, target(), errno))?;
        // Other flags may be set as well.
        let flags = record.u32(offset_of!(vfio_group_status, flags));
        if flags & vfio::VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(VfioError::NotViable { group: number });
        }
        Ok(Self { handle, number })
    }

    /// Gets the device out of the group, once its container is ready.
    pub(crate) fn device(&self, _ready: &Container<Ready>, bdf: Bdf) -> Result<Handle, VfioError> {
        let mut name = bdf.to_string().into_bytes();
        name.push(0);
        let mut record = Record::of_bytes(&name);
        let failed = |errno| VfioError::call(Call::DeviceFd, bdf.to_string(), errno);
        let fd = self.handle.ask_record(Request::DeviceFd, &mut record).map_err(failed)?;
        let fd = i32::try_from(fd).map_err(|_| failed(Errno::BADF))?;
        Ok(Handle::new(self.handle.sys(), fd))
    }
}

/// Whatever must live as long as a connection.
pub(crate) type Keep = Box<dyn Any + Send + Sync>;

/// IOMMU type 1 version 2. The group is closed before its container.
pub(crate) struct Type1 {
    /// Not there if the program opened it.
    group: Option<Group>,
    container: Container<Ready>,
    /// First and last bus address that are ours in a container that we share.
    window: Option<(u64, u64)>,
    /// Dropped last: the program's own handles.
    _keep: Option<Keep>,
}

impl fmt::Debug for Type1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Type1").field("group", &self.group).field("window", &self.window).finish()
    }
}

/// Opens a device by its group.
pub(crate) fn open(
    sys: &Arc<dyn Sys>,
    dev: &Path,
    bdf: Bdf,
    group: u32,
    close_timeout: Duration,
) -> Result<Kernel<Type1>, VfioError> {
    let kind = vfio::VFIO_TYPE1v2_IOMMU;
    let container = Container::open(sys, &dev.join("vfio/vfio"), kind)?;
    let path = dev.join("vfio").join(group.to_string());
    let group = Group::open(sys, &path, group, Call::OpenGroup)?;
    let container = container.with_group(&group, kind)?;
    let device = group.device(&container, bdf)?;
    let iommu = Type1 { group: Some(group), container, window: None, _keep: None };
    Kernel::new(bdf, device, iommu, close_timeout)
}

/// Takes over a device that the program opened, and its container, whose IOMMU type is set. Both
/// stay open in the program; `keep` is dropped after our copies.
#[cfg(any(test, feature = "vfio-ioctls"))]
pub(crate) fn lent(
    sys: &Arc<dyn Sys>,
    bdf: Bdf,
    (device, container): (Fd, Fd),
    window: (u64, u64),
    keep: Keep,
    close_timeout: Duration,
) -> Result<Kernel<Type1>, VfioError> {
    let copy = |fd| {
        let copy = sys.duplicate(fd).map(|fd| Handle::new(sys, fd));
        copy.map_err(|errno| VfioError::call(Call::Duplicate, bdf.to_string(), errno))
    };
    let device = copy(device)?;
    let container = Container { handle: copy(container)?, state: PhantomData };
    let iommu = Type1 { group: None, container, window: Some(window), _keep: Some(keep) };
    Kernel::new(bdf, device, iommu, close_timeout)
}

impl Type1 {
    fn range(iova: u64, len: u64) -> String {
        format!("{len:#x} bytes at {iova:#x}")
    }
}

impl Iommu for Type1 {
    fn mode(&self) -> Mode {
        Mode::Group
    }

    fn addressing(&self) -> Result<Addressing, VfioError> {
        let record = Record::new(size_of::<vfio_iommu_type1_info>());
        let record = self.container.handle.ask_sized(Request::IommuInfo, record);
        let group = self.group.as_ref().map_or_else(|| "lent".into(), |g| g.number.to_string());
        let record = record.map_err(|errno| VfioError::call(Call::IommuInfo, group, errno))?;
        let flags = record.u32(offset_of!(vfio_iommu_type1_info, flags));
        let sizes = record.u64(offset_of!(vfio_iommu_type1_info, iova_pgsizes));
        let page_bytes = match flags & vfio::VFIO_IOMMU_INFO_PGSIZES {
            0 => 4096,
            _ if sizes == 0 => 4096,
            _ => 1 << sizes.trailing_zeros(),
        };
        let caps = flags & vfio::VFIO_IOMMU_INFO_CAPS != 0;
        let first = record.u32(offset_of!(vfio_iommu_type1_info, cap_offset));
        let find = |id| if caps { capability(&record, first, id) } else { None };
        let ranges = find(vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE).map(|at| {
            let count_at = at + offset_of!(vfio_iommu_type1_info_cap_iova_range, nr_iovas);
            let list_at = at + offset_of!(vfio_iommu_type1_info_cap_iova_range, iova_ranges);
            pairs(&record, count_at, list_at)
        });
        let mut ranges = ranges.unwrap_or_else(|| OLD_KERNEL_RANGES.to_vec());
        if let Some((first, last)) = self.window {
            ranges.retain_mut(|range| {
                *range = (range.0.max(first), range.1.min(last));
                range.0 <= range.1
            });
        }
        let entries = find(vfio::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL)
            .map(|at| record.u32(at + offset_of!(vfio_iommu_type1_info_dma_avail, avail)));
        Ok(Addressing::Chosen { ranges, page_bytes, entries: entries.map(u64::from) })
    }

    fn map(&self, request: &DmaRequest) -> Result<(), VfioError> {
        let mut record = Record::new(size_of::<vfio_iommu_type1_dma_map>());
        let flags = match request.access {
            DeviceAccess::Read => vfio::VFIO_DMA_MAP_FLAG_READ,
            DeviceAccess::Write => vfio::VFIO_DMA_MAP_FLAG_WRITE,
            DeviceAccess::ReadWrite => vfio::VFIO_DMA_MAP_FLAG_READ | vfio::VFIO_DMA_MAP_FLAG_WRITE,
        };
        record.put_u32(offset_of!(vfio_iommu_type1_dma_map, flags), flags);
        record.put_u64(offset_of!(vfio_iommu_type1_dma_map, vaddr), request.address);
        record.put_u64(offset_of!(vfio_iommu_type1_dma_map, iova), request.iova);
        record.put_u64(offset_of!(vfio_iommu_type1_dma_map, size), request.len);
        let mapped = self.container.handle.ask_record(Request::MapDma, &mut record);
        let target = Self::range(request.iova, request.len);
        mapped.map(|_| ()).map_err(|errno| VfioError::call(Call::MapDma, target, errno))
    }

    fn unmap(&self, iova: u64, len: u64) -> Result<u64, VfioError> {
        let mut record = Record::new(offset_of!(vfio_iommu_type1_dma_unmap, data));
        let size_at = offset_of!(vfio_iommu_type1_dma_unmap, size);
        record.put_u64(offset_of!(vfio_iommu_type1_dma_unmap, iova), iova);
        record.put_u64(size_at, len);
        let unmapped = self.container.handle.ask_record(Request::UnmapDma, &mut record);
        let target = Self::range(iova, len);
        unmapped.map_err(|errno| VfioError::call(Call::UnmapDma, target, errno))?;
        Ok(record.u64(size_at))
    }

    fn ownership(&self) -> Ownership<'_> {
        // Without the group's descriptor a slot reset is possible only if the kernel knows the
        // owner.
        let group = self.group.as_ref();
        group.map_or(Ownership::Kernel, |group| Ownership::Group(group.number, &group.handle))
    }
}
