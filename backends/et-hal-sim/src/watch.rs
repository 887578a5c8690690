//! What the simulated card is told of its memory.

use std::sync::Arc;

use et_hal::{DeviceAddr, MemoryWatch, WatchedBuffer};
use et_sim_device::Buffers;

/// The buffers of a card that checks what kernels access.
#[derive(Debug)]
pub(crate) struct SimWatch(pub(crate) Arc<Buffers>);

impl MemoryWatch for SimWatch {
    fn allocated(&self, addr: DeviceAddr, len_bytes: u64) {
        self.0.allocated(addr.as_u64(), len_bytes);
    }

    fn read_only(&self, addr: DeviceAddr, len_bytes: u64) {
        self.0.read_only(addr.as_u64(), len_bytes);
    }

    fn freed(&self, addr: DeviceAddr) {
        self.0.freed(addr.as_u64());
    }

    fn nearest(&self, addr: DeviceAddr) -> Option<WatchedBuffer> {
        self.0.nearest(addr.as_u64()).map(|buffer| WatchedBuffer {
            addr: DeviceAddr::new(buffer.addr),
            len_bytes: buffer.len,
            is_freed: buffer.is_freed,
        })
    }
}
