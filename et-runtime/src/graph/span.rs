//! Ranges of a space, and the numbers by which tables name things.

/// No task, no reader, no span.
pub(super) const NONE: u32 = u32::MAX;

/// A range in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Counts stay below `NONE`: the builder looks at `Hazards::largest_count` before it adds a task.
pub(super) fn to_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}
