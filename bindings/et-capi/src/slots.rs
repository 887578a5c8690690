//! Places whose values any thread may look at while others come and go, without a lock.
//!
//! Each has a word: its generation, whether its value can be found, and how many look at it. Who
//! looks is counted first, if the generation is right. A value that was removed cannot be found,
//! and is dropped by the last one that looks at it.
//!
//! `testing/et-loom` builds this file by itself.

#![expect(unsafe_code, reason = "values that counts protect")]

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use imp::{AtomicU32, AtomicU64, Cell, Ordering};

#[cfg(not(loom))]
mod imp {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// As the models' kind is used.
    pub(super) struct Cell<T>(std::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(super) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        pub(super) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(super) use loom::cell::UnsafeCell as Cell;
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

/// Generations end here; a place that has had so many is not used again.
pub(crate) const LAST_GENERATION: u32 = (1 << 24) - 1;

/// Of a word: the generation is above it, and below how many look.
const LIVE: u64 = 1 << 31;
const GENERATION_SHIFT: u32 = 32;

/// Places come in parts, each twice as large as the one before, that never move.
const FIRST_PART: u32 = 64;
const PARTS: usize = 26;
const PLACES: u32 = u32::MAX - FIRST_PART + 1;

/// Where a value is, and whose turn it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The places.
pub(crate) struct Slots<T> {
    parts: [OnceLock<Box<[Slot<T>]>>; PARTS],
    /// How many have been used, from the first on.
    used: AtomicU32,
    /// A stack of those that are free again: one more than the index of the uppermost, and above
    /// that how many were taken from it, as one may be taken and put back meanwhile.
    free: AtomicU64,
}

struct Slot<T> {
    word: AtomicU64,
    /// As in `free`: the one below this.
    below: AtomicU32,
    value: Cell<Option<T>>,
}

// SAFETY: who is counted shares the value, and who takes it out is alone with it.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

/// A value that stays while one looks at it.
pub(crate) struct Held<'a, T> {
    slots: &'a Slots<T>,
    slot: &'a Slot<T>,
    index: u32,
}

impl<T> Slots<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        let parts = [const { OnceLock::new() }; PARTS];
        Self { parts, used: AtomicU32::new(0), free: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        let parts = [const { OnceLock::new() }; PARTS];
        Self { parts, used: AtomicU32::new(0), free: AtomicU64::new(0) }
    }

    /// Puts a value into a free place; `None` if there is none left.
    pub(crate) fn insert(&self, value: T) -> Option<Key> {
        let index = self.pop().or_else(|| self.unused())?;
        let slot = self.slot(index)?;
        // The place is this thread's: its last value was taken out before it was put back.
        let generation = slot.word.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        // SAFETY: no one looks at what is not live.
        slot.value.with_mut(|place| unsafe { *place = Some(value) });
        slot.word.store(generation << GENERATION_SHIFT | LIVE, Ordering::Release);
        Some(Key { index, generation: u32::try_from(generation).ok()? })
    }

    /// Looks at a value.
    pub(crate) fn get(&self, key: Key) -> Option<Held<'_, T>> {
        let slot = self.slot(key.index)?;
        // Not added and taken back if it was wrong: that might be the last to leave.
        slot.change(key, |word| word + 1)?;
        Some(Held { slots: self, slot, index: key.index })
    }

    /// Makes a value one that cannot be found; `None` if it was not found. It is dropped here
    /// unless others look at it.
    pub(crate) fn remove(&self, key: Key) -> Option<()> {
        let slot = self.slot(key.index)?;
        let word = slot.change(key, |word| word & !LIVE)?;
        if looking(word) == 0 {
            self.clear(slot, key.index);
        }
        Some(())
    }

    /// Takes out what can no longer be found and no one looks at.
    fn clear(&self, slot: &Slot<T>, index: u32) {
        // SAFETY: no other thread gets here, as the last one has left, and none can come.
        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
        let generation = slot.word.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        if generation < u64::from(LAST_GENERATION) {
            slot.word.store((generation + 1) << GENERATION_SHIFT, Ordering::Relaxed);
            self.push(slot, index);
        }
        // It may call whom it likes: the place is in order.
        drop(value);
    }

    fn unused(&self) -> Option<u32> {
        let one_more = |used| (used < PLACES).then_some(used + 1);
        let index = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let (part, _) = place(index)?;
        self.parts[part].get_or_init(|| {
            let slots = (FIRST_PART as usize) << part;
            (0..slots).map(|_| Slot::new()).collect()
        });
        Some(index)
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (part, at) = place(index)?;
        self.parts.get(part)?.get()?.get(at)
    }

    fn pop(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let index = low(free).checked_sub(1)?;
            let below = self.slot(index)?.below.load(Ordering::Relaxed);
            let taken = (free >> 32).wrapping_add(1);
            let next = taken << 32 | u64::from(below);
            match self.free.compare_exchange(free, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => free = now,
            }
        }
    }

    fn push(&self, slot: &Slot<T>, index: u32) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot.below.store(low(free), Ordering::Relaxed);
            let next = free & !u64::from(u32::MAX) | u64::from(index + 1);
            match self.free.compare_exchange(free, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self {
            word: AtomicU64::new(1 << GENERATION_SHIFT),
            below: AtomicU32::new(0),
            value: Cell::new(None),
        }
    }

    /// Changes the word if the value can be found; returns what it was.
    fn change(&self, key: Key, change: impl Fn(u64) -> u64) -> Option<u64> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & LIVE != 0 && word >> GENERATION_SHIFT == u64::from(key.generation) {
            let next = change(word);
            // What was written to the value before it could be found, and by those that have left.
            match self.word.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
        None
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no one changes it while someone is counted.
        let value = self.slot.value.with(|place| unsafe { &*place });
        let Some(value) = value else { unreachable!("a value left while it was looked at") };
        value
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // The last one takes out what the others have looked at before they left.
        let word = self.slot.word.fetch_sub(1, Ordering::AcqRel);
        if word & LIVE == 0 && looking(word) == 1 {
            self.slots.clear(self.slot, self.index);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

fn looking(word: u64) -> u64 {
    word & (LIVE - 1)
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default()
}

/// In which part a place is, and where in it.
fn place(index: u32) -> Option<(usize, usize)> {
    let from_first = u64::from(index) + u64::from(FIRST_PART);
    let part = from_first.ilog2() - FIRST_PART.ilog2();
    let at = from_first - (u64::from(FIRST_PART) << part);
    Some((usize::try_from(part).ok()?, usize::try_from(at).ok()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_to_the_last_place() {
        assert_eq!(place(0), Some((0, 0)));
        assert_eq!(place(63), Some((0, 63)));
        assert_eq!(place(64), Some((1, 0)));
        assert_eq!(place(191), Some((1, 127)));
        assert_eq!(place(192), Some((2, 0)));
        assert_eq!(place(PLACES - 1), Some((PARTS - 1, (64 << (PARTS - 1)) - 1)));
    }

    #[test]
    fn a_place_is_used_again_by_another_generation() {
        let slots = Slots::new();
        let keys: Vec<_> = (0..200).map(|value| slots.insert(value).unwrap()).collect();
        for (value, key) in keys.iter().enumerate() {
            assert_eq!(*slots.get(*key).unwrap(), value);
        }
        for key in &keys {
            slots.remove(*key).unwrap();
            assert!(slots.get(*key).is_none() && slots.remove(*key).is_none());
        }
        let again = slots.insert(7).unwrap();
        assert_eq!(again, Key { index: 199, generation: 2 });
        assert!(slots.get(keys[199]).is_none());
        assert_eq!(*slots.get(again).unwrap(), 7);
        assert!(slots.get(Key { index: 200, generation: 1 }).is_none(), "never used");
        assert!(slots.get(Key { index: u32::MAX, generation: 1 }).is_none(), "never made");
    }

    #[test]
    fn what_is_looked_at_stays_until_that_ends() {
        let slots = Slots::new();
        let value = std::sync::Arc::new(5);
        let key = slots.insert(std::sync::Arc::clone(&value)).unwrap();
        let (one, other) = (slots.get(key).unwrap(), slots.get(key).unwrap());
        slots.remove(key).unwrap();
        assert!(slots.get(key).is_none());
        let next = slots.insert(std::sync::Arc::new(6)).unwrap();
        assert_ne!(next.index, key.index, "it is not free yet");
        drop(one);
        assert_eq!((**other, std::sync::Arc::strong_count(&value)), (5, 2));
        drop(other);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
        assert_eq!(slots.insert(std::sync::Arc::new(7)).unwrap().index, key.index);
    }

    #[test]
    fn a_place_of_the_last_generation_is_not_used_again() {
        let slots = Slots::new();
        let first = slots.insert(0).unwrap();
        let slot = slots.slot(first.index).unwrap();
        slot.word.store(u64::from(LAST_GENERATION) << 32 | LIVE, Ordering::Relaxed);
        let last = Key { index: first.index, generation: LAST_GENERATION };
        slots.remove(last).unwrap();
        assert!(slots.get(last).is_none());
        assert_ne!(slots.insert(1).unwrap().index, first.index);
    }
}
