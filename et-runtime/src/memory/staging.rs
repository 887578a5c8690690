//! A bounded pool of DMA memory through which ordinary memory is copied.

use std::collections::VecDeque;

use std::sync::Weak;

use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, Hal, Mailbox};

use crate::link::{Parker, Whereabouts};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::{Error, Result};

/// Chunk sizes in bytes. The largest fits a core's second-level cache together with its copy, so
/// that what the host writes is still there when the device reads it.
const CLASSES: [usize; 3] = [4 << 10, 32 << 10, 256 << 10];
const LARGEST: usize = CLASSES[CLASSES.len() - 1];

type Buffer<H> = <<H as Hal>::Dma as Dma>::Buffer;

/// A size, and what the device does with the memory; an IOMMU holds it to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    class: usize,
    access: DeviceAccess,
}

/// Number of kinds.
const KINDS: usize = 3 * CLASSES.len();

impl Kind {
    /// The kind that holds `len` bytes, or the largest there is.
    fn new(len: usize, access: DeviceAccess) -> Self {
        let class = CLASSES.iter().position(|&size| len <= size).unwrap_or(CLASSES.len() - 1);
        Self { class, access }
    }

    const fn size(self) -> usize {
        CLASSES[self.class]
    }

    const fn index(self) -> usize {
        let access = match self.access {
            DeviceAccess::Read => 0,
            DeviceAccess::Write => 1,
            DeviceAccess::ReadWrite => 2,
        };
        access * CLASSES.len() + self.class
    }
}

/// The pool. Chunks are mapped once and kept.
///
/// Who finds nothing joins a line, and is served in turn by who gives something back. What is given
/// to those that do not wait leaves one chunk over for those that do.
pub(crate) struct Staging<H: Hal> {
    state: Mutex<State<H>>,
    limit_bytes: usize,
    /// Where those in line may sleep. It ends before the memory does.
    mailbox: Weak<H::Mailbox>,
}

struct State<H: Hal> {
    /// Free ones, by kind.
    chunks: [Vec<Buffer<H>>; KINDS],
    /// Bytes mapped, or promised to one who maps them; free and in use.
    mapped_bytes: usize,
    /// Bytes of that in the hands of commands.
    used_bytes: usize,
    line: VecDeque<Waiter<H>>,
    next_number: u64,
    closed: Option<Error>,
}

struct Waiter<H: Hal> {
    number: u64,
    kind: Kind,
    parker: Arc<Parker>,
    grant: Option<Grant<H>>,
}

enum Grant<H: Hal> {
    Chunk(Buffer<H>),
    /// There is room to map one.
    Room,
}

impl<H: Hal> Staging<H> {
    pub(crate) fn new(limit_bytes: usize, mailbox: Weak<H::Mailbox>) -> Arc<Self> {
        let state = State {
            chunks: std::array::from_fn(|_| Vec::new()),
            mapped_bytes: 0,
            used_bytes: 0,
            line: VecDeque::new(),
            next_number: 0,
            closed: None,
        };
        Arc::new(Self { state: Mutex::new(state), limit_bytes, mailbox })
    }

    /// Largest chunk in bytes.
    pub(crate) const fn largest() -> usize {
        LARGEST
    }

    /// Gives out a chunk that holds `len` bytes, or the largest there is, if that leaves one for
    /// those who wait in line.
    pub(crate) fn take_spare(
        self: &Arc<Self>,
        hal: &H,
        len: usize,
        access: DeviceAccess,
    ) -> Result<Option<Chunk<H>>> {
        let kind = Kind::new(len, access);
        let mut state = lock(&self.state);
        let leaves_one = state.used_bytes + kind.size() + LARGEST <= self.limit_bytes;
        if !state.line.is_empty() || !leaves_one {
            return Ok(None);
        }
        let Some(grant) = state.grant(kind, self.limit_bytes) else { return Ok(None) };
        drop(state);
        self.redeem(hal, kind, grant).map(Some)
    }

    /// The same, of a chunk with these bytes for the device to read.
    pub(crate) fn spare_with(self: &Arc<Self>, hal: &H, bytes: &[u8]) -> Result<Option<Chunk<H>>> {
        let mut spare = self.take_spare(hal, bytes.len(), DeviceAccess::Read)?;
        if let Some(chunk) = &mut spare {
            chunk.write(hal, bytes)?;
        }
        Ok(spare)
    }

    /// Joins the line for a chunk.
    pub(crate) fn queue(
        self: &Arc<Self>,
        len: usize,
        access: DeviceAccess,
        parker: &Arc<Parker>,
    ) -> Place<H> {
        let kind = Kind::new(len, access);
        let mut state = lock(&self.state);
        let number = state.next_number;
        state.next_number += 1;
        let parker = Arc::clone(parker);
        state.line.push_back(Waiter { number, kind, parker, grant: None });
        self.serve(state);
        Place { pool: Arc::clone(self), number, kind, is_over: false }
    }

    fn redeem(self: &Arc<Self>, hal: &H, kind: Kind, grant: Grant<H>) -> Result<Chunk<H>> {
        let buffer = match grant {
            Grant::Chunk(buffer) => buffer,
            Grant::Room => match hal.dma().alloc(kind.size(), kind.access) {
                Ok(buffer) => buffer,
                Err(error) => {
                    let mut state = lock(&self.state);
                    state.mapped_bytes -= kind.size();
                    state.used_bytes -= kind.size();
                    self.serve(state);
                    return Err(Error::hal("allocating staging memory")(error));
                }
            },
        };
        Ok(Chunk { buffer: Some(buffer), kind, pool: Arc::clone(self) })
    }

    fn give_back(&self, kind: Kind, grant: Grant<H>) {
        let mut state = lock(&self.state);
        state.used_bytes -= kind.size();
        match grant {
            Grant::Chunk(buffer) => state.chunks[kind.index()].push(buffer),
            Grant::Room => state.mapped_bytes -= kind.size(),
        }
        self.serve(state);
    }

    /// Serves the line, as far as there is something.
    fn serve(&self, mut state: MutexGuard<'_, State<H>>) {
        let served = state.serve(self.limit_bytes);
        drop(state);
        self.tell(&served);
    }

    /// Lets everyone in line go on, who will see that the device is lost.
    pub(crate) fn close(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.closed.get_or_insert_with(|| error.clone());
        let all: Vec<_> = state.line.iter().map(|waiter| Arc::clone(&waiter.parker)).collect();
        drop(state);
        self.tell(&all);
    }

    fn tell(&self, parkers: &[Arc<Parker>]) {
        let is_abroad = parkers.iter().filter(|it| it.call() == Whereabouts::Abroad).count() != 0;
        if is_abroad && let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.wake();
        }
    }
}

impl<H: Hal> State<H> {
    /// The pool always grows to one chunk, whatever its limit, so that a small limit slows down and
    /// never blocks.
    fn grant(&mut self, kind: Kind, limit: usize) -> Option<Grant<H>> {
        let size = kind.size();
        let grant = match self.chunks[kind.index()].pop() {
            Some(buffer) => Grant::Chunk(buffer),
            None => {
                self.make_room(kind, limit);
                if self.mapped_bytes + size > limit && self.mapped_bytes != 0 {
                    return None;
                }
                self.mapped_bytes += size;
                Grant::Room
            }
        };
        self.used_bytes += size;
        Some(grant)
    }

    /// Unmaps free chunks of other kinds until one of `kind` fits, the large ones first.
    fn make_room(&mut self, kind: Kind, limit: usize) {
        for class in (0..CLASSES.len()).rev() {
            for other in (class..KINDS).step_by(CLASSES.len()) {
                while self.mapped_bytes + kind.size() > limit && self.chunks[other].pop().is_some()
                {
                    self.mapped_bytes -= CLASSES[class];
                }
            }
        }
    }

    /// Serves the line, as far as there is something; returns whom to tell.
    #[must_use]
    fn serve(&mut self, limit: usize) -> Vec<Arc<Parker>> {
        let mut served = Vec::new();
        while let Some(at) = self.line.iter().position(|waiter| waiter.grant.is_none()) {
            let kind = self.line[at].kind;
            let Some(grant) = self.grant(kind, limit) else { break };
            let waiter = &mut self.line[at];
            waiter.grant = Some(grant);
            served.push(Arc::clone(&waiter.parker));
        }
        served
    }
}

/// A place in the line for a chunk.
pub(crate) struct Place<H: Hal> {
    pool: Arc<Staging<H>>,
    number: u64,
    kind: Kind,
    is_over: bool,
}

impl<H: Hal> Place<H> {
    pub(crate) fn is_served(&self) -> bool {
        let state = lock(&self.pool.state);
        let mine = state.line.iter().find(|waiter| waiter.number == self.number);
        state.closed.is_some() || mine.is_some_and(|waiter| waiter.grant.is_some())
    }

    /// Takes the chunk, if it is there.
    pub(crate) fn take(mut self, hal: &H) -> Result<Option<Chunk<H>>> {
        match self.leave() {
            Some(grant) => self.pool.redeem(hal, self.kind, grant).map(Some),
            None => Ok(None),
        }
    }

    fn leave(&mut self) -> Option<Grant<H>> {
        self.is_over = true;
        let mut state = lock(&self.pool.state);
        let at = state.line.iter().position(|waiter| waiter.number == self.number)?;
        state.line.remove(at)?.grant
    }
}

impl<H: Hal> Drop for Place<H> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(grant) = self.leave()
        {
            self.pool.give_back(self.kind, grant);
        }
    }
}

/// A piece of staging memory; goes back to its pool when dropped.
pub(crate) struct Chunk<H: Hal> {
    /// `None` only inside `drop`.
    buffer: Option<Buffer<H>>,
    kind: Kind,
    pool: Arc<Staging<H>>,
}

impl<H: Hal> Chunk<H> {
    pub(crate) fn len_bytes(&self) -> usize {
        self.kind.size()
    }

    pub(crate) fn bus_addr(&self) -> BusAddr {
        self.get().bus_addr()
    }

    /// Copies `from` to the start of the chunk, for the device to read.
    pub(crate) fn write(&mut self, hal: &H, from: &[u8]) -> Result<()> {
        self.get_mut().copy_in(0, from).map_err(|e| Error::range(&e))?;
        self.hand_over(hal, from.len())
    }

    /// Repeats a pattern over the first `len` bytes of the chunk, for the device to read.
    pub(crate) fn fill(&mut self, hal: &H, len: usize, pattern: &[u8]) -> Result<()> {
        match pattern {
            [byte] => self.get_mut().fill(0, len, *byte).map_err(|e| Error::range(&e))?,
            _ => {
                let mut bytes = pattern.repeat(len.div_ceil(pattern.len()));
                bytes.truncate(len);
                self.put(0, &bytes)?;
            }
        }
        self.hand_over(hal, len)
    }

    /// Puts `from` into the chunk, which is [handed over](Self::hand_over) afterwards.
    pub(crate) fn put(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.get_mut().copy_in(offset, from).map_err(|e| Error::range(&e))
    }

    /// Makes the first `len` bytes visible to the device.
    pub(crate) fn hand_over(&self, hal: &H, len: usize) -> Result<()> {
        let synced = hal.dma().sync_for_device(self.get(), 0..len);
        synced.map_err(Error::hal("synchronising staging memory"))
    }

    /// Copies what the device has written out of the start of the chunk.
    pub(crate) fn read(&self, hal: &H, into: &mut [u8]) -> Result<()> {
        self.read_at(hal, 0, into)
    }

    /// The same, from a place in the chunk.
    pub(crate) fn read_at(&self, hal: &H, offset: usize, into: &mut [u8]) -> Result<()> {
        let synced = hal.dma().sync_for_cpu(self.get(), offset..offset + into.len());
        synced.map_err(Error::hal("synchronising staging memory"))?;
        self.get().copy_out(offset, into).map_err(|e| Error::range(&e))
    }

    fn get(&self) -> &Buffer<H> {
        self.buffer.as_ref().unwrap_or_else(|| unreachable!("taken only in drop"))
    }

    fn get_mut(&mut self) -> &mut Buffer<H> {
        self.buffer.as_mut().unwrap_or_else(|| unreachable!("taken only in drop"))
    }
}

impl<H: Hal> Drop for Chunk<H> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(self.kind, Grant::Chunk(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use et_hal_mock::{MockHal, presets};

    use super::*;
    use crate::Device;

    const LONG: Duration = Duration::from_secs(30);

    /// What an IOMMU holds the device to.
    #[test]
    fn the_device_reads_uploads_and_writes_downloads_and_no_more() {
        let mailbox = presets::answering_mailbox(presets::success);
        let device = Device::open(MockHal::new(presets::booted_registers(), mailbox)).unwrap();
        let mapped = || {
            let state = lock(&device.link().staging.state);
            let kinds = [DeviceAccess::Read, DeviceAccess::Write, DeviceAccess::ReadWrite];
            kinds.map(|access| {
                let of_size =
                    |size: &usize| !state.chunks[Kind::new(*size, access).index()].is_empty();
                CLASSES.iter().any(of_size)
            })
        };
        let (stream, buffer) = (device.default_stream(), device.alloc(64).unwrap());
        assert_eq!(mapped(), [false; 3]);
        stream.copy_to_device(&[1_u8; 64], &buffer).unwrap().wait(LONG).unwrap();
        assert_eq!(mapped(), [true, false, false]);
        stream.read(&buffer, &mut [0_u8; 64], LONG).unwrap();
        assert_eq!(mapped(), [true, true, false]);
    }
}
