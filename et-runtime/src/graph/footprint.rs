//! What a whole graph reads and writes.

use super::span::Span;

/// The ranges that a graph reads and writes, merged, ascending by space and start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    reads: Box<[Place]>,
    writes: Box<[Place]>,
}

/// A range in the space of this name.
type Place = (usize, Span);

impl Footprint {
    /// In any order, overlapping or not.
    pub(super) fn new(
        reads: impl Iterator<Item = Place>,
        writes: impl Iterator<Item = Place>,
    ) -> Self {
        Self { reads: merge(reads), writes: merge(writes) }
    }

    /// Returns `true` if one writes what the other reads or writes.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        intersect(&self.writes, &other.writes)
            || intersect(&self.writes, &other.reads)
            || intersect(&self.reads, &other.writes)
    }

    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.reads) + size_of_val(&*self.writes)
    }
}

fn merge(places: impl Iterator<Item = Place>) -> Box<[Place]> {
    let mut places: Vec<Place> = places.filter(|(_, span)| span.start < span.end).collect();
    places.sort_unstable_by_key(|&(space, span)| (space, span.start));
    places.dedup_by(|next, last| {
        let touches = next.0 == last.0 && next.1.start <= last.1.end;
        if touches {
            last.1.end = last.1.end.max(next.1.end);
        }
        touches
    });
    places.into()
}

fn intersect(a: &[Place], b: &[Place]) -> bool {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(&&(space_a, span_a)), Some(&&(space_b, span_b))) = (a.peek(), b.peek()) {
        // The one that ends first can meet nothing further on.
        if (space_a, span_a.end) <= (space_b, span_b.start) {
            a.next();
        } else if (space_b, span_b.end) <= (space_a, span_a.start) {
            b.next();
        } else {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;
    use proptest::{collection, prop_assert_eq};

    use super::*;
    use crate::graph::{Graph, GraphBuilder, Resource, Task};

    #[test]
    fn graphs_conflict_only_if_one_writes_what_the_other_uses() {
        let resource = Resource::new(100);
        let graph = |read: std::ops::Range<u64>, write: std::ops::Range<u64>| {
            let mut builder = GraphBuilder::new();
            let function = builder.function(|_| Ok(()));
            let task = Task::new(function).reads(resource.range(read));
            builder.add(task.writes(resource.range(write))).unwrap();
            builder.build().unwrap()
        };
        let conflict = |a: &Graph, b: &Graph| {
            let result = a.footprint().conflicts(b.footprint());
            assert_eq!(result, b.footprint().conflicts(a.footprint()));
            result
        };
        let base = graph(0..50, 50..60);
        assert!(conflict(&base, &base));
        assert!(!conflict(&base, &graph(0..50, 60..70)));
        assert!(conflict(&base, &graph(59..60, 60..70)));
        assert!(conflict(&base, &graph(80..81, 49..50)));
        assert!(!conflict(&base, &graph(80..81, 60..100)));
        assert!(!conflict(&graph(0..50, 0..0), &graph(0..50, 7..7)));
    }

    proptest! {
        #[test]
        fn intersection_is_that_of_sets(
            a in collection::vec((0..2usize, 0..20u64, 0..4u64), 0..6),
            b in collection::vec((0..2usize, 0..20u64, 0..4u64), 0..6),
        ) {
            let places = |ranges: &[(usize, u64, u64)]| {
                merge(ranges.iter().map(|&(space, start, len)| (space, Span { start, end: start + len })))
            };
            let holds = |ranges: &[(usize, u64, u64)], space: usize, at: u64| {
                ranges.iter().any(|&(s, start, len)| s == space && (start..start + len).contains(&at))
            };
            let expected = (0..2)
                .any(|space| (0..24).any(|at| holds(&a, space, at) && holds(&b, space, at)));
            prop_assert_eq!(intersect(&places(&a), &places(&b)), expected);
        }
    }
}
