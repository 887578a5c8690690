//! Tasks of several parts, and the numbers of what workers get of them.

use std::ops::Range;

use super::GraphError;
use super::span::to_u32;

/// A task that has more than one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    task: u32,
    parts: u32,
    /// Parts of the tasks before it.
    before: u32,
    is_together: bool,
}

/// The tasks of a graph that have several parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Ascending by task.
    rows: Vec<Row>,
}

/// What a unit is: a task, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartOf {
    pub(crate) task: u32,
    pub(crate) part: u32,
    pub(crate) parts: u32,
}

impl PartOf {
    /// Returns `true` if it is less than its task.
    pub(crate) const fn is_part(self) -> bool {
        self.parts > 1
    }
}

impl Parts {
    /// Adds a task behind all others.
    pub(super) fn push(&mut self, task: u32, parts: u32, is_together: bool) {
        let before = to_u32(self.total());
        self.rows.push(Row { task, parts, before, is_together });
    }

    /// Checks that there are numbers for the parts of one task more.
    pub(super) fn check(
        &self,
        tasks: usize,
        parts: Option<u32>,
        max: u32,
    ) -> Result<(), GraphError> {
        let units = tasks + self.total() + parts.unwrap_or(1) as usize;
        GraphError::check_count("parts of tasks", units, max)
    }

    /// Returns the number of parts of all tasks that have several.
    pub(super) fn total(&self) -> usize {
        self.rows.last().map_or(0, |row| row.before as usize + row.parts as usize)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns which of the tasks with several parts this is.
    pub(super) fn rank(&self, task: u32) -> Option<usize> {
        self.rows.binary_search_by_key(&task, |row| row.task).ok()
    }

    /// Returns the number of parts of a task.
    pub(super) fn of(&self, task: u32) -> u32 {
        // Of most graphs no task has several.
        if self.rows.is_empty() {
            return 1;
        }
        self.rank(task).map_or(1, |rank| self.rows[rank].parts)
    }

    /// Returns `true` if the parts of a task start together.
    pub(super) fn are_together(&self, task: u32) -> bool {
        self.rank(task).is_some_and(|rank| self.rows[rank].is_together)
    }

    /// Returns the tasks that have several parts, ascending, and how many.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.rows.iter().map(|row| (row.task, row.parts))
    }

    /// Returns the units of a task in a graph of so many tasks.
    pub(super) fn units(&self, tasks: u32, task: u32) -> Range<u32> {
        match self.rank(task).map(|rank| self.rows[rank]) {
            Some(Row { parts, before, .. }) => tasks + before..tasks + before + parts,
            None => task..task + 1,
        }
    }

    /// Returns what a unit is in a graph of so many tasks.
    pub(super) fn unit(&self, tasks: u32, unit: u32) -> PartOf {
        let Some(number) = unit.checked_sub(tasks) else {
            return PartOf { task: unit, part: 0, parts: 1 };
        };
        let after = self.rows.partition_point(|row| row.before <= number);
        let row = self.rows[after - 1];
        PartOf { task: row.task, part: number - row.before, parts: row.parts }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }

    pub(super) fn shrink(&mut self) {
        self.rows.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_number_behind_those_of_the_tasks() {
        let mut parts = Parts::default();
        assert_eq!((parts.of(3), parts.total()), (1, 0));
        parts.push(1, 3, false);
        parts.push(4, 2, true);
        assert_eq!([1, 2, 4].map(|task| parts.are_together(task)), [false, false, true]);
        assert_eq!(parts.units(6, 0), 0..1);
        assert_eq!(parts.units(6, 1), 6..9);
        assert_eq!(parts.units(6, 4), 9..11);
        let all: Vec<_> = (0..11).map(|unit| parts.unit(6, unit)).collect();
        for (task, unit) in (0..6).zip(&all) {
            assert_eq!(*unit, PartOf { task, part: 0, parts: 1 });
        }
        let rest: Vec<_> = all[6..].iter().map(|of| (of.task, of.part, of.parts)).collect();
        assert_eq!(rest, [(1, 0, 3), (1, 1, 3), (1, 2, 3), (4, 0, 2), (4, 1, 2)]);
    }
}
