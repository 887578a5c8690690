//! The machine: launches kernels on simulated harts, run by host threads.

mod ahead;
pub(crate) mod chip;
pub(crate) mod clock;
pub(crate) mod group;
pub(crate) mod hart;
pub(crate) mod kernel_call;
pub(crate) mod launch;
pub(crate) mod sched;
pub(crate) mod single;
pub(crate) mod turn;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::config::{CreditAbort, Execution, MachineConfig};
use crate::decode::code::CodeCache;
use crate::error::CoresError;
use crate::machine::chip::Chip;
use crate::machine::launch::{HartFailure, Launch, LaunchReport};
use crate::machine::sched::Scheduler;
use crate::machine::turn::{Run, Worker};
use crate::memory::map::{HARTS_PER_SHIRE, SHIRES, compute_harts};
use crate::memory::{Dram, Scratchpads};
use crate::native;

/// What is called with the report of a launch.
pub(crate) type Done = Box<dyn FnOnce(LaunchReport) + Send>;

/// What is called, on a core thread, with each hart that fails, when it does, and with the cycle
/// counter.
pub(crate) type Watch = Box<dyn Fn(&HartFailure, u64) + Send + Sync>;

/// The compute cores: all harts of the configured shires.
///
/// One kernel runs at a time. Its harts are executed in turns by a few host threads, which are
/// started with the first launch. A hart that waits for a credit, or stalls, takes no host time;
/// if all do, the host threads sleep.
///
/// Dropping the machine aborts a running kernel, whose report still comes, and ends the threads.
///
/// # Examples
/// ```
/// # use std::sync::{Arc, mpsc};
/// # use et_sim_cores::{Dram, Launch, Machine, MachineConfig, Stack};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dram = Arc::new(Dram::new(128 << 20)?);
/// let machine = Machine::new(MachineConfig::default(), Arc::clone(&dram))?;
/// // li a0, 8; li a1, 0; li a2, 0; ecall: every hart returns 0.
/// let code = [0x0080_0513_u32, 0x0000_0593, 0x0000_0613, 0x0000_0073];
/// let entry = Dram::BASE + 0x580_1000;
/// for (at, instruction) in (entry..).step_by(4).zip(code) {
///     dram.write(at, &instruction.to_le_bytes())?;
/// }
/// let (report, reports) = mpsc::channel();
/// let stack = Stack { top: Dram::BASE + 0x580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
/// let launch = Launch { entry, args: 0, env: 0, shire_mask: 0b11, stack };
/// machine.launch(launch, Box::new(move |ended| drop(report.send(ended))))?;
/// let ended = reports.recv()?;
/// assert_eq!((ended.harts, ended.instructions), (128, 128 * 3));
/// assert!(ended.failures.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct Machine {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the machine and its workers share.
pub(crate) struct Inner {
    pub(crate) config: MachineConfig,
    pub(crate) chip: Chip,
    pub(crate) scheduler: Scheduler,
    state: Mutex<State>,
    idle: Condvar,
}

/// The kernel slot.
struct State {
    run: Option<Arc<Run>>,
    code: Arc<CodeCache>,
    launches: u64,
}

/// Makes an empty cache of code.
fn code_cache(config: &MachineConfig, dram: &Dram) -> Arc<CodeCache> {
    let code = CodeCache::new(dram, config.memory, config.counts_instructions);
    Arc::new(match config.execution {
        Execution::Translated => code.translating(native::HOT),
        Execution::Interpreted => code,
    })
}

impl Machine {
    /// Creates an idle machine on `dram`.
    ///
    /// # Errors
    /// [`CoresError::Config`]; [`CoresError::Memory`] if the host has no address space for the
    /// scratchpads.
    pub fn new(config: MachineConfig, dram: Arc<Dram>) -> Result<Self, CoresError> {
        config.check()?;
        let code = code_cache(&config, &dram);
        let inner = Inner {
            scheduler: Scheduler::new(config.workers()),
            chip: Chip::new(&config, dram)?,
            config,
            state: Mutex::new(State { run: None, code, launches: 0 }),
            idle: Condvar::new(),
        };
        Ok(Self { inner: Arc::new(inner), threads: Mutex::default() })
    }

    /// Starts all harts of the launch's shires. `done` is called once, on a core thread, when all
    /// of them have left the kernel; the machine takes the next launch then, also from `done`.
    ///
    /// # Errors
    /// [`CoresError::Busy`], [`CoresError::ShireMask`], [`CoresError::Thread`]; `done` is not
    /// called then.
    pub fn launch(&self, launch: Launch, done: Done) -> Result<(), CoresError> {
        self.launch_watched(launch, Box::new(|_, _| ()), done)
    }

    /// As [`launch`](Machine::launch). `watch` is called with each hart that fails, at that moment,
    /// while others go on, and with the cycle counter.
    ///
    /// # Errors
    /// As [`launch`](Machine::launch).
    pub fn launch_watched(
        &self,
        launch: Launch,
        watch: Watch,
        done: Done,
    ) -> Result<(), CoresError> {
        let (requested, available) = (launch.shire_mask, self.inner.config.shires);
        if requested == 0 || requested & !available != 0 {
            return Err(CoresError::ShireMask { requested, available });
        }
        let mut state = self.inner.state();
        if state.run.is_some() {
            return Err(CoresError::Busy);
        }
        self.start_threads()?;
        let harts: Vec<u32> = (0..SHIRES)
            .filter(|shire| requested >> shire & 1 != 0)
            .flat_map(compute_harts)
            .collect();
        if state.code.is_large() {
            state.code = code_cache(&self.inner.config, &self.inner.chip.dram);
        }
        state.code.start_launch();
        state.launches += 1;
        self.inner.chip.start_kernel();
        if let Some(mut weak) = self.inner.chip.weak() {
            weak.start(state.launches, &harts);
        }
        let cycles = self.inner.chip.clock.cycles();
        let code = Arc::clone(&state.code);
        let number = state.launches;
        tracing::debug!(number, entry = launch.entry, harts = harts.len(), "kernel started");
        let watched = self.inner.chip.dram.watched();
        let run = Run::new(number, launch, code, watched, &harts, cycles, (watch, done));
        state.run = Some(Arc::new(run.counted_by(self.inner.config.counting_workers())));
        if self.inner.chip.private.is_some() {
            let shires: Vec<u32> =
                (0..SHIRES).filter(|shire| requested >> shire & 1 != 0).collect();
            self.inner.scheduler.start(&shires);
        } else {
            self.inner.scheduler.start(&harts);
        }
        Ok(())
    }

    /// Stops the running kernel: its harts end with
    /// [`HartExit::Aborted`](crate::HartExit::Aborted) at the end of their turn. No effect if idle.
    ///
    /// A hart that waits for a credit goes on waiting if the machine is configured with
    /// [`CreditAbort::Waits`]; the kernel then ends with a [`reset`](Machine::reset) only.
    pub fn abort(&self) {
        self.inner.abort_run();
    }

    /// Returns the shires of the harts that are left in the running kernel, bit *s* for shire *s*,
    /// if all of them wait. 0 while one of them runs, and if there are none.
    #[must_use]
    pub fn sleeping_shires(&self) -> u64 {
        self.inner.state().run.as_ref().map_or(0, |run| run.sleeping_shires(&self.inner.chip))
    }

    /// Resets the cores: aborts a running kernel, waits for its harts to leave, and forgets all
    /// state of harts, shires and scratchpads. DRAM stays.
    pub fn reset(&self) {
        let state = self.inner.wait_idle();
        self.inner.chip.reset();
        state.code.start_epoch();
    }

    /// Returns `true` if a kernel is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.inner.state().run.is_some()
    }

    /// Returns the cycle counter: what kernels read as `hpmcounter3`, from the making of the
    /// machine on. It never decreases.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.inner.chip.clock.cycles()
    }

    /// Makes the cores notice code that was changed from outside. A launch does so by itself; this
    /// is for changes under a running kernel, which takes notice when it next enters a page of
    /// code. Unchanged code stays decoded.
    pub fn invalidate_code(&self) {
        self.inner.state().code.start_epoch();
    }

    /// Returns the L2 scratchpads, for a DMA engine.
    #[must_use]
    pub fn scratchpads(&self) -> &Scratchpads {
        &self.inner.chip.scratchpads
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &MachineConfig {
        &self.inner.config
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the host threads that do not run yet.
    fn start_threads(&self) -> Result<(), CoresError> {
        let mut threads = self.threads();
        while threads.len() < self.inner.config.workers() {
            let number = threads.len();
            let inner = Arc::clone(&self.inner);
            let thread = thread::Builder::new()
                .name(format!("et-core-{number}"))
                .spawn(move || Worker::new(&inner, number).run())
                .map_err(CoresError::Thread)?;
            threads.push(thread);
        }
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the launch that runs, if one does.
    pub(crate) fn current_run(&self) -> Option<Arc<Run>> {
        self.state().run.clone()
    }

    /// Stops the running kernel, as [`Machine::abort`].
    pub(crate) fn abort_run(&self) {
        self.abort(&self.state(), self.config.credit_abort);
    }

    fn abort(&self, state: &State, credits: CreditAbort) {
        let Some(run) = &state.run else { return };
        run.abort(credits);
        // A hart parks only while it holds its lock and sees no abort: none is missed here.
        let ends = |wait| run.ends(wait);
        for hart in run.harts().filter(|&hart| self.chip.port(hart).unpark(ends)) {
            self.wake(run, hart);
        }
    }

    /// Makes a hart runnable that had been waiting.
    pub(crate) fn wake(&self, run: &Run, hart: u32) {
        let shire = hart / HARTS_PER_SHIRE;
        if self.chip.private.is_none() {
            self.scheduler.wake(hart);
        } else if run.group(shire).wake(hart) {
            self.scheduler.wake(shire);
        }
    }

    /// Aborts until nothing runs.
    fn wait_idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.run.is_some() {
            self.abort(&state, CreditAbort::Ends);
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Ends a launch that all harts have left.
    pub(crate) fn complete(&self, run: &Run) {
        let (report, done) = run.report(self.chip.clock.cycles());
        let mut state = self.state();
        state.run = None;
        drop(state);
        self.idle.notify_all();
        tracing::debug!(
            number = run.number(),
            failures = report.failures.len(),
            instructions = report.instructions,
            "kernel ended"
        );
        let Some(done) = done else { return };
        // The caller's panic must not take a worker, and with it other kernels, away.
        if catch_unwind(AssertUnwindSafe(|| done(report))).is_err() {
            tracing::error!("the receiver of a launch report panicked");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.inner.wait_idle());
        self.inner.scheduler.shut_down();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // The receiver of a report may own the last handle: a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a core thread panicked");
            }
        }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
