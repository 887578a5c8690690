//! Commands in flight: wire tag → what belongs to the command.

use et_devapi::msg::Tag;

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock, try_lock};

/// Low two bits of a slot's state; the rest is the round.
const PHASE_MASK: u32 = 0b11;
const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const IN_FLIGHT: u32 = 2;
const COMPLETING: u32 = 3;

const END: u32 = u32::MAX;

/// A reserved tag whose command is not in flight yet.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a claim that is neither published nor released loses its tag"]
pub struct Claim {
    index: u32,
    round: u32,
    tag: Tag,
}

impl Claim {
    /// Returns the tag to put into the message.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.tag
    }
}

/// A fixed number of slots, each owning what one command in flight needs.
///
/// Nobody waits in here. A slot goes *free → claimed → in flight → completing → free*; whoever makes the step to
/// *claimed* or *completing* is its only user until the next step, so the lock around the payload is free: it is there because
/// this crate has no `unsafe`. Only [`for_each`](Self::for_each), which looks at commands for an abort, takes it for a moment.
///
/// A tag is `round × capacity + slot`, where the round counts the uses of the slot: a late or duplicate response
/// carries an old round and matches nothing.
#[derive(Debug)]
pub struct Table<T> {
    slots: Box<[Slot<T>]>,
    /// Top of the stack of free slots (low half) and a counter against ABA (high half).
    free: AtomicU64,
    rounds: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// Round and phase.
    state: AtomicU32,
    next_free: AtomicU32,
    payload: Mutex<Option<T>>,
}

impl<T> Table<T> {
    /// Makes a table of `capacity` slots, 1 to 32 767 (two rounds at least).
    ///
    /// # Panics
    /// If the capacity is outside that range.
    #[must_use]
    pub fn new(capacity: u16) -> Self {
        assert!((1..=0x7fff).contains(&capacity), "table capacity {capacity} outside 1..=32767");
        let capacity = u32::from(capacity);
        let slots = (0..capacity)
            .map(|index| Slot {
                state: AtomicU32::new(FREE),
                next_free: AtomicU32::new(if index + 1 == capacity { END } else { index + 1 }),
                payload: Mutex::new(None),
            })
            .collect();
        // Tag 0xFFFF belongs to events (Spec: §6), so the highest tag used is 0xFFFE.
        Self { slots, free: AtomicU64::new(0), rounds: u32::from(Tag::EVENT.as_u16()) / capacity }
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Reserves a tag; `None` while all are in use.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let index = self.pop_free()?;
        let slot = self.slot(index);
        // Relaxed: `pop_free` acquired the slot together with everything its last user did.
        let round = (slot.state.load(Ordering::Relaxed) >> 2).wrapping_add(1) % self.rounds;
        slot.state.store(round << 2 | CLAIMED, Ordering::Relaxed);
        let number = round * u32::try_from(self.slots.len()).unwrap_or(END) + index;
        let tag = Tag::new(u16::try_from(number).unwrap_or(u16::MAX));
        Some(Claim { index, round, tag })
    }

    /// Gives an unused tag back.
    pub fn release(&self, claim: Claim) {
        let Claim { index, round, .. } = claim;
        self.slot(index).state.store(round << 2 | FREE, Ordering::Relaxed);
        self.push_free(index);
    }

    /// Puts the command in flight: from now on its response finds `payload`.
    ///
    /// To be called before the message is sent, since the response may overtake the sender.
    pub fn publish(&self, claim: &Claim, payload: T) {
        let slot = self.slot(claim.index);
        *lock(&slot.payload) = Some(payload);
        // Release: publishes the payload; pairs with the Acquire in `take`.
        slot.state.store(claim.round << 2 | IN_FLIGHT, Ordering::Release);
    }

    /// Takes a command back that was published but not sent; the claim stays.
    ///
    /// `None` if a response came all the same (a device that invents tags); then the claim is spent.
    #[must_use]
    pub fn retract(&self, claim: Claim) -> Option<(Claim, T)> {
        let payload = self.take(claim.index, claim.round)?;
        self.slot(claim.index).state.store(claim.round << 2 | CLAIMED, Ordering::Relaxed);
        Some((claim, payload))
    }

    /// Delivers the response to `tag`: returns the payload once, and frees the tag.
    ///
    /// `None` for a tag that is not in flight.
    #[must_use]
    pub fn complete(&self, tag: Tag) -> Option<T> {
        let capacity = u32::try_from(self.slots.len()).unwrap_or(END);
        let number = u32::from(tag.as_u16());
        let (round, index) = (number / capacity, number % capacity);
        let payload = self.take(index, round)?;
        self.slot(index).state.store(round << 2 | FREE, Ordering::Relaxed);
        self.push_free(index);
        Some(payload)
    }

    /// Takes everything in flight, for a device that will not answer any more; frees the tags.
    pub fn take_all(&self, mut each: impl FnMut(Tag, T)) {
        for index in 0..self.slots.len() {
            let tag = self.tag_in_flight(index);
            if let Some((tag, payload)) = tag.and_then(|tag| Some((tag, self.complete(tag)?))) {
                each(tag, payload);
            }
        }
    }

    /// Looks at the commands in flight that nobody is completing at the moment.
    pub fn for_each(&self, mut look: impl FnMut(Tag, &T)) {
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(tag) = self.tag_in_flight(index) else {
                continue;
            };
            // The tag is looked up before the payload: if the slot has moved on, its payload is gone or locked,
            // or belongs to a later command, which the caller's own checks must bear.
            if let Some(payload) = try_lock(&slot.payload)
                && let Some(payload) = payload.as_ref()
            {
                look(tag, payload);
            }
        }
    }

    fn tag_in_flight(&self, index: usize) -> Option<Tag> {
        let state = self.slots.get(index)?.state.load(Ordering::Acquire);
        let number = (state >> 2) as usize * self.slots.len() + index;
        (state & PHASE_MASK == IN_FLIGHT).then_some(Tag::new(u16::try_from(number).ok()?))
    }

    fn slot(&self, index: u32) -> &Slot<T> {
        // Indices come from the free list or are reduced modulo the capacity.
        &self.slots[index as usize]
    }

    /// In flight → completing, and the payload out.
    fn take(&self, index: u32, round: u32) -> Option<T> {
        let slot = self.slot(index);
        // Acquire: sees the payload; pairs with the Release in `publish`.
        slot.state
            .compare_exchange(
                round << 2 | IN_FLIGHT,
                round << 2 | COMPLETING,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        lock(&slot.payload).take()
    }

    fn pop_free(&self) -> Option<u32> {
        // Acquire: sees what the last user of the slot left; pairs with the Release in `push_free`.
        let mut top = self.free.load(Ordering::Acquire);
        loop {
            let index = low(top);
            if index == END {
                return None;
            }
            let next = self.slot(index).next_free.load(Ordering::Relaxed);
            let new = (top >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(top, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => top = now,
            }
        }
    }

    fn push_free(&self, index: u32) {
        let slot = self.slot(index);
        let mut top = self.free.load(Ordering::Relaxed);
        loop {
            slot.next_free.store(low(top), Ordering::Relaxed);
            let new = (top >> 32).wrapping_add(1) << 32 | u64::from(index);
            // Release: hands the slot on; pairs with the Acquire in `pop_free`.
            match self.free.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

/// The index in a word of the free list.
fn low(word: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the other half is the counter")]
    let index = word as u32;
    index
}
