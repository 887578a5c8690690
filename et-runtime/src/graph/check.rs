//! What a builder refuses before it changes anything.

use std::sync::Arc;

use super::builder::{GraphBuilder, MAX};
use super::shape::Function;
use super::task::{Declared, Extra};
use super::{CoreSet, FunctionId, GraphError, HostData, TaskId};
use crate::kernel::MAX_ARGS;
use crate::memory::{DeviceMemory, DeviceSlice};

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
    pub(super) fn next_id(&self, before: usize, more: usize) -> Result<TaskId, GraphError> {
        if let Some(error) = &self.overflow {
            return Err(error.clone());
        }
        let id = self.len() + before;
        GraphError::check_count("tasks", id + more, MAX)?;
        Ok(TaskId::at(id))
    }

    pub(super) fn check_function(
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
    pub(super) fn check_memory<'a>(
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
            if !buffer.belongs_to(memory.get_or_insert(buffer.memory())) {
                let (start, len) = (buffer.addr().as_u64(), buffer.len_bytes());
                return Err(GraphError::BufferOfAnotherDevice { task, start, len });
            }
        }
        Ok(memory)
    }
}

pub(super) fn check_extra(task: TaskId, extra: &Extra) -> Result<(), GraphError> {
    if extra.cores.as_ref().is_some_and(CoreSet::is_empty) {
        return Err(GraphError::EmptyCoreSet { task });
    }
    if extra.shires == Some(0) {
        return Err(GraphError::EmptyShireMask { task });
    }
    extra.stages.iter().try_for_each(|stage| check_copy(task, &stage.data, &stage.slice))
}

pub(super) fn check_copy(
    task: TaskId,
    data: &HostData,
    slice: &DeviceSlice,
) -> Result<(), GraphError> {
    let (host, device) = (data.len() as u64, slice.len_bytes());
    if host == device { Ok(()) } else { Err(GraphError::CopyLength { task, host, device }) }
}

pub(super) fn check_regions(task: TaskId, declared: &[Declared]) -> Result<(), GraphError> {
    for Declared { region, .. } in declared {
        if let Some(len) = region.outside_of() {
            return Err(GraphError::OutsideResource { task, range: region.bounds(), len });
        }
    }
    let writes = || declared.iter().filter(|declared| declared.access.writes());
    if writes().nth(1).is_none() {
        return Ok(());
    }
    let mut writes: Vec<_> = writes()
        .map(|declared| (declared.region.space_id(), declared.region.bounds()))
        .filter(|(_, bounds)| !bounds.is_empty())
        .collect();
    writes.sort_unstable_by_key(|(space, bounds)| (*space, bounds.start));
    for pair in writes.windows(2) {
        let [(space, first), (other, second)] = pair else { continue };
        if space == other && second.start < first.end {
            let (first, second) = (first.clone(), second.clone());
            return Err(GraphError::OverlappingWrites { task, first, second });
        }
    }
    Ok(())
}
