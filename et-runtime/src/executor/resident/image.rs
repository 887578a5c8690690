//! A graph as the resident scheduler reads it, and what it leaves behind.
//!
//! The layout is that of `struct image` in `testing/kernels/src/graph.c`: 192 bytes of header,
//! progress and control, then tables, each aligned to a line. All numbers are little-endian.

use et_devapi::handshake::{CELL_BYTES, CELL_WORDS, LINE_BYTES};

use super::super::guard::{self, CONSTANT, GUARD_WORDS, SKIPPED, entry_of};
use super::super::ids::{Rank, count, high, low, size};
use super::rows::{Row, Rows};
use crate::graph::{Graph, WordPlace, Work};
use crate::kernel::Kernel;

const MAGIC: u64 = 0x4850_4152_4754_4531;
const HEADER_BYTES: u64 = 192;
const TASK_BYTES: u64 = 32;
/// Bytes of what is left of each task.
pub(super) const OUTCOME_BYTES: u64 = 32;
/// Where the progress line starts.
pub(super) const PROGRESS: u64 = 64;
/// Where the word is by which the host ends the graph before its time.
pub(super) const CONTROL: u64 = 128;
/// In that word: nothing more is dispatched, what is dispatched is waited for.
pub(super) const FINISH: u64 = 1;
/// In that word: nothing is waited for, all leave.
pub(super) const STOP: u64 = 2;
/// State of a scheduler that has told its workers to leave.
const ENDED: u64 = 2;

/// Where things are in the image, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) cells: u64,
    task_table: u64,
    successors: u64,
    pending: u64,
    ready: u64,
    pub(super) outcomes: u64,
    args: u64,
    pub(super) len_bytes: u64,
}

/// How much there is of what a graph has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    rows: u64,
    edges: u64,
    arg_words: u64,
}

impl Counts {
    /// Of these units, or a little more.
    pub(super) fn at_most(graph: &Graph, units: &[u32]) -> Self {
        let view = graph.view();
        if view.has_parts() {
            return Self::of(graph, &Rows::new(graph, units));
        }
        let edges = units.iter().map(|&task| view.successors(task).len() as u64).sum();
        let arg_words = units.iter().map(|&task| arg_words(graph, Row::Unit(task))).sum();
        Self { rows: units.len() as u64, edges, arg_words }
    }

    pub(super) fn of(graph: &Graph, rows: &Rows) -> Self {
        let words = rows.all.iter().map(|row| arg_words(graph, *row)).sum();
        Self { rows: rows.all.len() as u64, edges: rows.edges.len() as u64, arg_words: words }
    }
}

/// Each row has arguments of its own, so that their address tells which one a worker has.
fn arg_words(graph: &Graph, row: Row) -> u64 {
    let view = graph.view();
    let Row::Unit(unit) = row else { return GUARD_WORDS };
    let of = view.unit(unit);
    let is_guarded = of.is_part() || view.condition(of.task).is_some();
    let guard = if is_guarded { GUARD_WORDS } else { 0 };
    (view.args(of.task).len() as u64 + guard).max(1)
}

impl Offsets {
    /// On so many harts.
    pub(super) fn new(counts: Counts, harts: u32) -> Self {
        let Counts { rows, edges, arg_words } = counts;
        let mut at = HEADER_BYTES;
        let mut place = |bytes: u64| {
            let start = at;
            at = (start + bytes).next_multiple_of(LINE_BYTES);
            start
        };
        let cells = place(u64::from(harts) * CELL_BYTES);
        let task_table = place(rows * TASK_BYTES);
        let successors = place(edges * 4);
        let pending = place(rows * 4);
        let ready = place(rows * 4);
        let outcomes = place(rows * OUTCOME_BYTES);
        let args = place(arg_words * 8);
        Self { cells, task_table, successors, pending, ready, outcomes, args, len_bytes: at }
    }
}

/// The image of what is left to run of a graph.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) at: Offsets,
    pub(super) bytes: Vec<u8>,
    pub(super) rows: Vec<Row>,
    /// Offset of the arguments of each row.
    args: Vec<u64>,
}

impl Image {
    /// Writes the image of these rows, to be loaded at device address `base`, for `scheduler`. What
    /// is not among them counts as complete.
    pub(super) fn new(
        graph: &Graph,
        rows: Rows,
        base: u64,
        (scheduler, harts): (&Kernel, u32),
    ) -> Self {
        let at = Offsets::new(Counts::of(graph, &rows), harts);
        let Rows { all, first_edge, edges } = rows;
        let mut image =
            Self { at, bytes: vec![0; size(at.len_bytes)], rows: all, args: Vec::new() };

        let mut pending = vec![0_u32; image.rows.len()];
        for (edge, &next) in (0_u64..).zip(&edges) {
            pending[next as usize] += 1;
            image.put32(at.successors + edge * 4, next);
        }
        let mut arg = at.args;
        for here in 0..image.rows.len() {
            let entry = image.put_args(graph, image.rows[here], (base, arg), scheduler);
            let row = at.task_table + here as u64 * TASK_BYTES;
            let (first, end) = (first_edge[here], first_edge[here + 1]);
            image.put64(row, entry);
            image.put64(row + 8, base + arg);
            image.put32(row + 16, first);
            image.put32(row + 20, end - first);
            image.args.push(arg);
            arg += arg_words(graph, image.rows[here]) * 8;
        }
        let mut roots = 0;
        for (here, &before) in pending.iter().enumerate() {
            image.put32(at.pending + here as u64 * 4, before);
            if before == 0 {
                image.put32(at.ready + roots * 4, count(here));
                roots += 1;
            }
        }
        let header = [
            MAGIC,
            image.rows.len() as u64,
            base + at.task_table,
            base + at.successors,
            base + at.pending,
            base + at.ready,
            base + at.outcomes,
            roots,
        ];
        for (n, word) in header.into_iter().enumerate() {
            image.put64(8 * n as u64, word);
        }
        image
    }

    /// The row whose arguments are at this offset.
    pub(super) fn row_of_args(&self, offset: u64) -> Option<usize> {
        self.args.binary_search(&offset).ok()
    }

    /// Writes the arguments of a row to an offset; returns the function to be called with them.
    fn put_args(
        &mut self,
        graph: &Graph,
        row: Row,
        (base, at): (u64, u64),
        scheduler: &Kernel,
    ) -> u64 {
        let view = graph.view();
        let constant = base + at + CONSTANT;
        let Row::Unit(unit) = row else {
            self.put_all(at, &guard::nothing(constant));
            return entry_of(scheduler);
        };
        let of = view.unit(unit);
        let entry = match view.work(of.task) {
            Work::Kernel(kernel) => entry_of(kernel),
            _ => 0,
        };
        let condition = view.condition(of.task);
        if condition.is_none() && !of.is_part() {
            self.put_all(at, view.args(of.task));
            return entry;
        }
        let word = match condition {
            Some((_, WordPlace::Device(slice))) => slice.addr().as_u64(),
            _ => constant,
        };
        self.put_all(at, &guard::words(entry, (condition.map(|(test, _)| test), word), of));
        if let Some((test, WordPlace::Host(data, offset))) = condition {
            // Host data does not change while the device has the graph, so that its worker looks at
            // a copy.
            let copy = size(at + CONSTANT)..size(at + CONSTANT + test.kind.bytes());
            let from = *offset..*offset + copy.len();
            data.with(|bytes| self.bytes[copy].copy_from_slice(&bytes[from]));
        }
        self.put_all(at + 8 * GUARD_WORDS, view.args(of.task));
        entry_of(scheduler)
    }

    fn put_all(&mut self, at: u64, words: &[u64]) {
        for (n, &word) in words.iter().enumerate() {
            self.put64(at + 8 * n as u64, word);
        }
    }

    fn put64(&mut self, at: u64, value: u64) {
        self.bytes[size(at)..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: u64, value: u32) {
        self.bytes[size(at)..][..4].copy_from_slice(&value.to_le_bytes());
    }
}

/// How far the scheduler is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    state: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) dispatched: u64,
    pub(super) started_cycles: u64,
}

impl Progress {
    pub(super) fn of(words: &[u64; 8]) -> Self {
        let [state, completed, failed, dispatched, started_cycles, ..] = *words;
        Self { state, completed, failed, dispatched, started_cycles }
    }

    /// Tasks that have come back; at most as many as there are, whatever the device says.
    pub(super) fn ended(&self, tasks: usize) -> usize {
        size(self.completed.saturating_add(self.failed)).min(tasks)
    }

    /// Returns `true` if the scheduler has told its workers to leave.
    pub(super) fn has_ended(&self) -> bool {
        self.state == ENDED
    }

    /// Tasks that workers have.
    pub(super) fn outstanding(&self) -> u64 {
        self.dispatched.saturating_sub(self.completed).saturating_sub(self.failed)
    }
}

/// What the scheduler has written of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    NotRun,
    Dispatched { rank: Rank },
    Complete { rank: Rank, start: u64, end: u64 },
    Failed { rank: Rank, value: i64, start: u64, end: u64 },
    Skipped,
}

impl Left {
    /// `is_guarded` if the task may be skipped.
    pub(super) fn of(words: &[u64], is_guarded: bool) -> Self {
        let [state, value, start, end] = *words else { return Self::NotRun };
        // Ranks of workers start at 1; 0 would be the coordinator, which runs no tasks.
        let rank = Rank(high(state).max(1));
        match low(state) {
            1 => Self::Dispatched { rank },
            2 if is_guarded && value == SKIPPED => Self::Skipped,
            2 => Self::Complete { rank, start, end },
            3 => Self::Failed { rank, value: value.cast_signed(), start, end },
            _ => Self::NotRun,
        }
    }
}

/// What a cell says when its worker is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) hart: u64,
    /// Tasks the worker had and did not complete.
    pub(super) outstanding: u32,
    /// Address of the arguments of the first of them, which was running.
    pub(super) running: u64,
}

impl Remains {
    pub(super) fn of(cell: &[u64]) -> Self {
        use et_devapi::handshake::{DISPATCH, IDENTITY, STATUS, slot};
        debug_assert_eq!(cell.len(), CELL_WORDS);
        let (completed, sent) = (low(cell[STATUS]), low(cell[DISPATCH]));
        Self {
            hart: cell[IDENTITY],
            outstanding: sent.wrapping_sub(completed),
            running: cell[slot(completed.wrapping_add(1)) + 1],
        }
    }
}
