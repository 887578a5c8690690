//! Which tasks of earlier graphs those of a later one must wait for.
//!
//! The graphs of a flow are one long graph in pieces: its tasks are numbered through, and their
//! uses of regions go through the same maps in which a builder finds the edges of a single graph.

use super::Graph;
use super::hazard::{Edges, Hazards};
use super::span::{NONE, Span, to_u32};

/// What the tasks of some graphs in a row have used.
#[derive(Default)]
pub(crate) struct History {
    hazards: Hazards,
    edges: Edges,
    tasks: usize,
}

/// A task, and one of an earlier graph that it must wait for. The earlier one counts from the first
/// task of the history, the later one in its own graph.
pub(crate) type Behind = (u32, u32);

impl History {
    /// Returns the number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.tasks
    }

    /// Returns `true` if a graph has room behind the others.
    pub(crate) fn has_room(&self, graph: &Graph) -> bool {
        let uses = self.hazards.largest_count() + graph.shape.accesses.spans.len();
        let most = (self.tasks + graph.len()).max(uses);
        // A use splits at most two segments.
        most < NONE as usize / 4
    }

    /// Adds a graph behind all others; returns what its tasks must wait for.
    pub(crate) fn append(&mut self, graph: &Graph) -> Vec<Behind> {
        let (view, places) = (graph.view(), &graph.places);
        let accesses = &graph.shape.accesses;
        let first = to_u32(self.tasks);
        let spaces: Vec<u32> = places.keep.iter().map(|keep| self.hazards.space(keep)).collect();
        let (mut found, mut earlier, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        // Buffers of the graph itself may share memory, by an order that is not that of numbers.
        for task in graph.topological_order() {
            let task = to_u32(task.index());
            for at in view.access_range(task) {
                let span = accesses.spans[at] as usize;
                let space = spaces[places.span_space[span] as usize];
                let Span { start, end } = places.spans[span];
                let (access, edges) = (accesses.access(at), &mut self.edges);
                self.hazards.record(space, start..end, access, first + task, edges);
            }
            self.edges.drain_into(&mut earlier, &mut reasons);
            found.extend(earlier.drain(..).filter(|&it| it < first).map(|it| (task, it)));
            reasons.clear();
        }
        self.tasks += graph.len();
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use et_hal::DeviceAddr;

    use super::*;
    use crate::graph::{GraphBuilder, Task};
    use crate::memory::DeviceMemory;

    /// Two buffers of a graph have the same memory, because an edge against the order of the tasks
    /// keeps them apart: those who use it last are not those who were added last.
    #[test]
    fn who_used_memory_last_is_said_by_edges_and_not_by_numbers() {
        let base = DeviceAddr::new(0x0080_0580_1000);
        let memory = DeviceMemory::new(base, 1 << 20, None).unwrap();
        let mut builder = GraphBuilder::new();
        builder.memory = Some(Arc::clone(&memory));
        let [late, early] = [(); 2].map(|()| builder.transients.declare(256, 64).unwrap());
        let function = builder.function(|_| Ok(()));
        let mut tasks = Vec::new();
        for buffer in [&late, &early] {
            tasks.push(builder.add(Task::new(function).writes(buffer)).unwrap());
            tasks.push(builder.add(Task::new(function).reads(buffer)).unwrap());
        }
        builder.edge(tasks[3], tasks[0]).unwrap();
        let graph = builder.build().unwrap();
        assert_eq!(graph.transient_memory().peak_bytes, 256, "they share it");
        let mut history = History::default();
        assert_eq!(history.append(&graph), []);
        // The next launch begins with task 2, the one before ended with task 1.
        assert_eq!(history.append(&graph), [(2, 1)]);
        assert_eq!(history.append(&graph), [(2, 4 + 1)]);
        assert_eq!(history.len(), 12);
    }
}
