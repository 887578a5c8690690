//! Tasks of several parts: what has become of a task follows from what has become of its parts.
//!
//! Counters and steps only, as in `progress`.

use crate::executor::TaskFailure;
use crate::executor::place::Ended;
use crate::graph::PartOf;

/// What a task comes to, once all its parts have.
#[derive(Debug)]
pub(super) enum Joined {
    Complete,
    Failed(TaskFailure),
    /// None has failed, and some were not run.
    NotRun,
    Skipped,
}

/// The parts of one task.
#[derive(Debug)]
struct Join {
    /// Parts that have not ended.
    left: u32,
    /// The first failure.
    failure: Option<Box<TaskFailure>>,
    has_not_run: bool,
    has_skipped: bool,
}

/// The tasks of a run that have several parts, in their order.
#[derive(Debug, Default)]
pub(super) struct Joins(Vec<Join>);

impl Joins {
    /// With the number of parts of each task.
    pub(super) fn new(parts: impl Iterator<Item = u32>) -> Self {
        let join = |left| Join { left, failure: None, has_not_run: false, has_skipped: false };
        Self(parts.map(join).collect())
    }

    /// Returns `true` if a part of this task has failed, so that the others need not begin.
    pub(super) fn has_failed(&self, at: usize) -> bool {
        self.0[at].failure.is_some()
    }

    /// A part has ended; says what the task comes to if it was the last.
    pub(super) fn end(&mut self, at: usize, of: PartOf, how: Ended) -> Option<Joined> {
        let join = &mut self.0[at];
        match how {
            Ended::Complete => {}
            Ended::Failed(failure) => {
                let PartOf { part, parts, .. } = of;
                let part = || Box::new(TaskFailure::Part { part, parts, failure });
                join.failure.get_or_insert_with(part);
            }
            // The caller has the report.
            Ended::Reported | Ended::NotRun => join.has_not_run = true,
            Ended::Skipped => join.has_skipped = true,
        }
        join.left -= 1;
        if join.left != 0 {
            return None;
        }
        Some(match join.failure.take() {
            Some(failure) => Joined::Failed(*failure),
            None if join.has_not_run => Joined::NotRun,
            None if join.has_skipped => Joined::Skipped,
            None => Joined::Complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By a number, so that a test can draw it.
    fn ended(how: u8) -> Ended {
        match how {
            0 => Ended::failed(TaskFailure::Panicked("x".into())),
            1 => Ended::NotRun,
            2 => Ended::Skipped,
            _ => Ended::Complete,
        }
    }

    proptest! {
        #[test]
        fn a_task_is_what_the_worst_of_its_parts_is_and_not_before_all_have_ended(
            parts in proptest::collection::vec((0_u8..12, any::<u32>()), 2..20),
        ) {
            let count = u32::try_from(parts.len()).unwrap();
            let mut joins = Joins::new([count, count].into_iter());
            let mut order: Vec<usize> = (0..parts.len()).collect();
            order.sort_by_key(|&at| parts[at].1);
            let mut first_failed = None;
            for (n, &at) in order.iter().enumerate() {
                let part = u32::try_from(at).unwrap();
                let of = PartOf { task: 9, part, parts: count };
                let joined = joins.end(1, of, ended(parts[at].0));
                if parts[at].0 == 0 {
                    first_failed.get_or_insert(part);
                }
                prop_assert_eq!(joined.is_some(), n + 1 == parts.len());
                let Some(joined) = joined else {
                    prop_assert_eq!(joins.has_failed(1), first_failed.is_some());
                    continue;
                };
                let worst = parts.iter().map(|(how, _)| (*how).min(3)).min().unwrap();
                match joined {
                    Joined::Failed(TaskFailure::Part { part, parts, .. }) => {
                        prop_assert_eq!((worst, Some(part), parts), (0, first_failed, count));
                    }
                    Joined::NotRun => prop_assert_eq!(worst, 1),
                    Joined::Skipped => prop_assert_eq!(worst, 2),
                    Joined::Complete => prop_assert_eq!(worst, 3),
                    Joined::Failed(other) => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(!joins.has_failed(0), "those of another task");
        }
    }
}
