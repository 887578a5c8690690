//! Questions to a graph.

use std::ops::Range;

use super::condition::WordPlace;
use super::error::CyclePath;
use super::footprint::Footprint;
use super::shape::{Function, Graph, Shape};
use super::{Access, GraphError, TaskId, order};

impl Graph {
    /// Returns the number of tasks, copies included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Returns `true` if there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of edges, derived and explicit; two tasks have at most one.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.shape.successors.len()
    }

    /// Returns all tasks, in order of creation.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskId> + use<> {
        (0..self.len()).map(TaskId::at)
    }

    fn check(&self, task: TaskId) -> u32 {
        assert!(task.index() < self.len(), "{task} of a graph of {} tasks", self.len());
        task.0
    }

    /// Returns the name that a task was given.
    #[must_use]
    pub fn name(&self, task: TaskId) -> Option<&str> {
        self.shape.name(task)
    }

    /// Returns what a task runs: the name of its kernel, or `host`, `copy-in` or `copy-out`.
    ///
    /// # Panics
    /// If there is no such task, as all queries.
    #[must_use]
    pub fn function(&self, task: TaskId) -> &str {
        let function = self.view().function(self.check(task));
        match &self.shape.functions[function as usize] {
            Function::Host(_) => "host",
            Function::Kernel(kernel) => kernel.name(),
            Function::CopyIn(_) => "copy-in",
            Function::CopyOut(_) => "copy-out",
        }
    }

    /// Returns the number of [parts](super::Task::parts) of a task, mostly 1.
    #[must_use]
    pub fn parts(&self, task: TaskId) -> u32 {
        self.view().parts(self.check(task))
    }

    /// Returns `true` if the parts of a task [start together](super::Task::parts_together).
    #[must_use]
    pub fn starts_together(&self, task: TaskId) -> bool {
        self.view().starts_together(self.check(task))
    }

    /// Returns the arguments of a task, in words of 8 bytes, as
    /// [`TaskContext::args`](super::TaskContext::args) has them.
    #[must_use]
    pub fn args(&self, task: TaskId) -> &[u64] {
        self.view().args(self.check(task))
    }

    /// Returns what a task uses: kind of space (`device`, `host` or `resource`), range (device
    /// addresses, bytes or units) and access.
    pub fn accesses(
        &self,
        task: TaskId,
    ) -> impl ExactSizeIterator<Item = (&'static str, Range<u64>, Access)> + '_ {
        let accesses = &self.shape.accesses;
        self.view().access_range(self.check(task)).map(move |at| {
            let span = accesses.spans[at] as usize;
            let kind = self.places.keep[self.places.span_space[span] as usize].kind();
            let span = self.places.spans[span];
            (kind, span.start..span.end, accesses.access(at))
        })
    }

    /// Returns the condition of a task as text, as `if u32 at 0x8005801040 != 0`: the type, the
    /// device address or byte of host data, and the comparison.
    #[must_use]
    pub fn condition(&self, task: TaskId) -> Option<String> {
        let (test, place) = self.view().condition(self.check(task))?;
        let (kind, operator, value) = (test.kind.as_str(), test.comparison, test.value());
        Some(match place {
            WordPlace::Device(slice) => {
                format!("if {kind} at {:#x} {operator} {value}", slice.addr().as_u64())
            }
            WordPlace::Host(_, offset) => {
                format!("if {kind} at byte {offset} of host data {operator} {value}")
            }
        })
    }

    /// Returns how many tasks a task waits for.
    #[must_use]
    pub fn fan_in(&self, task: TaskId) -> usize {
        self.view().fan_in(self.check(task)) as usize
    }

    /// Returns how many tasks wait for a task.
    #[must_use]
    pub fn fan_out(&self, task: TaskId) -> usize {
        self.view().successors(self.check(task)).len()
    }

    /// Returns the tasks that wait for a task, ascending.
    pub fn successors(&self, task: TaskId) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        self.view().successors(self.check(task)).iter().map(|&task| TaskId(task))
    }

    /// Returns the tasks that a task waits for, ascending. Looks at every task.
    #[must_use]
    pub fn predecessors(&self, task: TaskId) -> Vec<TaskId> {
        let task = self.check(task);
        let precedes =
            |before: &TaskId| self.view().successors(before.0).binary_search(&task).is_ok();
        self.tasks().filter(precedes).collect()
    }

    /// Returns the tasks that are ready at the start: those that wait for none, ascending.
    pub fn roots(&self) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        self.view().roots().iter().map(|&task| TaskId(task))
    }

    /// Returns the tasks that are ready once these have completed, ascending, themselves not
    /// included.
    #[must_use]
    pub fn ready(&self, completed: impl IntoIterator<Item = TaskId>) -> Vec<TaskId> {
        let view = self.view();
        let mut missing: Vec<u32> = self.tasks().map(|task| view.fan_in(task.0)).collect();
        let mut is_done = vec![false; self.len()];
        for task in completed {
            if !std::mem::replace(&mut is_done[self.check(task) as usize], true) {
                for &successor in view.successors(task.0) {
                    missing[successor as usize] -= 1;
                }
            }
        }
        self.tasks().filter(|task| !is_done[task.index()] && missing[task.index()] == 0).collect()
    }

    /// Returns all tasks in an order in which each comes after those it waits for; order of
    /// creation, if that is one.
    #[must_use]
    pub fn topological_order(&self) -> Vec<TaskId> {
        if self.shape.is_forward {
            return self.tasks().collect();
        }
        order::topological(self.view()).into_iter().map(TaskId).collect()
    }

    /// Returns the path whose tasks have the largest sum of weights, and this sum: the least time
    /// that a launch takes on any number of workers, if the weights are the times that the tasks
    /// take. Sums saturate.
    ///
    /// ```
    /// # use et_runtime::graph::{GraphBuilder, Task};
    /// let mut builder = GraphBuilder::new();
    /// let [a, b, c] = [(); 3].map(|()| builder.host_task(|_| Ok(())).unwrap());
    /// builder.edge(a, b)?;
    /// builder.edge(a, c)?;
    /// let (time, path) = builder.build()?.critical_path(|task| if task == c { 10 } else { 1 });
    /// assert_eq!((time, path), (11, vec![a, c]));
    /// # Ok::<(), et_runtime::graph::GraphError>(())
    /// ```
    pub fn critical_path(&self, weight: impl Fn(TaskId) -> u64) -> (u64, Vec<TaskId>) {
        let order = self.topological_order().into_iter().map(|task| task.0);
        let (total, path) = order::critical_path(self.view(), order, |task| weight(TaskId(task)));
        (total, path.into_iter().map(TaskId).collect())
    }

    pub(super) fn check_cycle(&self) -> Result<(), GraphError> {
        if self.shape.is_forward {
            return Ok(());
        }
        let order = order::topological(self.view());
        if order.len() == self.len() {
            return Ok(());
        }
        let tasks = order::cycle(self.view(), &order).into_iter().map(TaskId).collect();
        let path = CyclePath::new(tasks, |task| self.name(task).map(Into::into));
        Err(GraphError::Cycle { path })
    }
}

impl Shape {
    fn name(&self, task: TaskId) -> Option<&str> {
        let found = self.names.binary_search_by_key(&task.0, |&(task, _)| task).ok()?;
        Some(&self.names[found].1)
    }

    /// Gives back room that was only for building.
    pub(super) fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.roots.shrink_to_fit();
        self.functions.shrink_to_fit();
        self.names.shrink_to_fit();
        self.accesses.shrink();
        self.core_sets.shrink_to_fit();
        self.core_of.shrink_to_fit();
        self.shires.shrink_to_fit();
        self.parts.shrink();
        self.recorded.shrink_to_fit();
        self.tests.shrink_to_fit();
    }
}

impl Graph {
    /// Returns what a launch of the graph reads and writes. Comparable between graphs while both
    /// exist.
    pub(crate) fn footprint(&self) -> &Footprint {
        self.places.footprint.get_or_init(|| {
            let (shape, places) = (&self.shape, &self.places);
            let mut uses = vec![0u8; places.spans.len()];
            for (at, &span) in shape.accesses.spans.iter().enumerate() {
                let access = shape.accesses.access(at);
                uses[span as usize] |= u8::from(access.reads()) | u8::from(access.writes()) << 1;
            }
            let uses = &uses;
            let used = |mask: u8| {
                let used = (0..uses.len()).filter(move |&at| uses[at] & mask != 0);
                used.map(|at| {
                    let space = places.keep[places.span_space[at] as usize].space_id();
                    (space, places.spans[at])
                })
            };
            Footprint::new(used(1), used(2))
        })
    }
}
