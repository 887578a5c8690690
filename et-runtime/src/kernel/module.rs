//! Kernel files from which kernels come.

use et_hal::DeviceAddr;

use super::{ElfError, Image, Kernel, KernelImage, KernelInner};
use crate::sync::Arc;
use crate::{Error, LoadError};

/// A kernel file on the device, from which kernels with different entries come.
///
/// Made by [`Device::load_module`](crate::Device::load_module). Kernels keep the image alive, the
/// module itself need not live as long. The image is freed when the last kernel is gone and no
/// launch is in flight.
#[derive(Debug)]
pub struct Module {
    pub(crate) name: Arc<str>,
    pub(crate) layout: KernelImage,
    pub(crate) image: Arc<Image>,
}

impl Module {
    /// Returns the name it was loaded with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns where it was loaded.
    #[must_use]
    pub fn load_address(&self) -> DeviceAddr {
        self.image.code.addr()
    }

    /// Returns the bytes it occupies in device memory.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.image.code.len_bytes()
    }

    /// Returns the kernel that starts at the entry the file names. It has the name of the module.
    ///
    /// # Errors
    /// [`LoadError::Elf`] if that is not in its code.
    pub fn kernel(&self) -> Result<Kernel, LoadError> {
        self.entry(Arc::clone(&self.name), None)
    }

    /// Returns the kernel that starts at a function, which firmware calls as it calls the entry of
    /// a file: with the address of the arguments, and a stack. It is named `module:function`.
    ///
    /// # Errors
    /// [`LoadError::Elf`] if the file has no such symbol, or it is not code.
    ///
    /// Spec: §9.2
    pub fn function(&self, function: &str) -> Result<Kernel, LoadError> {
        self.entry(format!("{}:{function}", self.name).into(), Some(function))
    }

    pub(crate) fn entry(
        &self,
        name: Arc<str>,
        function: Option<&str>,
    ) -> Result<Kernel, LoadError> {
        let entry = self.layout.entry(function).map_err(|error| refused(&name, error))?;
        let image = Arc::clone(&self.image);
        let (code, elf) = (image.code.clone(), Arc::clone(&image.elf));
        let inner = Arc::new(KernelInner::new(name, &self.layout, entry, code, elf));
        Ok(Kernel { inner, image })
    }
}

pub(crate) fn refused(name: &Arc<str>, error: ElfError) -> LoadError {
    LoadError::Elf { name: Arc::clone(name), source: Arc::new(error) }
}

pub(crate) fn failed(name: &Arc<str>) -> impl Fn(Error) -> LoadError {
    |error| LoadError::Device { name: Arc::clone(name), source: Box::new(error) }
}
