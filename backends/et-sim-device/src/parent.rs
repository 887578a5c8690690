//! A card that does the work of a board which has no memory and no cores of its own.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use et_devapi::msg::ops::{Launch, LaunchError, LaunchPayload, LaunchStatus};
use et_hal::Generation;

use crate::MemoryAfterReset;
use crate::board::Slot;
use crate::compute::{Report, Reports};
use crate::host_memory::EngineAccess;

/// What stands behind a board that only mediates.
///
/// Such a board is a function of its own for its host: registers, queues, interrupts, resets. What
/// its firmware has checked, it hands to the parent: copies in pieces, and one launch at a time.
/// The firmware thread calls; nothing here may wait for the device.
pub trait Parent: fmt::Debug + Send + Sync {
    /// Returns the device memory that the board's host may use; a multiple of 4 KiB from one on.
    fn partition(&self) -> Range<u64>;

    /// Returns `true` if the device works and the partition may be used; the boot waits for that.
    fn is_ready(&self) -> bool;

    /// Ends everything that was handed over and not answered. Then has the partition be as
    /// `memory` says, and [raises](Wake::raise) `wake` when it is ready.
    fn reset(&self, memory: MemoryAfterReset, wake: Wake);

    /// Executes a launch, which lies in the partition with all it names.
    fn launch(&self, launch: ForwardedLaunch);

    /// Ends the launch that was handed over last, if it has not ended.
    fn abort_launch(&self);

    /// Executes a copy whose device side lies in the partition.
    fn copy(&self, copy: ForwardedCopy);

    /// Answers a management command that only asks: status and payload. `None` if the device does
    /// not answer. May take as long as a command does: it holds up its own host only.
    fn query(&self, id: u16, payload: &[u8]) -> Option<(i32, Vec<u8>)>;
}

/// Makes the firmware of a board look.
#[derive(Clone, Debug)]
pub struct Wake(pub(crate) Weak<Slot>);

impl Wake {
    /// Makes it look.
    pub fn raise(&self) {
        if let Some(slot) = self.0.upgrade() {
            slot.bell.raise();
        }
    }
}

/// A launch for the parent. Dropped without an answer, it is answered as one that no core took.
#[derive(Debug)]
pub struct ForwardedLaunch {
    launch: Launch<'static>,
    payload: LaunchPayload,
    flush_l3: bool,
    number: u64,
    reports: Option<Arc<Reports>>,
}

/// How a forwarded launch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedEnd {
    /// The status of the device.
    pub status: LaunchStatus,
    /// The long form, if it came.
    pub error: Option<LaunchError>,
    /// How long the kernel ran, in cycles.
    pub execute: u64,
}

impl ForwardedEnd {
    /// Returns the end of a launch of which nothing else is known. Spec: §9.4
    #[must_use]
    pub fn without_details(status: LaunchStatus, execute: u64) -> Self {
        let error = LaunchError { exception_buffer: 0, trace_buffer: 0, shire_mask: 0 };
        Self { status, error: Some(error), execute }
    }
}

impl ForwardedLaunch {
    pub(crate) fn new(
        launch: Launch<'static>,
        payload: LaunchPayload,
        flush_l3: bool,
        number: u64,
        reports: &Arc<Reports>,
    ) -> Self {
        Self { launch, payload, flush_l3, number, reports: Some(Arc::clone(reports)) }
    }

    /// Returns the fixed part; its payload is [`payload`](Self::payload).
    #[must_use]
    pub fn launch(&self) -> Launch<'static> {
        self.launch
    }

    /// Returns trace, stack and arguments, with the stack where it is for the device.
    #[must_use]
    pub fn payload(&self) -> &LaunchPayload {
        &self.payload
    }

    /// Returns `true` if the L3 is to be written back before the kernel.
    #[must_use]
    pub fn flush_l3(&self) -> bool {
        self.flush_l3
    }

    /// Tells the firmware how it has ended.
    pub fn answer(mut self, end: ForwardedEnd) {
        self.deliver(end);
    }

    fn deliver(&mut self, end: ForwardedEnd) {
        if let Some(reports) = self.reports.take() {
            reports.deliver(self.number, Report::Forwarded(end));
        }
    }
}

impl Drop for ForwardedLaunch {
    fn drop(&mut self) {
        let status = LaunchStatus::CmMulticastFailed;
        self.deliver(ForwardedEnd { status, error: None, execute: 0 });
    }
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// Host to device.
    ToDevice,
    /// Device to host.
    ToHost,
}

/// A part of a forwarded copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyPart {
    /// Where it begins on the device.
    pub device: u64,
    /// Bytes.
    pub len: usize,
    /// Where it begins on the bus of the board's host.
    pub(crate) bus: u64,
}

/// Most parts of a piece: as many as nodes of a list. Spec: §8
pub const MAX_PARTS: usize = 8;
/// Most bytes of a piece.
pub const PIECE_BYTES: usize = 1 << 20;

/// A copy for the parent: a piece of a list. Dropped without an answer, it has failed.
#[derive(Debug)]
pub struct ForwardedCopy {
    direction: CopyDirection,
    parts: [CopyPart; MAX_PARTS],
    count: usize,
    slot: Arc<Slot>,
    generation: Generation,
    ticket: u64,
    arrivals: Option<Arc<Arrivals>>,
}

impl ForwardedCopy {
    pub(crate) fn new(
        direction: CopyDirection,
        parts: &[CopyPart],
        slot: &Arc<Slot>,
        ticket: u64,
        arrivals: &Arc<Arrivals>,
    ) -> Self {
        let mut kept = [CopyPart::default(); MAX_PARTS];
        kept.iter_mut().zip(parts).for_each(|(kept, part)| *kept = *part);
        Self {
            direction,
            parts: kept,
            count: parts.len().min(MAX_PARTS),
            slot: Arc::clone(slot),
            generation: slot.generation(),
            ticket,
            arrivals: Some(Arc::clone(arrivals)),
        }
    }

    /// Returns which way it goes.
    #[must_use]
    pub fn direction(&self) -> CopyDirection {
        self.direction
    }

    /// Returns the parts, at most [`MAX_PARTS`] with [`PIECE_BYTES`] together.
    #[must_use]
    pub fn parts(&self) -> &[CopyPart] {
        &self.parts[..self.count]
    }

    /// Returns how many bytes it has.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len).sum()
    }

    /// Reads a part of the host's memory, from `offset` bytes into the part on; `false` if the
    /// host does not allow it, or has reset the board since.
    #[must_use]
    pub fn read_host(&self, part: CopyPart, offset: usize, into: &mut [u8]) -> bool {
        self.pieces(part, offset, into.len(), EngineAccess::Read, |host, at, range| {
            host.read(at, &mut into[range])
        })
    }

    /// Writes a part of the host's memory, as [`read_host`](Self::read_host).
    #[must_use]
    pub fn write_host(&self, part: CopyPart, offset: usize, from: &[u8]) -> bool {
        self.pieces(part, offset, from.len(), EngineAccess::Write, |host, at, range| {
            host.write(at, &from[range])
        })
    }

    fn pieces(
        &self,
        part: CopyPart,
        offset: usize,
        len: usize,
        access: EngineAccess,
        mut step: impl FnMut(
            &crate::host_memory::Reach<'_>,
            usize,
            Range<usize>,
        ) -> Result<(), crate::host_memory::BusFault>,
    ) -> bool {
        let mut done = 0;
        while done < len {
            let Some(bus) = part.bus.checked_add((offset + done) as u64) else { return false };
            let Ok(span) = self.slot.host.find(bus, (len - done) as u64, access) else {
                return false;
            };
            // While the span is held, a reset waits before the host may use its memory again.
            if self.slot.generation() != self.generation {
                return false;
            }
            let reached = span.reach().and_then(|host| step(&host, 0, done..done + span.len));
            if reached.is_err() {
                return false;
            }
            done += span.len;
        }
        true
    }

    /// Tells the firmware that all bytes are where they belong.
    pub fn done(mut self) {
        self.deliver(true);
    }

    fn deliver(&mut self, is_good: bool) {
        if let Some(arrivals) = self.arrivals.take() {
            arrivals.deliver(&self.slot, Arrival { ticket: self.ticket, is_good });
        }
    }
}

impl Drop for ForwardedCopy {
    fn drop(&mut self) {
        self.deliver(false);
    }
}

/// The end of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) ticket: u64,
    pub(crate) is_good: bool,
}

/// Where ends of pieces appear, on their way to the firmware thread.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Looked at in every round of the firmware, so without the lock.
    ready: AtomicBool,
    arrived: Mutex<VecDeque<Arrival>>,
}

impl Arrivals {
    fn deliver(&self, slot: &Slot, arrival: Arrival) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push_back(arrival);
        // Release: pairs with the acquire in `take`. Under the lock: the flag says what the queue
        // is.
        self.ready.store(true, Ordering::Release);
        drop(arrived);
        slot.bell.raise();
    }

    /// Takes the first that has come, if one has.
    pub(crate) fn take(&self) -> Option<Arrival> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = arrived.pop_front();
        self.ready.store(!arrived.is_empty(), Ordering::Relaxed);
        arrival
    }
}
