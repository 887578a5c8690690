//! The way to wait for anything that a device does.
//!
//! Nothing drains the completion queue but those who want something of it. Of the threads that wait
//! one *leads*: it takes what arrives, for all, and sleeps at the mailbox. The others *follow*:
//! they sleep at their parkers until what they wait for has come, or until they are called to lead.
//! So while anyone waits, someone drains, and a single waiter is woken by the device itself.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use et_hal::Ticket;

use super::Parker;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock, relax};

/// What waiters draw from.
pub trait Source {
    /// What the leader works with.
    type Tools;

    /// Takes what has arrived, and tells whom it concerns; returns how much it was.
    fn drain(&self, tools: &mut Self::Tools) -> usize;

    /// Returns the present point in the stream of notifications.
    fn ticket(&self) -> Ticket;

    /// Sleeps until a notification after `seen`, or the timeout.
    fn sleep(&self, seen: Ticket, timeout: Duration);

    /// Returns `true` if there is something to run that the leader must not.
    fn has_errands(&self) -> bool;

    /// Runs it. Called without any lock.
    fn run_errands(&self);
}

/// How a wait goes.
#[allow(missing_debug_implementations, reason = "it has only functions")]
pub struct Terms<'a> {
    /// Returns the time left until the deadline.
    pub left: &'a dyn Fn() -> Duration,
    /// Longest sleep without a look; what a lost notification costs.
    pub tick: Duration,
}

/// The threads that wait at one [`Source`].
#[derive(Debug)]
pub struct Waiters<T> {
    /// 1 while there is a leader. Taken before the lock, which is therefore never waited for: the
    /// leader sleeps with it, and the models' kind of lock makes others wait who only try.
    is_led: AtomicU32,
    tools: Mutex<T>,
    line: Mutex<Vec<Arc<Parker>>>,
}

/// Leadership; passes on when dropped.
#[derive(Debug)]
pub struct Lead<'a, T> {
    /// `None` only inside `drop`.
    tools: Option<MutexGuard<'a, T>>,
    waiters: &'a Waiters<T>,
}

impl<T> Deref for Lead<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.tools {
            Some(tools) => tools,
            None => unreachable!("taken out only by `drop`"),
        }
    }
}

impl<T> DerefMut for Lead<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.tools {
            Some(tools) => tools,
            None => unreachable!("taken out only by `drop`"),
        }
    }
}

impl<T> Drop for Lead<'_, T> {
    fn drop(&mut self) {
        // First the end of the lead, then the look at the line: whoever joins it tries to lead
        // afterwards.
        drop(self.tools.take());
        // Release: pairs with the Acquire in `lead`.
        self.waiters.is_led.store(0, Ordering::Release);
        self.waiters.call_next();
    }
}

impl<T> Waiters<T> {
    /// Creates a group without a leader.
    pub fn new(tools: T) -> Self {
        let line = Mutex::new(Vec::new());
        Self { is_led: AtomicU32::new(0), tools: Mutex::new(tools), line }
    }

    /// Becomes the leader, unless there is one.
    pub fn lead(&self) -> Option<Lead<'_, T>> {
        // Acquire: pairs with the Release of the leader before.
        self.is_led.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Lead { tools: Some(lock(&self.tools)), waiters: self })
    }

    /// Takes what has arrived, unless a leader is at it; returns how much it was.
    pub fn poll<S: Source<Tools = T>>(&self, source: &S) -> usize {
        self.lead().map_or(0, |mut lead| source.drain(&mut lead))
    }

    /// Looks several times, unless another leads; `true` as soon as it is done.
    pub fn poll_until<S: Source<Tools = T>>(
        &self,
        source: &S,
        looks: u32,
        is_done: &mut dyn FnMut() -> bool,
    ) -> bool {
        // Taking the lead costs more than a look.
        let mut lead = self.lead();
        for _ in 0..looks {
            let taken = lead.as_mut().map_or(0, |lead| source.drain(lead));
            if is_done() {
                return true;
            }
            if taken == 0 {
                relax();
            }
        }
        false
    }

    /// Waits until `is_done`, or the deadline; `true` if it is done.
    ///
    /// Whatever makes it done gives `parker` its token, or is seen by draining.
    pub fn wait<S: Source<Tools = T>>(
        &self,
        source: &S,
        parker: &Arc<Parker>,
        is_done: &mut dyn FnMut() -> bool,
        terms: Terms<'_>,
    ) -> bool {
        let mut place = Place { waiters: self, parker, is_in_line: false };
        loop {
            source.run_errands();
            if is_done() {
                return true;
            }
            if (terms.left)().is_zero() {
                return false;
            }
            match place.lead() {
                Some(mut lead) => {
                    self.stay(source, parker, &mut lead, is_done, &terms);
                }
                None => parker.park_timeout((terms.left)()),
            }
        }
    }

    /// Leads until it is done, there are errands, or the time is up.
    fn stay<S: Source<Tools = T>>(
        &self,
        source: &S,
        parker: &Parker,
        lead: &mut Lead<'_, T>,
        is_done: &mut dyn FnMut() -> bool,
        terms: &Terms<'_>,
    ) {
        loop {
            // First the ticket, then the look: what comes after the look ends the sleep.
            let ticket = source.ticket();
            source.drain(lead);
            let left = (terms.left)();
            if is_done() || source.has_errands() || left.is_zero() {
                return;
            }
            if !parker.go_abroad() {
                // Something was done for us by another than the one who drains.
                parker.park();
                return;
            }
            source.sleep(ticket, left.min(terms.tick));
            parker.come_home();
        }
    }

    /// Calls one follower to lead.
    fn call_next(&self) {
        let next = lock(&self.line).pop();
        if let Some(parker) = next {
            // A follower does not sleep elsewhere.
            parker.unpark();
        }
    }
}

/// A waiter's place in the line of followers.
struct Place<'a, T> {
    waiters: &'a Waiters<T>,
    parker: &'a Arc<Parker>,
    /// It has joined, and may have been called since.
    is_in_line: bool,
}

impl<'a, T> Place<'a, T> {
    /// Becomes the leader, or joins the line to be called.
    fn lead(&mut self) -> Option<Lead<'a, T>> {
        if let Some(lead) = self.waiters.lead() {
            // Called or not: who leads does what it was called for.
            if std::mem::take(&mut self.is_in_line) {
                self.remove();
            }
            return Some(lead);
        }
        let mut line = lock(&self.waiters.line);
        if !line.iter().any(|other| Arc::ptr_eq(other, self.parker)) {
            line.push(Arc::clone(self.parker));
        }
        drop(line);
        self.is_in_line = true;
        // The leader may have gone before it could see us.
        let lead = self.waiters.lead()?;
        self.remove();
        self.is_in_line = false;
        Some(lead)
    }

    /// Leaves the line; `false` if it was called.
    fn remove(&self) -> bool {
        let mut line = lock(&self.waiters.line);
        let before = line.len();
        line.retain(|other| !Arc::ptr_eq(other, self.parker));
        line.len() != before
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        // Who was called and leaves passes the call on.
        if self.is_in_line && !self.remove() {
            self.waiters.call_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// One at which no one has to sleep, since a look is all it takes.
    #[derive(Default)]
    struct Looked {
        looks: Cell<u32>,
        has_errands: Cell<bool>,
        errands: Cell<u32>,
    }

    impl Source for Looked {
        /// Whether a look finds an errand.
        type Tools = bool;

        fn drain(&self, finds_errands: &mut bool) -> usize {
            self.looks.set(self.looks.get() + 1);
            self.has_errands.set(*finds_errands);
            7
        }

        fn ticket(&self) -> Ticket {
            Ticket(0)
        }

        fn sleep(&self, _: Ticket, _: Duration) {
            unreachable!("what it waits for is there")
        }

        fn has_errands(&self) -> bool {
            self.has_errands.get()
        }

        fn run_errands(&self) {
            if self.has_errands.take() {
                self.errands.set(self.errands.get() + 1);
            }
        }
    }

    fn wait(source: &Looked, waiters: &Waiters<bool>, is_done: impl Fn(&Looked) -> bool) -> bool {
        let terms = Terms { left: &|| Duration::MAX, tick: Duration::MAX };
        waiters.wait(source, &Arc::new(Parker::new()), &mut || is_done(source), terms)
    }

    fn parkers<const N: usize>() -> [Arc<Parker>; N] {
        [(); N].map(|()| Arc::new(Parker::new()))
    }

    fn is_called(parker: &Parker) -> bool {
        let is_given = !parker.go_abroad();
        parker.come_home();
        is_given
    }

    /// The waiters' places in a line that they joined one after the other.
    fn line<'a, const N: usize>(
        waiters: &'a Waiters<bool>,
        parkers: &'a [Arc<Parker>; N],
    ) -> [Place<'a, bool>; N] {
        parkers.each_ref().map(|parker| {
            let mut place = Place { waiters, parker, is_in_line: false };
            assert!(place.lead().is_none(), "another leads");
            place
        })
    }

    #[test]
    fn the_end_of_a_lead_calls_one_follower() {
        let (waiters, parkers) = (Waiters::new(false), parkers::<3>());
        let lead = waiters.lead().expect("no one leads");
        let mut places = line(&waiters, &parkers);
        assert!(places[0].lead().is_none() && lock(&waiters.line).len() == 3, "it joins once");
        assert!(!parkers.iter().any(|parker| is_called(parker)));
        drop(lead);
        assert_eq!(parkers.each_ref().map(|parker| is_called(parker)), [false, false, true]);
        // Another may be faster than the one who was called; the one in between stays in line.
        let lead = places[0].lead().expect("no one leads");
        assert!(matches!(&lock(&waiters.line)[..], [other] if Arc::ptr_eq(other, &parkers[1])));
        drop(lead);
        assert_eq!(parkers.each_ref().map(|parker| is_called(parker)), [false, true, true]);
    }

    #[test]
    fn who_was_called_and_leaves_passes_the_call_on() {
        let (waiters, parkers) = (Waiters::new(false), parkers::<2>());
        let lead = waiters.lead().expect("no one leads");
        let [first, second] = line(&waiters, &parkers);
        drop(lead);
        assert_eq!(parkers.each_ref().map(|parker| is_called(parker)), [false, true]);
        drop(second);
        assert!(is_called(&parkers[0]));
        drop(first);
        assert!(waiters.lead().is_some());
    }

    #[test]
    fn who_was_not_called_and_leaves_calls_no_one() {
        let (waiters, parkers) = (Waiters::new(false), parkers::<2>());
        let lead = waiters.lead().expect("no one leads");
        let [_first, second] = line(&waiters, &parkers);
        drop(Place { waiters: &waiters, parker: &Arc::new(Parker::new()), is_in_line: false });
        drop(second);
        assert_eq!(parkers.each_ref().map(|parker| is_called(parker)), [false, false]);
        assert_eq!(lock(&waiters.line).len(), 1);
        drop(lead);
        assert_eq!(parkers.each_ref().map(|parker| is_called(parker)), [true, false]);
    }

    #[test]
    fn who_finds_all_done_by_a_look_does_not_sleep() {
        let (source, waiters) = (Looked::default(), Waiters::new(false));
        assert!(wait(&source, &waiters, |source| source.looks.get() == 1));
        assert!(waiters.lead().is_some(), "the lead does not stay with it");
    }

    #[test]
    fn errands_are_run_before_the_leader_sleeps() {
        let (source, waiters) = (Looked::default(), Waiters::new(true));
        assert!(wait(&source, &waiters, |source| source.errands.get() == 2));
        assert_eq!(source.looks.get(), 2);
    }

    #[test]
    fn polling_ends_as_soon_as_it_is_done() {
        let (source, waiters) = (Looked::default(), Waiters::new(false));
        assert!(waiters.poll_until(&source, 5, &mut || source.looks.get() == 3));
        assert_eq!(source.looks.take(), 3);
        assert!(!waiters.poll_until(&source, 5, &mut || false));
        assert_eq!((source.looks.take(), waiters.poll(&source)), (5, 7));
        // Another leads, and looks.
        let lead = waiters.lead().expect("no one leads");
        assert_eq!((source.looks.take(), waiters.poll(&source)), (1, 0));
        assert!(waiters.poll_until(&source, 5, &mut || true));
        assert_eq!(source.looks.get(), 0);
        drop(lead);
    }
}
