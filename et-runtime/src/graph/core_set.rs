//! Sets of workers.

use std::fmt;
use std::ops::Range;

/// The workers that a task may run on, by index from 0.
///
/// ```
/// use et_runtime::graph::CoreSet;
///
/// let cores = CoreSet::of([0, 3, 1]);
/// assert!(cores.contains(3) && !cores.contains(2));
/// assert_eq!(cores.to_string(), "0-1,3");
/// assert_eq!(CoreSet::range(0..8).len(), 8);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoreSet {
    /// Disjoint, ascending, not touching: first and last index of each run.
    runs: Box<[(u32, u32)]>,
}

impl CoreSet {
    /// Makes the set of these workers.
    #[must_use]
    pub fn of(workers: impl IntoIterator<Item = u32>) -> Self {
        let mut workers: Vec<u32> = workers.into_iter().collect();
        workers.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for worker in workers {
            match runs.last_mut() {
                Some((_, last)) if worker <= last.saturating_add(1) => *last = worker,
                _ => runs.push((worker, worker)),
            }
        }
        Self { runs: runs.into() }
    }

    /// Makes the set of the workers of a range.
    #[must_use]
    pub fn range(workers: Range<u32>) -> Self {
        if workers.is_empty() {
            return Self::default();
        }
        Self { runs: Box::new([(workers.start, workers.end - 1)]) }
    }

    /// Returns `true` if a worker is in the set.
    #[must_use]
    pub fn contains(&self, worker: u32) -> bool {
        let after = self.runs.partition_point(|&(first, _)| first <= worker);
        after > 0 && worker <= self.runs[after - 1].1
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the workers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|&(first, last)| first..=last)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.runs)
    }
}

impl fmt::Display for CoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.runs.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_are_equal_however_they_were_made() {
        assert_eq!(CoreSet::of([2, 0, 1, 1]), CoreSet::range(0..3));
        assert_eq!(CoreSet::of([]), CoreSet::range(5..5));
        assert_eq!(CoreSet::of([u32::MAX, u32::MAX]).len(), 1);
    }

    #[test]
    fn members_are_exactly_those_given() {
        let set = CoreSet::of([9, 1, 2, 5]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 2, 5, 9]);
        for worker in 0..12 {
            assert_eq!(set.contains(worker), [1, 2, 5, 9].contains(&worker), "{worker}");
        }
        assert_eq!((set.len(), set.is_empty()), (4, false));
    }
}
