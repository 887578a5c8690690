//! What a launch needs of a kernel.

use std::sync::Arc;

use et_hal::DeviceAddr;

use super::{KernelImage, Program, Signature};
use crate::memory::DeviceSlice;
use crate::profile::Profiler;
use crate::sync::{AtomicU32, Ordering};

/// Name of the function that kernels export to be used as tasks: `int64_t et_task(const struct args
/// *, const struct kernel_environment *, uint64_t part, uint64_t parts)`.
const TASK_SYMBOL: &str = "et_task";

#[derive(Debug)]
pub(crate) struct KernelInner {
    pub(crate) program: Arc<Program>,
    pub(crate) entry: DeviceAddr,
    /// The function that does a part of the work as a task, if the kernel has one.
    pub(crate) task: Option<DeviceAddr>,
    /// What its file says about its arguments.
    pub(crate) signature: Option<Signature>,
    /// The memory of its image.
    pub(crate) code: DeviceSlice,
    /// Its number in profiles, once it has one.
    number: AtomicU32,
}

impl KernelInner {
    pub(crate) fn new(
        name: Arc<str>,
        layout: &KernelImage,
        entry_offset: u64,
        code: DeviceSlice,
        elf: Arc<[u8]>,
    ) -> Self {
        let task = layout.entry(Some(TASK_SYMBOL)).ok();
        let load = code.addr().as_u64();
        let bias = load.wrapping_sub(layout.link_base());
        let program = Program::new(name, load..load + code.len_bytes(), bias, elf);
        let entry = DeviceAddr::new(load.wrapping_add(entry_offset));
        let task = task.map(|offset| DeviceAddr::new(load.wrapping_add(offset)));
        let signature = layout.signature().cloned();
        let number = AtomicU32::new(0);
        Self { program: Arc::new(program), entry, task, signature, code, number }
    }

    /// Returns its number in the profiles of its device.
    pub(crate) fn number(&self, profiler: &Profiler) -> u32 {
        // Relaxed: it is the same for all who ask.
        match self.number.load(Ordering::Relaxed) {
            0 => {
                let number = profiler.kernel_number(&self.program.name);
                self.number.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }
}
