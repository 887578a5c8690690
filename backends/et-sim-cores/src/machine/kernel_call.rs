//! What the firmware does when a kernel traps: environment calls, and one register it emulates.
//! Spec: ISA §2, §5, device interface §14

use crate::exec::event;
use crate::machine::hart::Hart;
use crate::machine::launch::HartExit;

const RETURN: u64 = 8;
const SHIRE_CACHE_COUNTERS: u64 = 9;
const MEMORY_SHIRE_COUNTERS: u64 = 10;
const UNKNOWN: u64 = u64::MAX;
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

/// Handles a trap of `hart`. `cycles` is the cycle counter.
pub(crate) fn handle(hart: &mut Hart, cause: u64, tval: u64, cycles: u64) -> Outcome {
    match cause {
        event::USER_CALL if hart.x[10] == RETURN => {
            let value = hart.x[11].cast_signed();
            return Outcome::Leave(match hart.x[12] {
                0 if value < 0 => Some(HartExit::NegativeReturn(value)),
                0 => None,
                _ => Some(HartExit::SelfAbort(value)),
            });
        }
        event::USER_CALL => {
            hart.x[10] = match hart.x[10] {
                // Cache maintenance: nothing to do without caches.
                1..=7 | 11 | 301 | 302 => 0,
                SHIRE_CACHE_COUNTERS | MEMORY_SHIRE_COUNTERS => cycles,
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

/// What a hart's exit means, given its `tensor_error` register.
pub(crate) fn with_tensor_error(exit: Option<HartExit>, tensor_error: u16) -> Option<HartExit> {
    exit.or_else(|| (tensor_error != 0).then_some(HartExit::TensorError(tensor_error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, a1: u64, a2: u64) -> (Outcome, u64, u64) {
        let mut hart = Hart::new(2081);
        (hart.x[10], hart.x[11], hart.x[12]) = (number, a1, a2);
        let outcome = handle(&mut hart, event::USER_CALL, 0, 77);
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
        for number in [1, 7, 11, 301, 302] {
            assert_eq!(call(number, 1, 2), (Outcome::Resume, 0, 4));
        }
        assert_eq!(call(9, 0, 0), (Outcome::Resume, 77, 4));
        for number in [0, 12, 300, 303, u64::MAX] {
            assert_eq!(call(number, 0, 0), (Outcome::Resume, UNKNOWN, 4));
        }
    }

    #[test]
    fn reading_mhartid_is_emulated_and_nothing_else() {
        let mut hart = Hart::new(2081);
        let illegal = event::ILLEGAL;
        assert_eq!(handle(&mut hart, illegal, 0xF140_2673, 0), Outcome::Resume);
        assert_eq!((hart.x[12], hart.pc), (2081, 4));
        let tval = 0xF140_A673;
        let exit = HartExit::Exception { cause: illegal, tval };
        assert_eq!(handle(&mut hart, illegal, tval, 0), Outcome::Leave(Some(exit)));
    }
}
