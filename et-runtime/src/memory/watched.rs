//! Device memory of a device that checks what kernels access.

use std::collections::VecDeque;

use et_hal::{DeviceAddr, MemoryWatch};

use super::allocator::{Block, GRANULE_BYTES};
use super::{AllocError, Allocator, MemoryStats};

/// Memory behind a buffer that stays unused, so that the next one is not the first thing a kernel
/// meets there: a quarter of the buffer, within these bounds.
const LEAST_ZONE_BYTES: u64 = 256;
const LARGEST_ZONE_BYTES: u64 = 64 << 10;
/// The part of the memory that may wait after it was freed.
const WAITING_PART: u64 = 8;

/// Announces buffers, keeps them apart, and keeps freed ones unused for a while.
///
/// None of that shows but in addresses: an allocation that would fit otherwise is made.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: Box<dyn MemoryWatch>,
    /// Freed blocks that are still taken in the allocator, oldest first, and their bytes.
    waiting: VecDeque<(DeviceAddr, u64)>,
    /// Bytes of these.
    waiting_bytes: u64,
    most_waiting_bytes: u64,
    /// Bytes that are taken in the allocator and in no live block.
    pub(super) hidden_bytes: u64,
}

impl Watched {
    pub(super) fn new(watch: Box<dyn MemoryWatch>, len_bytes: u64) -> Self {
        Self {
            watch,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            most_waiting_bytes: len_bytes / WAITING_PART,
            hidden_bytes: 0,
        }
    }

    /// Allocates and announces a block, and as much behind it as there is room for.
    pub(super) fn alloc(
        &mut self,
        allocator: &mut Allocator,
        len_bytes: u64,
        align: u64,
    ) -> Result<Block, AllocError> {
        let zone = (len_bytes / 4).clamp(LEAST_ZONE_BYTES, LARGEST_ZONE_BYTES);
        let padded = if len_bytes == 0 { 0 } else { len_bytes.saturating_add(zone) };
        let mut made = allocator.alloc(padded, align);
        if matches!(made, Err(AllocError::OutOfMemory { .. })) {
            self.release(allocator, 0)?;
            made = allocator.alloc(padded, align).or_else(|_| allocator.alloc(len_bytes, align));
        }
        let Block { addr, len_bytes: taken } = made?;
        let block_bytes = len_bytes.next_multiple_of(GRANULE_BYTES);
        self.hidden_bytes += taken - block_bytes;
        self.watch.allocated(addr, len_bytes);
        Ok(Block { addr, len_bytes: block_bytes })
    }

    /// Frees a block of so many bytes, and returns them.
    pub(super) fn free(
        &mut self,
        allocator: &mut Allocator,
        addr: DeviceAddr,
        block_bytes: u64,
    ) -> Result<u64, AllocError> {
        self.watch.freed(addr);
        self.waiting.push_back((addr, block_bytes));
        self.waiting_bytes += block_bytes;
        self.hidden_bytes += block_bytes;
        self.release(allocator, self.most_waiting_bytes)?;
        Ok(block_bytes)
    }

    /// Makes memory available until no more than so many bytes wait.
    fn release(&mut self, allocator: &mut Allocator, most: u64) -> Result<(), AllocError> {
        while self.waiting_bytes > most
            && let Some((addr, block_bytes)) = self.waiting.pop_front()
        {
            self.waiting_bytes -= block_bytes;
            self.hidden_bytes -= allocator.free(addr)?;
        }
        Ok(())
    }

    /// Returns what would be in use without all this. What waits does so no longer: it is free for
    /// whoever asks.
    pub(super) fn stats(&mut self, allocator: &mut Allocator) -> MemoryStats {
        let released = self.release(allocator, 0);
        debug_assert!(released.is_ok(), "what waits is known to its allocator");
        let stats = allocator.stats();
        MemoryStats {
            free_bytes: stats.free_bytes + self.hidden_bytes,
            used_bytes: stats.used_bytes - self.hidden_bytes,
            ..stats
        }
    }
}

#[cfg(test)]
mod tests {
    use et_hal::WatchedBuffer;

    use super::*;
    use crate::memory::DeviceMemory;
    use crate::sync::{Arc, Mutex, lock};

    const BASE: u64 = 0x80_0580_1000;

    /// What was announced.
    #[derive(Clone, Debug, Default)]
    struct Announced {
        /// Addresses and lengths of buffers.
        allocated: Arc<Mutex<Vec<(u64, u64)>>>,
        freed: Arc<Mutex<Vec<u64>>>,
    }

    impl MemoryWatch for Announced {
        fn allocated(&self, addr: DeviceAddr, len_bytes: u64) {
            lock(&self.allocated).push((addr.as_u64(), len_bytes));
        }

        fn read_only(&self, _: DeviceAddr, _: u64) {}

        fn freed(&self, addr: DeviceAddr) {
            lock(&self.freed).push(addr.as_u64());
        }

        fn nearest(&self, _: DeviceAddr) -> Option<WatchedBuffer> {
            None
        }
    }

    fn memory(len_bytes: u64) -> (Arc<DeviceMemory>, Announced) {
        let announced = Announced::default();
        let watch = Box::new(announced.clone());
        (DeviceMemory::new(DeviceAddr::new(BASE), len_bytes, Some(watch)).unwrap(), announced)
    }

    #[test]
    fn buffers_are_announced_as_long_as_asked_for_and_do_not_touch() {
        let (memory, announced) = memory(1 << 20);
        let (first, second) = (memory.alloc(1000, 64).unwrap(), memory.alloc(100, 64).unwrap());
        let (low, high) = (first.addr().as_u64(), second.addr().as_u64());
        assert_eq!(*lock(&announced.allocated), [(low, 1000), (high, 100)]);
        assert!(high >= low + 1000 + LEAST_ZONE_BYTES - 64 && high % 64 == 0);
        assert_eq!(first.whole().padded_len(), 1024, "copies stay out of the zone");
        drop(first);
        assert_eq!(*lock(&announced.freed), [low]);
    }

    #[test]
    fn statistics_count_what_was_asked_for() {
        let (memory, _) = memory(1 << 20);
        let used = || (memory.stats().used_bytes, memory.stats().live_blocks);
        let all = memory.stats().free_bytes;
        let (first, second) = (memory.alloc(1000, 64).unwrap(), memory.alloc(64, 64).unwrap());
        assert_eq!((used(), memory.stats().free_bytes), ((1024 + 64, 2), all - 1024 - 64));
        drop(first);
        assert_eq!(used(), (64, 1));
        drop(second);
        assert_eq!((used(), memory.stats().largest_free_bytes), ((0, 0), all));
    }

    #[test]
    fn freed_memory_is_used_again_when_there_is_no_other() {
        let (memory, _) = memory(1 << 20);
        let first = memory.alloc(4096, 64).unwrap();
        let at = first.addr();
        drop(first);
        assert!(memory.alloc(4096, 64).unwrap().addr() != at);
        // All of it, for which there is no room with a zone.
        let all = memory.alloc(1 << 20, 64).unwrap();
        assert_eq!(all.addr(), DeviceAddr::new(BASE));
        assert!(memory.alloc(64, 64).is_err());
        drop(all);
        assert!(memory.alloc(1 << 19, 64).is_ok());
        // No more than a part waits: there is always room again.
        for _ in 0..100 {
            memory.alloc(1 << 18, 64).unwrap();
        }
        assert!(memory.alloc(u64::MAX, 64).is_err() && memory.alloc(0, 64).is_err());
    }
}
