//! What became of a graph, as a table or as JSON.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use et::executor::{Outcome, TaskFailure, TaskSpan, TaskState};
use et::graph::TaskId;
use serde_json::{Value, json};

use crate::executed::Executed;
use crate::output::{self, Exit, Format};
use crate::run;

/// Most rows of the table; of larger graphs only what did not complete is shown.
const ROWS: usize = 50;

/// The last run of a graph, and the times of all.
pub(super) struct Report<'a> {
    pub(super) file: &'a Path,
    pub(super) outcome: &'a Outcome,
    pub(super) times: Vec<Duration>,
    pub(super) outputs: Vec<PathBuf>,
    /// In all runs, if that was counted.
    pub(super) executed: Option<Executed>,
}

/// What a task did, in one row.
struct Row {
    task: String,
    kernel: String,
    state: String,
    worker: String,
    time: String,
    why: String,
}

impl Report<'_> {
    /// Prints everything; fails if the run did.
    pub(super) fn print(&self, profile: Option<&Path>, format: Format) -> anyhow::Result<()> {
        let failure = super::failure(self.outcome);
        if format == Format::Json {
            let mut document = self.json(profile);
            if let Some(failure) = &failure {
                output::describe(failure, &mut document);
            }
            output::json(&document)?;
            let reported = |failure| output::Reported(output::Exit::of(&failure)).into();
            return failure.map_or(Ok(()), |failure| Err(reported(failure)));
        }
        self.print_text(profile);
        failure.map_or(Ok(()), Err)
    }

    fn print_text(&self, profile: Option<&Path>) {
        let graph = self.outcome.graph();
        let complete = self.outcome.count(TaskState::Complete);
        let skipped = match self.outcome.count(TaskState::Skipped) {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        println!(
            "{}: {complete} of {} tasks complete{skipped} in {}, place {}",
            self.file.display(),
            graph.len(),
            output::time(self.outcome.elapsed()),
            self.outcome.place()
        );
        if self.times.len() > 1 {
            let mut times = self.times.clone();
            times.sort_unstable();
            println!(
                "{} runs: {} at least, {} median, {} at most",
                times.len(),
                output::time(times[0]),
                output::time(times[times.len() / 2]),
                output::time(times[times.len() - 1])
            );
        }
        print_table(&self.rows());
        for path in &self.outputs {
            println!("wrote {}", path.display());
        }
        if let Some(path) = profile {
            println!("profile for ui.perfetto.dev: {}", path.display());
        }
        self.executed.iter().flat_map(Executed::lines).for_each(|line| println!("{line}"));
    }

    fn rows(&self) -> Vec<Row> {
        let (outcome, spans) = (self.outcome, self.spans());
        let graph = outcome.graph();
        let is_shown =
            |task: &TaskId| graph.len() <= ROWS || outcome.state(*task) != TaskState::Complete;
        let row = |task: TaskId| {
            let span = spans.get(&task);
            let root =
                || outcome.root_cause(task).map(|root| format!("because of {}", self.label(root)));
            Row {
                task: self.label(task),
                kernel: graph.function(task).to_owned(),
                state: outcome.state(task).to_string(),
                worker: span.map_or(String::new(), |span| span.worker.to_string()),
                time: span.map_or(String::new(), |span| {
                    output::time(span.end.saturating_sub(span.start))
                }),
                why: self.failure(task).map(one_line).or_else(root).unwrap_or_default(),
            }
        };
        graph.tasks().filter(is_shown).take(ROWS).map(row).collect()
    }

    fn json(&self, profile: Option<&Path>) -> Value {
        let (outcome, spans) = (self.outcome, self.spans());
        let graph = outcome.graph();
        let tasks = graph.tasks().map(|task| {
            let span = spans.get(&task);
            json!({
                "task": task.index(), "name": graph.name(task), "kernel": graph.function(task),
                "state": outcome.state(task).to_string(),
                "worker": span.map(|span| span.worker),
                "start_us": span.map(|span| micros(span.start)),
                "us": span.map(|span| micros(span.end.saturating_sub(span.start))),
                "failure": self.failure(task).map(ToString::to_string),
                "root_cause": outcome.root_cause(task).map(TaskId::index),
            })
        });
        json!({
            "graph": self.file,
            "status": if outcome.is_success() { "completed" } else { "failed" },
            "place": outcome.place(),
            "elapsed_us": micros(outcome.elapsed()),
            "runs_us": self.times.iter().copied().map(micros).collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "outputs": self.outputs,
            "profile": profile,
            "instructions": self.executed.as_ref().map(Executed::document),
        })
    }

    fn spans(&self) -> HashMap<TaskId, TaskSpan> {
        let spans = self.outcome.trace().map_or(&[][..], |trace| trace.spans());
        spans.iter().map(|span| (span.task, *span)).collect()
    }

    fn label(&self, task: TaskId) -> String {
        match self.outcome.graph().name(task) {
            Some(name) => format!("{} {name}", task.index()),
            None => task.index().to_string(),
        }
    }

    fn failure(&self, task: TaskId) -> Option<&TaskFailure> {
        let mut failures = self.outcome.failures().iter();
        failures.find(|(failed, _)| *failed == task).map(|(_, failure)| failure)
    }
}

fn print_table(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let heads = ["task", "kernel", "state", "worker", "time"];
    let cells = |row: &Row| {
        [
            row.task.clone(),
            row.kernel.clone(),
            row.state.clone(),
            row.worker.clone(),
            row.time.clone(),
        ]
    };
    let mut widths = heads.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(cells(row)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |[task, kernel, state, worker, time]: [&str; 5], why: &str| {
        let [t, k, s, w, e] = widths;
        let line =
            format!("  {task:<t$}  {kernel:<k$}  {state:<s$}  {worker:>w$}  {time:>e$}  {why}");
        println!("{}", line.trim_end());
    };
    line(heads, "");
    for row in rows {
        line(cells(row).each_ref().map(String::as_str), &row.why);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The beginning of what there is to say; the error that follows the table says it all.
fn one_line(failure: &TaskFailure) -> String {
    const SHOWN: usize = 100;
    let text = failure.to_string();
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// A failure with all that is known: every hart, source lines, registers.
pub(super) fn explain(failure: &TaskFailure) -> anyhow::Error {
    match failure {
        TaskFailure::Device(error) => run::report(error),
        TaskFailure::Trapped { worker, failure } => {
            run::report_launch(failure, Exit::Kernel).context(format!("worker {worker} trapped"))
        }
        TaskFailure::Part { part, parts, failure } => {
            explain(failure).context(format!("part {part} of {parts} failed"))
        }
        other => anyhow!("{other}"),
    }
}
