//! Run queues of the host threads.
//!
//! Every host thread (worker) has a queue of runnable harts and takes them in turn, so that none
//! starves. A hart goes back to the queue of the worker that ran it: its state stays in that
//! core's caches. A worker without work steals half of another's queue, and sleeps when there is
//! nothing to steal.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::memory::map::HART_SLOTS;

/// The run queues.
#[derive(Debug)]
pub(crate) struct Scheduler {
    queues: Box<[Mutex<VecDeque<u32>>]>,
    /// For each hart the worker whose queue it belongs to.
    homes: Box<[AtomicU32]>,
    /// Held by a worker from its last look at the queues until it sleeps.
    sleep: Mutex<()>,
    work: Condvar,
    sleepers: AtomicUsize,
    shutdown: AtomicBool,
}

impl Scheduler {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            queues: (0..workers).map(|_| Mutex::default()).collect(),
            homes: (0..HART_SLOTS).map(|_| AtomicU32::new(0)).collect(),
            sleep: Mutex::new(()),
            work: Condvar::new(),
            sleepers: AtomicUsize::new(0),
            shutdown: AtomicBool::new(false),
        }
    }

    fn queue(&self, worker: usize) -> MutexGuard<'_, VecDeque<u32>> {
        self.queues[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all `harts` runnable: neighbours on the same worker, equal shares for all.
    pub(crate) fn start(&self, harts: &[u32]) {
        let workers = self.queues.len();
        for worker in 0..workers {
            let share = worker * harts.len() / workers..(worker + 1) * harts.len() / workers;
            for &hart in &harts[share.clone()] {
                self.set_home(hart, worker);
            }
            self.queue(worker).extend(&harts[share]);
        }
        self.notify_all();
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are few host threads")]
    fn set_home(&self, hart: u32, worker: usize) {
        // Relaxed: only a hint where the hart's state is cached.
        self.homes[hart as usize].store(worker as u32, Ordering::Relaxed);
    }

    /// Makes a hart runnable that had been waiting.
    pub(crate) fn wake(&self, hart: u32) {
        let home = self.homes[hart as usize].load(Ordering::Relaxed) as usize;
        self.queue(home).push_back(hart);
        self.notify_one();
    }

    /// Puts a hart whose turn is over back in the queue of its worker.
    pub(crate) fn requeue(&self, worker: usize, hart: u32) {
        let mut queue = self.queue(worker);
        queue.push_back(hart);
        let spare = queue.len() > 1;
        drop(queue);
        // A lone hart is taken by this worker itself, at once.
        if spare {
            self.notify_one();
        }
    }

    /// Waits for a hart to run; none after [`shut_down`](Self::shut_down). `choose` gets the number
    /// of harts in the worker's queue and returns the place of one; the first has waited longest.
    pub(crate) fn next(&self, worker: usize, choose: impl Fn(usize) -> usize) -> Option<u32> {
        loop {
            if self.shutdown.load(Ordering::Acquire) {
                return None;
            }
            if let Some(hart) = self.take(worker, &choose) {
                return Some(hart);
            }
            let sleep = self.sleep();
            // Sequentially consistent, before the last look: who fills a queue after that look
            // sees the sleeper, and must wait for the lock that `wait` gives up.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let idle = !self.shutdown.load(Ordering::SeqCst)
                && (0..self.queues.len()).all(|worker| self.queue(worker).is_empty());
            if idle {
                drop(self.work.wait(sleep).unwrap_or_else(PoisonError::into_inner));
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns `true` if no hart is in the worker's queue.
    pub(crate) fn is_idle(&self, worker: usize) -> bool {
        self.queue(worker).is_empty()
    }

    fn take(&self, worker: usize, choose: impl Fn(usize) -> usize) -> Option<u32> {
        let mut queue = self.queue(worker);
        let own = match queue.len() {
            0 => None,
            len => queue.swap_remove_front(choose(len)),
        };
        // The own queue's lock must be free again when stealing.
        drop(queue);
        own.or_else(|| self.steal(worker))
    }

    /// Takes half of another worker's queue and returns one hart of it.
    fn steal(&self, thief: usize) -> Option<u32> {
        let workers = self.queues.len();
        for distance in 1..workers {
            let mut victim = self.queue((thief + distance) % workers);
            let keep = victim.len() / 2;
            let mut loot = victim.split_off(keep);
            drop(victim);
            let Some(first) = loot.pop_front() else { continue };
            self.set_home(first, thief);
            if !loot.is_empty() {
                for &hart in &loot {
                    self.set_home(hart, thief);
                }
                self.queue(thief).append(&mut loot);
            }
            return Some(first);
        }
        None
    }

    fn notify_one(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _sleep = self.sleep();
            self.work.notify_one();
        }
    }

    fn notify_all(&self) {
        let _sleep = self.sleep();
        self.work.notify_all();
    }

    /// Ends all workers. Harts still in queues are not run any more.
    pub(crate) fn shut_down(&self) {
        self.shutdown.store(true, Ordering::SeqCst);
        self.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn oldest(_: usize) -> usize {
        0
    }

    #[test]
    fn harts_are_shared_out_in_blocks_and_taken_in_turn() {
        let scheduler = Scheduler::new(2);
        scheduler.start(&[0, 1, 2, 3]);
        assert_eq!((scheduler.next(0, oldest), scheduler.next(1, oldest)), (Some(0), Some(2)));
        scheduler.requeue(0, 0);
        assert_eq!((scheduler.next(0, oldest), scheduler.next(0, oldest)), (Some(1), Some(0)));
    }

    #[test]
    fn an_idle_worker_steals_half() {
        let scheduler = Scheduler::new(2);
        scheduler.start(&[0, 1, 2, 3, 4, 5]);
        let own: Vec<_> = (0..3).map(|_| scheduler.next(1, oldest)).collect();
        assert_eq!(own, [Some(3), Some(4), Some(5)]);
        assert_eq!(scheduler.next(1, oldest), Some(1), "of 0, 1, 2 the last two are stolen");
        scheduler.wake(1);
        assert_eq!((scheduler.next(1, oldest), scheduler.next(1, oldest)), (Some(2), Some(1)));
    }

    #[test]
    fn a_sleeping_worker_is_woken_by_work_and_by_the_end() {
        let scheduler = Arc::new(Scheduler::new(2));
        let worker = {
            let scheduler = Arc::clone(&scheduler);
            thread::spawn(move || std::iter::from_fn(|| scheduler.next(1, oldest)).count())
        };
        for hart in 0..100 {
            scheduler.wake(hart);
        }
        while (0..2).any(|worker| !scheduler.queue(worker).is_empty()) {
            thread::yield_now();
        }
        scheduler.shut_down();
        assert_eq!(worker.join().unwrap(), 100);
    }
}
