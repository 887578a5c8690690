//! A graph as the resident scheduler reads it, and what it leaves behind.
//!
//! The layout is that of `struct image` in `testing/kernels/src/graph.c`: 192 bytes of header,
//! progress and control, then tables, each aligned to a line. All numbers are little-endian.

use et_devapi::handshake::{CELL_BYTES, CELL_WORDS, LINE_BYTES};

use super::super::ids::{Rank, count, high, low, size};
use crate::graph::{Graph, Test, WordPlace, Work};
use crate::kernel::Kernel;

const MAGIC: u64 = 0x4850_4152_4754_4531;
const HEADER_BYTES: u64 = 192;
const TASK_BYTES: u64 = 32;
/// Words before the arguments of a task with a condition: `struct guarded`.
const GUARD_WORDS: u64 = 6;
/// In the flags of a condition: it holds outside the range; the word has 4 bytes; it has a sign.
const OUTSIDE: u64 = 1;
const HALF: u64 = 2;
const SIGNED: u64 = 4;
/// What the guard of a task returns that was not run; else that is 0.
const SKIPPED: u64 = 1;
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
    tasks: u64,
    edges: u64,
    arg_words: u64,
}

impl Counts {
    /// Of these tasks, edges to others included.
    pub(super) fn of(graph: &Graph, tasks: impl Iterator<Item = u32>) -> Self {
        let view = graph.view();
        let mut counts = Self::default();
        for task in tasks {
            counts.tasks += 1;
            counts.edges += view.successors(task).len() as u64;
            counts.arg_words += arg_words(graph, task);
        }
        counts
    }
}

/// Each task has arguments of its own, so that their address tells which task a worker has.
fn arg_words(graph: &Graph, task: u32) -> u64 {
    let guard = if graph.view().condition(task).is_some() { GUARD_WORDS } else { 0 };
    (graph.view().args(task).len() as u64 + guard).max(1)
}

impl Offsets {
    /// On so many harts.
    pub(super) fn new(counts: Counts, harts: u32) -> Self {
        let Counts { tasks, edges, arg_words } = counts;
        let mut at = HEADER_BYTES;
        let mut place = |bytes: u64| {
            let start = at;
            at = (start + bytes).next_multiple_of(LINE_BYTES);
            start
        };
        let cells = place(u64::from(harts) * CELL_BYTES);
        let task_table = place(tasks * TASK_BYTES);
        let successors = place(edges * 4);
        let pending = place(tasks * 4);
        let ready = place(tasks * 4);
        let outcomes = place(tasks * OUTCOME_BYTES);
        let args = place(arg_words * 8);
        Self { cells, task_table, successors, pending, ready, outcomes, args, len_bytes: at }
    }
}

fn entry_of(kernel: &Kernel) -> u64 {
    kernel.task_entry().map_or(0, |entry| entry.as_u64())
}

/// The image of the tasks of a graph that are left to run.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) at: Offsets,
    pub(super) bytes: Vec<u8>,
    /// Task of the graph for each task of the image.
    pub(super) tasks: Vec<u32>,
    /// Offset of the arguments of each task.
    args: Vec<u64>,
}

impl Image {
    /// Writes the image of the kernels in `tasks`, to be loaded at device address `base`, for
    /// `scheduler`. What is not among them counts as complete.
    pub(super) fn new(
        graph: &Graph,
        tasks: Vec<u32>,
        base: u64,
        (scheduler, harts): (&Kernel, u32),
    ) -> Self {
        const NOT_HERE: u32 = u32::MAX;
        let view = graph.view();
        let mut index = vec![NOT_HERE; view.len()];
        for (here, &task) in tasks.iter().enumerate() {
            index[task as usize] = count(here);
        }
        let successors_of = |task: u32| {
            let index = &index;
            view.successors(task).iter().map(move |&next| index[next as usize])
        };
        let inside = |task: u32| successors_of(task).filter(|&next| next != NOT_HERE);
        let edges: u64 = tasks.iter().map(|&task| inside(task).count() as u64).sum();
        let counts = Counts { edges, ..Counts::of(graph, tasks.iter().copied()) };
        let at = Offsets::new(counts, harts);
        let mut image = Self { at, bytes: vec![0; size(at.len_bytes)], tasks, args: Vec::new() };

        let mut pending = vec![0_u32; image.tasks.len()];
        let (mut edge, mut arg) = (0_u64, at.args);
        for here in 0..image.tasks.len() {
            let task = image.tasks[here];
            let first = edge;
            for next in inside(task) {
                pending[next as usize] += 1;
                image.put32(at.successors + edge * 4, next);
                edge += 1;
            }
            let mut entry = match view.work(task) {
                Work::Kernel(kernel) => entry_of(kernel),
                _ => 0,
            };
            let mut args = arg;
            if let Some((test, word)) = view.condition(task) {
                image.put_guard(base, arg, entry, (test, word));
                args += 8 * GUARD_WORDS;
                entry = entry_of(scheduler);
            }
            for (n, &word) in view.args(task).iter().enumerate() {
                image.put64(args + 8 * n as u64, word);
            }
            let row = at.task_table + here as u64 * TASK_BYTES;
            image.put64(row, entry);
            image.put64(row + 8, base + arg);
            image.put32(row + 16, low(first));
            image.put32(row + 20, low(edge - first));
            image.args.push(arg);
            arg += arg_words(graph, task) * 8;
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
            image.tasks.len() as u64,
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

    /// The task of the image whose arguments are at this offset.
    pub(super) fn task_of_args(&self, offset: u64) -> Option<usize> {
        self.args.binary_search(&offset).ok()
    }

    /// Host data does not change while the device has the graph, so that its worker looks at a
    /// copy.
    fn put_guard(&mut self, base: u64, at: u64, entry: u64, (test, word): (Test, &WordPlace)) {
        let constant = at + 8 * (GUARD_WORDS - 1);
        let address = match word {
            WordPlace::Device(slice) => slice.addr().as_u64(),
            WordPlace::Host(data, offset) => {
                let copy = size(constant)..size(constant + test.kind.bytes());
                let from = *offset..*offset + copy.len();
                data.with(|bytes| self.bytes[copy].copy_from_slice(&bytes[from]));
                base + constant
            }
        };
        let range = test.range();
        let is = |flag: u64, so: bool| if so { flag } else { 0 };
        let flags = is(OUTSIDE, range.is_outside)
            | is(HALF, test.kind.bytes() == 4)
            | is(SIGNED, test.kind.is_signed());
        let words = [entry, address, range.first, range.span, flags];
        for (n, word) in words.into_iter().enumerate() {
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
    /// `is_guarded` if the task has a condition.
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
