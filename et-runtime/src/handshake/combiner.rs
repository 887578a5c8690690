//! Who schedules, and how a scheduler that sleeps hears of completions.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::Parker;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, fence, lock, yield_now};

/// A thread schedules and will look again.
const AWAKE: u32 = 0;
/// The scheduler sleeps.
const ASLEEP: u32 = 1;
/// No thread schedules.
const NOBODY: u32 = 2;

/// State that is worked on by one thread at a time: by one that waits for a result, or, if none
/// does, by whoever has something for it.
///
/// A thread that has published something [notifies](Combiner::notify). If the holder of the state
/// is awake, that costs a fence and a load; if it sleeps, it is woken; if there is none, the
/// notifier takes a turn itself.
///
/// The holder says that it is going to sleep or leave, and looks once more then. A full fence on
/// either side means that at least one of the two sees the other. One gap remains: a notifier that
/// finds the state held by one that has looked for the last time. So who leaves looks once more,
/// after it has let go, whether it was notified.
#[derive(Debug)]
pub struct Combiner<T> {
    /// 1 while the state is held. Taken before the lock, which is therefore never waited
    /// for: the holder may sleep, and the model of a lock would make others wait who only try.
    is_held: AtomicU32,
    state: Mutex<T>,
    scheduler: AtomicU32,
    bed: Parker,
}

/// The state of a [`Combiner`], held.
#[derive(Debug)]
pub struct Held<'a, T> {
    /// `None` only inside `drop`.
    state: Option<MutexGuard<'a, T>>,
    is_held: &'a AtomicU32,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.state {
            Some(state) => state,
            None => unreachable!("taken out only by `drop`"),
        }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("taken out only by `drop`"),
        }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.state = None;
        // Release: pairs with the Acquire in `try_hold`.
        self.is_held.store(0, Ordering::Release);
    }
}

impl<T> Combiner<T> {
    /// Creates a combiner that is not held.
    pub fn new(state: T) -> Self {
        Self {
            is_held: AtomicU32::new(0),
            state: Mutex::new(state),
            scheduler: AtomicU32::new(NOBODY),
            bed: Parker::new(),
        }
    }

    /// Makes sure that something published before is seen: by the holder, or by `turn`, which does
    /// all there is to do.
    pub fn notify(&self, turn: impl FnMut(&mut T)) {
        // Between the publication and the load; pairs with the fence in `say`.
        fence(Ordering::SeqCst);
        if self.scheduler.load(Ordering::Relaxed) == AWAKE {
            return;
        }
        // Only one notifier acts; Acquire and Release keep the order among them.
        match self.scheduler.swap(AWAKE, Ordering::AcqRel) {
            ASLEEP => self.bed.unpark(),
            NOBODY => {
                // Pairs with the fence in `leave`: either this sees the lock free, or the holder
                // sees the swap.
                fence(Ordering::SeqCst);
                if let Some(state) = self.try_hold() {
                    self.leave(state, turn);
                }
            }
            _ => {}
        }
    }

    /// Becomes the holder, unless there is one.
    pub fn hold(&self) -> Option<Held<'_, T>> {
        let state = self.try_hold()?;
        self.say(AWAKE);
        Some(state)
    }

    /// Becomes the holder after the present one, which must not be long.
    pub fn hold_next(&self) -> Held<'_, T> {
        loop {
            match self.hold() {
                Some(state) => return state,
                None => yield_now(),
            }
        }
    }

    /// Returns `true` if the state is held at this moment.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed) != 0
    }

    fn try_hold(&self) -> Option<Held<'_, T>> {
        // Acquire: pairs with the Release of the holder before.
        self.is_held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Held { state: Some(lock(&self.state)), is_held: &self.is_held })
    }

    /// Stops holding: takes a last turn, and makes notifiers take theirs from then on.
    pub fn leave<'a>(&'a self, mut state: Held<'a, T>, mut turn: impl FnMut(&mut T)) {
        loop {
            self.say(NOBODY);
            turn(&mut state);
            drop(state);
            // Between the unlock and the load; pairs with the fence in `notify`.
            fence(Ordering::SeqCst);
            if self.scheduler.load(Ordering::Relaxed) == NOBODY {
                return;
            }
            // A notifier may have found the lock taken. If it is taken now, its holder
            // looks again.
            match self.try_hold() {
                Some(again) => state = again,
                None => return,
            }
        }
    }

    /// Sleeps, as the holder, until it is notified or `timeout` is over, unless a last `turn`
    /// tells that there was something to do.
    pub fn sleep(
        &self,
        state: &mut T,
        timeout: Option<Duration>,
        turn: impl FnOnce(&mut T) -> bool,
    ) {
        self.say(ASLEEP);
        if !turn(state) {
            match timeout {
                Some(timeout) => self.bed.park_timeout(timeout),
                None => self.bed.park(),
            }
        }
        self.say(AWAKE);
    }

    fn say(&self, scheduler: u32) {
        // A swap, not a store: it comes after the swaps of notifiers, for them and for the model.
        self.scheduler.swap(scheduler, Ordering::AcqRel);
        // Between the swap and the look that follows; pairs with the fence in `notify`.
        fence(Ordering::SeqCst);
    }
}
