//! One launch, and the turns that its harts take on a host thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config::{CreditAbort, MemoryModel};
use crate::decode::code::CodeCache;
use crate::exec;
use crate::exec::event::{self, Event};
use crate::exec::tensor;
use crate::histogram::{Counters, Histogram, Number};
use crate::machine::ahead::Readers;
use crate::machine::chip::{Chip, Core, Wait};
use crate::machine::group::{Group, LONGEST_TURN};
use crate::machine::hart::Hart;
use crate::machine::kernel_call::{self, Outcome};
use crate::machine::launch::{HartExit, HartFailure, Launch, LaunchReport};
use crate::machine::{Done, Inner, Watch};
use crate::memory::bus;
use crate::memory::check::{Buffers, Check};
use crate::memory::guards::Guards;
use crate::memory::map::{
    COMPUTE_HARTS, HART_SLOTS, HARTS_PER_SHIRE, SHIRES, compute_harts, compute_index,
};
use crate::memory::private::Private;
use crate::memory::weak::Found;
use crate::native::Context;

/// Room below the top of a stack that the firmware uses for the saved frame pointer and return
/// address.
const FRAME_BYTES: u64 = 32;

/// A launch in progress.
pub(crate) struct Run {
    number: u64,
    launch: Launch,
    guards: Guards,
    stacks: Guards,
    /// What its accesses are checked against.
    buffers: Option<Arc<Buffers>>,
    code: Arc<CodeCache>,
    harts: Box<[u32]>,
    /// State of each hart by its number, unless caches are private; made by the worker that runs
    /// it first.
    states: Box<[Mutex<Option<Box<Hart>>>]>,
    /// By shire, if caches are private: its harts.
    groups: Box<[Group]>,
    aborted: AtomicBool,
    /// An abort ends waits for credits, too.
    ends_credit_waits: AtomicBool,
    remaining: AtomicUsize,
    instructions: AtomicU64,
    /// By worker, if instructions are counted.
    counters: Box<[Counters]>,
    trace: AtomicU64,
    failures: Mutex<Vec<HartFailure>>,
    watch: Watch,
    done: Mutex<Option<Done>>,
    start_cycles: u64,
    started: Instant,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(crate) fn new(
        number: u64,
        launch: Launch,
        code: Arc<CodeCache>,
        buffers: Option<Arc<Buffers>>,
        harts: &[u32],
        start_cycles: u64,
        (watch, done): (Watch, Done),
    ) -> Self {
        let stacks = Guards::new(&launch.stack);
        let is_private = code.memory() == MemoryModel::Private;
        let (shires, slots) = if is_private { (SHIRES, 0) } else { (0, HART_SLOTS) };
        let of_shire =
            |shire: u32| Some(compute_harts(shire)).filter(|_| launch.shire_mask >> shire & 1 != 0);
        Self {
            groups: (0..shires)
                .map(|shire| Group::new(of_shire(shire).into_iter().flatten()))
                .collect(),
            number,
            launch,
            guards: if buffers.is_some() { Guards::EVERYWHERE } else { stacks },
            stacks,
            buffers,
            code,
            harts: harts.into(),
            states: (0..slots).map(|_| Mutex::new(None)).collect(),
            aborted: AtomicBool::new(false),
            ends_credit_waits: AtomicBool::new(false),
            remaining: AtomicUsize::new(harts.len()),
            instructions: AtomicU64::new(0),
            counters: Box::default(),
            trace: AtomicU64::new(0),
            failures: Mutex::default(),
            watch,
            done: Mutex::new(Some(done)),
            start_cycles,
            started: Instant::now(),
        }
    }

    /// The same, with what it executes counted by so many workers.
    pub(crate) fn counted_by(mut self, workers: usize) -> Self {
        self.counters = (0..workers).map(|_| Counters::new()).collect();
        self
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn harts(&self) -> impl Iterator<Item = u32> {
        self.harts.iter().copied()
    }

    /// The harts of a shire.
    pub(crate) fn group(&self, shire: u32) -> &Group {
        &self.groups[shire as usize]
    }

    /// Makes every hart end at its next turn.
    pub(crate) fn abort(&self, credits: CreditAbort) {
        if credits == CreditAbort::Ends {
            self.ends_credit_waits.store(true, Ordering::Relaxed);
        }
        // Release: pairs with `is_aborted`; the port's lock orders it with parking.
        self.aborted.store(true, Ordering::Release);
    }

    /// Returns `true` if the kernel is aborted, and that ends `wait`.
    pub(crate) fn ends(&self, wait: Wait) -> bool {
        // Ordered by the acquire of the abort itself.
        self.is_aborted()
            && (!matches!(wait, Wait::Credit(_)) || self.ends_credit_waits.load(Ordering::Relaxed))
    }

    /// The shires of all harts that have not left, if all of them wait.
    pub(crate) fn sleeping_shires(&self, chip: &Chip) -> u64 {
        let parked = || self.harts().filter(|&hart| chip.port(hart).is_parked());
        if parked().count() != self.remaining.load(Ordering::Acquire) {
            return 0;
        }
        parked().fold(0, |shires, hart| shires | 1 << (hart / HARTS_PER_SHIRE))
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Returns what is reported, and to whom.
    pub(crate) fn report(&self, cycles: u64) -> (LaunchReport, Option<Done>) {
        let mut failures = std::mem::take(&mut *lock(&self.failures));
        failures.sort_by_key(|failure| failure.hart_id);
        let report = LaunchReport {
            failures,
            instructions: self.instructions.load(Ordering::Acquire),
            histogram: (!self.counters.is_empty()).then(|| Histogram::of(&self.counters)),
            harts: u32::try_from(self.harts.len()).unwrap_or(u32::MAX),
            cycles: cycles - self.start_cycles,
            wall: self.started.elapsed(),
            trace: self.trace.load(Ordering::Acquire),
        };
        (report, lock(&self.done).take())
    }
}

/// A host thread's loop.
pub(crate) struct Worker<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) number: usize,
    /// Those of harts that have left their kernel, for others: most kernels are short, and to give
    /// back and get the memory of thousands takes longer than to start them.
    #[expect(clippy::vec_box, reason = "they are used where they are")]
    spare: RefCell<Vec<Box<Hart>>>,
    /// Harts of the shire whose turn it is that are ahead.
    pub(crate) readers: RefCell<Readers>,
}

/// A turn: where it ends, in instructions of its hart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn(u64);

/// What becomes of a hart after its turn.
pub(crate) enum After {
    /// It takes another turn.
    Again,
    /// It has to go on before that, and would change what others have read ahead of their turns.
    Disturbs(Turn),
    /// It waits.
    Parked,
    /// It has left the kernel.
    Left(Option<HartExit>),
}

impl<'a> Worker<'a> {
    pub(crate) fn new(inner: &'a Inner, number: usize) -> Self {
        Self { inner, number, spare: RefCell::default(), readers: RefCell::new(Readers::new()) }
    }

    /// Runs harts until the machine is dropped.
    pub(crate) fn run(&self) {
        let mut current: Option<Arc<Run>> = None;
        while let Some(hart) = self.inner.scheduler.next(self.number, |count| self.choose(count)) {
            // A runnable hart keeps its launch alive, so there is one; it is looked up again when
            // the one at hand is over.
            let run = match current.take() {
                Some(run) if run.remaining.load(Ordering::Acquire) != 0 => run,
                _ => match self.inner.current_run() {
                    Some(run) => run,
                    None => unreachable!("hart {hart} is runnable without a launch"),
                },
            };
            if self.inner.chip.private.is_some() {
                self.shire_turn(&run, hart);
            } else {
                self.turn(&run, hart);
            }
            self.settle(&run);
            current = Some(run);
        }
    }

    /// Chooses one of `count` harts: the one that has waited longest, unless memory is weak.
    fn choose(&self, count: usize) -> usize {
        self.inner.chip.weak().map_or(0, |mut weak| weak.choose(count))
    }

    /// Makes everything visible if all harts of a launch wait: nothing but time passes then.
    fn settle(&self, run: &Run) {
        if self.inner.chip.weak.is_some()
            && self.inner.scheduler.is_idle(self.number)
            && run.remaining.load(Ordering::Acquire) != 0
            && let Some(mut weak) = self.inner.chip.weak()
        {
            let wake = |_| unreachable!("memory wakes no hart");
            weak.settle(&self.core(run, &wake));
            drop(weak);
            // Where races are looked for, those that wait for a hart that has shown one need not
            // wait for the host as well.
            if self.inner.chip.finds_races && !lock(&run.failures).is_empty() {
                self.inner.abort_run();
            }
        }
    }

    /// Returns what the harts of a launch reach.
    pub(crate) fn core<'c>(&'c self, run: &'c Run, wake: &'c dyn Fn(u32)) -> Core<'c> {
        Core {
            chip: &self.inner.chip,
            code: &run.code,
            guards: run.guards,
            stacks: run.stacks,
            check: run.buffers.as_deref().map(Check::new),
            wake,
            recent: Cell::new(None),
            counters: run.counters.get(self.number),
            context: Context::new(&self.inner.chip.dram, &run.guards, &run.code),
        }
    }

    /// Gives one hart a turn.
    fn turn(&self, run: &Run, id: u32) {
        let mut state = lock(&run.states[id as usize]);
        let wake = |hart| self.inner.wake(run, hart);
        let core = self.core(run, &wake);
        let hart = state.get_or_insert_with(|| self.start(run, &core, id, &mut None));
        let before = hart.retired;
        let after = self.execute(run, &core, hart);
        self.inner.chip.clock.add_retired(hart.retired - before);
        match after {
            After::Disturbs(_) => unreachable!("no cache is watched"),
            After::Parked => {}
            After::Again => {
                // Another worker may steal the hart at once: it must not find it locked.
                drop(state);
                self.inner.scheduler.requeue(self.number, id);
            }
            After::Left(exit) => {
                let hart = state.take();
                drop(state);
                self.leave(run, hart, exit);
            }
        }
    }

    pub(crate) fn execute<'c>(&self, run: &Run, core: &'c Core<'c>, hart: &mut Hart) -> After {
        let fuel = match core.chip.weak() {
            None if hart.cache.is_some() => LONGEST_TURN,
            None => self.inner.config.fuel,
            Some(mut weak) => {
                let turn = weak.begin_turn(core, hart.id);
                let completes = hart.unit.is_some() && weak.completes_operation();
                drop(weak);
                if completes && tensor::finish_oldest(hart, core).is_err() {
                    return After::Left(Some(HartExit::BusError));
                }
                if core.chip.finds_races {
                    return self.watched_turn(run, core, hart, turn);
                }
                turn
            }
        };
        self.go_on(run, core, hart, Turn(hart.retired + u64::from(fuel)))
    }

    /// Gives a hart a turn instruction by instruction. It traps at the first race that it shows.
    fn watched_turn<'c>(&self, run: &Run, core: &'c Core<'c>, hart: &mut Hart, turn: u32) -> After {
        for _ in 0..turn {
            let (pc, x) = (hart.pc, hart.x);
            core.chip.note(|races| races.executes(hart.id, pc));
            let after = self.go_on_disturbed(run, core, hart, Turn(hart.retired + 1));
            let mut found = None;
            core.chip.note(|races| found = races.take_found());
            if let Some(Found { race, address }) = found {
                (hart.pc, hart.x) = (pc, x);
                let exit = HartExit::Exception { cause: race.cause(), tval: address };
                return After::Left(Some(exit));
            }
            if !matches!(after, After::Again) {
                return after;
            }
        }
        After::Again
    }

    /// Goes on with the turn of a hart after a disturbance.
    #[cold]
    #[inline(never)]
    pub(crate) fn go_on_disturbed<'c>(
        &self,
        run: &Run,
        core: &'c Core<'c>,
        hart: &mut Hart,
        turn: Turn,
    ) -> After {
        self.go_on(run, core, hart, turn)
    }

    /// Goes on with the turn of a hart.
    #[inline(always)]
    fn go_on<'c>(&self, run: &Run, core: &'c Core<'c>, hart: &mut Hart, turn: Turn) -> After {
        let Turn(end) = turn;
        loop {
            if run.is_aborted() {
                return After::Left(Some(HartExit::Aborted));
            }
            let Ok(fuel @ 1..) = u32::try_from(end.saturating_sub(hart.retired)) else {
                return After::Again;
            };
            let event = exec::run(hart, core, fuel);
            // Whatever it is, it comes again.
            if !event.completes() && hart.is_watched() {
                return After::Disturbs(turn);
            }
            let wait = match event {
                Event::OutOfFuel | Event::Yield => return After::Again,
                Event::Disturbs => unreachable!("no cache is watched"),
                Event::BusError => return After::Left(Some(HartExit::BusError)),
                Event::Trap { cause, tval } => {
                    if cause == event::USER_CALL {
                        if let Some(mut weak) = core.chip.weak() {
                            weak.environment_call(core, hart);
                        } else if let Some(cache) = &mut hart.cache {
                            cache.environment_call(core, &hart.x);
                        }
                    }
                    match kernel_call::handle(hart, cause, tval, || core.chip.clock.cycles()) {
                        Outcome::Resume => {
                            // The call takes fuel too, or a loop of calls would last forever.
                            hart.retired += 1;
                            if let Some(counters) = core.counters
                                && let Some(number) = Number::of_trap(tval)
                            {
                                counters.add(number);
                            }
                            continue;
                        }
                        Outcome::Leave(exit) => {
                            let finished = tensor::finish_all(hart, core);
                            let bus_error = finished.err().map(|_| HartExit::BusError);
                            return After::Left(exit.or(bus_error));
                        }
                    }
                }
                Event::WaitCredit(counter) => Wait::Credit(counter),
                Event::WaitPartner(wait) => wait,
                Event::Stall => Wait::Abort,
            };
            // A hart that sleeps gives its tensor unit all the time it needs.
            if tensor::finish_all(hart, core).is_err() {
                return After::Left(Some(HartExit::BusError));
            }
            let parked = core.chip.port(hart.id).park(wait, || run.ends(wait));
            return if parked { After::Parked } else { After::Again };
        }
    }

    /// Does what the firmware does when all harts have left the kernel: everything gets to memory.
    /// Spec: device interface §8, §9.4
    fn end(&self, run: &Run) {
        if let Some(mut weak) = self.inner.chip.weak() {
            let wake = |_| unreachable!("memory wakes no hart");
            weak.settle(&self.core(run, &wake));
            run.trace.store(weak.trace(), Ordering::Release);
        }
        for shire in 0..SHIRES {
            let mut cache = self.inner.chip.take_cache(shire);
            if let Some(cache) = &mut cache {
                let wake = |_| unreachable!("memory wakes no hart");
                cache.release_all(&self.core(run, &wake));
            }
            self.inner.chip.return_cache(shire, cache);
        }
    }

    /// Takes note that a hart has left the kernel.
    pub(crate) fn leave(&self, run: &Run, hart: Option<Box<Hart>>, exit: Option<HartExit>) {
        if let Some(hart) = hart {
            let port = self.inner.chip.port(hart.id);
            let tensor_error = port.tensor_error.load(Ordering::Relaxed);
            if let Some(exit) = exit {
                let state = hart.state(tensor_error);
                let failure = HartFailure { hart_id: hart.id, exit, state };
                (run.watch)(&failure, self.inner.chip.clock.cycles());
                lock(&run.failures).push(failure);
            }
            run.instructions.fetch_add(hart.retired, Ordering::Relaxed);
            // Harts go from thread to thread: not every one needs to keep enough for all.
            let mut spare = self.spare.borrow_mut();
            if spare.len() < 2 * COMPUTE_HARTS as usize / self.inner.config.workers() {
                spare.push(hart);
            }
        }
        // Acquire and release: the last one sees what all others have noted.
        if run.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(run);
            self.inner.complete(run);
        }
    }

    /// Creates a hart as the firmware starts it. Spec: device interface §14
    ///
    /// The shire's cache, if it has one, is lent for that.
    pub(crate) fn start(
        &self,
        run: &Run,
        core: &Core<'_>,
        id: u32,
        cache: &mut Option<Box<Private>>,
    ) -> Box<Hart> {
        let Launch { entry, args, env, stack, .. } = run.launch;
        let below = u64::from(compute_index(id)).wrapping_mul(stack.bytes_per_hart);
        let top = stack.top.wrapping_sub(below);
        let mut hart = match self.spare.borrow_mut().pop() {
            Some(mut spare) => {
                *spare = Hart::new(id);
                spare
            }
            None => Box::new(Hart::new(id)),
        };
        hart.pc = entry & !1;
        hart.x[2] = top.wrapping_sub(FRAME_BYTES);
        hart.x[10] = args;
        hart.x[11] = env;
        std::mem::swap(&mut hart.cache, cache);
        for (offset, value) in [(16, top), (8, 0)] {
            // A stack outside of memory traps when the kernel uses it.
            if let Err(event) = bus::store(core, &mut hart, top.wrapping_sub(offset), 8, value) {
                tracing::trace!(hart = id, top, ?event, "stack outside of memory");
            }
        }
        std::mem::swap(&mut hart.cache, cache);
        hart
    }
}
