//! A function through the kernel's own calls.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::str::FromStr;

use crate::event::Event;
use crate::function::{Access, Function, Region};
use crate::mapping::Mapping;
use crate::memory::Memory;
use crate::sys::{Plain, Structure, device, plain, set_container, structure};
use crate::sysfs::Sysfs;

/// IOMMU kinds of a container.
const TYPE1_V2: usize = 3;
const NO_IOMMU: usize = 8;
/// A group's devices are all in the hands of VFIO.
const VIABLE: u32 = 1;
/// A region can be mapped.
const MMAP: u32 = 4;
/// Flags of an interrupt call: what comes with it, and what it does.
const DATA_NONE: u32 = 1;
const DATA_EVENTFD: u32 = 4;
const TRIGGER: u32 = 32;
/// Flags of a container's mapping.
const READ: u32 = 1;
const WRITE: u32 = 2;
/// Flags of an iommufd mapping.
const IOAS_FIXED: u32 = 1;
const IOAS_WRITE: u32 = 2;
const IOAS_READ: u32 = 4;

/// How the kernel gives access to a function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// A group in a container.
    Group,
    /// The function's own file, with iommufd.
    Cdev,
    /// A group without IOMMU: bus addresses are physical.
    NoIommu,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "group" => Ok(Self::Group),
            "cdev" => Ok(Self::Cdev),
            "noiommu" => Ok(Self::NoIommu),
            _ => Err(format!("no mode {text}; there are group, cdev and noiommu")),
        }
    }
}

/// A function, opened by the kernel's calls.
#[derive(Debug)]
pub struct Kernel {
    // The order is that of closing: a group is busy while its device is open.
    device: File,
    _group: Option<File>,
    dma: Translation,
}

/// What maps memory for the device.
#[derive(Debug)]
enum Translation {
    Container(File),
    Ioas { iommufd: File, id: u32 },
    None { _container: File },
}

fn open(path: &str) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| Error::new(error.kind(), format!("{path}: {error}")))
}

fn named<T>(call: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| Error::new(error.kind(), format!("{call}: {error}")))
}

/// The halves of a wide field.
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn whole(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn wide(len: usize) -> Result<u64> {
    u64::try_from(len).map_err(Error::other)
}

fn number(fd: &impl AsRawFd) -> u32 {
    // Descriptors of a living file are not negative.
    fd.as_raw_fd().unsigned_abs()
}

impl Kernel {
    /// Opens a function that is in the hands of `vfio-pci`.
    ///
    /// # Errors
    /// Names the file or the call that was refused.
    pub fn open(at: &Sysfs, mode: Mode) -> Result<Self> {
        match mode {
            Mode::Group => Self::open_group(at, &at.group()?, TYPE1_V2),
            Mode::NoIommu => Self::open_group(at, &format!("noiommu-{}", at.group()?), NO_IOMMU),
            Mode::Cdev => Self::open_cdev(at),
        }
    }

    fn open_group(at: &Sysfs, name: &str, kind: usize) -> Result<Self> {
        let container = open("/dev/vfio/vfio")?;
        if plain(container.as_fd(), Plain::ApiVersion, 0)? != 0 {
            return Err(Error::other("VFIO has another version"));
        }
        if plain(container.as_fd(), Plain::CheckExtension, kind)? == 0 {
            return Err(Error::other(format!("the container knows no IOMMU of kind {kind}")));
        }
        let group = open(&format!("/dev/vfio/{name}"))?;
        let mut status = [0; 2];
        named("group status", structure(group.as_fd(), Structure::GroupStatus, &mut status))?;
        if status[1] & VIABLE == 0 {
            return Err(Error::other("the group has a device that VFIO does not have"));
        }
        named("set container", set_container(group.as_fd(), container.as_fd()))?;
        named("set IOMMU", plain(container.as_fd(), Plain::SetIommu, kind))?;
        let name = CString::new(at.name.as_str()).map_err(Error::other)?;
        let device: OwnedFd = named("device descriptor", device(group.as_fd(), &name))?;
        let dma = match kind {
            NO_IOMMU => Translation::None { _container: container },
            _ => Translation::Container(container),
        };
        Ok(Self { device: device.into(), _group: Some(group), dma })
    }

    fn open_cdev(at: &Sysfs) -> Result<Self> {
        let device = open(&format!("/dev/vfio/devices/{}", at.cdev()?))?;
        let iommufd = open("/dev/iommu")?;
        let mut bind = [0, 0, number(&iommufd), 0];
        named("bind iommufd", structure(device.as_fd(), Structure::BindIommufd, &mut bind))?;
        let mut alloc = [0; 3];
        named("allocate addresses", structure(iommufd.as_fd(), Structure::IoasAlloc, &mut alloc))?;
        let id = alloc[2];
        let mut attach = [0, 0, id];
        named("attach", structure(device.as_fd(), Structure::AttachIommufd, &mut attach))?;
        Ok(Self { device, _group: None, dma: Translation::Ioas { iommufd, id } })
    }

    /// The device's file once more; the function stays open while there is one.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn file(&self) -> Result<File> {
        self.device.try_clone()
    }

    /// Size, flags and place in the device's file.
    fn info(&self, index: u32) -> Result<(u64, u32, u64)> {
        let mut words = [0, 0, index, 0, 0, 0, 0, 0];
        structure(self.device.as_fd(), Structure::RegionInfo, &mut words)?;
        Ok((whole(words[4], words[5]), words[1], whole(words[6], words[7])))
    }

    /// The place of `len` bytes in the device's file.
    fn place(&self, index: u32, at: u64, len: usize) -> Result<u64> {
        let (size, _, offset) = self.info(index)?;
        match at.checked_add(wide(len)?) {
            Some(end) if end <= size => Ok(offset + at),
            _ => Err(Error::other(format!("{at:#x} is not within region {index}"))),
        }
    }

    /// Returns 0, or how many vectors can be had if they are fewer; nothing is changed then.
    fn set_irqs(
        &self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        data: &[u32],
    ) -> Result<u32> {
        let mut words = vec![0, flags, index, start, count];
        words.extend(data);
        let fewer = structure(self.device.as_fd(), Structure::SetIrqs, &mut words)?;
        u32::try_from(fewer).map_err(Error::other)
    }
}

impl Function for Kernel {
    fn region(&self, index: u32) -> Result<Region> {
        let (size, flags, _) = self.info(index)?;
        Ok(Region { size, mappable: flags & MMAP != 0 })
    }

    fn map(&self, index: u32, len: usize) -> Result<Mapping> {
        Mapping::new(self.device.as_fd(), self.place(index, 0, len)?, len)
    }

    fn read(&self, index: u32, at: u64, into: &mut [u8]) -> Result<()> {
        self.device.read_exact_at(into, self.place(index, at, into.len())?)
    }

    fn write(&self, index: u32, at: u64, from: &[u8]) -> Result<()> {
        self.device.write_all_at(from, self.place(index, at, from.len())?)
    }

    fn vectors(&self, index: u32) -> Result<u32> {
        let mut words = [0, 0, index, 0];
        structure(self.device.as_fd(), Structure::IrqInfo, &mut words)?;
        Ok(words[3])
    }

    fn arm(&self, index: u32, events: &[Event]) -> Result<u32> {
        let descriptors: Vec<_> = events.iter().map(|event| number(&event.as_fd())).collect();
        let count = u32::try_from(events.len()).map_err(Error::other)?;
        match self.set_irqs(index, DATA_EVENTFD | TRIGGER, 0, count, &descriptors)? {
            0 => Ok(count),
            fewer => Ok(fewer),
        }
    }

    fn disarm(&self, index: u32) -> Result<()> {
        self.set_irqs(index, DATA_NONE | TRIGGER, 0, 0, &[]).map(drop)
    }

    fn trigger(&self, index: u32, vector: u32) -> Result<()> {
        self.set_irqs(index, DATA_NONE | TRIGGER, vector, 1, &[]).map(drop)
    }

    fn dma_map(&self, memory: &Memory, at: u64, access: Access) -> Result<u64> {
        // The kernel holds the pages until they are unmapped, so the device cannot reach what comes
        // after them.
        let [va, va_high] = halves(wide(memory.address())?);
        let [iova, iova_high] = halves(at);
        let [len, len_high] = halves(wide(memory.len())?);
        let writes = access == Access::ReadWrite;
        match &self.dma {
            Translation::Container(container) => {
                let flags = READ | if writes { WRITE } else { 0 };
                let mut words = [0, flags, va, va_high, iova, iova_high, len, len_high];
                structure(container.as_fd(), Structure::MapDma, &mut words)?;
                Ok(at)
            }
            Translation::Ioas { iommufd, id } => {
                let flags = IOAS_FIXED | IOAS_READ | if writes { IOAS_WRITE } else { 0 };
                let mut words = [0, flags, *id, 0, va, va_high, len, len_high, iova, iova_high];
                structure(iommufd.as_fd(), Structure::IoasMap, &mut words)?;
                Ok(at)
            }
            Translation::None { .. } => memory.physical(),
        }
    }

    fn dma_unmap(&self, at: u64, len: usize) -> Result<u64> {
        let [iova, iova_high] = halves(at);
        let [len, len_high] = halves(wide(len)?);
        match &self.dma {
            Translation::Container(container) => {
                let mut words = [0, 0, iova, iova_high, len, len_high];
                structure(container.as_fd(), Structure::UnmapDma, &mut words)?;
                Ok(whole(words[4], words[5]))
            }
            Translation::Ioas { iommufd, id } => {
                let mut words = [0, *id, iova, iova_high, len, len_high];
                structure(iommufd.as_fd(), Structure::IoasUnmap, &mut words)?;
                Ok(whole(words[4], words[5]))
            }
            Translation::None { .. } => Err(Error::other("without IOMMU nothing is mapped")),
        }
    }

    fn reset(&self) -> Result<()> {
        plain(self.device.as_fd(), Plain::Reset, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, halves, whole};

    #[test]
    fn wide_fields_survive_their_halves() {
        let value = 0x1122_3344_5566_7788;
        assert_eq!(halves(value), [0x5566_7788, 0x1122_3344]);
        let [low, high] = halves(value);
        assert_eq!(whole(low, high), value);
    }

    #[test]
    fn an_unknown_mode_is_told_the_known_ones() {
        assert_eq!("cdev".parse::<Mode>(), Ok(Mode::Cdev));
        assert!("iommu".parse::<Mode>().unwrap_err().contains("noiommu"));
    }
}
