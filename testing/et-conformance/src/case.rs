//! What is checked.

use et_hal::Hal;

use crate::{Failure, Need, Rig, hal, runtime};

/// Whose promises a case checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Those of the traits of `et-hal`, which a backend implements.
    Hal,
    /// Those of the runtime on top of it.
    Runtime,
}

/// One check of a device; its name is a sentence behind the name of its group.
#[derive(Debug)]
pub struct Case<H: Hal> {
    /// `group::sentence`.
    pub name: &'static str,
    /// Whose promise it is.
    pub level: Level,
    /// What the device must have; else the case is ignored, with the reason.
    pub needs: &'static [Need],
    /// The check.
    pub run: fn(&Rig<H>) -> Result<(), Failure>,
}

impl<H: Hal> Clone for Case<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Hal> Copy for Case<H> {}

/// Returns all cases, in the order in which they run.
#[must_use]
pub fn cases<H: Hal>() -> Vec<Case<H>> {
    let mut cases = hal::cases();
    cases.extend(runtime::cases());
    cases
}

/// Lists functions of this module as cases of a group.
macro_rules! group {
    ($level:ident, $group:literal: $($case:ident $([$($need:expr),+])?,)+) => {
        /// The cases of this group.
        pub(crate) fn cases<H: et_hal::Hal>() -> Vec<$crate::Case<H>> {
            vec![$($crate::Case {
                name: concat!($group, "::", stringify!($case)),
                level: $crate::Level::$level,
                needs: &[$($($need),+)?],
                run: $case::<H>,
            }),+]
        }
    };
}

pub(crate) use group;
