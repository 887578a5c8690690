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

/// A unit was handed to a worker, or has ended.
#[derive(Clone, Copy, Debug)]
struct Event {
    unit: u32,
    /// [`END`] if it has ended.
    worker: u32,
}

const END: u32 = u32::MAX;

/// What a scheduler notes while it is in a hurry: events in their order, and now and then the time.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    launched: Duration,
    events: Vec<Event>,
    /// Tasks whose times the device took.
    timed: Vec<TaskSpan>,
    /// How many events there were at which times.
    marks: Vec<(usize, Duration)>,
}

impl Recorder {
    /// A recorder for so many units, launched at this time.
    pub(super) fn new(units: usize, launched: Duration) -> Self {
        let marks = vec![(0, Duration::ZERO)];
        Self { launched, events: Vec::with_capacity(2 * units), timed: Vec::new(), marks }
    }

    /// A unit is handed out, the first time or to another worker.
    #[inline]
    pub(super) fn start(&mut self, unit: u32, worker: u32) {
        self.events.push(Event { unit, worker });
    }

    /// A unit has ended.
    #[inline]
    pub(super) fn end(&mut self, unit: u32) {
        self.events.push(Event { unit, worker: END });
    }

    /// A task ran at these times.
    pub(super) fn span(&mut self, span: TaskSpan) {
        self.timed.push(span);
    }

    /// Returns `true` if there were events since the last mark.
    pub(super) fn is_unmarked(&self) -> bool {
        self.marks.last().is_none_or(|(events, _)| *events != self.events.len())
    }

    /// It is this time now.
    pub(super) fn mark(&mut self, now: Duration) {
        self.marks.push((self.events.len(), now.saturating_sub(self.launched)));
    }

    pub(super) fn finish(self, graph: &Graph) -> RunTrace {
        RunTrace { recorder: self, graph: graph.clone(), spans: OnceLock::new() }
    }

    /// The time of an event, the first of which is 1: between those of the marks around it, unless
    /// there was a pause.
    fn time(&self, event: usize) -> Duration {
        let after = self.marks.partition_point(|(events, _)| *events < event);
        let Some(&(last, end)) = self.marks.get(after).or(self.marks.last()) else {
            return Duration::ZERO;
        };
        let (first, start) = self.marks[after.saturating_sub(1).min(self.marks.len() - 1)];
        let (steps, whole) = (last.saturating_sub(first), end.saturating_sub(start));
        if steps <= 2 || whole > SPREAD {
            return end;
        }
        let count = |events: usize| u32::try_from(events).unwrap_or(u32::MAX);
        start + whole * count(event.saturating_sub(first).min(steps)) / count(steps)
    }

    fn spans(&self, graph: &Graph) -> Vec<TaskSpan> {
        let view = graph.view();
        // By unit, the last event of each kind: it may have been moved to another worker.
        let mut started = vec![None; view.units_len()];
        let mut ended = vec![0; view.units_len()];
        for (number, &Event { unit, worker }) in (1..).zip(&self.events) {
            match worker {
                END => ended[unit as usize] = number,
                worker => started[unit as usize] = Some((number, worker)),
            }
        }
        let units = (0u32..).zip(started).zip(ended);
        let mut spans: Vec<_> = units
            .filter_map(|((unit, started), end)| {
                started.map(|(start, worker)| (start, end, unit, worker))
            })
            .collect();
        spans.sort_unstable();
        let of = |(start, end, unit, worker): (usize, usize, u32, u32)| {
            let PartOf { task, part, .. } = view.unit(unit);
            let (start, end) = (self.time(start), self.time(end.max(start)));
            TaskSpan { task: TaskId::from_index(task), part, worker, start, end }
        };
        spans.into_iter().map(of).chain(self.timed.iter().copied()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};

    #[test]
    fn the_last_worker_that_got_a_unit_ran_it_and_what_has_no_end_has_no_length() {
        let mut builder = GraphBuilder::new();
        let nothing = builder.function(|_| Ok(()));
        for _ in 0..4 {
            builder.add(Task::new(nothing)).unwrap();
        }
        let graph = builder.build().unwrap();
        let at = Duration::from_micros;
        let mut recorder = Recorder::new(4, at(1000));
        recorder.start(1, 0);
        recorder.start(0, 0);
        recorder.mark(at(1010));
        // Taken back from a worker that had not begun.
        recorder.start(1, 7);
        recorder.end(0);
        recorder.mark(at(1020));
        recorder.end(1);
        recorder.start(3, 2);
        recorder.mark(at(1030));
        assert!(!recorder.is_unmarked());
        let trace = recorder.finish(&graph);
        let seen: Vec<_> = trace
            .spans()
            .iter()
            .map(|span| (span.task.index(), span.worker, span.start, span.end))
            .collect();
        assert_eq!(
            seen,
            [(0, 0, at(10), at(20)), (1, 7, at(20), at(30)), (3, 2, at(30), at(30))],
            "tasks that no worker got are not in it"
        );
    }
}
