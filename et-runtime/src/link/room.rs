//! Submitting, and waiting for room.

use std::time::Duration;

use et_hal::{DeviceAccess, Hal};

use super::contexts::FreshContext;
use super::core::{Command, Core, StreamKey};
use super::{Link, Load, OpKey, Operation, Parker};
use crate::clock::Deadline;
use crate::memory::Chunk;
use crate::sync::{Arc, Ordering, lock};
use crate::{Error, Result};

/// Commands between two looks at the completion queue while sending; it holds about 37 responses. A
/// full one would stop the device (Spec: §5.6), and one that is emptied little by little stays in
/// the cache.
const DRAIN_EVERY: u32 = 8;

/// An operation whose commands are still being made. It has its place in the stream, and holds no
/// lock.
pub(crate) struct Submission<'a, H: Hal> {
    link: &'a Link<H>,
    operation: Arc<Operation>,
    is_open: bool,
}

impl<'a, H: Hal> Submission<'a, H> {
    pub(crate) fn begin(link: &'a Link<H>, stream: StreamKey, name: &'static str) -> Result<Self> {
        let operation = link.enter(|core, now| core.begin(stream, name, now))?;
        Ok(Self { link, operation, is_open: true })
    }

    /// The same, for a caller that holds a lock: callbacks are left to others.
    pub(crate) fn begin_quietly(
        link: &'a Link<H>,
        stream: StreamKey,
        name: &'static str,
    ) -> Result<Self> {
        let operation = link.enter_quietly(|core, now| core.begin(stream, name, now))?;
        Ok(Self { link, operation, is_open: true })
    }

    pub(crate) fn send(&self, command: Command<Box<Load<H>>>) -> Result<()> {
        self.link.enter(|core, _| core.append(self.operation.key, command))?;
        self.link.drain_sometimes(1);
        Ok(())
    }

    /// Adds a launch.
    pub(crate) fn launch(
        &self,
        mut command: Command<Box<Load<H>>>,
        fresh: Option<FreshContext<'_, H>>,
    ) -> Result<()> {
        if let Some(context) = fresh.and_then(FreshContext::take) {
            command.load.give_fresh_context(context);
        }
        if let Some(kernel) = self.link.kernel_of(&command.load) {
            self.operation.set_kernel(kernel);
        }
        self.send(command)
    }

    /// Waits for a chunk of staging memory, as long as the stream makes progress.
    pub(crate) fn chunk(&self, len: usize, access: DeviceAccess) -> Result<Chunk<H>> {
        self.chunk_until(len, access, self.link.deadline(Duration::MAX))
    }

    /// Waits for a chunk of staging memory.
    ///
    /// Only an operation that is not blocked waits in the line of those who want one: what it gets
    /// comes back without anything else having to happen before. The others take what is left over.
    pub(crate) fn chunk_until(
        &self,
        len: usize,
        access: DeviceAccess,
        deadline: Deadline,
    ) -> Result<Chunk<H>> {
        let (link, key) = (self.link, self.operation.key);
        loop {
            if let Some(error) = lock(&link.core).failure(key) {
                return Err(error);
            }
            if let Some(chunk) = link.staging.take_spare(&link.hal, len, access)? {
                link.enter(|core, now| core.note_progress(key, now));
                return Ok(chunk);
            }
            let parker = Arc::new(Parker::new());
            let is_unblocked = link.enter(|core, _| {
                core.tell_submitter(key, &parker);
                core.is_unblocked(key)
            });
            // Who was told and finds that it cannot go on yet is to be told again.
            let tell_again = |core: &mut Core<_>| {
                core.tell_submitter(key, &parker);
                false
            };
            if !is_unblocked {
                let mut is_done = || {
                    let mut core = lock(&link.core);
                    core.is_unblocked(key) || core.failure(key).is_some() || tell_again(&mut core)
                };
                let op = "earlier work of the stream";
                link.wait_in_stream(key, &parker, &mut is_done, op, deadline)?;
                continue;
            }
            let place = link.staging.queue(len, access, &parker);
            let mut is_done = || {
                let is_served = place.is_served();
                let mut core = lock(&link.core);
                is_served || core.failure(key).is_some() || tell_again(&mut core)
            };
            link.wait_in_stream(key, &parker, &mut is_done, "staging memory", deadline)?;
            if let Some(chunk) = place.take(&link.hal)? {
                link.enter(|core, now| core.note_progress(key, now));
                return Ok(chunk);
            }
        }
    }

    /// Takes a chunk only if there is one.
    pub(crate) fn try_chunk(&self, len: usize, access: DeviceAccess) -> Result<Option<Chunk<H>>> {
        self.link.staging.take_spare(&self.link.hal, len, access)
    }

    /// Ends the submission; a failure of it fails the operation.
    pub(crate) fn finish(mut self, outcome: Result<()>) -> Result<Arc<Operation>> {
        self.is_open = false;
        let error = outcome.as_ref().err().cloned();
        self.link.enter(|core, now| core.close(self.operation.key, outcome, now));
        match error {
            Some(error) => Err(error),
            None => {
                self.link.admit(self.operation.key, 1)?;
                Ok(Arc::clone(&self.operation))
            }
        }
    }

    /// Leaves the operation open, for [`append`](Link::append) and
    /// [`close_operation`](Link::close_operation). A failure closes it.
    pub(crate) fn leave_open(mut self) -> Arc<Operation> {
        self.is_open = false;
        self.link.enter(|core, now| core.leave_open(self.operation.key, now));
        Arc::clone(&self.operation)
    }
}

impl<H: Hal> Drop for Submission<'_, H> {
    fn drop(&mut self) {
        if self.is_open {
            // Its submitter has panicked, or could not begin in another stream, and may hold locks.
            let (key, name) = (self.operation.key, self.operation.name);
            let aborted = Err(Error::Aborted { op: name });
            self.link.enter_quietly(|core, now| core.close(key, aborted, now));
        }
    }
}

impl<H: Hal> Link<H> {
    /// Adds a command to an operation that was left open; one that is refused ends with the reason.
    pub(crate) fn append(&self, key: OpKey, command: Command<Box<Load<H>>>) {
        // Its load hears of it.
        let _ = self.enter_quietly(|core, _| core.append(key, command));
    }

    /// Closes an operation that was left open.
    pub(crate) fn close_operation(&self, key: OpKey, outcome: Result<()>) {
        self.enter_quietly(|core, now| core.close(key, outcome, now));
    }

    fn drain_sometimes(&self, more: u32) {
        // Not in one step, which costs more than a look that two threads take together.
        let before = self.submitted.load(Ordering::Relaxed);
        self.submitted.store(before.wrapping_add(more), Ordering::Relaxed);
        if (before % DRAIN_EVERY).saturating_add(more) >= DRAIN_EVERY {
            self.try_drain();
        }
    }

    /// Holds a submitter up while there is no room for what it has submitted, so that the host's
    /// own queues stay short: so many operations, of which `key` is the last. What waits for an
    /// event holds no one up.
    pub(crate) fn admit(&self, key: OpKey, count: u32) -> Result<()> {
        self.drain_sometimes(count);
        let lacks_room = || lock(&self.core).lacks_room(key);
        // Relaxed: this thread has set it itself if it concerns its own command.
        while self.has_backlog.load(Ordering::Relaxed) && lacks_room() {
            let parker = Arc::new(Parker::new());
            self.enter(|core, _| core.tell_submitter(key, &parker));
            let mut is_done = || !lacks_room();
            let deadline = self.deadline(Duration::MAX);
            self.wait_in_stream(key, &parker, &mut is_done, "room in a queue", deadline)?;
        }
        Ok(())
    }

    /// Waits on behalf of an operation, as long as its stream makes progress at least once in each
    /// [`command_timeout`](crate::Config::command_timeout). The operation has failed if it does
    /// not.
    fn wait_in_stream(
        &self,
        key: OpKey,
        parker: &Arc<Parker>,
        is_done: &mut dyn FnMut() -> bool,
        op: &'static str,
        deadline: Deadline,
    ) -> Result<()> {
        let limit = self.config.command_timeout;
        let start = self.now();
        let left = || {
            let progress = lock(&self.core).progress(key).max(start);
            self.left(Deadline::from(progress, limit)).min(self.left(deadline))
        };
        if self.wait(parker, is_done, &left) {
            return Ok(());
        }
        let error = self.timeout(op, limit);
        self.enter(|core, now| core.give_up(key, error.clone(), now));
        Err(error)
    }

    /// Returns `true` if all that has ended in the state machine has its result; `parker` is told
    /// if not, and there may be callers before it that wait for the same.
    fn is_delivered(&self, parker: &Arc<Parker>) -> bool {
        if self.is_all_delivered() {
            return true;
        }
        let mut latecomers = lock(&self.latecomers);
        if !latecomers.iter().any(|other| Arc::ptr_eq(other, parker)) {
            latecomers.push(Arc::clone(parker));
        }
        self.has_latecomers.store(true, Ordering::SeqCst);
        drop(latecomers);
        self.is_all_delivered()
    }

    fn is_all_delivered(&self) -> bool {
        let deliveries = lock(&self.core).deliveries;
        self.delivered.load(Ordering::SeqCst) == deliveries
    }

    /// Waits until all operations of a stream have ended, or of all streams; `false` if the
    /// deadline comes first.
    pub(crate) fn wait_idle(&self, stream: Option<StreamKey>, deadline: Deadline) -> bool {
        if deadline.limit() == Duration::ZERO {
            self.poll();
            let is_idle = lock(&self.core).is_idle(stream);
            return is_idle && self.is_all_delivered();
        }
        let parker = Arc::new(Parker::new());
        self.enter(|core, _| core.when_idle(stream, &parker));
        let mut is_over = || {
            let waits = lock(&self.core).waits(stream, &parker);
            !waits && self.is_delivered(&parker)
        };
        let is_done = self.wait(&parker, &mut is_over, &|| self.left(deadline));
        self.enter(|core, _| core.leave(stream, &parker));
        if self.has_latecomers.load(Ordering::SeqCst) {
            lock(&self.latecomers).retain(|other| !Arc::ptr_eq(other, &parker));
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use et_hal_mock::{MockHal, presets};

    use super::*;
    use crate::link::{Keep, Priority, Wire};
    use crate::{Config, Device, Drain};

    fn device() -> Device<MockHal> {
        let mailbox = presets::answering_mailbox(presets::success);
        let hal = MockHal::new(presets::booted_registers(), mailbox);
        Device::open_with(hal, Config::new().drain(Drain::Caller)).expect("it is healthy")
    }

    fn never() -> Deadline {
        Deadline::from(Duration::ZERO, Duration::MAX)
    }

    fn at_once() -> Deadline {
        Deadline::from(Duration::ZERO, Duration::ZERO)
    }

    fn latecomers(link: &Link<MockHal>) -> Vec<Arc<Parker>> {
        lock(&link.latecomers).clone()
    }

    #[test]
    fn a_submitter_that_panics_leaves_its_stream_idle() {
        let device = device();
        let link = device.link();
        let (stream, number) = link.open_stream(Priority::default());
        let submission = Submission::begin(link, stream, "copy").expect("it is accepted");
        let operation = Arc::clone(&submission.operation);
        assert!(!link.wait_idle(Some(stream), at_once()));
        drop(submission);
        assert!(matches!(operation.result.get(), Some(Err(Error::Aborted { op: "copy" }))));
        assert!(link.wait_idle(Some(stream), at_once()));
        link.drop_stream(stream, number);
    }

    #[test]
    fn who_submits_looks_at_the_answers_now_and_then() {
        let device = device();
        let link = device.link();
        let (stream, number) = link.open_stream(Priority::default());
        let submission = Submission::begin(link, stream, "copy").expect("it is accepted");
        link.submitted.store(0, Ordering::Relaxed);
        let in_flight = [(); DRAIN_EVERY as usize].map(|()| {
            let load = Load::copy(Wire::ECHO, Keep::Nothing);
            submission.send(Command::new(load)).expect("the device is there");
            link.activity().in_flight
        });
        assert_eq!(in_flight, [1, 2, 3, 4, 5, 6, 7, 0]);
        let operation = submission.finish(Ok(())).expect("it has not failed");
        assert!(matches!(operation.result.get(), Some(Ok(_))));
        link.drop_stream(stream, number);
    }

    #[test]
    fn what_staging_memory_is_spare_can_be_had_without_waiting() {
        let device = device();
        let link = device.link();
        let (stream, number) = link.open_stream(Priority::default());
        let submission = Submission::begin(link, stream, "copy").expect("it is accepted");
        let next = || submission.try_chunk(64, DeviceAccess::Read).expect("memory can be mapped");
        let chunks: Vec<_> = std::iter::from_fn(next).collect();
        assert!(chunks.len() > 1, "more than one is spare");
        drop(chunks);
        assert!(next().is_some(), "they come back");
        submission.finish(Ok(())).expect("it has not failed");
        link.drop_stream(stream, number);
    }

    #[test]
    fn a_device_is_idle_only_when_the_results_are_set() {
        let device = device();
        let link = device.link();
        assert!(link.wait_idle(None, at_once()) && link.wait_idle(None, never()));
        // As if another thread were about to set one.
        lock(&link.core).deliveries += 1;
        assert!(!link.wait_idle(None, at_once()));
        let parkers = [(); 2].map(|()| Arc::new(Parker::new()));
        for parker in [&parkers[0], &parkers[1], &parkers[0]] {
            assert!(!link.is_delivered(parker));
        }
        let waiting = latecomers(link);
        assert_eq!(waiting.len(), 2, "each is told once");
        assert!(waiting.iter().zip(&parkers).all(|(told, parker)| Arc::ptr_eq(told, parker)));
        link.delivered.fetch_add(1, Ordering::SeqCst);
        assert!(parkers.iter().all(|parker| link.is_delivered(parker)));
        // Whoever goes takes itself off, and no other.
        assert!(link.wait_idle(None, never()));
        assert_eq!(latecomers(link).len(), 2);
    }
}
