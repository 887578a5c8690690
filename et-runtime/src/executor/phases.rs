//! What a recording says between the tasks: where each one waited, and what stood idle meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::TaskSpan;
use super::trace::{RunTrace, micros};
use crate::graph::{Graph, TaskId};

/// How much of a recording is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TraceDetail {
    /// When each task ran and on which worker, and the dependencies.
    #[default]
    Tasks,
    /// Also where each task waited: for a worker, and in the hands of one.
    Phases,
    /// Also how many tasks wait for a worker over time, and how many workers do nothing although
    /// some do.
    Overhead,
}

/// The steps of a task on its way, since the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPhases {
    /// The task.
    pub task: TaskId,
    /// Which of its [parts](crate::graph::Task::parts); 0 if it has one.
    pub part: u32,
    /// The worker it ran on, by its index.
    pub worker: u32,
    /// The last task that it depends on had ended; 0 if it depends on none.
    pub ready: Duration,
    /// The worker was told of it.
    pub sent: Duration,
    /// The worker had nothing before it any more.
    pub begun: Duration,
    /// Its end was seen.
    pub end: Duration,
}

impl RunTrace {
    /// Returns the steps of each task of the graph that ran, or of each of its parts, in the order
    /// in which they were handed out. They follow from the spans, so that they cost the run
    /// nothing.
    #[must_use]
    pub fn phases(&self, graph: &Graph) -> Vec<TaskPhases> {
        phases(self.spans(), graph)
    }
}

fn phases(spans: &[TaskSpan], graph: &Graph) -> Vec<TaskPhases> {
    let mut ready: HashMap<TaskId, Duration> = HashMap::new();
    for span in spans {
        for next in graph.successors(span.task) {
            let at = ready.entry(next).or_default();
            *at = span.end.max(*at);
        }
    }
    let mut last: HashMap<u32, Duration> = HashMap::new();
    let mut by_start: Vec<usize> = (0..spans.len()).collect();
    by_start.sort_by_key(|&at| spans[at].start);
    let mut all = vec![None; spans.len()];
    for at in by_start {
        let TaskSpan { task, part, worker, start, end } = spans[at];
        let before = last.insert(worker, end).unwrap_or_default();
        let ready = ready.get(&task).copied().unwrap_or_default().min(start);
        let begun = before.max(start).min(end);
        all[at] = Some(TaskPhases { task, part, worker, ready, sent: start, begun, end });
    }
    all.into_iter().flatten().collect()
}

/// Tasks that wait for a worker and workers that do nothing meanwhile, from each time on at which
/// one of them changes.
fn overhead(phases: &[TaskPhases]) -> Vec<(Duration, usize, usize)> {
    let mut workers: Vec<u32> = phases.iter().map(|phase| phase.worker).collect();
    workers.sort_unstable();
    workers.dedup();
    let mut steps: Vec<(Duration, isize, isize)> = Vec::with_capacity(3 * phases.len());
    for phase in phases {
        steps.push((phase.ready, 1, 0));
        steps.push((phase.sent, -1, 0));
        steps.push((phase.begun, 0, 1));
        steps.push((phase.end, 0, -1));
    }
    steps.sort_by_key(|(at, _, _)| *at);
    let (mut waiting, mut running) = (0_isize, 0_isize);
    let mut counts: Vec<(Duration, usize, usize)> = Vec::new();
    for (index, (at, more, begun)) in steps.iter().enumerate() {
        (waiting, running) = (waiting + more, running + begun);
        if steps.get(index + 1).is_some_and(|(next, _, _)| next == at) {
            continue;
        }
        let waits = usize::try_from(waiting).unwrap_or(0);
        let idle = workers.len().saturating_sub(usize::try_from(running).unwrap_or(0));
        let now = (*at, waits, idle.min(waits));
        if counts.last().is_none_or(|last| (last.1, last.2) != (now.1, now.2)) {
            counts.push(now);
        }
    }
    counts
}

/// The events that a detail adds, in a process of their own.
pub(super) fn events(trace: &RunTrace, graph: &Graph, detail: TraceDetail) -> Vec<Value> {
    const PROCESS: u32 = 2;
    if detail == TraceDetail::Tasks {
        return Vec::new();
    }
    let phases = trace.phases(graph);
    let mut events = vec![json!({
        "ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": "scheduling"},
    })];
    for phase in &phases {
        let steps = [
            ("waits for a worker", phase.ready, phase.sent),
            ("waits for its worker", phase.sent, phase.begun),
        ];
        for (name, from, to) in steps.into_iter().filter(|(_, from, to)| from < to) {
            for (ph, at) in [("b", from), ("e", to)] {
                events.push(json!({
                    "ph": ph, "pid": PROCESS, "tid": 0, "cat": "phase", "name": name,
                    "id": phase.task.index() + graph.len() * phase.part as usize, "ts": micros(at),
                    "args": {"task": phase.task.index()},
                }));
            }
        }
    }
    if detail == TraceDetail::Overhead {
        for (at, waiting, idle) in overhead(&phases) {
            for (name, value) in
                [("tasks without a worker", waiting), ("workers idle beside", idle)]
            {
                events.push(json!({
                    "ph": "C", "pid": PROCESS, "name": name, "ts": micros(at),
                    "args": {"count": value},
                }));
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// One before two, and one behind both.
    fn diamond() -> (Graph, Vec<TaskSpan>) {
        let mut builder = GraphBuilder::new();
        let nop = builder.function(|_| Ok(()));
        let first = builder.add(Task::new(nop)).unwrap();
        let sides = [(); 2].map(|()| builder.add(Task::new(nop).after(first)).unwrap());
        let last = builder.add(Task::new(nop).after(sides[0]).after(sides[1])).unwrap();
        let graph = builder.build().unwrap();
        let span = |task, worker, start, end| TaskSpan {
            task,
            part: 0,
            worker,
            start: us(start),
            end: us(end),
        };
        // The second of the two stands behind the first one, on the same worker.
        let spans = vec![
            span(first, 0, 2, 10),
            span(sides[0], 0, 12, 20),
            span(sides[1], 0, 13, 30),
            span(last, 1, 35, 40),
        ];
        (graph, spans)
    }

    #[test]
    fn each_step_of_a_task_follows_from_the_spans() {
        let (graph, spans) = diamond();
        let found = phases(&spans, &graph);
        let steps = |phase: &TaskPhases| [phase.ready, phase.sent, phase.begun, phase.end];
        let expected = [[0, 2, 2, 10], [10, 12, 12, 20], [10, 13, 20, 30], [30, 35, 35, 40]]
            .map(|s| s.map(us));
        assert_eq!(found.iter().map(steps).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_worker_counts_as_idle_only_beside_tasks_that_wait() {
        let (graph, spans) = diamond();
        let counts = overhead(&phases(&spans, &graph));
        let expected = [
            // One task for two workers; two for two; one, beside the other worker; none.
            (us(0), 1, 1),
            (us(2), 0, 0),
            (us(10), 2, 2),
            (us(12), 1, 1),
            (us(13), 0, 0),
            (us(30), 1, 1),
            (us(35), 0, 0),
        ];
        assert_eq!(counts, expected);
    }
}
