//! A run as a profile.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use serde_json::json;

use super::trace::{Recorder, micros};
use super::{Outcome, TaskState, TraceDetail};
use crate::graph::TaskId;

impl Outcome {
    /// Writes what [`RunTrace::write_chrome_json`](super::RunTrace::write_chrome_json) does,
    /// without spans if the launch asked for no trace; in addition, under `otherData`, what became
    /// of the tasks that are not complete, and why.
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
        let failures: HashMap<TaskId, String> =
            self.failures.iter().map(|(task, why)| (*task, why.to_string())).collect();
        let graph = self.graph();
        let tasks = graph.tasks().filter(|task| self.state(*task) != TaskState::Complete);
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
        let other = json!({
            "place": self.place(), "elapsed_us": micros(self.elapsed()), "tasks": graph.len(),
            "incomplete": tasks,
        });
        match self.trace() {
            Some(trace) => trace.write(graph, detail, &other, out),
            None => Recorder::new(0, Duration::ZERO).finish().write(graph, detail, &other, out),
        }
    }
}
