//! When tasks ran, and where.

use std::sync::OnceLock;
use std::time::Duration;

use crate::graph::{Graph, PartOf, TaskId};
use crate::memory::MemorySample;

/// One task of a recorded run, or one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpan {
    /// The task.
    pub task: TaskId,
    /// Which of its [parts](crate::graph::Task::parts); 0 if it has one.
    pub part: u32,
    /// The worker it ran on, by its index.
    pub worker: u32,
    /// When it was handed out, since the launch.
    pub start: Duration,
    /// When its end was seen.
    pub end: Duration,
}

/// When each task of a run ran, and where.
///
/// Times are taken by the scheduler, once for all it does between two looks at the workers, after
/// it has done it. That costs next to nothing, and makes spans longer than the tasks by what the
/// hand-over takes. While tasks take less than some microseconds, one look at the clock serves some
/// thirty of them, and what is between two looks is spread evenly.
#[derive(Clone, Debug)]
pub struct RunTrace {
    recorder: Recorder,
    /// Knows what its units are.
    graph: Graph,
    spans: OnceLock<Vec<TaskSpan>>,
}

/// Start and end of a task or a part as numbers of events, which begin at 1: 0 if there was none.
#[derive(Clone, Copy, Debug, Default)]
struct Raw {
    worker: u32,
    start: u32,
    end: u32,
}

/// What a scheduler notes while it is in a hurry: events in their order, and now and then the time.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    launched: Duration,
    /// By unit.
    raw: Vec<Raw>,
    /// Tasks whose times the device took.
    timed: Vec<TaskSpan>,
    events: u32,
    /// Event numbers and the times at which they were the last.
    marks: Vec<(u32, Duration)>,
}

impl Recorder {
    /// A recorder for so many units, launched at this time.
    pub(super) fn new(units: usize, launched: Duration) -> Self {
        let marks = vec![(0, Duration::ZERO)];
        let raw = vec![Raw::default(); units];
        Self { launched, raw, timed: Vec::new(), events: 0, marks }
    }

    /// A unit is handed out, the first time or to another worker.
    #[inline]
    pub(super) fn start(&mut self, unit: u32, worker: u32) {
        self.events += 1;
        if let Some(raw) = self.raw.get_mut(unit as usize) {
            (raw.worker, raw.start) = (worker, self.events);
        }
    }

    /// A unit has ended.
    #[inline]
    pub(super) fn end(&mut self, unit: u32) {
        self.events += 1;
        if let Some(raw) = self.raw.get_mut(unit as usize) {
            raw.end = self.events;
        }
    }

    /// A task ran at these times.
    pub(super) fn span(&mut self, span: TaskSpan) {
        self.timed.push(span);
    }

    /// Returns `true` if there were events since the last mark.
    pub(super) fn is_unmarked(&self) -> bool {
        self.marks.last().is_none_or(|(events, _)| *events != self.events)
    }

    /// It is this time now.
    pub(super) fn mark(&mut self, now: Duration) {
        self.marks.push((self.events, now.saturating_sub(self.launched)));
    }

    pub(super) fn finish(self, graph: &Graph) -> RunTrace {
        RunTrace { recorder: self, graph: graph.clone(), spans: OnceLock::new() }
    }

    /// The time of an event: between those of the marks around it, unless there was a pause.
    fn time(&self, event: u32) -> Duration {
        let after = self.marks.partition_point(|(events, _)| *events < event);
        let Some(&(last, end)) = self.marks.get(after).or(self.marks.last()) else {
            return Duration::ZERO;
        };
        let (first, start) = self.marks[after.saturating_sub(1).min(self.marks.len() - 1)];
        let (steps, whole) = (last.saturating_sub(first), end.saturating_sub(start));
        if steps <= 2 || whole > SPREAD {
            return end;
        }
        start + whole * event.saturating_sub(first).min(steps) / steps
    }

    fn spans(&self, graph: &Graph) -> Vec<TaskSpan> {
        let view = graph.view();
        let started = (0u32..).zip(&self.raw).filter(|(_, raw)| raw.start != 0);
        let mut started: Vec<_> = started.collect();
        started.sort_unstable_by_key(|(_, raw)| raw.start);
        let of = |(unit, raw): (u32, &Raw)| {
            let PartOf { task, part, .. } = view.unit(unit);
            TaskSpan {
                task: TaskId::from_index(task),
                part,
                worker: raw.worker,
                start: self.time(raw.start),
                end: self.time(raw.end.max(raw.start)),
            }
        };
        started.into_iter().map(of).chain(self.timed.iter().copied()).collect()
    }
}

/// Over how long the events between two looks at the clock may be spread; after a longer pause all
/// of them are at its end.
const SPREAD: Duration = Duration::from_micros(100);

impl RunTrace {
    /// Returns the tasks, in the order in which they were handed out; of a task with several parts
    /// each part that ran.
    #[must_use]
    pub fn spans(&self) -> &[TaskSpan] {
        self.spans.get_or_init(|| self.recorder.spans(&self.graph))
    }

    /// The memory in use at the launch and after it, at the times of the spans.
    pub(super) fn memory(&self, samples: &[MemorySample]) -> impl Iterator<Item = (Duration, u64)> {
        let launched = self.recorder.launched;
        let first = samples.partition_point(|sample| sample.at <= launched).saturating_sub(1);
        let since = samples.iter().skip(first);
        since.map(move |sample| (sample.at.saturating_sub(launched), sample.used_bytes))
    }
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
