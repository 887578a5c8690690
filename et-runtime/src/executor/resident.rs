//! Graphs that a hart of the device schedules.
//!
//! The host writes the whole graph into device memory, launches workers and coordinator as one ordinary kernel, and reads what became of the tasks
//! when that has ended. Meanwhile it looks now and then: a worker that traps is never heard of again, and only the exception
//! buffer tells. Then the launch is aborted as soon as nothing else runs, and what is left of the graph is launched again
//! without the failed task and those that depend on it.

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_devapi::handshake::{CELL_BYTES, CELL_WORDS};
use et_hal::Hal;

use super::TaskFailure;
use super::device::{Crew, NotResident, Why};
use super::driver::Pool;
use super::image::{CANCEL, Image, Left, OUTCOME_BYTES, Offsets, PROGRESS, Progress, Remains};
use super::port::{Done, Ended};
use super::run::RunShared;
use crate::event::{Event, Transfer};
use crate::graph::{Graph, HostData, Work};
use crate::kernel::{ExceptionKind, HartContext, Kernel, Launch, decode};
use crate::link::Link as Shared;
use crate::memory::{DeviceBuffer, DeviceMemory};
use crate::stream::Stream;
use crate::sync::lock as locked;
use crate::{Error, Result};

/// How often to look at a graph that runs.
const LOOK: Duration = Duration::from_millis(5);
/// How long without progress until the exception buffer is looked at.
const STALL: Duration = Duration::from_millis(25);
/// Time for a small copy, or for the abort of a kernel.
const LIMIT: Duration = Duration::from_secs(10);

/// Tells whether the graph is one that a resident scheduler can run, and has room for.
pub(super) fn fits(graph: &Graph, memory: &Arc<DeviceMemory>) -> Result<(), NotResident> {
    let view = graph.view();
    let why = |text: &str| Err(NotResident::from(Why(text.to_owned())));
    if view.has_host_work() {
        return why("it has host functions");
    }
    let (mut tasks, mut edges, mut words) = (0, 0, 0);
    for task in 0..view.len() as u32 {
        match view.work(task) {
            Work::CopyIn { .. } if view.fan_in(task) != 0 => {
                return why("a copy to the device depends on other tasks");
            }
            Work::CopyOut { .. } if !view.successors(task).is_empty() => {
                return why("tasks depend on a copy from the device");
            }
            Work::Kernel(_) if view.core_set(task).is_some() => {
                return why("a kernel is bound to cores");
            }
            Work::Kernel(_) => {
                tasks += 1;
                edges += view.successors(task).len() as u64;
                words += view.args(task).len().max(1) as u64;
            }
            _ => {}
        }
    }
    // More harts than a device has; their cells are small.
    let needed = Offsets::new(tasks, edges, words, 2112).len_bytes;
    let free = memory.stats().largest_free_bytes;
    if needed > free { Err(NotResident::Full { needed, free }) } else { Ok(()) }
}

enum Phase<H: Hal> {
    /// Copies to the device.
    Ins(Vec<(u32, Event)>),
    Running(Box<Flight>),
    /// Copies from the device.
    Outs(Vec<(u32, Transfer<H>, HostData)>),
}

/// A launch of what is left of a graph.
struct Flight {
    image: Image,
    buffer: DeviceBuffer,
    uploaded: Event,
    event: Event,
    progress: Progress,
    /// Tasks that had ended before this launch.
    before: usize,
    looked: Duration,
    since: Duration,
    trapped: Vec<HartContext>,
}

struct Active<H: Hal> {
    run: Arc<RunShared>,
    phase: Phase<H>,
    is_cut: bool,
    late: Option<Duration>,
}

pub(super) struct ResidentPort<H: Hal> {
    shared: Arc<Shared<H>>,
    pool: Weak<Pool>,
    kernel: Kernel,
    crew: Crew,
    main: Stream<H>,
    /// For looks while the main stream is busy with the launch.
    side: Stream<H>,
    active: Option<Active<H>>,
    waiting: VecDeque<Arc<RunShared>>,
    news: Arc<Mutex<bool>>,
    done: Vec<Done>,
}

impl<H: Hal> ResidentPort<H> {
    pub(super) fn new(
        shared: &Arc<Shared<H>>,
        pool: &Weak<Pool>,
        kernel: Kernel,
        crew: Crew,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            pool: Weak::clone(pool),
            kernel,
            crew,
            main: Stream::new(shared),
            side: Stream::new(shared),
            active: None,
            waiting: VecDeque::new(),
            news: Arc::default(),
            done: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, run: &Arc<RunShared>) -> Result<(), TaskFailure> {
        self.waiting.push_back(Arc::clone(run));
        self.start_next();
        Ok(())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.active.is_some() || !self.waiting.is_empty() || !self.done.is_empty()
    }

    pub(super) fn nap(&self) -> Option<Duration> {
        self.is_busy().then_some(LOOK)
    }

    pub(super) fn describe(&self) -> String {
        let Some(active) = &self.active else { return String::new() };
        match &active.phase {
            Phase::Ins(_) => "the device gets its data".into(),
            Phase::Running(flight) => {
                let Progress { completed, failed, dispatched, .. } = flight.progress;
                format!("harts have {} tasks", dispatched.saturating_sub(completed + failed))
            }
            Phase::Outs(_) => "the device gives its data".into(),
        }
    }

    fn start_next(&mut self) {
        while self.active.is_none()
            && let Some(run) = self.waiting.pop_front()
        {
            let view = run.graph.view();
            let mut ins = Vec::new();
            for task in 0..view.len() as u32 {
                if let Work::CopyIn { from, to } = view.work(task) {
                    match from.with(|bytes| self.main.copy_to_device(bytes, to)) {
                        Ok(event) => {
                            self.hear(&event);
                            ins.push((task, event));
                        }
                        Err(error) => {
                            self.end(&run, task, Ended::Failed(TaskFailure::Device(error)));
                        }
                    }
                }
            }
            // Looked at in the next turn, also if there is nothing to wait for.
            *locked(&self.news) = true;
            self.active = Some(Active { run, phase: Phase::Ins(ins), is_cut: false, late: None });
        }
    }

    /// Has the scheduler look when an operation ends.
    fn hear(&self, event: &Event) {
        let (news, pool) = (Arc::clone(&self.news), Weak::clone(&self.pool));
        event.on_done(move |_| {
            *locked(&news) = true;
            if let Some(pool) = pool.upgrade() {
                pool.notify();
            }
        });
    }

    fn end(&mut self, run: &RunShared, task: u32, ended: Ended) {
        self.done.push(Done { run: run.number, task, ended, span: None });
    }

    pub(super) fn poll(&mut self, done: &mut Vec<Done>) -> bool {
        if self.active.is_none() && self.done.is_empty() {
            return false;
        }
        if self.shared.config.drain == crate::config::Drain::Caller {
            self.shared.poll();
        }
        let news = std::mem::take(&mut *locked(&self.news));
        if let Some(active) = self.active.take() {
            self.active = self.step(active, news);
            self.start_next();
        }
        let progress = !self.done.is_empty();
        done.append(&mut self.done);
        progress
    }

    /// Brings a run forward; gives it back unless it has ended.
    fn step(&mut self, mut active: Active<H>, news: bool) -> Option<Active<H>> {
        match active.phase {
            Phase::Ins(ref ins) => {
                if !news || !ins.iter().all(|(_, event)| event.is_done()) {
                    return Some(active);
                }
                for (task, event) in ins {
                    let outcome = event.outcome().unwrap_or(Err(Error::Closed));
                    let ended = outcome.map_or_else(
                        |error| Ended::Failed(TaskFailure::Device(error)),
                        |_| Ended::Complete,
                    );
                    self.done.push(Done { run: active.run.number, task: *task, ended, span: None });
                }
                // What failed has told its dependents by the next turn.
                active.phase = Phase::Ins(Vec::new());
                if self.done.is_empty() {
                    return self.launch_rest(active);
                }
                *locked(&self.news) = true;
                Some(active)
            }
            Phase::Running(flight) => match flight.event.outcome() {
                Some(outcome) => {
                    let (run, is_cut, late) = (active.run, active.is_cut, active.late);
                    let has_trap = self.collect(&run, *flight, outcome.err(), is_cut, late);
                    *locked(&self.news) = true;
                    if is_cut || late.is_some() || !has_trap {
                        let outs = self.start_outs(&run, is_cut || late.is_some());
                        let phase = Phase::Outs(outs);
                        return Some(Active { run, phase, is_cut, late });
                    }
                    Some(Active { run, phase: Phase::Ins(Vec::new()), is_cut, late })
                }
                None => {
                    let mut flight = flight;
                    self.look(&active.run, &mut flight);
                    active.phase = Phase::Running(flight);
                    Some(active)
                }
            },
            Phase::Outs(outs) => {
                let mut left = Vec::new();
                for (task, transfer, data) in outs {
                    if !transfer.event().is_done() {
                        left.push((task, transfer, data));
                        continue;
                    }
                    let copied = transfer
                        .wait(Duration::ZERO)
                        .map_err(|error| error.error)
                        .and_then(|buffer| data.with_mut(|into| buffer.copy_out(0, into)));
                    let ended = copied.map_or_else(
                        |error| Ended::Failed(TaskFailure::Device(error)),
                        |()| Ended::Complete,
                    );
                    self.end(&active.run, task, ended);
                }
                if left.is_empty() {
                    return None;
                }
                active.phase = Phase::Outs(left);
                Some(active)
            }
        }
    }

    /// Launches the kernels that are not final.
    fn launch_rest(&mut self, mut active: Active<H>) -> Option<Active<H>> {
        let view = active.run.graph.view();
        let tasks: Vec<u32> = (0..view.len() as u32)
            .filter(|&task| {
                matches!(view.work(task), Work::Kernel(_)) && !active.run.state(task).is_final()
            })
            .collect();
        if tasks.is_empty() || active.is_cut || active.late.is_some() {
            for task in tasks {
                self.end(&active.run, task, Ended::NotRun);
            }
            let outs = self.start_outs(&active.run, active.is_cut || active.late.is_some());
            *locked(&self.news) = true;
            active.phase = Phase::Outs(outs);
            return Some(active);
        }
        match self.launch(&active.run, tasks.clone()) {
            Ok(flight) => active.phase = Phase::Running(Box::new(flight)),
            Err(error) => {
                for task in tasks {
                    let failure = TaskFailure::Device(error.clone());
                    self.end(&active.run, task, Ended::Failed(failure));
                }
                let outs = self.start_outs(&active.run, true);
                active.phase = Phase::Outs(outs);
            }
        }
        Some(active)
    }

    fn launch(&self, run: &RunShared, tasks: Vec<u32>) -> Result<Flight> {
        let count = tasks.len();
        let (mut edges, mut words) = (0, 0);
        let view = run.graph.view();
        for &task in &tasks {
            edges += view.successors(task).len() as u64;
            words += view.args(task).len().max(1) as u64;
        }
        let room = Offsets::new(count as u64, edges, words, self.crew.harts).len_bytes;
        let buffer = self.shared.memory.alloc(room, 64)?;
        let base = buffer.addr().as_u64();
        let image = Image::new(&run.graph, tasks, base, self.crew.harts);
        let all = buffer.slice(..image.at.len_bytes)?;
        // If it fails, the scheduler finds no image and says so, or the device is gone.
        let uploaded = self.main.copy_to_device(&image.bytes, all)?;
        let launch = Launch::new(&self.kernel)
            .u64(1)
            .u64(base + image.at.cells)
            .u64(self.crew.harts.into())
            .buffer(&buffer)
            .shires(self.crew.shires);
        let event = self.main.launch(&launch)?;
        self.hear(&event);
        let now = self.shared.config.clock.now();
        Ok(Flight {
            image,
            buffer,
            uploaded,
            event,
            progress: Progress::default(),
            before: run.finished.load(Ordering::Relaxed),
            looked: now,
            since: now,
            trapped: Vec::new(),
        })
    }

    fn start_outs(
        &mut self,
        run: &Arc<RunShared>,
        skip: bool,
    ) -> Vec<(u32, Transfer<H>, HostData)> {
        let view = run.graph.view();
        let mut outs = Vec::new();
        for task in 0..view.len() as u32 {
            let Work::CopyOut { from, to } = view.work(task) else { continue };
            if run.state(task).is_final() {
                continue;
            }
            let depends_on_failed = self.done.iter().any(|done| {
                !matches!(done.ended, Ended::Complete) && view.successors(done.task).contains(&task)
            });
            if skip || depends_on_failed {
                self.end(run, task, Ended::NotRun);
                continue;
            }
            let len = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
            let started = self
                .shared
                .host_buffer(len, et_hal::DeviceAccess::Write)
                .and_then(|buffer| self.main.copy_to_host_buffer(from, buffer));
            match started {
                Ok(transfer) => {
                    self.hear(transfer.event());
                    outs.push((task, transfer, to.clone()));
                }
                Err(error) => self.end(run, task, Ended::Failed(TaskFailure::Device(error))),
            }
        }
        outs
    }

    /// Looks whether the graph goes on, and whether a worker is lost.
    fn look(&self, run: &RunShared, flight: &mut Flight) {
        let now = self.shared.config.clock.now();
        if now.saturating_sub(flight.looked) < LOOK {
            return;
        }
        flight.looked = now;
        let mut words = [0; 8];
        if self.fetch(&flight.buffer, PROGRESS, &mut words).is_err() {
            // If the device is gone, the event says so.
            return;
        }
        let progress = Progress::of(&words);
        let ended = (progress.completed + progress.failed) as usize;
        run.finished.store(flight.before + ended, Ordering::Relaxed);
        if progress != flight.progress {
            flight.progress = progress;
            flight.since = now;
        } else if now.saturating_sub(flight.since) >= STALL {
            flight.since = now;
            if let Err(error) = self.look_for_traps(flight) {
                tracing::debug!(%error, "cannot look for lost workers");
            }
        }
    }

    /// Aborts the launch if harts have trapped and nobody else has a task.
    fn look_for_traps(&self, flight: &mut Flight) -> Result<()> {
        let Some(exceptions) = flight.event.operation().exceptions.get() else { return Ok(()) };
        let mut bytes = vec![0_u8; exceptions.len_bytes() as usize];
        self.side.read(exceptions, &mut bytes, LIMIT)?;
        let contexts = decode(&bytes);
        if contexts.is_empty() {
            return Ok(());
        }
        let cells = self.cells(flight)?;
        let is_trapped = |hart: u64| contexts.iter().any(|c| u64::from(c.hart_id) == hart);
        let held: u32 =
            cells.iter().filter(|cell| is_trapped(cell.hart)).map(|cell| cell.outstanding).sum();
        // A coordinator that trapped has no identity in its cell, and nothing goes on without it.
        let has_coordinator = contexts
            .iter()
            .any(|context| !cells.iter().any(|cell| cell.hart == u64::from(context.hart_id)));
        if has_coordinator || u64::from(held) >= flight.progress.outstanding() {
            flight.trapped = contexts;
            crate::device::request_abort(&self.shared, &flight.event)?;
        }
        Ok(())
    }

    fn cells(&self, flight: &Flight) -> Result<Vec<Remains>> {
        let mut words = vec![0; self.crew.harts as usize * CELL_WORDS];
        self.fetch(&flight.buffer, flight.image.at.cells, &mut words)?;
        Ok(words.chunks_exact(CELL_WORDS).skip(1).map(Remains::of).collect())
    }

    fn fetch(&self, buffer: &DeviceBuffer, at: u64, into: &mut [u64]) -> Result<()> {
        let end = at + 8 * into.len() as u64;
        self.side.read(buffer.slice(at..end)?, into, LIMIT)
    }

    /// Takes what a launch that has ended left; tells whether a worker was lost, so that the rest is to be launched again.
    fn collect(
        &mut self,
        run: &Arc<RunShared>,
        flight: Flight,
        error: Option<Error>,
        is_cut: bool,
        late: Option<Duration>,
    ) -> bool {
        let count = flight.image.tasks.len();
        let mut words = vec![0_u64; count * (OUTCOME_BYTES as usize / 8)];
        let mut start = [0; 8];
        let fetched = self
            .fetch(&flight.buffer, flight.image.at.outcomes, &mut words)
            .and_then(|()| self.fetch(&flight.buffer, PROGRESS, &mut start))
            .and_then(|()| self.cells(&flight));
        let cells = match fetched {
            Ok(cells) => cells,
            Err(fetch_error) => {
                let error = error.unwrap_or(fetch_error);
                for &task in &flight.image.tasks {
                    let failure = TaskFailure::Device(error.clone());
                    self.end(run, task, Ended::Failed(failure));
                }
                return false;
            }
        };
        let mut contexts = flight.trapped;
        if let (true, Some(Error::Launch(failure))) = (contexts.is_empty(), &error) {
            // Workers that trapped while the rest ended by itself. Those the abort stopped are no cause.
            let is_cause = |context: &&HartContext| context.kind != ExceptionKind::SystemAbort;
            contexts = failure.contexts.iter().filter(is_cause).cloned().collect();
        }
        let origin = Progress::of(&start).started_cycles;
        let mhz = u64::from(self.shared.layout.mgmt.header.minion_boot_freq.get().max(1));
        let time = |cycles: u64| {
            Duration::from_nanos(cycles.saturating_sub(origin).saturating_mul(1000) / mhz)
        };
        let base = flight.buffer.addr().as_u64();
        let mut has_trap = false;
        for (here, outcome) in words.chunks_exact(OUTCOME_BYTES as usize / 8).enumerate() {
            let task = flight.image.tasks[here];
            let (ended, span) = match Left::of(outcome) {
                Left::Complete { rank, start, end } => {
                    (Some(Ended::Complete), Some((rank - 1, time(start), time(end))))
                }
                Left::Failed { rank, value, start, end } => {
                    let hart = cells.get(rank as usize - 1).map_or(0, |cell| cell.hart);
                    let failure = TaskFailure::Returned { value, hart };
                    (Some(Ended::Failed(failure)), Some((rank - 1, time(start), time(end))))
                }
                Left::Dispatched { rank } => {
                    let cell = cells.get((rank as usize).wrapping_sub(1));
                    let context = cell.and_then(|cell| {
                        contexts.iter().find(|context| u64::from(context.hart_id) == cell.hart)
                    });
                    let is_running = cell.is_some_and(|cell| {
                        flight.image.task_of_args(cell.running.wrapping_sub(base)) == Some(here)
                    });
                    let ended = match (context, is_running, late, &error) {
                        (Some(context), true, ..) => {
                            has_trap = true;
                            Some(Ended::Failed(run.trapped(task, rank - 1, context)))
                        }
                        (_, _, Some(after), _) => {
                            let worker = rank - 1;
                            Some(Ended::Failed(TaskFailure::Deadline { after, worker }))
                        }
                        (Some(_), false, None, _) => None,
                        (None, _, None, Some(error)) => {
                            Some(Ended::Failed(TaskFailure::Device(error.clone())))
                        }
                        (None, _, None, None) => {
                            let why = "its hart ended without a word".to_owned();
                            Some(Ended::Failed(TaskFailure::WorkerLost { worker: rank - 1, why }))
                        }
                    };
                    (ended, None)
                }
                Left::NotRun => (None, None),
            };
            if let Some(ended) = ended {
                self.done.push(Done { run: run.number, task, ended, span });
            }
        }
        if has_trap && !is_cut && late.is_none() {
            return true;
        }
        // Nothing is launched again: what has not run will not.
        let known: Vec<u32> = self.done.iter().map(|done| done.task).collect();
        let mut is_known = vec![false; run.graph.len()];
        for task in known {
            is_known[task as usize] = true;
        }
        for &task in &flight.image.tasks {
            if !is_known[task as usize] {
                let ended = match &error {
                    Some(error) if !is_cut && late.is_none() => {
                        Ended::Failed(TaskFailure::Device(error.clone()))
                    }
                    _ => Ended::NotRun,
                };
                self.end(run, task, ended);
            }
        }
        false
    }

    pub(super) fn give_up(&mut self, run: u64, late: Option<Duration>) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.number == run) {
            if let Some(run) = self.waiting.remove(at) {
                for task in 0..run.graph.len() as u32 {
                    self.end(&run, task, Ended::NotRun);
                }
            }
            return;
        }
        let Some(active) = self.active.as_mut().filter(|active| active.run.number == run) else {
            return;
        };
        active.is_cut = true;
        active.late = late;
        *locked(&self.news) = true;
        let Phase::Running(flight) = &active.phase else { return };
        let told = if late.is_some() {
            crate::device::request_abort(&self.shared, &flight.event)
        } else {
            // Not before the image, which would undo it.
            self.side.wait_for(&flight.uploaded);
            let cancel = flight.buffer.slice(CANCEL..CANCEL + 8);
            cancel.and_then(|word| self.side.copy_to_device(&[1_u64], word)).map(drop)
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a graph that is given up");
        }
    }
}

/// The bytes of a cell as the image counts them.
const _: () = assert!(CELL_BYTES as usize == CELL_WORDS * 8);
