//! Kernels as launches, and copies, on streams.

use crate::sync::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::Hal;

use super::TaskFailure;
use super::driver::Pool;
use super::port::{Done, Offer, Port, Unit};
use crate::config::Drain;
use crate::event::{Event, Transfer};
use crate::graph::{HostData, Work};
use crate::kernel::{KernelArgs, Launch};
use crate::link::Link as Shared;
use crate::stream::Stream;
use crate::sync::lock as locked;

/// Operations in flight at a time. More only fill queues.
const ROOM: usize = 32;

/// Time for an abort of a kernel that does not end.
const ABORT: Duration = Duration::from_secs(5);

struct Operation<H: Hal> {
    run: u64,
    task: u32,
    name: String,
    event: Event,
    fetched: Option<(Transfer<H>, HostData)>,
    is_launch: bool,
}

pub(super) struct StreamPort<H: Hal> {
    pub(super) shared: Arc<Shared<H>>,
    pool: Weak<Pool>,
    /// Kernels and copies do not wait for one another.
    launches: Stream<H>,
    copies: Stream<H>,
    operations: Vec<Operation<H>>,
    /// Some operation has ended.
    news: Arc<Mutex<bool>>,
}

impl<H: Hal> StreamPort<H> {
    pub(super) fn new(shared: &Arc<Shared<H>>, pool: &Weak<Pool>) -> Self {
        Self {
            shared: Arc::clone(shared),
            pool: Weak::clone(pool),
            launches: Stream::new(shared),
            copies: Stream::new(shared),
            operations: Vec::new(),
            news: Arc::default(),
        }
    }

    fn start(&self, unit: &Unit<'_>) -> crate::Result<Operation<H>> {
        let view = unit.run.graph.view();
        let task = crate::graph::TaskId::from_index(unit.task);
        let mut is_launch = false;
        let (event, fetched) = match view.work(unit.task) {
            Work::Kernel(kernel) => {
                is_launch = true;
                let bytes: Vec<u8> =
                    view.args(unit.task).iter().flat_map(|word| word.to_le_bytes()).collect();
                let bytes = &bytes[..view.args_len(unit.task)];
                let mut launch = Launch::new(kernel).args(KernelArgs::new().bytes(bytes, 8));
                if let Some(shires) = view.shires(unit.task) {
                    launch = launch.shires(shires);
                }
                (self.launches.launch(&launch)?, None)
            }
            Work::CopyIn { from, to } => {
                let event = from.with(|bytes| self.copies.copy_to_device(bytes, to))?;
                (event, None)
            }
            Work::CopyOut { from, to } => {
                let len = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
                let buffer = self.shared.host_buffer(len, et_hal::DeviceAccess::Write)?;
                let transfer = self.copies.copy_to_host_buffer(from, buffer)?;
                (transfer.event().clone(), Some((transfer, to.clone())))
            }
            Work::Host(_) => unreachable!("host functions are not offered to the device"),
        };
        let name = unit.run.graph.name(task).map_or_else(|| task.to_string(), str::to_owned);
        Ok(Operation { run: unit.run.number, task: unit.task, name, event, fetched, is_launch })
    }
}

impl<H: Hal> Port for StreamPort<H> {
    fn name(&self, _: &crate::graph::Graph) -> &'static str {
        "streams"
    }

    fn take(&mut self, _: &Arc<super::run::RunShared>) -> Result<bool, TaskFailure> {
        Ok(false)
    }

    fn offer(&mut self, unit: &Unit<'_>) -> Result<Offer, TaskFailure> {
        if self.operations.len() >= ROOM {
            return Ok(Offer::Full);
        }
        let operation = self.start(unit).map_err(TaskFailure::Device)?;
        let (news, pool) = (Arc::clone(&self.news), Weak::clone(&self.pool));
        operation.event.on_done(move |_| {
            *locked(&news) = true;
            if let Some(pool) = pool.upgrade() {
                pool.notify();
            }
        });
        let is_staged = self.operations.iter().any(|other| other.is_launch == operation.is_launch);
        // Tracks of their own: as if there were one worker for kernels and one for copies.
        let worker = u32::from(!operation.is_launch);
        self.operations.push(operation);
        Ok(Offer::Taken { worker, is_staged })
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> bool {
        if self.operations.is_empty() {
            return false;
        }
        if self.shared.config.drain == Drain::Caller {
            self.shared.poll();
        }
        if !std::mem::take(&mut *locked(&self.news)) {
            return false;
        }
        let mut at = 0;
        while let Some(operation) = self.operations.get(at) {
            let Some(outcome) = operation.event.outcome() else {
                at += 1;
                continue;
            };
            let Operation { run, task, fetched, .. } = self.operations.remove(at);
            let mut result = outcome.map(drop).map_err(TaskFailure::Device);
            if let (Ok(()), Some((transfer, data))) = (&result, fetched) {
                result = transfer
                    .wait(Duration::ZERO)
                    .map_err(|error| error.error)
                    .and_then(|buffer| data.with_mut(|into| buffer.copy_out(0, into)))
                    .map_err(TaskFailure::Device);
            }
            done.push(Done { run, task, ended: result.into(), span: None });
        }
        true
    }

    fn is_busy(&self) -> bool {
        !self.operations.is_empty()
    }

    fn nap(&self) -> Option<Duration> {
        let must_poll = self.is_busy() && self.shared.config.drain == Drain::Caller;
        must_poll.then_some(Duration::from_micros(100))
    }

    fn give_up(&mut self, run: u64, late: Option<Duration>, _: &mut Vec<Done>) {
        if late.is_none() {
            return;
        }
        for operation in self.operations.iter().filter(|op| op.run == run && op.is_launch) {
            // If it has just ended, there is nothing to abort; its event says what happened.
            if let Err(error) = crate::device::request_abort(&self.shared, &operation.event) {
                tracing::debug!(%error, task = operation.name, "abort of a late kernel");
            }
        }
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.operations.iter().take(4).map(|op| op.name.as_str()).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("the device has {}", names.join(", "))
        }
    }

    fn close(&mut self) {}
}
