//! The memory that a device may ask for by message.

use rustix::io::Errno;

/// Memory of the client, for devices that cannot or may not map it.
///
/// The device chooses addresses and lengths: the implementor checks that the range is mapped and
/// that the access is allowed. Calls come from a thread of the
/// client's own, one at a time, also while other threads wait for answers.
pub trait HostMemory: Send + Sync + 'static {
    /// Reads bus addresses from `address` on.
    ///
    /// # Errors
    /// Any errno, by custom `EFAULT` outside all windows and `EPERM` against their access.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Writes bus addresses from `address` on.
    ///
    /// # Errors
    /// As for [`HostMemory::read`].
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno>;
}

/// No memory by message: every access is refused with `EFAULT`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHostMemory;

impl HostMemory for NoHostMemory {
    fn read(&self, _address: u64, _into: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn write(&self, _address: u64, _from: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }
}
