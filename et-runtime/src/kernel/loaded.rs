//! Kernels on the device.

use std::sync::{Arc, OnceLock};

use et_hal::DeviceAddr;

use super::{KernelImage, Location, Symbols};
use crate::memory::DeviceBuffer;
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct KernelInner {
    pub(crate) name: Arc<str>,
    pub(crate) entry: DeviceAddr,
    pub(crate) code: DeviceBuffer,
    /// Load address minus link address.
    bias: u64,
    elf: Arc<[u8]>,
    /// Parsed only when something has to be explained.
    symbols: OnceLock<Symbols>,
}

impl KernelInner {
    pub(crate) fn new(
        name: &str,
        elf: Arc<[u8]>,
        image: &KernelImage,
        entry_offset: u64,
        code: DeviceBuffer,
    ) -> Self {
        let load = code.addr().as_u64();
        Self {
            name: name.into(),
            entry: DeviceAddr::new(load.wrapping_add(entry_offset)),
            bias: load.wrapping_sub(image.link_base()),
            code,
            elf,
            symbols: OnceLock::new(),
        }
    }

    /// Finds the function and source line of a device address; `None` if it is not in this kernel.
    pub(crate) fn locate(&self, pc: u64) -> Option<Location> {
        let offset = pc.checked_sub(self.code.addr().as_u64())?;
        if offset >= self.code.len_bytes() {
            return None;
        }
        let symbols = self.symbols.get_or_init(|| Symbols::parse(&self.elf));
        Some(symbols.locate(pc.wrapping_sub(self.bias)))
    }
}

/// A kernel in device memory, ready to be launched.
///
/// Clones are the same kernel. Its memory is freed when the last clone is gone and no launch is in flight.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) inner: Arc<KernelInner>,
}

impl Kernel {
    /// Returns the name it was loaded with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the device address of its first instruction.
    #[must_use]
    pub fn entry(&self) -> DeviceAddr {
        self.inner.entry
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
        self.inner.locate(pc)
    }

    /// Frees the kernel now.
    ///
    /// # Errors
    /// [`Error::KernelInUse`] while launches are in flight or clones exist; the kernel stays.
    pub fn unload(self) -> Result<(), (Self, Error)> {
        match Arc::try_unwrap(self.inner) {
            Ok(_) => Ok(()),
            Err(inner) => {
                let error = Error::KernelInUse { name: Arc::clone(&inner.name) };
                Err((Self { inner }, error))
            }
        }
    }
}
