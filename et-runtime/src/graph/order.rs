//! Orders of tasks: topological, cyclic, critical.

use super::shape::View;

/// Returns the tasks in an order in which each comes after all it waits for; shorter than the graph
/// if there is a cycle.
pub(super) fn topological(view: View<'_>) -> Vec<u32> {
    let mut missing: Vec<u32> = (0..).take(view.len()).map(|task| view.fan_in(task)).collect();
    let mut order = Vec::with_capacity(view.len());
    order.extend_from_slice(view.roots());
    let mut next = 0;
    while let Some(&task) = order.get(next) {
        next += 1;
        for &successor in view.successors(task) {
            let missing = &mut missing[successor as usize];
            *missing -= 1;
            if *missing == 0 {
                order.push(successor);
            }
        }
    }
    order
}

/// Returns the tasks along a cycle, in the direction of the edges, given the tasks that
/// [`topological`] could order.
pub(super) fn cycle(view: View<'_>, ordered: &[u32]) -> Vec<u32> {
    let mut is_ordered = vec![false; view.len()];
    for &task in ordered {
        is_ordered[task as usize] = true;
    }
    // A task that was not ordered waits for another one that was not; going back from one to the
    // next must come round.
    let mut waits_for = vec![None; view.len()];
    for task in (0..).take(view.len()).filter(|&task: &u32| !is_ordered[task as usize]) {
        for &successor in view.successors(task) {
            waits_for[successor as usize] = Some(task);
        }
    }
    let Some(first) = is_ordered.iter().position(|&is_ordered| !is_ordered) else {
        return Vec::new();
    };
    let mut position = vec![None; view.len()];
    let mut path = Vec::new();
    let mut task = u32::try_from(first).ok();
    while let Some(at) = task {
        if let Some(start) = position[at as usize].replace(path.len()) {
            path.drain(..start);
            break;
        }
        path.push(at);
        task = waits_for[at as usize];
    }
    path.reverse();
    path
}

/// Returns the largest sum of weights along a path, and the path.
pub(super) fn critical_path(
    view: View<'_>,
    order: impl Iterator<Item = u32>,
    weight: impl Fn(u32) -> u64,
) -> (u64, Vec<u32>) {
    // Of the heaviest path that ends before each task: its weight and last task.
    let mut before: Vec<(u64, Option<u32>)> = vec![(0, None); view.len()];
    let mut heaviest: Option<(u64, u32)> = None;
    for task in order {
        let total = before[task as usize].0.saturating_add(weight(task));
        if heaviest.is_none_or(|(heaviest, _)| total > heaviest) {
            heaviest = Some((total, task));
        }
        for &successor in view.successors(task) {
            let before = &mut before[successor as usize];
            if before.1.is_none() || total > before.0 {
                *before = (total, Some(task));
            }
        }
    }
    let Some((total, last)) = heaviest else { return (0, Vec::new()) };
    let mut path = vec![last];
    let mut at = last;
    while let Some(previous) = before[at as usize].1 {
        path.push(previous);
        at = previous;
    }
    path.reverse();
    (total, path)
}
