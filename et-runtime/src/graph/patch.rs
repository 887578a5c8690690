//! The same graph with other arguments, buffers and data.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::check::{check_condition, check_usage};
use super::condition::WordPlace;
use super::shape::{Ends, Function, Places, Work};
use super::span::{NONE, Span, to_u32};
use super::{Graph, GraphError, HostData, Region, TaskId, TransientMemory};
use crate::kernel::KernelArgs;
use crate::memory::{DeviceSlice, User};

impl Graph {
    /// Begins a patch: the same tasks and edges, with other arguments, buffers or data.
    pub fn patch(&self) -> Patch {
        Patch { graph: self.clone(), args: Vec::new(), rebinds: Vec::new(), data: Vec::new() }
    }
}

/// What is to be different in the next launches of a graph; nothing is derived again.
///
/// All changes apply at once, so that two buffers can be exchanged by rebinding each to the other.
#[derive(Clone, Debug)]
#[must_use]
pub struct Patch {
    graph: Graph,
    args: Vec<(TaskId, KernelArgs)>,
    rebinds: Vec<(DeviceSlice, DeviceSlice)>,
    data: Vec<(TaskId, HostData)>,
}

impl Patch {
    /// Replaces the arguments of a task by others of the same length. Where the task has the
    /// address of a region it declared by [`input`](super::Task::input) and the like, the new
    /// arguments must have it too, before or after [`rebind`](Self::rebind).
    pub fn args(mut self, task: TaskId, args: KernelArgs) -> Self {
        self.args.push((task, args));
        self
    }

    /// Replaces a range of device memory by another one of the same length, in every declared
    /// region, in every argument that came from [`input`](super::Task::input) and the like, and in
    /// every copy. Regions are inside `old` or apart from it.
    pub fn rebind(mut self, old: impl Into<DeviceSlice>, new: impl Into<DeviceSlice>) -> Self {
        self.rebinds.push((old.into(), new.into()));
        self
    }

    /// Replaces the host data of a copy by other data of the same length, wherever the graph uses
    /// this data.
    pub fn data(mut self, copy: TaskId, data: &HostData) -> Self {
        self.data.push((copy, data.clone()));
        self
    }

    /// Makes the graph. It shares with the one it comes from whatever was not replaced.
    ///
    /// # Errors
    /// [`GraphError::UnknownTask`]; [`ArgumentsMismatch`](GraphError::ArgumentsMismatch),
    /// [`AddressMismatch`](GraphError::AddressMismatch);
    /// [`RebindLength`](GraphError::RebindLength), [`RebindUnused`](GraphError::RebindUnused),
    /// [`RebindSplits`](GraphError::RebindSplits), [`RebindOverlaps`](GraphError::RebindOverlaps),
    /// [`RebindToAnotherDevice`](GraphError::RebindToAnotherDevice), [`Usage`](GraphError::Usage);
    /// [`NotACopy`](GraphError::NotACopy), [`CopyLength`](GraphError::CopyLength),
    /// [`DataInUse`](GraphError::DataInUse).
    pub fn build(self) -> Result<Graph, GraphError> {
        let Self { graph, args, rebinds, data } = self;
        let mut words = (!args.is_empty() || !rebinds.is_empty()).then(|| graph.words.to_vec());
        let mut copies = (!rebinds.is_empty() || !data.is_empty()).then(|| graph.copies.to_vec());
        let mut tested = copies.is_some().then(|| graph.tested.to_vec());
        let mut places = copies.is_some().then(|| graph.places.unshared());

        if let Some(words) = &mut words {
            replace_args(&graph, words, &args)?;
        }
        if let (Some(words), Some(copies), Some(places)) = (&mut words, &mut copies, &mut places)
            && !rebinds.is_empty()
        {
            let moves = Moves::new(&graph, rebinds)?;
            moves.apply(&graph, words, copies, places)?;
            moves.apply_to_conditions(&graph, tested.as_deref_mut().unwrap_or_default())?;
        }
        if let Some(words) = &mut words {
            check_addresses(&graph, words, &args, places.as_ref().unwrap_or(&graph.places))?;
        }
        if let (Some(copies), Some(places)) = (&mut copies, &mut places)
            && !data.is_empty()
        {
            replace_data(&graph, copies, places, &data)?;
            replace_tested(&graph, tested.as_deref_mut().unwrap_or_default(), places);
        }
        Ok(Graph {
            shape: Arc::clone(&graph.shape),
            words: words.map_or(Arc::clone(&graph.words), Arc::new),
            places: places.map_or(Arc::clone(&graph.places), |mut places| {
                places.drop_unused();
                Arc::new(places)
            }),
            copies: copies.map_or(Arc::clone(&graph.copies), Arc::new),
            tested: tested.map_or(Arc::clone(&graph.tested), Arc::new),
        })
    }
}

fn replace_args(
    graph: &Graph,
    words: &mut [u64],
    args: &[(TaskId, KernelArgs)],
) -> Result<(), GraphError> {
    for &(task, ref args) in args {
        graph.known(task)?;
        let (expected, found) = (graph.view().args_len(task.0), args.len());
        if expected != found {
            return Err(GraphError::ArgumentsMismatch { task, expected, found });
        }
        let row = &mut words[graph.view().words_range(task.0)];
        for (word, bytes) in row.iter_mut().zip(args.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
    }
    Ok(())
}

/// Checks that new arguments have the addresses that the graph's edges rely on, and puts in those
/// that moved.
fn check_addresses(
    graph: &Graph,
    words: &mut [u64],
    args: &[(TaskId, KernelArgs)],
    places: &Places,
) -> Result<(), GraphError> {
    let accesses = &graph.shape.accesses;
    for &(task, _) in args {
        let row = graph.view().words_range(task.0).start;
        for at in graph.view().access_range(task.0) {
            let Some(word) = accesses.word(at) else { continue };
            let span = accesses.spans[at] as usize;
            let (old, expected) = (graph.places.spans[span].start, places.spans[span].start);
            let found = &mut words[row + word];
            if *found != old && *found != expected {
                return Err(GraphError::AddressMismatch { task, word, expected, found: *found });
            }
            *found = expected;
        }
    }
    Ok(())
}

/// Ranges of device memory on their way elsewhere.
struct Moves {
    /// Ascending and disjoint.
    moves: Vec<(Range<u64>, DeviceSlice)>,
    /// Where they overlap afterwards, the edges account for it.
    is_planned: bool,
}

fn bounds(slice: &DeviceSlice) -> Range<u64> {
    let start = slice.addr().as_u64();
    start..start + slice.len_bytes()
}

impl Moves {
    fn new(graph: &Graph, rebinds: Vec<(DeviceSlice, DeviceSlice)>) -> Result<Self, GraphError> {
        let mut moves = Vec::with_capacity(rebinds.len());
        for (old, new) in rebinds {
            let Some(memory) = graph.view().device_memory().filter(|memory| old.belongs_to(memory))
            else {
                return Err(GraphError::RebindUnused { old: bounds(&old) });
            };
            if !new.belongs_to(memory) {
                let (start, len) = (new.addr().as_u64(), new.len_bytes());
                return Err(GraphError::RebindToAnotherDevice { start, len });
            }
            if old.len_bytes() != new.len_bytes() {
                let (old, new) = (old.len_bytes(), new.len_bytes());
                return Err(GraphError::RebindLength { old, new });
            }
            moves.push((bounds(&old), new));
        }
        moves.sort_unstable_by_key(|(old, _)| old.start);
        for pair in moves.windows(2) {
            if pair[1].0.start < pair[0].0.end {
                let (old, region) = (pair[0].0.clone(), pair[1].0.clone());
                return Err(GraphError::RebindSplits { old, region });
            }
        }
        Ok(Self { moves, is_planned: false })
    }

    /// Returns which move takes a span along.
    fn find(&self, span: Span) -> Result<Option<usize>, GraphError> {
        let at = self.moves.partition_point(|(old, _)| old.end <= span.start);
        let Some((old, _)) = self.moves.get(at) else { return Ok(None) };
        // An empty span moves with what begins there.
        if span.start < old.start && span.end <= old.start {
            return Ok(None);
        }
        if span.start < old.start || old.end < span.end {
            let (old, region) = (old.clone(), span.start..span.end);
            return Err(GraphError::RebindSplits { old, region });
        }
        Ok(Some(at))
    }

    fn apply(
        &self,
        graph: &Graph,
        words: &mut [u64],
        copies: &mut [Ends],
        places: &mut Places,
    ) -> Result<(), GraphError> {
        let first_new = places.keep.len();
        places.keep.extend(self.moves.iter().map(|(_, new)| Region::from(new)));
        let mut is_used = vec![false; self.moves.len()];
        // For each span: the number of its move, plus 1; 0 for those that stay.
        let mut groups = vec![0; places.spans.len()];
        for (at, span) in places.spans.iter_mut().enumerate() {
            if places.keep[places.span_space[at] as usize].device().is_none() {
                continue;
            }
            let Some(number) = self.find(*span)? else { continue };
            let (old, new) = &self.moves[number];
            let start = span.start - old.start + new.addr().as_u64();
            *span = Span { start, end: start + (span.end - span.start) };
            places.span_space[at] = to_u32(first_new + number);
            groups[at] = number + 1;
            is_used[number] = true;
        }
        if let Some(unused) = is_used.iter().position(|&is_used| !is_used) {
            return Err(GraphError::RebindUnused { old: self.moves[unused].0.clone() });
        }
        if !self.is_planned {
            check_overlaps(graph, places, &groups)?;
        }
        self.check_usage(graph, &groups, places)?;
        for Ends { device, .. } in copies {
            let Range { start, end } = bounds(device);
            if let Some(number) = self.find(Span { start, end })? {
                let (old, new) = &self.moves[number];
                *device =
                    new.slice(start - old.start..end - old.start).expect("old and new are as long");
            }
        }
        self.move_words(graph, words, places, &groups);
        Ok(())
    }

    /// Moves the words that conditions look at; their addresses must be aligned as before.
    fn apply_to_conditions(
        &self,
        graph: &Graph,
        tested: &mut [WordPlace],
    ) -> Result<(), GraphError> {
        for ((task, test), place) in graph.shape.tests.iter().zip(tested) {
            let WordPlace::Device(slice) = place else { continue };
            let Range { start, end } = bounds(slice);
            let Some(number) = self.find(Span { start, end })? else { continue };
            let (old, new) = &self.moves[number];
            let (offset, len) = (start - old.start, new.len_bytes());
            if !(new.addr().as_u64() + offset).is_multiple_of(test.kind.bytes()) {
                return Err(GraphError::NoWord { kind: test.kind.as_str(), offset, len });
            }
            *slice = new.slice(offset..end - old.start).expect("old and new are as long");
            check_condition(TaskId(*task), slice)?;
        }
        Ok(())
    }

    /// Checks that what moved may be used where it is now.
    fn check_usage(
        &self,
        graph: &Graph,
        groups: &[usize],
        places: &Places,
    ) -> Result<(), GraphError> {
        let accesses = &graph.shape.accesses;
        for task in graph.tasks() {
            let user = match graph.view().work(task.0) {
                Work::Host(_) => continue,
                Work::Kernel(_) => User::Kernels,
                Work::CopyIn { .. } | Work::CopyOut { .. } => User::Host,
            };
            for at in graph.view().access_range(task.0) {
                let span = accesses.spans[at] as usize;
                let Some(number) = groups[span].checked_sub(1) else { continue };
                let (new, Span { start, end }) = (&self.moves[number].1, places.spans[span]);
                let base = new.addr().as_u64();
                let part = new.slice(start - base..end - base).expect("moved into it");
                check_usage(task, user, &part, accesses.access(at))?;
            }
        }
        Ok(())
    }

    fn move_words(&self, graph: &Graph, words: &mut [u64], places: &Places, groups: &[usize]) {
        let accesses = &graph.shape.accesses;
        for task in graph.tasks() {
            for at in graph.view().access_range(task.0) {
                let span = accesses.spans[at] as usize;
                if groups[span] == 0 {
                    continue;
                }
                let (old, new) = (graph.places.spans[span].start, places.spans[span].start);
                let row = graph.view().words_range(task.0);
                let row = match accesses.word(at) {
                    Some(word) => row.start + word..row.start + word + 1,
                    // Nothing else has the address of a buffer that had no place.
                    None if self.is_planned => row,
                    None => continue,
                };
                // Others are new arguments, which are looked at later.
                for word in words[row].iter_mut().filter(|word| **word == old) {
                    *word = new;
                }
            }
        }
    }
}

/// Checks that spans of different groups share no bytes that a task writes.
fn check_overlaps(graph: &Graph, places: &Places, groups: &[usize]) -> Result<(), GraphError> {
    let is_written = written(graph, places.spans.len(), |span| span as usize);
    let is_device = |at: &usize| places.keep[places.span_space[*at] as usize].device().is_some();
    let mut spans: Vec<usize> = (0..places.spans.len()).filter(is_device).collect();
    spans.retain(|&at| places.spans[at].start < places.spans[at].end);
    spans.sort_unstable_by_key(|&at| places.spans[at].start);
    // Of the spans so far, all and those written: the one that ends last, and the one that does so
    // among other groups.
    let mut latest = [[None::<usize>; 2]; 2];
    for at in spans {
        let span = places.spans[at];
        for earlier in latest[usize::from(!is_written[at])].into_iter().flatten() {
            let other = places.spans[earlier];
            if groups[earlier] != groups[at] && span.start < other.end {
                let (first, second) = (other.start..other.end, span.start..span.end);
                return Err(GraphError::RebindOverlaps { first, second });
            }
        }
        for latest in &mut latest[..=usize::from(is_written[at])] {
            let ends_later =
                |than: &Option<usize>| than.is_none_or(|than| places.spans[than].end < span.end);
            let same_group =
                |other: &Option<usize>| other.is_some_and(|other| groups[other] == groups[at]);
            if same_group(&latest[0]) {
                if ends_later(&latest[0]) {
                    latest[0] = Some(at);
                }
            } else if ends_later(&latest[0]) {
                *latest = [Some(at), latest[0]];
            } else if ends_later(&latest[1]) {
                latest[1] = Some(at);
            }
        }
    }
    Ok(())
}

/// Returns what is written, among `len` things that `thing` finds for a span.
fn written(graph: &Graph, len: usize, thing: impl Fn(u32) -> usize) -> Vec<bool> {
    let accesses = &graph.shape.accesses;
    let mut is_written = vec![false; len];
    for (at, &span) in accesses.spans.iter().enumerate() {
        is_written[thing(span)] |= accesses.access(at).writes();
    }
    is_written
}

fn replace_data(
    graph: &Graph,
    copies: &mut [Ends],
    places: &mut Places,
    data: &[(TaskId, HostData)],
) -> Result<(), GraphError> {
    let shape = &graph.shape;
    // The host side is the first access of every copy.
    let space_of = |places: &Places, task: TaskId| {
        let access = graph.view().access_range(task.0).start;
        places.span_space[shape.accesses.spans[access] as usize] as usize
    };
    let mut replaced: Vec<Option<TaskId>> = vec![None; places.keep.len()];
    for &(task, ref data) in data {
        graph.known(task)?;
        let copy = match shape.functions[graph.view().function(task.0) as usize] {
            Function::CopyIn(copy) | Function::CopyOut(copy) => &copies[copy as usize],
            Function::Host(_) | Function::Kernel(_) => return Err(GraphError::NotACopy { task }),
        };
        let (host, device) = (data.len() as u64, copy.device.len_bytes());
        if host != device {
            return Err(GraphError::CopyLength { task, host, device });
        }
        let space = space_of(places, task);
        let region = Region::from(data);
        if let Some(other) = replaced[space].replace(task)
            && places.keep[space].space_id() != region.space_id()
        {
            return Err(GraphError::DataInUse { task, other });
        }
        places.keep[space] = region;
    }
    let is_written =
        written(graph, places.keep.len(), |span| places.span_space[span as usize] as usize);
    let user = |space: usize| {
        let uses = |&task: &TaskId| {
            let mut accesses = graph.view().access_range(task.0);
            accesses
                .any(|at| places.span_space[shape.accesses.spans[at] as usize] as usize == space)
        };
        graph.tasks().find(uses)
    };
    let mut spaces: Vec<usize> =
        (0..places.keep.len()).filter(|&at| is_no_buffer(places, at)).collect();
    spaces.sort_unstable_by_key(|&space| places.keep[space].space_id());
    for same in spaces.chunk_by(|&a, &b| places.keep[a].space_id() == places.keep[b].space_id()) {
        let changed = same.iter().find_map(|&space| replaced[space].map(|task| (space, task)));
        let Some((space, task)) = changed else { continue };
        if same.len() > 1 && same.iter().any(|&space| is_written[space]) {
            let other = same.iter().filter(|&&other| other != space).find_map(|&other| user(other));
            return Err(GraphError::DataInUse { task, other: other.unwrap_or(task) });
        }
    }
    for task in graph.tasks() {
        if let Function::CopyIn(copy) | Function::CopyOut(copy) =
            shape.functions[graph.view().function(task.0) as usize]
            && let Some(from) = replaced[space_of(places, task)]
            && let Some((_, data)) = data.iter().rfind(|(task, _)| *task == from)
        {
            copies[copy as usize].host = data.clone();
        }
    }
    Ok(())
}

/// Has conditions look at the data that a patch has put in the place of theirs, as `places` says.
fn replace_tested(graph: &Graph, tested: &mut [WordPlace], places: &Places) {
    for place in tested {
        let WordPlace::Host(data, _) = place else { continue };
        let id = Region::from(&*data).space_id();
        let space = graph.places.keep.iter().position(|region| region.space_id() == id);
        if let Some(new) = space.and_then(|space| places.keep[space].host()) {
            *data = new.clone();
        }
    }
}

/// Only host spaces can be replaced, and a device space may be there twice.
fn is_no_buffer(places: &Places, space: usize) -> bool {
    places.keep[space].device().is_none()
}

impl Graph {
    /// Gives buffers of the graph, as a builder has them, the places that were found for them.
    pub(super) fn relocated(
        self,
        moves: Vec<(DeviceSlice, DeviceSlice)>,
        transient: TransientMemory,
    ) -> Result<Self, GraphError> {
        let mut moves: Vec<_> = moves.into_iter().map(|(old, new)| (bounds(&old), new)).collect();
        moves.sort_unstable_by_key(|(old, _)| old.start);
        let moves = Moves { moves, is_planned: true };
        let (mut words, mut copies) = (self.words.to_vec(), self.copies.to_vec());
        let (mut tested, mut places) = (self.tested.to_vec(), self.places.unshared());
        moves.apply(&self, &mut words, &mut copies, &mut places)?;
        moves.apply_to_conditions(&self, &mut tested)?;
        places.drop_unused();
        places.transient = transient;
        Ok(Self {
            shape: self.shape,
            words: Arc::new(words),
            places: Arc::new(places),
            copies: Arc::new(copies),
            tested: Arc::new(tested),
        })
    }

    fn known(&self, task: TaskId) -> Result<(), GraphError> {
        let tasks = self.len();
        if task.index() < tasks { Ok(()) } else { Err(GraphError::UnknownTask { task, tasks }) }
    }
}

impl Places {
    fn unshared(&self) -> Self {
        Self {
            keep: self.keep.clone(),
            spans: self.spans.clone(),
            span_space: self.span_space.clone(),
            footprint: OnceLock::new(),
            transient: self.transient,
        }
    }

    /// Lets go of buffers that no span is in.
    fn drop_unused(&mut self) {
        let mut numbers = vec![NONE; self.keep.len()];
        for &space in &self.span_space {
            numbers[space as usize] = 0;
        }
        let mut kept = 0;
        let mut is_used = numbers.iter_mut().map(|number| {
            let is_used = *number != NONE;
            if is_used {
                *number = kept;
                kept += 1;
            }
            is_used
        });
        self.keep.retain(|_| is_used.next().unwrap_or(false));
        self.keep.shrink_to_fit();
        for space in &mut self.span_space {
            *space = numbers[*space as usize];
        }
    }
}
