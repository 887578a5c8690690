//! What the device can reach on the host side: the simulated IOMMU.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

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
}

#[derive(Clone, Debug)]
struct Region {
    len: u64,
    memory: Arc<MmapRegion>,
    access: DeviceAccess,
}

/// A piece of host memory, kept alive for one copy.
#[derive(Debug)]
pub(crate) struct Span {
    memory: Arc<MmapRegion>,
    offset: usize,
    len: usize,
}

impl Span {
    /// Bytes from the address asked for to the end of the mapping, at most as many as asked for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes.
    pub(crate) fn slice(&self) -> Result<VolatileSlice<'_>, BusFault> {
        self.memory.get_slice(self.offset, self.len).map_err(|_| BusFault)
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
        let start = bus.as_u64();
        let len = memory.size() as u64;
        let end = start.checked_add(len).filter(|_| len != 0);
        let end = end.ok_or(MapError::BadRange { bus, len })?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let below = regions.range(..end).next_back();
        if below.is_some_and(|(at, region)| at + region.len > start) {
            return Err(MapError::Overlap { bus, len });
        }
        regions.insert(start, Region { len, memory, access });
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

    /// Returns the number of mappings.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.regions.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Finds the memory at `bus`: as much of `len` bytes as lies in one mapping.
    pub(crate) fn find(&self, bus: u64, len: u64, access: EngineAccess) -> Result<Span, BusFault> {
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
        Ok(Span {
            memory: Arc::clone(&region.memory),
            offset: usize::try_from(offset).map_err(|_| BusFault)?,
            len: usize::try_from(left.min(len)).map_err(|_| BusFault)?,
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
        assert_eq!(host.find(0x1800, 0x4000, EngineAccess::Read).unwrap().len(), 0x800);
        assert!(host.find(0x2000, 1, EngineAccess::Read).is_err());
        assert!(host.find(0xfff, 1, EngineAccess::Read).is_err());
        assert!(host.find(0x1000, 1, EngineAccess::Write).is_err());
        host.unmap(BusAddr::new(0x1000)).unwrap();
        assert!(host.find(0x1000, 1, EngineAccess::Read).is_err());
        let twice = host.unmap(BusAddr::new(0x1000));
        assert_eq!(twice, Err(MapError::NotMapped { bus: BusAddr::new(0x1000) }));
    }
}
