//! A bounded pool of DMA memory through which ordinary memory is copied.

use std::sync::{Arc, Mutex, PoisonError};

use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, Hal};

use crate::{Error, Result};

/// Chunk sizes in bytes. The largest fits a core's second-level cache together with its copy, so that
/// what the host writes is still there when the device reads it.
const CLASSES: [usize; 3] = [4 << 10, 32 << 10, 256 << 10];

/// The pool. Chunks are mapped once and kept.
pub(crate) struct Staging<H: Hal> {
    free: Mutex<Free<H>>,
    limit_bytes: usize,
}

struct Free<H: Hal> {
    chunks: [Vec<<H::Dma as Dma>::Buffer>; CLASSES.len()],
    /// Bytes mapped, free and in use.
    mapped_bytes: usize,
}

impl<H: Hal> Staging<H> {
    pub(crate) fn new(limit_bytes: usize) -> Arc<Self> {
        let chunks = std::array::from_fn(|_| Vec::new());
        Arc::new(Self { free: Mutex::new(Free { chunks, mapped_bytes: 0 }), limit_bytes })
    }

    /// Largest chunk in bytes.
    pub(crate) const fn largest() -> usize {
        CLASSES[CLASSES.len() - 1]
    }

    /// Gives out a chunk that holds `len` bytes, or the largest there is; `None` while the pool is
    /// exhausted.
    ///
    /// The pool always grows to at least one chunk of each class, whatever its limit, so that a small limit
    /// slows down and never blocks.
    pub(crate) fn take(self: &Arc<Self>, hal: &H, len: usize) -> Result<Option<Chunk<H>>> {
        let class = CLASSES.iter().position(|&size| len <= size).unwrap_or(CLASSES.len() - 1);
        let size = CLASSES[class];
        let mut free = self.lock();
        let buffer = match free.chunks[class].pop() {
            Some(buffer) => buffer,
            None => {
                let full = free.mapped_bytes.saturating_add(size) > self.limit_bytes;
                if full && !self.make_room(&mut free, class) {
                    return Ok(None);
                }
                free.mapped_bytes += size;
                drop(free);
                match hal.dma().alloc(size, DeviceAccess::ReadWrite) {
                    Ok(buffer) => buffer,
                    Err(error) => {
                        self.lock().mapped_bytes -= size;
                        return Err(Error::hal("allocating staging memory")(error));
                    }
                }
            }
        };
        Ok(Some(Chunk { buffer: Some(buffer), class, pool: Arc::clone(self) }))
    }

    /// Unmaps free chunks of other classes until one of `class` fits; `false` if that is not enough and somebody
    /// holds memory that will come back.
    fn make_room(&self, free: &mut Free<H>, class: usize) -> bool {
        let size = CLASSES[class];
        for other in (0..CLASSES.len()).rev().filter(|&other| other != class) {
            while free.mapped_bytes + size > self.limit_bytes && free.chunks[other].pop().is_some()
            {
                free.mapped_bytes -= CLASSES[other];
            }
        }
        free.mapped_bytes + size <= self.limit_bytes || free.mapped_bytes == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free<H>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of staging memory; goes back to its pool when dropped.
pub(crate) struct Chunk<H: Hal> {
    /// `None` only inside `drop`.
    buffer: Option<<H::Dma as Dma>::Buffer>,
    class: usize,
    pool: Arc<Staging<H>>,
}

impl<H: Hal> Chunk<H> {
    pub(crate) fn len_bytes(&self) -> usize {
        CLASSES[self.class]
    }

    pub(crate) fn bus_addr(&self) -> BusAddr {
        self.get().bus_addr()
    }

    pub(crate) fn copy_in(&mut self, from: &[u8]) -> Result<()> {
        let buffer = self.buffer.as_mut().unwrap_or_else(|| unreachable!("taken only in drop"));
        buffer.copy_in(0, from).map_err(|e| staging_range(&e))
    }

    pub(crate) fn fill(&mut self, len: usize, byte: u8) -> Result<()> {
        let buffer = self.buffer.as_mut().unwrap_or_else(|| unreachable!("taken only in drop"));
        buffer.fill(0, len, byte).map_err(|e| staging_range(&e))
    }

    pub(crate) fn copy_out(&self, into: &mut [u8]) -> Result<()> {
        self.get().copy_out(0, into).map_err(|e| staging_range(&e))
    }

    pub(crate) fn get(&self) -> &<H::Dma as Dma>::Buffer {
        self.buffer.as_ref().unwrap_or_else(|| unreachable!("taken only in drop"))
    }
}

fn staging_range(error: &et_hal::OutOfRange) -> Error {
    Error::OutOfRange {
        offset: error.offset as u64,
        len: error.len as u64,
        buffer: error.buffer as u64,
    }
}

impl<H: Hal> Drop for Chunk<H> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.lock().chunks[self.class].push(buffer);
        }
    }
}
