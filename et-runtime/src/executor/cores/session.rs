//! One stay of the harts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use et_devapi::handshake::{Assignment, CELL_BYTES, HandshakeError, MappedCell, Scheduler};
use et_hal::{Hal, Mmio};

use super::{Crew, MAX_ARGS, Patience, failed};
use crate::event::{Event, Transfer};
use crate::executor::TaskFailure;
use crate::executor::access::{Access, Stop, Window};
use crate::executor::guard::{self, CONSTANT, GUARD_WORDS, entry_of};
use crate::executor::harts::State;
use crate::executor::ids::{Rank, RunId, TaskRef, WorkerId, count, size};
use crate::executor::place::{Done, Ended, Ending, Offer, Room};
use crate::executor::run::RunShared;
use crate::graph::{CoreSet, Work};
use crate::kernel::{HartContext, Kernel, Launch, decode_near};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::{Error, Result};

/// Task word by which the coordinator wakes the worker with the rank in the argument word.
const WAKE: u64 = 1;

/// Bytes for the arguments of a task and its guard.
const ARGS_BYTES: u64 = MAX_ARGS as u64 + 8 * GUARD_WORDS;

/// Whether a turn has changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Some,
    None,
}

/// A task on its way. Keeps its run, and so the memory it uses.
type Held = (Arc<RunShared>, TaskRef);

struct Core {
    half: Scheduler,
    /// By the parity of the sequence number.
    tasks: [Option<Held>; 2],
    hart: u64,
    /// It gets no tasks any more, and its completions are not looked at.
    is_lost: bool,
}

impl Core {
    fn new() -> Self {
        Self { half: Scheduler::new(), tasks: [None, None], hart: 0, is_lost: false }
    }

    fn holds(&self) -> impl Iterator<Item = TaskRef> + '_ {
        self.tasks.iter().flatten().map(|(_, task)| *task)
    }
}

/// A task of a late run: reported when the harts are gone, or after a while.
struct Late {
    held: Held,
    worker: WorkerId,
    after: Duration,
    /// When it is reported at the latest.
    report_at: Duration,
    is_reported: bool,
}

pub(super) struct Session<H: Hal> {
    buffer: DeviceBuffer,
    crew: Crew,
    patience: Patience,
    /// The function of the guard.
    guard: u64,
    /// Before it is done, cells may show what was in the memory before.
    zeroed: Event,
    launch: Event,
    relay: Scheduler,
    has_relay: bool,
    cores: Vec<Core>,
    /// Not yet come.
    coming: Vec<WorkerId>,
    idle: Vec<WorkerId>,
    busy: Vec<WorkerId>,
    /// Parked workers that the coordinator is to wake.
    wakes: VecDeque<Rank>,
    /// Tasks of lost harts that had not started.
    again: VecDeque<Held>,
    late: Vec<Late>,
    /// Since when nothing has happened.
    since: Duration,
    /// The exception buffer, on its way.
    exceptions: Option<Transfer<H>>,
    state: State,
    /// Dismissal: workers have been told, and the coordinator.
    has_told: (bool, bool),
    leave_until: Duration,
    stop: Option<Stop>,
}

impl<H: Hal> Session<H> {
    /// Launches the workers.
    pub(super) fn start(
        access: &Access<H>,
        main: &Stream<H>,
        (kernel, crew): (&Kernel, Crew),
        patience: Patience,
    ) -> Result<Self> {
        let harts = u64::from(crew.harts);
        let cells = harts * CELL_BYTES;
        let len = cells + harts * 2 * ARGS_BYTES;
        let buffer = access.memory().alloc(len, 128)?;
        let zeros = vec![0_u8; size(cells)];
        let zeroed = main.copy_to_device(&zeros, buffer.slice(..cells)?)?;
        let launch =
            Launch::new(kernel).u64(0).buffer(&buffer).u64(harts).u64(0).shires(crew.shires);
        let launch = main.launch(&launch)?;
        Ok(Self {
            buffer,
            crew,
            patience,
            guard: entry_of(kernel),
            zeroed,
            launch,
            relay: Scheduler::new(),
            has_relay: false,
            cores: (0..crew.workers()).map(|_| Core::new()).collect(),
            // The last to be looked at is the first to be used.
            coming: (0..crew.workers()).rev().map(WorkerId).collect(),
            idle: Vec::new(),
            busy: Vec::new(),
            wakes: VecDeque::new(),
            again: VecDeque::new(),
            late: Vec::new(),
            since: access.now(),
            exceptions: None,
            state: State::Coming,
            has_told: (false, false),
            leave_until: Duration::ZERO,
            stop: None,
        })
    }

    pub(super) fn launch(&self) -> &Event {
        &self.launch
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    fn has_tasks(&self) -> bool {
        !self.busy.is_empty() || !self.again.is_empty()
    }

    /// Returns `true` if all harts are there and none has a task.
    pub(super) fn is_resting(&self) -> bool {
        self.state == State::Working && !self.has_tasks() && self.coming.is_empty()
    }

    /// Takes a task if there is a hart for it.
    pub(super) fn offer(
        &mut self,
        access: &Access<H>,
        window: &Window<H>,
        run: &Arc<RunShared>,
        task: TaskRef,
    ) -> Offer {
        // Once harts are lost for good the rest of them leaves as soon as it can.
        if self.state == State::Leaving || !self.late.is_empty() {
            return Offer::Full;
        }
        self.hand_out(access, window, run, task)
    }

    /// Says whether so many workers are idle, of these.
    pub(super) fn room_for(&self, parts: usize, cores: Option<&CoreSet>) -> Room {
        let allowed = |worker: WorkerId| cores.is_none_or(|cores| cores.contains(worker.0));
        let all = (0..count(self.cores.len())).map(WorkerId).filter(|worker| allowed(*worker));
        if all.filter(|worker| !self.cores[worker.at()].is_lost).count() < parts {
            let worker = cores.and_then(|cores| cores.iter().next()).unwrap_or(0);
            let why = "fewer harts are left than parts that are to start together".into();
            return Room::Never(Box::new(TaskFailure::WorkerLost { worker, why }));
        }
        let is_idle = self.idle.iter().filter(|worker| allowed(**worker)).count() >= parts;
        // As in `offer`.
        let is_open = self.state != State::Leaving && self.late.is_empty();
        if is_open && is_idle { Room::Now } else { Room::Later }
    }

    fn hand_out(
        &mut self,
        access: &Access<H>,
        window: &Window<H>,
        run: &Arc<RunShared>,
        task: TaskRef,
    ) -> Offer {
        let view = run.graph.view();
        let of = view.unit(task.unit);
        let Work::Kernel(kernel) = view.work(of.task) else {
            unreachable!("only kernels are handed to harts")
        };
        let mut entry = entry_of(kernel);
        let cores = view.core_set(of.task);
        let Some(worker) = self.choose(cores) else {
            let is_gone = |worker: u32| self.cores.get(worker as usize).is_none_or(|c| c.is_lost);
            let why = "no hart that may run it is left";
            return match cores {
                Some(cores) if cores.iter().all(is_gone) => {
                    let worker = cores.iter().next().unwrap_or(0);
                    Offer::Failed(Box::new(TaskFailure::WorkerLost { worker, why: why.into() }))
                }
                _ => Offer::Full,
            };
        };
        let it = &mut self.cores[worker.at()];
        let is_staged = it.half.outstanding() != 0;
        let parity = it.half.next_to_dispatch() & 1;
        let slot = u64::from(self.crew.harts) * CELL_BYTES
            + (u64::from(worker.rank().0) * 2 + u64::from(parity)) * ARGS_BYTES;
        let arg = self.buffer.addr().as_u64() + slot;
        let mut words = Vec::new();
        if of.is_part() {
            words.extend(guard::words(entry, (None, arg + CONSTANT), of));
            entry = self.guard;
        }
        words.extend(view.args(of.task));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = cell(window, &self.buffer, worker.rank());
        let mut dispatch = || -> Result<bool, HandshakeError<H::Error>> {
            window.mmio.write_bytes(window.at(arg), &bytes).map_err(HandshakeError::Access)?;
            it.half.dispatch(&at, Assignment { task: entry, arg })?;
            it.half.must_wake(&at)
        };
        let is_asleep = match dispatch() {
            Ok(is_asleep) => is_asleep,
            Err(error) => {
                let why = format!("{error:?}");
                return Offer::Failed(Box::new(TaskFailure::WorkerLost { worker: worker.0, why }));
            }
        };
        it.tasks[parity as usize] = Some((Arc::clone(run), task));
        if is_asleep {
            self.wakes.push_back(worker.rank());
            // If the coordinator's cell is unusable, the next turn finds that out.
            let _ = self.send_wakes(window);
        }
        self.since = access.now();
        Offer::Taken { worker, is_staged }
    }

    fn choose(&mut self, cores: Option<&CoreSet>) -> Option<WorkerId> {
        let allowed = |worker: WorkerId| cores.is_none_or(|cores| cores.contains(worker.0));
        if let Some(at) = self.idle.iter().rposition(|&worker| allowed(worker)) {
            let worker = self.idle.remove(at);
            self.busy.push(worker);
            return Some(worker);
        }
        // Who knows how long the one before it takes; but there is no other one.
        let has_room =
            |worker: &WorkerId| allowed(*worker) && self.cores[worker.at()].half.has_room();
        self.busy.iter().copied().find(has_room).filter(|_| self.coming.is_empty())
    }

    /// Does all there is to do. The harts are told to leave once they have no tasks, if they are
    /// unwanted.
    pub(super) fn poll(
        &mut self,
        access: &Access<H>,
        window: &Window<H>,
        side: &Stream<H>,
        is_unwanted: bool,
        done: &mut Done,
    ) -> Progress {
        if let Some(outcome) = self.launch.outcome() {
            let error = outcome.err().unwrap_or(Error::lost("the harts have left"));
            self.end(&error, done);
            return Progress::Some;
        }
        let before = done.ended.len();
        let turned = self.welcome(window).and_then(|came| {
            let collected = self.collect(access, window, done)?;
            self.send_wakes(window)?;
            Ok(if came == Progress::Some { came } else { collected })
        });
        let mut progress = match turned {
            Ok(progress) => progress,
            Err(error) => {
                let why = format!("a cell is unusable: {error:?}");
                self.fail_tasks(&Error::lost(why), done);
                self.leave(access);
                Progress::Some
            }
        };
        self.hand_out_again(access, window, done);
        self.report_late(access, done);
        if self.state == State::Leaving {
            self.go_on_leaving(access, window, done);
        } else if progress == Progress::None {
            let quiet = access.now().saturating_sub(self.since);
            if self.has_tasks() {
                if quiet >= self.patience.stall {
                    self.look_for_traps(access, side, done);
                }
            } else if is_unwanted
                || quiet >= self.patience.rest
                || !self.late.is_empty()
                || self.cores.iter().all(|core| core.is_lost)
            {
                self.leave(access);
                progress = Progress::Some;
            }
        }
        if done.ended.len() == before { progress } else { Progress::Some }
    }

    /// Takes the harts that have come. Most come at once, so that only the first ones cost looks
    /// that find nothing.
    fn welcome(&mut self, window: &Window<H>) -> Result<Progress, HandshakeError<H::Error>> {
        if self.has_relay && self.coming.is_empty() || !self.zeroed.is_done() {
            return Ok(Progress::None);
        }
        if !self.has_relay {
            let at = cell(window, &self.buffer, Rank::COORDINATOR);
            self.has_relay = self.relay.open(&at)?.is_some();
            if !self.has_relay {
                return Ok(Progress::None);
            }
            if self.state == State::Coming {
                self.state = State::Working;
            }
        }
        let mut progress = Progress::None;
        if self.state == State::Leaving {
            // They have been told, whenever they come.
            return Ok(progress);
        }
        for at in (0..self.coming.len()).rev() {
            let worker = self.coming[at];
            let it = &mut self.cores[worker.at()];
            let Some(hart) = it.half.open(&cell(window, &self.buffer, worker.rank()))? else {
                continue;
            };
            it.hart = hart;
            self.coming.swap_remove(at);
            self.idle.push(worker);
            progress = Progress::Some;
        }
        if progress == Progress::Some {
            self.idle.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(progress)
    }

    /// Takes completed tasks.
    fn collect(
        &mut self,
        access: &Access<H>,
        window: &Window<H>,
        done: &mut Done,
    ) -> Result<Progress, HandshakeError<H::Error>> {
        let mut progress = Progress::None;
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let it = &mut self.cores[worker.at()];
            let cell = cell(window, &self.buffer, worker.rank());
            let mut is_back = false;
            while let Some(finished) = it.half.poll(&cell)? {
                is_back = true;
                let Some((_, task)) = it.tasks[(finished.sequence & 1) as usize].take() else {
                    continue;
                };
                let value = finished.outcome.cast_signed();
                let how = if value < 0 {
                    Ended::failed(TaskFailure::Returned { value, hart: it.hart })
                } else {
                    Ended::Complete
                };
                done.ended.push(Ending::new(task, how));
            }
            if is_back {
                progress = Progress::Some;
                done.started.extend(it.holds().next());
            }
            if it.half.outstanding() == 0 {
                self.busy.swap_remove(at);
                self.idle.push(worker);
            } else if it.holds().next().is_none() {
                // It runs a task of a late run.
                it.is_lost = true;
                self.busy.swap_remove(at);
            } else {
                at += 1;
            }
        }
        if progress == Progress::Some {
            self.since = access.now();
        }
        Ok(progress)
    }

    /// Has workers woken by the coordinator, as far as it has room.
    fn send_wakes(&mut self, window: &Window<H>) -> Result<(), HandshakeError<H::Error>> {
        if self.wakes.is_empty() && self.relay.outstanding() == 0 {
            return Ok(());
        }
        let at = cell(window, &self.buffer, Rank::COORDINATOR);
        while self.relay.poll(&at)?.is_some() {}
        while self.relay.has_room()
            && let Some(rank) = self.wakes.pop_front()
        {
            self.relay.dispatch(&at, Assignment { task: WAKE, arg: rank.0.into() })?;
        }
        Ok(())
    }

    fn hand_out_again(&mut self, access: &Access<H>, window: &Window<H>, done: &mut Done) {
        while let Some((run, task)) = self.again.pop_front() {
            match self.hand_out(access, window, &run, task) {
                Offer::Taken { .. } | Offer::Whole => {}
                Offer::Full => {
                    self.again.push_front((run, task));
                    break;
                }
                Offer::Failed(failure) => {
                    done.ended.push(Ending::new(task, Ended::Failed(failure)));
                }
            }
        }
    }

    /// Gives up the tasks of a run that is late. Their harts are lost; a task behind one of them
    /// goes to another hart.
    pub(super) fn give_up(&mut self, access: &Access<H>, run: RunId, after: Duration) {
        let report_at = access.now().saturating_add(self.patience.grace);
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let core = &mut self.cores[worker.at()];
            if !core.holds().any(|task| task.run == run) {
                at += 1;
                continue;
            }
            let running = (core.half.next_to_complete() & 1) as usize;
            let is_stuck = core.tasks[running].as_ref().is_some_and(|(_, task)| task.run == run);
            for held in &mut core.tasks {
                if let Some(held) = held.take_if(|(_, task)| task.run == run || is_stuck) {
                    if held.1.run == run {
                        let is_reported = false;
                        self.late.push(Late { held, worker, after, report_at, is_reported });
                    } else {
                        self.again.push_back(held);
                    }
                }
            }
            if is_stuck {
                core.is_lost = true;
                self.busy.swap_remove(at);
            } else {
                // The task of another run before it may end; what is behind it will be waited for
                // with the harts.
                at += 1;
            }
        }
        let mut again = std::mem::take(&mut self.again);
        again.retain(|(_, task)| task.run != run);
        self.again = again;
    }

    fn report_late(&mut self, access: &Access<H>, done: &mut Done) {
        if self.late.is_empty() {
            return;
        }
        let now = access.now();
        for late in &mut self.late {
            if now >= late.report_at {
                report(late, done);
            }
        }
    }

    /// Looks for harts that have trapped: their running task has failed, the one behind it goes to
    /// another hart.
    fn look_for_traps(&mut self, access: &Access<H>, side: &Stream<H>, done: &mut Done) {
        let Some(transfer) = self.exceptions.take() else {
            let exceptions = access.exceptions(&self.launch);
            match exceptions.map(|from| access.fetch(side, from)) {
                Some(Ok(transfer)) => self.exceptions = Some(transfer),
                Some(Err(error)) => tracing::debug!(%error, "cannot look for lost workers"),
                None => {}
            }
            return;
        };
        if !transfer.event().is_done() {
            self.exceptions = Some(transfer);
            return;
        }
        self.since = access.now();
        let mut bytes = vec![0_u8; et_devapi::abi::EXCEPTION_BUFFER_BYTES];
        match access.take(transfer, &mut bytes) {
            Ok(()) => {
                for context in decode_near(&bytes, access.memory()) {
                    self.lose(&context, done);
                }
            }
            Err(error) => tracing::debug!(%error, "cannot look for lost workers"),
        }
    }

    fn lose(&mut self, context: &HartContext, done: &mut Done) {
        let is_it = |core: &Core| core.hart == u64::from(context.hart_id) && !core.is_lost;
        let Some(at) = self.cores.iter().position(is_it) else { return };
        let it = &mut self.cores[at];
        if it.half.outstanding() == 0 {
            return;
        }
        let worker = WorkerId(count(at));
        it.is_lost = true;
        self.busy.retain(|other| *other != worker);
        let running = (it.half.next_to_complete() & 1) as usize;
        if let Some((run, task)) = it.tasks[running].take() {
            done.ended.push(failed(task, run.trapped(task.unit, worker, context)));
        }
        self.again.extend(it.tasks.iter_mut().filter_map(Option::take));
        if self.cores.iter().all(|core| core.is_lost) {
            let why = "all harts that run tasks have trapped";
            self.fail_tasks(&Error::lost(why), done);
        }
    }

    fn leave(&mut self, access: &Access<H>) {
        if self.state != State::Leaving {
            self.state = State::Leaving;
            // A lost hart has trapped, and is gone already, or will not leave.
            let will_leave = self.late.is_empty();
            let patience = if will_leave { self.patience.limit } else { Duration::ZERO };
            self.leave_until = access.now().saturating_add(patience);
        }
    }

    /// Tells workers and coordinator to leave; has the launch aborted if they do not.
    fn go_on_leaving(&mut self, access: &Access<H>, window: &Window<H>, done: &mut Done) {
        let limit = self.patience.limit;
        if let Some(stop) = &mut self.stop {
            if stop.poll(access) {
                self.end(&Error::Aborted { op: "graph" }, done);
            }
            return;
        }
        let dismissed = self.dismiss(window);
        if let Err(error) = &dismissed {
            tracing::debug!(?error, "harts cannot be told to leave");
        }
        let has_told_all = !matches!(dismissed, Ok(false));
        let now = access.now();
        // Without the coordinator those who sleep do not hear of it; it may be late, too.
        if has_told_all && now >= self.leave_until || now >= self.leave_until.saturating_add(limit)
        {
            if self.late.is_empty() {
                tracing::warn!(device = %access.device(), "harts that run tasks do not leave");
            }
            self.stop = Some(Stop::new(access, &self.launch, limit));
        }
    }

    /// Tells all that has not been told to leave; returns `true` once all are.
    fn dismiss(&mut self, window: &Window<H>) -> Result<bool, HandshakeError<H::Error>> {
        if !self.zeroed.is_done() {
            return Ok(false);
        }
        if !self.has_told.0 {
            for (at, it) in self.cores.iter_mut().enumerate() {
                let rank = WorkerId(count(at)).rank();
                let cell = cell(window, &self.buffer, rank);
                if it.is_lost {
                    it.half.abort(&cell)?;
                    continue;
                }
                it.half.quit(&cell)?;
                if it.half.must_wake(&cell)? {
                    self.wakes.push_back(rank);
                }
            }
            self.has_told.0 = true;
        }
        if !self.has_relay || self.has_told.1 {
            return Ok(self.has_told.1);
        }
        self.send_wakes(window)?;
        if self.wakes.is_empty() && self.relay.outstanding() == 0 {
            self.relay.quit(&cell(window, &self.buffer, Rank::COORDINATOR))?;
            self.has_told.1 = true;
        }
        Ok(self.has_told.1)
    }

    fn fail_tasks(&mut self, error: &Error, done: &mut Done) {
        let held = self.cores.iter_mut().flat_map(|core| core.tasks.iter_mut());
        for (_, task) in held.filter_map(Option::take).chain(self.again.drain(..)) {
            done.ended.push(failed(task, TaskFailure::Device(error.clone())));
        }
        self.busy.clear();
    }

    /// The harts have gone, or are given up.
    fn end(&mut self, error: &Error, done: &mut Done) {
        for mut late in std::mem::take(&mut self.late) {
            report(&mut late, done);
        }
        self.fail_tasks(error, done);
        self.state = State::Away;
    }

    pub(super) fn describe(&self, parts: &mut Vec<String>) {
        for (worker, core) in self.cores.iter().enumerate() {
            for (run, task) in core.tasks.iter().flatten() {
                let what = run.describe(task.unit);
                parts.push(format!("worker {worker} (hart {}) has {what}", core.hart));
            }
        }
    }
}

/// Says, once, that a task was not complete at its deadline.
fn report(late: &mut Late, done: &mut Done) {
    let Late { held: (_, task), worker, after, is_reported, .. } = late;
    if !std::mem::replace(is_reported, true) {
        let failure = TaskFailure::Deadline { after: *after, worker: Some(worker.0) };
        done.ended.push(failed(*task, failure));
    }
}

/// The cell of a rank.
fn cell<'a, H: Hal>(
    window: &'a Window<H>,
    buffer: &DeviceBuffer,
    rank: Rank,
) -> MappedCell<'a, H::Mmio> {
    let at = buffer.addr().as_u64() + u64::from(rank.0) * CELL_BYTES;
    MappedCell::new(&window.mmio, window.at(at))
}
