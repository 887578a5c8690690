//! Who drains the completion queue.

use std::ops::{Deref, DerefMut};

use super::Parker;
use crate::sync::{Arc, Mutex, MutexGuard, lock, try_lock};

/// One drainer at a time, chosen among those who wait.
///
/// A waiter first tries to [`lead`](Leader::lead). If somebody else does, it [`follow`](Leader::follow)s: it leaves
/// its parker here and sleeps. A leader that stops wakes one follower, which then leads. So while
/// somebody waits, somebody drains, and nobody needs a thread of its own for it.
#[derive(Debug)]
pub struct Leader<T> {
    lead: Mutex<T>,
    followers: Mutex<Vec<Arc<Parker>>>,
}

/// Leadership; passes on when dropped.
#[derive(Debug)]
pub struct LeaderGuard<'a, T> {
    /// `None` only inside `drop`.
    guard: Option<MutexGuard<'a, T>>,
    leader: &'a Leader<T>,
}

impl<T> Leader<T> {
    /// Makes a leaderless group around what the leader works with.
    pub fn new(tools: T) -> Self {
        Self { lead: Mutex::new(tools), followers: Mutex::new(Vec::new()) }
    }

    /// Becomes the leader, unless there is one.
    pub fn lead(&self) -> Option<LeaderGuard<'_, T>> {
        try_lock(&self.lead).map(|guard| LeaderGuard { guard: Some(guard), leader: self })
    }

    /// Registers `parker` to be woken when the leader stops; becomes the leader itself if there is none
    /// (any more).
    ///
    /// The order matters: first the parker goes into the list, then the look at the lock. A leader unlocks first
    /// and looks into the list then, so one of the two sees the other.
    pub fn follow(&self, parker: &Arc<Parker>) -> Option<LeaderGuard<'_, T>> {
        lock(&self.followers).push(Arc::clone(parker));
        let guard = self.lead()?;
        self.remove(parker);
        Some(guard)
    }

    /// Ends following. A parker that was called to lead passes the call on.
    pub fn resign(&self, parker: &Arc<Parker>) {
        if !self.remove(parker) {
            self.pass_on();
        }
    }

    /// Takes a parker off the list; `false` if it was not there.
    fn remove(&self, parker: &Arc<Parker>) -> bool {
        let mut followers = lock(&self.followers);
        let before = followers.len();
        followers.retain(|other| !Arc::ptr_eq(other, parker));
        followers.len() != before
    }

    /// Wakes one follower, if there is one.
    fn pass_on(&self) {
        let next = lock(&self.followers).pop();
        if let Some(parker) = next {
            parker.unpark();
        }
    }
}

impl<T> Deref for LeaderGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is taken only in drop"),
        }
    }
}

impl<T> DerefMut for LeaderGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is taken only in drop"),
        }
    }
}

impl<T> Drop for LeaderGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.leader.pass_on();
    }
}
