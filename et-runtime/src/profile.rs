//! A record of what happened, for profilers.

mod calls;
mod clock;
mod fit;
mod harts;
mod record;
mod tape;
mod write;

use std::time::Duration;

use self::tape::Tape;
use crate::clock::Clock;
use crate::link::core::Ended;
use crate::memory::{DeviceMemory, MemorySample};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, lock};

pub use calls::Call;
pub(crate) use calls::Returned;
pub use clock::DeviceSpan;
pub use fit::ClockFit;
pub use record::Record;
pub(crate) use write::memory_event;
pub use write::{ProfileFormat, ProfileWriter};

/// Recorders; a thread that completes operations uses one of them, mostly alone.
const SHARDS: usize = 16;
/// Operations that each keeps until they are taken; later ones are counted only.
const SHARD_LIMIT: usize = 1 << 16;

/// Records the operations of a device while switched on, and how much of its memory is in use.
///
/// What was recorded is kept until [`stop`](Self::stop) or [`drain`](Self::drain) takes it, up to
/// 65 536 operations, and as many calls, for each thread that has some. Runs of any length are
/// recorded by draining every now and then, into a [`ProfileWriter`]. The memory for operations is
/// kept for the next recording.
#[derive(Debug)]
pub struct Profiler {
    on: AtomicBool,
    /// Calls are recorded, too.
    has_calls: AtomicBool,
    shards: [Shard; SHARDS],
    /// Names of the kernels that have a number, which is their place counted from 1.
    kernels: Mutex<Vec<Arc<str>>>,
    dropped: AtomicU64,
    memory: Arc<DeviceMemory>,
    clock: Arc<dyn Clock>,
}

/// On a cache line of its own, as the next one is another thread's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    records: Mutex<Tape>,
    calls: Mutex<Vec<Call>>,
}

impl Profiler {
    pub(crate) fn new(memory: Arc<DeviceMemory>, clock: Arc<dyn Clock>) -> Self {
        Self {
            on: AtomicBool::new(false),
            has_calls: AtomicBool::new(false),
            shards: std::array::from_fn(|_| Shard::default()),
            kernels: Mutex::default(),
            dropped: AtomicU64::new(0),
            memory,
            clock,
        }
    }

    /// Starts recording operations and memory; [calls](Self::start_with_calls) are not.
    pub fn start(&self) {
        self.has_calls.store(false, Ordering::Release);
        self.on.store(true, Ordering::Release);
        self.memory.start_log(Arc::clone(&self.clock));
    }

    /// Stops recording and returns what was recorded, in the order of completion.
    pub fn stop(&self) -> Profile {
        self.on.store(false, Ordering::Release);
        self.has_calls.store(false, Ordering::Release);
        let profile = self.drain();
        self.memory.stop_log();
        profile
    }

    /// Takes what was recorded so far, in the order of completion, and goes on.
    pub fn drain(&self) -> Profile {
        let (mut records, mut calls) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let tape = lock(&shard.records).take();
            let empty = tape.unroll(&lock(&self.kernels), &mut records);
            lock(&shard.records).reuse(empty, SHARD_LIMIT);
            calls.append(&mut lock(&shard.calls));
        }
        records.sort_by_key(|record: &Record| record.timeline.completed);
        calls.sort_by_key(|call: &Call| (call.start, std::cmp::Reverse(call.end)));
        let (memory, missing) = self.memory.take_log();
        Profile {
            records,
            calls,
            memory,
            dropped: self.dropped.swap(0, Ordering::Relaxed) + missing,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: what began a moment before need not be recorded.
        self.on.load(Ordering::Relaxed)
    }

    /// Returns the number of a kernel of that name.
    pub(crate) fn kernel_number(&self, name: &Arc<str>) -> u32 {
        let mut kernels = lock(&self.kernels);
        let known = kernels.iter().position(|other| other == name);
        let at = known.unwrap_or_else(|| {
            kernels.push(Arc::clone(name));
            kernels.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(0)
    }

    /// Records operations that have ended, if that is on.
    pub(crate) fn operations_done(&self, ended: &[Ended]) {
        if ended.is_empty() || !self.is_on() {
            return;
        }
        let Some(shard) = self.shards.get(calls::shard()) else { return };
        let mut records = lock(&shard.records);
        let room = SHARD_LIMIT.saturating_sub(records.len()).min(ended.len());
        ended[..room].iter().for_each(|ended| records.push(ended));
        if room < ended.len() {
            self.dropped.fetch_add((ended.len() - room) as u64, Ordering::Relaxed);
        }
    }
}

/// A finished recording, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The operations, in the order of completion.
    pub records: Vec<Record>,
    /// Calls of the interface, in the order in which they began, if they were recorded.
    pub calls: Vec<Call>,
    /// How much device memory was in use: at the start, and after each change.
    pub memory: Vec<MemorySample>,
    /// Operations, calls, and changes of the memory in use, that were not kept because there were
    /// too many.
    pub dropped: u64,
}

impl Profile {
    /// Writes the recording as Chrome trace events, which Perfetto opens. See [`ProfileWriter`].
    ///
    /// `frequency_mhz` converts the device's cycles. Without it, or with 0, the device's track is
    /// empty: how long a cycle is cannot be guessed.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json(
        &self,
        out: &mut dyn std::io::Write,
        frequency_mhz: Option<u32>,
    ) -> std::io::Result<()> {
        let mut writer = ProfileWriter::new(out, ProfileFormat::Chrome, frequency_mhz)?;
        writer.write(self)?;
        writer.finish()
    }

    /// Returns where the device's clock is on the host's, as far as this recording tells.
    #[must_use]
    pub fn clock(&self, frequency_mhz: u32) -> ClockFit {
        let mut fit = ClockFit::new(frequency_mhz);
        self.records.iter().for_each(|record| fit.add(&record.timeline));
        fit
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
