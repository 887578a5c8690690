//! The slot: everything that host and device share, and the thread that is the device.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use et_devapi::abi;
use et_hal::{BarOffset, DeviceAddr, Endpoint, Generation, Width};
use et_sim_cores::{Buffers, Dram, Histogram};

use crate::compute::{self, Compute, Mediated};
use crate::firmware::{Firmware, Flash};
use crate::interrupt::{Bell, DoorbellLines};
use crate::{
    BoardConfig, BoardError, Check, Event, Fault, HostMemory, Interrupts, Parent, RegisterPage,
    ResetBusy, StuckUntil, Waited, Wake,
};

/// What a host access to a BAR meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Link {
    /// The device.
    Up,
    /// Nothing: a read returns all ones, a write is lost. So before the firmware has set up the
    /// address translation (spec §4), and after a loss of the link.
    Down,
    /// A device that the accessor may not talk to: it has been reset since.
    Stale,
}

/// What a reset does to the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryAfterReset {
    /// It keeps its contents.
    Kept,
    /// It reads as zero.
    Cleared,
}

/// What a board has done so far; for tests and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Doorbell writes for the operations endpoint, modulo 2³².
    pub ops_doorbells: u32,
    /// Doorbell writes for the management endpoint, modulo 2³².
    pub mgmt_doorbells: u32,
    /// Commands the operations firmware has taken out of its queues.
    pub commands: u64,
    /// Responses and events it has put into the completion queue.
    pub responses: u64,
    /// Times the firmware thread went to sleep.
    pub sleeps: u64,
    /// Instructions that kernels have executed, counted when they end.
    pub instructions: u64,
}

/// What launches of one kernel have executed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// Where they began.
    pub entry: DeviceAddr,
    /// Launches that have ended.
    pub launches: u64,
    /// What all their harts have executed.
    pub histogram: Histogram,
}

/// What host threads and the firmware thread share.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) config: BoardConfig,
    /// What does the work, of a board that mediates.
    pub(crate) parent: Option<Arc<dyn Parent>>,
    pub(crate) page: RegisterPage,
    pub(crate) dram: Arc<Dram>,
    pub(crate) host: HostMemory,
    pub(crate) interrupts: Interrupts,
    pub(crate) bell: CachePadded<Bell>,
    /// Set after every host write to device memory through BAR0.
    pub(crate) bar0_written: AtomicBool,
    /// Another process has mapped device memory.
    pub(crate) bar0_mapped: AtomicBool,
    /// The host has done what the service processor waits for before it opens the BARs.
    host_is_ready: AtomicBool,
    pub(crate) stats: CachePadded<Stats>,
    /// Generation in bits 63:8, [`LinkState`] in bits 7:0.
    link: CachePadded<AtomicU64>,
    /// Accesses left in state `Counting`.
    accesses_left: AtomicU32,
    control: AtomicU32,
    /// Generation whose firmware runs; behind that of `link` while a reset is in progress.
    running: AtomicU32,
    /// Raised when that changes.
    reset_over: Event,
    /// What the device does wrong at every boot.
    boot_faults: Mutex<Vec<Fault>>,
    /// What it shall do wrong besides, until the firmware has taken note.
    new_faults: Mutex<Vec<Fault>>,
    /// Raised when it has.
    faults_taken: Event,
    flash: Mutex<Flash>,
    executed: Mutex<Vec<Executed>>,
}

/// Statistics with one writer, the firmware thread.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) commands: AtomicU64,
    pub(crate) responses: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) instructions: AtomicU64,
}

impl Stats {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

const LINK_DOWN: u64 = 0;
const LINK_UP: u64 = 1;
/// Up, but every access counts down to the loss of the link.
const LINK_COUNTING: u64 = 2;
const LINK_BITS: u64 = 0xff;

const CONTROL_STOP: u32 = 1;
const CONTROL_RESET: u32 = 2;
const CONTROL_CLEAR: u32 = 4;
const CONTROL_FAULT: u32 = 8;

/// What the firmware thread is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Stop,
    Reset(MemoryAfterReset),
    Fault,
}

impl Slot {
    pub(crate) fn new(
        config: BoardConfig,
        dram: Arc<Dram>,
        parent: Option<Arc<dyn Parent>>,
    ) -> Result<Arc<Self>, BoardError> {
        Ok(Arc::new(Self {
            page: RegisterPage::new()?,
            dram,
            host: HostMemory::default(),
            interrupts: Interrupts::new(&config.faults),
            bell: CachePadded::default(),
            bar0_written: AtomicBool::new(false),
            bar0_mapped: AtomicBool::new(false),
            host_is_ready: AtomicBool::new(!config.waits_for_host),
            stats: CachePadded::default(),
            link: CachePadded::new(AtomicU64::new(LINK_DOWN)),
            accesses_left: AtomicU32::new(0),
            control: AtomicU32::new(0),
            running: AtomicU32::new(0),
            reset_over: Event::new(),
            boot_faults: Mutex::new(config.faults.clone()),
            new_faults: Mutex::default(),
            faults_taken: Event::new(),
            flash: Mutex::new(Flash::new(&config)),
            executed: Mutex::default(),
            parent,
            config,
        }))
    }

    fn executed(&self) -> MutexGuard<'_, Vec<Executed>> {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a launch has executed.
    pub(crate) fn note_executed(&self, entry: u64, histogram: &Histogram) {
        let mut executed = self.executed();
        let entry = DeviceAddr::new(entry);
        if let Some(same) = executed.iter_mut().find(|executed| executed.entry == entry) {
            same.launches += 1;
            same.histogram.merge(histogram);
        } else {
            executed.push(Executed { entry, launches: 1, histogram: histogram.clone() });
        }
    }

    /// Takes the present order, if there is one.
    pub(crate) fn take_control(&self) -> Option<Control> {
        // Relaxed load first: this runs in every round of the firmware loop.
        let word = self.control.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let word = self.control.swap(0, Ordering::AcqRel);
        if word & CONTROL_STOP != 0 {
            return Some(Control::Stop);
        }
        let memory = if word & CONTROL_CLEAR != 0 {
            MemoryAfterReset::Cleared
        } else {
            MemoryAfterReset::Kept
        };
        if word & CONTROL_RESET != 0 {
            // The reset comes first; the next look finds the rest.
            self.control.fetch_or(word & CONTROL_FAULT, Ordering::AcqRel);
            return Some(Control::Reset(memory));
        }
        (word & CONTROL_FAULT != 0).then_some(Control::Fault)
    }

    /// A reset mends what was stuck until it, or until a gentler one.
    fn mend(&self, by: StuckUntil) {
        let is_mended = |fault: &Fault| matches!(fault, Fault::Stuck { until } if *until <= by);
        self.boot_faults().retain(|fault| !is_mended(fault));
    }

    /// Returns `true` if the operations firmware does not start.
    pub(crate) fn is_stuck(&self) -> bool {
        self.boot_faults().iter().any(|fault| matches!(fault, Fault::Stuck { .. }))
    }

    /// Returns what the device does wrong when it boots.
    pub(crate) fn boot_faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.boot_faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the firmware each fault that was injected since the last time.
    pub(crate) fn take_faults(&self, mut take: impl FnMut(Fault)) {
        let mut faults = self.new_faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.drain(..).for_each(&mut take);
        drop(faults);
        self.faults_taken.raise();
    }

    /// The link goes down after so many accesses more.
    pub(crate) fn lose_link(&self, after: u32) {
        self.accesses_left.store(after, Ordering::Relaxed);
        self.set_link(self.generation(), LINK_COUNTING);
    }

    /// The firmware has programmed the address translation: BARs reach the device from now on.
    ///
    /// Nothing happens if a reset has begun meanwhile: the link is then that of the next
    /// generation.
    pub(crate) fn link_up(&self, of: Generation) {
        let loss = self.boot_faults().iter().find_map(|fault| match fault {
            Fault::LinkLoss { after } => Some(*after),
            _ => None,
        });
        let state = match loss {
            None => LINK_UP,
            Some(after) => {
                self.accesses_left.store(after, Ordering::Relaxed);
                LINK_COUNTING
            }
        };
        self.set_link(of, state);
    }

    /// Returns `true` if memory space and MSIs are enabled. Spec: §4
    pub(crate) fn host_is_ready(&self) -> bool {
        self.host_is_ready.load(Ordering::Acquire)
    }

    /// Publishes that the firmware of the present generation runs.
    pub(crate) fn reset_finished(&self, generation: Generation) {
        self.running.store(generation.0, Ordering::Release);
        self.reset_over.raise();
    }

    /// Returns what survives every reset.
    pub(crate) fn flash(&self) -> MutexGuard<'_, Flash> {
        self.flash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chip resets itself: the BARs answer nothing until the firmware has booted, and a host
    /// has to enable memory space and MSIs again.
    pub(crate) fn chip_reset(&self, of: Generation) {
        self.mend(StuckUntil::Chip);
        self.set_link(of, LINK_DOWN);
        self.host_is_ready.store(!self.config.waits_for_host, Ordering::Release);
    }

    /// Returns the device memory that the host may use: first address, first address behind.
    pub(crate) fn host_managed(&self) -> Range<u64> {
        let start = abi::HOST_MANAGED_BASE.as_u64();
        let all = start..start + abi::host_managed_len(self.config.dram_bytes);
        self.parent.as_ref().map_or(all, |parent| parent.partition())
    }

    /// Ends what the parent was given and not done, if there is one.
    pub(crate) fn reset_parent(self: &Arc<Self>, memory: MemoryAfterReset) {
        let Some(parent) = &self.parent else { return };
        parent.reset(memory, Wake(Arc::downgrade(self)));
        // Copies that are under way end before the host takes its memory back.
        self.host.quiesce();
    }

    /// Returns `true` unless there is a parent that is not ready.
    pub(crate) fn parent_is_ready(&self) -> bool {
        self.parent.as_ref().is_none_or(|parent| parent.is_ready())
    }

    /// Makes the whole memory read as zero.
    pub(crate) fn clear_memory(&self) {
        self.dram.discard();
    }

    pub(crate) fn generation(&self) -> Generation {
        let word = self.link.load(Ordering::Acquire) >> 8;
        Generation(u32::try_from(word).unwrap_or(u32::MAX))
    }

    fn set_link(&self, of: Generation, state: u64) {
        let update =
            |word: u64| (word >> 8 == u64::from(of.0)).then_some(word & !LINK_BITS | state);
        let (Ok(_) | Err(_)) = self.link.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        // Declined means that the generation has changed; then there is nothing to set.
    }

    #[inline]
    fn link(&self, of: Generation) -> Link {
        let word = self.link.load(Ordering::Acquire);
        if word == u64::from(of.0) << 8 | LINK_UP {
            return Link::Up;
        }
        self.link_slow(of, word)
    }

    #[cold]
    fn link_slow(&self, of: Generation, word: u64) -> Link {
        if word >> 8 != u64::from(of.0) {
            return Link::Stale;
        }
        match word & LINK_BITS {
            LINK_UP => Link::Up,
            LINK_COUNTING => {
                let left = |n: u32| n.checked_sub(1);
                match self.accesses_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
                    Ok(_) => Link::Up,
                    Err(_) => {
                        self.set_link(of, LINK_DOWN);
                        Link::Down
                    }
                }
            }
            _ => Link::Down,
        }
    }
}

/// A simulated card: registers, memory, interrupts, and a thread that behaves like its firmware.
///
/// Dropping the board powers it off: kernels are stopped, the thread ends, memory is freed.
#[derive(Debug)]
pub struct Board {
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
}

impl Board {
    /// Builds a board and lets it boot; readiness shows in its status registers.
    ///
    /// # Errors
    /// [`BoardError`]: a configuration that makes no sense, or a host that lacks memory or threads.
    pub fn power_on(config: BoardConfig) -> Result<Arc<Self>, BoardError> {
        config.validate()?;
        let memory =
            |e| BoardError::Memory { what: "device DRAM", source: std::io::Error::other(e) };
        let dram = Arc::new(Dram::new(config.dram_bytes).map_err(memory)?);
        let compute = compute::build(&config, &dram)?;
        Self::with_compute(config, dram, compute, None)
    }

    /// Builds a board without memory and cores for its host: a parent does the work, and the
    /// registers offer the parent's partition. Memory of its own has only the firmware.
    ///
    /// # Errors
    /// As [`power_on`](Self::power_on).
    pub fn mediate(config: BoardConfig, parent: Arc<dyn Parent>) -> Result<Arc<Self>, BoardError> {
        config.validate()?;
        let memory =
            |e| BoardError::Memory { what: "firmware memory", source: std::io::Error::other(e) };
        let dram = Arc::new(Dram::new(BoardConfig::MIN_DRAM_BYTES).map_err(memory)?);
        let compute = Box::new(Mediated::new(Arc::clone(&parent), config.frequency_mhz));
        Self::with_compute(config, dram, compute, Some(parent))
    }

    /// Builds a board around memory and cores that are already there.
    pub(crate) fn with_compute(
        config: BoardConfig,
        dram: Arc<Dram>,
        compute: Box<dyn Compute>,
        parent: Option<Arc<dyn Parent>>,
    ) -> Result<Arc<Self>, BoardError> {
        let slot = Slot::new(config, dram, parent)?;
        let firmware = Firmware::new(Arc::clone(&slot), compute);
        let thread = std::thread::Builder::new()
            .name("et-sim-firmware".to_owned())
            .spawn(move || firmware.run())
            .map_err(BoardError::Thread)?;
        Ok(Arc::new(Self { slot, thread: Some(thread) }))
    }

    /// Returns what was asked for.
    #[must_use]
    pub fn config(&self) -> &BoardConfig {
        &self.slot.config
    }

    /// Returns the memory behind BAR2, as the device sees it: always there, whatever the link does.
    #[must_use]
    #[inline]
    pub fn page(&self) -> &RegisterPage {
        &self.slot.page
    }

    /// Returns `true` if a parent does the work.
    #[must_use]
    pub fn is_mediated(&self) -> bool {
        self.slot.parent.is_some()
    }

    /// Takes the link down, as the loss of the card behind a board that mediates does; a reset
    /// brings it back.
    pub fn lose_link(&self) {
        self.slot.lose_link(0);
        for endpoint in [Endpoint::Operations, Endpoint::Management] {
            self.slot.interrupts.event(endpoint).raise();
        }
    }

    /// Returns the memory behind BAR0 and the DMA engine.
    #[must_use]
    pub fn dram(&self) -> &Arc<Dram> {
        &self.slot.dram
    }

    /// Returns the mappings that the DMA engine goes through.
    #[must_use]
    pub fn host_memory(&self) -> &HostMemory {
        &self.slot.host
    }

    /// Returns the interrupts.
    #[must_use]
    pub fn interrupts(&self) -> &Interrupts {
        &self.slot.interrupts
    }

    /// Tells what an access by a host handle of that generation meets. Ask before each access.
    #[inline]
    pub fn link(&self, of: Generation) -> Link {
        self.slot.link(of)
    }

    /// Makes a register write in the doorbell region; `at` counts from its start.
    ///
    /// Only the writes that the firmware asks for in its registers have an effect. Spec: §2.2
    #[inline]
    pub fn ring(&self, at: BarOffset, width: Width, value: u64) {
        match (at.as_u64(), width, value) {
            (0, Width::W32, 1) => self.slot.bell.ring(Endpoint::Management),
            (4, Width::W32, 1) => self.slot.bell.ring(Endpoint::Operations),
            _ => {}
        }
    }

    /// Checks what kernels access from now on, if the board [is to](BoardConfig::check).
    ///
    /// The caller hands out device memory from `base` on, so many bytes, and announces the buffers
    /// in it. Kernels may use these, their stacks and what belongs to their traces. A board whose
    /// memory is not watched checks nothing.
    #[must_use]
    pub fn watch_memory(&self, base: DeviceAddr, len_bytes: u64) -> Option<Arc<Buffers>> {
        if self.slot.config.check == Check::None {
            return None;
        }
        let base = base.as_u64();
        let open = abi::TRACE_CONTROL_BASE.as_u64()..abi::DEFAULT_STACK_TOP.as_u64();
        Some(self.slot.dram.watch(base..base.saturating_add(len_bytes), open))
    }

    /// Takes out what kernels have executed since the last call, in the order of their first
    /// launches, if the board [counts](BoardConfig::count) that. A launch is in it when its
    /// response is there; one that a reset has killed never is.
    #[must_use]
    pub fn take_executed(&self) -> Vec<Executed> {
        std::mem::take(&mut self.slot.executed())
    }

    /// Tells the device that the host has written its memory through BAR0.
    pub fn bar0_written(&self) {
        // Release: pairs with the acquire of the next launch.
        self.slot.bar0_written.store(true, Ordering::Release);
    }

    /// Tells the device that another process may write its memory through BAR0 at any time from now
    /// on.
    pub fn bar0_mapped(&self) {
        self.slot.bar0_mapped.store(true, Ordering::Relaxed);
    }

    /// Tells the device whether the host has enabled its memory space and its MSIs.
    ///
    /// A board that [waits for its host](BoardConfig::waits_for_host) does not finish booting
    /// before. A reset takes it back, as it clears both bits in configuration space.
    ///
    /// Spec: §4
    pub fn set_host_ready(&self, is_ready: bool) {
        let is_ready = is_ready || !self.slot.config.waits_for_host;
        self.slot.host_is_ready.store(is_ready, Ordering::Release);
        if is_ready {
            self.slot.bell.raise();
        }
    }

    /// Returns eventfds that another process can use as doorbells: each write is one doorbell write
    /// of the endpoint, and costs the firmware no thread in between.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn doorbell_lines(&self) -> std::io::Result<&DoorbellLines> {
        self.slot.bell.lines()
    }

    /// Returns the present generation; it changes when a reset begins.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.slot.generation()
    }

    /// Begins a function reset: everything in flight is lost, the device boots again.
    ///
    /// # Errors
    /// [`ResetBusy`] while another is in progress.
    pub fn begin_reset(&self, memory: MemoryAfterReset) -> Result<Generation, ResetBusy> {
        let slot = &self.slot;
        let word = slot.link.load(Ordering::Acquire);
        if self.resetting() {
            return Err(ResetBusy);
        }
        let next = (word >> 8).wrapping_add(1) & u64::from(u32::MAX);
        let ordered = slot.link.compare_exchange(
            word,
            next << 8 | LINK_DOWN,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        ordered.map_err(|_| ResetBusy)?;
        slot.host_is_ready.store(!slot.config.waits_for_host, Ordering::Release);
        let clear = match memory {
            MemoryAfterReset::Kept => 0,
            MemoryAfterReset::Cleared => {
                slot.mend(StuckUntil::Slot);
                CONTROL_CLEAR
            }
        };
        slot.control.fetch_or(CONTROL_RESET | clear, Ordering::AcqRel);
        slot.bell.raise();
        // Threads that wait for a message find out that there will be none.
        for endpoint in [Endpoint::Operations, Endpoint::Management] {
            slot.interrupts.event(endpoint).raise();
        }
        Ok(self.generation())
    }

    /// Returns `true` if a reset is in progress. When it is over the device boots, which takes its
    /// own time.
    #[must_use]
    pub fn resetting(&self) -> bool {
        self.slot.running.load(Ordering::Acquire) != self.generation().0
    }

    /// Waits until no reset is in progress; returns `true` if that happened within the time.
    pub fn wait_reset(&self, within: Duration) -> bool {
        let deadline = Instant::now().checked_add(within);
        loop {
            let seen = self.slot.reset_over.epoch();
            if !self.resetting() {
                return true;
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if self.slot.reset_over.wait(seen, left) == Waited::TimedOut {
                return !self.resetting();
            }
        }
    }

    /// Makes the device do one more thing wrong, from now on; returns when its firmware knows.
    ///
    /// Counts of the fault start now. A fault of the boot, or of the registers, shows at every boot
    /// that follows. All others end with the next reset of the endpoint, but for those of
    /// interrupts, which stay. [`Fault::Ecc`] is counted, and announced, at once.
    pub fn inject(&self, fault: Fault) {
        let slot = &self.slot;
        if fault.is_of_boot() {
            return slot.boot_faults().push(fault);
        }
        let faults = || slot.new_faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults().push(fault);
        slot.control.fetch_or(CONTROL_FAULT, Ordering::AcqRel);
        slot.bell.raise();
        loop {
            let seen = slot.faults_taken.epoch();
            if faults().is_empty() {
                return;
            }
            // The firmware takes its orders whatever state it is in.
            let (Waited::Raised | Waited::TimedOut) =
                slot.faults_taken.wait(seen, Duration::from_secs(1));
        }
    }

    /// Returns what the board has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let stats = &self.slot.stats;
        Counters {
            ops_doorbells: self.slot.bell.rung(Endpoint::Operations),
            mgmt_doorbells: self.slot.bell.rung(Endpoint::Management),
            commands: stats.commands.load(Ordering::Relaxed),
            responses: stats.responses.load(Ordering::Relaxed),
            sleeps: stats.sleeps.load(Ordering::Relaxed),
            instructions: stats.instructions.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.slot.control.fetch_or(CONTROL_STOP, Ordering::AcqRel);
        self.slot.bell.raise();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the simulated firmware panicked");
        }
    }
}
