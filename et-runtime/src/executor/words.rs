//! The words that conditions of tasks look at, in device memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::{Hal, Mmio};

use super::TaskFailure;
use super::access::{Access, Window};
use super::host::Desk;
use super::ids::{TaskRef, size};
use super::run::RunShared;
use crate::Error;
use crate::event::Transfer;
use crate::graph::{Test, WordPlace};
use crate::memory::DeviceSlice;
use crate::stream::Stream;
use crate::sync::{AtomicBool, Ordering};

/// Words on their way at a time. More only fill queues.
const ROOM: usize = 32;
/// How often to ask the device where nothing else does.
const ASK: Duration = Duration::from_micros(100);

/// What is known of a condition.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It holds, or not.
    Known(bool),
    /// It is told later.
    Asked,
    /// There is no room to ask now.
    Full,
    /// The word cannot be read.
    Failed(Box<TaskFailure>),
}

/// A condition that was asked for: whether it holds.
pub(super) type Answer = (TaskRef, Result<bool, TaskFailure>);

/// Reads words of device memory. Nothing here waits.
pub(super) trait Words: Send {
    /// Asks whether the condition of a task holds. A task whose run has ended meanwhile is told
    /// all the same.
    fn ask(&mut self, run: &Arc<RunShared>, task: TaskRef) -> Verdict;

    /// Tells what is known now of what was asked.
    fn poll(&mut self, answers: &mut Vec<Answer>);

    /// How soon to poll although nothing may have notified the scheduler.
    fn next_look(&self) -> Option<Duration>;

    /// Returns `true` while words are on their way.
    fn is_busy(&self) -> bool;
}

/// A word on its way.
struct Question<H: Hal> {
    /// Keeps the word.
    _run: Arc<RunShared>,
    task: TaskRef,
    test: Test,
    /// Bytes of the copy before the word, and of both.
    before: usize,
    bytes: usize,
    transfer: Transfer<H>,
}

/// Reads words through the window if the host may use device memory, else by copies.
pub(super) struct DeviceWords<H: Hal> {
    access: Access<H>,
    desk: Weak<dyn Desk>,
    /// Its own, so that no word is behind a long copy. Made when the first is asked for: streams
    /// take the device's queues in turn, and one that is never used would move all others.
    stream: Option<Stream<H>>,
    window: Option<Window<H>>,
    questions: Vec<Question<H>>,
    /// Some copy has ended.
    news: Arc<AtomicBool>,
}

impl<H: Hal> DeviceWords<H> {
    pub(super) fn new(access: &Access<H>, desk: &Weak<dyn Desk>) -> Self {
        Self {
            access: access.clone(),
            desk: Weak::clone(desk),
            stream: None,
            window: access.window(),
            questions: Vec::new(),
            news: Arc::new(AtomicBool::new(false)),
        }
    }

    fn look(window: &Window<H>, word: &DeviceSlice, test: Test) -> Verdict {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..size(test.kind.bytes())];
        match window.mmio.read_bytes(window.at(word.addr().as_u64()), bytes) {
            Ok(()) => Verdict::Known(test.passes(bytes)),
            Err(error) => {
                let error = Error::hal("reading the word of a condition")(error);
                Verdict::Failed(Box::new(TaskFailure::Device(error)))
            }
        }
    }
}

impl<H: Hal> Words for DeviceWords<H> {
    fn ask(&mut self, run: &Arc<RunShared>, task: TaskRef) -> Verdict {
        let Some((test, WordPlace::Device(word))) = run.graph.view().condition(task.unit) else {
            return Verdict::Known(true);
        };
        if let Some(window) = &self.window {
            return Self::look(window, word, test);
        }
        if self.questions.len() >= ROOM {
            return Verdict::Full;
        }
        let (aligned, before) = word.aligned_out(self.access.copy_align());
        let (before, bytes) = (size(before), size(aligned.len_bytes()));
        let stream = self.stream.get_or_insert_with(|| self.access.stream());
        let transfer = match self.access.fetch(stream, aligned) {
            Ok(transfer) => transfer,
            Err(error) => return Verdict::Failed(Box::new(TaskFailure::Device(error))),
        };
        let (news, desk) = (Arc::clone(&self.news), Weak::clone(&self.desk));
        transfer.event().on_done(move |_| {
            // Release: pairs with the swap in `poll`.
            news.store(true, Ordering::Release);
            if let Some(desk) = desk.upgrade() {
                desk.notify();
            }
        });
        let run = Arc::clone(run);
        self.questions.push(Question { _run: run, task, test, before, bytes, transfer });
        Verdict::Asked
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        if self.questions.is_empty() {
            return;
        }
        self.access.poll();
        if !self.news.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut at = 0;
        while let Some(question) = self.questions.get(at) {
            if question.transfer.event().outcome().is_none() {
                at += 1;
                continue;
            }
            let Question { task, test, before, bytes, transfer, .. } = self.questions.remove(at);
            let mut copied = vec![0; bytes];
            let taken = self.access.take(transfer, &mut copied);
            let holds = taken.map(|()| test.passes(&copied[before..]));
            answers.push((task, holds.map_err(TaskFailure::Device)));
        }
    }

    fn next_look(&self) -> Option<Duration> {
        (!self.questions.is_empty() && self.access.must_poll()).then_some(ASK)
    }

    fn is_busy(&self) -> bool {
        !self.questions.is_empty()
    }
}
