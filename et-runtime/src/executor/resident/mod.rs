//! Graphs that a hart of the device schedules.
//!
//! The host writes the whole graph into device memory, launches workers and coordinator as one
//! ordinary kernel, and reads what became of the tasks when that has ended. Meanwhile it looks now
//! and then: a worker that traps is never heard of again, and only the exception buffer tells. Then
//! the coordinator is told to stop as soon as nothing else runs, and what is left of the graph is
//! launched again without the failed task and those that depend on it.
//!
//! Copies in and out are the host's, before and behind the launch, so that those of several graphs
//! overlap with the launch of another.

mod flight;
mod image;
mod outcome;
mod rows;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::Hal;

use flight::Flight;
use image::{Counts, Offsets};
use outcome::Remaining;

use super::TaskFailure;
use super::access::Access;
use super::config::{NotResident, Why};
use super::cores::{Crew, Patience};
use super::harts::Tenant;
use super::host::Desk;
use super::ids::{RunId, TaskRef, count};
use super::outcome::Cut;
use super::place::{Done, Ended, Ending, Offer, Place, Span, Unit};
use super::run::RunShared;
use crate::Error;
use crate::event::{Event, Transfer};
use crate::graph::{Graph, HostData, Work};
use crate::kernel::Kernel;
use crate::memory::DeviceMemory;
use crate::stream::Stream;
use crate::sync::{AtomicBool, Ordering};

/// How often to look at a graph that runs.
const LOOK: Duration = Duration::from_millis(5);
/// How often to look at one that is to end.
const CLOSE_LOOK: Duration = Duration::from_micros(500);
/// How often to ask the device where nothing else does.
const ASK: Duration = Duration::from_micros(100);
/// Graphs at a time. One of them has the harts, the others copy.
const ROOM: usize = 4;

/// Says why the graph is not one that a resident scheduler can run, or has no room for.
pub(super) fn fits(graph: &Graph, memory: &Arc<DeviceMemory>) -> Result<(), NotResident> {
    let view = graph.view();
    let why = |text: &str| Err(NotResident::from(Why(text.to_owned())));
    if view.has_host_work() {
        return why("it has host functions");
    }
    let mut units = Vec::new();
    for task in 0..count(view.len()) {
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
            Work::Kernel(_) if view.starts_together(task) => {
                return why("the parts of a kernel are to start together");
            }
            Work::Kernel(_) => units.extend(view.units(task)),
            _ => {}
        }
    }
    // More harts than a device has; their cells are small.
    let needed = Offsets::new(Counts::at_most(graph, &units), 2112).len_bytes;
    let free = memory.stats().largest_free_bytes;
    if needed > free { Err(NotResident::Full { needed, free }) } else { Ok(()) }
}

enum Phase<H: Hal> {
    /// Taken, and nothing done yet.
    New,
    /// Copies to the device.
    Ins(Vec<(u32, Event)>),
    /// What is left is to be launched, when the harts are free.
    Ready,
    Running(Box<Flight<H>>),
    /// What the launch left is on its way.
    Remains(Box<Remaining<H>>),
    /// Copies from the device.
    Outs(Vec<(u32, Transfer<H>, HostData)>),
    Over,
}

/// A graph that was taken.
struct Active<H: Hal> {
    run: Arc<RunShared>,
    slot: u32,
    phase: Phase<H>,
    /// Why it ends before its time, if it does, and when a late one is reported at the latest.
    cut: Option<(Cut, Duration)>,
    /// All was said of its tasks, although the device has some. It stays until the device has not.
    is_reported: bool,
    /// Parts that have ended, of tasks that may not have.
    ended: HashSet<u32>,
    /// Tasks of which a part has failed.
    failed: HashSet<u32>,
}

impl<H: Hal> Active<H> {
    fn task(&self, unit: u32) -> TaskRef {
        TaskRef { run: self.run.number, slot: self.slot, unit }
    }

    fn end(&mut self, done: &mut Done, unit: u32, how: Ended) {
        self.end_at(done, unit, how, None);
    }

    fn end_at(&mut self, done: &mut Done, unit: u32, how: Ended, span: Option<Box<Span>>) {
        if self.is_reported {
            return;
        }
        let of = self.run.graph.view().unit(unit);
        if of.is_part() {
            if !self.ended.insert(unit) {
                return;
            }
            if matches!(how, Ended::Failed(_)) {
                self.failed.insert(of.task);
            }
        }
        done.ended.push(Ending { task: self.task(unit), how, span });
    }

    /// Returns `true` if the task of a unit may be skipped.
    fn is_guarded(&self, unit: u32) -> bool {
        let view = self.run.graph.view();
        view.condition(view.unit(unit).task).is_some()
    }

    fn fail(&mut self, done: &mut Done, unit: u32, error: Error) {
        self.end(done, unit, Ended::failed(TaskFailure::Device(error)));
    }

    /// Returns `true` if another part of the same task has failed, so that this one is not run:
    /// what depends on the task must not be either.
    fn is_beside_failed(&self, unit: u32) -> bool {
        self.failed.contains(&self.run.graph.view().unit(unit).task)
    }

    /// The kernels that are not final, or what is left of them.
    fn left(&self) -> Vec<u32> {
        let view = self.run.graph.view();
        let is_left = |task: &u32| {
            matches!(view.work(*task), Work::Kernel(_)) && !self.run.state(*task).is_final()
        };
        let tasks = (0..count(view.len())).filter(is_left);
        let units = tasks.flat_map(|task| view.units(task));
        units.filter(|unit| !self.ended.contains(unit)).collect()
    }

    /// Of a run whose deadline has passed, the deadline.
    fn late(&self) -> Option<Duration> {
        match self.cut {
            Some((Cut::Deadline(after), _)) => Some(after),
            _ => None,
        }
    }
}

pub(super) struct Resident<H: Hal> {
    tools: Tools<H>,
    harts: Tenant,
    active: Vec<Active<H>>,
}

/// What every step needs.
struct Tools<H: Hal> {
    access: Access<H>,
    desk: Weak<dyn Desk>,
    kernel: Kernel,
    crew: Crew,
    patience: Patience,
    /// For launches.
    main: Stream<H>,
    /// For copies of graphs, which are not behind the launch of another.
    copies: Stream<H>,
    /// For looks while the main stream is busy with a launch.
    side: Stream<H>,
    news: Arc<AtomicBool>,
}

impl<H: Hal> Tools<H> {
    /// Has the scheduler look when an operation ends.
    fn hear(&self, event: &Event) {
        let (news, desk) = (Arc::clone(&self.news), Weak::clone(&self.desk));
        event.on_done(move |_| {
            // Release: pairs with the swap in `poll`.
            news.store(true, Ordering::Release);
            if let Some(desk) = desk.upgrade() {
                desk.notify();
            }
        });
    }
}

impl<H: Hal> Resident<H> {
    pub(super) fn new(
        access: &Access<H>,
        desk: &Weak<dyn Desk>,
        (kernel, crew): (Kernel, Crew),
        harts: Tenant,
        patience: Patience,
    ) -> Self {
        let tools = Tools {
            access: access.clone(),
            desk: Weak::clone(desk),
            kernel,
            crew,
            patience,
            main: access.stream(),
            side: access.stream(),
            copies: access.stream(),
            news: Arc::new(AtomicBool::new(false)),
        };
        Self { tools, harts, active: Vec::new() }
    }
}

impl<H: Hal> Active<H> {
    /// Starts the copies to the device.
    fn start(&mut self, tools: &Tools<H>, done: &mut Done) {
        let run = Arc::clone(&self.run);
        let view = run.graph.view();
        let mut ins = Vec::new();
        for task in 0..count(view.len()) {
            let Work::CopyIn { from, to } = view.work(task) else { continue };
            if self.run.state(task).is_final() {
                continue;
            }
            match from.with(|bytes| tools.copies.copy_to_device(bytes, to)) {
                Ok(event) => {
                    tools.hear(&event);
                    done.started.push(self.task(task));
                    ins.push((task, event));
                }
                Err(error) => self.fail(done, task, error),
            }
        }
        self.phase = Phase::Ins(ins);
    }

    /// Brings the run forward. Returns `true` if the next phase is to be looked at, once what has
    /// ended has told its dependents.
    fn step(&mut self, tools: &Tools<H>, harts: &mut Tenant, done: &mut Done) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::New => {
                self.start(tools, done);
                true
            }
            Phase::Ins(ins) => {
                if !ins.iter().all(|(_, event)| event.outcome().is_some()) {
                    self.phase = Phase::Ins(ins);
                    return false;
                }
                for (task, event) in ins {
                    match event.outcome() {
                        Some(Ok(_)) => self.end(done, task, Ended::Complete),
                        Some(Err(error)) => self.fail(done, task, error),
                        None => {}
                    }
                }
                self.phase = Phase::Ready;
                true
            }
            Phase::Ready => self.launch_rest(tools, harts, done),
            Phase::Running(mut flight) => {
                let is_over = flight.poll(tools, &self.run, self.cut);
                if is_over {
                    self.phase = Phase::Remains(Box::new(flight.end(tools)));
                    return true;
                }
                self.phase = Phase::Running(flight);
                false
            }
            Phase::Remains(mut remaining) => {
                if !remaining.poll() {
                    self.phase = Phase::Remains(remaining);
                    return false;
                }
                harts.gone();
                remaining.harvest(tools, self, done);
                // With what a lost hart has not run, if there is any; if not, with the copies
                // behind it.
                self.phase = Phase::Ready;
                true
            }
            Phase::Outs(outs) => {
                let mut left = Vec::new();
                for (task, transfer, data) in outs {
                    if transfer.event().outcome().is_none() {
                        left.push((task, transfer, data));
                        continue;
                    }
                    match tools.access.take_into(transfer, &data) {
                        Ok(()) => self.end(done, task, Ended::Complete),
                        Err(error) => self.fail(done, task, error),
                    }
                }
                if !left.is_empty() {
                    self.phase = Phase::Outs(left);
                }
                false
            }
            Phase::Over => false,
        }
    }

    /// Says, once, that nothing more is known of a late run. What the device has of it goes on.
    fn report_late(&mut self, now: Duration, done: &mut Done) -> bool {
        if self.is_reported || self.late().is_none() || self.cut.is_none_or(|(_, at)| now < at) {
            return false;
        }
        let run = Arc::clone(&self.run);
        let view = run.graph.view();
        for task in (0..count(view.len())).filter(|&task| !run.state(task).is_final()) {
            for unit in view.units(task) {
                self.give_up(done, unit);
            }
        }
        self.is_reported = true;
        true
    }

    fn give_up(&mut self, done: &mut Done, unit: u32) {
        let after = self.late().unwrap_or_default();
        self.end(done, unit, Ended::failed(TaskFailure::Deadline { after, worker: None }));
    }

    /// Launches the kernels that are not final.
    fn launch_rest(&mut self, tools: &Tools<H>, harts: &mut Tenant, done: &mut Done) -> bool {
        let tasks = self.left();
        let is_cut = self.cut.is_some();
        if tasks.is_empty() || is_cut {
            let has_all_ended = tasks.is_empty();
            for task in tasks {
                self.end(done, task, Ended::NotRun);
            }
            if has_all_ended {
                self.start_outs(tools, is_cut, done);
            } else {
                self.phase = Phase::Ready;
            }
            return true;
        }
        if harts.state() != super::harts::State::Away || !harts.claim() {
            // Another graph of this place has them, or another place.
            self.phase = Phase::Ready;
            return false;
        }
        match Flight::start(tools, &self.run, &tasks) {
            Ok(flight) => {
                harts.came();
                self.phase = Phase::Running(Box::new(flight));
                false
            }
            Err(error) => {
                harts.gone();
                for task in tasks {
                    self.fail(done, task, error.clone());
                }
                self.phase = Phase::Ready;
                true
            }
        }
    }

    fn start_outs(&mut self, tools: &Tools<H>, skip: bool, done: &mut Done) {
        let run = Arc::clone(&self.run);
        let view = run.graph.view();
        let mut outs = Vec::new();
        for task in 0..count(view.len()) {
            let Work::CopyOut { from, to } = view.work(task) else { continue };
            if self.run.state(task).is_final() {
                continue;
            }
            if skip {
                self.end(done, task, Ended::NotRun);
                continue;
            }
            match tools.access.fetch(&tools.copies, from.clone()) {
                Ok(transfer) => {
                    tools.hear(transfer.event());
                    done.started.push(self.task(task));
                    outs.push((task, transfer, to.clone()));
                }
                Err(error) => self.fail(done, task, error),
            }
        }
        self.phase = Phase::Outs(outs);
    }
}

impl<H: Hal> Place for Resident<H> {
    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        if self.active.len() >= ROOM {
            return Offer::Full;
        }
        let (run, slot) = (Arc::clone(unit.run), unit.task.slot);
        let (ended, failed) = (HashSet::new(), HashSet::new());
        let phase = Phase::New;
        let it = Active { run, slot, phase, cut: None, is_reported: false, ended, failed };
        self.active.push(it);
        // It starts in the next turn, when its tasks are this place's.
        self.tools.news.store(true, Ordering::Release);
        Offer::Whole
    }

    fn poll(&mut self, done: &mut Done) -> bool {
        self.harts.refresh();
        if self.active.is_empty() {
            return false;
        }
        self.tools.access.poll();
        self.tools.news.store(false, Ordering::Release);
        let before = (done.ended.len(), done.started.len(), self.active.len());
        let mut again = false;
        let Self { tools, harts, active } = self;
        active.retain_mut(|it| {
            // What has ended tells its dependents before the next phase.
            let now = tools.access.now();
            again |= it.step(tools, harts, done) || it.report_late(now, done);
            !matches!(it.phase, Phase::Over)
        });
        if again {
            self.tools.news.store(true, Ordering::Release);
        }
        again || (done.ended.len(), done.started.len(), self.active.len()) != before
    }

    fn abort(&mut self, run: RunId, why: Cut) {
        let until = self.tools.access.now().saturating_add(self.tools.patience.grace);
        for it in self.active.iter_mut().filter(|it| it.run.number == run) {
            it.cut = Some((why, until));
        }
    }

    fn next_look(&self) -> Option<Duration> {
        if self.active.is_empty() {
            None
        } else if self.tools.news.load(Ordering::Acquire) {
            Some(Duration::ZERO)
        } else if self.tools.access.must_poll() {
            Some(ASK)
        } else if self.active.iter().any(|it| it.cut.is_some()) {
            Some(CLOSE_LOOK)
        } else {
            Some(LOOK)
        }
    }

    fn describe(&self, parts: &mut Vec<String>) {
        for it in &self.active {
            match &it.phase {
                Phase::Ins(_) => parts.push("the device gets its data".into()),
                Phase::Ready => parts.push("a graph waits for the harts".into()),
                Phase::Running(flight) => {
                    parts.push(format!("harts have {} tasks", flight.progress().outstanding()));
                }
                Phase::Remains(_) => parts.push("the device tells what it has done".into()),
                Phase::Outs(_) => parts.push("the device gives its data".into()),
                Phase::New | Phase::Over => {}
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }
}
