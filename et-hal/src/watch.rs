//! What a checker of kernels wants to know of device memory.

use core::fmt;

use crate::DeviceAddr;

/// Takes note of what device memory is in use for, to find kernels that touch anything else.
///
/// Host software that hands device memory out tells what it hands out. A device that checks nothing
/// has none: see [`Hal::watch_memory`](crate::Hal::watch_memory).
///
/// # For HAL authors
///
/// A watch is told of its own memory only. A new one replaces all earlier ones, which may still be
/// told of memory that is given back, and have no effect on the device any more.
pub trait MemoryWatch: fmt::Debug + Send + Sync {
    /// Takes note of a buffer: kernels may use its bytes from now on. Nothing has written them yet.
    fn allocated(&self, addr: DeviceAddr, len_bytes: u64);

    /// Takes note that kernels may not write a part of a buffer.
    fn read_only(&self, addr: DeviceAddr, len_bytes: u64);

    /// Takes note that the buffer at an address is not in use any more.
    fn freed(&self, addr: DeviceAddr);

    /// Returns the buffer that is the nearest to an address, to explain a fault there; one that is
    /// freed only if the address is in it. `None` if there is no buffer at all.
    fn nearest(&self, addr: DeviceAddr) -> Option<WatchedBuffer>;
}

/// A buffer that a [`MemoryWatch`] was told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchedBuffer {
    /// Its first byte.
    pub addr: DeviceAddr,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// It has been freed.
    pub is_freed: bool,
}

impl fmt::Display for WatchedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freed = if self.is_freed { "freed " } else { "" };
        write!(f, "the {freed}buffer of {} bytes at {}", self.len_bytes, self.addr)
    }
}
