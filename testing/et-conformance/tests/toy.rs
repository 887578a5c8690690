//! The backend of the book's chapter "Writing a backend", complete: a card in this process, whose
//! BARs, interrupts and host memory are reached by the calls of `et-sim-device`. A backend of your
//! own has ioctls, sockets or a debugger's probe in their place.

#![expect(unsafe_code, reason = "memory for DMA is an unsafe trait")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_conformance::runner::Suite;
use et_conformance::{Rig, harness};
use et_devapi::mailbox::{MailboxError, RingMailbox, Signal};
use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    AccessError, AccessPath, Bar, BarOffset, BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits,
    Endpoint, ErrorKind, ErrorType, Generation, Hal, Loss, MailboxLayout, Mmio, OutOfRange, Reset,
    ResetScope, ResetState, Resource, Ticket, Wake, Width, Widths,
};
use et_sim_device::{BarWindow, Board, Link, MemoryAfterReset, Waited};
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

// 1. One error type. Generic code looks at the kind, people read the text.

#[derive(Debug, thiserror::Error)]
enum ToyError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("range is outside the buffer")]
    Buffer(#[from] OutOfRange),
    #[error("the mailbox failed")]
    Mailbox(#[source] Box<MailboxError<ToyError>>),
    #[error("{what}")]
    Other { what: &'static str, kind: ErrorKind },
}

impl ToyError {
    fn new(what: &'static str, kind: ErrorKind) -> Self {
        Self::Other { what, kind }
    }

    fn stale() -> Self {
        Self::new("the handle is older than the last reset", ErrorKind::Stale)
    }
}

impl et_hal::Error for ToyError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Access(error) => error.kind(),
            Self::Buffer(_) => ErrorKind::OutOfBounds,
            Self::Mailbox(error) => error.kind(),
            Self::Other { kind, .. } => *kind,
        }
    }
}

impl From<MailboxError<Self>> for ToyError {
    fn from(error: MailboxError<Self>) -> Self {
        match error {
            MailboxError::Access(error) => error,
            error => Self::Mailbox(Box::new(error)),
        }
    }
}

// 2. Windows: every access is checked, then made once. A card that does not answer reads as ones.

#[derive(Clone, Debug)]
struct Window {
    bar: BarWindow,
    generation: Generation,
}

impl Window {
    /// Returns `true` if the card answers.
    fn answers(&self) -> Result<bool, ToyError> {
        self.bar.is_open(self.generation).map_err(|_| ToyError::stale())
    }

    /// Checks a range of memory: doorbells are registers, and writing is all that they take.
    fn memory(&self, at: BarOffset, len: u64) -> Result<(), ToyError> {
        AccessError::check(at, len, self.bar.len_bytes())?;
        match self.bar.has_doorbells(at, len) {
            true => Err(ToyError::new("doorbells are only written", ErrorKind::Unsupported)),
            false => Ok(()),
        }
    }

    fn register(&self, at: BarOffset, width: Width) -> Result<(), ToyError> {
        AccessError::check_register(at, width, self.bar.len_bytes())?;
        self.memory(at, width.bytes())
    }
}

impl ErrorType for Window {
    type Error = ToyError;
}

impl Mmio for Window {
    fn len_bytes(&self) -> u64 {
        self.bar.len_bytes()
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, ToyError> {
        let answers = self.answers()?;
        self.register(at, width)?;
        Ok(if answers { self.bar.read(at, width) } else { width.max_value() })
    }

    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), ToyError> {
        let answers = self.answers()?;
        AccessError::check_write(at, width, value, self.bar.len_bytes())?;
        if answers {
            self.bar.write(at, width, value);
        }
        Ok(())
    }

    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), ToyError> {
        let answers = self.answers()?;
        self.memory(at, into.len() as u64)?;
        match answers {
            true => self.bar.read_bytes(at, into),
            false => into.fill(0xff),
        }
        Ok(())
    }

    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), ToyError> {
        let answers = self.answers()?;
        self.memory(at, from.len() as u64)?;
        if answers {
            self.bar.write_bytes(at, from);
        }
        Ok(())
    }

    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, ToyError> {
        let answers = self.answers()?;
        self.register(at, Width::W64)?;
        Ok(if answers { self.bar.load_acquire_u64(at) } else { u64::MAX })
    }

    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), ToyError> {
        let answers = self.answers()?;
        self.register(at, Width::W64)?;
        if answers {
            self.bar.store_release_u64(at, value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), ToyError> {
        self.answers().map(|_| ())
    }
}

// 3. Memory that the device reaches. Bus addresses are never used twice, so that a late transfer of
// the device hits nothing.

const PAGE: usize = 4096;
const LARGEST: usize = 1 << 30;

#[derive(Debug)]
struct Memory {
    board: Arc<Board>,
    next: AtomicU64,
}

impl ErrorType for Memory {
    type Error = ToyError;
}

impl Dma for Memory {
    type Buffer = Buffer;

    fn limits(&self) -> DmaLimits {
        DmaLimits { alignment_bytes: PAGE, max_buffer_bytes: LARGEST, total_bytes: None }
    }

    fn alloc(&self, len: usize, access: DeviceAccess) -> Result<Buffer, ToyError> {
        if !(1..=LARGEST).contains(&len) {
            return Err(ToyError::new("no buffer has this length", ErrorKind::TooLarge));
        }
        if self.board.resetting() {
            return Err(ToyError::stale());
        }
        let none = |kind| ToyError::new("no memory for a buffer", ErrorKind::Exhausted(kind));
        let memory = MmapRegion::new(len).map_err(|_| none(Resource::HostMemory))?;
        let memory = Arc::new(memory);
        // A hole between two buffers. Relaxed: only the number counts.
        let step = (len.next_multiple_of(PAGE) + PAGE) as u64;
        let bus = BusAddr::new(self.next.fetch_add(step, Ordering::Relaxed));
        let mapped = self.board.host_memory().map(bus, Arc::clone(&memory), access);
        mapped.map_err(|_| none(Resource::BusAddresses))?;
        Ok(Buffer { board: Arc::clone(&self.board), memory, bus })
    }

    // Host and device see the same memory: nothing to do but to check.
    fn sync_for_device(&self, buffer: &Buffer, range: Range<usize>) -> Result<(), ToyError> {
        buffer.check(&range)
    }

    fn sync_for_cpu(&self, buffer: &Buffer, range: Range<usize>) -> Result<(), ToyError> {
        buffer.check(&range)
    }
}

#[derive(Debug)]
struct Buffer {
    board: Arc<Board>,
    memory: Arc<MmapRegion>,
    bus: BusAddr,
}

impl Buffer {
    fn check(&self, range: &Range<usize>) -> Result<(), ToyError> {
        let (offset, buffer) = (range.start, self.memory.size());
        let outside = OutOfRange { offset, len: 0, buffer };
        let len = range.end.checked_sub(range.start).ok_or(outside)?;
        Ok(OutOfRange::check(offset, len, buffer).map(|_| ())?)
    }

    fn slice(&self, offset: usize, len: usize) -> Result<vm_memory::VolatileSlice<'_>, OutOfRange> {
        let buffer = self.memory.size();
        OutOfRange::check(offset, len, buffer)?;
        self.memory.get_slice(offset, len).map_err(|_| OutOfRange { offset, len, buffer })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The device faults from here on; a transfer in progress keeps the memory.
        let _ = self.board.host_memory().unmap(self.bus);
    }
}

// SAFETY: pointer and length are those of a mapping that `self.memory` owns, initialised, and
// neither changes.
unsafe impl ReadBuffer for Buffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        (self.memory.as_ptr(), self.memory.size())
    }
}

// SAFETY: as above, and the mapping is writable.
unsafe impl WriteBuffer for Buffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        (self.memory.as_ptr(), self.memory.size())
    }
}

// SAFETY: the memory stays where it is until this value and the board's mapping are gone; `bus` was
// mapped to exactly this memory, and is never used again.
unsafe impl DmaBuffer for Buffer {
    fn bus_addr(&self) -> BusAddr {
        self.bus
    }

    fn len_bytes(&self) -> usize {
        self.memory.size()
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        self.slice(offset, from.len())?.copy_from(from);
        Ok(())
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        self.slice(offset, into.len())?.copy_to(into);
        Ok(())
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        let slice = self.slice(offset, len)?;
        let piece = [byte; PAGE];
        let mut at = 0;
        while at < len {
            let step = PAGE.min(len - at);
            let written = slice.write_slice(&piece[..step], at);
            written.map_err(|_| OutOfRange { offset, len, buffer: self.memory.size() })?;
            at += step;
        }
        Ok(())
    }
}

// 4. Interrupts. The rings are those of `RingMailbox`; a backend says how one waits.

/// A wait that is longer looks by itself now and then: an interrupt may have been lost.
const LONGEST: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Bell {
    board: Arc<Board>,
    generation: Generation,
    endpoint: Endpoint,
}

impl ErrorType for Bell {
    type Error = ToyError;
}

impl Signal for Bell {
    /// Counts interrupts: one that comes between look and wait has changed it.
    fn ticket(&self) -> Ticket {
        Ticket(self.board.interrupts().event(self.endpoint).epoch().into())
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, ToyError> {
        self.verify()?;
        let event = self.board.interrupts().event(self.endpoint);
        let Ok(seen) = u32::try_from(seen.0) else { return Ok(Wake::Notified) };
        let raised = event.wait(seen, timeout.min(LONGEST)) == Waited::Raised;
        self.verify()?;
        // After a short wait the caller looks, too: it costs nothing, and nothing gets lost.
        Ok(if raised || timeout > LONGEST { Wake::Notified } else { Wake::TimedOut })
    }

    fn wake(&self) {
        self.board.interrupts().event(self.endpoint).raise();
    }

    fn verify(&self) -> Result<(), ToyError> {
        match self.board.link(self.generation) {
            Link::Stale => Err(ToyError::stale()),
            Link::Up | Link::Down => Ok(()),
        }
    }

    fn glance(&self) -> Result<(), ToyError> {
        Ok(())
    }
}

// 5. Resets: one holder at a time, and what each scope destroys is said before.

#[derive(Debug)]
struct Resets {
    board: Arc<Board>,
    taken: Arc<AtomicBool>,
}

fn memory_after(scope: ResetScope) -> Option<MemoryAfterReset> {
    match scope {
        ResetScope::Function => Some(MemoryAfterReset::Kept),
        ResetScope::Slot => Some(MemoryAfterReset::Cleared),
        _ => None,
    }
}

impl Drop for Resets {
    fn drop(&mut self) {
        // Release: the next holder sees what this one has done.
        self.taken.store(false, Ordering::Release);
    }
}

impl ErrorType for Resets {
    type Error = ToyError;
}

impl Reset for Resets {
    fn loss(&self, scope: ResetScope) -> Option<Loss> {
        let memory = memory_after(scope)? == MemoryAfterReset::Cleared;
        Some(Loss { queues: true, compute: true, memory })
    }

    fn begin(&mut self, scope: ResetScope) -> Result<(), ToyError> {
        let none = ToyError::new("the bus cannot make this reset", ErrorKind::Unsupported);
        let memory = memory_after(scope).ok_or(none)?;
        let begun = self.board.begin_reset(memory);
        begun.map(|_| ()).map_err(|_| ToyError::new("a reset is in progress", ErrorKind::Busy))
    }

    fn poll(&mut self) -> Result<ResetState, ToyError> {
        Ok(match self.board.resetting() {
            true => ResetState::InProgress,
            false => ResetState::Done(self.board.generation()),
        })
    }
}

// 6. The bundle, and the suite that all backends pass.

#[derive(Debug)]
struct Toy {
    board: Arc<Board>,
    memory: Memory,
    reset_taken: Arc<AtomicBool>,
}

impl Toy {
    fn open(board: &str) -> Result<Self, ToyError> {
        let config = board.parse();
        let config = config.map_err(|_| ToyError::new("no such board", ErrorKind::Invalid))?;
        let board = Board::power_on(config);
        let board = board.map_err(|_| ToyError::new("the board is dead", ErrorKind::Other))?;
        let memory = Memory { board: Arc::clone(&board), next: AtomicU64::new(1 << 32) };
        Ok(Self { board, memory, reset_taken: Arc::default() })
    }
}

impl ErrorType for Toy {
    type Error = ToyError;
}

impl Hal for Toy {
    type Mmio = Window;
    type Dma = Memory;
    type Mailbox = RingMailbox<Window, Bell, ToyError>;
    type Reset = Resets;

    fn window(&self, bar: Bar) -> Result<Window, ToyError> {
        let none = ToyError::new("no window on this BAR", ErrorKind::Unsupported);
        let bar = BarWindow::new(Arc::clone(&self.board), bar).ok_or(none)?;
        Ok(Window { bar, generation: self.board.generation() })
    }

    fn dma(&self) -> &Memory {
        &self.memory
    }

    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<Self::Mailbox, ToyError> {
        let (board, generation) = (Arc::clone(&self.board), self.board.generation());
        let bell = Bell { board, generation, endpoint: layout.endpoint };
        Ok(RingMailbox::attach(self.window(MAILBOX_BAR)?, bell, *layout)?)
    }

    fn reset(&self) -> Result<Resets, ToyError> {
        // Acquire: pairs with the release of the holder before.
        if self.reset_taken.swap(true, Ordering::Acquire) {
            return Err(ToyError::new("another has the resets", ErrorKind::Busy));
        }
        Ok(Resets { board: Arc::clone(&self.board), taken: Arc::clone(&self.reset_taken) })
    }

    fn generation(&self) -> Generation {
        self.board.generation()
    }
}

fn main() -> ExitCode {
    let open = || Toy::open("cpu-access=yes,shires=4,dram=1GiB");
    // A look before the first case, for a message that names the reason.
    drop(open().unwrap());
    harness(vec![Suite::new("toy", Rig::new(open)).complete()])
}
