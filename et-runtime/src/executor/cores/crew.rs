//! The harts that work on tasks.

use super::super::{ExecutorConfig, RunError};

/// The harts that work on tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Crew {
    pub(in super::super) shires: u64,
    /// With the coordinator.
    pub(in super::super) harts: u32,
}

impl Crew {
    /// As the configuration wants it, of shires that are `available`.
    pub(in super::super) fn new(available: u64, config: &ExecutorConfig) -> Result<Self, RunError> {
        let shires = config.shires.unwrap_or(available & available.wrapping_neg());
        if shires == 0 || shires & !available != 0 {
            return Err(RunError::Device(crate::Error::ShireMask { asked: shires, available }));
        }
        let all = et_devapi::abi::harts_in_mask(shires);
        let harts = config.cores.map_or(all, |cores| cores.saturating_add(1));
        if harts < 2 || harts > all {
            return Err(RunError::Unsupported {
                place: "cores",
                why: format!("{} workers asked, the shires have {}", harts - 1, all - 1),
            });
        }
        Ok(Self { shires, harts })
    }

    /// Without the coordinator.
    pub(in super::super) const fn workers(self) -> u32 {
        self.harts - 1
    }
}
