//! Which earlier tasks a new task must wait for, from what all of them declare.
//!
//! Per space an interval map of disjoint segments; each segment knows the last task that wrote it
//! and those that have read it since. A task that touches part of a segment splits it. Lists of
//! readers are chains in one arena that only grow at their heads, so the two halves of a split
//! segment share a chain, and a split costs the same however many readers there are.
//!
//! What the maps lose is implied by what they keep: once a segment is written, its earlier writer
//! and readers are ordered before the new writer. For the same reason a writer that waits for
//! readers of a segment needs no edge from the writer before them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::intervals::{Intervals, Segment};
use super::shape::Reason;
use super::span::{NONE, Span, to_u32};
use super::{Access, Region};

struct Reader {
    task: u32,
    /// The one before, or `NONE`.
    next: u32,
    /// The last task that waited for this one and all before it, or `NONE`.
    seen_by: u32,
}

/// The spaces of a graph, and who used what in them last.
#[derive(Default)]
pub(super) struct Hazards {
    /// What keeps each space alive, and with it the address that is its name.
    pub(super) keep: Vec<Region>,
    pub(super) spans: Vec<Span>,
    /// The space of each span.
    pub(super) span_space: Vec<u32>,
    spaces: HashMap<usize, u32, BuildHasherDefault<Mix>>,
    intervals: Vec<Intervals>,
    readers: Vec<Reader>,
    /// Spans that were read and are no segment.
    odd_spans: HashMap<(u32, Span), u32, BuildHasherDefault<Mix>>,
    gaps: Vec<Span>,
}

impl Hazards {
    /// Returns the number of a region's space.
    pub(super) fn space(&mut self, region: &Region) -> u32 {
        let id = region.space_id();
        *self.spaces.entry(id).or_insert_with(|| {
            self.keep.push(region.clone());
            self.intervals.push(Intervals::default());
            to_u32(self.intervals.len() - 1)
        })
    }

    /// How many readers and spans there are; neither may reach `NONE`.
    pub(super) fn largest_count(&self) -> usize {
        self.readers.len().max(self.spans.len())
    }

    /// Records that `task`, later than all others, uses a range; adds the tasks it must wait for to
    /// `edges` and returns the range's span. Reads of a task come before its writes.
    pub(super) fn record(
        &mut self,
        space: u32,
        bounds: Range<u64>,
        access: Access,
        task: u32,
        edges: &mut Edges,
    ) -> u32 {
        let span = Span { start: bounds.start, end: bounds.end };
        if span.start == span.end {
            return self.odd_span(space, span);
        }
        let intervals = &mut self.intervals[space as usize];
        // Two common cases first: beyond everything that is there, and exactly one segment.
        if span.start >= intervals.end() {
            let id = new_span(&mut self.spans, &mut self.span_space, space, span);
            let mut segment =
                Segment { end: span.end, writer: NONE, reader: NONE, readers: NONE, span: id };
            touch(&mut segment, &mut self.readers, access, task, edges);
            intervals.insert(span.start, segment);
            return id;
        }
        if let Some(segment) = intervals.exact(span) {
            if segment.span == NONE {
                segment.span = new_span(&mut self.spans, &mut self.span_space, space, span);
            }
            touch(segment, &mut self.readers, access, task, edges);
            return segment.span;
        }
        self.record_parts(space, span, access, task, edges)
    }

    /// Records the use of a range that is not one segment.
    fn record_parts(
        &mut self,
        space: u32,
        span: Span,
        access: Access,
        task: u32,
        edges: &mut Edges,
    ) -> u32 {
        let id = if access.writes() {
            new_span(&mut self.spans, &mut self.span_space, space, span)
        } else {
            self.odd_span(space, span)
        };
        let intervals = &mut self.intervals[space as usize];
        intervals.split(span.start);
        intervals.split(span.end);
        let mut at = span.start;
        self.gaps.clear();
        intervals.visit(span, |start, segment| {
            if at < start {
                self.gaps.push(Span { start: at, end: start });
            }
            at = segment.end;
            touch(segment, &mut self.readers, access, task, edges);
        });
        if access.writes() {
            // From here on nothing tells the parts apart.
            let whole =
                Segment { end: span.end, writer: task, reader: NONE, readers: NONE, span: id };
            intervals.replace(span, whole);
            return id;
        }
        if at < span.end {
            self.gaps.push(Span { start: at, end: span.end });
        }
        for &gap in &self.gaps {
            let mut segment =
                Segment { end: gap.end, writer: NONE, reader: NONE, readers: NONE, span: NONE };
            if gap == span {
                segment.span = id;
            }
            touch(&mut segment, &mut self.readers, access, task, edges);
            intervals.insert(gap.start, segment);
        }
        id
    }

    fn odd_span(&mut self, space: u32, span: Span) -> u32 {
        let (spans, spaces) = (&mut self.spans, &mut self.span_space);
        *self.odd_spans.entry((space, span)).or_insert_with(|| new_span(spans, spaces, space, span))
    }
}

fn new_span(spans: &mut Vec<Span>, spaces: &mut Vec<u32>, space: u32, span: Span) -> u32 {
    spans.push(span);
    spaces.push(space);
    to_u32(spans.len() - 1)
}

/// Lets `task` use a whole segment.
fn touch(
    segment: &mut Segment,
    readers: &mut Vec<Reader>,
    access: Access,
    task: u32,
    edges: &mut Edges,
) {
    if access.reads() && segment.writer != NONE {
        edges.push(segment.writer, task, Reason::RAW);
    }
    if !access.writes() {
        if segment.reader != NONE && segment.reader != task {
            readers.push(Reader { task: segment.reader, next: segment.readers, seen_by: NONE });
            segment.readers = to_u32(readers.len() - 1);
        }
        segment.reader = task;
        return;
    }
    let mut waits_for_readers = segment.readers != NONE;
    if segment.reader != NONE && segment.reader != task {
        waits_for_readers = true;
        edges.push(segment.reader, task, Reason::WAR);
    }
    let mut at = segment.readers;
    while let Some(reader) = readers.get_mut(at as usize) {
        if reader.seen_by == task {
            // Through another part of what was one segment.
            break;
        }
        reader.seen_by = task;
        edges.push(reader.task, task, Reason::WAR);
        at = reader.next;
    }
    if !waits_for_readers && segment.writer != NONE {
        edges.push(segment.writer, task, Reason::WAW);
    }
    segment.writer = task;
    segment.reader = NONE;
    segment.readers = NONE;
}

/// A hash for addresses and small numbers, which no one chooses to do harm.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // Rotated, since the best bits of a product are its highest and tables use the lowest too.
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The edges to one task, as they are found.
#[derive(Default)]
pub(super) struct Edges {
    /// Task in the upper part, reasons in the low 8 bits.
    found: Vec<u64>,
}

impl Edges {
    pub(super) fn push(&mut self, before: u32, after: u32, reason: Reason) {
        if before == after {
            return;
        }
        // Neighbouring segments mostly have the same users.
        match self.found.last_mut() {
            Some(last) if *last >> 8 == u64::from(before) => *last |= u64::from(reason.0),
            _ => self.found.push(u64::from(before) << 8 | u64::from(reason.0)),
        }
    }

    /// Returns the edges, ascending, each task once with all its reasons, and forgets them.
    pub(super) fn drain_into(&mut self, tasks: &mut Vec<u32>, reasons: &mut Vec<Reason>) {
        if self.found.len() > 1 {
            self.found.sort_unstable();
        }
        let mut last = NONE;
        for &edge in &self.found {
            // The masks make both conversions exact.
            let (task, bits) = ((edge >> 8 & 0xffff_ffff) as u32, (edge & 0xff) as u8);
            match reasons.last_mut() {
                Some(reason) if last == task => reason.0 |= bits,
                _ => {
                    tasks.push(task);
                    reasons.push(Reason(bits));
                }
            }
            last = task;
        }
        self.found.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }
}
