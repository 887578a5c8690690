//! What is launched, with what, and how.

use std::path::{Path, PathBuf};

use et_devapi::abi::{
    HARTS_PER_SHIRE, MASTER_SHIRE, STACK_UNIT, compute_hart_index, harts_in_mask,
};
use et_devapi::msg::ops::{self, MAX_LAUNCH_PAYLOAD, StackConfig, TraceConfig};
use et_hal::DeviceAddr;

use super::{ArrayAccess, Kernel, KernelArgs, ParameterKind};
use crate::memory::{Access, DeviceSlice, UsageError, User};
use crate::sync::Arc;
use crate::{Error, Result};

/// Longest argument block in bytes; what does not fit into the launch message is copied first.
pub const MAX_ARGS: usize = 1 << 20;

/// Where a kernel traces to.
#[derive(Clone, Debug)]
pub struct UserTrace {
    /// The buffer; its address and length are multiples of 64. Each traced hart gets an equal part
    /// of at least 64 bytes.
    pub buffer: DeviceSlice,
    /// Bytes of a part at which it counts as full, 0 for all.
    pub threshold: u32,
    /// Shires to trace.
    pub shire_mask: u64,
    /// Harts of each shire.
    pub thread_mask: u64,
    /// Kinds of entries. Spec: §16.2.
    pub event_mask: u32,
    /// Levels. Spec: §16.2.
    pub filter_mask: u32,
}

/// A launch: kernel, arguments and options.
#[derive(Clone, Debug)]
#[must_use]
pub struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) args: KernelArgs,
    pub(crate) uses: Vec<DeviceSlice>,
    /// Which of these it uses how, as far as that was said.
    pub(crate) declared: Vec<(usize, Access)>,
    pub(crate) shire_mask: Option<u64>,
    pub(crate) flush_l3: bool,
    pub(crate) stack_bytes: Option<u64>,
    pub(crate) trace: Option<UserTrace>,
    pub(crate) is_dumpable: bool,
    pub(crate) core_path: Option<Arc<Path>>,
}

/// What is known of a launch when it has been checked.
pub(crate) struct Checked {
    /// Without arguments and context.
    pub(crate) message: ops::Launch<'static>,
    pub(crate) trace: Option<Box<TraceConfig>>,
    /// Bytes of arguments that fit into the message.
    pub(crate) embedded_room: usize,
}

impl Launch {
    /// Launches `kernel` on all shires of the device, without arguments.
    pub fn new(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.clone(),
            args: KernelArgs::new(),
            uses: Vec::new(),
            declared: Vec::new(),
            shire_mask: None,
            flush_l3: false,
            stack_bytes: None,
            trace: None,
            is_dumpable: false,
            core_path: None,
        }
    }

    /// Adds the device address of a buffer to the arguments; the buffer stays alive until the
    /// launch has ended.
    pub fn buffer(mut self, buffer: impl Into<DeviceSlice>) -> Self {
        let slice = buffer.into();
        self.args = self.args.addr(slice.addr());
        self.uses.push(slice);
        self
    }

    fn declare(mut self, buffer: DeviceSlice, access: Access) -> Self {
        self.declared.push((self.uses.len(), access));
        self.buffer(buffer)
    }

    /// Adds a buffer as [`buffer`](Self::buffer) does, and says that the kernel reads it only. A
    /// buffer that kernels may not [use so](crate::Device::alloc_with) is refused by the launch.
    pub fn input(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.declare(buffer.into(), Access::Read)
    }

    /// The same, for a buffer that the kernel writes only.
    pub fn output(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.declare(buffer.into(), Access::Write)
    }

    /// The same, for a buffer that the kernel reads and writes.
    pub fn in_out(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.declare(buffer.into(), Access::Update)
    }

    /// Adds a scalar to the arguments, at its natural alignment, as C does.
    pub fn u32(mut self, value: u32) -> Self {
        self.args = self.args.u32(value);
        self
    }

    /// Adds a scalar to the arguments.
    pub fn u64(mut self, value: u64) -> Self {
        self.args = self.args.u64(value);
        self
    }

    /// Adds a scalar to the arguments.
    pub fn i32(mut self, value: i32) -> Self {
        self.args = self.args.i32(value);
        self
    }

    /// Adds a scalar to the arguments.
    pub fn i64(mut self, value: i64) -> Self {
        self.args = self.args.i64(value);
        self
    }

    /// Adds a scalar to the arguments.
    pub fn f32(mut self, value: f32) -> Self {
        self.args = self.args.f32(value);
        self
    }

    /// Replaces the arguments. Buffers whose addresses are in them are kept alive by
    /// [`keep`](Self::keep) or by the caller.
    pub fn args(mut self, args: KernelArgs) -> Self {
        self.args = args;
        self
    }

    /// Keeps a buffer alive until the launch has ended.
    pub fn keep(mut self, buffer: impl Into<DeviceSlice>) -> Self {
        self.uses.push(buffer.into());
        self
    }

    /// Runs on these shires only.
    pub fn shires(mut self, mask: u64) -> Self {
        self.shire_mask = Some(mask);
        self
    }

    /// Evicts the L3 before the kernel starts. Spec: §6, bit 4.
    pub fn flush_l3(mut self) -> Self {
        self.flush_l3 = true;
        self
    }

    /// Gives every hart a stack of at least `bytes`, instead of the default 4160. Spec: §9.1.
    pub fn stack_bytes(mut self, bytes: u64) -> Self {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Lets the kernel trace. Spec: §9.1, §16.
    pub fn trace(mut self, trace: UserTrace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// If the launch fails, its report keeps kernel, arguments, buffers and stacks alive, so that
    /// [`Device::core_dump`](crate::Device::core_dump) finds them as the kernel left them. Their
    /// memory is not free before the report, and all its copies, are gone.
    ///
    /// The host cannot read the default stacks; a launch with
    /// [`stack_bytes`](Self::stack_bytes) has its own.
    pub fn dumpable(mut self) -> Self {
        self.is_dumpable = true;
        self
    }

    /// If the launch fails, the runtime writes a [core file](crate::core_dump) to `path`, in place
    /// of what may be there, with all that [`dumpable`](Self::dumpable) keeps. The launch ends when
    /// the file is written, so that it is there when the event has failed; what is behind the
    /// launch in its stream does not wait for that, and may have changed buffers. The memory is
    /// then free again, unless the launch is dumpable too.
    ///
    /// [`LaunchFailure::core_file`](super::LaunchFailure::core_file) says what is in the file. What
    /// is not is listed as [`StreamError::NotDumped`](crate::StreamError); each copy from the
    /// device has [`Config::command_timeout`](crate::Config::command_timeout). Files of several
    /// launches are written one after the other; those to one path replace each other.
    ///
    /// ```no_run
    /// # // Runs in the tests of core files, which have a kernel that fails.
    /// # fn f<H: et_hal::Hal>(stream: &et_runtime::Stream<H>, kernel: &et_runtime::Kernel,
    /// # ) -> et_runtime::Result<()> {
    /// use et_runtime::Launch;
    /// let launch = Launch::new(kernel).stack_bytes(8192).core_dump("failed.core");
    /// stream.launch(&launch)?.wait(std::time::Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn core_dump(mut self, path: impl Into<PathBuf>) -> Self {
        self.core_path = Some(path.into().into());
        self
    }

    /// Returns the shires it runs on, checked against those of the device.
    fn checked_mask(&self, available: u64) -> Result<u64> {
        let asked = self.shire_mask.unwrap_or(available);
        if asked == 0 || asked & !available != 0 {
            return Err(Error::ShireMask { asked, available });
        }
        Ok(asked)
    }

    /// Checks it by the rules of the firmware, and against its kernel.
    ///
    /// # Errors
    /// [`Error::ShireMask`], [`Error::ArgumentsTooLarge`], [`Error::ArgumentsMismatch`],
    /// [`Error::Usage`], [`Error::LaunchOption`].
    pub(crate) fn check(&self, available_shires: u64) -> Result<Checked> {
        let shire_mask = self.checked_mask(available_shires)?;
        let len = self.args.as_bytes().len();
        if len > MAX_ARGS {
            return Err(Error::ArgumentsTooLarge { len, max: MAX_ARGS });
        }
        let kernel = &self.kernel.inner;
        if let Some(signature) = kernel.signature.as_ref().filter(|s| s.len_bytes() != len) {
            let (kernel, expected) = (Arc::clone(&kernel.program.name), signature.len_bytes());
            let signature = signature.to_string();
            return Err(Error::ArgumentsMismatch { kernel, found: len, expected, signature });
        }
        self.check_usage().map_err(|error| Error::Usage(Box::new(error)))?;
        let message = ops::Launch {
            entry: kernel.entry,
            args: None,
            exception_buffer: None,
            shire_mask,
            payload: &[],
        };
        let trace = self.checked_trace()?;
        let stack_bytes = self.stack_bytes.map_or(0, |_| size_of::<StackConfig>());
        let trace_bytes = trace.as_ref().map_or(0, |_| size_of::<TraceConfig>());
        let embedded_room = MAX_LAUNCH_PAYLOAD - trace_bytes - stack_bytes;
        Ok(Checked { message, trace, embedded_room })
    }

    /// Checks what it, or its kernel, says that it does with buffers.
    fn check_usage(&self) -> Result<(), UsageError> {
        if self.uses.iter().all(DeviceSlice::is_unlimited) {
            return Ok(());
        }
        for (used, access) in &self.declared {
            self.uses[*used].check_usage(User::Kernels, *access, "launch")?;
        }
        let signature = self.kernel.inner.signature.as_ref();
        let bytes = self.args.as_bytes();
        for parameter in signature.map_or(&[][..], |signature| signature.parameters()) {
            let ParameterKind::Array { access, .. } = parameter.kind else { continue };
            let address = bytes.get(parameter.offset..).and_then(|rest| rest.first_chunk());
            let Some(address) = address.map(|word| u64::from_le_bytes(*word)) else { continue };
            let is_here = |slice: &&DeviceSlice| {
                let start = slice.addr().as_u64();
                (start..start + slice.len_bytes()).contains(&address)
            };
            if let Some(slice) = self.uses.iter().find(is_here) {
                let access = match access {
                    ArrayAccess::In => Access::Read,
                    ArrayAccess::Out => Access::Write,
                    ArrayAccess::InOut => Access::Update,
                };
                slice.check_usage(User::Kernels, access, "launch")?;
            }
        }
        Ok(())
    }

    /// Checks the trace configuration by the rules of the firmware, which answers only "unexpected
    /// error".
    fn checked_trace(&self) -> Result<Option<Box<TraceConfig>>> {
        let Some(trace) = &self.trace else {
            return Ok(None);
        };
        let invalid = |why: String| Error::LaunchOption { option: "trace", why };
        let (addr, len) = (trace.buffer.addr(), trace.buffer.len_bytes());
        if !addr.is_aligned_to(64) || len % 64 != 0 {
            return Err(invalid(format!("buffer of {len} bytes at {addr} is not aligned to 64")));
        }
        let threads = trace.thread_mask.count_ones();
        let mut harts = (trace.shire_mask & 0xffff_ffff).count_ones() * threads;
        if trace.shire_mask >> MASTER_SHIRE & 1 != 0 {
            harts += (trace.thread_mask >> 32).count_ones();
        }
        if harts == 0 || len / u64::from(harts) < 64 {
            return Err(invalid(format!("{len} bytes for {harts} harts, each needs 64")));
        }
        Ok(Some(Box::new(TraceConfig {
            buffer: addr.as_u64().into(),
            buffer_size: u32::try_from(len)
                .map_err(|_| invalid(format!("buffer of {len} bytes is too large")))?
                .into(),
            threshold: trace.threshold.into(),
            shire_mask: trace.shire_mask.into(),
            thread_mask: trace.thread_mask.into(),
            event_mask: trace.event_mask.into(),
            filter_mask: trace.filter_mask.into(),
        })))
    }
}

/// The memory for stacks, and how to tell the firmware. Spec: §9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPlan {
    /// Bytes to allocate, aligned to [`STACK_UNIT`].
    pub(crate) total_bytes: u64,
    pub(crate) bytes_per_hart: u64,
    harts: u64,
}

impl StackPlan {
    /// Plans stacks of `bytes` for every hart of `mask`.
    ///
    /// Stacks are placed by the index of the hart among all compute harts, not among those of the
    /// launch, so there must be room for the highest one below the end of the configured area.
    pub(crate) fn new(bytes: u64, mask: u64) -> Result<Self> {
        let invalid = |why: String| Error::LaunchOption { option: "stack", why };
        let per_hart = bytes
            .max(STACK_UNIT)
            .checked_next_multiple_of(STACK_UNIT)
            .ok_or_else(|| invalid(format!("{bytes} bytes are too many")))?;
        let top_shire = 63 - mask.leading_zeros();
        let last_hart = top_shire * HARTS_PER_SHIRE + HARTS_PER_SHIRE - 1;
        let highest = compute_hart_index(last_hart)
            .ok_or_else(|| invalid(format!("shire {top_shire} does not exist")))?;
        let total_bytes = per_hart
            .checked_mul(highest as u64 + 1)
            // Firmware computes in 32 bits.
            .filter(|&total| total < 1 << 32)
            .ok_or_else(|| invalid(format!("{per_hart} bytes per hart exceed 4 GiB in all")))?;
        Ok(Self { total_bytes, bytes_per_hart: per_hart, harts: harts_in_mask(mask).into() })
    }

    /// The configuration for stacks at `addr`.
    pub(crate) fn config(&self, addr: DeviceAddr, host_base: DeviceAddr) -> Result<StackConfig> {
        let configured = self.bytes_per_hart * self.harts;
        let start = addr.as_u64() + self.total_bytes - configured - host_base.as_u64();
        let invalid = |why: &str| Error::LaunchOption { option: "stack", why: why.into() };
        if !start.is_multiple_of(STACK_UNIT) {
            return Err(invalid("memory is not aligned to 4096 bytes from its start"));
        }
        if start + configured >= 1 << 32 {
            return Err(invalid("memory is beyond the first 4 GiB, which firmware cannot express"));
        }
        let units = |bytes: u64| u32::try_from(bytes / STACK_UNIT).unwrap_or(u32::MAX);
        Ok(StackConfig {
            stack_base_offset: units(start).into(),
            stack_size: units(configured).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_a_mask_with_holes_leave_room_for_the_highest_shire() {
        let plan = StackPlan::new(5000, 0b1000).unwrap();
        assert_eq!(plan.total_bytes, 8192 * 256);
        let base = DeviceAddr::new(0x80_0580_1000);
        let config = plan.config(DeviceAddr::new(0x80_0580_3000), base).unwrap();
        // The 64 configured stacks are the top ones; the harts of shire 3 use the 64 lowest.
        assert_eq!(config.stack_size.get(), 2 * 64);
        assert_eq!(config.stack_base_offset.get(), 2 + 2 * 192);
    }

    #[test]
    fn stacks_beyond_what_firmware_can_express_are_refused() {
        assert!(matches!(
            StackPlan::new(4 << 20, 0xffff_ffff),
            Err(Error::LaunchOption { option: "stack", .. })
        ));
        assert!(StackPlan::new(u64::MAX, 1).is_err());
    }
}
