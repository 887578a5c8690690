//! Assertions that return a failure instead of panicking, and say what was seen.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use et_hal::{Error, ErrorKind};

use crate::Failure;

/// Fails unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

/// Fails unless both values are equal.
macro_rules! check_eq {
    ($got:expr, $expected:expr, $($what:tt)+) => {
        match (&$got, &$expected) {
            (got, expected) => {
                if got != expected {
                    let what = format!($($what)+);
                    let text = format!("{what} is {got:?} and should be {expected:?}");
                    return Err($crate::Failure::new(text));
                }
            }
        }
    };
}

/// Fails unless the value has the form of the pattern.
macro_rules! check_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)?, $($what:tt)+) => {
        match &$value {
            $pattern $(if $guard)? => {}
            other => {
                let what = format!($($what)+);
                return Err($crate::Failure::new(format!("{what} gave {other:?}")));
            }
        }
    };
}

pub(crate) use {check, check_eq, check_matches};

/// Fails unless the call failed with this kind of error.
#[track_caller]
pub(crate) fn fails_as<T: Debug, E: Error>(
    what: &str,
    outcome: Result<T, E>,
    kind: ErrorKind,
) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => {
            let other = error.kind();
            Err(Failure::new(format!("{what}: error \"{other}\" ({error}) instead of \"{kind}\"")))
        }
        Ok(value) => {
            Err(Failure::new(format!("{what}: success with {value:?} instead of \"{kind}\"")))
        }
    }
}

/// Fails at the first difference of two sequences, without printing all of them.
#[track_caller]
pub(crate) fn same<T: PartialEq + Debug>(
    what: &str,
    got: &[T],
    expected: &[T],
) -> Result<(), Failure> {
    if got.len() != expected.len() {
        let (got, expected) = (got.len(), expected.len());
        return Err(Failure::new(format!("{what}: {got} elements instead of {expected}")));
    }
    let mut differences = got.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
    match differences.next() {
        None => Ok(()),
        Some((at, (got, expected))) => {
            let more = differences.count();
            let text = format!(
                "{what}: element {at} is {got:?} instead of {expected:?}, {more} more differ"
            );
            Err(Failure::new(text))
        }
    }
}

/// Waits until something is so; passes the time without a sleep of its own.
#[track_caller]
pub(crate) fn until(
    what: &str,
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let place = std::panic::Location::caller();
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > patience {
            let (file, line) = (place.file(), place.line());
            let text = format!("{file}:{line}: {what} did not happen within {patience:?}");
            return Err(Failure::anywhere(text));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A reproducible sequence of numbers that look random (`SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
