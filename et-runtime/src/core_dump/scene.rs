//! What a launch was given, as far as a core dump needs it.

use std::path::Path;

use et_devapi::abi::compute_hart_index;
use et_hal::DeviceAddr;

use super::summary::CoreSummary;
use crate::memory::DeviceSlice;
use crate::sync::Arc;
use crate::trace::Trace;

/// The circumstances of a failed launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Shires of the launch.
    pub(crate) shires: u64,
    /// Device address of the first instruction.
    pub(crate) entry: u64,
    /// Where the arguments are; 0 if that is not known.
    pub(crate) args: u64,
    /// The arguments, if they went with the message.
    pub(crate) args_bytes: Vec<u8>,
    /// The memory of the launch, if it is to be kept. See [`Launch::dumpable`](crate::Launch).
    pub(crate) kept: Option<Kept>,
    /// It is kept until the report is dropped, and not only until the core file is written.
    pub(crate) is_dumpable: bool,
    /// Where the launch wants its core file.
    pub(crate) core_path: Option<Arc<Path>>,
    /// What was written there.
    pub(crate) core: Option<Arc<CoreSummary>>,
    /// What firmware said meanwhile, for the report alone.
    pub(crate) firmware: Trace,
    pub(crate) firmware_error: Option<Arc<str>>,
}

/// Memory that a failed launch keeps until its report is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) code: DeviceSlice,
    /// Arguments that were copied, buffers, and what else the launch named.
    pub(crate) uses: Vec<DeviceSlice>,
    pub(crate) stack: Option<StackArea>,
}

/// The stacks of a launch that has its own.
#[derive(Clone, Debug)]
pub(crate) struct StackArea {
    pub(crate) memory: DeviceSlice,
    pub(crate) bytes_per_hart: u64,
}

impl StackArea {
    /// Returns the stacks of harts with successive ids: they grow down, the one of the first hart
    /// is the topmost.
    ///
    /// Spec: §9.1
    pub(crate) fn of(&self, harts: &[u32]) -> Option<DeviceSlice> {
        let below_top = |hart: u32| {
            let index = compute_hart_index(hart)? as u64;
            self.memory.len_bytes().checked_sub(index * self.bytes_per_hart)
        };
        let end = below_top(*harts.first()?)?;
        let start = below_top(*harts.last()?)?.checked_sub(self.bytes_per_hart)?;
        self.memory.slice(start..end).ok()
    }
}

impl Scene {
    pub(crate) fn args_addr(&self) -> Option<DeviceAddr> {
        (self.args != 0).then(|| DeviceAddr::new(self.args))
    }
}
