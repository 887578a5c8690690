//! The stacks of a launch, and lines between them that no hart may touch.
//!
//! Without those a hart that uses more stack than it has changes its neighbour's. Harts take long
//! turns, so on flat memory the neighbour has often ended before, or not begun, and nothing shows.

use crate::machine::launch::Stack;
use crate::memory::map::COMPUTE_HARTS;

/// What lies at an address, as far as stacks are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stacked {
    No,
    Yes,
    Guarded,
}

/// The stacks of a launch and their guarded parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guards {
    /// Lowest address of all stacks.
    low: u64,
    /// Bytes of all stacks; 0 if they are nowhere.
    span: u64,
    /// 2^64 divided by the bytes of a stack, rounded up: a distance times this is, modulo 2^64, how
    /// far into a stack it leads, as a fraction.
    inverse: u64,
    /// The fraction of a stack that is guarded, at its low end.
    guarded: u64,
    guard_bytes: u64,
}

impl Guards {
    /// Every address of memory is guarded.
    pub(crate) const EVERYWHERE: Self =
        Self { low: 0, span: 1 << 63, inverse: 0, guarded: 1, guard_bytes: 0 };

    pub(crate) fn new(stack: &Stack) -> Self {
        Self::checked(stack).unwrap_or_default()
    }

    /// Fractions are exact for distances of 32 bits; `None` for larger ones, and for stacks without
    /// bytes.
    fn checked(stack: &Stack) -> Option<Self> {
        let bytes_per_hart = u32::try_from(stack.bytes_per_hart).ok().filter(|&bytes| bytes > 1)?;
        let span = u64::from(bytes_per_hart.checked_mul(COMPUTE_HARTS)?);
        let low = stack.top.checked_sub(span)?;
        let inverse = u64::MAX / u64::from(bytes_per_hart) + 1;
        let guard_bytes = stack.guard_bytes.min(bytes_per_hart.into());
        let guarded = inverse.saturating_mul(guard_bytes);
        Some(Self { low, span, inverse, guarded, guard_bytes })
    }

    /// Returns where the stacks are, how many bytes they have, how far an access to 32 bytes may be
    /// in there (0 if not at all), and the numbers that tell what is guarded; for code that does
    /// what [`look`](Self::look) does.
    pub(crate) fn numbers(&self) -> [u64; 5] {
        const WIDE: u64 = 32;
        // Less than an access: it may begin before and end behind what is guarded.
        let is_small = self.guard_bytes != 0 && self.guard_bytes < WIDE;
        let wide = if is_small { 0 } else { self.span.saturating_sub(WIDE - 1) };
        [self.low, self.span, wide, self.inverse, self.guarded]
    }

    /// Returns `true` if no line of a cache has bytes both of stacks and of other memory: what is
    /// cached is never guarded then.
    pub(crate) fn are_lines(&self) -> bool {
        const LINE: u64 = 64;
        *self != Self::EVERYWHERE && (self.low | self.span).is_multiple_of(LINE)
    }

    /// Returns what lies at `address`.
    #[inline(always)]
    pub(crate) fn look(self, address: u64) -> Stacked {
        let at = address.wrapping_sub(self.low);
        if at >= self.span {
            Stacked::No
        } else if at.wrapping_mul(self.inverse) >= self.guarded {
            Stacked::Yes
        } else {
            Stacked::Guarded
        }
    }

    /// Returns `true` if the byte at `address` is guarded.
    #[inline(always)]
    pub(crate) fn hold(self, address: u64) -> bool {
        self.look(address) == Stacked::Guarded
    }

    /// Returns `true` if the byte at `address` is in a stack.
    #[inline(always)]
    pub(crate) fn are_at(self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.span
    }

    /// Returns `true` if one of `size` bytes from `address` is in a stack, or close to all of them.
    #[inline(always)]
    pub(crate) fn overlap(self, address: u64, size: u64) -> bool {
        address.wrapping_add(size).wrapping_sub(self.low) < self.span + size
    }

    /// Returns `true` if one of `size` bytes from `address` may be guarded.
    #[inline(always)]
    pub(crate) fn are_near(self, address: u64, size: u64) -> bool {
        let at = address.wrapping_add(size).wrapping_sub(self.low);
        self.guarded != 0
            && at < self.span + size
            && (self.guard_bytes < size || self.touch(address, size))
    }

    /// Returns `true` if one of `size` bytes from `address` is guarded.
    #[inline(always)]
    pub(crate) fn touch(self, address: u64, size: u64) -> bool {
        self.hold(address) || self.hold(address.wrapping_add(size - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x80_0580_0000;

    fn guards(guard_bytes: u64) -> Guards {
        Guards::new(&Stack { top: TOP, bytes_per_hart: 4160, guard_bytes })
    }

    #[test]
    fn the_low_end_of_every_stack_is_guarded() {
        for hart in [0, 1, 1000, 2079] {
            let bottom = TOP - 4160 * (hart + 1);
            assert!(guards(64).hold(bottom) && guards(64).hold(bottom + 63), "{hart}");
            assert!(!guards(64).hold(bottom + 64) && !guards(64).hold(bottom + 4159), "{hart}");
            assert!(guards(64).touch(bottom + 60, 8) && !guards(64).touch(bottom + 64, 8));
        }
    }

    #[test]
    fn everything_can_be_guarded() {
        for address in [0, TOP, 0xFF_FFFF_FFF8] {
            assert_eq!(Guards::EVERYWHERE.look(address), Stacked::Guarded);
            assert!(Guards::EVERYWHERE.are_near(address, 32) && Guards::EVERYWHERE.hold(address));
        }
        assert!(!Guards::EVERYWHERE.are_lines());
    }

    #[test]
    fn stacks_are_lines_if_they_begin_and_end_with_one() {
        let of = |top, bytes_per_hart| {
            Guards::new(&Stack { top, bytes_per_hart, guard_bytes: 64 }).are_lines()
        };
        assert!(of(TOP, 4160) && of(TOP, 4098) && Guards::default().are_lines());
        assert!(!of(TOP + 32, 4160) && !of(TOP, 4097));
    }

    #[test]
    fn nothing_outside_the_stacks_is_guarded() {
        assert!(!guards(64).hold(TOP) && !guards(64).hold(TOP - 4160 * 2080 - 1));
        assert!(!guards(0).hold(TOP - 4160));
        let wraps = Stack { top: 100, bytes_per_hart: 4160, guard_bytes: 64 };
        assert_eq!(Guards::new(&wraps), Guards::default());
    }
}
