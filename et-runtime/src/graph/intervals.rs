//! A map of disjoint segments: sorted arrays of bounded length, found through an array of their
//! first starts.
//!
//! A tree with a handful of keys per node was measured first: with a million segments a lookup
//! waited for memory on nearly every level. Here the first starts stay in the caches, and
//! appending, the common order, moves nothing.

use super::span::{NONE, Span};

/// Most segments of a chunk; a full one is cut in two.
const FULL: usize = 256;

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) end: u64,
    /// The task that wrote it last, or `NONE`.
    pub(super) writer: u32,
    /// The last task that has read it since, or `NONE`.
    pub(super) reader: u32,
    /// Those before: an index into the list of readers, or `NONE`.
    pub(super) readers: u32,
    /// The span of exactly these bounds, or `NONE`.
    pub(super) span: u32,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Ascending; never empty while the chunk is in use.
    starts: Vec<u64>,
    /// Beside `starts`.
    segments: Vec<Segment>,
}

/// Disjoint segments, ascending.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    /// The first segment, while it is the only one: most buffers are used as a whole.
    only: Option<(u64, Segment)>,
    /// First start of each chunk, ascending.
    firsts: Vec<u64>,
    /// Beside `firsts`: indices into `chunks`.
    order: Vec<u32>,
    /// In no order, so that only numbers move when a chunk is cut.
    chunks: Vec<Chunk>,
    unused: Vec<u32>,
    /// Where the last segment ends.
    end: u64,
}

/// A segment's chunk, counted in `order`, and index in it.
type Position = (usize, usize);

impl Intervals {
    /// Returns where the last segment ends, 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn chunk(&mut self, at: usize) -> &mut Chunk {
        &mut self.chunks[self.order[at] as usize]
    }

    /// Returns the last segment that starts at or before `start`.
    fn find(&self, start: u64) -> Option<Position> {
        let (&low, &high) = (self.firsts.first()?, self.firsts.last()?);
        let chunk = last_before(&self.firsts, start, low, high, self.firsts.len() - 1)?;
        let starts = &self.chunks[self.order[chunk] as usize].starts;
        // The start of the next chunk is at hand, the end of this one is not in the cache.
        let (low, high) = (self.firsts[chunk], self.firsts.get(chunk + 1));
        let (high, steps) = match high {
            Some(&high) => (high, starts.len()),
            None => (*starts.last()?, starts.len() - 1),
        };
        Some((chunk, last_before(starts, start, low, high, steps)?))
    }

    /// Returns the segment of exactly these bounds.
    pub(super) fn exact(&mut self, span: Span) -> Option<&mut Segment> {
        if self.only.is_some() {
            let (start, segment) = self.only.as_mut()?;
            return (*start == span.start && segment.end == span.end).then_some(segment);
        }
        let (chunk, at) = self.find(span.start)?;
        let chunk = self.chunk(chunk);
        let segment = &mut chunk.segments[at];
        (chunk.starts[at] == span.start && segment.end == span.end).then_some(segment)
    }

    /// Makes `at` a boundary.
    pub(super) fn split(&mut self, at: u64) {
        if at >= self.end {
            return;
        }
        self.spill();
        let Some((chunk, index)) = self.find(at) else { return };
        let chunk = self.chunk(chunk);
        let segment = &mut chunk.segments[index];
        if chunk.starts[index] == at || segment.end <= at {
            return;
        }
        segment.span = NONE;
        let tail = *segment;
        segment.end = at;
        self.insert(at, tail);
    }

    /// Adds a segment where there is none.
    pub(super) fn insert(&mut self, start: u64, segment: Segment) {
        if self.end == 0 {
            self.only = Some((start, segment));
            self.end = segment.end;
            return;
        }
        self.spill();
        self.end = self.end.max(segment.end);
        let Some((mut chunk, mut at)) = self.find(start) else {
            // Before everything.
            if self.order.is_empty() {
                // All that was there has been replaced.
                self.insert_chunk(0, Chunk { starts: vec![start], segments: vec![segment] });
                return;
            }
            self.firsts[0] = start;
            self.insert_at((0, 0), start, segment);
            return;
        };
        at += 1;
        if self.chunk(chunk).starts.len() == FULL {
            // Appending leaves full chunks behind, anything else halves.
            let is_last = at == FULL && chunk + 1 == self.order.len();
            let keep = if is_last { FULL } else { FULL / 2 };
            let full = self.chunk(chunk);
            let mut tail = Chunk {
                starts: full.starts.split_off(keep),
                segments: full.segments.split_off(keep),
            };
            if is_last {
                tail.starts.push(start);
                tail.segments.push(segment);
                self.insert_chunk(chunk + 1, tail);
                return;
            }
            self.insert_chunk(chunk + 1, tail);
            if at > keep {
                (chunk, at) = (chunk + 1, at - keep);
            }
        }
        self.insert_at((chunk, at), start, segment);
    }

    /// Makes room for more than one segment.
    fn spill(&mut self) {
        if let Some((start, segment)) = self.only.take() {
            self.insert_chunk(0, Chunk { starts: vec![start], segments: vec![segment] });
        }
    }

    fn insert_at(&mut self, (chunk, at): Position, start: u64, segment: Segment) {
        let chunk = self.chunk(chunk);
        chunk.starts.insert(at, start);
        chunk.segments.insert(at, segment);
    }

    fn insert_chunk(&mut self, at: usize, chunk: Chunk) {
        self.firsts.insert(at, chunk.starts[0]);
        let index = self.unused.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::default());
            super::span::to_u32(self.chunks.len() - 1)
        });
        self.chunks[index as usize] = chunk;
        self.order.insert(at, index);
    }

    /// Calls `visit` for each segment inside `span`, whose bounds are boundaries, ascending.
    pub(super) fn visit(&mut self, span: Span, mut visit: impl FnMut(u64, &mut Segment)) {
        self.spill();
        let Some((first, mut at)) = self.first_in(span) else { return };
        for &chunk in &self.order[first..] {
            let chunk = &mut self.chunks[chunk as usize];
            for (&start, segment) in chunk.starts[at..].iter().zip(&mut chunk.segments[at..]) {
                if start >= span.end {
                    return;
                }
                visit(start, segment);
            }
            at = 0;
        }
    }

    /// Puts one segment where there may be any number inside its bounds, which are boundaries.
    pub(super) fn replace(&mut self, span: Span, segment: Segment) {
        self.spill();
        if let Some((first, mut at)) = self.first_in(span) {
            let mut chunk = first;
            while chunk < self.order.len() {
                let here = self.chunk(chunk);
                let end = here.starts.partition_point(|&start| start < span.end);
                let is_last = end < here.starts.len();
                if at < end {
                    here.starts.drain(at..end);
                    here.segments.drain(at..end);
                }
                if let Some(&first) = here.starts.first() {
                    self.firsts[chunk] = first;
                    chunk += 1;
                } else {
                    *here = Chunk::default();
                    self.firsts.remove(chunk);
                    let unused = self.order.remove(chunk);
                    self.unused.push(unused);
                }
                if is_last {
                    break;
                }
                at = 0;
            }
        }
        self.insert(span.start, segment);
    }

    /// Returns the first segment that starts inside `span`, or a place in its chunk where it would
    /// be.
    fn first_in(&self, span: Span) -> Option<Position> {
        match self.find(span.start) {
            Some((chunk, at)) => {
                let is_before = self.chunks[self.order[chunk] as usize].starts[at] < span.start;
                Some((chunk, at + usize::from(is_before)))
            }
            None => (!self.order.is_empty()).then_some((0, 0)),
        }
    }
}

/// Returns the index of the last of `starts`, ascending, that is at most `start`.
///
/// Tries first where it is if the distances are equal, as those of tiles are, counting `steps` from
/// `low` to `high`.
fn last_before(starts: &[u64], start: u64, low: u64, high: u64, steps: usize) -> Option<usize> {
    let distance = start.checked_sub(low)?;
    let guess = match distance.checked_mul(steps as u64) {
        Some(product) if start < high => product / (high - low),
        _ => steps as u64,
    };
    let guess = usize::try_from(guess).unwrap_or(0).min(starts.len() - 1);
    if starts[guess] <= start && starts.get(guess + 1).is_none_or(|&next| start < next) {
        return Some(guess);
    }
    starts.partition_point(|&other| other <= start).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, proptest};
    use proptest::{collection, prop_assert_eq};

    use super::*;

    fn segment(end: u64, writer: u32) -> Segment {
        Segment { end, writer, reader: NONE, readers: NONE, span: NONE }
    }

    fn all(intervals: &mut Intervals) -> Vec<(u64, Segment)> {
        let mut found = Vec::new();
        intervals.visit(Span { start: 0, end: u64::MAX }, |start, segment| {
            found.push((start, *segment))
        });
        found
    }

    proptest! {
        #[test]
        fn it_is_a_map_of_intervals(
            steps in collection::vec((0..4000u64, 1..4u64, any::<u8>()), 0..3000),
        ) {
            let mut intervals = Intervals::default();
            // One entry for each unit: who wrote it and where the segment began.
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (number, (start, len, long)) in (0..).zip(steps) {
                let len = if long < 2 { len * 500 } else { len };
                let span = Span { start, end: start + len };
                intervals.split(span.start);
                intervals.split(span.end);
                intervals.replace(span, segment(span.end, number));
                model.extend((span.start..span.end).map(|unit| (unit, number)));
                prop_assert_eq!(intervals.exact(span).map(|segment| segment.writer), Some(number));
            }
            let mut units = BTreeMap::new();
            let mut last = 0;
            for (start, segment) in all(&mut intervals) {
                assert!(last <= start && start < segment.end, "segments are disjoint and ascending");
                last = segment.end;
                units.extend((start..segment.end).map(|unit| (unit, segment.writer)));
            }
            prop_assert_eq!(units, model);
            prop_assert_eq!(intervals.end(), last);
        }
    }

    #[test]
    fn any_order_of_insertion_gives_the_same_segments() {
        const COUNT: u64 = 5000;
        let orders: [fn(u64) -> u64; 3] = [|at| at, |at| COUNT - 1 - at, |at| at * 1777 % COUNT];
        for order in orders {
            let mut intervals = Intervals::default();
            for at in (0..COUNT).map(order) {
                intervals.insert(at * 2, segment(at * 2 + 1, 0));
            }
            let expected: Vec<_> = (0..COUNT).map(|at| (at * 2, segment(at * 2 + 1, 0))).collect();
            assert_eq!(all(&mut intervals), expected);
        }
    }
}
