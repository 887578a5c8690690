//! Kernels that the runtime brings along.

use super::{Kernel, Launch, Module};
use crate::memory::Access;
use crate::memory::DeviceSlice;
use crate::sync::Arc;
use crate::{Error, Result};

/// Built from `testing/kernels/src/builtins.c`.
pub(crate) const FILE: &[u8] = include_bytes!("builtins.elf");

/// A kernel that the runtime brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its arguments in their order: type and name of each, as in C.
    pub arguments: &'static [&'static str],
    /// What it does.
    pub about: &'static str,
}

const BUILTINS: [(Builtin, &str); 2] = [
    (
        Builtin {
            name: "copy",
            arguments: &["uint8_t *dst", "uint64_t n", "const uint8_t *src"],
            about: "copies n bytes that do not overlap, at any addresses",
        },
        "et_copy",
    ),
    (
        Builtin {
            name: "fill",
            arguments: &["uint8_t *dst", "uint64_t n", "uint8_t pattern[16]"],
            about: "repeats a pattern of 16 bytes over n bytes, at any address",
        },
        "et_fill",
    ),
];

/// The kernels that the runtime brings along, on a device.
///
/// Made by [`Device::builtins`](crate::Device::builtins). They are executed by the cores: no data
/// goes through the host, but they wait for kernels that run, as every launch does.
#[derive(Debug)]
pub struct Builtins {
    module: Module,
}

impl Builtins {
    /// Every one there is.
    pub fn list() -> impl ExactSizeIterator<Item = Builtin> {
        BUILTINS.into_iter().map(|(builtin, _)| builtin)
    }

    pub(crate) fn new(module: Module) -> Self {
        Self { module }
    }

    /// Returns a kernel by its name, to be launched with the arguments that the
    /// [list](Self::list) says.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is none of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let why = "no kernel of that name is built in";
        let found = BUILTINS.iter().find(|(builtin, _)| builtin.name == name);
        let (_, function) = found.ok_or(Error::Unsupported { op: "builtin kernel", why })?;
        Ok(self.module.entry(format!("builtin:{name}").into(), Some(function))?)
    }

    /// Prepares a copy within the device's memory, for [`Stream::launch`](crate::Stream::launch).
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Overlap`]; [`Error::ForeignBuffer`]; [`Error::Stale`].
    pub fn copy(&self, from: impl Into<DeviceSlice>, to: impl Into<DeviceSlice>) -> Result<Launch> {
        let (from, to) = (from.into(), to.into());
        let len = from.len_bytes();
        if len != to.len_bytes() {
            return Err(Error::LengthMismatch { from: len, to: to.len_bytes() });
        }
        if !Arc::ptr_eq(from.memory(), to.memory()) {
            return Err(from.memory().foreign());
        }
        if len != 0 && from.overlaps(&to) {
            return Err(Error::Overlap { src: from.addr(), dst: to.addr(), len });
        }
        Ok(Launch::new(&self.kernel("copy")?).output(to).u64(len).input(from))
    }

    /// Prepares a fill of device memory, as [`Stream::fill_pattern`](crate::Stream::fill_pattern)
    /// does it, but from any byte to any byte.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a pattern that has not 1, 2, 4, 8 or 16 bytes.
    pub fn fill(&self, to: impl Into<DeviceSlice>, pattern: &[u8]) -> Result<Launch> {
        check_pattern(pattern)?;
        let to = to.into();
        let len = to.len_bytes();
        let pattern = pattern.repeat(16 / pattern.len());
        let args = super::KernelArgs::new().addr(to.addr()).u64(len).bytes(&pattern, 1);
        let mut launch = Launch::new(&self.kernel("fill")?).args(args).keep(to);
        launch.declared.push((0, Access::Write));
        Ok(launch)
    }
}

/// Checks the length of a pattern that memory is filled with.
pub(crate) fn check_pattern(pattern: &[u8]) -> Result<()> {
    if matches!(pattern.len(), 1 | 2 | 4 | 8 | 16) {
        return Ok(());
    }
    Err(Error::Unsupported { op: "fill", why: "a pattern has 1, 2, 4, 8 or 16 bytes" })
}
