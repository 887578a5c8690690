//! Waiting for interrupts, by any number of threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sync::lock;
use crate::sys::{Errno, Fd, Handle, Sys, retry};
use crate::{Call, LostBecause, VfioError};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// An interrupt came, or the waiters were woken.
    Notified,
    /// The time passed.
    Nothing,
    /// The device is gone.
    Lost(LostBecause),
}

/// Event counters that stay raised for good: the device is gone.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    pub(crate) error: Option<Handle>,
    pub(crate) request: Option<Handle>,
    /// Of the transport, which outlives the waits.
    pub(crate) gone: Option<Fd>,
}

/// Who waits.
#[derive(Debug, Default)]
struct Waiters {
    /// A thread polls.
    polling: bool,
    /// So many others wait until that one has heard something.
    others: usize,
}

/// Turns event counters into notifications with a number.
///
/// One waiter at a time polls the counters; when it hears something it clears them, counts on, and
/// wakes the others. An event that no thread waits for stays in its counter, so nothing is lost
/// between two waits.
#[derive(Debug)]
pub(crate) struct Notifier {
    sys: Arc<dyn Sys>,
    events: Vec<Arc<Handle>>,
    /// Raised by [`wake`](Self::wake).
    wake: Handle,
    alarms: Arc<Alarms>,
    epoch: AtomicU64,
    /// Interrupts among what was heard.
    interrupts: AtomicU64,
    waiters: Mutex<Waiters>,
    change: Condvar,
}

impl Notifier {
    pub(crate) fn new(
        sys: &Arc<dyn Sys>,
        events: Vec<Arc<Handle>>,
        alarms: &Arc<Alarms>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            sys: Arc::clone(sys),
            events,
            wake: Handle::event(sys)?,
            alarms: Arc::clone(alarms),
            epoch: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            waiters: Mutex::default(),
            change: Condvar::new(),
        })
    }

    pub(crate) fn epoch(&self) -> u64 {
        // Acquire: what the interrupt announced is looked at after.
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns how often the device was heard; what came between two looks counts once.
    pub(crate) fn interrupts(&self) -> u64 {
        // Relaxed: a number that is compared with itself.
        self.interrupts.load(Ordering::Relaxed)
    }

    /// Makes every present wait return, and the next of each ticket taken before.
    pub(crate) fn wake(&self) {
        self.sys.raise(self.wake.fd());
    }

    /// Waits until the epoch is another than `seen`.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) -> Result<Heard, VfioError> {
        let deadline = Instant::now().checked_add(timeout);
        let left = || {
            deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            })
        };
        let mut waiters = lock(&self.waiters);
        let mut looked = false;
        loop {
            if self.epoch() != seen {
                return Ok(Heard::Notified);
            }
            let left = left();
            if looked && left.is_zero() {
                return Ok(Heard::Nothing);
            }
            looked = true;
            if waiters.polling {
                waiters.others += 1;
                let waited = self.change.wait_timeout(waiters, left);
                (waiters, _) = waited.unwrap_or_else(PoisonError::into_inner);
                waiters.others -= 1;
                continue;
            }
            waiters.polling = true;
            drop(waiters);
            let heard = self.poll(left);
            waiters = lock(&self.waiters);
            waiters.polling = false;
            // The others look at the epoch; if it has not changed, one of them polls on. To notify
            // is a system call even if no thread waits.
            if waiters.others != 0 {
                self.change.notify_all();
            }
            match heard? {
                Heard::Nothing => {}
                heard => return Ok(heard),
            }
        }
    }

    /// The counters that say that the device is gone, and why.
    fn alarms(&self) -> Vec<(Fd, LostBecause)> {
        let Alarms { error, request, gone } = &*self.alarms;
        let fd = |alarm: &Option<Handle>| alarm.as_ref().map(Handle::fd);
        let all = [
            (fd(request), LostBecause::RemovalRequested),
            (fd(error), LostBecause::BusError),
            (*gone, LostBecause::Disconnected),
        ];
        all.into_iter().filter_map(|(fd, because)| Some((fd?, because))).collect()
    }

    /// Returns why the device is gone, if it is, without taking notifications away.
    pub(crate) fn alarm(&self) -> Result<Option<LostBecause>, VfioError> {
        let alarms = self.alarms();
        let fds: Vec<_> = alarms.iter().map(|(fd, _)| *fd).collect();
        let ready = retry(|| self.sys.poll(&fds, Duration::ZERO))
            .map_err(|errno| VfioError::call(Call::Poll, "interrupts", errno))?;
        let raised = alarms.iter().enumerate().find(|(index, _)| ready >> index & 1 != 0);
        Ok(raised.map(|(_, (_, because))| *because))
    }

    fn poll(&self, timeout: Duration) -> Result<Heard, VfioError> {
        let mut fds: Vec<_> = self.events.iter().map(|event| event.fd()).collect();
        fds.push(self.wake.fd());
        let ordinary = fds.len();
        let reasons = self.alarms();
        fds.extend(reasons.iter().map(|(fd, _)| *fd));
        let ready = match self.sys.poll(&fds, timeout) {
            // The wait goes on if there is time.
            Err(Errno::INTR) => return Ok(Heard::Nothing),
            ready => ready.map_err(|errno| VfioError::call(Call::Poll, "interrupts", errno))?,
        };
        for (index, (_, because)) in reasons.iter().enumerate() {
            if ready >> (ordinary + index) & 1 != 0 {
                return Ok(Heard::Lost(*because));
            }
        }
        let mut heard = false;
        let mut is_interrupt = false;
        for (index, &fd) in fds.iter().take(ordinary).enumerate() {
            if ready >> index & 1 != 0 && self.sys.clear(fd) {
                heard = true;
                is_interrupt |= index < self.events.len();
            }
        }
        if is_interrupt {
            self.interrupts.fetch_add(1, Ordering::Relaxed);
        }
        if !heard {
            return Ok(Heard::Nothing);
        }
        // Release: pairs with the Acquire in `epoch`.
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(Heard::Notified)
    }
}
