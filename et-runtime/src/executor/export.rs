//! A run as a profile.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::phases::{self, TraceDetail};
use super::trace::{Recorder, RunTrace, micros};
use super::{Outcome, TaskSpan, TaskState};
use crate::graph::{Graph, TaskId};
use crate::profile::{Profile, memory_event};

impl Outcome {
    /// Writes what [`RunTrace::write_chrome_json`] does, without spans if the launch asked for no
    /// trace; in addition, under `otherData`, what became of the tasks that did not succeed, and
    /// why, and which were skipped.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.write_chrome_json_with(TraceDetail::Tasks, out)
    }

    /// As [`write_chrome_json`](Self::write_chrome_json), with more detail.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json_with(
        &self,
        detail: TraceDetail,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        self.write_all(detail, None, out)
    }

    /// As [`write_chrome_json_with`](Self::write_chrome_json_with); in addition, if the launch
    /// asked for a trace, how much device memory was in use from then on. That is what the
    /// executor's device [recorded](crate::Device::profiler) meanwhile.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json_with_memory(
        &self,
        detail: TraceDetail,
        recorded: &Profile,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        self.write_all(detail, Some(recorded), out)
    }

    fn write_all(
        &self,
        detail: TraceDetail,
        recorded: Option<&Profile>,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let failures: HashMap<TaskId, String> =
            self.failures.iter().map(|(task, why)| (*task, why.to_string())).collect();
        let graph = self.graph();
        let tasks = graph.tasks().filter(|task| !self.state(*task).is_success());
        let tasks: Vec<_> = tasks
            .map(|task| {
                json!({
                    "task": task.index(), "name": graph.name(task),
                    "function": graph.function(task), "state": self.state(task).to_string(),
                    "error": failures.get(&task),
                    "root_cause": self.root_cause(task).map(TaskId::index),
                })
            })
            .collect();
        let skipped = graph.tasks().filter(|task| self.state(*task) == TaskState::Skipped);
        let other = json!({
            "place": self.place(), "elapsed_us": micros(self.elapsed()), "tasks": graph.len(),
            "incomplete": tasks, "skipped": skipped.map(TaskId::index).collect::<Vec<_>>(),
        });
        match self.trace() {
            Some(trace) => trace.write(graph, detail, recorded, &other, out),
            None => {
                let empty = Recorder::new(0, Duration::ZERO).finish(graph);
                empty.write(graph, detail, None, &other, out)
            }
        }
    }
}

impl RunTrace {
    /// Writes Chrome trace events, which Perfetto opens: a track for each worker and an arrow for
    /// each dependency.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json(&self, graph: &Graph, out: &mut dyn Write) -> std::io::Result<()> {
        self.write_chrome_json_with(graph, TraceDetail::Tasks, out)
    }

    /// As [`write_chrome_json`](Self::write_chrome_json), with more detail.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome_json_with(
        &self,
        graph: &Graph,
        detail: TraceDetail,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        self.write(graph, detail, None, &json!({}), out)
    }

    pub(super) fn write(
        &self,
        graph: &Graph,
        detail: TraceDetail,
        recorded: Option<&Profile>,
        other: &Value,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let mut events = vec![
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "task graph"}}),
        ];
        // Of a task with several parts, those that an arrow goes to and comes from.
        let mut first = vec![None; graph.len()];
        let mut last: Vec<Option<TaskSpan>> = vec![None; graph.len()];
        let mut workers: Vec<u32> = self.spans().iter().map(|span| span.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let name = json!({"name": format!("worker {worker}")});
            events.push(
                json!({"ph": "M", "pid": 1, "tid": worker, "name": "thread_name", "args": name}),
            );
        }
        for span in self.spans() {
            let at = span.task.index();
            first[at].get_or_insert(*span);
            if last[at].is_none_or(|last| last.end <= span.end) {
                last[at] = Some(*span);
            }
            let name = graph.name(span.task).map_or_else(|| span.task.to_string(), str::to_owned);
            let mut args = json!({"task": at, "function": graph.function(span.task)});
            if graph.parts(span.task) > 1 {
                args["part"] = span.part.into();
                args["parts"] = graph.parts(span.task).into();
            }
            events.push(json!({
                "ph": "X", "pid": 1, "tid": span.worker, "name": name, "cat": "task",
                "ts": micros(span.start), "dur": micros(span.end.saturating_sub(span.start)),
                "args": args,
            }));
        }
        let mut id = 0_u64;
        for span in last.iter().flatten() {
            for next in graph.successors(span.task) {
                let Some(to) = first[next.index()] else { continue };
                let arrow = |phase: &str, worker: u32, at: Duration| {
                    json!({
                        "ph": phase, "pid": 1, "tid": worker, "id": id, "cat": "dependency",
                        "name": "dependency", "ts": micros(at),
                        "args": {"from": span.task.index(), "to": to.task.index()},
                    })
                };
                let from = arrow("s", span.worker, span.end);
                let mut into = arrow("f", to.worker, to.start.max(span.end));
                into["bp"] = "e".into();
                events.extend([from, into]);
                id += 1;
            }
        }
        events.extend(phases::events(self, graph, detail));
        let samples = recorded.map_or(&[][..], |profile| &profile.memory);
        events.extend(self.memory(samples).map(|(at, used_bytes)| memory_event(at, used_bytes)));
        let document = json!({"displayTimeUnit": "ns", "traceEvents": events, "otherData": other});
        serde_json::to_writer(&mut *out, &document)?;
        out.flush()
    }
}
