//! What all kernel transports have in common: the device's descriptor.

use std::fmt;
use std::mem::{offset_of, size_of};
use std::time::Duration;

use et_hal::{ResetScope, Width, Widths};
use vfio_bindings::bindings::vfio::{
    self, vfio_device_info, vfio_irq_info, vfio_irq_set, vfio_pci_dependent_device,
    vfio_pci_hot_reset, vfio_pci_hot_reset_info, vfio_region_info,
    vfio_region_info_cap_sparse_mmap,
};

use super::caps::{capability, pairs};
use super::{Addressing, Area, DmaRequest, IrqIndex, Region, Transport, Vectors};
use crate::sys::{Errno, Fd, Handle, Record, Request};
use crate::{Bdf, Call, Mode, VfioError};

/// Bytes of an interrupt request before its data.
const IRQ_SET_BYTES: usize = offset_of!(vfio_irq_set, data);
/// How often a reset is tried while the kernel has the device locked.
const RESET_TRIES: u32 = 20;
/// Time between the tries.
const RESET_PAUSE: Duration = Duration::from_millis(10);
/// Devices a slot can have, with all functions; more are a broken answer.
const MAX_SLOT_DEVICES: u32 = 256;

/// The side of a kernel transport that translates bus addresses.
pub(crate) trait Iommu: fmt::Debug + Send + Sync {
    fn mode(&self) -> Mode;
    fn addressing(&self) -> Result<Addressing, VfioError>;
    fn map(&self, request: &DmaRequest) -> Result<(), VfioError>;
    fn unmap(&self, iova: u64, len: u64) -> Result<u64, VfioError>;
    /// What proves that the devices of a slot are ours.
    fn ownership(&self) -> Ownership<'_>;
}

/// Proof for a slot reset.
#[derive(Debug)]
pub(crate) enum Ownership<'a> {
    /// The group with this number.
    Group(u32, &'a Handle),
    /// The kernel knows it from the iommufd.
    Kernel,
}

/// What the device can do.
#[derive(Clone, Copy, Debug)]
struct DeviceInfo {
    /// It has a function reset.
    resets: bool,
    /// Number of interrupt indices.
    irqs: u32,
}

/// A device behind a kernel interface. The device is closed before the IOMMU side.
#[derive(Debug)]
pub(crate) struct Kernel<I> {
    bdf: Bdf,
    device: Handle,
    iommu: I,
    info: DeviceInfo,
}

impl<I: Iommu> Kernel<I> {
    /// Asks the device what it is.
    ///
    /// The kernel resets a device when it is closed, which takes more than a minute if the device
    /// is dead; hence `close_timeout`.
    pub(crate) fn new(
        bdf: Bdf,
        device: Handle,
        iommu: I,
        close_timeout: Duration,
    ) -> Result<Self, VfioError> {
        let device = device.closing_within(close_timeout);
        let record = Record::new(offset_of!(vfio_device_info, cap_offset));
        let record = device
            .ask_sized(Request::DeviceInfo, record)
            .map_err(|errno| VfioError::call(Call::Info, bdf.to_string(), errno))?;
        let flags = record.u32(offset_of!(vfio_device_info, flags));
        if flags & vfio::VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(VfioError::Lacking {
                what: "a PCI device at this address",
                remedy: "name a PCI function",
            });
        }
        let info = DeviceInfo {
            resets: flags & vfio::VFIO_DEVICE_FLAGS_RESET != 0,
            irqs: record.u32(offset_of!(vfio_device_info, num_irqs)),
        };
        Ok(Self { bdf, device, iommu, info })
    }

    fn failed(&self, call: Call) -> impl FnOnce(Errno) -> VfioError {
        let bdf = self.bdf;
        move |errno| VfioError::call(call, bdf.to_string(), errno)
    }

    fn irq_request(index: IrqIndex, flags: u32, vectors: u32, data: &[Fd]) -> Record {
        let mut record = Record::new(IRQ_SET_BYTES + 4 * data.len());
        record.put_u32(offset_of!(vfio_irq_set, flags), flags | vfio::VFIO_IRQ_SET_ACTION_TRIGGER);
        record.put_u32(offset_of!(vfio_irq_set, index), index.number());
        record.put_u32(offset_of!(vfio_irq_set, count), vectors);
        for (place, &fd) in (IRQ_SET_BYTES..).step_by(4).zip(data) {
            record.put_u32(place, fd.cast_unsigned());
        }
        record
    }

    fn slot_reset(&self) -> Result<(), Errno> {
        self.check_slot()?;
        let group = match self.iommu.ownership() {
            Ownership::Group(_, group) => Some(group.fd()),
            Ownership::Kernel => None,
        };
        let fds_at = offset_of!(vfio_pci_hot_reset, group_fds);
        let mut record = Record::new(fds_at + if group.is_some() { 4 } else { 0 });
        if let Some(fd) = group {
            record.put_u32(offset_of!(vfio_pci_hot_reset, count), 1);
            record.put_u32(fds_at, fd.cast_unsigned());
        }
        self.device.ask_record(Request::HotReset, &mut record).map(|_| ())
    }

    /// Checks that a slot reset hits no device of others. `EPERM`, as the kernel would say it.
    fn check_slot(&self) -> Result<(), Errno> {
        let list_at = offset_of!(vfio_pci_hot_reset_info, devices);
        let mut record = Record::new(list_at);
        // Without room the kernel says ENOSPC and the number; some kernels need no room for none.
        let count_at = offset_of!(vfio_pci_hot_reset_info, count);
        match self.device.ask_record(Request::HotResetInfo, &mut record) {
            Ok(_) | Err(Errno::NOSPC) => {}
            Err(errno) => return Err(errno),
        }
        let count = record.u32(count_at);
        if count > MAX_SLOT_DEVICES {
            return Err(Errno::MSGSIZE);
        }
        let count = count as usize;
        let each = size_of::<vfio_pci_dependent_device>();
        let mut record = Record::new(list_at + count * each);
        self.device.ask_record(Request::HotResetInfo, &mut record)?;
        let flags = record.u32(offset_of!(vfio_pci_hot_reset_info, flags));
        let ours = match self.iommu.ownership() {
            Ownership::Group(group, _) => {
                let listed = (record.u32(count_at) as usize).min(count);
                (0..listed).all(|index| record.u32(list_at + index * each) == group)
            }
            Ownership::Kernel => flags & vfio::VFIO_PCI_HOT_RESET_FLAG_DEV_ID_OWNED != 0,
        };
        if ours { Ok(()) } else { Err(Errno::PERM) }
    }

    fn try_reset(&self, scope: ResetScope) -> Result<(), Errno> {
        match scope {
            ResetScope::Slot => self.slot_reset(),
            _ => self.device.ask(Request::DeviceReset).map(|_| ()),
        }
    }
}

fn sparse_areas(record: &Record) -> Option<Vec<(u64, u64)>> {
    let first = record.u32(offset_of!(vfio_region_info, cap_offset));
    let at = capability(record, first, vfio::VFIO_REGION_INFO_CAP_SPARSE_MMAP)?;
    let count_at = at + offset_of!(vfio_region_info_cap_sparse_mmap, nr_areas);
    Some(pairs(record, count_at, at + offset_of!(vfio_region_info_cap_sparse_mmap, areas)))
}

/// Puts areas in order and cuts them to the region; what overlaps is left out.
fn tidy(list: Vec<(u64, u64)>, size: u64) -> Vec<Area> {
    let mut areas: Vec<_> = list
        .into_iter()
        .map(|(start, len)| Area { start, end: start.saturating_add(len).min(size) })
        .filter(|area| area.start < area.end)
        .collect();
    areas.sort_unstable_by_key(|area| area.start);
    let mut end = 0;
    areas.retain(|area| {
        let apart = area.start >= end;
        end = end.max(area.end);
        apart
    });
    areas
}

impl<I: Iommu> Transport for Kernel<I> {
    fn mode(&self) -> Mode {
        self.iommu.mode()
    }

    fn interface(&self) -> String {
        // There is one version of VFIO; who opened the container has seen that it is this one.
        let api = vfio::VFIO_API_VERSION;
        match self.mode() {
            Mode::Cdev => "VFIO by iommufd".to_owned(),
            Mode::NoIommu => format!("VFIO API {api} without IOMMU"),
            _ => format!("VFIO API {api}, IOMMU type 1 version 2"),
        }
    }

    fn region(&self, index: u32) -> Result<Region, VfioError> {
        let mut record = Record::new(size_of::<vfio_region_info>());
        record.put_u32(offset_of!(vfio_region_info, index), index);
        let record =
            self.device.ask_sized(Request::RegionInfo, record).map_err(self.failed(Call::Info))?;
        let flags = record.u32(offset_of!(vfio_region_info, flags));
        let size = record.u64(offset_of!(vfio_region_info, size));
        let list = if flags & vfio::VFIO_REGION_INFO_FLAG_MMAP == 0 {
            Vec::new()
        } else if flags & vfio::VFIO_REGION_INFO_FLAG_CAPS == 0 {
            vec![(0, size)]
        } else {
            sparse_areas(&record).unwrap_or_else(|| vec![(0, size)])
        };
        let offset = record.u64(offset_of!(vfio_region_info, offset));
        Ok(Region { index, size, offset, areas: tidy(list, size) })
    }

    fn file(&self, region: &Region, at: u64) -> (Fd, u64) {
        (self.device.fd(), region.offset.saturating_add(at))
    }

    fn read(&self, region: &Region, at: u64, into: &mut [u8]) -> Result<(), VfioError> {
        let offset = region.offset.saturating_add(at);
        self.device.read_at(into, offset).map_err(self.failed(Call::Region))
    }

    fn write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError> {
        let offset = region.offset.saturating_add(at);
        self.device.write_at(from, offset).map_err(self.failed(Call::Region))
    }

    fn unsplit_widths(&self) -> Widths {
        // Older kernels make two accesses of an 8-byte one.
        Widths::only(Width::W8).with(Width::W16).with(Width::W32)
    }

    fn vectors(&self, index: IrqIndex) -> Result<u32, VfioError> {
        if index.number() >= self.info.irqs {
            return Ok(0);
        }
        let mut record = Record::new(size_of::<vfio_irq_info>());
        record.put_u32(offset_of!(vfio_irq_info, index), index.number());
        match self.device.ask_record(Request::IrqInfo, &mut record) {
            Ok(_) => {}
            // ERR exists only on PCI Express; older kernels know no REQ.
            Err(Errno::INVAL) => return Ok(0),
            Err(errno) => return Err(self.failed(Call::Info)(errno)),
        }
        const EVENTFD: u32 = 1;
        let signals = record.u32(offset_of!(vfio_irq_info, flags)) & EVENTFD != 0;
        Ok(if signals { record.u32(offset_of!(vfio_irq_info, count)) } else { 0 })
    }

    fn set_vectors(&self, index: IrqIndex, events: &[Fd]) -> Result<Vectors, VfioError> {
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let mut record = Self::irq_request(index, vfio::VFIO_IRQ_SET_DATA_EVENTFD, count, events);
        let answer = self.device.ask_record(Request::SetIrqs, &mut record);
        // A positive answer is no success: it is the number that could have been had, and nothing
        // is enabled.
        match answer {
            Ok(0) => Ok(Vectors::Enabled),
            Ok(only) => Ok(Vectors::Only(only)),
            // Not even one.
            Err(Errno::NOSPC) => Ok(Vectors::Only(0)),
            Err(errno) => Err(self.failed(Call::SetIrqs)(errno)),
        }
    }

    fn disable_vectors(&self, index: IrqIndex) -> Result<(), VfioError> {
        let mut record = Self::irq_request(index, vfio::VFIO_IRQ_SET_DATA_NONE, 0, &[]);
        let answer = self.device.ask_record(Request::SetIrqs, &mut record);
        answer.map(|_| ()).map_err(self.failed(Call::SetIrqs))
    }

    fn trigger(&self, index: IrqIndex, vector: u32) -> Result<(), VfioError> {
        let mut record = Self::irq_request(index, vfio::VFIO_IRQ_SET_DATA_NONE, 1, &[]);
        record.put_u32(offset_of!(vfio_irq_set, start), vector);
        let answer = self.device.ask_record(Request::SetIrqs, &mut record);
        answer.map(|_| ()).map_err(self.failed(Call::SetIrqs))
    }

    fn addressing(&self) -> Result<Addressing, VfioError> {
        self.iommu.addressing()
    }

    fn map_dma(&self, request: &DmaRequest) -> Result<(), VfioError> {
        self.iommu.map(request)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<u64, VfioError> {
        self.iommu.unmap(iova, len)
    }

    fn can_reset(&self, scope: ResetScope) -> bool {
        match scope {
            ResetScope::Function => self.info.resets,
            // Whether the slot's other devices are ours is known only at the time.
            ResetScope::Slot => self.iommu.mode() != Mode::NoIommu,
            _ => false,
        }
    }

    fn reset(&self, scope: ResetScope) -> Result<(), VfioError> {
        if !self.can_reset(scope) {
            return Err(VfioError::NoReset(scope));
        }
        let call = if scope == ResetScope::Slot { Call::HotReset } else { Call::Reset };
        for _ in 1..RESET_TRIES {
            match self.try_reset(scope) {
                // The kernel only tries to lock the device.
                Err(Errno::AGAIN | Errno::BUSY) => {
                    let _ = self.device.sys().poll(&[], RESET_PAUSE);
                }
                outcome => return outcome.map_err(self.failed(call)),
            }
        }
        self.try_reset(scope).map_err(self.failed(call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_cut_ordered_and_disjoint() {
        let area = |start, end| Area { start, end };
        assert_eq!(
            tidy(vec![(0x2000, 0x1000), (0, 0x1000)], 0x2800),
            [area(0, 0x1000), area(0x2000, 0x2800)]
        );
        assert_eq!(tidy(vec![(0, 0x2000), (0x1000, 0x2000)], 0x4000), [area(0, 0x2000)]);
        assert_eq!(tidy(vec![(0x5000, 1), (0, 0), (u64::MAX, 2)], 0x4000), []);
    }
}
