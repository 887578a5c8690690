//! What a case needs and what a device has.

use std::fmt;
use std::str::FromStr;

use et_devapi::pci::DRAM_BAR;
use et_hal::{AccessPath, BarOffset, Hal, Mmio, Reset, ResetScope};
use et_runtime::Device;

/// Something that a case needs and that not every device or backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// That many shires.
    Shires(u32),
    /// That many bytes of device memory for the user.
    Memory(u64),
    /// The transport resets the PCI function.
    FunctionReset,
    /// The host may use device memory, and it is mapped, so that accesses need no message.
    CpuAccess,
    /// Launches can be aborted.
    Abort,
    /// Kernels are executed, not only answered.
    Compute,
    /// What the device may do with a buffer is enforced.
    AccessControl,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shires(count) => write!(f, "{count} shires"),
            Self::Memory(bytes) => write!(f, "{bytes} bytes of device memory"),
            Self::FunctionReset => f.write_str("function resets"),
            Self::CpuAccess => f.write_str("mapped device memory for the host"),
            Self::Abort => f.write_str("aborts of launches"),
            Self::Compute => f.write_str("kernels that are executed"),
            Self::AccessControl => f.write_str("enforced access rights of buffers"),
        }
    }
}

/// Something a device lacks that it cannot be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// Launches cannot be aborted.
    Abort,
    /// Kernels end at once.
    Compute,
    /// No IOMMU, or one that lets everything pass.
    AccessControl,
}

/// There is no such lack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown lack \"{0}\"; there are abort, compute and access-control")]
pub struct UnknownLack(String);

impl FromStr for Lack {
    type Err = UnknownLack;

    fn from_str(name: &str) -> Result<Self, UnknownLack> {
        match name {
            "abort" => Ok(Self::Abort),
            "compute" => Ok(Self::Compute),
            "access-control" => Ok(Self::AccessControl),
            _ => Err(UnknownLack(name.to_owned())),
        }
    }
}

/// What the device and its backend say about themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Shires for kernels.
    pub shires: u32,
    /// Device memory for the user, in bytes.
    pub memory_bytes: u64,
    /// The transport resets the PCI function.
    pub function_reset: bool,
    /// BAR0 is mapped, and the registers let the host use device memory.
    pub cpu_access: bool,
}

impl Facts {
    /// Asks an open device.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn of<H: Hal>(device: &Device<H>) -> Result<Self, H::Error> {
        let properties = device.properties();
        let hal = device.hal();
        let path = hal.window(DRAM_BAR)?.path(BarOffset::new(0), properties.global_memory_bytes);
        Ok(Self {
            shires: properties.shires,
            memory_bytes: properties.global_memory_bytes,
            function_reset: hal.reset()?.loss(ResetScope::Function).is_some(),
            cpu_access: properties.cpu_access && path == AccessPath::Direct,
        })
    }

    /// Returns why the need is not met.
    pub(crate) fn missing(&self, lacks: &[Lack], need: Need) -> Option<String> {
        let unless = |met: bool, has: String| (!met).then(|| format!("needs {need}, {has}"));
        let none = || "the device has none".to_owned();
        match need {
            Need::Shires(count) => {
                unless(self.shires >= count, format!("the device has {}", self.shires))
            }
            Need::Memory(bytes) => {
                unless(self.memory_bytes >= bytes, format!("the device has {}", self.memory_bytes))
            }
            Need::FunctionReset => unless(self.function_reset, none()),
            Need::CpuAccess => unless(self.cpu_access, none()),
            Need::Abort => unless(!lacks.contains(&Lack::Abort), none()),
            Need::Compute => unless(!lacks.contains(&Lack::Compute), none()),
            Need::AccessControl => unless(!lacks.contains(&Lack::AccessControl), none()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let facts =
            Facts { shires: 2, memory_bytes: 1 << 30, function_reset: false, cpu_access: true };
        assert_eq!(facts.missing(&[], Need::Shires(2)), None);
        let why = facts.missing(&[], Need::Shires(3)).unwrap();
        assert_eq!(why, "needs 3 shires, the device has 2");
        assert_eq!(facts.missing(&[], Need::Memory(1 << 30)), None);
        assert!(facts.missing(&[], Need::Memory(1 << 31)).is_some());
        assert!(facts.missing(&[], Need::FunctionReset).is_some());
        assert_eq!(facts.missing(&[], Need::CpuAccess), None);
        assert_eq!(facts.missing(&[], Need::Compute), None);
        assert!(facts.missing(&[Lack::Compute], Need::Compute).is_some());
        assert_eq!(facts.missing(&[Lack::Compute], Need::Abort), None);
    }

    #[test]
    fn lacks_have_names() {
        assert_eq!("access-control".parse(), Ok(Lack::AccessControl));
        assert!("iommu".parse::<Lack>().unwrap_err().to_string().contains("access-control"));
    }
}
