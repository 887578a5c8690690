//! Kernels on single harts, scheduled by the host through mapped device memory.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_devapi::dir::{OpsRegion, Region};
use et_devapi::handshake::{Assignment, CELL_BYTES, HandshakeError, MappedCell, Scheduler};
use et_hal::{AccessPath, Bar, BarOffset, Hal, Mmio};

use super::TaskFailure;
use super::device::Crew;
use super::driver::Pool;
use super::port::{Done, Ended, Offer, Port, Unit};
use super::run::RunShared;
use crate::event::Event;
use crate::graph::Work;
use crate::kernel::{Kernel, Launch, decode};
use crate::link::Link as Shared;
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::{Error, Result};

/// Bytes of arguments a task can have.
pub(super) const MAX_ARGS: usize = 1024;
/// Task word by which the coordinator wakes the worker with the rank in the argument word.
const WAKE: u64 = 1;
/// How long the harts are kept when there is nothing to do.
const REST: Duration = Duration::from_millis(5);
/// How long without a completion until the exception buffer is looked at.
const STALL: Duration = Duration::from_millis(25);
/// Time for all harts to come, or to leave.
const LIMIT: Duration = Duration::from_secs(10);

/// A task on its way.
type Held = (Arc<RunShared>, u32);

struct Core {
    half: Scheduler,
    /// By the parity of the sequence number.
    tasks: [Option<Held>; 2],
    hart: u64,
    is_lost: bool,
}

/// The harts while they work.
struct Live {
    buffer: DeviceBuffer,
    /// Before it is done, cells may show what was in the memory before.
    zeroed: Event,
    event: Event,
    relay: Scheduler,
    has_relay: bool,
    /// By rank - 1.
    cores: Vec<Core>,
    /// Not yet come.
    coming: Vec<u32>,
    idle: Vec<u32>,
    busy: Vec<u32>,
    wakes: VecDeque<u32>,
    since: Duration,
}

pub(super) struct CoresPort<H: Hal> {
    shared: Arc<Shared<H>>,
    pool: Weak<Pool>,
    kernel: Kernel,
    crew: Crew,
    /// The window and where device address 0 would be in it.
    window: Option<(H::Mmio, u64)>,
    main: Stream<H>,
    side: Stream<H>,
    live: Option<Live>,
    /// Tasks of lost harts that had not started.
    again: VecDeque<Held>,
    failed: Vec<Done>,
}

fn region<H: Hal>(shared: &Shared<H>) -> Option<Region> {
    shared.layout.ops.region(OpsRegion::HostManaged).copied()
}

/// Opens the window on device memory.
fn window<H: Hal>(shared: &Shared<H>) -> Option<(H::Mmio, u64)> {
    let region = region(shared)?;
    let window = shared.hal.window(Bar::new(region.bar)?).ok()?;
    let origin = region.bar_offset.wrapping_sub(region.device_addr.as_u64());
    let path = window.path(BarOffset::new(region.bar_offset), region.len_bytes);
    (path == AccessPath::Direct).then_some((window, origin))
}

impl<H: Hal> CoresPort<H> {
    /// Tells whether the host can reach device memory without messages.
    pub(super) fn is_possible(shared: &Shared<H>) -> bool {
        window(shared).is_some()
    }

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
            window: window(shared),
            main: Stream::new(shared),
            side: Stream::new(shared),
            live: None,
            again: VecDeque::new(),
            failed: Vec::new(),
        }
    }

    /// Starts the harts.
    fn start(&mut self) -> Result<()> {
        let harts = u64::from(self.crew.harts);
        let cells = harts * CELL_BYTES;
        let len = cells + harts * 2 * MAX_ARGS as u64;
        let buffer = self.shared.memory.alloc(len, 128)?;
        let zeros = vec![0_u8; cells as usize];
        let zeroed = self.main.copy_to_device(&zeros, buffer.slice(..cells)?)?;
        let launch = Launch::new(&self.kernel)
            .u64(0)
            .buffer(&buffer)
            .u64(harts)
            .u64(0)
            .shires(self.crew.shires);
        let event = self.main.launch(&launch)?;
        let pool = Weak::clone(&self.pool);
        event.on_done(move |_| {
            if let Some(pool) = pool.upgrade() {
                pool.notify();
            }
        });
        let core = || Core { half: Scheduler::new(), tasks: [None, None], hart: 0, is_lost: false };
        let workers = self.crew.harts - 1;
        self.live = Some(Live {
            buffer,
            zeroed,
            event,
            relay: Scheduler::new(),
            has_relay: false,
            cores: (0..workers).map(|_| core()).collect(),
            // The last to be looked at is the first to be used.
            coming: (0..workers).rev().collect(),
            idle: Vec::new(),
            busy: Vec::new(),
            wakes: VecDeque::new(),
            since: self.shared.config.clock.now(),
        });
        Ok(())
    }

    /// Takes the harts that have come. Most come at once, so that only the first ones cost looks that find nothing.
    fn welcome(&mut self) -> Result<bool, HandshakeError<H::Error>> {
        let (Some(live), Some(window)) = (&mut self.live, &self.window) else { return Ok(false) };
        if live.has_relay && live.coming.is_empty() {
            return Ok(false);
        }
        if !live.zeroed.is_done() {
            return Ok(false);
        }
        if !live.has_relay {
            live.has_relay = live.relay.open(&cell(window, &live.buffer, 0))?.is_some();
            if !live.has_relay {
                return Ok(false);
            }
        }
        let mut progress = false;
        let mut at = live.coming.len();
        while at > 0 {
            at -= 1;
            let core = live.coming[at];
            let it = &mut live.cores[core as usize];
            let Some(hart) = it.half.open(&cell(window, &live.buffer, core + 1))? else { continue };
            it.hart = hart;
            live.coming.swap_remove(at);
            live.idle.push(core);
            progress = true;
        }
        live.idle.sort_unstable_by(|a, b| b.cmp(a));
        Ok(progress)
    }

    /// Takes completed tasks, and has parked workers woken.
    fn collect(&mut self, done: &mut Vec<Done>) -> Result<bool, HandshakeError<H::Error>> {
        let (Some(live), Some(window)) = (&mut self.live, &self.window) else { return Ok(false) };
        let mut progress = false;
        let mut at = 0;
        while let Some(&core) = live.busy.get(at) {
            let it = &mut live.cores[core as usize];
            let cell = cell(window, &live.buffer, core + 1);
            while let Some(finished) = it.half.poll(&cell)? {
                progress = true;
                if let Some((run, task)) = it.tasks[(finished.sequence & 1) as usize].take() {
                    let value = finished.outcome.cast_signed();
                    let ended = if value < 0 {
                        Ended::Failed(TaskFailure::Returned { value, hart: it.hart })
                    } else {
                        Ended::Complete
                    };
                    done.push(Done { run: run.number, task, ended, span: None });
                }
            }
            if it.half.outstanding() == 0 {
                live.busy.swap_remove(at);
                if !it.is_lost {
                    live.idle.push(core);
                }
            } else {
                at += 1;
            }
        }
        if progress {
            live.since = self.shared.config.clock.now();
        }
        send_wakes::<H>(live, window)?;
        Ok(progress)
    }

    /// Lets the harts go, so that others can use them.
    pub(super) fn rest(&mut self) {
        let Some(mut live) = self.live.take() else { return };
        if let Err(error) = self.dismiss(&mut live) {
            tracing::debug!(error, "harts do not leave by themselves");
            if let Err(error) = crate::device::request_abort(&self.shared, &live.event) {
                tracing::debug!(%error, "abort of the harts that run tasks");
            }
        }
        if live.event.wait(LIMIT).is_err() && !live.event.is_done() {
            tracing::warn!("harts that run tasks cannot be stopped");
        }
    }

    fn dismiss(&self, live: &mut Live) -> Result<(), String> {
        let Some(window) = &self.window else { return Ok(()) };
        let deadline = self.shared.deadline(LIMIT);
        let clock = &*self.shared.config.clock;
        let text = |error: HandshakeError<H::Error>| format!("{error:?}");
        live.zeroed.wait(LIMIT).map_err(|error| error.to_string())?;
        for core in 0..live.cores.len() as u32 {
            let at = cell(window, &live.buffer, core + 1);
            let it = &mut live.cores[core as usize];
            it.half.quit(&at).map_err(text)?;
            if !it.is_lost && it.half.must_wake(&at).map_err(text)? {
                live.wakes.push_back(core + 1);
            }
        }
        // Workers that come only now see that they shall leave.
        while !live.has_relay {
            live.has_relay =
                live.relay.open(&cell(window, &live.buffer, 0)).map_err(text)?.is_some();
            if live.event.is_done() || deadline.has_passed(clock) {
                return Err("the coordinator has not come".into());
            }
            std::hint::spin_loop();
        }
        while !live.wakes.is_empty() || live.relay.outstanding() != 0 {
            send_wakes::<H>(live, window).map_err(text)?;
            if live.event.is_done() || deadline.has_passed(clock) {
                return Err("the coordinator does not answer".into());
            }
            std::hint::spin_loop();
        }
        live.relay.quit(&cell(window, &live.buffer, 0)).map_err(text)
    }

    /// Fails everything, because the harts are gone.
    fn fail_all(&mut self, error: &Error) {
        let Some(live) = self.live.take() else { return };
        for core in live.cores {
            for (run, task) in core.tasks.into_iter().flatten() {
                let ended = Ended::Failed(TaskFailure::Device(error.clone()));
                self.failed.push(Done { run: run.number, task, ended, span: None });
            }
        }
        for (run, task) in self.again.drain(..) {
            let ended = Ended::Failed(TaskFailure::Device(error.clone()));
            self.failed.push(Done { run: run.number, task, ended, span: None });
        }
    }

    /// Looks for harts that have trapped: their running task has failed, the one behind it goes to another hart.
    fn look_for_traps(&mut self) -> Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let Some(exceptions) = live.event.operation().exceptions.get() else { return Ok(()) };
        let mut bytes = vec![0_u8; exceptions.len_bytes() as usize];
        self.side.read(exceptions, &mut bytes, LIMIT)?;
        for context in decode(&bytes) {
            let is_it = |core: &Core| core.hart == u64::from(context.hart_id) && !core.is_lost;
            let Some(core) = live.cores.iter().position(is_it) else { continue };
            let it = &mut live.cores[core];
            if it.half.outstanding() == 0 {
                continue;
            }
            it.is_lost = true;
            live.busy.retain(|other| *other as usize != core);
            let first = it.half.next_to_complete();
            let running = it.tasks[(first & 1) as usize].take();
            if let Some((run, task)) = running {
                let ended = Ended::Failed(run.trapped(task, core as u32, &context));
                self.failed.push(Done { run: run.number, task, ended, span: None });
            }
            self.again.extend(it.tasks.iter_mut().filter_map(Option::take));
        }
        if live.cores.iter().all(|core| core.is_lost) {
            let why = "all harts that run tasks have trapped".into();
            self.fail_all(&Error::Lost { why });
        }
        Ok(())
    }

    /// Hands a task to a hart; `false` if there is no room now.
    fn hand_out(&mut self, run: &Arc<RunShared>, task: u32) -> Result<Offer, TaskFailure> {
        let view = run.graph.view();
        let Work::Kernel(kernel) = view.work(task) else {
            unreachable!("only kernels are handed to harts")
        };
        let entry = kernel.task_entry().map_or(0, |entry| entry.as_u64());
        let (Some(live), Some(window)) = (&mut self.live, &self.window) else {
            return Ok(Offer::Full);
        };
        let cores = view.core_set(task);
        let allowed = |core: u32| cores.is_none_or(|cores| cores.contains(core));
        let idle = live.idle.iter().rposition(|&core| allowed(core));
        let core = match idle {
            Some(at) => {
                let core = live.idle.remove(at);
                live.busy.push(core);
                core
            }
            // Who knows how long the one before it takes; but there is nobody else.
            None => {
                let has_room =
                    |core: &&u32| allowed(**core) && live.cores[**core as usize].half.has_room();
                match live.busy.iter().find(has_room) {
                    Some(core) if live.coming.is_empty() => *core,
                    _ => return Ok(Offer::Full),
                }
            }
        };
        let it = &mut live.cores[core as usize];
        let is_staged = it.half.outstanding() != 0;
        let parity = it.half.next_to_dispatch() & 1;
        let slot = u64::from(self.crew.harts) * CELL_BYTES
            + (u64::from(core + 1) * 2 + u64::from(parity)) * MAX_ARGS as u64;
        let arg = live.buffer.addr().as_u64() + slot;
        let bytes: Vec<u8> = view.args(task).iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = cell(window, &live.buffer, core + 1);
        let lost = |error: HandshakeError<H::Error>| {
            let why = format!("{error:?}");
            TaskFailure::WorkerLost { worker: core, why }
        };
        window
            .0
            .write_bytes(BarOffset::new(arg.wrapping_add(window.1)), &bytes)
            .map_err(|error| lost(HandshakeError::Access(error)))?;
        it.half.dispatch(&at, Assignment { task: entry, arg }).map_err(lost)?;
        it.tasks[parity as usize] = Some((Arc::clone(run), task));
        if it.half.must_wake(&at).map_err(lost)? {
            live.wakes.push_back(core + 1);
            send_wakes::<H>(live, window).map_err(lost)?;
        }
        live.since = self.shared.config.clock.now();
        Ok(Offer::Taken { worker: core, is_staged })
    }
}

/// The cell of a rank.
fn cell<'a, M: Mmio>(
    (window, origin): &'a (M, u64),
    buffer: &DeviceBuffer,
    rank: u32,
) -> MappedCell<'a, M> {
    let at = buffer.addr().as_u64() + u64::from(rank) * CELL_BYTES;
    MappedCell::new(window, BarOffset::new(at.wrapping_add(*origin)))
}

/// Has workers woken by the coordinator, as far as it has room.
fn send_wakes<H: Hal>(
    live: &mut Live,
    window: &(H::Mmio, u64),
) -> Result<(), HandshakeError<H::Error>> {
    if live.wakes.is_empty() && live.relay.outstanding() == 0 {
        return Ok(());
    }
    let at = cell(window, &live.buffer, 0);
    while live.relay.poll(&at)?.is_some() {}
    while live.relay.has_room()
        && let Some(rank) = live.wakes.pop_front()
    {
        live.relay.dispatch(&at, Assignment { task: WAKE, arg: rank.into() })?;
    }
    Ok(())
}

impl<H: Hal> Port for CoresPort<H> {
    fn name(&self, _: &crate::graph::Graph) -> &'static str {
        "cores"
    }

    fn take(&mut self, _: &Arc<RunShared>) -> Result<bool, TaskFailure> {
        Ok(false)
    }

    fn offer(&mut self, unit: &Unit<'_>) -> Result<Offer, TaskFailure> {
        if self.live.is_none() {
            self.start().map_err(TaskFailure::Device)?;
        }
        if let Some(cores) = unit.run.graph.view().core_set(unit.task)
            && cores.iter().all(|core| core >= self.crew.harts - 1)
        {
            let worker = cores.iter().next().unwrap_or(0);
            let why = format!("there are {} workers", self.crew.harts - 1);
            return Err(TaskFailure::WorkerLost { worker, why });
        }
        self.hand_out(unit.run, unit.task)
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> bool {
        let Some(live) = &self.live else {
            let progress = !self.failed.is_empty();
            done.append(&mut self.failed);
            return progress;
        };
        if let Some(outcome) = live.event.outcome() {
            let error = outcome.err().unwrap_or(Error::Lost { why: "the harts have left".into() });
            self.fail_all(&error);
            done.append(&mut self.failed);
            return true;
        }
        let turned = self.welcome().and_then(|came| Ok(came | self.collect(done)?));
        let mut progress = match turned {
            Ok(progress) => progress,
            Err(error) => {
                self.fail_all(&Error::Lost {
                    why: format!("a cell is unusable: {error:?}").into(),
                });
                true
            }
        };
        while let Some((run, task)) = self.again.pop_front() {
            match self.hand_out(&run, task) {
                Ok(Offer::Taken { .. }) => progress = true,
                Ok(Offer::Full) => {
                    self.again.push_front((run, task));
                    break;
                }
                Err(failure) => {
                    let ended = Ended::Failed(failure);
                    self.failed.push(Done { run: run.number, task, ended, span: None });
                }
            }
        }
        if !progress && let Some(live) = &self.live {
            let quiet = self.shared.config.clock.now().saturating_sub(live.since);
            if live.busy.is_empty() && self.again.is_empty() {
                if quiet >= REST {
                    self.rest();
                }
            } else if quiet >= STALL {
                if let Some(live) = &mut self.live {
                    live.since = self.shared.config.clock.now();
                }
                if let Err(error) = self.look_for_traps() {
                    tracing::debug!(%error, "cannot look for lost workers");
                }
            }
        }
        progress |= !self.failed.is_empty();
        done.append(&mut self.failed);
        progress
    }

    fn is_busy(&self) -> bool {
        self.live.is_some() || !self.failed.is_empty()
    }

    fn nap(&self) -> Option<Duration> {
        let live = self.live.as_ref()?;
        let is_idle = live.busy.is_empty() && live.coming.is_empty();
        Some(if is_idle { REST / 2 } else { Duration::from_micros(50) })
    }

    fn give_up(&mut self, run: u64, late: Option<Duration>, _: &mut Vec<Done>) {
        let Some(after) = late else { return };
        let Some(live) = &self.live else { return };
        let mut is_ours = false;
        for (worker, core) in live.cores.iter().enumerate() {
            for (held, task) in core.tasks.iter().flatten() {
                if held.number == run {
                    is_ours = true;
                    let ended =
                        Ended::Failed(TaskFailure::Deadline { after, worker: worker as u32 });
                    self.failed.push(Done { run, task: *task, ended, span: None });
                }
            }
        }
        if !is_ours {
            return;
        }
        // A hart cannot be stopped alone. What other runs have on the harts fails with the abort.
        if let Err(error) = crate::device::request_abort(&self.shared, &live.event) {
            tracing::debug!(%error, "abort of the harts that run tasks");
        }
        let outcome = live.event.wait(LIMIT);
        let error = outcome.err().unwrap_or(Error::Lost { why: "the harts have left".into() });
        if let Some(live) = &mut self.live {
            for core in &mut live.cores {
                for held in &mut core.tasks {
                    if held.as_ref().is_some_and(|(held, _)| held.number == run) {
                        *held = None;
                    }
                }
            }
        }
        self.fail_all(&error);
    }

    fn describe(&self) -> String {
        let Some(live) = &self.live else { return String::new() };
        let mut parts = Vec::new();
        for (worker, core) in live.cores.iter().enumerate() {
            for (run, task) in core.tasks.iter().flatten() {
                let task = crate::graph::TaskId::from_index(*task);
                let name = run.graph.name(task).map_or_else(|| task.to_string(), str::to_owned);
                parts.push(format!("worker {worker} (hart {}) has {name}", core.hart));
            }
        }
        parts.truncate(4);
        parts.join(", ")
    }

    fn close(&mut self) {
        self.rest();
    }
}
