//! When tasks ran, and where.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::graph::{Graph, TaskId};

/// One task of a recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSpan {
    /// The task.
    pub task: TaskId,
    /// The worker it ran on, by its index.
    pub worker: u32,
    /// When it was handed out, since the launch.
    pub start: Duration,
    /// When its end was seen.
    pub end: Duration,
}

/// When each task of a run ran, and where.
///
/// Times are taken by the scheduler, once for all it does between two looks at the workers, after it has done it. That
/// costs next to nothing, and makes spans longer than the tasks by what the hand-over takes. While tasks take less than
/// some microseconds, one look at the clock serves some thirty of them, and what is between two looks is spread evenly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTrace {
    /// In the order in which tasks were handed out.
    pub spans: Vec<TaskSpan>,
}

impl RunTrace {
    /// Writes Chrome trace events, which Perfetto opens: a track for each worker and an arrow for each dependency.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json(&self, graph: &Graph, out: &mut dyn Write) -> std::io::Result<()> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let mut events = vec![
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "task graph"}}),
        ];
        let mut of_task = vec![None; graph.len()];
        let mut workers: Vec<u32> = self.spans.iter().map(|span| span.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let name = json!({"name": format!("worker {worker}")});
            events.push(
                json!({"ph": "M", "pid": 1, "tid": worker, "name": "thread_name", "args": name}),
            );
        }
        for span in &self.spans {
            if let Some(place) = of_task.get_mut(span.task.index()) {
                *place = Some(*span);
            }
            let name = graph.name(span.task).map_or_else(|| span.task.to_string(), str::to_owned);
            events.push(json!({
                "ph": "X", "pid": 1, "tid": span.worker, "name": name, "cat": "task",
                "ts": micros(span.start), "dur": micros(span.end.saturating_sub(span.start)),
                "args": {"task": span.task.index(), "function": graph.function(span.task)},
            }));
        }
        let mut arrow = 0_u64;
        for span in &self.spans {
            for next in graph.successors(span.task) {
                let Some(to) = of_task[next.index()] else { continue };
                let from = json!({"ph": "s", "pid": 1, "tid": span.worker, "id": arrow, "cat": "dependency",
                    "name": "dependency", "ts": micros(span.end)});
                let into = json!({"ph": "f", "bp": "e", "pid": 1, "tid": to.worker, "id": arrow,
                    "cat": "dependency", "name": "dependency", "ts": micros(to.start.max(span.end))});
                events.extend([from, into]);
                arrow += 1;
            }
        }
        let document = json!({"displayTimeUnit": "ns", "traceEvents": events});
        serde_json::to_writer(&mut *out, &document)?;
        out.flush()
    }
}
