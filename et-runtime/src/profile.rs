//! Recording what a device did, for Perfetto.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::link::Operation;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::timeline::Timeline;

/// Most operations that are kept; later ones are counted only.
const LIMIT: usize = 1_000_000;

/// One recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it was.
    pub name: &'static str,
    /// Number of the operation.
    pub id: u64,
    /// Its stream.
    pub stream: u32,
    /// When.
    pub timeline: Timeline,
    /// It failed.
    pub failed: bool,
}

/// Records the operations of a device while switched on.
#[derive(Debug)]
pub struct Profiler {
    on: AtomicBool,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    kept: Vec<Record>,
    dropped: u64,
}

impl Profiler {
    pub(crate) fn new() -> Self {
        Self { on: AtomicBool::new(false), records: Mutex::default() }
    }

    /// Starts recording.
    pub fn start(&self) {
        self.on.store(true, Ordering::Release);
    }

    /// Stops recording and returns what was recorded, in the order of completion.
    pub fn stop(&self) -> Profile {
        self.on.store(false, Ordering::Release);
        let records = std::mem::take(&mut *lock(&self.records));
        Profile { records: records.kept, dropped: records.dropped }
    }

    pub(crate) fn operation_done(&self, operation: &Operation, timeline: Timeline, failed: bool) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let record = Record {
            name: operation.name,
            id: operation.key.id,
            stream: operation.stream,
            timeline,
            failed,
        };
        let mut records = lock(&self.records);
        if records.kept.len() < LIMIT {
            records.kept.push(record);
        } else {
            records.dropped += 1;
        }
    }
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The operations, in the order of completion.
    pub records: Vec<Record>,
    /// Operations that were not kept because there were too many.
    pub dropped: u64,
}

impl Profile {
    /// Writes the recording as Chrome trace events, which Perfetto opens: a track for each stream
    /// with the time from call to completion, and one for the device with the time each command
    /// executed.
    ///
    /// `frequency_mhz` converts the device's cycles; the first command fixes where they are on the
    /// host's time line. Without it, or with 0, the device's track is empty: how long a cycle is
    /// cannot be guessed.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json(
        &self,
        out: &mut dyn Write,
        frequency_mhz: Option<u32>,
    ) -> std::io::Result<()> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let mut events = vec![
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "host"}}),
            json!({"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "device"}}),
        ];
        let mhz = frequency_mhz.filter(|&mhz| mhz != 0).map(f64::from);
        // The earliest device time stamp is laid on the host time at which its command was sent.
        let anchor = self
            .records
            .iter()
            .filter_map(|r| r.timeline.device.map(|d| (d.start, r.timeline.sent)))
            .min_by_key(|(start, _)| *start);
        for record in &self.records {
            let Timeline { queued, sent, completed, device } = record.timeline;
            events.push(json!({
                "ph": "X", "pid": 1, "tid": record.stream, "name": record.name,
                "ts": micros(queued), "dur": micros(completed.saturating_sub(queued)),
                "args": {
                    "id": record.id,
                    "failed": record.failed,
                    "sent_us": micros(sent.saturating_sub(queued)),
                },
            }));
            let (Some(device), Some((first, at)), Some(mhz)) = (device, anchor, mhz) else {
                continue;
            };
            let begin = device.start.wrapping_sub(first).wrapping_add(device.wait);
            #[expect(clippy::cast_precision_loss, reason = "microseconds for a picture")]
            let to_micros = |cycles: u64| cycles as f64 / mhz;
            events.push(json!({
                "ph": "X", "pid": 2, "tid": record.stream, "name": record.name,
                "ts": micros(at) + to_micros(begin), "dur": to_micros(device.execute),
                "args": {"id": record.id, "cycles": device.execute, "wait_cycles": device.wait},
            }));
        }
        let document = json!({"displayTimeUnit": "ns", "traceEvents": events});
        serde_json::to_writer(&mut *out, &document)?;
        out.flush()
    }
}
