//! What the firmware does when a kernel traps: environment calls, and one register it emulates.
//! Spec: ISA §2, §5, device interface §14

use crate::exec::event;
use crate::machine::hart::Hart;
use crate::machine::launch::HartExit;

const RETURN: u64 = 8;
const SHIRE_CACHE_BANK_OPERATION: u64 = 7;
const SHIRE_CACHE_COUNTERS: u64 = 9;
const MEMORY_SHIRE_COUNTERS: u64 = 10;
const UNKNOWN: u64 = u64::MAX;
/// What the bank operation accepts in `a3`: flush and evict L2, flush and evict L3, invalidate the
/// coalescing buffer.
const BANK_OPERATIONS: [u64; 5] = [2, 3, 5, 6, 10];
/// `csrrs rd, mhartid, x0`, apart from the destination.
const READ_MHARTID: u64 = 0xF140_2073;
const DESTINATION: u64 = 31 << 7;

/// What follows from a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The hart goes on.
    Resume,
    /// The hart leaves the kernel, and failed if there is an exit.
    Leave(Option<HartExit>),
}

/// Handles a trap of `hart`. `cycles` reads the cycle counter.
pub(crate) fn handle(
    hart: &mut Hart,
    cause: u64,
    tval: u64,
    cycles: impl FnOnce() -> u64,
) -> Outcome {
    match cause {
        event::USER_CALL if hart.x[10] == RETURN => {
            let value = hart.x[11].cast_signed();
            // The firmware saves a context that continues behind the call.
            hart.pc = hart.pc.wrapping_add(4);
            return Outcome::Leave(match hart.x[12] {
                0 if value < 0 => Some(HartExit::NegativeReturn(value)),
                0 => None,
                _ => Some(HartExit::SelfAbort(value)),
            });
        }
        event::USER_CALL => {
            hart.x[10] = match hart.x[10] {
                // Cache maintenance: nothing to do without caches.
                1..=6 | 11 | 301 | 302 => 0,
                SHIRE_CACHE_BANK_OPERATION if BANK_OPERATIONS.contains(&hart.x[13]) => 0,
                SHIRE_CACHE_COUNTERS | MEMORY_SHIRE_COUNTERS => cycles(),
                _ => UNKNOWN,
            };
        }
        event::ILLEGAL if tval & !DESTINATION == READ_MHARTID => {
            hart.set_x((tval >> 7 & 31) as usize, hart.id.into());
        }
        _ => return Outcome::Leave(Some(HartExit::Exception { cause, tval })),
    }
    hart.pc = hart.pc.wrapping_add(4);
    Outcome::Resume
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, a1: u64, a2: u64) -> (Outcome, u64, u64) {
        let mut hart = Hart::new(2081);
        (hart.x[10], hart.x[11], hart.x[12]) = (number, a1, a2);
        let outcome = handle(&mut hart, event::USER_CALL, 0, || 77);
        (outcome, hart.x[10], hart.pc)
    }

    #[test]
    fn return_types_decide_about_failure() {
        let minus_five = (-5_i64).cast_unsigned();
        assert_eq!(call(8, 5, 0).0, Outcome::Leave(None));
        assert_eq!(call(8, minus_five, 0).0, Outcome::Leave(Some(HartExit::NegativeReturn(-5))));
        assert_eq!(call(8, minus_five, 1).0, Outcome::Leave(Some(HartExit::SelfAbort(-5))));
    }

    #[test]
    fn other_calls_return() {
        for number in [1, 6, 11, 301, 302] {
            assert_eq!(call(number, 1, 2), (Outcome::Resume, 0, 4));
        }
        assert_eq!(call(9, 0, 0), (Outcome::Resume, 77, 4));
        for number in [0, 12, 300, 303, u64::MAX] {
            assert_eq!(call(number, 0, 0), (Outcome::Resume, UNKNOWN, 4));
        }
    }

    #[test]
    fn the_bank_operation_knows_its_operations() {
        let operate = |operation| {
            let mut hart = Hart::new(0);
            (hart.x[10], hart.x[13]) = (7, operation);
            assert_eq!(handle(&mut hart, event::USER_CALL, 0, || 0), Outcome::Resume);
            hart.x[10]
        };
        for operation in [2, 3, 5, 6, 10] {
            assert_eq!(operate(operation), 0, "{operation}");
        }
        for operation in [0, 1, 4, 7, 8, 9, 11, u64::MAX] {
            assert_eq!(operate(operation), UNKNOWN, "{operation}");
        }
    }

    #[test]
    fn a_hart_that_ends_the_kernel_stands_behind_the_call() {
        for kind in [0, 1] {
            assert_eq!(call(8, 1, kind).2, 4);
        }
    }

    #[test]
    fn reading_mhartid_is_emulated_and_nothing_else() {
        let mut hart = Hart::new(2081);
        let illegal = event::ILLEGAL;
        assert_eq!(handle(&mut hart, illegal, 0xF140_2673, || 0), Outcome::Resume);
        assert_eq!((hart.x[12], hart.pc), (2081, 4));
        let tval = 0xF140_A673;
        let exit = HartExit::Exception { cause: illegal, tval };
        assert_eq!(handle(&mut hart, illegal, tval, || 0), Outcome::Leave(Some(exit)));
    }
}
