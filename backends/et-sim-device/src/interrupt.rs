//! The four interrupt vectors towards the host, and the doorbells towards the device.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use et_devapi::pci::Vector;
use et_hal::Endpoint;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::{Event, Fault, Waited};

/// The interrupts of the device, as the host sees them: one [`Event`] for each endpoint.
///
/// Only the firmware thread raises them.
///
/// Spec: §2.1
#[derive(Debug)]
pub struct Interrupts {
    operations: CachePadded<Event>,
    management: CachePadded<Event>,
    raised: CachePadded<[AtomicU64; 4]>,
    /// Lines to a host in another process, by vector.
    lines: Mutex<[Option<Box<dyn InterruptLine>>; 4]>,
    has_lines: AtomicBool,
    /// Vectors raised since the last [`flush`](Self::flush), as bits.
    unsent: AtomicU8,
    /// The device may not master the bus, and an MSI is a write on the bus.
    is_muted: AtomicBool,
    faults: InterruptFaults,
}

/// A way for an interrupt to a host in another process.
pub trait InterruptLine: std::fmt::Debug + Send + Sync {
    /// Signals the host. The firmware thread calls it: it must not block, whatever the host does.
    fn signal(&self);

    /// Returns a number that is the same for lines that the host cannot tell apart, if there is
    /// one.
    fn id(&self) -> Option<u64>;
}

/// Vectors in the order in which lines are signalled: whoever hears of a completion first finds it
/// at once.
const SIGNALLED: [Vector; 4] =
    [Vector::OpsCompletion, Vector::MgmtCompletion, Vector::OpsSubmission, Vector::MgmtSubmission];

/// Periods in interrupts; 0 is never.
#[derive(Debug, Default)]
struct InterruptFaults {
    spurious: AtomicU32,
    lost: AtomicU32,
    count: AtomicU32,
}

impl Interrupts {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let this = Self {
            operations: CachePadded::default(),
            management: CachePadded::default(),
            raised: CachePadded::default(),
            lines: Mutex::default(),
            has_lines: AtomicBool::new(false),
            unsent: AtomicU8::new(0),
            is_muted: AtomicBool::new(false),
            faults: InterruptFaults::default(),
        };
        for fault in faults {
            this.add_fault(*fault);
        }
        this
    }

    /// Starts to do something wrong, if the fault is one of interrupts; they are counted from now.
    pub(crate) fn add_fault(&self, fault: Fault) {
        let faults = &self.faults;
        let (period, every) = match fault {
            Fault::SpuriousInterrupts { every } => (&faults.spurious, every),
            Fault::LostInterrupts { every } => (&faults.lost, every),
            _ => return,
        };
        // Relaxed: the firmware thread alone raises interrupts, and adds faults once it runs.
        faults.count.store(0, Ordering::Relaxed);
        period.store(every.get(), Ordering::Relaxed);
    }

    /// Returns the event that both vectors of the endpoint raise.
    #[must_use]
    pub fn event(&self, endpoint: Endpoint) -> &Event {
        match endpoint {
            Endpoint::Management => &self.management,
            _ => &self.operations,
        }
    }

    /// Returns how many interrupts of this vector have reached the host.
    #[must_use]
    pub fn raised(&self, vector: Vector) -> u64 {
        self.raised[vector as usize].load(Ordering::Relaxed)
    }

    /// Connects a vector to a line, or disconnects it.
    pub fn connect(&self, vector: Vector, line: Option<Box<dyn InterruptLine>>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[vector as usize] = line;
        let any = lines.iter().any(Option::is_some);
        // Under the lock, so that the flag says what is connected.
        self.has_lines.store(any, Ordering::Release);
    }

    /// Allows or forbids the device to master the bus: an MSI is a write on it.
    pub fn set_bus_master(&self, is_allowed: bool) {
        self.is_muted.store(!is_allowed, Ordering::Relaxed);
    }

    /// Signals the line of a vector as if the device had raised it, for a test of the wiring.
    pub fn trigger(&self, vector: Vector) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &lines[vector as usize] {
            line.signal();
        }
    }

    #[inline]
    pub(crate) fn raise(&self, vector: Vector) {
        let InterruptFaults { spurious, lost, .. } = &self.faults;
        if (spurious.load(Ordering::Relaxed) | lost.load(Ordering::Relaxed)) == 0 {
            self.deliver(vector);
        } else {
            self.raise_badly(vector);
        }
    }

    fn deliver(&self, vector: Vector) {
        let raised = &self.raised[vector as usize];
        // Relaxed, and no read-modify-write: a statistic with one writer.
        raised.store(raised.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        match vector {
            Vector::MgmtSubmission | Vector::MgmtCompletion => self.management.raise(),
            Vector::OpsSubmission | Vector::OpsCompletion => self.operations.raise(),
        }
        if self.has_lines.load(Ordering::Acquire) && !self.is_muted.load(Ordering::Relaxed) {
            // Relaxed, and no read-modify-write: only this thread uses it.
            self.unsent
                .store(self.unsent.load(Ordering::Relaxed) | 1 << vector as u8, Ordering::Relaxed);
        }
    }

    /// Signals the lines of what was raised since the last time: each once, and none before the
    /// device has published what it says. To signal takes longer than to execute a small command.
    pub(crate) fn flush(&self) {
        let unsent = self.unsent.load(Ordering::Relaxed);
        if unsent == 0 {
            return;
        }
        self.unsent.store(0, Ordering::Relaxed);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done: [Option<u64>; 4] = [None; 4];
        for (vector, done_at) in SIGNALLED.into_iter().zip(0..) {
            let Some(line) = lines[vector as usize].as_ref() else { continue };
            let id = line.id();
            if unsent & 1 << vector as u8 == 0 || id.is_some() && done.contains(&id) {
                continue;
            }
            line.signal();
            done[done_at] = id;
        }
    }

    #[cold]
    fn raise_badly(&self, vector: Vector) {
        let faults = &self.faults;
        let count = faults.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let hits = |every: &AtomicU32| {
            let every = every.load(Ordering::Relaxed);
            every != 0 && count.is_multiple_of(every)
        };
        if hits(&faults.spurious) {
            for any in [
                Vector::MgmtSubmission,
                Vector::MgmtCompletion,
                Vector::OpsSubmission,
                Vector::OpsCompletion,
            ] {
                self.deliver(any);
            }
        } else if !hits(&faults.lost) {
            self.deliver(vector);
        }
    }
}

/// Adds one to an eventfd of this process.
fn signal(line: &OwnedFd) {
    // Full means that the other side has not looked for 2⁶⁴ times; it will look.
    let (Ok(_) | Err(_)) = rustix::io::write(line, &1_u64.to_le_bytes());
}

/// Takes what has been added to an eventfd; 0 if nothing was.
///
/// A host that has the eventfd too can clear `O_NONBLOCK`, which belongs to the open file, and a
/// plain read would then wait for its next doorbell. So each read says for itself that it does not.
fn drain(line: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    let into = &mut [IoSliceMut::new(&mut count)];
    let read = match preadv2(line, into, CURRENT, ReadWriteFlags::NOWAIT) {
        // Kernels before 5.8 know that of files only.
        Err(Errno::OPNOTSUPP) => rustix::io::read(line, &mut count),
        read => read,
    };
    match read {
        Ok(8) => u64::from_le_bytes(count),
        _ => 0,
    }
}

/// Offset of a read that is made at no place of its own.
const CURRENT: u64 = u64::MAX;

/// Sleeps as long as this end by an event or not at all.
const FAR: Duration = Duration::from_secs(1000);

/// Doorbells as eventfds, for a host in another process.
#[derive(Debug)]
pub struct DoorbellLines {
    operations: OwnedFd,
    management: OwnedFd,
    /// What happens on this side, while the firmware sleeps.
    wake: OwnedFd,
    /// The firmware sleeps, or is about to.
    is_asleep: AtomicBool,
}

impl DoorbellLines {
    fn new() -> io::Result<Self> {
        let line =
            || Ok::<_, io::Error>(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (operations, management, wake) = (line()?, line()?, line()?);
        Ok(Self { operations, management, wake, is_asleep: AtomicBool::new(false) })
    }

    /// Returns the eventfd that is the doorbell of an endpoint.
    #[must_use]
    pub fn line(&self, endpoint: Endpoint) -> BorrowedFd<'_> {
        match endpoint {
            Endpoint::Management => self.management.as_fd(),
            _ => self.operations.as_fd(),
        }
    }

    /// Waits until one of the eventfds is signalled, or for `timeout`; tells which are, operations,
    /// management and what happens on this side.
    fn poll(&self, timeout: Duration) -> [bool; 3] {
        // A limit that far away is none, and saves the kernel a timer.
        let limit = (timeout < FAR).then(|| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let fd = |line| PollFd::new(line, PollFlags::IN);
        let mut fds = [fd(&self.operations), fd(&self.management), fd(&self.wake)];
        // An interruption is as good as a timeout: the caller looks.
        let (Ok(_) | Err(_)) = poll(&mut fds, limit.as_ref());
        fds.map(|fd| !fd.revents().is_empty())
    }
}

/// What wakes the firmware thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Doorbell writes for the operations endpoint.
    operations: AtomicU32,
    /// Doorbell writes for the management endpoint.
    management: AtomicU32,
    /// Doorbells, ended kernels, power and reset.
    event: Event,
    lines: OnceLock<DoorbellLines>,
}

impl Bell {
    #[inline]
    pub(crate) fn ring(&self, endpoint: Endpoint) {
        self.count(endpoint, 1);
        self.raise();
    }

    #[inline]
    fn count(&self, endpoint: Endpoint, times: u32) {
        // Release: the messages pushed before are visible to a thread that sees the count.
        match endpoint {
            Endpoint::Management => self.management.fetch_add(times, Ordering::Release),
            _ => self.operations.fetch_add(times, Ordering::Release),
        };
    }

    /// Returns the number of doorbell writes, modulo 2³².
    #[inline]
    pub(crate) fn rung(&self, endpoint: Endpoint) -> u32 {
        // Acquire: pairs with the release in `count`.
        match endpoint {
            Endpoint::Management => self.management.load(Ordering::Acquire),
            _ => self.operations.load(Ordering::Acquire),
        }
    }

    /// Makes the firmware look.
    #[inline]
    pub(crate) fn raise(&self) {
        self.event.raise();
        if let Some(lines) = self.lines.get()
            && lines.is_asleep.load(Ordering::SeqCst)
        {
            signal(&lines.wake);
        }
    }

    /// Returns how often the firmware was made to look.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.event.epoch()
    }

    pub(crate) fn lines(&self) -> io::Result<&DoorbellLines> {
        if self.lines.get().is_none() {
            // If another caller was faster, its lines are as good.
            let (Ok(()) | Err(_)) = self.lines.set(DoorbellLines::new()?);
            // The firmware may sleep without looking at them.
            self.event.raise();
        }
        self.lines.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Counts the doorbells that another process has rung; returns `true` if there were any.
    pub(crate) fn look(&self) -> bool {
        // Each is asked.
        self.look_at(Endpoint::Operations) | self.look_at(Endpoint::Management)
    }

    /// The same for one endpoint.
    pub(crate) fn look_at(&self, endpoint: Endpoint) -> bool {
        let Some(lines) = self.lines.get() else { return false };
        let times = drain(match endpoint {
            Endpoint::Management => &lines.management,
            _ => &lines.operations,
        });
        if times == 0 {
            return false;
        }
        self.count(endpoint, u32::try_from(times).unwrap_or(u32::MAX));
        self.event.raise();
        true
    }

    /// Returns `true` if another process may ring.
    pub(crate) fn has_lines(&self) -> bool {
        self.lines.get().is_some()
    }

    /// Sleeps until the epoch differs from `seen`, at most for `timeout`.
    pub(crate) fn wait(&self, seen: u32, timeout: Duration) {
        let Some(lines) = self.lines.get() else {
            let (Waited::Raised | Waited::TimedOut) = self.event.wait(seen, timeout);
            return;
        };
        // SeqCst on both sides: either this thread sees the new epoch, or `raise` sees the sleeper.
        lines.is_asleep.store(true, Ordering::SeqCst);
        let mut is_ready = [false; 3];
        if self.event.epoch() == seen {
            is_ready = lines.poll(timeout);
        }
        lines.is_asleep.store(false, Ordering::Relaxed);
        let [operations, management, wake] = is_ready;
        if operations {
            self.look_at(Endpoint::Operations);
        }
        if management {
            self.look_at(Endpoint::Management);
        }
        if wake {
            drain(&lines.wake);
        }
    }
}
