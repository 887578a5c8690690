//! Launching.

use std::sync::Arc;

use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL};
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{DmaWriteNode, MAX_LAUNCH_PAYLOAD};
use et_hal::{DeviceAccess, DeviceAddr, Dma, Hal};

use crate::command::{Keep, LaunchWire, Launched, Then, Wire};
use crate::kernel::{Launch, LaunchContext, MAX_ARGS, MAX_SMALL_ARGS, StackPlan, Taken};
use crate::memory::HostBuffer;
use crate::shared::{Shared, locked};
use crate::stream::Turn;
use crate::{Error, Result};

impl<H: Hal> Shared<H> {
    /// Shires that kernels can run on. Spec: §9.3; the master shire cannot be expressed in the mask.
    pub(crate) fn available_shires(&self) -> u64 {
        self.layout.mgmt.header.cm_shires_mask.get().into()
    }

    /// A host buffer for a copy of an exception buffer.
    pub(crate) fn exception_copy(&self) -> Result<HostBuffer<H>> {
        if let Some(buffer) = locked(&self.exception_copies).pop() {
            return Ok(buffer);
        }
        self.host_buffer(EXCEPTION_BUFFER_BYTES)
    }

    pub(crate) fn host_buffer(&self, len_bytes: usize) -> Result<HostBuffer<H>> {
        let buffer = self.hal.dma().alloc(len_bytes.max(1), DeviceAccess::ReadWrite);
        Ok(HostBuffer::new(buffer.map_err(Error::hal("allocating host memory"))?, len_bytes))
    }
}

impl<H: Hal> Turn<'_, H> {
    pub(crate) fn launch(&mut self, launch: &Launch) -> Result<()> {
        let shared = Arc::clone(self.shared());
        if let Some(error) = shared.compute_refusal() {
            return Err(error);
        }
        let shire_mask = launch.checked_mask(shared.available_shires())?;
        let mut uses = launch.uses.clone();
        let kernel_code = launch.kernel.inner.code.whole();
        if uses.iter().chain([&kernel_code]).any(|slice| !slice.belongs_to(&shared.memory)) {
            return Err(Error::ForeignBuffer);
        }
        let bytes = launch.args.as_bytes();
        if bytes.len() > MAX_ARGS {
            return Err(Error::ArgumentsTooLarge { len: bytes.len(), max: MAX_ARGS });
        }
        let trace = launch.checked_trace()?;
        if let Some(trace) = &launch.trace {
            if !trace.buffer.belongs_to(&shared.memory) {
                return Err(Error::ForeignBuffer);
            }
            uses.push(trace.buffer.clone());
        }
        let stack = match launch.stack_bytes {
            None => None,
            Some(bytes) => {
                let plan = StackPlan::new(bytes, shire_mask)?;
                let memory = shared.memory.alloc(plan.total_bytes, 4096)?;
                let config = plan.config(memory.addr(), shared.layout.host_managed.base)?;
                uses.push(memory.whole());
                Some(config)
            }
        };
        let context = self.context()?;
        let mut embedded = [0; MAX_LAUNCH_PAYLOAD];
        let mut embedded_len = 0;
        let mut args = context.args();
        if bytes.len() <= launch.embedded_room() {
            embedded[..bytes.len()].copy_from_slice(bytes);
            embedded_len = bytes.len();
        } else {
            args = self.send_args(bytes, &context, &mut uses)?;
            self.require_barrier();
        }
        let wire = Wire::Launch(LaunchWire {
            entry: launch.kernel.inner.entry,
            args,
            exception_buffer: context.exceptions(),
            shire_mask,
            trace,
            stack,
            embedded,
            embedded_len,
        });
        // Set once; a second launch of the same operation does not exist.
        drop(self.operation.exceptions.set(context.exception_slice()?));
        let flags = if launch.flush_l3 { CommandFlags::FLUSH_L3 } else { CommandFlags::EMPTY };
        let kernel = Arc::clone(&launch.kernel.inner);
        self.send(flags, wire, Then::Launch(Box::new(Launched { context, kernel, _uses: uses })))
    }

    /// Copies arguments that do not fit into the message; returns where they will be.
    fn send_args(
        &mut self,
        bytes: &[u8],
        context: &LaunchContext,
        uses: &mut Vec<crate::memory::DeviceSlice>,
    ) -> Result<DeviceAddr> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(8), 0);
        let len = padded.len() as u64;
        let place = if padded.len() <= MAX_SMALL_ARGS {
            context.slice().slice(..len)?
        } else {
            self.shared().memory.alloc(len, 64)?.whole()
        };
        self.upload(&padded, &place)?;
        let addr = place.addr();
        uses.push(place);
        Ok(addr)
    }

    /// Waits for a launch context; fills the exception buffer of a new one.
    fn context(&mut self) -> Result<LaunchContext> {
        let shared = Arc::clone(self.shared());
        let mut idle = 0;
        loop {
            match shared.contexts.take(&shared.memory)? {
                Taken::Ready(context) => return Ok(context),
                Taken::Fresh(context) => return self.prepare(context),
                Taken::NoneFree => {}
            }
            if let Some(error) = shared.refusal() {
                return Err(error);
            }
            if self.deadline.has_passed(&*shared.config.clock) {
                let after = self.deadline.limit();
                return Err(Error::Timeout { op: "waiting for an earlier launch", after });
            }
            shared.step(&mut idle, self.deadline);
        }
    }

    /// The launch itself gets a barrier, so that the pattern is there first. Spec: §15.
    fn prepare(&mut self, context: LaunchContext) -> Result<LaunchContext> {
        let shared = Arc::clone(self.shared());
        let made = locked(&shared.pattern).clone();
        let pattern = match made {
            Some(pattern) => pattern,
            None => {
                let mut buffer = shared.host_buffer(EXCEPTION_BUFFER_BYTES)?;
                buffer.fill(0, EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL)?;
                let pattern = crate::memory::Lease::new(buffer);
                *locked(&shared.pattern) = Some(Arc::clone(&pattern));
                pattern
            }
        };
        let nodes: Vec<DmaWriteNode> =
            pattern.with(|buffer| context.write_nodes(buffer)).unwrap_or_default();
        let keep = Keep::Lease { _host: pattern, _device: context.slice() };
        if let Err(error) = self.send(CommandFlags::EMPTY, Wire::DmaWrite(nodes), Then::Check(keep))
        {
            context.retire();
            return Err(error);
        }
        self.require_barrier();
        Ok(context)
    }
}
