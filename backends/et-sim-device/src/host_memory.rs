//! What the device can reach on the host side: the simulated IOMMU.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use et_hal::{BusAddr, DeviceAccess};
use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

use crate::MapError;

/// What the DMA engine is about to do with host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineAccess {
    /// Read it, for a transfer to the device.
    Read,
    /// Write it, for a transfer to the host.
    Write,
}

/// The engine put out an address that is not mapped for what it wanted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusFault;

/// Host memory mapped at bus addresses.
///
/// A region stays alive while the engine copies through it, whatever the host does in the
/// meantime: taking it away only makes later accesses fault.
#[derive(Debug, Default)]
pub struct HostMemory {
    regions: RwLock<BTreeMap<u64, Region>>,
    /// Held while the engine copies through mapped memory.
    copying: Mutex<()>,
    /// The host has not allowed the device to master the bus.
    is_closed: AtomicBool,
}

/// Host memory that cannot be mapped, only asked for.
///
/// The host decides about each access; a refusal is a bus fault.
pub trait RemoteMemory: fmt::Debug + Send + Sync {
    /// Reads bus addresses from `bus` on; returns `true` if the host allowed it.
    fn read(&self, bus: BusAddr, into: &mut [u8]) -> bool;

    /// Writes bus addresses from `bus` on; returns `true` if the host allowed it.
    fn write(&self, bus: BusAddr, from: &[u8]) -> bool;
}

#[derive(Clone, Debug)]
enum Backing {
    /// The mapping starts `offset` bytes into the memory.
    Mapped {
        memory: Arc<MmapRegion>,
        offset: u64,
    },
    Remote(Arc<dyn RemoteMemory>),
}

#[derive(Clone, Debug)]
struct Region {
    len: u64,
    backing: Backing,
    access: DeviceAccess,
}

/// A piece of host memory, kept alive for one copy.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    /// Bytes from the address asked for to the end of the mapping, at most as many as asked for.
    pub(crate) len: usize,
    kind: SpanKind,
    /// Mapped memory may be taken away for good only between two copies.
    _copying: Option<MutexGuard<'a, ()>>,
}

#[derive(Debug)]
enum SpanKind {
    Mapped { memory: Arc<MmapRegion>, offset: usize },
    Remote { memory: Arc<dyn RemoteMemory>, bus: u64 },
}

/// How a piece of host memory is reached.
#[derive(Debug)]
pub(crate) enum Reach<'a> {
    /// Directly.
    Mapped(VolatileSlice<'a>),
    /// By asking for the bus addresses from this one on.
    Remote(&'a dyn RemoteMemory, BusAddr),
}

impl Span<'_> {
    /// Returns the bytes, or the way to them.
    pub(crate) fn reach(&self) -> Result<Reach<'_>, BusFault> {
        match &self.kind {
            SpanKind::Mapped { memory, offset } => {
                memory.get_slice(*offset, self.len).map(Reach::Mapped).map_err(|_| BusFault)
            }
            SpanKind::Remote { memory, bus } => Ok(Reach::Remote(&**memory, BusAddr::new(*bus))),
        }
    }
}

impl HostMemory {
    /// Maps `memory` at `bus` for what `access` allows.
    ///
    /// # Errors
    /// [`MapError::BadRange`] if the range is empty or wraps around; [`MapError::Overlap`].
    pub fn map(
        &self,
        bus: BusAddr,
        memory: Arc<MmapRegion>,
        access: DeviceAccess,
    ) -> Result<(), MapError> {
        let whole = 0..memory.size() as u64;
        self.map_part(bus, memory, whole, access)
    }

    /// Maps a part of `memory` at `bus`, for hosts that offer one file in many windows.
    ///
    /// # Errors
    /// As [`map`](Self::map), and [`MapError::BadRange`] if the part is not inside the memory.
    pub fn map_part(
        &self,
        bus: BusAddr,
        memory: Arc<MmapRegion>,
        part: Range<u64>,
        access: DeviceAccess,
    ) -> Result<(), MapError> {
        let len = part.end.saturating_sub(part.start);
        if part.end > memory.size() as u64 {
            return Err(MapError::BadRange { bus, len });
        }
        self.insert(bus, len, Backing::Mapped { memory, offset: part.start }, access)
    }

    /// Lets the engine ask for `len` bytes at `bus`.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_remote(
        &self,
        bus: BusAddr,
        len: u64,
        memory: Arc<dyn RemoteMemory>,
        access: DeviceAccess,
    ) -> Result<(), MapError> {
        self.insert(bus, len, Backing::Remote(memory), access)
    }

    fn insert(
        &self,
        bus: BusAddr,
        len: u64,
        backing: Backing,
        access: DeviceAccess,
    ) -> Result<(), MapError> {
        let start = bus.as_u64();
        let end = start.checked_add(len).filter(|_| len != 0);
        let end = end.ok_or(MapError::BadRange { bus, len })?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let below = regions.range(..end).next_back();
        if below.is_some_and(|(at, region)| at + region.len > start) {
            return Err(MapError::Overlap { bus, len });
        }
        regions.insert(start, Region { len, backing, access });
        Ok(())
    }

    /// Takes the mapping that starts at `bus` away; a copy in progress ends undisturbed.
    ///
    /// # Errors
    /// [`MapError::NotMapped`].
    pub fn unmap(&self, bus: BusAddr) -> Result<(), MapError> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let region = regions.remove(&bus.as_u64());
        drop(regions);
        // The memory may be freed here, outside the lock.
        region.map(drop).ok_or(MapError::NotMapped { bus })
    }

    /// Takes all mappings away.
    pub fn unmap_all(&self) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *regions);
        drop(regions);
        drop(all);
    }

    /// Waits for the copy in progress, after which memory that was unmapped before is not touched.
    ///
    /// Not for remote memory, whose host decides about each access itself.
    pub fn quiesce(&self) {
        drop(self.copying.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Allows or forbids the device to master the bus, as the bit in its configuration space does.
    pub fn set_bus_master(&self, is_allowed: bool) {
        self.is_closed.store(!is_allowed, Ordering::Release);
    }

    /// Returns the number of mappings.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.regions.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Finds the memory at `bus`: as much of `len` bytes as lies in one mapping.
    pub(crate) fn find(
        &self,
        bus: u64,
        len: u64,
        access: EngineAccess,
    ) -> Result<Span<'_>, BusFault> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BusFault);
        }
        // Before the look: what is found stays mapped until the guard goes.
        let copying = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (start, region) = regions.range(..=bus).next_back().ok_or(BusFault)?;
        let offset = bus - start;
        let left = region.len.checked_sub(offset).filter(|&left| left != 0).ok_or(BusFault)?;
        match (region.access, access) {
            (DeviceAccess::ReadWrite, _)
            | (DeviceAccess::Read, EngineAccess::Read)
            | (DeviceAccess::Write, EngineAccess::Write) => {}
            _ => return Err(BusFault),
        }
        let len = usize::try_from(left.min(len)).map_err(|_| BusFault)?;
        Ok(match &region.backing {
            Backing::Mapped { memory, offset: first } => {
                let offset = usize::try_from(first + offset).map_err(|_| BusFault)?;
                let kind = SpanKind::Mapped { memory: Arc::clone(memory), offset };
                Span { len, kind, _copying: Some(copying) }
            }
            Backing::Remote(memory) => {
                // The host may be waiting for an unmapping to end before it answers.
                let kind = SpanKind::Remote { memory: Arc::clone(memory), bus };
                Span { len, kind, _copying: None }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> Arc<MmapRegion> {
        Arc::new(MmapRegion::new(len).unwrap())
    }

    #[test]
    fn overlapping_mappings_are_refused() {
        let host = HostMemory::default();
        let bus = BusAddr::new;
        host.map(bus(0x1000), memory(0x2000), DeviceAccess::Read).unwrap();
        for at in [0x1000, 0x2fff, 0x0001] {
            let again = host.map(bus(at), memory(0x1000), DeviceAccess::Read);
            assert_eq!(again, Err(MapError::Overlap { bus: bus(at), len: 0x1000 }), "{at:#x}");
        }
        host.map(bus(0x3000), memory(0x1000), DeviceAccess::Read).unwrap();
        host.map(bus(0), memory(0x1000), DeviceAccess::Read).unwrap();
        let wrap = host.map(bus(u64::MAX), memory(0x1000), DeviceAccess::Read);
        assert!(matches!(wrap, Err(MapError::BadRange { .. })));
    }

    #[test]
    fn the_engine_faults_outside_mappings_and_permissions() {
        let host = HostMemory::default();
        host.map(BusAddr::new(0x1000), memory(0x1000), DeviceAccess::Read).unwrap();
        assert_eq!(host.find(0x1800, 0x4000, EngineAccess::Read).unwrap().len, 0x800);
        assert!(host.find(0x2000, 1, EngineAccess::Read).is_err());
        assert!(host.find(0xfff, 1, EngineAccess::Read).is_err());
        assert!(host.find(0x1000, 1, EngineAccess::Write).is_err());
        host.unmap(BusAddr::new(0x1000)).unwrap();
        assert!(host.find(0x1000, 1, EngineAccess::Read).is_err());
        let twice = host.unmap(BusAddr::new(0x1000));
        assert_eq!(twice, Err(MapError::NotMapped { bus: BusAddr::new(0x1000) }));
    }

    #[test]
    fn windows_of_one_memory_and_memory_to_be_asked_for_stand_side_by_side() {
        #[derive(Debug)]
        struct Refuses;
        impl RemoteMemory for Refuses {
            fn read(&self, _: BusAddr, _: &mut [u8]) -> bool {
                false
            }
            fn write(&self, _: BusAddr, _: &[u8]) -> bool {
                false
            }
        }
        let host = HostMemory::default();
        let file = memory(0x3000);
        file.get_slice(0x2010, 4).unwrap().copy_from(&[1_u8, 2, 3, 4]);
        let (bus, access) = (BusAddr::new, DeviceAccess::ReadWrite);
        host.map_part(bus(0x1000), Arc::clone(&file), 0x2000..0x3000, access).unwrap();
        host.map_remote(bus(0x2000), 0x1000, Arc::new(Refuses), access).unwrap();
        let outside = host.map_part(bus(0x8000), Arc::clone(&file), 0x2000..0x3001, access);
        assert!(matches!(outside, Err(MapError::BadRange { .. })), "{outside:?}");
        let span = host.find(0x1010, 0x2000, EngineAccess::Read).unwrap();
        assert_eq!(span.len, 0xff0, "to the end of the window");
        let Reach::Mapped(slice) = span.reach().unwrap() else { panic!("{span:?}") };
        let mut bytes = [0_u8; 4];
        slice.copy_to(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        drop(span);
        let remote = host.find(0x2ff0, 0x1000, EngineAccess::Write).unwrap();
        assert_eq!(remote.len, 0x10);
        assert!(matches!(remote.reach(), Ok(Reach::Remote(_, at)) if at == bus(0x2ff0)));
        host.set_bus_master(false);
        assert!(host.find(0x1010, 1, EngineAccess::Read).is_err(), "the device is no bus master");
        host.set_bus_master(true);
        host.unmap_all();
        host.quiesce();
        assert_eq!(host.mappings(), 0);
    }
}
