//! What a user waits for: one operation, of one or many commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::Times;

use crate::event::Timeline;
use crate::handshake::{Callbacks, Cell};
use crate::{Error, Result};

pub(crate) type Outcome = Result<Timeline>;

/// The part of a stream that operations refer to.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: u32,
    /// Submission queue of the stream.
    pub(crate) queue: usize,
    /// Commands of the stream that were sent and not answered.
    pub(crate) outstanding: AtomicU32,
    /// Operations of the stream that are not done.
    pub(crate) operations: AtomicU32,
    /// The stream is being aborted: its deferred commands are dropped.
    pub(crate) aborting: AtomicBool,
}

impl Lane {
    pub(crate) fn new(id: u32, queue: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            queue,
            outstanding: AtomicU32::new(0),
            operations: AtomicU32::new(0),
            aborting: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: the effects of the commands that completed are visible.
        self.outstanding.load(Ordering::Acquire) == 0
    }
}

#[derive(Debug)]
pub(crate) struct Operation {
    /// Never used again, unlike wire tags.
    pub(crate) id: u64,
    /// What the operation is, for messages and profiles.
    pub(crate) name: &'static str,
    pub(crate) lane: Arc<Lane>,
    pub(crate) cell: Cell<Outcome>,
    /// Parts that are not done, the submission itself included.
    parts: AtomicU32,
    progress: std::sync::Mutex<Progress>,
    /// A callback or future counts as interest until the operation completes.
    pub(crate) wanted: AtomicBool,
    /// The wire tag of the last command sent, or `NO_TAG`.
    tag: AtomicU32,
    /// Commands that wait on the host.
    pub(crate) deferred: AtomicU32,
    /// The exception buffer of a launch, from when it is sent.
    pub(crate) exceptions: std::sync::OnceLock<crate::memory::DeviceSlice>,
    queued: Duration,
}

const NO_TAG: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Progress {
    error: Option<Error>,
    sent: Option<Duration>,
    device: Option<Times>,
}

impl Operation {
    /// Starts an operation; its submission counts as one part until [`part_done`](Self::part_done) is called
    /// for it.
    pub(crate) fn new(id: u64, name: &'static str, lane: Arc<Lane>, now: Duration) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            lane,
            cell: Cell::new(),
            parts: AtomicU32::new(1),
            progress: std::sync::Mutex::default(),
            wanted: AtomicBool::new(false),
            tag: AtomicU32::new(NO_TAG),
            deferred: AtomicU32::new(0),
            exceptions: std::sync::OnceLock::new(),
            queued: now,
        })
    }

    /// Counts one more part.
    pub(crate) fn add_part(&self) {
        // Relaxed: the submission's own part is held, so the count cannot reach 0 meanwhile.
        self.parts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, now: Duration, tag: Tag) {
        self.tag.store(u32::from(tag.as_u16()), Ordering::Relaxed);
        self.progress().sent.get_or_insert(now);
    }

    /// Tells whether all commands are in the device's queue; for operations whose submission has ended.
    pub(crate) fn is_sent(&self) -> bool {
        self.tag().is_some() && self.deferred.load(Ordering::Acquire) == 0
    }

    /// Returns the wire tag of the last command that was sent.
    pub(crate) fn tag(&self) -> Option<Tag> {
        u16::try_from(self.tag.load(Ordering::Relaxed)).ok().map(Tag::new)
    }

    /// Records the first error.
    pub(crate) fn fail(&self, error: Error) {
        self.progress().error.get_or_insert(error);
    }

    pub(crate) fn record(&self, times: Times) {
        let mut progress = self.progress();
        match &mut progress.device {
            // Cycles of the parts add up; the start is that of the first.
            Some(sum) => sum.execute = sum.execute.wrapping_add(times.execute),
            none => *none = Some(times),
        }
    }

    /// Ends one part; with the last one the operation is done and its callbacks are returned.
    ///
    /// The clock is read only then.
    pub(crate) fn part_done(&self, now: impl FnOnce() -> Duration) -> Option<Callbacks<Outcome>> {
        // AcqRel: the last part sees what all others recorded.
        if self.parts.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        let progress = self.progress();
        let outcome = match &progress.error {
            Some(error) => Err(error.clone()),
            None => Ok(Timeline {
                queued: self.queued,
                sent: progress.sent.unwrap_or(self.queued),
                completed: now(),
                device: progress.device,
            }),
        };
        drop(progress);
        self.cell.set(outcome)
    }

    pub(crate) fn timeline(&self, completed: Duration) -> Timeline {
        let progress = self.progress();
        Timeline {
            queued: self.queued,
            sent: progress.sent.unwrap_or(self.queued),
            completed,
            device: progress.device,
        }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
