//! Device memory that every launch needs: arguments and exception buffer.

use et_devapi::abi::EXCEPTION_BUFFER_BYTES;
use et_devapi::msg::ops::{DmaReadNode, DmaWriteNode};
use et_hal::{DeviceAddr, Hal};

use crate::Result;
use crate::memory::{DeviceBuffer, DeviceMemory, DeviceSlice, HostBuffer};
use crate::sync::Arc;

/// Room for arguments inside the launch message, which firmware copies here; the exception buffer
/// follows.
const ARGS_BYTES: usize = 4096;

/// Arguments and exception buffer of one launch.
///
/// Two launches in flight never share one: firmware copies embedded arguments before the first
/// kernel has ended (Spec: §9.1), and writes the state of failed harts without asking whether the
/// last one was read.
#[derive(Debug)]
pub(crate) struct LaunchContext {
    buffer: DeviceBuffer,
}

impl LaunchContext {
    /// Allocates one. Its exception buffer has no pattern yet. Spec: §15.
    pub(crate) fn new(memory: &Arc<DeviceMemory>) -> Result<Self> {
        let buffer = memory.alloc((ARGS_BYTES + EXCEPTION_BUFFER_BYTES) as u64, 4096)?;
        let context = Self { buffer };
        memory.read_only(context.exceptions(), EXCEPTION_BUFFER_BYTES as u64);
        Ok(context)
    }

    pub(crate) fn args(&self) -> DeviceAddr {
        self.buffer.addr()
    }

    pub(crate) fn exceptions(&self) -> DeviceAddr {
        DeviceAddr::new(self.buffer.addr().as_u64() + ARGS_BYTES as u64)
    }

    /// The exception buffer as memory.
    pub(crate) fn exception_slice(&self) -> DeviceSlice {
        match self.buffer.slice(ARGS_BYTES as u64..) {
            Ok(slice) => slice,
            Err(error) => unreachable!("it was allocated with room for it: {error}"),
        }
    }

    /// What fetches the exception buffer.
    pub(crate) fn read_node<H: Hal>(&self, into: &HostBuffer<H>) -> DmaReadNode {
        DmaReadNode::new(into.bus_addr(), self.exceptions(), exception_bytes())
    }

    /// What writes it.
    pub(crate) fn write_node<H: Hal>(&self, from: &HostBuffer<H>) -> DmaWriteNode {
        DmaWriteNode::new(from.bus_addr(), self.exceptions(), exception_bytes())
    }
}

fn exception_bytes() -> u32 {
    u32::try_from(EXCEPTION_BUFFER_BYTES).unwrap_or(u32::MAX)
}
