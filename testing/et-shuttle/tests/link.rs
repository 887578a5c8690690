//! The whole link: threads that submit, wait, abort, call back and let go of what they hold, on a
//! card that answers in any order and may be pulled. No timeout ever passes, so a thread that is
//! not woken, and work that no one looks after, are a deadlock.
#![cfg(shuttle)]

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use et_runtime::handshake::Parker;
use et_runtime::{Clock, Config, Device, DeviceSlice, Error, Event, EventState, Stream};
use et_shuttle::{Card, Desk, below, chance, check};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shuttle::thread;

const THREADS: usize = 3;
const STEPS: u32 = 7;
const BARRIERS: u32 = 10;

/// Time stands still: what takes long is for others to test.
#[derive(Debug)]
struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// What all threads see of each other.
#[derive(Default)]
struct Ledger {
    /// Events that others may wait for.
    published: Mutex<Vec<Event>>,
    /// Callbacks that were left, and those that were called.
    left: AtomicU32,
    called: AtomicU32,
    has_aborted: AtomicBool,
    is_pulled: AtomicBool,
}

impl Ledger {
    /// An error is a loss or an abort, and there was one.
    fn judge(&self, error: &Error) {
        let is_abort = matches!(
            error,
            Error::Aborted { .. } | Error::AbortedWith { .. } | Error::HasEnded { .. }
        );
        let has_aborted = self.has_aborted.load(Ordering::SeqCst);
        let is_pulled = self.is_pulled.load(Ordering::SeqCst);
        assert!(is_abort && has_aborted || is_pulled, "{error:?}");
    }

    fn check<T>(&self, outcome: Result<T, Error>) -> Option<T> {
        outcome.inspect_err(|error| self.judge(error)).ok()
    }
}

/// Wakes the thread of a future.
struct Unpark(Parker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future as an executor does, without looking at the device; perhaps not to the end.
fn block_on<F: Future>(future: F) -> Option<F::Output> {
    let parker = Arc::new(Unpark(Parker::new()));
    let waker = Waker::from(Arc::clone(&parker));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if chance(8) {
            return None;
        }
        parker.0.park();
    }
}

struct User<'a> {
    device: &'a Device<Card>,
    ledger: &'a Arc<Ledger>,
    stream: Stream<Card>,
    memory: DeviceSlice,
    events: Vec<Event>,
}

impl User<'_> {
    fn keep(&mut self, submitted: Result<Event, Error>) {
        let Some(event) = self.ledger.check(submitted) else { return };
        if chance(3) {
            self.ledger.published.lock().unwrap().push(event.clone());
        }
        self.events.push(event);
    }

    fn step(&mut self) {
        match below(15) {
            0..3 => self.keep(self.stream.barrier()),
            3..5 => self.keep(self.stream.copy_to_device(&[7_u8; 192], self.memory.clone())),
            5 => {
                // Staging memory is enough for one at a time.
                let mut bytes = [0_u8; 192];
                self.ledger.check(self.stream.read(&self.memory, &mut bytes, Duration::MAX));
            }
            6 => {
                if let Some(event) = self.events.pop() {
                    self.ledger.check(event.wait(Duration::MAX));
                }
            }
            7 => drop(self.events.pop()),
            8 => self.call_back(),
            9 => {
                let other = self.ledger.published.lock().unwrap().pop();
                if let Some(other) = other {
                    self.stream.wait_for(&other);
                }
            }
            10 => self.synchronize(),
            11 => {
                if let Some(event) = self.events.pop()
                    && let Some(outcome) = block_on(event.into_future())
                {
                    self.ledger.check(outcome);
                }
            }
            12 if chance(3) => {
                self.ledger.has_aborted.store(true, Ordering::SeqCst);
                match self.events.last() {
                    Some(event) => self.ledger.check(self.device.request_abort(event)),
                    None => self.ledger.check(self.stream.abort(Duration::MAX)),
                };
            }
            13 => {
                // What was submitted goes on without handles.
                self.events.clear();
                self.stream = self.device.stream();
            }
            _ => thread::yield_now(),
        }
    }

    /// Leaves a callback, which may have something more to do.
    fn call_back(&self) {
        let Some(event) = self.events.last() else { return };
        let (ledger, stream) = (Arc::clone(self.ledger), self.stream.clone());
        ledger.left.fetch_add(1, Ordering::SeqCst);
        let call = move || {
            if chance(2) {
                // The device may be closed by now.
                drop(stream.barrier());
            }
            ledger.called.fetch_add(1, Ordering::SeqCst);
        };
        if chance(3) {
            event.on_state(EventState::Ready, move |_| call());
        } else {
            event.on_done(move |_| call());
        }
    }

    fn synchronize(&self) {
        self.ledger.check(self.stream.synchronize(Duration::MAX));
    }
}

fn live(device: &Device<Card>, ledger: &Arc<Ledger>, memory: DeviceSlice) {
    let stream = if chance(2) { device.default_stream().clone() } else { device.stream() };
    let mut user = User { device, ledger, stream, memory, events: Vec::new() };
    for _ in 0..STEPS {
        user.step();
    }
    user.synchronize();
    for event in user.events.drain(..) {
        let Some(outcome) = event.outcome() else {
            panic!("{event:?} has not ended with its stream");
        };
        ledger.check(outcome);
    }
}

/// A device on a card, what pulls the card, and the firmware behind it.
struct Rig {
    desk: Arc<Desk>,
    device: Arc<Device<Card>>,
    ledger: Arc<Ledger>,
    firmware: thread::JoinHandle<()>,
}

impl Rig {
    fn new(in_flight: u16) -> Self {
        let desk = Arc::new(Desk::default());
        let firmware = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || desk.serve())
        };
        let config = Config::new()
            .clock(Arc::new(Frozen))
            .spin(Duration::ZERO)
            .in_flight(in_flight)
            .staging_bytes(4096);
        let device = Arc::new(Device::open_with(Card::new(&desk), config).unwrap());
        Self { desk, device, ledger: Arc::default(), firmware }
    }

    fn pull(&self) {
        (0..below(20)).for_each(|_| thread::yield_now());
        self.ledger.is_pulled.store(true, Ordering::SeqCst);
        self.desk.lose();
    }

    /// Closes the device; every callback has been called then.
    fn end(self) {
        let Some(device) = Arc::into_inner(self.device) else {
            unreachable!("the others have ended")
        };
        device.close();
        self.desk.end();
        self.firmware.join().unwrap();
        let count = |it: &AtomicU32| it.load(Ordering::SeqCst);
        assert_eq!(count(&self.ledger.called), count(&self.ledger.left), "callbacks");
    }
}

#[test]
fn whatever_threads_do_everything_ends() {
    check("link", 10_000, || {
        let rig = Rig::new(5);
        let memory = rig.device.alloc(192).unwrap();
        // The background thread may go to sleep for good meanwhile, and be about to.
        (0..below(200)).for_each(|_| thread::yield_now());
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (device, memory) = (Arc::clone(&rig.device), memory.whole());
                let ledger = Arc::clone(&rig.ledger);
                thread::spawn(move || live(&device, &ledger, memory))
            })
            .collect();
        if chance(4) {
            rig.pull();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        rig.end();
    });
}

/// Those who wait have nowhere to sleep when the card is gone, and must let those work who end
/// what they wait for. Few threads, so that schedules which favour the wrong one are not rare.
#[test]
fn who_waits_at_a_lost_card_lets_others_work() {
    check("lost", 10_000, || {
        let rig = Rig::new(64);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (device, ledger) = (Arc::clone(&rig.device), Arc::clone(&rig.ledger));
                thread::spawn(move || {
                    let stream = device.stream();
                    // To end them all takes some time.
                    for _ in 0..BARRIERS {
                        ledger.check(stream.barrier());
                    }
                    ledger.check(stream.synchronize(Duration::MAX));
                })
            })
            .collect();
        rig.pull();
        for thread in threads {
            thread.join().unwrap();
        }
        rig.end();
    });
}
