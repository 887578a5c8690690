//! What a profile says: kernels by time, the longest chain of tasks.

use std::collections::HashMap;

use super::profile::{Group, Profile, Span};

/// All spans of one kernel. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelTime {
    pub(super) name: u32,
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) total: u64,
    pub(super) least: u64,
    pub(super) most: u64,
}

impl KernelTime {
    pub(super) fn mean(&self) -> u64 {
        self.total / self.count.max(1)
    }
}

/// Kernels by the time they took in all, the longest first.
pub(super) fn kernels(profile: &Profile) -> Vec<KernelTime> {
    let mut kernels = HashMap::new();
    for span in profile.spans(profile.measured()) {
        let new = KernelTime {
            name: span.kernel,
            count: 0,
            failed: 0,
            total: 0,
            least: u64::MAX,
            most: 0,
        };
        let kernel: &mut KernelTime = kernels.entry(span.kernel).or_insert(new);
        let nanos = span.nanos();
        kernel.count += 1;
        kernel.failed += u64::from(span.failed);
        kernel.total = kernel.total.saturating_add(nanos);
        kernel.least = kernel.least.min(nanos);
        kernel.most = kernel.most.max(nanos);
    }
    let mut kernels: Vec<_> = kernels.into_values().collect();
    kernels.sort_by_key(|kernel| (std::cmp::Reverse(kernel.total), kernel.name));
    kernels
}

/// The chain of tasks, each depending on the one before, that took longest in all.
///
/// However many workers there are, the graph takes at least as long.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CriticalPath<'a> {
    /// The tasks in their order, and how long each waited after the one before had ended.
    pub(super) steps: Vec<(&'a Span, u64)>,
    /// What they took in all, without the waiting.
    pub(super) nanos: u64,
}

/// Returns the critical path; `None` if the profile has no dependencies.
pub(super) fn critical_path(profile: &Profile) -> Option<CriticalPath<'_>> {
    let spans: Vec<&Span> = profile.spans(Group::Tasks).collect();
    let of_task: HashMap<u64, usize> =
        spans.iter().enumerate().filter_map(|(index, span)| Some((span.number?, index))).collect();
    let mut successors = vec![Vec::new(); spans.len()];
    let mut missing = vec![0_u32; spans.len()];
    for (from, to) in &profile.edges {
        if let (Some(&from), Some(&to)) = (of_task.get(from), of_task.get(to)) {
            successors[from].push(to);
            missing[to] += 1;
        }
    }
    if successors.iter().all(Vec::is_empty) {
        return None;
    }
    // In the order of the dependencies. What is in a circle, which only a damaged file has, never
    // gets free.
    let mut free: Vec<usize> = (0..spans.len()).filter(|&index| missing[index] == 0).collect();
    let mut best = vec![(0_u64, None); spans.len()];
    let mut last = None;
    while let Some(index) = free.pop() {
        let nanos = best[index].0.saturating_add(spans[index].nanos());
        if last.is_none_or(|(most, _)| nanos > most) {
            last = Some((nanos, index));
        }
        for &next in &successors[index] {
            if best[next].1.is_none() || nanos > best[next].0 {
                best[next] = (nanos, Some(index));
            }
            missing[next] -= 1;
            if missing[next] == 0 {
                free.push(next);
            }
        }
    }
    let (nanos, mut index) = last?;
    let mut steps = vec![(spans[index], 0)];
    while let Some(before) = best[index].1 {
        if let Some((span, wait)) = steps.last_mut() {
            *wait = span.start.saturating_sub(spans[before].end);
        }
        steps.push((spans[before], 0));
        index = before;
    }
    steps.reverse();
    Some(CriticalPath { steps, nanos })
}

/// The longest spans of the group that measures best, the longest first.
pub(super) fn slowest(profile: &Profile, count: usize) -> Vec<&Span> {
    let mut spans: Vec<&Span> = profile.spans(profile.measured()).collect();
    let by_time = |span: &&Span| (std::cmp::Reverse(span.nanos()), span.start);
    if spans.len() > count {
        spans.select_nth_unstable_by_key(count, by_time);
        spans.truncate(count);
    }
    spans.sort_by_key(by_time);
    spans
}

#[cfg(test)]
mod tests {
    use super::super::profile::Track;
    use super::*;

    /// Tasks that are given by start and end, and dependencies by their places.
    fn graph(tasks: &[(u64, u64)], edges: &[(u64, u64)]) -> Profile {
        let mut profile = Profile::default();
        let name = profile.intern("k");
        let span = |(number, &(start, end))| Span {
            name,
            kernel: name,
            start,
            end,
            number: Some(number),
            failed: false,
        };
        let spans = (0..).zip(tasks).map(span).collect();
        profile.tracks = vec![Track { group: Group::Tasks, number: 0, spans, marks: Vec::new() }];
        profile.edges = edges.to_vec();
        profile
    }

    fn path(profile: &Profile) -> Option<(Vec<(u64, u64)>, u64)> {
        let path = critical_path(profile)?;
        let steps = path.steps.iter().map(|(span, wait)| (span.number.unwrap(), *wait)).collect();
        Some((steps, path.nanos))
    }

    #[test]
    fn the_critical_path_is_the_longest_chain_not_the_last_task() {
        // 0 → 1 → 3 and 0 → 2 → 3; 2 takes longest. 4 ends last and depends on nothing.
        let tasks = [(0, 10), (10, 15), (12, 42), (50, 51), (60, 70)];
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3)];
        let profile = graph(&tasks, &edges);
        assert_eq!(path(&profile), Some((vec![(0, 0), (2, 2), (3, 8)], 41)));
    }

    #[test]
    fn circles_and_unknown_tasks_are_left_out() {
        let tasks = [(0, 1), (1, 2), (2, 3)];
        assert_eq!(path(&graph(&tasks, &[])), None);
        assert_eq!(path(&graph(&tasks, &[(7, 0)])), None);
        let profile = graph(&tasks, &[(0, 1), (1, 2), (2, 1)]);
        assert_eq!(path(&profile), Some((vec![(0, 0)], 1)));
    }

    #[test]
    fn tasks_without_length_are_on_the_path_too() {
        let profile = graph(&[(5, 5), (5, 5), (5, 6)], &[(0, 1), (1, 2)]);
        assert_eq!(path(&profile).unwrap().0.len(), 3);
    }

    #[test]
    fn kernels_and_slowest_are_sorted_by_time() {
        let mut profile = graph(&[(0, 10), (10, 15), (15, 35)], &[]);
        let other = profile.intern("other");
        profile.tracks[0].spans[1].kernel = other;
        profile.tracks[0].spans[2].failed = true;
        let [k, o] = kernels(&profile)[..] else { panic!() };
        assert_eq!((k.count, k.failed, k.total, k.least, k.most, k.mean()), (2, 1, 30, 10, 20, 15));
        assert_eq!((profile.name(o.name), o.total), ("other", 5));
        let slowest: Vec<_> = slowest(&profile, 2).iter().map(|span| span.nanos()).collect();
        assert_eq!(slowest, [20, 10]);
    }
}
