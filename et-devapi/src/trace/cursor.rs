//! Reading a part again and again, while its writer goes on.

use super::EntryHeader;
use super::decode::{Entries, Part};
use zerocopy::FromBytes;

/// How far a part has been read.
///
/// A writer that does not find room begins at the start of its part again, and marks nothing
/// (Spec: §16.1). What is new since the last look follows from where that one ended, and from the
/// times of the entries, which never run backwards within a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Offset behind the last entry that was read; 0 before the first look.
    offset: usize,
    /// Time of the first entry of the part; `None` while the part was empty.
    first: Option<u64>,
    /// Offset and time of the last entry that was read.
    last: (usize, u64),
    /// There were only zeros behind the entries.
    is_fresh: bool,
}

/// What is new in a part.
#[derive(Clone, Debug, Default)]
pub struct News<'a> {
    /// Entries from the end of the part, from before its writer began again.
    pub older: Entries<'a>,
    /// Entries after that.
    pub newer: Entries<'a>,
    /// Entries may have been overwritten before they were read; how many cannot be known. Always
    /// set if some were, unless the part was empty at the last look: then only if there are traces
    /// of them.
    pub has_losses: bool,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Cursor {
    /// Creates one that takes everything in a part as new, and anything behind the entries for
    /// remains of lost ones.
    #[must_use]
    pub const fn new() -> Self {
        Self { offset: 0, first: None, last: (0, 0), is_fresh: true }
    }

    /// Returns what was written since the last call.
    pub fn advance<'a>(&mut self, part: &Part<'a>) -> News<'a> {
        let slice = |from: usize, to: usize| part.bytes.get(from..to).unwrap_or_default();
        let first = part.entries().next().map(|entry| entry.cycle);
        let offset = self.offset.max(part.start);
        let mut news = News::default();
        let mut from = part.start;
        if self.first.is_none() {
            news.has_losses = self.is_fresh && part.has_wrapped();
        } else if first == self.first && part.end >= offset {
            // The writer has not been at the start since.
            from = offset;
        } else if let (Some(first), true) = (first, self.last_is_intact(part)) {
            // It has been there, and not come as far as before: once, if an entry as large as the
            // one that began again would still have found room where the last one is. Else it may
            // have been there more often without coming so far.
            news.older = Entries::new(slice(offset, self.end_of_older(part, offset, first)));
            news.has_losses = self.last.0.saturating_add(size_of_first(part)) > part.bytes.len();
        } else {
            // More than once, or so far that it cannot be told. Without an entry the trace was
            // reset; what was before that is not lost but thrown away.
            news.has_losses = first.is_some();
        }
        news.newer = Entries::new(slice(from, part.end));
        self.note(part, from, news.newer.clone());
        self.first = first;
        self.offset = part.end;
        self.is_fresh = !part.has_wrapped();
        news
    }

    /// Returns `true` if the last entry that was read is still where it was.
    fn last_is_intact(&self, part: &Part<'_>) -> bool {
        let (at, cycle) = self.last;
        let header = part.bytes.get(at..).map(EntryHeader::ref_from_prefix);
        let is_same = matches!(header, Some(Ok((header, _))) if header.cycle.get() == cycle);
        part.end <= at && is_same
    }

    /// Notes the last entry.
    fn note(&mut self, part: &Part<'_>, from: usize, mut entries: Entries<'_>) {
        let mut at = from;
        while let Some(entry) = entries.next() {
            self.last = (at, entry.cycle);
            at = part.end.saturating_sub(entries.left());
        }
    }

    /// Offset behind the entries at the end of the part that are younger than the last one read and
    /// older than the first one; what is left at the very end is from the last time around.
    fn end_of_older(&self, part: &Part<'_>, offset: usize, first: u64) -> usize {
        let mut entries = Entries::new(part.bytes.get(offset..).unwrap_or_default());
        let (mut last, mut end) = (self.last.1, offset);
        while let Some(entry) = entries.next() {
            if !(last..=first).contains(&entry.cycle) || entries.skipped() != 0 {
                break;
            }
            last = entry.cycle;
            end = part.bytes.len().saturating_sub(entries.left());
        }
        end
    }
}

fn size_of_first(part: &Part<'_>) -> usize {
    let mut entries = part.entries();
    let len = entries.left();
    entries.next().map_or(0, |_| len.saturating_sub(entries.left()))
}
