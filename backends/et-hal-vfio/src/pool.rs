//! Which memory the device can reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use et_hal::DeviceAccess;

use crate::iova::IovaSpace;
use crate::memory::{HUGE_PAGE_BYTES, Memory};
use crate::shared::Shared;
use crate::slab::{Piece, SLAB_BYTES, Slab};
use crate::sync::lock;
use crate::sys::{Errno, Fd};
use crate::transport::{Addressing, DmaRequest};
use crate::{Call, HugePages, LostBecause, VfioError};

/// Buffers above this have a mapping of their own.
const LARGEST_IN_SLAB: usize = SLAB_BYTES / 4;
/// Largest buffer.
const MAX_BUFFER_BYTES: usize = 64 << 30;

/// Bits of a page map entry.
const PAGE_PRESENT: u64 = 1 << 63;
const PAGE_FRAME: u64 = (1 << 55) - 1;

/// What happens to a mapping. Only who made it `Making` or `Leaving` talks to the transport about
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Making,
    There,
    Leaving,
}

#[derive(Debug)]
struct Mapped {
    len: u64,
    stage: Stage,
}

/// Who chooses bus addresses.
#[derive(Debug)]
enum Space {
    Ours(IovaSpace),
    Physical,
}

#[derive(Debug)]
struct State {
    space: Space,
    slabs: BTreeMap<u64, Slab>,
    next_slab: u64,
    /// Mappings of the device, by bus address.
    mappings: BTreeMap<u64, Mapped>,
    /// Bytes locked by them.
    locked: u64,
    /// Mappings the IOMMU still takes, if it counts.
    entries: Option<u64>,
    /// Memory whose mapping may still be there; kept until the connection is gone.
    quarantine: Vec<Arc<Memory>>,
    /// Freed during a reset; to be unmapped when it is done.
    limbo: Vec<(Arc<Memory>, u64, u64)>,
    closed: bool,
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    huge_pages: HugePages,
    page: u64,
    /// Bus addresses are physical ones.
    physical: bool,
    state: Mutex<State>,
    /// The stage of a mapping has changed.
    changed: Condvar,
}

/// Where a buffer is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) memory: Arc<Memory>,
    /// Offset in the memory.
    pub(crate) offset: usize,
    pub(crate) bus: u64,
    kind: Kind,
}

impl Place {
    /// Returns `true` if others have used or may use the memory.
    pub(crate) fn is_part(&self) -> bool {
        matches!(self.kind, Kind::Part(..))
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// All of a mapping of this length.
    Whole(u64),
    /// Part of the slab with this number.
    Part(u64, Piece),
}

impl Pool {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        huge_pages: HugePages,
        iova_bits: u32,
    ) -> Result<Self, VfioError> {
        let own_page = shared.sys.page_bytes() as u64;
        let (space, page, entries) = match shared.transport.addressing()? {
            Addressing::Physical => (Space::Physical, own_page, None),
            Addressing::Chosen { ranges, page_bytes, entries } => {
                let page = own_page.max(page_bytes);
                (Space::Ours(IovaSpace::new(&ranges, page, iova_bits)), page, entries)
            }
        };
        let physical = matches!(space, Space::Physical);
        let state = State {
            space,
            slabs: BTreeMap::new(),
            next_slab: 0,
            mappings: BTreeMap::new(),
            locked: 0,
            entries,
            quarantine: Vec::new(),
            limbo: Vec::new(),
            closed: false,
        };
        Ok(Self {
            shared: Arc::clone(shared),
            huge_pages,
            page,
            physical,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        self.page
    }

    pub(crate) fn is_physical(&self) -> bool {
        self.physical
    }

    /// Largest buffer in bytes: without an IOMMU, what lies together in memory.
    pub(crate) fn max_buffer_bytes(&self) -> usize {
        if self.is_physical() { SLAB_BYTES } else { MAX_BUFFER_BYTES }
    }

    /// Finds room for a buffer; the caller has checked its length.
    pub(crate) fn take(&self, len: usize, access: DeviceAccess) -> Result<Place, VfioError> {
        if len > LARGEST_IN_SLAB && !self.is_physical() {
            let memory = Arc::new(self.memory(len)?);
            let (bus, mapped) = self.map_memory(&memory, access)?;
            return Ok(Place { memory, offset: 0, bus, kind: Kind::Whole(mapped) });
        }
        if let Some(place) = self.take_from_slabs(len, access) {
            return Ok(place);
        }
        let memory = Arc::new(self.memory(SLAB_BYTES)?);
        let (bus, _) = if self.is_physical() {
            (self.physical(&memory)?, 0)
        } else {
            self.map_memory(&memory, access)?
        };
        let mut state = lock(&self.state);
        if state.closed {
            return Err(VfioError::Lost(LostBecause::Closed));
        }
        let mut slab = Slab::new(memory, bus, access);
        let number = state.next_slab;
        state.next_slab += 1;
        let piece = slab.take(len);
        let place = piece.map(|piece| part(number, &slab, piece));
        state.slabs.insert(number, slab);
        // An empty slab has room for what is at most a slab.
        place.ok_or(VfioError::BufferSize { len, max: SLAB_BYTES })
    }

    fn take_from_slabs(&self, len: usize, access: DeviceAccess) -> Option<Place> {
        let mut state = lock(&self.state);
        let mut slabs = state.slabs.iter_mut().filter(|(_, slab)| slab.access == access);
        slabs.find_map(|(&number, slab)| {
            let piece = slab.take(len)?;
            Some(part(number, slab, piece))
        })
    }

    /// Makes memory of the best pages there are. Physical addresses hold only for huge ones: small
    /// pages may move.
    fn memory(&self, len: usize) -> Result<Memory, VfioError> {
        let sys = &self.shared.sys;
        let wanted = self.huge_pages == HugePages::IfFree || self.is_physical();
        if wanted
            && len >= HUGE_PAGE_BYTES
            && let Some(memory) = Memory::huge(sys, len)
        {
            return Ok(memory);
        }
        if self.is_physical() {
            return Err(VfioError::call(Call::Memory, "a huge page of 2 MiB", Errno::NOMEM));
        }
        Memory::small(sys, len)
    }

    /// Looks up where memory of one huge page is in the machine.
    fn physical(&self, memory: &Memory) -> Result<u64, VfioError> {
        let failed = |errno| VfioError::call(Call::PageMap, "DMA memory", errno);
        let entry = self.shared.sys.page_map_entry(memory.base()).map_err(failed)?;
        let frame = entry & PAGE_FRAME;
        // A frame of 0 means that we may not know, not page 0.
        if entry & PAGE_PRESENT == 0 || frame == 0 {
            return Err(failed(Errno::PERM));
        }
        let address = frame.checked_mul(self.shared.sys.page_bytes() as u64);
        address.filter(|at| at % HUGE_PAGE_BYTES as u64 == 0).ok_or_else(|| failed(Errno::FAULT))
    }

    fn map_memory(&self, memory: &Memory, access: DeviceAccess) -> Result<(u64, u64), VfioError> {
        let align = if memory.is_huge() { HUGE_PAGE_BYTES as u64 } else { self.page };
        let len = (memory.len() as u64).next_multiple_of(self.page);
        let address = memory.base().as_ptr().expose_provenance() as u64;
        let file = Some((memory.file().fd(), 0));
        Ok((self.map(address, file, len, align, access)?, len))
    }

    /// Maps memory at a bus address of our choice.
    ///
    /// # Errors
    /// `Lost` once the pool is closed: then nothing is mapped, also if the close overtook this
    /// call.
    pub(crate) fn map(
        &self,
        address: u64,
        file: Option<(Fd, u64)>,
        len: u64,
        align: u64,
        access: DeviceAccess,
    ) -> Result<u64, VfioError> {
        let (iova, need, in_use) = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(VfioError::Lost(LostBecause::Closed));
            }
            let in_use = state.mappings.len() as u64;
            if state.entries == Some(0) {
                return Err(VfioError::MappingEntries { in_use });
            }
            let Space::Ours(space) = &mut state.space else {
                let mode = self.shared.transport.mode();
                return Err(VfioError::NotInMode { what: "mapping memory", mode });
            };
            let iova = space.take(len, align).ok_or(VfioError::NoBusAddresses { len })?;
            state.mappings.insert(iova, Mapped { len, stage: Stage::Making });
            state.locked += len;
            state.entries = state.entries.map(|left| left - 1);
            (iova, state.locked, in_use)
        };
        // Pinning a large buffer takes long, so the lock is free meanwhile.
        let request = DmaRequest { iova, len, access, address, file };
        let Err(error) = self.shared.transport.map_dma(&request) else {
            if self.settle(iova) {
                // The close waits for this mapping and then takes it away; who first does so is the
                // same.
                self.unmap(iova, len)?;
                return Err(VfioError::Lost(LostBecause::Closed));
            }
            tracing::trace!(iova, len, ?access, "mapped");
            return Ok(iova);
        };
        self.forget(iova);
        Err(match error {
            VfioError::Call { call: Call::MapDma, errno: Errno::NOMEM, .. } => {
                VfioError::LockedMemory { need, limit: self.shared.sys.locked_memory_limit() }
            }
            VfioError::Call { call: Call::MapDma, errno: Errno::NOSPC, .. } => {
                VfioError::MappingEntries { in_use }
            }
            error => error,
        })
    }

    /// Says that a mapping is there for others to take away; returns `true` if the pool was closed
    /// meanwhile.
    fn settle(&self, iova: u64) -> bool {
        let mut state = lock(&self.state);
        if let Some(mapped) = state.mappings.get_mut(&iova) {
            mapped.stage = Stage::There;
        }
        self.changed.notify_all();
        state.closed
    }

    /// Takes a mapping that does not exist off the books.
    fn forget(&self, iova: u64) {
        let mut state = lock(&self.state);
        let Some(Mapped { len, .. }) = state.mappings.remove(&iova) else { return };
        state.locked = state.locked.saturating_sub(len);
        state.entries = state.entries.map(|left| left + 1);
        if let Space::Ours(space) = &mut state.space {
            space.give_back(iova, len);
        }
        self.changed.notify_all();
    }

    /// Unmaps, or waits for the thread that does. When this returns `Ok` the device does not reach
    /// the memory, also while the pool is being closed. After an error it may, and the bus
    /// addresses are never used again.
    pub(crate) fn unmap(&self, iova: u64, len: u64) -> Result<(), VfioError> {
        let mut state = lock(&self.state);
        loop {
            match state.mappings.get_mut(&iova) {
                None => return Ok(()),
                Some(mapped) if mapped.stage == Stage::There => {
                    mapped.stage = Stage::Leaving;
                    break;
                }
                // Whoever is at it notifies; the transport's calls end.
                Some(_) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        drop(state);
        let unmapped = self.shared.transport.unmap_dma(iova, len);
        let unmapped = unmapped.and_then(|unmapped| {
            if unmapped == len {
                return Ok(());
            }
            Err(VfioError::ShortUnmap { iova, len, unmapped })
        });
        match unmapped {
            Ok(()) => self.forget(iova),
            // It may be tried again: by the close, or by who is dropped after it.
            Err(_) => drop(self.settle(iova)),
        }
        unmapped
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&self, place: &Place) {
        match place.kind {
            Kind::Whole(len) => self.give_back_memory(&place.memory, place.bus, len),
            Kind::Part(number, piece) => self.give_back_part(number, piece),
        }
    }

    fn give_back_memory(&self, memory: &Arc<Memory>, iova: u64, len: u64) {
        if self.shared.is_resetting() {
            let mut state = lock(&self.state);
            if !state.closed {
                state.limbo.push((Arc::clone(memory), iova, len));
            }
            return;
        }
        if let Err(error) = self.unmap(iova, len) {
            tracing::error!(%error, "memory given up");
            lock(&self.state).quarantine.push(Arc::clone(memory));
        }
    }

    fn give_back_part(&self, number: u64, piece: Piece) {
        let surplus = {
            let mut state = lock(&self.state);
            let Some(slab) = state.slabs.get_mut(&number) else { return };
            slab.give_back(piece);
            let access = slab.access;
            let empty = |slab: &Slab| slab.access == access && slab.is_empty();
            let spare = state.slabs.values().filter(|slab| empty(slab)).count() > 1;
            // One empty slab of each kind is kept. Physical memory is kept in any case: only when
            // the device is silenced for good is it certain that it does not use it.
            let unmap = spare && !self.is_physical() && !self.shared.is_resetting();
            let is_empty = state.slabs.get(&number).is_some_and(empty);
            if unmap && is_empty { state.slabs.remove(&number) } else { None }
        };
        if let Some(slab) = surplus {
            self.give_back_memory(&slab.memory, slab.bus, slab.memory.len() as u64);
        }
    }

    /// Unmaps what was freed during a reset.
    pub(crate) fn end_reset(&self) {
        let limbo = std::mem::take(&mut lock(&self.state).limbo);
        for (memory, iova, len) in limbo {
            self.give_back_memory(&memory, iova, len);
        }
    }

    /// Takes all memory away from the device. Buffers that callers still have stay usable for them.
    ///
    /// `silenced` says that the device certainly does not access memory any more. Otherwise memory
    /// at physical addresses is never returned to the system.
    ///
    /// # Errors
    /// The first failure to unmap; the others are logged.
    pub(crate) fn shut_down(&self, silenced: bool) -> Result<(), VfioError> {
        let (mappings, memories) = {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.closed, true) {
                return Ok(());
            }
            let mut memories = std::mem::take(&mut state.quarantine);
            memories
                .extend(std::mem::take(&mut state.limbo).into_iter().map(|(memory, ..)| memory));
            memories.extend(std::mem::take(&mut state.slabs).into_values().map(|slab| slab.memory));
            // From here on there are no new ones.
            let mappings: Vec<_> = state.mappings.iter().map(|(&at, m)| (at, m.len)).collect();
            (mappings, memories)
        };
        let mut outcome = Ok(());
        for (iova, len) in mappings {
            if let Err(error) = self.unmap(iova, len) {
                // The kernel has pinned the pages, so that the device cannot reach what others get.
                tracing::error!(%error, "mapping stays until the connection is closed");
                outcome = outcome.and(Err(error));
            }
        }
        if self.is_physical() && !silenced {
            tracing::error!("the device may still write: its memory is not returned to the system");
            memories.into_iter().for_each(std::mem::forget);
        }
        outcome
    }
}

fn part(number: u64, slab: &Slab, piece: Piece) -> Place {
    Place {
        memory: Arc::clone(&slab.memory),
        offset: piece.offset(),
        bus: slab.bus + piece.offset() as u64,
        kind: Kind::Part(number, piece),
    }
}
