//! What stands before the arguments of a task on a hart that has a condition, or is a part.
//!
//! `struct guarded` in `testing/kernels/src/graph.c`, for the function `et_task` of that file,
//! which calls the task's own function if the condition holds, for the part that is named here.

use crate::graph::{PartOf, Test};
use crate::kernel::Kernel;

const WORDS: usize = 8;
/// Its words.
pub(super) const GUARD_WORDS: u64 = WORDS as u64;
/// Offset in bytes of the room for a word that does not change.
pub(super) const CONSTANT: u64 = 40;
/// What the guard of a task returns that was not run; else that is 0.
pub(super) const SKIPPED: u64 = 1;
/// In the flags of a condition: it holds outside the range; the word has 4 bytes; it has a sign.
const OUTSIDE: u64 = 1;
const HALF: u64 = 2;
const SIGNED: u64 = 4;

/// The function that a worker calls for a kernel, 0 if there is none.
pub(super) fn entry_of(kernel: &Kernel) -> u64 {
    kernel.task_entry().map_or(0, |entry| entry.as_u64())
}

/// Returns the words of a guard, with 0 for the constant. The condition is a test and the address
/// of its word; without one the word is never looked at for what it has, but it must exist.
pub(super) fn words(entry: u64, (test, word): (Option<Test>, u64), of: PartOf) -> [u64; WORDS] {
    let (first, span, flags) = test.map_or((0, u64::MAX, 0), |test| {
        let range = test.range();
        let is = |flag: u64, so: bool| if so { flag } else { 0 };
        let flags = is(OUTSIDE, range.is_outside)
            | is(HALF, test.kind.bytes() == 4)
            | is(SIGNED, test.kind.is_signed());
        (range.first, range.span, flags)
    });
    [entry, word, first, span, flags, 0, of.part.into(), of.parts.into()]
}

/// Returns the words of a guard that calls nothing.
pub(super) const fn nothing(word: u64) -> [u64; WORDS] {
    [0, word, 0, u64::MAX, OUTSIDE, 0, 0, 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_a_condition_always_runs() {
        let words = words(0x100, (None, 0x200), PartOf { task: 4, part: 2, parts: 3 });
        let [entry, word, first, span, flags, _, part, parts] = words;
        assert_eq!((entry, word, part, parts), (0x100, 0x200, 2, 3));
        // The guard compares `word - first <= span`, and that with the flag for outside.
        for found in [0, 1, u64::MAX] {
            assert!(found - first <= span && flags & OUTSIDE == 0);
        }
    }
}
