//! Memory for DMA.

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::mapping::Mapping;

/// Bytes of a small page.
const PAGE: u64 = 4096;

/// The pages that memory consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pages {
    /// Of 4 KiB, anywhere.
    Small,
    /// Of 2 MiB: physically contiguous, and they stay where they are.
    Huge,
}

/// Memory that can be given to a device.
#[derive(Debug)]
pub struct Memory(Mapping);

impl Memory {
    /// Zeroed memory; `len` is a multiple of the page size.
    ///
    /// # Errors
    /// If there are no such pages.
    pub fn new(len: usize, pages: Pages) -> Result<Self> {
        let huge = if pages == Pages::Huge { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
        let file = memfd_create("dma", MemfdFlags::CLOEXEC | huge)?;
        ftruncate(&file, u64::try_from(len).map_err(Error::other)?)?;
        Ok(Self(Mapping::new(file.as_fd(), 0, len)?))
    }

    /// Where its first page is in physical memory.
    ///
    /// # Errors
    /// If the process may not know.
    pub fn physical(&self) -> Result<u64> {
        let page = u64::try_from(self.address()).map_err(Error::other)? / PAGE;
        let mut entry = [0; 8];
        File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, page * 8)?;
        let entry = u64::from_le_bytes(entry);
        let frame = entry & ((1 << 55) - 1);
        // A process without the right to know is told 0.
        if entry >> 63 == 0 || frame == 0 {
            return Err(Error::other("the kernel does not say where the page is"));
        }
        Ok(frame * PAGE)
    }
}

impl Deref for Memory {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Pages};

    #[test]
    fn memory_keeps_what_is_put_into_it() {
        let memory = Memory::new(8192, Pages::Small).unwrap();
        assert_eq!(memory.bytes(0, 8192), vec![0; 8192]);
        memory.set_bytes(4094, &[1, 2, 3, 4]);
        assert_eq!(memory.bytes(4093, 6), [0, 1, 2, 3, 4, 0]);
        memory.store64(8, 0x1122_3344_5566_7788);
        assert_eq!(memory.load32(12), 0x1122_3344);
    }

    #[test]
    #[should_panic = "not within"]
    fn nothing_beyond_the_end_is_touched() {
        Memory::new(4096, Pages::Small).unwrap().store32(4096, 0);
    }
}
