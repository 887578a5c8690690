//! Calls of the interface.

use std::cell::OnceCell;
use std::time::Duration;

use super::{Profiler, SHARD_LIMIT, SHARDS, Shard};
use crate::sync::{Arc, AtomicU32, Ordering, lock};
use crate::timeline::Timeline;
use crate::{Error, LoadError};

/// One recorded call of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The function.
    pub name: &'static str,
    /// Number of the thread in this process, by the order in which threads were first recorded.
    pub thread: u32,
    /// Its name, if it has one.
    pub thread_name: Option<Arc<str>>,
    /// The stream, of a call that concerns one.
    pub stream: Option<u32>,
    /// Number of the operation that it made, or was about.
    pub operation: Option<u64>,
    /// When it began, on the clock of the device object.
    pub start: Duration,
    /// When it returned.
    pub end: Duration,
    /// It returned an error.
    pub failed: bool,
}

/// What is known of a thread.
struct Thread {
    number: u32,
    name: Option<Arc<str>>,
}

impl Thread {
    fn new() -> Self {
        static NEXT: std::sync::LazyLock<AtomicU32> =
            std::sync::LazyLock::new(|| AtomicU32::new(0));
        // Relaxed: any number that no other thread has will do.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, name: std::thread::current().name().map(Into::into) }
    }
}

fn with_thread<R>(look: impl FnOnce(&Thread) -> R) -> R {
    thread_local!(static MINE: OnceCell<Thread> = const { OnceCell::new() });
    MINE.with(|mine| look(mine.get_or_init(Thread::new)))
}

/// Returns the recorder of this thread.
pub(super) fn shard() -> usize {
    with_thread(|thread| thread.number as usize % SHARDS)
}

impl Profiler {
    /// Starts recording, calls of the interface too: those of [`Stream`](crate::Stream), waits for
    /// events, allocations, loading of kernels, aborts and resets of the cores; with their threads.
    ///
    /// Each call costs two looks at the clock then. Without, it costs one more load of a word.
    pub fn start_with_calls(&self) {
        self.start();
        self.has_calls.store(true, Ordering::Release);
    }

    /// Does a call of the interface, and records it if that is on.
    #[inline]
    pub(crate) fn call<T: Returned>(
        &self,
        name: &'static str,
        (stream, operation): (Option<u32>, Option<u64>),
        call: impl FnOnce() -> T,
    ) -> T {
        // Relaxed: what began a moment before need not be recorded.
        if !self.has_calls.load(Ordering::Relaxed) {
            return call();
        }
        let start = self.clock.now();
        let returned = call();
        let end = self.clock.now();
        let operation = operation.or_else(|| returned.operation());
        let failed = returned.is_failure();
        with_thread(|thread| {
            let (number, thread_name) = (thread.number, thread.name.clone());
            self.keep(Call {
                name,
                thread: number,
                thread_name,
                stream,
                operation,
                start,
                end,
                failed,
            });
        });
        returned
    }

    fn keep(&self, call: Call) {
        let Some(Shard { calls, .. }) = self.shards.get(call.thread as usize % SHARDS) else {
            return;
        };
        let mut calls = lock(calls);
        if calls.len() < SHARD_LIMIT {
            calls.push(call);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a recording has of that which a call returns.
pub(crate) trait Returned {
    /// The number of the operation that it made.
    fn operation(&self) -> Option<u64> {
        None
    }

    fn is_failure(&self) -> bool {
        false
    }

    /// A failure says which call it is of, and of which device, unless it knows.
    fn during(self, _call: &'static str, _device: &Arc<str>) -> Self
    where
        Self: Sized,
    {
        self
    }
}

/// A failure of a call.
pub(crate) trait Failure {
    fn during(self, call: &'static str, device: &Arc<str>) -> Self;
}

impl Failure for Error {
    fn during(self, call: &'static str, device: &Arc<str>) -> Self {
        Self::during(self, call).on(Arc::clone(device))
    }
}

impl Failure for LoadError {
    fn during(self, call: &'static str, device: &Arc<str>) -> Self {
        match self {
            Self::Device { name, source } => {
                Self::Device { name, source: Box::new(Failure::during(*source, call, device)) }
            }
            error @ Self::Elf { .. } => error,
        }
    }
}

impl Returned for () {}
impl Returned for Timeline {}
/// Of several operations a recording of calls names none; each has its own spans.
impl<T> Returned for Vec<T> {}

impl<T: Returned, E: Failure> Returned for Result<T, E> {
    fn operation(&self) -> Option<u64> {
        self.as_ref().ok().and_then(Returned::operation)
    }

    fn is_failure(&self) -> bool {
        self.is_err()
    }

    #[inline]
    fn during(self, call: &'static str, device: &Arc<str>) -> Self {
        self.map_err(|error| error.during(call, device))
    }
}

/// A wait, which may end without a result.
impl<T: Returned> Returned for Option<T> {
    fn is_failure(&self) -> bool {
        self.as_ref().is_none_or(Returned::is_failure)
    }
}
