//! Device memory that every launch needs: arguments and exception buffer.

use std::sync::{Arc, Mutex};

use et_devapi::abi::EXCEPTION_BUFFER_BYTES;
use et_devapi::msg::ops::{DmaReadNode, DmaWriteNode};
use et_hal::{DeviceAddr, Hal};

use crate::Result;
use crate::memory::{DeviceBuffer, DeviceMemory, DeviceSlice, HostBuffer};
use crate::shared::locked;

/// Arguments up to this many bytes are in the context; the exception buffer follows at this offset.
pub(crate) const MAX_SMALL_ARGS: usize = 4096;
/// Most contexts, and so most launches in flight.
const LIMIT: usize = 64;

/// The contexts of a device, made when needed and kept.
///
/// Two launches in flight never share one: firmware copies embedded arguments before the first kernel has ended
/// (Spec: §9.1), and writes the state of failed harts without asking whether the last one was read.
#[derive(Debug)]
pub(crate) struct Contexts {
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<DeviceBuffer>,
    made: usize,
}

/// What is given out.
pub(crate) enum Taken {
    /// Its exception buffer holds the pattern.
    Ready(LaunchContext),
    /// It must be filled with the pattern first.
    Fresh(LaunchContext),
    /// All are in use.
    NoneFree,
}

impl Contexts {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { pool: Mutex::default() })
    }

    pub(crate) fn take(self: &Arc<Self>, memory: &Arc<DeviceMemory>) -> Result<Taken> {
        let mut pool = locked(&self.pool);
        let context = |buffer| LaunchContext { buffer: Some(buffer), home: Arc::clone(self) };
        if let Some(buffer) = pool.free.pop() {
            return Ok(Taken::Ready(context(buffer)));
        }
        if pool.made == LIMIT {
            return Ok(Taken::NoneFree);
        }
        match memory.alloc((MAX_SMALL_ARGS + EXCEPTION_BUFFER_BYTES) as u64, 4096) {
            Ok(buffer) => {
                pool.made += 1;
                Ok(Taken::Fresh(context(buffer)))
            }
            // With at least one the launch only has to wait.
            Err(_) if pool.made != 0 => Ok(Taken::NoneFree),
            Err(error) => Err(error),
        }
    }
}

/// Arguments and exception buffer of one launch; goes back to the pool when dropped.
#[derive(Debug)]
pub(crate) struct LaunchContext {
    /// `None` after [`retire`](Self::retire).
    buffer: Option<DeviceBuffer>,
    home: Arc<Contexts>,
}

impl LaunchContext {
    pub(crate) fn args(&self) -> DeviceAddr {
        self.buffer().addr()
    }

    pub(crate) fn exceptions(&self) -> DeviceAddr {
        DeviceAddr::new(self.buffer().addr().as_u64() + MAX_SMALL_ARGS as u64)
    }

    pub(crate) fn slice(&self) -> DeviceSlice {
        self.buffer().whole()
    }

    /// The exception buffer as memory.
    pub(crate) fn exception_slice(&self) -> Result<DeviceSlice> {
        self.slice().slice(MAX_SMALL_ARGS as u64..)
    }

    /// The list that fetches the exception buffer.
    pub(crate) fn read_nodes<H: Hal>(&self, into: &HostBuffer<H>) -> Vec<DmaReadNode> {
        vec![DmaReadNode::new(into.bus_addr(), self.exceptions(), exception_bytes())]
    }

    /// The list that writes it.
    pub(crate) fn write_nodes<H: Hal>(&self, from: &HostBuffer<H>) -> Vec<DmaWriteNode> {
        vec![DmaWriteNode::new(from.bus_addr(), self.exceptions(), exception_bytes())]
    }

    /// Takes the context out of use, because its exception buffer could not be put in order.
    pub(crate) fn retire(mut self) {
        if self.buffer.take().is_some() {
            locked(&self.home.pool).made -= 1;
        }
    }

    fn buffer(&self) -> &DeviceBuffer {
        self.buffer.as_ref().unwrap_or_else(|| unreachable!("retiring consumes the context"))
    }
}

fn exception_bytes() -> u32 {
    u32::try_from(EXCEPTION_BUFFER_BYTES).unwrap_or(u32::MAX)
}

impl Drop for LaunchContext {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            locked(&self.home.pool).free.push(buffer);
        }
    }
}
