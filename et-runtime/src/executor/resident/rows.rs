//! What a resident scheduler runs, row by row, and in which order.
//!
//! A task of several parts has a row for each. What follows waits for all of them: by an edge from
//! each part, or, where these would be many, by edges to a row that does nothing and from it.

use super::super::ids::count;
use crate::graph::Graph;

/// A row of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A unit of the graph.
    Unit(u32),
    /// Comes after all parts of a task and before what depends on it.
    Join,
}

/// The rows of an image and their edges.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) all: Vec<Row>,
    /// By row, where its edges start; then where the last ones end.
    pub(super) first_edge: Vec<u32>,
    /// Rows that come after.
    pub(super) edges: Vec<u32>,
}

const NOT_HERE: u32 = u32::MAX;

impl Rows {
    /// Of these units of a graph, ascending by task; what is not among them counts as complete.
    pub(super) fn new(graph: &Graph, units: &[u32]) -> Self {
        let view = graph.view();
        let task_of = |unit: u32| view.unit(unit).task;
        // By task, its first row, and how many it has without the join.
        let mut rows_of = vec![(NOT_HERE, 0_u32); view.len()];
        for &unit in units {
            rows_of[task_of(unit) as usize].1 += 1;
        }
        let after = |task: u32, rows_of: &[(u32, u32)]| -> u64 {
            let rows =
                view.successors(task).iter().map(|&next| u64::from(rows_of[next as usize].1));
            rows.sum()
        };
        let mut rows = Self::default();
        let mut joins = Vec::new();
        for (n, &unit) in units.iter().enumerate() {
            let task = task_of(unit);
            let (first, parts) = rows_of[task as usize];
            if first == NOT_HERE {
                rows_of[task as usize].0 = count(rows.all.len());
            }
            rows.all.push(Row::Unit(unit));
            let is_last = units.get(n + 1).is_none_or(|&next| task_of(next) != task);
            if parts > 1 && is_last && wants_join(parts, after(task, &rows_of)) {
                joins.push((task, count(rows.all.len())));
                rows.all.push(Row::Join);
            }
        }
        let mut join_of = joins.into_iter().peekable();
        for &unit in units {
            let task = task_of(unit);
            let (first, parts) = rows_of[task as usize];
            let is_last = count(rows.first_edge.len()) + 1 == first + parts;
            rows.first_edge.push(count(rows.edges.len()));
            let join = join_of.peek().filter(|(of, _)| *of == task).map(|(_, at)| *at);
            match join {
                None => rows.lead_to_successors(graph, task, &rows_of),
                Some(join) => {
                    rows.edges.push(join);
                    if is_last {
                        join_of.next();
                        rows.first_edge.push(count(rows.edges.len()));
                        rows.lead_to_successors(graph, task, &rows_of);
                    }
                }
            }
        }
        rows.first_edge.push(count(rows.edges.len()));
        rows
    }

    fn lead_to_successors(&mut self, graph: &Graph, task: u32, rows_of: &[(u32, u32)]) {
        for &next in graph.view().successors(task) {
            let (first, parts) = rows_of[next as usize];
            if parts != 0 {
                self.edges.extend(first..first + parts);
            }
        }
    }
}

/// Whether so many parts have a join before so many rows: a join is one more to be dispatched, and
/// each edge is one more to be counted.
fn wants_join(parts: u32, after: u64) -> bool {
    let parts = u64::from(parts);
    parts * after > 2 * (parts + after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Task};

    /// One task after the other, with so many parts.
    fn chain(parts: &[u32]) -> Graph {
        let mut builder = GraphBuilder::new();
        let nop = builder.function(|_| Ok(()));
        let mut last = None;
        for &parts in parts {
            let task = Task::new(nop).parts(parts);
            let task = last.into_iter().fold(task, Task::after);
            last = Some(builder.add(task).unwrap());
        }
        builder.build().unwrap()
    }

    fn rows(graph: &Graph) -> Rows {
        let view = graph.view();
        let units: Vec<u32> = (0..count(graph.len())).flat_map(|task| view.units(task)).collect();
        Rows::new(graph, &units)
    }

    fn after(rows: &Rows, at: usize) -> Vec<u32> {
        rows.edges[rows.first_edge[at] as usize..rows.first_edge[at + 1] as usize].to_vec()
    }

    #[test]
    fn few_parts_lead_to_all_that_follows() {
        let graph = chain(&[1, 2, 2, 1]);
        let rows = rows(&graph);
        let units = [0, 4, 5, 6, 7, 3].map(Row::Unit);
        assert_eq!(rows.all, units);
        let found: Vec<_> = (0..6).map(|at| after(&rows, at)).collect();
        assert_eq!(found, [vec![1, 2], vec![3, 4], vec![3, 4], vec![5], vec![5], vec![]]);
    }

    #[test]
    fn many_parts_lead_to_a_row_between() {
        let graph = chain(&[100, 100]);
        let rows = rows(&graph);
        assert_eq!((rows.all.len(), rows.edges.len()), (201, 200));
        assert_eq!(rows.all[100], Row::Join);
        assert!((0..100).all(|at| after(&rows, at) == [100]));
        assert_eq!(after(&rows, 100), (101..201).collect::<Vec<_>>());
        assert!((101..201).all(|at| after(&rows, at).is_empty()));
    }

    #[test]
    fn what_is_not_left_to_run_holds_nothing_up() {
        let graph = chain(&[10, 10, 10]);
        // The first task is over, and all but two parts of the second.
        let units: Vec<u32> = (18..20).chain(23..33).collect();
        let rows = Rows::new(&graph, &units[..]);
        assert_eq!(rows.all.len(), 12);
        assert_eq!(after(&rows, 0), after(&rows, 1));
        assert_eq!(after(&rows, 0), (2..12).collect::<Vec<_>>());
    }
}
