//! How a graph is stored.
//!
//! What every launch shares is in [`Shape`], what a patch may replace beside it. Rows are
//! compressed: a node has the start of each of its rows, the next node their ends.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::condition::{Test, WordPlace};
use super::footprint::Footprint;
use super::function::HostFunction;
use super::parts::{PartOf, Parts};
use super::record::Recorded;
use super::span::{NONE, Span, to_u32};
use super::{Access, CoreSet, HostData, Region};
use crate::kernel::Kernel;
use crate::memory::{DeviceMemory, DeviceSlice};

/// Why an edge is there: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) u8);

impl Reason {
    pub(super) const RAW: Self = Self(1);
    pub(super) const WAW: Self = Self(2);
    pub(super) const WAR: Self = Self(4);
    pub(super) const EXPLICIT: Self = Self(8);

    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (Self::RAW, "raw"),
            (Self::WAW, "waw"),
            (Self::WAR, "war"),
            (Self::EXPLICIT, "explicit"),
        ];
        all.into_iter().filter(move |(reason, _)| self.0 & reason.0 != 0).map(|(_, name)| name)
    }
}

/// One task.
#[derive(Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) function: u32,
    pub(super) fan_in: u32,
    /// Start of its successors; while the graph is built, of its predecessors.
    pub(super) row: u32,
    /// Start of its argument words.
    pub(super) args: u32,
    /// Start of its accesses.
    pub(super) accesses: u32,
    /// Bytes of the last argument word that are not arguments.
    pub(super) pad: u8,
}

pub(super) enum Function {
    Host(Box<HostFunction>),
    Kernel(Kernel),
    /// Number of the copy.
    CopyIn(u32),
    CopyOut(u32),
}

/// The two sides of a copy.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) host: HostData,
    pub(super) device: DeviceSlice,
}

/// The uses of spans, of all tasks in a row.
#[derive(Default)]
pub(super) struct Accesses {
    pub(super) spans: Vec<u32>,
    /// Low 2 bits: the access; the rest: 0 if the address is no argument, [`FAR`](Self::FAR), or
    /// the argument word plus 1.
    meta: Vec<u16>,
    /// By index of the access: argument words that are too large for `meta`.
    far: Vec<(u32, u32)>,
}

impl Accesses {
    const FAR: u16 = u16::MAX >> 2;

    pub(super) fn push(&mut self, span: u32, access: Access, word: Option<u32>) {
        let high = match word.map(|word| u16::try_from(word + 1)) {
            None => 0,
            Some(Ok(number)) if number < Self::FAR => number,
            Some(_) => {
                // The builder counts accesses in 32 bits.
                self.far.push((u32::try_from(self.spans.len()).unwrap_or(NONE), word.unwrap_or(0)));
                Self::FAR
            }
        };
        self.spans.push(span);
        self.meta.push(high << 2 | access as u16);
    }

    pub(super) fn access(&self, at: usize) -> Access {
        match self.meta[at] & 3 {
            0 => Access::Read,
            1 => Access::Write,
            _ => Access::Update,
        }
    }

    pub(super) fn word(&self, at: usize) -> Option<usize> {
        match self.meta[at] >> 2 {
            0 => None,
            Self::FAR => {
                let found = self.far.binary_search_by_key(&at, |&(at, _)| at as usize).ok()?;
                Some(self.far[found].1 as usize)
            }
            number => Some(usize::from(number - 1)),
        }
    }

    pub(super) fn shrink(&mut self) {
        self.spans.shrink_to_fit();
        self.meta.shrink_to_fit();
        self.far.shrink_to_fit();
    }
}

/// What the tasks of a graph run, beside copies.
#[derive(Clone, Copy, Default)]
pub(super) struct Kinds {
    pub(super) host: bool,
    pub(super) kernel: bool,
}

/// What all patched graphs of one graph share.
#[derive(Default)]
pub(super) struct Shape {
    /// One more than there are tasks; the last one only ends the rows.
    pub(super) nodes: Vec<Node>,
    pub(super) successors: Vec<u32>,
    /// Beside `successors`.
    pub(super) reasons: Vec<Reason>,
    pub(super) roots: Vec<u32>,
    pub(super) functions: Vec<Function>,
    /// Ascending, of the tasks that have one.
    pub(super) names: Vec<(u32, Cow<'static, str>)>,
    pub(super) accesses: Accesses,
    pub(super) core_sets: Vec<CoreSet>,
    /// Number of the core set of each task, or `NONE`; ends with the last task that has one.
    pub(super) core_of: Vec<u32>,
    /// Shire mask of each task, or 0; ends with the last task that has one.
    pub(super) shires: Vec<u64>,
    /// Tasks of several parts.
    pub(super) parts: Parts,
    /// Tasks that are recorded.
    pub(super) recorded: Vec<Recorded>,
    /// Ascending, of the tasks that have a condition.
    pub(super) tests: Vec<(u32, Test)>,
    pub(super) memory: Option<Arc<DeviceMemory>>,
    pub(super) kinds: Kinds,
    /// Whether every edge leads to a later task.
    pub(super) is_forward: bool,
}

/// The device memory that a graph has for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransientMemory {
    /// Buffers that tasks use.
    pub buffers: usize,
    /// Their lengths, together.
    pub asked_bytes: u64,
    /// What was allocated for all of them.
    pub peak_bytes: u64,
}

/// Where the regions are.
pub(super) struct Places {
    /// What keeps each space alive.
    pub(super) keep: Vec<Region>,
    pub(super) spans: Vec<Span>,
    /// The space of each span.
    pub(super) span_space: Vec<u32>,
    pub(super) footprint: OnceLock<Footprint>,
    pub(super) transient: TransientMemory,
}

/// An immutable task graph: what runs, with which arguments, after what.
///
/// Made by [`GraphBuilder::build`](super::GraphBuilder::build). Clones are cheap and share
/// everything. A graph keeps its buffers, kernels and functions alive.
#[derive(Clone)]
pub struct Graph {
    pub(super) shape: Arc<Shape>,
    pub(super) words: Arc<Vec<u64>>,
    pub(super) places: Arc<Places>,
    pub(super) copies: Arc<Vec<Ends>>,
    /// The words of the conditions, in the order of [`Shape::tests`].
    pub(super) tested: Arc<Vec<WordPlace>>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("tasks", &self.len())
            .field("edges", &self.edges())
            .finish_non_exhaustive()
    }
}

/// What a task does.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    Host(&'a HostFunction),
    Kernel(&'a Kernel),
    CopyIn { from: &'a HostData, to: &'a DeviceSlice },
    CopyOut { from: &'a DeviceSlice, to: &'a HostData },
}

/// A graph as what runs it sees it: by index, without checks but those of slices.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) shape: &'a Shape,
    words: &'a [u64],
    copies: &'a [Ends],
    tested: &'a [WordPlace],
}

impl Graph {
    /// Returns how much device memory the graph has for itself.
    #[must_use]
    pub fn transient_memory(&self) -> TransientMemory {
        self.places.transient
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { shape: &self.shape, words: &self.words, copies: &self.copies, tested: &self.tested }
    }

    /// Returns the bytes that the graph occupies: at most 64 per task and 8 per edge for tasks with
    /// few arguments and regions.
    ///
    /// Not counted are buffers, kernels, host data and what closures and names refer to; shared
    /// with patched graphs is most of it.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        fn bytes<T>(vector: &Vec<T>) -> usize {
            vector.capacity() * size_of::<T>()
        }
        let (shape, places) = (&*self.shape, &*self.places);
        let accesses = &shape.accesses;
        let name = |(_, name): &(u32, Cow<'_, str>)| match name {
            Cow::Owned(name) => name.capacity(),
            Cow::Borrowed(_) => 0,
        };
        size_of::<Shape>()
            + size_of::<Places>()
            + bytes(&shape.nodes)
            + bytes(&shape.successors)
            + bytes(&shape.reasons)
            + bytes(&shape.roots)
            + bytes(&shape.functions)
            + bytes(&shape.names)
            + shape.names.iter().map(name).sum::<usize>()
            + bytes(&accesses.spans)
            + bytes(&accesses.meta)
            + bytes(&accesses.far)
            + bytes(&shape.core_sets)
            + shape.core_sets.iter().map(CoreSet::heap_bytes).sum::<usize>()
            + bytes(&shape.core_of)
            + bytes(&shape.shires)
            + shape.parts.heap_bytes()
            + bytes(&shape.recorded)
            + shape.recorded.iter().map(|recorded| bytes(&recorded.regions)).sum::<usize>()
            + bytes(&places.keep)
            + bytes(&places.spans)
            + bytes(&places.span_space)
            + places.footprint.get().map_or(0, Footprint::resident_bytes)
            + bytes(&self.words)
            + bytes(&self.copies)
            + bytes(&shape.tests)
            + bytes(&self.tested)
    }
}

impl<'a> View<'a> {
    /// Returns the number of tasks.
    pub(crate) fn len(self) -> usize {
        self.shape.nodes.len() - 1
    }

    /// Returns how many tasks must have completed before this one.
    pub(crate) fn fan_in(self, task: u32) -> u32 {
        self.shape.nodes[task as usize].fan_in
    }

    /// Returns the tasks that wait for this one, ascending.
    pub(crate) fn successors(self, task: u32) -> &'a [u32] {
        let (row, end) = self.pair(task);
        &self.shape.successors[row.row as usize..end.row as usize]
    }

    /// Returns the tasks that wait for none, ascending.
    pub(crate) fn roots(self) -> &'a [u32] {
        &self.shape.roots
    }

    /// Returns the arguments in words, little-endian, the last one padded with zeros.
    pub(crate) fn args(self, task: u32) -> &'a [u64] {
        let (row, end) = self.pair(task);
        &self.words[row.args as usize..end.args as usize]
    }

    /// Returns the length of the arguments in bytes.
    pub(crate) fn args_len(self, task: u32) -> usize {
        let (row, end) = self.pair(task);
        (end.args - row.args) as usize * 8 - usize::from(row.pad)
    }

    /// Returns what the task does.
    pub(crate) fn work(self, task: u32) -> Work<'a> {
        match &self.shape.functions[self.function(task) as usize] {
            Function::Host(function) => Work::Host(&**function),
            Function::Kernel(kernel) => Work::Kernel(kernel),
            Function::CopyIn(copy) => {
                let ends = &self.copies[*copy as usize];
                Work::CopyIn { from: &ends.host, to: &ends.device }
            }
            Function::CopyOut(copy) => {
                let ends = &self.copies[*copy as usize];
                Work::CopyOut { from: &ends.device, to: &ends.host }
            }
        }
    }

    /// Returns the number of the task's function; copies have functions of their own.
    pub(crate) fn function(self, task: u32) -> u32 {
        self.shape.nodes[task as usize].function
    }

    /// Returns the workers the task may run on; `None` for all.
    pub(crate) fn core_set(self, task: u32) -> Option<&'a CoreSet> {
        self.shape.core_sets.get(self.core_set_number(task)? as usize)
    }

    /// Returns the number of the task's core set among [`core_sets`](Self::core_sets).
    pub(crate) fn core_set_number(self, task: u32) -> Option<u32> {
        self.shape.core_of.get(task as usize).copied().filter(|&number| number != NONE)
    }

    /// Returns the different core sets.
    pub(crate) fn core_sets(self) -> &'a [CoreSet] {
        &self.shape.core_sets
    }

    /// Returns the shires the task asked for.
    pub(crate) fn shires(self, task: u32) -> Option<u64> {
        self.shape.shires.get(task as usize).copied().filter(|&mask| mask != 0)
    }

    /// Returns `true` if there are tasks of several parts.
    #[inline]
    pub(crate) fn has_parts(self) -> bool {
        !self.shape.parts.is_empty()
    }

    /// Returns the number of parts of a task.
    #[inline]
    pub(crate) fn parts(self, task: u32) -> u32 {
        self.shape.parts.of(task)
    }

    /// Returns `true` if the parts of a task start together.
    pub(crate) fn starts_together(self, task: u32) -> bool {
        self.shape.parts.are_together(task)
    }

    /// Returns which of the tasks with several parts this is.
    pub(crate) fn parts_rank(self, task: u32) -> Option<usize> {
        self.shape.parts.rank(task)
    }

    /// Returns the tasks with several parts, ascending, and how many these are.
    pub(crate) fn all_parts(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.shape.parts.iter()
    }

    /// Returns how many numbers of units there are. Units are what workers get. Below the number of
    /// tasks they are whole tasks, then parts; a task that has parts is no unit by itself.
    pub(crate) fn units_len(self) -> usize {
        self.len() + self.shape.parts.total()
    }

    /// Returns the units of a task.
    pub(crate) fn units(self, task: u32) -> Range<u32> {
        self.shape.parts.units(to_u32(self.len()), task)
    }

    /// Returns what a unit is.
    #[inline]
    pub(crate) fn unit(self, unit: u32) -> PartOf {
        self.shape.parts.unit(to_u32(self.len()), unit)
    }

    /// Returns the tasks that are recorded, and by which copies.
    pub(crate) fn recorded(self) -> &'a [Recorded] {
        &self.shape.recorded
    }

    /// Returns the condition of a task: a test, and the word it is for.
    #[inline]
    pub(crate) fn condition(self, task: u32) -> Option<(Test, &'a WordPlace)> {
        let tests = &self.shape.tests;
        // Of most graphs no task has one.
        if tests.is_empty() {
            return None;
        }
        let at = tests.binary_search_by_key(&task, |&(task, _)| task).ok()?;
        Some((tests[at].1, &self.tested[at]))
    }

    /// Returns the first task whose condition looks at device memory.
    pub(crate) fn device_condition(self) -> Option<u32> {
        let is_device = |place: &WordPlace| matches!(place, WordPlace::Device(_));
        self.tested.iter().position(is_device).map(|at| self.shape.tests[at].0)
    }

    /// Returns the memory that all buffers and kernels of the graph are in; `None` if it has
    /// neither.
    pub(crate) fn device_memory(self) -> Option<&'a Arc<DeviceMemory>> {
        self.shape.memory.as_ref()
    }

    /// Returns `true` if there are tasks that run host functions.
    pub(crate) fn has_host_work(self) -> bool {
        self.shape.kinds.host
    }

    /// Returns `true` if there are tasks that run kernels.
    pub(crate) fn has_kernels(self) -> bool {
        self.shape.kinds.kernel
    }

    /// Returns `true` if there are copies.
    pub(crate) fn has_copies(self) -> bool {
        !self.copies.is_empty()
    }

    /// Returns the start and the end of the task's rows.
    fn pair(self, task: u32) -> (&'a Node, &'a Node) {
        let nodes = &self.shape.nodes;
        (&nodes[task as usize], &nodes[task as usize + 1])
    }

    /// Returns the reasons of the edges to [`successors`](Self::successors).
    pub(super) fn reasons(self, task: u32) -> &'a [Reason] {
        let (row, end) = self.pair(task);
        &self.shape.reasons[row.row as usize..end.row as usize]
    }

    /// Returns where the task's arguments are among all words.
    pub(super) fn words_range(self, task: u32) -> std::ops::Range<usize> {
        let (row, end) = self.pair(task);
        row.args as usize..end.args as usize
    }

    /// Returns where the task's accesses are among all.
    pub(super) fn access_range(self, task: u32) -> std::ops::Range<usize> {
        let (row, end) = self.pair(task);
        row.accesses as usize..end.accesses as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_words_are_kept_however_far_they_are() {
        let mut accesses = Accesses::default();
        let words = [None, Some(0), Some(16_381), Some(16_382), Some(65_535), Some(1 << 20)];
        for (span, word) in (0..).zip(words) {
            accesses.push(span, Access::Update, word);
        }
        for (at, word) in words.into_iter().enumerate() {
            assert_eq!(accesses.word(at), word.map(|word| word as usize));
            assert_eq!(accesses.access(at), Access::Update);
        }
        assert_eq!(accesses.far.len(), 3);
    }

    #[test]
    fn a_node_is_small() {
        assert_eq!(size_of::<Node>(), 24);
    }
}
