//! The completion queue of an endpoint: never drops, keeps the order, stalls its user when full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use et_devapi::msg::ops::Completion;
use et_devapi::pci::Vector;
use et_devapi::ring::{Producer, Ring};
use et_hal::{BarOffset, Mmio, Push};

use crate::board::{Slot, Stats};
use crate::faults::Noise;
use crate::{Fault, RegisterPage};

/// Room for the largest message that goes through [`CompletionQueue::put`].
pub(crate) const MAX_MESSAGE_BYTES: usize = 288;

/// Offset of the padding in each operations message, by id: what real firmware leaves undefined.
/// Spec: §6, §7
const PADDING: &[(u16, std::ops::Range<usize>)] = &[
    (514, 18..24),
    (516, 19..24),
    (518, 20..24),
    (520, 12..16),
    (522, 36..40),
    (524, 12..16),
    (526, 36..40),
    (528, 36..40),
    (530, 12..16),
    (532, 12..16),
    (534, 12..16),
    (535, 20..24),
    (536, 13..16),
    (538, 36..40),
    (540, 36..40),
];

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// Start of the control block.
    at: BarOffset,
    producer: Producer,
    vector: Vector,
    /// Something was published since the last interrupt.
    unannounced: bool,
    /// The ring was full at the last attempt.
    full: bool,
    /// Attempts in vain since the ring became full.
    attempts: u32,
    /// What could not be published yet, in order.
    waiting: VecDeque<Waiting>,
    faults: Option<Box<ResponseFaults>>,
}

#[derive(Debug)]
struct Waiting {
    due: Option<Instant>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct ResponseFaults {
    plan: Vec<Planned>,
    noise: Noise,
    count: u64,
    /// What the head was corrupted to; nothing is published any more.
    corrupt: Option<u64>,
}

#[derive(Debug)]
struct Planned {
    fault: Fault,
    /// Answers that it might have changed.
    seen: u32,
}

impl CompletionQueue {
    /// Takes an empty ring over. What its control block says by now is the host's matter.
    pub(crate) fn new(at: BarOffset, ring: Ring, vector: Vector) -> Self {
        Self {
            at,
            producer: Producer::resume(ring, 0, 0),
            vector,
            unannounced: false,
            full: false,
            attempts: 0,
            waiting: VecDeque::new(),
            faults: None,
        }
    }

    /// Makes the queue misbehave, if the fault is one of responses; they are counted from now.
    pub(crate) fn add_fault(&mut self, fault: Fault, seed: u64) {
        let past = self.faults.as_ref().map_or(0, |faults| faults.count);
        let Some(fault) = fault.of_responses_after(past) else { return };
        let fresh = || {
            let noise = Noise::new(seed);
            Box::new(ResponseFaults { plan: Vec::new(), noise, count: 0, corrupt: None })
        };
        self.faults.get_or_insert_with(fresh).plan.push(Planned { fault, seen: 0 });
    }

    /// Sends an operations response or event. It is published now, or as soon as there is room.
    pub(crate) fn respond(&mut self, slot: &Slot, completion: &Completion) {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let Ok(len) = completion.encode(&mut bytes) else {
            debug_assert!(false, "{completion:?} is larger than any message");
            return;
        };
        let message = &mut bytes[..len];
        Stats::add(&slot.stats.responses, 1);
        if self.faults.is_some() {
            self.put_badly(slot, message);
        } else {
            self.put(slot, message);
        }
    }

    /// Publishes a message, or queues it behind others.
    pub(crate) fn put(&mut self, slot: &Slot, message: &[u8]) {
        if !self.waiting.is_empty() || !self.push(&slot.page, message) {
            self.waiting.push_back(Waiting { due: None, bytes: message.to_vec() });
        }
    }

    /// Publishes what waits and has become due; returns `true` if the queue is full.
    pub(crate) fn retry(&mut self, slot: &Slot) -> bool {
        self.full = false;
        while let Some(next) = self.waiting.pop_front() {
            let early = next.due.is_some_and(|due| Instant::now() < due);
            if early || !self.push(&slot.page, &next.bytes) {
                self.waiting.push_front(next);
                break;
            }
        }
        self.full
    }

    /// Returns `true` if the last attempt found the queue full.
    ///
    /// Real firmware then spins in the response path, and everything else stands still. Spec: §5.6
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Raises the interrupt for what was published since the last one.
    pub(crate) fn announce(&mut self, slot: &Slot) {
        if std::mem::take(&mut self.unannounced) {
            slot.interrupts.raise(self.vector);
        }
        slot.interrupts.flush();
    }

    /// Returns how long the firmware may sleep before it must look at the queue again.
    pub(crate) fn next_attempt(&self) -> Option<Duration> {
        const FIRST_POLL: Duration = Duration::from_micros(20);
        const MOST_DOUBLINGS: u32 = 6;
        let next = self.waiting.front()?;
        let due = next.due.map(|due| due.saturating_duration_since(Instant::now()));
        // The host rings no bell when it has made room.
        let poll = FIRST_POLL * (1 << self.attempts.min(MOST_DOUBLINGS));
        Some(due.filter(|_| !self.full).unwrap_or(poll))
    }

    fn push(&mut self, page: &RegisterPage, message: &[u8]) -> bool {
        // An error means that the host wrote nonsense into the tail: no room until it is mended.
        let pushed = matches!(self.producer.push(page, message), Ok(Push::Accepted));
        self.full = !pushed;
        self.attempts = if pushed { 0 } else { self.attempts.saturating_add(1) };
        self.unannounced |= pushed;
        pushed
    }

    #[cold]
    fn put_badly(&mut self, slot: &Slot, message: &mut [u8]) {
        let Some(mut faults) = self.faults.take() else { return };
        self.put_by_plan(slot, message, &mut faults);
        self.faults = Some(faults);
    }

    fn put_by_plan(&mut self, slot: &Slot, message: &mut [u8], faults: &mut ResponseFaults) {
        if faults.corrupt.is_some() {
            return;
        }
        faults.count += 1;
        let now = faults.count;
        let mut copies = 1;
        let mut delay = None;
        let mut split = None;
        let mut head = None;
        for Planned { fault, seen } in &mut faults.plan {
            match *fault {
                Fault::Answer { to, nth, status } => {
                    if let Some(field) = to.status_in(message) {
                        *seen = seen.saturating_add(1);
                        if *seen == nth.get() {
                            *field = status.to_le_bytes();
                        }
                    }
                }
                Fault::Noise => add_noise(message, &mut faults.noise),
                Fault::Garbage { nth } if nth == now => faults.noise.fill(message),
                Fault::UnknownTag { nth, tag } if nth == now => {
                    let mut stray = message.to_vec();
                    stray[2..4].copy_from_slice(&tag.to_le_bytes());
                    self.put(slot, &stray);
                }
                Fault::DropResponse { nth } if nth == now => copies = 0,
                Fault::DuplicateResponse { nth } if nth == now => copies = 2,
                Fault::DelayResponses { by } => delay = Some(by),
                Fault::PartialMessage { nth, bytes, delay } if nth == now => {
                    split = Some((usize::from(bytes).min(message.len()), delay));
                }
                Fault::BadIndex { nth, head: to } if nth == now => head = Some(to),
                _ => {}
            }
        }
        for _ in 0..copies {
            self.put_late(slot, message, delay, split);
        }
        if let Some(head) = head {
            faults.corrupt = Some(head);
            // The head is the first field of the control block, which lies inside the page.
            let stored = slot.page.store_release_u64(self.at, head);
            debug_assert!(stored.is_ok(), "the ring lies in the page");
            self.unannounced = true;
        }
    }

    fn put_late(
        &mut self,
        slot: &Slot,
        message: &[u8],
        delay: Option<Duration>,
        split: Option<(usize, Duration)>,
    ) {
        if delay.is_none() && split.is_none() {
            return self.put(slot, message);
        }
        let first_due = Instant::now() + delay.unwrap_or_default();
        let (bytes, pause) = split.unwrap_or((message.len(), Duration::ZERO));
        let (first, second) = message.split_at(bytes);
        self.waiting.push_back(Waiting { due: Some(first_due), bytes: first.to_vec() });
        let rest = Waiting { due: Some(first_due + pause), bytes: second.to_vec() };
        if !rest.bytes.is_empty() {
            self.waiting.push_back(rest);
        }
        self.retry(slot);
    }
}

fn add_noise(message: &mut [u8], noise: &mut Noise) {
    noise.fill(&mut message[6..8]);
    let id = u16::from_le_bytes([message[4], message[5]]);
    let padding = PADDING.iter().find(|(of, _)| *of == id);
    if let Some(pad) = padding.and_then(|(_, at)| message.get_mut(at.clone())) {
        noise.fill(pad);
    }
}
