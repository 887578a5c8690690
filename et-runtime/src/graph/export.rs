//! Graphs as text.

use std::fmt::{self, Write};

use super::condition::WordPlace;
use super::{Graph, TaskId};

/// Most tasks that [`Display`](fmt::Display) shows one by one.
const SMALL: usize = 50;

impl Graph {
    /// Returns the graph in the DOT language of Graphviz: node `t7` is task 7, edges are labelled
    /// with their reasons.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write_dot(&mut out);
        out
    }

    /// Returns the graph as JSON: `tasks` with `id`, `name` (if any), `function`, `args` (if any;
    /// words as hexadecimal strings), `accesses` (`access`, `kind`, `space`, `start`, `end`),
    /// `cores`, `shires`, `parts`, `together` and `if` (if any; its condition, as
    /// `{"word":{…},"test":"u32 != 0"}` with `kind`, `start` and `end` of the word); `edges` with
    /// `from`, `to` and `reasons` (of `raw`, `waw`, `war`, `explicit`).
    ///
    /// Spaces are numbered: regions of different spaces never overlap.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        // As above.
        let _ = self.write_json(&mut out);
        out
    }

    fn write_dot(&self, out: &mut String) -> fmt::Result {
        out.push_str("digraph tasks {\n");
        for task in self.tasks() {
            let label = match self.name(task) {
                Some(name) => format!("{} {name}: {}", task.0, self.function(task)),
                None => format!("{} {}", task.0, self.function(task)),
            };
            let label = match self.parts(task) {
                1 => label,
                parts => format!("{label} in {parts} parts"),
            };
            let label = match self.condition(task) {
                Some(condition) => format!("{label}\n{condition}"),
                None => label,
            };
            writeln!(out, "  t{} [label=\"{}\"];", task.0, dot_escaped(&label))?;
        }
        for task in self.tasks() {
            let view = self.view();
            for (successor, reason) in view.successors(task.0).iter().zip(view.reasons(task.0)) {
                write!(out, "  t{} -> t{successor} [label=\"", task.0)?;
                join(out, reason.names(), " ", |out, name| out.write_str(name))?;
                out.push_str("\"];\n");
            }
        }
        out.push_str("}\n");
        Ok(())
    }

    fn write_json(&self, out: &mut String) -> fmt::Result {
        out.push_str("{\"tasks\":[");
        join(out, self.tasks(), ",\n", |out, task| self.write_json_task(out, task))?;
        out.push_str("],\n\"edges\":[");
        let edges = self.tasks().flat_map(|task| {
            let view = self.view();
            let row = view.successors(task.0).iter().zip(view.reasons(task.0));
            row.map(move |(&successor, &reason)| (task.0, successor, reason))
        });
        join(out, edges, ",\n", |out, (from, to, reason)| {
            write!(out, "{{\"from\":{from},\"to\":{to},\"reasons\":[")?;
            join(out, reason.names(), ",", |out, name| write!(out, "\"{name}\""))?;
            out.write_str("]}")
        })?;
        out.push_str("]}\n");
        Ok(())
    }

    fn write_json_task(&self, out: &mut String, task: TaskId) -> fmt::Result {
        let view = self.view();
        write!(out, "{{\"id\":{}", task.0)?;
        if let Some(name) = self.name(task) {
            write!(out, ",\"name\":{}", serde_json::Value::from(name))?;
        }
        write!(out, ",\"function\":{}", serde_json::Value::from(self.function(task)))?;
        if !self.args(task).is_empty() {
            out.push_str(",\"args\":[");
            join(out, self.args(task).iter(), ",", |out, word| write!(out, "\"{word:#x}\""))?;
            out.push(']');
        }
        out.push_str(",\"accesses\":[");
        let spaces = view.access_range(task.0).map(|at| {
            let span = self.shape.accesses.spans[at];
            self.places.span_space[span as usize]
        });
        join(out, self.accesses(task).zip(spaces), ",", |out, ((kind, range, access), space)| {
            let (access, start, end) = (access.as_str(), range.start, range.end);
            write!(
                out,
                "{{\"access\":\"{access}\",\"kind\":\"{kind}\",\"space\":{space},\
                 \"start\":{start},\"end\":{end}}}"
            )
        })?;
        out.push(']');
        if let Some(cores) = view.core_set(task.0) {
            write!(out, ",\"cores\":\"{cores}\"")?;
        }
        if let Some(mask) = view.shires(task.0) {
            write!(out, ",\"shires\":\"{mask:#x}\"")?;
        }
        if view.parts(task.0) > 1 {
            write!(out, ",\"parts\":{}", view.parts(task.0))?;
            if view.starts_together(task.0) {
                out.push_str(",\"together\":true");
            }
        }
        if let Some((test, place)) = view.condition(task.0) {
            let (kind, start) = match place {
                WordPlace::Device(slice) => ("device", slice.addr().as_u64()),
                WordPlace::Host(_, offset) => ("host", *offset as u64),
            };
            let end = start + test.kind.bytes();
            write!(
                out,
                ",\"if\":{{\"word\":{{\"kind\":\"{kind}\",\"start\":{start},\"end\":{end}}},\
                 \"test\":\"{test}\"}}"
            )?;
        }
        out.push('}');
        Ok(())
    }
}

fn join<T>(
    out: &mut String,
    items: impl Iterator<Item = T>,
    separator: &str,
    mut write: impl FnMut(&mut String, T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        write(out, item)?;
    }
    Ok(())
}

fn dot_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Small graphs task by task, others as a summary.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (tasks, edges, roots) = (self.len(), self.edges(), self.roots().len());
        write!(
            f,
            "{tasks} task{}, {edges} edge{}, {roots} ready at the start",
            plural(tasks),
            plural(edges)
        )?;
        if tasks > SMALL {
            return Ok(());
        }
        for task in self.tasks() {
            write!(f, "\n{task}")?;
            if let Some(name) = self.name(task) {
                write!(f, " \"{name}\"")?;
            }
            write!(f, ": {}", self.function(task))?;
            if self.parts(task) > 1 {
                write!(f, " in {} parts", self.parts(task))?;
            }
            if let Some(condition) = self.condition(task) {
                write!(f, " {condition}")?;
            }
            for (at, successor) in self.successors(task).enumerate() {
                write!(f, "{}{}", if at == 0 { " → " } else { ", " }, successor.0)?;
            }
        }
        Ok(())
    }
}
