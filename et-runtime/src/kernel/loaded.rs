//! Kernels on the device.

use std::sync::Arc;

use et_hal::DeviceAddr;

use super::{Image, KernelInner, Location, Signature};
use crate::{Error, Result};

/// A kernel in device memory, ready to be launched.
///
/// Clones are the same kernel. Its memory is freed when the last clone is gone and no launch is in
/// flight; other kernels that [share it](crate::Device::load_module) keep it, too.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) inner: Arc<KernelInner>,
    pub(crate) image: Arc<Image>,
}

impl Kernel {
    /// Returns the name it was loaded with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.program.name
    }

    /// Returns the device address of its first instruction.
    #[must_use]
    pub fn entry(&self) -> DeviceAddr {
        self.inner.entry
    }

    /// Returns the device address of its function `et_task`, by which a single hart runs it as a
    /// task of a graph; `None` if it has none, and can only be launched.
    #[must_use]
    pub fn task_entry(&self) -> Option<DeviceAddr> {
        self.inner.task
    }

    /// Returns what its file says about its arguments; `None` if it says nothing, and anything is
    /// passed on.
    #[must_use]
    pub fn signature(&self) -> Option<&Signature> {
        self.inner.signature.as_ref()
    }

    /// Returns where it was loaded.
    #[must_use]
    pub fn load_address(&self) -> DeviceAddr {
        self.inner.code.addr()
    }

    /// Returns the bytes it occupies in device memory.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.inner.code.len_bytes()
    }

    /// Finds the function and source line of a device address; `None` if it is not in this kernel.
    #[must_use]
    pub fn locate(&self, pc: u64) -> Option<Location> {
        self.inner.program.locate(pc)
    }

    /// Frees the kernel now, with its memory if no other kernel shares it.
    ///
    /// # Errors
    /// [`Error::KernelInUse`] while launches are in flight or clones exist; the kernel stays.
    pub fn unload(self) -> Result<(), (Self, Error)> {
        match Arc::try_unwrap(self.inner) {
            Ok(_) => Ok(()),
            Err(inner) => {
                let error = Error::KernelInUse { name: Arc::clone(&inner.program.name) };
                Err((Self { inner, image: self.image }, error))
            }
        }
    }
}
