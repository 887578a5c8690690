//! Backends with one defect each: the kit finds every one of them, by the case that is meant to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "DMA buffers implement unsafe traits")]

use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_conformance::runner::{Options, Report, Suite, Verdict, run};
use et_conformance::{Lack, Rig};
use et_hal::{
    AccessPath, Bar, BarOffset, BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits, ErrorType,
    Generation, Hal, Loss, Mailbox, MailboxLayout, Mmio, OutOfRange, Pop, Push, QueueId, Reset,
    ResetScope, ResetState, Ticket, Wake, Width, Widths,
};
use et_hal_sim::{SimBuffer, SimDma, SimError, SimHal, SimMailbox, SimReset, SimWindow};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    LooseBounds,
    SplitsMisaligned,
    CutsValues,
    WritesWholeWords,
    ReadsDoorbells,
    SplitsWide,
    DirtyBuffers,
    RoundsLengths,
    OneBusAddress,
    EmptyBuffers,
    ForgetsTails,
    AllMayWrite,
    ImportsCopies,
    MissesThePast,
    IgnoresWake,
    Oversleeps,
    DropsWhatDoesNotFit,
    LosesMessages,
    OldGeneration,
    RevivesHandles,
    ForgetsMemory,
    NoReset,
}

/// A defect, the case that must find it, and a part of what that says.
const FOUND: [(Defect, &str, &str); 22] = [
    (Defect::LooseBounds, "hal::window::accesses_outside_are_refused_and_change_nothing", ""),
    (Defect::SplitsMisaligned, "hal::window::misaligned_registers_are_refused", "success with"),
    (
        Defect::CutsValues,
        "hal::window::values_that_do_not_fit_are_refused_and_change_nothing",
        "instead of \"too large\"",
    ),
    (
        Defect::WritesWholeWords,
        "hal::window::copies_touch_the_bytes_they_name_and_no_others",
        "more differ",
    ),
    (Defect::ReadsDoorbells, "hal::window::doorbells_cannot_be_read_and_still_ring", "a read"),
    (Defect::SplitsWide, "hal::window::offered_widths_work_and_no_others", "W64 at 0"),
    (
        Defect::DirtyBuffers,
        "hal::dma::buffers_are_zeroed_also_when_memory_is_used_again",
        "are not zero",
    ),
    (
        Defect::RoundsLengths,
        "hal::dma::buffers_have_the_length_asked_for_and_aligned_addresses",
        "the length is",
    ),
    (Defect::OneBusAddress, "hal::dma::buffers_do_not_overlap", "overlap"),
    (Defect::EmptyBuffers, "hal::dma::sizes_that_cannot_be_are_refused", "without bytes"),
    (
        Defect::ForgetsTails,
        "hal::dma::copies_and_fills_touch_the_bytes_they_name_and_no_others",
        "the whole buffer",
    ),
    (Defect::ForgetsTails, "runtime::copies::copies_of_all_sizes_arrive", "bytes: element"),
    (
        Defect::AllMayWrite,
        "hal::dma::the_device_cannot_write_what_it_may_only_read",
        "a write to a buffer for reading",
    ),
    (
        Defect::ImportsCopies,
        "runtime::imports::memory_of_the_caller_is_copied_from_and_to_where_it_is",
        "the memory of the caller itself",
    ),
    (Defect::MissesThePast, "hal::wait::a_notification_before_the_wait_is_not_lost", "hangs"),
    (Defect::IgnoresWake, "hal::wait::wake_ends_the_waits_of_all_threads", "hangs"),
    (Defect::Oversleeps, "hal::wait::a_wait_for_nothing_ends_by_its_timeout", "took"),
    (
        Defect::DropsWhatDoesNotFit,
        "hal::mailbox::a_message_that_does_not_fit_the_buffer_stays",
        "the same again",
    ),
    (
        Defect::LosesMessages,
        "hal::mailbox::every_message_is_answered_in_order",
        "no message within",
    ),
    (Defect::OldGeneration, "hal::reset::every_handle_of_before_is_stale", "Generation"),
    (
        Defect::ForgetsMemory,
        "hal::reset::memory_is_kept_unless_the_loss_says_otherwise",
        "memory after the reset",
    ),
    (Defect::RevivesHandles, "hal::reset::every_handle_of_before_is_stale", "a read"),
];

fn rig(defect: Defect) -> Rig<Broken> {
    let config: et_hal_sim::BoardConfig = "shires=1,dram=256MiB".parse().unwrap();
    let open = move || {
        let inner = SimHal::open(config.clone())?;
        Ok::<_, SimError>(Broken { dma: BrokenDma { inner: SimHalDma(inner), defect }, defect })
    };
    let rig = Rig::new(open);
    // What hangs takes all of its time; what works may be on a busy machine.
    if defect == Defect::None { rig } else { rig.limit(Duration::from_secs(2)) }
}

fn verdict(report: &Report) -> &Verdict {
    assert_eq!(report.cases.len(), 1);
    &report.cases[0].verdict
}

#[test]
fn every_defect_is_found_by_its_case() {
    for (defect, case, part) in FOUND {
        let report = run(vec![Suite::new("", rig(defect))], &Options::only(case)).unwrap();
        let Verdict::Failed(why) = verdict(&report) else { panic!("{defect:?} passes {case}") };
        assert!(why.contains(part), "{defect:?}: {why}");
        assert!(!report.is_success());
    }
}

#[test]
fn without_a_defect_the_same_cases_pass() {
    for (_, case, _) in FOUND {
        let suite = Suite::new("", rig(Defect::None)).complete();
        let report = run(vec![suite], &Options::only(case)).unwrap();
        assert_eq!(*verdict(&report), Verdict::Passed, "{case}");
    }
}

#[test]
fn what_a_backend_cannot_do_is_ignored_with_the_reason() {
    let case = "hal::reset::every_handle_of_before_is_stale";
    let report = run(vec![Suite::new("", rig(Defect::NoReset))], &Options::only(case)).unwrap();
    let reason = "needs function resets, the device has none";
    assert_eq!(*verdict(&report), Verdict::Ignored(reason.into()));
    assert!(report.is_success());
    // A backend that is said to be complete has no such excuse.
    let suite = Suite::new("", rig(Defect::NoReset)).complete();
    assert_eq!(
        *verdict(&run(vec![suite], &Options::only(case)).unwrap()),
        Verdict::Failed(reason.into())
    );
    let lacking = rig(Defect::None).lacks(Lack::AccessControl);
    let case = "hal::dma::the_device_cannot_write_what_it_may_only_read";
    let report = run(vec![Suite::new("", lacking)], &Options::only(case)).unwrap();
    assert!(matches!(verdict(&report), Verdict::Ignored(_)), "{report:?}");
}

#[test]
fn expected_failures_are_data_and_must_fail() {
    let case = "hal::dma::sizes_that_cannot_be_are_refused";
    let suite = |defect| Suite::new("", rig(defect)).expect_failure(case, "known since long");
    let report = run(vec![suite(Defect::EmptyBuffers)], &Options::only(case)).unwrap();
    let Verdict::Ignored(why) = verdict(&report) else { panic!("{report:?}") };
    assert!(why.starts_with("fails as expected: known since long [testing/"), "{why}");
    assert!(why.contains("a buffer without bytes: success"), "{why}");
    let report = run(vec![suite(Defect::None)], &Options::only(case)).unwrap();
    let reason = "passes, although it is expected to fail: known since long";
    assert_eq!(*verdict(&report), Verdict::Failed(reason.into()));
    let skipped = Suite::new("x", rig(Defect::EmptyBuffers)).skip("hal::dma::*", "no memory");
    let report = run(vec![skipped], &Options::only(&format!("x::{case}"))).unwrap();
    assert_eq!(*verdict(&report), Verdict::Ignored("no memory".into()));
}

#[test]
fn after_a_case_that_hangs_nothing_more_is_run() {
    let suite = Suite::new("", rig(Defect::IgnoresWake));
    let report = run(vec![suite], &Options::matching("hal::wait::")).unwrap();
    let last = report.cases.last().unwrap();
    assert!(matches!(&last.verdict, Verdict::Failed(why) if why.starts_with("hangs")), "{last:?}");
    assert!(report.not_run > 0, "{report:?}");
    assert!(!report.is_success());
}

/// Keeps a backend with its allocator, which the traits lend out by reference.
#[derive(Debug)]
struct SimHalDma(SimHal);

#[derive(Debug)]
struct Broken {
    dma: BrokenDma,
    defect: Defect,
}

impl Broken {
    fn inner(&self) -> &SimHal {
        &self.dma.inner.0
    }
}

impl ErrorType for Broken {
    type Error = SimError;
}

impl Hal for Broken {
    type Mmio = BrokenWindow;
    type Dma = BrokenDma;
    type Mailbox = BrokenMailbox;
    type Reset = BrokenReset;

    fn window(&self, bar: Bar) -> Result<BrokenWindow, SimError> {
        let board = std::sync::Arc::clone(self.inner().board());
        let inner = self.inner().window(bar)?;
        Ok(BrokenWindow { inner, bar, hal: SimHal::with_board(board), defect: self.defect })
    }

    fn dma(&self) -> &BrokenDma {
        &self.dma
    }

    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<BrokenMailbox, SimError> {
        let inner = self.inner().open_mailbox(layout)?;
        Ok(BrokenMailbox { inner, defect: self.defect, popped: 0.into() })
    }

    fn reset(&self) -> Result<BrokenReset, SimError> {
        Ok(BrokenReset { inner: self.inner().reset()?, defect: self.defect })
    }

    fn generation(&self) -> Generation {
        match self.defect {
            Defect::OldGeneration => Generation(0),
            _ => self.inner().generation(),
        }
    }
}

#[derive(Debug)]
struct BrokenWindow {
    inner: SimWindow,
    bar: Bar,
    hal: SimHal,
    defect: Defect,
}

impl ErrorType for BrokenWindow {
    type Error = SimError;
}

impl Mmio for BrokenWindow {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, at: BarOffset, len: u64) -> AccessPath {
        self.inner.path(at, len)
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, SimError> {
        let outside = at.as_u64() >= self.len_bytes();
        match self.defect {
            Defect::LooseBounds if outside => Ok(width.max_value()),
            Defect::SplitsMisaligned if !outside && !at.is_aligned_to(width.bytes()) => Ok(0),
            Defect::ReadsDoorbells if self.bar.index() == 2 && at.as_u64() >= 0x2000 => Ok(0),
            // The bus splits it.
            Defect::SplitsWide if width == Width::W64 => Ok(self.inner.read(at, Width::W32)?),
            Defect::RevivesHandles => self.hal.window(self.bar)?.read(at, width),
            _ => self.inner.read(at, width),
        }
    }

    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), SimError> {
        let value =
            if self.defect == Defect::CutsValues { value & width.max_value() } else { value };
        self.inner.write(at, width, value)
    }

    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), SimError> {
        self.inner.read_bytes(at, into)
    }

    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), SimError> {
        if self.defect == Defect::WritesWholeWords && self.bar.index() == 0 {
            let mut whole = from.to_vec();
            whole.resize(from.len().next_multiple_of(8), 0);
            return self.inner.write_bytes(at, &whole);
        }
        self.inner.write_bytes(at, from)
    }

    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, SimError> {
        self.inner.load_acquire_u64(at)
    }

    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), SimError> {
        self.inner.store_release_u64(at, value)
    }

    fn flush(&self) -> Result<(), SimError> {
        self.inner.flush()
    }
}

#[derive(Debug)]
struct BrokenDma {
    inner: SimHalDma,
    defect: Defect,
}

impl BrokenDma {
    fn sim(&self) -> &SimDma {
        self.inner.0.dma()
    }
}

impl ErrorType for BrokenDma {
    type Error = SimError;
}

impl Dma for BrokenDma {
    type Buffer = BrokenBuffer;

    fn limits(&self) -> DmaLimits {
        self.sim().limits()
    }

    fn alloc(&self, len_bytes: usize, access: DeviceAccess) -> Result<BrokenBuffer, SimError> {
        let len = match self.defect {
            Defect::RoundsLengths => len_bytes.next_multiple_of(4096),
            Defect::EmptyBuffers => len_bytes.max(1),
            _ => len_bytes,
        };
        let access =
            if self.defect == Defect::AllMayWrite { DeviceAccess::ReadWrite } else { access };
        let mut inner = self.sim().alloc(len, access)?;
        if self.defect == Defect::DirtyBuffers {
            inner.fill(len - 1, 1, 1).unwrap();
        }
        Ok(BrokenBuffer { inner, defect: self.defect })
    }

    fn sync_for_device(&self, buffer: &BrokenBuffer, range: Range<usize>) -> Result<(), SimError> {
        self.sim().sync_for_device(&buffer.inner, range)
    }

    fn sync_for_cpu(&self, buffer: &BrokenBuffer, range: Range<usize>) -> Result<(), SimError> {
        self.sim().sync_for_cpu(&buffer.inner, range)
    }

    fn import_granule(&self) -> Option<usize> {
        self.sim().import_granule()
    }

    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Option<BrokenBuffer>, SimError> {
        if self.defect == Defect::ImportsCopies {
            let mut copy = self.alloc(len_bytes, access)?;
            // SAFETY: the caller promises that the memory is there.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), len_bytes) };
            copy.copy_in(0, bytes).unwrap();
            return Ok(Some(copy));
        }
        // SAFETY: the caller's promise is passed on.
        let inner = unsafe { self.sim().import_buffer(memory, len_bytes, access) }?;
        Ok(inner.map(|inner| BrokenBuffer { inner, defect: self.defect }))
    }
}

#[derive(Debug)]
struct BrokenBuffer {
    inner: SimBuffer,
    defect: Defect,
}

// SAFETY: as for the buffer inside, whose pointer and length these are.
unsafe impl ReadBuffer for BrokenBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.read_buffer() }
    }
}

// SAFETY: as above.
unsafe impl WriteBuffer for BrokenBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.write_buffer() }
    }
}

// SAFETY: the memory is that of the buffer inside. A wrong bus address, which is a defect to be
// found, leads nowhere in this simulator.
unsafe impl DmaBuffer for BrokenBuffer {
    fn bus_addr(&self) -> BusAddr {
        match self.defect {
            Defect::OneBusAddress => BusAddr::new(0x1_0000_0000),
            _ => self.inner.bus_addr(),
        }
    }

    fn len_bytes(&self) -> usize {
        self.inner.len_bytes()
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        let cut = if self.defect == Defect::ForgetsTails { from.len() % 8 % 2 } else { 0 };
        self.inner.copy_in(offset, &from[..from.len() - cut])
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        self.inner.copy_out(offset, into)
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        self.inner.fill(offset, len, byte)
    }
}

#[derive(Debug)]
struct BrokenMailbox {
    inner: SimMailbox,
    defect: Defect,
    popped: std::sync::atomic::AtomicU32,
}

impl ErrorType for BrokenMailbox {
    type Error = SimError;
}

impl Mailbox for BrokenMailbox {
    fn max_message_bytes(&self, queue: QueueId) -> Result<usize, SimError> {
        self.inner.max_message_bytes(queue)
    }

    fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, SimError> {
        self.inner.push(queue, message)
    }

    fn kick(&self) -> Result<(), SimError> {
        self.inner.kick()
    }

    fn pop(&self, into: &mut [u8]) -> Result<Pop, SimError> {
        let mut large = [0; 512];
        let popped = match self.defect {
            Defect::DropsWhatDoesNotFit if into.len() < 24 => {
                let outcome = self.inner.pop(into);
                if outcome.is_err() {
                    let _ = self.inner.pop(&mut large)?;
                }
                return outcome;
            }
            _ => self.inner.pop(into)?,
        };
        let is_message = matches!(popped, Pop::Message(_));
        let count =
            self.popped.fetch_add(u32::from(is_message), std::sync::atomic::Ordering::Relaxed);
        match self.defect {
            Defect::LosesMessages if is_message && count == 200 => Ok(Pop::Empty),
            _ => Ok(popped),
        }
    }

    fn ticket(&self) -> Ticket {
        self.inner.ticket()
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, SimError> {
        match self.defect {
            Defect::MissesThePast => self.endless(self.inner.ticket(), timeout),
            Defect::IgnoresWake => self.endless(seen, timeout),
            Defect::Oversleeps => self.endless(seen, timeout + Duration::from_millis(1200)),
            _ => self.inner.wait(seen, timeout),
        }
    }

    fn wake(&self) {
        if self.defect != Defect::IgnoresWake {
            self.inner.wake();
        }
    }
}

impl BrokenMailbox {
    /// The simulator itself returns from a wait from time to time, which would hide what is lost.
    fn endless(&self, seen: Ticket, timeout: Duration) -> Result<Wake, SimError> {
        let started = std::time::Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let wake = self.inner.wait(seen, left)?;
            if wake == Wake::TimedOut || self.inner.ticket() != seen {
                return Ok(wake);
            }
        }
    }
}

#[derive(Debug)]
struct BrokenReset {
    inner: SimReset,
    defect: Defect,
}

impl ErrorType for BrokenReset {
    type Error = SimError;
}

impl Reset for BrokenReset {
    fn loss(&self, scope: ResetScope) -> Option<Loss> {
        let loss = self.inner.loss(scope)?;
        match self.defect {
            Defect::NoReset => None,
            Defect::ForgetsMemory => Some(Loss { memory: false, ..loss }),
            _ => Some(loss),
        }
    }

    fn begin(&mut self, scope: ResetScope) -> Result<(), SimError> {
        let forgets = self.defect == Defect::ForgetsMemory && scope == ResetScope::Function;
        self.inner.begin(if forgets { ResetScope::Slot } else { scope })
    }

    fn poll(&mut self) -> Result<ResetState, SimError> {
        let state = self.inner.poll()?;
        match (self.defect, state) {
            (Defect::OldGeneration, ResetState::Done(_)) => Ok(ResetState::Done(Generation(0))),
            _ => Ok(state),
        }
    }
}
