//! Messages between the state machine and the mailbox of the service processor.

use std::time::Duration;

use et_devapi::dir::MgmtDir;
use et_devapi::discovery::Layout;
use et_devapi::msg::Tag;
use et_devapi::msg::mgmt::{MAX_COMMAND_BYTES, encode_command};
use et_hal::{Hal, Mailbox, MailboxLayout, Pop, Push, QueueId, Ticket};

use super::core::{Answer, Arrival, Core, ManagementCounters, ManagementEvent};
use crate::clock::Deadline;
use crate::config::Config;
use crate::link::wait::{Source, Terms};
use crate::link::{OneShot, Parker, Waiters, Whereabouts};
use crate::sync::{Arc, AtomicU8, Mutex, lock};
use crate::{Error, Result};

/// Longest sleep on the notification; one that got lost costs this much.
const TICK: Duration = Duration::from_millis(20);
/// Looks at the queue between two looks at the clock while spinning.
const SPINS: u32 = 64;
/// Pause between two attempts at a full queue: firmware that takes no commands is in trouble.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the largest response.
const RESPONSE_BYTES: usize = 280;

/// The management endpoint of one device.
pub(super) struct ManagementLink<H: Hal> {
    // First when all is dropped, as in the link of the operations.
    mailbox: H::Mailbox,
    pub(super) hal: Arc<H>,
    pub(super) dir: MgmtDir,
    pub(super) config: Config,
    pub(super) layout: MailboxLayout,
    /// What errors call the device.
    name: Arc<str>,
    core: Mutex<Core>,
    waiters: Waiters<Vec<u8>>,
    /// The highest level of texts that the service processor was asked to trace.
    // Relaxed: a number that orders nothing.
    pub(super) trace_level: AtomicU8,
    /// Those who wait for events.
    listeners: Mutex<Vec<Arc<Parker>>>,
}

impl<H: Hal> ManagementLink<H> {
    pub(super) fn open(
        hal: Arc<H>,
        dir: MgmtDir,
        layout: MailboxLayout,
        config: Config,
    ) -> Result<Self> {
        let opened = hal.open_mailbox(&layout);
        let mailbox = opened.map_err(Error::hal("opening the management mailbox"))?;
        // As large as the ring: no message can be larger.
        let buffer = usize::try_from(layout.completion.size_bytes).unwrap_or(usize::MAX);
        Ok(Self {
            mailbox,
            hal,
            dir,
            name: config.device_name(),
            config,
            layout,
            core: Mutex::new(Core::new()),
            waiters: Waiters::new(vec![0; buffer]),
            trace_level: AtomicU8::new(crate::trace::DEBUG),
            listeners: Mutex::default(),
        })
    }

    pub(super) fn deadline(&self, after: Duration) -> Deadline {
        Deadline::after(&*self.config.clock, after)
    }

    pub(super) fn left(&self, deadline: Deadline) -> Duration {
        deadline.left(&*self.config.clock)
    }

    pub(super) fn counters(&self) -> ManagementCounters {
        lock(&self.core).counters
    }

    pub(super) fn refusal(&self) -> Option<Error> {
        lock(&self.core).refusal().cloned()
    }

    /// Sends a command and waits for its answer.
    pub(super) fn call(
        &self,
        id: u16,
        payload: &[u8],
        op: &'static str,
        deadline: Deadline,
    ) -> Result<Answer> {
        // Events that no one has taken out must leave room for the answer.
        self.waiters.poll(self);
        let begun = lock(&self.core).begin(id);
        let (tag, reply) = begun.map_err(|error| self.during(op, error))?;
        let answer = self
            .send(id, tag, payload, op, deadline)
            .and_then(|()| self.wait_for(&reply, op, deadline));
        if answer.is_err() {
            lock(&self.core).give_up(tag);
        }
        answer.map_err(|error| self.during(op, error))
    }

    /// Sends a command that is not answered.
    pub(super) fn tell(&self, id: u16, payload: &[u8], op: &'static str) -> Result<()> {
        let begun = lock(&self.core).begin(id);
        let (tag, _) = begun.map_err(|error| self.during(op, error))?;
        let sent = self.send(id, tag, payload, op, self.deadline(self.config.command_timeout));
        lock(&self.core).give_up(tag);
        sent.map_err(|error| self.during(op, error))
    }

    /// The same error, with what was asked of which device.
    pub(super) fn during(&self, op: &'static str, error: Error) -> Error {
        error.during(op).on(Arc::clone(&self.name))
    }

    fn send(
        &self,
        id: u16,
        tag: Tag,
        payload: &[u8],
        op: &'static str,
        deadline: Deadline,
    ) -> Result<()> {
        let mut message = [0; MAX_COMMAND_BYTES];
        let len = match encode_command(id, tag, payload, &mut message) {
            Ok(len) => len,
            Err(error) => unreachable!("payloads are of fixed sizes: {error}"),
        };
        let parker = Parker::new();
        loop {
            let core = lock(&self.core);
            if let Some(error) = core.refusal() {
                return Err(error.clone());
            }
            // With the lock, because a queue has one user at a time.
            let pushed = self.mailbox.push(QueueId::Submission(0), &message[..len]);
            drop(core);
            match pushed {
                Ok(Push::Accepted) => break,
                Ok(Push::Full) if self.left(deadline).is_zero() => {
                    return Err(Error::timeout(op, deadline.limit()));
                }
                Ok(Push::Full) => parker.park_timeout(FULL_PAUSE),
                Err(error) => return Err(self.fail(Error::hal(op)(error))),
            }
        }
        self.mailbox.kick().map_err(|error| self.fail(Error::hal(op)(error)))
    }

    fn wait_for(
        &self,
        reply: &OneShot<Result<Answer>>,
        op: &'static str,
        deadline: Deadline,
    ) -> Result<Answer> {
        let left = || self.left(deadline);
        let mut is_done = || reply.is_done();
        if !self.spin(&mut is_done) {
            let parker = Arc::new(Parker::new());
            if reply.subscribe(&parker) {
                let terms = Terms { left: &left, tick: TICK };
                self.waiters.wait(self, &parker, &mut is_done, terms);
                reply.unsubscribe(&parker);
            }
        }
        reply.get().unwrap_or(Err(Error::timeout(op, deadline.limit())))
    }

    /// Polls for a while; `true` if it is done.
    fn spin(&self, is_done: &mut dyn FnMut() -> bool) -> bool {
        let until = self.deadline(self.config.spin);
        loop {
            if self.waiters.poll_until(self, SPINS, is_done) {
                return true;
            }
            if self.left(until).is_zero() {
                return false;
            }
        }
    }

    /// Takes the next event; waits for it until the deadline.
    pub(super) fn event(&self, deadline: Deadline) -> Result<Option<ManagementEvent>> {
        let parker = Arc::new(Parker::new());
        lock(&self.listeners).push(Arc::clone(&parker));
        let mut is_done = || {
            let core = lock(&self.core);
            core.has_events() || core.refusal().is_some()
        };
        let left = || self.left(deadline);
        let mut found = None;
        loop {
            self.waiters.poll(self);
            let mut core = lock(&self.core);
            // What has come is handed out even if nothing more will.
            if let Some(event) = core.take_event() {
                found = Some(Ok(event));
            } else if let Some(error) = core.refusal() {
                found = Some(Err(error.clone()));
            }
            drop(core);
            if found.is_some() || left().is_zero() {
                break;
            }
            self.waiters.wait(self, &parker, &mut is_done, Terms { left: &left, tick: TICK });
        }
        lock(&self.listeners).retain(|other| !Arc::ptr_eq(other, &parker));
        found.transpose().map_err(|error| self.during("waiting for an event of the card", error))
    }

    /// The endpoint cannot be used any more; returns the reason, which is the first.
    pub(super) fn fail(&self, error: Error) -> Error {
        let mut core = lock(&self.core);
        let waiting = core.lose(&error);
        let first = core.refusal().cloned();
        drop(core);
        match error {
            // The caller's own doing.
            Error::Closed { .. } | Error::Stale { .. } => {}
            _ => tracing::error!(device = %self.name, %error, "management endpoint lost"),
        }
        let mut whereabouts = Whereabouts::Here;
        let mut tell = |parker: &Parker| {
            if parker.call() == Whereabouts::Abroad {
                whereabouts = Whereabouts::Abroad;
            }
        };
        for reply in waiting {
            let told = reply.set(Err(error.clone()), &mut tell);
            debug_assert!(told.is_none_or(|told| told.is_empty()), "only threads wait");
        }
        lock(&self.listeners).iter().for_each(|parker| tell(parker));
        if whereabouts == Whereabouts::Abroad {
            self.mailbox.wake();
        }
        first.unwrap_or(error)
    }

    /// Hands a message on.
    fn deliver(&self, message: &[u8]) {
        let arrival = lock(&self.core).arrive(message, self.config.clock.now());
        let mut whereabouts = Whereabouts::Here;
        let mut tell = |parker: &Parker| {
            if parker.call() == Whereabouts::Abroad {
                whereabouts = Whereabouts::Abroad;
            }
        };
        match arrival {
            Arrival::Answer(reply, answer) => {
                let told = reply.set(Ok(answer), &mut tell);
                debug_assert!(told.is_none_or(|told| told.is_empty()), "only threads wait");
            }
            Arrival::Event => lock(&self.listeners).iter().for_each(|parker| tell(parker)),
            Arrival::Noise => {}
            Arrival::AllOnes => {
                let why = "the service processor's messages read as all ones";
                self.fail(Error::lost(why));
            }
        }
        if whereabouts == Whereabouts::Abroad {
            self.mailbox.wake();
        }
    }
}

impl<H: Hal> Source for ManagementLink<H> {
    type Tools = Vec<u8>;

    fn drain(&self, buffer: &mut Vec<u8>) -> usize {
        let mut taken = 0;
        let mut bytes = 0;
        loop {
            match self.mailbox.pop(buffer) {
                Ok(Pop::Empty) => break,
                Ok(Pop::Message(len)) => {
                    taken += 1;
                    bytes += len;
                    self.deliver(&buffer[..len]);
                }
                Err(error) => {
                    if !matches!(et_hal::Error::kind(&error), et_hal::ErrorKind::Busy) {
                        self.fail(Error::hal("reading the management queue")(error));
                    }
                    break;
                }
            }
            // A device that never stops talking must not hold a thread for ever.
            if bytes > buffer.len() {
                break;
            }
        }
        // The service processor drops what it has no room for. Spec: §5.6
        if bytes + RESPONSE_BYTES > buffer.len() {
            lock(&self.core).counters.full_queues += 1;
        }
        taken
    }

    fn ticket(&self) -> Ticket {
        self.mailbox.ticket()
    }

    fn sleep(&self, seen: Ticket, timeout: Duration) {
        if let Err(error) = self.mailbox.wait(seen, timeout).map(drop) {
            self.fail(Error::hal("waiting for the service processor")(error));
        }
    }

    fn has_errands(&self) -> bool {
        false
    }

    fn run_errands(&self) {}
}

/// Returns the parts of a layout that the endpoint needs.
pub(super) fn parts(layout: &Layout) -> (MgmtDir, MailboxLayout) {
    (layout.mgmt, layout.mgmt_mailbox)
}
