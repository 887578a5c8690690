//! The interrupts of one endpoint, as a mailbox waits for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use et_devapi::mailbox::Signal;
use et_hal::{AccessPath, BarOffset, ErrorType, Mmio, Ticket, Wake};

use crate::notifier::{Heard, Notifier};
use crate::owed::Owed;
use crate::shared::Shared;
use crate::sync::lock;
use crate::{VfioError, VfioOptions, VfioWindow};

/// How long messages can go unnoticed whose interrupt does not come; a look costs a bus read or
/// two.
const RARE_LOOK: Duration = Duration::from_millis(100);
/// The same while an interrupt is owed.
const LOOK: Duration = Duration::from_millis(4);
/// The same without interrupts.
const FREQUENT_LOOK: Duration = Duration::from_millis(1);
/// How long an alarm can stay unnoticed while no thread sleeps; a look is a call.
const ALARM_LOOK: Duration = Duration::from_millis(50);
/// Sleeps after which a wait returns in any case: the caller may be waiting for room, not for
/// messages.
const SLEEPS: u32 = 16;

/// Waits for either vector of an endpoint: looks at the queue for a moment, then sleeps, and looks
/// again from time to time.
#[derive(Debug)]
pub struct VfioSignal {
    shared: Arc<Shared>,
    window: VfioWindow,
    notifier: Arc<Notifier>,
    /// Control block of the completion queue.
    completion: BarOffset,
    /// How long to look before sleeping.
    spin: Duration,
    /// Interrupts are to be expected.
    interrupts: bool,
    /// After this time without one, an interrupt that is owed counts as lost.
    patience: Duration,
    owed: Mutex<Owed>,
    /// When the alarms were last looked at between waits, in milliseconds.
    glanced: AtomicU64,
}

impl VfioSignal {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        window: VfioWindow,
        notifier: &Arc<Notifier>,
        completion: BarOffset,
        options: &VfioOptions,
        interrupts: bool,
    ) -> Self {
        // Where a look is a call, a sleep costs no more than it.
        let is_direct = window.path(completion, 16) == AccessPath::Direct;
        let spin = if is_direct { options.spin } else { Duration::ZERO };
        Self {
            shared: Arc::clone(shared),
            window,
            notifier: Arc::clone(notifier),
            completion,
            spin,
            interrupts,
            patience: options.interrupt_patience,
            owed: Mutex::default(),
            glanced: AtomicU64::new(0),
        }
    }

    /// Returns `true` if there are messages, by the indices of the ring. Spec: §5.2
    fn has_messages(&self) -> Result<bool, VfioError> {
        let Some(tail) = self.completion.checked_add(8) else { return Ok(false) };
        let head = self.window.load_acquire_u64(self.completion)?;
        Ok(self.window.load_acquire_u64(tail)? != head)
    }

    fn sleep(&self) -> Duration {
        if !self.interrupts {
            FREQUENT_LOOK
        } else if lock(&self.owed).is_open(self.notifier.interrupts()) {
            LOOK
        } else {
            RARE_LOOK
        }
    }

    /// Keeps the books on interrupts, after a sleep that none ended.
    fn account(&self, has_messages: bool) {
        if !self.interrupts {
            return;
        }
        let (heard, now) = (self.notifier.interrupts(), Instant::now());
        let mut owed = lock(&self.owed);
        if has_messages {
            owed.found(heard, now);
        }
        if owed.is_lost(heard, now, self.patience) {
            self.shared.lost_interrupts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                device = %self.shared.name,
                silent_for = ?self.patience,
                "an interrupt was lost, looking more often until one comes"
            );
        }
    }

    /// Fails if an alarm is raised.
    fn check_alarms(&self) -> Result<(), VfioError> {
        match self.notifier.alarm()? {
            Some(because) => Err(self.shared.lose(because)),
            None => Ok(()),
        }
    }

    /// Looks at the ring for a moment, without a call.
    fn spin(&self, seen: u64, budget: Duration) -> Result<bool, VfioError> {
        let start = Instant::now();
        while start.elapsed() < budget {
            if self.notifier.epoch() != seen || self.has_messages()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }
}

impl ErrorType for VfioSignal {
    type Error = VfioError;
}

impl Signal for VfioSignal {
    fn ticket(&self) -> Ticket {
        Ticket(self.notifier.epoch())
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, VfioError> {
        self.window.check_usable()?;
        let deadline = Instant::now().checked_add(timeout);
        if self.spin(seen.0, self.spin.min(timeout))? {
            return Ok(Wake::Notified);
        }
        for _ in 0..SLEEPS {
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let sleep = self.sleep();
            // The counters keep what arrived since the last look, so there is no moment in which an
            // interrupt is missed.
            match self.notifier.wait(seen.0, left.min(sleep))? {
                Heard::Notified => break,
                Heard::Lost(because) => return Err(self.shared.lose(because)),
                Heard::Nothing => {}
            }
            self.window.check_usable()?;
            let has_messages = self.has_messages()?;
            self.account(has_messages);
            if has_messages {
                break;
            }
            if left <= sleep {
                return Ok(Wake::TimedOut);
            }
        }
        self.window.check_usable()?;
        Ok(Wake::Notified)
    }

    fn wake(&self) {
        // Nothing waits in a child, and the event is the parent's too.
        if self.shared.is_here() {
            self.notifier.wake();
        }
    }

    fn verify(&self) -> Result<(), VfioError> {
        self.shared.check_home()?;
        self.check_alarms()?;
        self.window.check_usable()?;
        self.shared.confirm()
    }

    fn glance(&self) -> Result<(), VfioError> {
        let now = u64::try_from(self.shared.sys.coarse_time().as_millis()).unwrap_or(u64::MAX);
        // Relaxed: two threads that look at once do no harm.
        let before = self.glanced.load(Ordering::Relaxed);
        if u128::from(now.saturating_sub(before)) < ALARM_LOOK.as_millis() {
            return Ok(());
        }
        self.glanced.store(now, Ordering::Relaxed);
        self.window.check_usable()?;
        self.check_alarms()
    }
}
