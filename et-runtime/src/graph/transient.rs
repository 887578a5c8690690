//! Buffers that a graph has for itself.

use std::collections::HashMap;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use et_hal::DeviceAddr;

use super::plan::{self, Need, Plan};
use super::{Access, Graph, GraphError, Region, TaskId, TransientMemory};
use crate::Error;
use crate::memory::{AllocError, BufferOptions, DeviceBuffer, DeviceMemory, DeviceSlice};

/// Where no device has memory: what the builder's buffers have for addresses until they have a
/// place.
const NOWHERE: u64 = 1 << 62;
/// More than a device has, and what an allocator manages.
const NOWHERE_BYTES: u64 = 128 << 30;
/// Tasks that may run at the same time must not share a cache line.
const LINE: u64 = 64;

/// A buffer of device memory that a graph has for itself, from
/// [`GraphBuilder::transient`](super::GraphBuilder::transient): for what tasks leave for later
/// ones.
///
/// It has memory from the first task that uses it to the last, which may be the memory of other
/// such buffers before and after. It has no address before the graph is built: tasks take it as
/// they do other buffers, and streams refuse it.
#[derive(Debug)]
pub struct TransientBuffer {
    buffer: DeviceBuffer,
}

impl TransientBuffer {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.buffer.len_bytes()
    }

    /// Returns a part of it, by bytes, for tasks of the graph.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<DeviceSlice, Error> {
        self.buffer.slice(range)
    }
}

/// For what keeps buffers of all kinds; it is still the graph's.
impl From<TransientBuffer> for DeviceBuffer {
    fn from(transient: TransientBuffer) -> Self {
        transient.buffer
    }
}

impl From<&TransientBuffer> for DeviceSlice {
    fn from(transient: &TransientBuffer) -> Self {
        transient.buffer.whole()
    }
}

impl From<&TransientBuffer> for Region {
    fn from(transient: &TransientBuffer) -> Self {
        transient.buffer.whole().into()
    }
}

/// The transient buffers of a builder.
#[derive(Default)]
pub(super) struct Transients {
    nowhere: Option<Arc<DeviceMemory>>,
    buffers: Vec<Buffer>,
    /// By the name of the allocation.
    numbers: HashMap<usize, usize>,
    /// Tasks whose buffers live on, and the tasks until which they do.
    retained: Vec<(u32, u32)>,
}

struct Buffer {
    whole: DeviceSlice,
    align: u64,
    /// What tasks so far write, ascending, apart from each other.
    written: Vec<Range<u64>>,
}

impl Transients {
    pub(super) fn declare(
        &mut self,
        len_bytes: u64,
        align: u64,
    ) -> Result<TransientBuffer, GraphError> {
        if self.nowhere.is_none() {
            let made = DeviceMemory::new(DeviceAddr::new(NOWHERE), NOWHERE_BYTES, None);
            self.nowhere = Some(made.map_err(|error| GraphError::Memory(Box::new(error)))?);
        }
        let Some(nowhere) = &self.nowhere else { unreachable!("it was made") };
        if !align.is_power_of_two() {
            return Err(GraphError::Memory(Box::new(AllocError::BadAlignment { align })));
        }
        let align = align.max(LINE);
        let buffer = nowhere.alloc(len_bytes, align).map_err(memory_error)?;
        let whole = buffer.whole();
        self.numbers.insert(whole.allocation_id(), self.buffers.len());
        self.buffers.push(Buffer { whole, align, written: Vec::new() });
        Ok(TransientBuffer { buffer })
    }

    /// Returns `true` if the slice is of a buffer of this builder.
    pub(super) fn has(&self, slice: &DeviceSlice) -> bool {
        self.nowhere.as_ref().is_some_and(|nowhere| slice.belongs_to(nowhere))
    }

    pub(super) fn retain(&mut self, before: TaskId, after: TaskId) {
        if !self.buffers.is_empty() {
            self.retained.push((before.0, after.0));
        }
    }

    fn number(&self, slice: &DeviceSlice) -> Option<usize> {
        self.numbers.get(&slice.allocation_id()).copied()
    }

    /// Where a slice is in its buffer.
    fn bounds(&self, number: usize, slice: &DeviceSlice) -> Range<u64> {
        let start = slice.addr().as_u64() - self.buffers[number].whole.addr().as_u64();
        start..start + slice.len_bytes()
    }

    /// Checks that a task, and copies before and after it, read nothing that was not written.
    pub(super) fn check<'a>(
        &self,
        task: TaskId,
        steps: impl Iterator<Item = (&'a DeviceSlice, Access)>,
    ) -> Result<(), GraphError> {
        let mut more: Vec<(usize, Range<u64>)> = Vec::new();
        for (slice, access) in steps {
            let Some(number) = self.number(slice) else { continue };
            let bounds = self.bounds(number, slice);
            if access.reads() {
                let known = &self.buffers[number].written;
                let its = more.iter().filter(|(of, _)| *of == number).map(|(_, range)| range);
                let mut written: Vec<_> = known.iter().chain(its).cloned().collect();
                written.sort_unstable_by_key(|range| range.start);
                if let Some(at) = first_gap(&written, &bounds) {
                    let len = self.buffers[number].whole.len_bytes();
                    return Err(GraphError::NotWritten { task, at, len });
                }
            }
            if access.writes() {
                more.push((number, bounds));
            }
        }
        Ok(())
    }

    /// Notes what a task and its copies write.
    pub(super) fn note<'a>(&mut self, steps: impl Iterator<Item = (&'a DeviceSlice, Access)>) {
        for (slice, _) in steps.filter(|(_, access)| access.writes()) {
            let Some(number) = self.number(slice) else { continue };
            let bounds = self.bounds(number, slice);
            let known = &mut self.buffers[number].written;
            let start = known.partition_point(|range| range.end < bounds.start);
            let end = known.partition_point(|range| range.start <= bounds.end);
            let merged = known[start..end].iter().fold(bounds, |merged, range| {
                merged.start.min(range.start)..merged.end.max(range.end)
            });
            known.splice(start..end, [merged]);
        }
    }

    /// Gives the buffers that tasks use their places in memory.
    pub(super) fn place(self, graph: Graph) -> Result<Graph, GraphError> {
        let uses = self.uses(&graph);
        let used: Vec<usize> = (0..uses.len()).filter(|&number| !uses[number].is_empty()).collect();
        let Some(memory) = graph.shape.memory.as_ref().filter(|_| !used.is_empty()) else {
            return Ok(graph);
        };
        let need = |&number: &usize| {
            let Buffer { whole, align, .. } = &self.buffers[number];
            let users = uses[number].clone();
            Need { len: whole.len_bytes(), align: *align, users }
        };
        let needs: Vec<Need> = used.iter().map(need).collect();
        let Plan { offsets, len_bytes } = plan::plan(graph.view(), &needs);
        let align = needs.iter().map(|need| need.align).max().unwrap_or(LINE);
        let options = BufferOptions::new().align(align);
        let arena = memory.alloc_with(len_bytes, &options).map_err(memory_error)?;
        let moves = used.iter().zip(offsets).map(|(&number, offset)| {
            let old = self.buffers[number].whole.clone();
            let end = offset + old.len_bytes();
            (old, arena.slice(offset..end).expect("the plan is inside"))
        });
        let asked_bytes = needs.iter().map(|need| need.len).sum();
        let transient = TransientMemory { buffers: used.len(), asked_bytes, peak_bytes: len_bytes };
        graph.relocated(moves.collect(), transient)
    }

    /// The tasks that need each buffer, each once.
    fn uses(&self, graph: &Graph) -> Vec<Vec<u32>> {
        let (accesses, places) = (&graph.shape.accesses, &graph.places);
        let mut uses = vec![Vec::new(); self.buffers.len()];
        let of_task = |task: u32| {
            graph.view().access_range(task).filter_map(move |at| {
                let space = places.span_space[accesses.spans[at] as usize];
                let number = self.number(places.keep[space as usize].device()?)?;
                Some((number, accesses.access(at)))
            })
        };
        for task in graph.tasks() {
            of_task(task.0).for_each(|(number, _)| uses[number].push(task.0));
        }
        for &(before, after) in &self.retained {
            for (number, access) in of_task(before) {
                if access.writes() {
                    uses[number].push(after);
                }
            }
        }
        for users in &mut uses {
            users.sort_unstable();
            users.dedup();
        }
        uses
    }
}

/// The first byte of `bounds` that is in none of the ranges, which are in the order of their
/// starts.
fn first_gap(ranges: &[Range<u64>], bounds: &Range<u64>) -> Option<u64> {
    let mut at = bounds.start;
    for range in ranges {
        if range.start > at {
            break;
        }
        at = at.max(range.end);
    }
    (at < bounds.end).then_some(at)
}

fn memory_error(error: Error) -> GraphError {
    match error {
        Error::Memory(error) => GraphError::Memory(Box::new(error)),
        error => unreachable!("an allocation fails for want of memory, not with {error}"),
    }
}
