//! Building graphs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use et_hal::Hal;

use super::check::{check_extra, check_regions, check_stage, check_usage};
use super::condition::{Test, WordPlace};
use super::copies::Copies;
use super::hazard::{Edges, Hazards};
use super::parts::Parts;
use super::record::Recorded;
use super::shape::{Accesses, Ends, Function, Kinds, Node, Reason};
use super::span::{NONE, to_u32};
use super::task::{Declared, Extra, Stage};
use super::transient::{TransientBuffer, Transients};
use super::{
    Access, CoreSet, FunctionId, GraphError, HostData, Task, TaskContext, TaskError, TaskId,
};
use crate::Device;
use crate::kernel::{Kernel, MAX_ARGS};
use crate::memory::{DeviceMemory, DeviceSlice, User};

/// Most of anything: indices are 32 bits, and one value means "none".
pub(super) const MAX: u32 = u32::MAX - 1;

/// Collects tasks and edges.
///
/// Tasks are in program order: a task waits for the earlier ones that write what it declares to
/// read or write (RAW, WAW), and for those that read what it declares to write (WAR). A call that
/// fails adds nothing, except that after [`GraphError::TooMany`] edges the builder can only fail.
///
/// An edge that others imply is left out where that costs nothing: a writer waits for the readers
/// before it, and through them for the writer before those.
#[derive(Default)]
pub struct GraphBuilder {
    pub(super) functions: Vec<Function>,
    /// Length of the arguments of some functions.
    pub(super) expected: HashMap<u32, usize>,
    pub(super) nodes: Vec<Node>,
    pub(super) words: Vec<u64>,
    pub(super) accesses: Accesses,
    /// The derived edges by their ends, each row ascending; rows start at [`Node::row`].
    pub(super) predecessors: Vec<u32>,
    /// Beside `predecessors`.
    pub(super) reasons: Vec<Reason>,
    /// The others: end in the upper half, so that they sort like `predecessors`.
    pub(super) explicit: Vec<u64>,
    pub(super) names: Vec<(u32, Cow<'static, str>)>,
    pub(super) copies: Vec<Ends>,
    pub(super) core_sets: Vec<CoreSet>,
    pub(super) core_numbers: HashMap<CoreSet, u32>,
    pub(super) core_of: Vec<u32>,
    pub(super) shires: Vec<u64>,
    pub(super) parts: Parts,
    pub(super) recorded: Vec<Recorded>,
    pub(super) tests: Vec<(u32, Test)>,
    /// Beside `tests`.
    pub(super) tested: Vec<WordPlace>,
    pub(super) memory: Option<Arc<DeviceMemory>>,
    pub(super) kinds: Kinds,
    pub(super) hazards: Hazards,
    pub(super) edges: Edges,
    pub(super) overflow: Option<GraphError>,
    pub(super) transients: Transients,
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuilder")
            .field("tasks", &self.len())
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

impl GraphBuilder {
    /// Makes a builder without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a builder with room for a graph of about this size, which may become larger.
    #[must_use]
    pub fn with_capacity(tasks: usize, edges: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(tasks.saturating_add(1)),
            predecessors: Vec::with_capacity(edges),
            reasons: Vec::with_capacity(edges),
            ..Self::default()
        }
    }

    /// Returns the number of tasks, copies included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Registers a kernel, for any number of tasks. If its file states its arguments, the tasks
    /// must have as many bytes of them.
    pub fn kernel(&mut self, kernel: &Kernel) -> FunctionId {
        let id = self.register(Function::Kernel(kernel.clone()));
        if let Some(signature) = kernel.signature() {
            self.expected.insert(id.0, signature.len_bytes());
        }
        id
    }

    /// Registers a host function, for any number of tasks.
    pub fn function(
        &mut self,
        function: impl Fn(&TaskContext<'_>) -> Result<(), TaskError> + Send + Sync + 'static,
    ) -> FunctionId {
        self.register(Function::Host(Box::new(function)))
    }

    fn register(&mut self, function: Function) -> FunctionId {
        let id = FunctionId(to_u32(self.functions.len()));
        self.functions.push(function);
        id
    }

    /// Fixes the length of the arguments, in bytes with padding, of the tasks that are added for a
    /// function from now on.
    ///
    /// # Errors
    /// [`GraphError::UnknownFunction`].
    pub fn expect_args(&mut self, function: FunctionId, bytes: usize) -> Result<(), GraphError> {
        self.known_function(function)?;
        self.expected.insert(function.0, bytes);
        Ok(())
    }

    /// Adds a task and returns its name; the copies of its stages are added before and after it.
    ///
    /// # Errors
    /// [`GraphError::UnknownFunction`], [`UnknownTask`](GraphError::UnknownTask),
    /// [`ArgumentsTooLarge`](GraphError::ArgumentsTooLarge),
    /// [`ArgumentsMismatch`](GraphError::ArgumentsMismatch),
    /// [`OverlappingWrites`](GraphError::OverlappingWrites),
    /// [`OutsideResource`](GraphError::OutsideResource),
    /// [`BufferOfAnotherDevice`](GraphError::BufferOfAnotherDevice),
    /// [`KernelOfAnotherDevice`](GraphError::KernelOfAnotherDevice),
    /// [`CopyLength`](GraphError::CopyLength), [`EmptyCoreSet`](GraphError::EmptyCoreSet),
    /// [`EmptyShireMask`](GraphError::EmptyShireMask), [`NoParts`](GraphError::NoParts),
    /// [`PartsWriteCondition`](GraphError::PartsWriteCondition), [`Usage`](GraphError::Usage),
    /// [`NotWritten`](GraphError::NotWritten),
    /// [`TooMany`](GraphError::TooMany); nothing is added then.
    pub fn add(&mut self, task: Task) -> Result<TaskId, GraphError> {
        let Task { function, args, mut declared, after, extra, .. } = task;
        let mut extra = extra.map(|extra| *extra);
        let copies = extra.as_mut().map_or_else(Copies::default, |extra| {
            if let Some(condition) = &extra.condition {
                declared.push(Declared::new(condition.place.region(), Access::Read));
            }
            Copies::new(std::mem::take(&mut extra.stages), extra.is_recorded, &mut declared)
        });
        let id = self.next_id(copies.before.len(), 1 + copies.after.len())?;
        self.check_function(id, function, args.len())?;
        if let Some(&unknown) = after.iter().find(|task| task.index() >= self.len()) {
            return Err(self.unknown(unknown));
        }
        if let Some(extra) = &extra {
            check_extra(id, extra, &declared)?;
            self.parts.check(id.index() + 1 + copies.after.len(), extra.parts, MAX)?;
        }
        copies.all().try_for_each(|copy| check_stage(id, copy))?;
        check_regions(id, &declared)?;
        if matches!(self.known_function(function)?, Function::Kernel(_)) {
            for Declared { region, access, .. } in &declared {
                let Some(slice) = region.device() else { continue };
                check_usage(id, User::Kernels, slice, *access)?;
            }
        }
        let buffers = declared.iter().filter_map(|declared| declared.region.device());
        let copied = copies.all().map(|copy| &copy.slice);
        let memory = self.check_memory(id, function, buffers.chain(copied))?;
        self.transients.check(id, steps(&copies, &declared))?;
        let words = self.words.len() + args.len().div_ceil(8);
        GraphError::check_count("words of arguments", words, MAX)?;
        let accesses = self.accesses.spans.len() + declared.len() + 2 * copies.all().count();
        GraphError::check_count("declared regions", accesses, MAX)?;

        // Nothing after this is refused for what it is.
        if self.memory.is_none() {
            self.memory = memory.map(Arc::clone);
        }
        self.transients.note(steps(&copies, &declared));
        for Stage { data, slice, is_in } in &copies.before {
            self.push_copy(data, slice, *is_in)?;
        }
        let before = id.0 - to_u32(copies.before.len())..id.0;
        for before in before.chain(after.into_iter().map(|task| task.0)) {
            self.edges.push(before, id.0, Reason::EXPLICIT);
        }
        self.push(function.0, args.as_bytes(), &declared)?;
        for Stage { data, slice, is_in } in &copies.after {
            self.edges.push(id.0, to_u32(self.len()), Reason::EXPLICIT);
            self.push_copy(data, slice, *is_in)?;
        }
        if let Some(extra) = extra {
            self.set_extra(id, &copies, extra);
        }
        Ok(id)
    }

    /// Registers a host function and adds a task for it, without arguments and regions; order it
    /// with [`edge`](Self::edge).
    ///
    /// # Errors
    /// [`GraphError::TooMany`].
    pub fn host_task(
        &mut self,
        function: impl Fn(&TaskContext<'_>) -> Result<(), TaskError> + Send + Sync + 'static,
    ) -> Result<TaskId, GraphError> {
        let function = self.function(function);
        self.add(Task::new(function))
    }

    /// Adds a copy of all of `from` to the device. It reads `from` and writes `to`.
    ///
    /// # Errors
    /// [`GraphError::CopyLength`], [`BufferOfAnotherDevice`](GraphError::BufferOfAnotherDevice),
    /// [`Usage`](GraphError::Usage), [`NotWritten`](GraphError::NotWritten),
    /// [`TooMany`](GraphError::TooMany).
    pub fn copy_in(
        &mut self,
        from: &HostData,
        to: impl Into<DeviceSlice>,
    ) -> Result<TaskId, GraphError> {
        self.add_copy(from, &to.into(), true)
    }

    /// Adds a copy from the device to all of `to`. It reads `from` and writes `to`.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in).
    pub fn copy_out(
        &mut self,
        from: impl Into<DeviceSlice>,
        to: &HostData,
    ) -> Result<TaskId, GraphError> {
        self.add_copy(to, &from.into(), false)
    }

    /// Runs `after` after `before`, in whatever order they were added and whatever they declare.
    ///
    /// # Errors
    /// [`GraphError::UnknownTask`], [`SelfEdge`](GraphError::SelfEdge),
    /// [`TooMany`](GraphError::TooMany). A cycle is found by [`build`](Self::build).
    pub fn edge(&mut self, before: TaskId, after: TaskId) -> Result<(), GraphError> {
        if let Some(&unknown) = [before, after].iter().find(|task| task.index() >= self.len()) {
            return Err(self.unknown(unknown));
        }
        if before == after {
            return Err(GraphError::SelfEdge { task: before });
        }
        let edges = self.predecessors.len() + self.explicit.len() + 1;
        GraphError::check_count("edges", edges, MAX)?;
        self.explicit.push(u64::from(after.0) << 32 | u64::from(before.0));
        Ok(())
    }

    /// Declares a buffer that the graph allocates for itself when it is built, for tasks to leave
    /// data for later ones, aligned to at least 64 bytes.
    ///
    /// It lives from the first task that writes it to the last that uses it, or is
    /// [ordered behind](Self::edge_and_retain) such a one and retains its buffers. Buffers share
    /// memory if the order of the tasks keeps their lives apart whatever runs when;
    /// [`Graph::transient_memory`](super::Graph::transient_memory) says how much is left. A task
    /// may read only what earlier ones write.
    ///
    /// All of it is gone with the graph. Launches of one graph use the same memory, so they follow
    /// one another.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if the length is 0, the alignment no power of two, or all are too
    /// long; [`GraphError::TransientOfAnotherDevice`].
    pub fn transient<H: Hal>(
        &mut self,
        device: &Device<H>,
        len_bytes: u64,
        align: u64,
    ) -> Result<TransientBuffer, GraphError> {
        let memory = &device.link().memory;
        if !Arc::ptr_eq(self.memory.as_ref().unwrap_or(memory), memory) {
            return Err(GraphError::TransientOfAnotherDevice { len: len_bytes });
        }
        let buffer = self.transients.declare(len_bytes, align)?;
        self.memory.get_or_insert_with(|| Arc::clone(memory));
        Ok(buffer)
    }

    /// As [`edge`](Self::edge); besides, the [transient buffers](Self::transient) that `before`
    /// writes live until `after` has ended, although it does not declare them.
    ///
    /// # Errors
    /// As [`edge`](Self::edge).
    pub fn edge_and_retain(&mut self, before: TaskId, after: TaskId) -> Result<(), GraphError> {
        self.edge(before, after)?;
        self.transients.retain(before, after);
        Ok(())
    }

    fn add_copy(
        &mut self,
        data: &HostData,
        slice: &DeviceSlice,
        is_in: bool,
    ) -> Result<TaskId, GraphError> {
        let id = self.next_id(0, 1)?;
        check_stage(id, &Stage { is_in, data: data.clone(), slice: slice.clone() })?;
        let step = [(slice, if is_in { Access::Write } else { Access::Read })];
        self.transients.check(id, step.into_iter())?;
        let no_function = FunctionId(NONE);
        let memory = self.check_memory(id, no_function, [slice].into_iter())?.map(Arc::clone);
        GraphError::check_count("declared regions", self.accesses.spans.len() + 2, MAX)?;
        self.memory = memory;
        self.transients.note(step.into_iter());
        self.push_copy(data, slice, is_in).map(TaskId)
    }

    fn push_copy(
        &mut self,
        data: &HostData,
        slice: &DeviceSlice,
        is_in: bool,
    ) -> Result<u32, GraphError> {
        // There are fewer copies than tasks.
        let copy = to_u32(self.copies.len());
        self.copies.push(Ends { host: data.clone(), device: slice.clone() });
        let (function, host, device) = match is_in {
            true => (Function::CopyIn(copy), Access::Read, Access::Write),
            false => (Function::CopyOut(copy), Access::Write, Access::Read),
        };
        let function = self.register(function);
        let declared = [Declared::new(data, host), Declared::new(slice, device)];
        self.push(function.0, &[], &declared)
    }

    /// Adds a task that was checked; edges to it may already be in `edges`.
    fn push(
        &mut self,
        function: u32,
        args: &[u8],
        declared: &[Declared],
    ) -> Result<u32, GraphError> {
        let task = to_u32(self.nodes.len());
        let pad = (args.len().next_multiple_of(8) - args.len()).try_into().unwrap_or(0);
        let node = Node {
            function,
            fan_in: 0,
            row: to_u32(self.predecessors.len()),
            args: to_u32(self.words.len()),
            accesses: to_u32(self.accesses.spans.len()),
            pad,
        };
        let (words, rest) = args.as_chunks::<8>();
        self.words.extend(words.iter().map(|&word| u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.words.push(u64::from_le_bytes(last));
        }
        match &self.functions[function as usize] {
            Function::Host(_) => self.kinds.host = true,
            Function::Kernel(_) => self.kinds.kernel = true,
            Function::CopyIn(_) | Function::CopyOut(_) => {}
        }
        self.record(task, declared);
        let edges = self.predecessors.len() + self.explicit.len() + self.edges.len();
        let counted = GraphError::check_count("edges", edges, MAX).and_then(|()| {
            GraphError::check_count("uses of regions", self.hazards.largest_count(), MAX / 2)
        });
        if let Err(error) = counted {
            // The interval maps name a task that there will not be.
            self.overflow = Some(error.clone());
            return Err(error);
        }
        self.edges.drain_into(&mut self.predecessors, &mut self.reasons);
        self.nodes.push(node);
        Ok(task)
    }

    /// Derives the edges to a task and stores its accesses, in the order declared.
    fn record(&mut self, task: u32, declared: &[Declared]) {
        let mut record = |hazards: &mut Hazards, declared: &Declared| {
            let space = hazards.space(&declared.region);
            let bounds = declared.region.bounds();
            hazards.record(space, bounds, declared.access, task, &mut self.edges)
        };
        // What a task reads is what earlier tasks left, also where it writes.
        let first_write = declared.iter().position(|declared| declared.access.writes());
        let last_read = declared.iter().rposition(|declared| !declared.access.writes());
        if first_write.is_some_and(|write| last_read.is_some_and(|read| read > write)) {
            let reads = declared.iter().filter(|declared| !declared.access.writes());
            let reads: Vec<u32> = reads.map(|read| record(&mut self.hazards, read)).collect();
            let mut reads = reads.into_iter();
            for declared in declared {
                let span = match declared.access {
                    Access::Read => reads.next(),
                    Access::Write | Access::Update => None,
                };
                let span = span.unwrap_or_else(|| record(&mut self.hazards, declared));
                self.accesses.push(span, declared.access, declared.word);
            }
        } else {
            for declared in declared {
                let span = record(&mut self.hazards, declared);
                self.accesses.push(span, declared.access, declared.word);
            }
        }
    }

    fn set_extra(&mut self, task: TaskId, copies: &Copies, extra: Extra) {
        for before in extra.retained {
            self.transients.retain(before, task);
        }
        if extra.is_recorded {
            self.recorded.push(copies.recorded(task.0));
        }
        if let Some(condition) = extra.condition {
            self.tests.push((task.0, condition.test));
            self.tested.push(condition.place);
        }
        if let Some(name) = extra.name {
            self.names.push((task.0, name));
        }
        if let Some(cores) = extra.cores {
            let number = *self.core_numbers.entry(cores).or_insert_with_key(|cores| {
                self.core_sets.push(cores.clone());
                to_u32(self.core_sets.len() - 1)
            });
            self.core_of.resize(task.index(), NONE);
            self.core_of.push(number);
        }
        if let Some(mask) = extra.shires {
            self.shires.resize(task.index(), 0);
            self.shires.push(mask);
        }
        if let Some(parts) = extra.parts.filter(|&parts| parts > 1) {
            self.parts.push(task.0, parts, extra.is_together);
        }
    }
}

/// What a task and its copies do with device memory, one after the other. What a task reads is what
/// was there before it.
fn steps<'a>(
    copies: &'a Copies,
    declared: &'a [Declared],
) -> impl Iterator<Item = (&'a DeviceSlice, Access)> {
    let copy = |stage: &'a Stage| {
        let access = if stage.is_in { Access::Write } else { Access::Read };
        (&stage.slice, access)
    };
    let used = |access: fn(Access) -> bool, how: Access| {
        let uses = declared.iter().filter(move |declared| access(declared.access));
        uses.filter_map(move |declared| Some((declared.region.device()?, how)))
    };
    let task = used(Access::reads, Access::Read).chain(used(Access::writes, Access::Write));
    copies.before.iter().map(copy).chain(task).chain(copies.after.iter().map(copy))
}

/// What it refuses before it changes anything.
impl GraphBuilder {
    pub(super) fn unknown(&self, task: TaskId) -> GraphError {
        GraphError::UnknownTask { task, tasks: self.len() }
    }

    pub(super) fn known_function(&self, function: FunctionId) -> Result<&Function, GraphError> {
        let functions = self.functions.len();
        let is_callable =
            |function: &&Function| matches!(function, Function::Host(_) | Function::Kernel(_));
        let known = self.functions.get(function.index()).filter(is_callable);
        known.ok_or(GraphError::UnknownFunction { function, functions })
    }

    /// Returns the name of the task after `before` others, if there is room for `more` tasks from
    /// it on.
    fn next_id(&self, before: usize, more: usize) -> Result<TaskId, GraphError> {
        if let Some(error) = &self.overflow {
            return Err(error.clone());
        }
        let id = self.len() + before;
        GraphError::check_count("tasks", id + more + self.parts.total(), MAX)?;
        Ok(TaskId::at(id))
    }

    fn check_function(
        &self,
        task: TaskId,
        function: FunctionId,
        found: usize,
    ) -> Result<(), GraphError> {
        let known = self.known_function(function)?;
        if matches!(known, Function::Kernel(_)) && found > MAX_ARGS {
            return Err(GraphError::ArgumentsTooLarge { task, len: found, max: MAX_ARGS });
        }
        // Most graphs expect nothing.
        if self.expected.is_empty() {
            return Ok(());
        }
        match self.expected.get(&function.0) {
            Some(&expected) if expected != found => {
                Err(GraphError::ArgumentsMismatch { task, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Returns the one memory that everything is in; `None` if there is nothing.
    fn check_memory<'a>(
        &'a self,
        task: TaskId,
        function: FunctionId,
        buffers: impl Iterator<Item = &'a DeviceSlice>,
    ) -> Result<Option<&'a Arc<DeviceMemory>>, GraphError> {
        let mut memory = self.memory.as_ref();
        if let Some(Function::Kernel(kernel)) = self.functions.get(function.index()) {
            let own = kernel.inner.code.memory();
            if !Arc::ptr_eq(memory.get_or_insert(own), own) {
                return Err(GraphError::KernelOfAnotherDevice {
                    task,
                    kernel: kernel.name().into(),
                });
            }
        }
        for buffer in buffers {
            if self.transients.has(buffer) {
                continue;
            }
            if !buffer.belongs_to(memory.get_or_insert(buffer.memory())) {
                let (start, len) = (buffer.addr().as_u64(), buffer.len_bytes());
                return Err(GraphError::BufferOfAnotherDevice { task, start, len });
            }
        }
        Ok(memory)
    }
}
