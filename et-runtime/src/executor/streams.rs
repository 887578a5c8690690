//! Kernels as launches, and copies, on streams.

use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::Hal;

use super::TaskFailure;
use super::access::{Access, Stop};
use super::cores::Patience;
use super::harts::{State, Tenant};
use super::host::Desk;
use super::ids::{RunId, TaskRef, WorkerId};
use super::outcome::Cut;
use super::place::{Done, Ended, Ending, Offer, Place, Unit};
use super::run::RunShared;
use crate::event::{Event, Transfer};
use crate::graph::{HostData, TaskId, Work};
use crate::kernel::{KernelArgs, Launch};
use crate::stream::Stream;
use crate::sync::{AtomicBool, Ordering};

/// Operations in flight at a time. More only fill queues.
const ROOM: usize = 32;
/// How often to ask the device where nothing else does.
const ASK: Duration = Duration::from_micros(100);
/// How often to look at a launch that is to be stopped.
const LOOK: Duration = Duration::from_millis(1);

struct Operation<H: Hal> {
    /// Keeps what it uses.
    run: Arc<RunShared>,
    task: TaskRef,
    name: String,
    event: Event,
    fetched: Option<(Transfer<H>, HostData)>,
    /// Its run is late.
    late: Option<Late>,
}

struct Late {
    after: Duration,
    /// When it is reported at the latest, whether it has ended or not.
    report_at: Duration,
    is_reported: bool,
    /// For launches; copies cannot be stopped.
    stop: Option<Stop>,
}

/// The launches or the copies of graphs: kernels and copies do not wait for one another.
pub(super) struct Streams<H: Hal> {
    access: Access<H>,
    desk: Weak<dyn Desk>,
    stream: Stream<H>,
    /// For launches.
    harts: Option<Tenant>,
    patience: Patience,
    operations: Vec<Operation<H>>,
    /// Some operation has ended.
    news: Arc<AtomicBool>,
}

impl<H: Hal> Streams<H> {
    /// A place for launches, which need the harts, or for copies.
    pub(super) fn new(
        access: &Access<H>,
        desk: &Weak<dyn Desk>,
        harts: Option<Tenant>,
        patience: Patience,
    ) -> Self {
        Self {
            access: access.clone(),
            desk: Weak::clone(desk),
            stream: access.stream(),
            harts,
            patience,
            operations: Vec::new(),
            news: Arc::new(AtomicBool::new(false)),
        }
    }

    /// A track of its own for each kind: as if there were one worker for kernels and one for
    /// copies.
    fn worker(&self) -> WorkerId {
        WorkerId(u32::from(self.harts.is_none()))
    }

    fn start(&self, unit: Unit<'_>) -> crate::Result<Operation<H>> {
        let view = unit.run.graph.view();
        let index = unit.task.unit;
        let (event, fetched) = match view.work(index) {
            Work::Kernel(kernel) => {
                let words = view.args(index).iter();
                let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
                let bytes = &bytes[..view.args_len(index)];
                let mut launch = Launch::new(kernel).args(KernelArgs::new().bytes(bytes, 1));
                if let Some(shires) = view.shires(index) {
                    launch = launch.shires(shires);
                }
                (self.stream.launch(&launch)?, None)
            }
            Work::CopyIn { from, to } => {
                (from.with(|bytes| self.stream.copy_to_device(bytes, to))?, None)
            }
            Work::CopyOut { from, to } => {
                let transfer = self.access.fetch(&self.stream, from.clone())?;
                (transfer.event().clone(), Some((transfer, to.clone())))
            }
            Work::Host(_) => unreachable!("host functions are not offered to the device"),
        };
        let task = TaskId::from_index(index);
        let name = unit.run.graph.name(task).map_or_else(|| task.to_string(), str::to_owned);
        let run = Arc::clone(unit.run);
        Ok(Operation { run, task: unit.task, name, event, fetched, late: None })
    }

    /// Says how an operation has ended, unless that was said.
    fn finish(&self, operation: Operation<H>, outcome: Result<(), crate::Error>, done: &mut Done) {
        let Operation { task, fetched, late, .. } = operation;
        if late.as_ref().is_some_and(|late| late.is_reported) {
            return;
        }
        let result = match (outcome, fetched) {
            (Ok(()), Some((transfer, data))) => self.access.take_into(transfer, &data),
            (outcome, _) => outcome,
        };
        let how = match (result, late) {
            (Ok(()), _) => Ended::Complete,
            (Err(_), Some(late)) => self.deadline(&late),
            (Err(error), None) => Ended::failed(TaskFailure::Device(error)),
        };
        done.ended.push(Ending::new(task, how));
    }

    fn deadline(&self, late: &Late) -> Ended {
        Ended::failed(TaskFailure::Deadline { after: late.after, worker: Some(self.worker().0) })
    }

    fn has_late(&self) -> bool {
        self.operations.iter().any(|operation| operation.late.is_some())
    }

    /// Stops launches of late runs, and reports what does not end. It stays until it does, because
    /// it uses what it has.
    fn look_at_late(&mut self, done: &mut Done) -> bool {
        let before = done.ended.len();
        let now = self.access.now();
        let mut operations = std::mem::take(&mut self.operations);
        operations.retain_mut(|operation| {
            let Some(late) = &mut operation.late else { return true };
            let is_given_up = late.stop.as_mut().is_some_and(|stop| stop.poll(&self.access));
            if (is_given_up || now >= late.report_at) && !late.is_reported {
                late.is_reported = true;
                done.ended.push(Ending::new(operation.task, self.deadline(late)));
            }
            !is_given_up
        });
        self.operations = operations;
        done.ended.len() != before
    }
}

impl<H: Hal> Place for Streams<H> {
    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        if self.operations.len() >= ROOM || !self.harts.as_mut().is_none_or(Tenant::claim) {
            return Offer::Full;
        }
        let operation = match self.start(unit) {
            Ok(operation) => operation,
            Err(error) => {
                if let (Some(harts), true) = (&self.harts, self.operations.is_empty()) {
                    harts.gone();
                }
                return Offer::Failed(Box::new(TaskFailure::Device(error)));
            }
        };
        if let Some(harts) = &self.harts
            && harts.state() == State::Coming
        {
            harts.came();
        }
        let (news, desk) = (Arc::clone(&self.news), Weak::clone(&self.desk));
        operation.event.on_done(move |_| {
            // Release: pairs with the swap in `poll`.
            news.store(true, Ordering::Release);
            if let Some(desk) = desk.upgrade() {
                desk.notify();
            }
        });
        let is_staged = !self.operations.is_empty();
        self.operations.push(operation);
        Offer::Taken { worker: self.worker(), is_staged }
    }

    fn poll(&mut self, done: &mut Done) -> bool {
        if let Some(harts) = &mut self.harts {
            harts.refresh();
        }
        if self.operations.is_empty() {
            return false;
        }
        self.access.poll();
        let mut progress = self.has_late() && self.look_at_late(done);
        if self.news.swap(false, Ordering::AcqRel) {
            let mut at = 0;
            while let Some(operation) = self.operations.get(at) {
                let Some(outcome) = operation.event.outcome() else {
                    at += 1;
                    continue;
                };
                let operation = self.operations.remove(at);
                self.finish(operation, outcome.map(drop), done);
                progress = true;
            }
            if progress && let Some(next) = self.operations.first() {
                done.started.push(next.task);
            }
        }
        if self.operations.is_empty()
            && let Some(harts) = &self.harts
        {
            harts.gone();
        }
        progress
    }

    fn abort(&mut self, run: RunId, why: Cut) {
        let Cut::Deadline(after) = why else { return };
        let Patience { grace, limit, .. } = self.patience;
        let report_at = self.access.now().saturating_add(grace);
        for operation in &mut self.operations {
            if operation.run.number == run && operation.late.is_none() {
                let stop = self.harts.is_some();
                let stop = stop.then(|| Stop::new(&self.access, &operation.event, limit));
                operation.late = Some(Late { after, report_at, is_reported: false, stop });
            }
        }
    }

    fn next_look(&self) -> Option<Duration> {
        if self.operations.is_empty() {
            None
        } else if self.access.must_poll() {
            Some(ASK)
        } else {
            self.has_late().then_some(LOOK)
        }
    }

    fn describe(&self, parts: &mut Vec<String>) {
        let names: Vec<&str> = self.operations.iter().take(4).map(|op| op.name.as_str()).collect();
        if !names.is_empty() {
            parts.push(format!("the device has {}", names.join(", ")));
        }
    }

    fn is_busy(&self) -> bool {
        !self.operations.is_empty()
    }
}
