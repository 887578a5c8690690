//! A submission queue and its worker: batches, order, barriers.

use et_devapi::msg::ops::LaunchStatus;
use et_devapi::msg::{CommandFlags, HEADER_BYTES, Header, command_bytes};
use et_devapi::pci::Vector;
use et_devapi::ring::{Consumer, Ring};
use zerocopy::FromBytes;

use super::kernel::CheckedLaunch;
use super::mm::{Executed, Shared};
use crate::board::Slot;

/// The firmware lets a message claim this many bytes more than are there. Erratum 18 (§21).
pub(crate) const OVERCLAIM_BYTES: usize = 8;

/// Commands taken out of a ring, in private memory.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Room for a full ring and what a message may claim beyond it.
    bytes: Box<[u8]>,
    end: usize,
    at: usize,
}

impl Batch {
    pub(crate) fn new(ring: Ring) -> Self {
        let room = ring.max_message() as usize + 1 + OVERCLAIM_BYTES;
        Self { bytes: vec![0; room].into_boxed_slice(), end: 0, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Takes everything out of the ring and tells the host that there is room; 0 if there was
    /// nothing.
    ///
    /// Erratum 7 (§21): the tail moves before anything is executed.
    pub(crate) fn pick_up(&mut self, ring: &mut Consumer, slot: &Slot) -> usize {
        // An error means that the host wrote nonsense into the head: nothing to see until it is
        // mended.
        let page = &slot.page;
        let used = ring.used(page).unwrap_or(0);
        let len = used as usize;
        if len == 0 {
            return 0;
        }
        let Some(room) = self.bytes.get_mut(..len) else { return 0 };
        if ring.peek(page, 0, room).is_err() || ring.advance(page, used).is_err() {
            return 0;
        }
        self.at = 0;
        self.end = len;
        slot.interrupts.raise(Vector::OpsSubmission);
        len
    }

    /// Returns the command at the front, without taking it; `None` when the batch is used up.
    ///
    /// A size that cannot be right makes the parser skip eight bytes and try again. Erratum 17
    /// (§21).
    pub(crate) fn front(&mut self) -> Option<(Header, &[u8])> {
        loop {
            let left = self.end.checked_sub(self.at)?;
            let header = self.bytes.get(self.at..self.at + HEADER_BYTES)?;
            let header = (left >= HEADER_BYTES).then(|| Header::read_from_bytes(header).ok())??;
            match command_bytes(&header) {
                Ok(len) if len <= left + OVERCLAIM_BYTES => {
                    let message = self.bytes.get(self.at..self.at + len)?;
                    return Some((header, message));
                }
                _ => self.at += HEADER_BYTES,
            }
        }
    }

    /// Takes a command of that length from the front.
    pub(crate) fn skip(&mut self, len: usize) {
        self.at += len;
    }

    pub(crate) fn clear(&mut self) {
        self.at = 0;
        self.end = 0;
    }
}

/// The worker of one submission queue. Spec: §5.3
#[derive(Debug)]
pub(crate) struct SubmissionWorker {
    index: usize,
    ring: Consumer,
    batch: Batch,
    /// When the batch was picked up, in cycles.
    start: u64,
    /// A launch that has been checked and waits for the kernel slot; it is no longer in the batch.
    waiting: Option<CheckedLaunch>,
    /// The doorbell has been rung since the ring was last found empty.
    look: bool,
    /// The command at the front, which waits for a DMA channel, is counted already.
    is_counted: bool,
}

impl SubmissionWorker {
    /// Takes an empty ring over. What its control block says by now is the host's matter.
    pub(crate) fn new(index: usize, ring: Ring) -> Self {
        Self {
            index,
            ring: Consumer::resume(ring, 0, 0, 0),
            batch: Batch::new(ring),
            start: 0,
            waiting: None,
            look: false,
            is_counted: false,
        }
    }

    /// The doorbell was rung.
    pub(crate) fn look(&mut self) {
        self.look = true;
    }

    /// Executes as much as possible; returns `true` if anything was done.
    pub(crate) fn step(&mut self, shared: &mut Shared) -> bool {
        let mut busy = false;
        if self.batch.is_empty() && self.waiting.is_none() {
            if !self.look || !self.pick_up(shared) {
                return false;
            }
            busy = true;
        }
        while !shared.cq.is_full() && !shared.hangs() {
            if let Some(launch) = self.waiting.take_if(|_| shared.kernel.is_free()) {
                shared.start_launch(launch);
                busy = true;
            }
            if self.waiting.is_some() {
                break;
            }
            let Some((header, message)) = self.batch.front() else {
                self.batch.clear();
                break;
            };
            let barrier = header.flags().contains(CommandFlags::BARRIER);
            if barrier && shared.outstanding[self.index] != 0 {
                break;
            }
            let len = message.len();
            if !std::mem::replace(&mut self.is_counted, true) {
                shared.count_command();
            }
            match shared.execute(self.index, self.start, message) {
                Executed::Done => {}
                Executed::NeedsSlot(launch) => self.waiting = Some(*launch),
                Executed::NeedsChannel => break,
            }
            self.batch.skip(len);
            self.is_counted = false;
            shared.count_down();
            busy = true;
        }
        busy
    }

    /// Answers everything that has not been started. Spec: §10.1
    ///
    /// What the host pushed before the abort is in the ring at the latest now, so that is included.
    pub(crate) fn abort(&mut self, shared: &mut Shared) {
        if let Some(launch) = self.waiting.take() {
            shared.reject_launch(launch.origin(), LaunchStatus::HostAborted);
        }
        self.refuse_batch(shared);
        if self.pick_up(shared) {
            self.refuse_batch(shared);
        }
    }

    fn refuse_batch(&mut self, shared: &mut Shared) {
        while let Some((_, message)) = self.batch.front() {
            let len = message.len();
            if !std::mem::take(&mut self.is_counted) {
                shared.count_command();
            }
            shared.refuse(self.index, self.start, message);
            self.batch.skip(len);
            shared.count_down();
        }
        self.batch.clear();
    }

    fn pick_up(&mut self, shared: &Shared) -> bool {
        let found = self.batch.pick_up(&mut self.ring, &shared.slot) != 0;
        if found {
            self.start = shared.now();
        } else {
            self.look = false;
        }
        found
    }
}
