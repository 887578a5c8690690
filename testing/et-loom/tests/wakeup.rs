//! Wake-ups: a thread that waits is woken when what it waits for has come, whoever sees it come.
#![cfg(loom)]

use std::collections::VecDeque;
use std::future::Future;
use std::task::Wake;
use std::time::Duration;

use et_hal::Ticket;
use et_loom::check;
use et_runtime::handshake::{OneShot, Parker, Source, Terms, Waiters, Whereabouts};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// A completion queue, and results for those who wait.
struct Device {
    arrived: Mutex<VecDeque<usize>>,
    /// Notifications so far.
    epoch: Mutex<u64>,
    bell: Condvar,
    results: [OneShot<u32>; 2],
    waiters: Waiters<()>,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            arrived: Mutex::new(VecDeque::new()),
            epoch: Mutex::new(0),
            bell: Condvar::new(),
            results: [OneShot::new(), OneShot::new()],
            waiters: Waiters::new(()),
        })
    }

    /// The device answers.
    fn arrive(&self, result: usize) {
        self.arrived.lock().unwrap().push_back(result);
        self.wake();
    }

    /// A thread of the host ends something without having drained it, as an abort does.
    fn give(&self, result: usize) {
        let mut must_wake = false;
        let told = self.results[result].set(7, |parker| {
            must_wake |= parker.call() == Whereabouts::Abroad;
        });
        if must_wake {
            self.wake();
        }
        assert_eq!(told.map(|told| told.run()), Some(vec![]));
    }

    /// Waits as the runtime does; `timeout` passes at once unless it is endless.
    fn wait(&self, result: usize, timeout: Duration) -> bool {
        let parker = Arc::new(Parker::new());
        let result = &self.results[result];
        if !result.subscribe(&parker) {
            return true;
        }
        let looks = std::cell::Cell::new(0);
        let left = || {
            // The first look finds time left, so that the wait is entered.
            looks.set(looks.get() + 1);
            if timeout == Duration::MAX || looks.get() < 3 { timeout } else { Duration::ZERO }
        };
        let terms = Terms { left: &left, tick: Duration::MAX };
        let done = self.waiters.wait(self, &parker, &mut || result.is_done(), terms);
        result.unsubscribe(&parker);
        assert!(!done || result.get() == Some(7), "done, and there is no result");
        done
    }

    fn wake(&self) {
        *self.epoch.lock().unwrap() += 1;
        self.bell.notify_all();
    }
}

impl Source for Device {
    type Tools = ();

    fn drain(&self, (): &mut ()) -> usize {
        let mut taken = 0;
        loop {
            let next = self.arrived.lock().unwrap().pop_front();
            let Some(result) = next else { return taken };
            taken += 1;
            self.give(result);
        }
    }

    fn ticket(&self) -> Ticket {
        Ticket(*self.epoch.lock().unwrap())
    }

    fn sleep(&self, seen: Ticket, timeout: Duration) {
        let mut epoch = self.epoch.lock().unwrap();
        while *epoch == seen.0 && timeout == Duration::MAX {
            epoch = self.bell.wait(epoch).unwrap();
        }
    }

    fn has_errands(&self) -> bool {
        false
    }

    fn run_errands(&self) {}
}

#[test]
fn while_one_waits_one_drains() {
    check("leader", Some(2), || {
        let device = Device::new();
        let waiters: Vec<_> = (0..2)
            .map(|result| {
                let device = Arc::clone(&device);
                thread::spawn(move || assert!(device.wait(result, Duration::MAX)))
            })
            .collect();
        device.arrive(0);
        device.arrive(1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_waiter_that_gives_up_does_not_take_the_lead_with_it() {
    check("leader-timed", Some(3), || {
        let device = Device::new();
        let patient = {
            let device = Arc::clone(&device);
            thread::spawn(move || assert!(device.wait(0, Duration::MAX)))
        };
        let hasty = {
            let device = Arc::clone(&device);
            thread::spawn(move || device.wait(1, Duration::from_millis(1)))
        };
        // Whoever is in line when this ends is called, the hasty one perhaps.
        device.waiters.poll(&*device);
        device.arrive(0);
        patient.join().unwrap();
        let _ = hasty.join().unwrap();
    });
}

#[test]
fn one_who_only_polls_does_not_take_the_lead_with_it() {
    check("leader-poll", Some(3), || {
        let device = Device::new();
        let waiter = {
            let device = Arc::clone(&device);
            thread::spawn(move || assert!(device.wait(0, Duration::MAX)))
        };
        device.waiters.poll(&*device);
        device.arrive(0);
        waiter.join().unwrap();
    });
}

#[test]
fn what_the_host_ends_wakes_the_one_who_sleeps_at_the_device() {
    check("abroad", Some(3), || {
        let device = Device::new();
        let waiter = {
            let device = Arc::clone(&device);
            thread::spawn(move || assert!(device.wait(0, Duration::MAX)))
        };
        // No notification of the device, and nothing to drain.
        device.give(0);
        waiter.join().unwrap();
    });
}

#[test]
fn every_waiter_sees_the_result() {
    check("one-shot", Some(3), || {
        let result = Arc::new(OneShot::<u32>::new());
        let calls = Arc::new(AtomicU32::new(0));
        let waiter = {
            let result = Arc::clone(&result);
            thread::spawn(move || {
                let parker = Arc::new(Parker::new());
                if result.subscribe(&parker) {
                    parker.park();
                }
                assert_eq!(result.get(), Some(7));
            })
        };
        let caller = {
            let (result, calls) = (Arc::clone(&result), Arc::clone(&calls));
            thread::spawn(move || {
                let late = result.call(move |value| {
                    assert_eq!(*value, 7);
                    calls.fetch_add(1, Ordering::Relaxed);
                });
                if let Some(late) = late {
                    assert!(late.run().is_empty());
                }
            })
        };
        if let Some(told) = result.set(7, |parker| parker.unpark()) {
            assert!(told.run().is_empty());
        }
        assert!(result.set(8, |parker| parker.unpark()).is_none());
        waiter.join().unwrap();
        caller.join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

/// Counts how often it is woken.
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_future_is_woken_unless_it_is_dropped() {
    check("future", Some(3), || {
        let result = Arc::new(OneShot::<u32>::new());
        let setter = {
            let result = Arc::clone(&result);
            thread::spawn(move || {
                if let Some(told) = result.set(7, |parker| parker.unpark()) {
                    assert!(told.run().is_empty());
                }
            })
        };
        let (kept, dropped) =
            (Arc::new(Count(AtomicU32::new(0))), Arc::new(Count(AtomicU32::new(0))));
        let mut keys = [None, None];
        let first = result.poll(&Arc::clone(&kept).into(), &mut keys[0]);
        let second = result.poll(&Arc::clone(&dropped).into(), &mut keys[1]);
        if let Some(key) = keys[1] {
            result.forget(key);
            // If the result is not in by now, nothing of the future is left.
            let is_waiting = result.subscribe(&Arc::new(Parker::new()));
            assert!(!is_waiting || Arc::strong_count(&dropped) == 1, "it is still registered");
        }
        setter.join().unwrap();
        assert!(first.is_some() || kept.0.load(Ordering::Relaxed) == 1, "not woken");
        assert!(second.is_none() || dropped.0.load(Ordering::Relaxed) == 0, "woken for nothing");
        assert_eq!(result.get(), Some(7));
    });
}

const _: fn() = || {
    fn is_future<F: Future>() {}
    is_future::<et_runtime::EventFuture>();
};
