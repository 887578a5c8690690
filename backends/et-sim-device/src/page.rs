//! The memory behind BAR2.

use std::fs::File;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use et_hal::{AccessError, AccessPath, BarOffset, ErrorType, Mmio, Width, Widths};
use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use crate::BoardError;

/// Shared memory with the mailboxes of both endpoints, little-endian.
///
/// Every access is made of atomic operations, so host threads and the firmware thread may use it
/// at the same time without any further agreement; what they see is then a matter of the protocol.
/// The upper half, the doorbells, has memory here too, which is not used.
///
/// Spec: §1
#[derive(Debug)]
pub struct RegisterPage {
    memory: MmapRegion,
}

impl RegisterPage {
    /// Length in bytes, that of BAR2.
    pub const BYTES: usize = 0x4000;

    /// Allocates a page of zeros.
    pub(crate) fn new() -> Result<Self, BoardError> {
        let memory = |source| BoardError::Memory { what: "register page", source };
        let fd =
            rustix::fs::memfd_create("et-bar2", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|e| memory(e.into()))?;
        rustix::fs::ftruncate(&fd, Self::BYTES as u64).map_err(|e| memory(e.into()))?;
        // A peer process must not be able to shrink the file under us.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|e| memory(e.into()))?;
        let file = FileOffset::new(File::from(fd), 0);
        let region = MmapRegion::from_file(file, Self::BYTES)
            .map_err(|e| memory(std::io::Error::other(e)))?;
        Ok(Self { memory: region })
    }

    /// Returns the file behind the page, to map it in another process.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.memory.file_offset().map(FileOffset::file)
    }

    /// Sets `len` bytes at `at` to zero.
    pub(crate) fn clear(&self, at: u64, len: usize) -> Result<(), AccessError> {
        const ZEROS: [u8; 256] = [0; 256];
        let mut done = 0;
        while done < len {
            let piece = ZEROS.len().min(len - done);
            self.write_at(at + done as u64, &ZEROS[..piece])?;
            done += piece;
        }
        Ok(())
    }

    /// Stores a register after everything that was written before.
    ///
    /// # Ordering
    /// Release; pairs with the acquire of a reader that polls the register.
    #[inline]
    pub(crate) fn publish_u16(&self, at: BarOffset, value: u16) -> Result<(), AccessError> {
        let at = Self::check_register(at, Width::W16)?;
        self.cell::<AtomicU16>(at)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn check(at: BarOffset, len: u64) -> Result<usize, AccessError> {
        AccessError::check(at, len, Self::BYTES as u64)?;
        Ok(Self::place(at))
    }

    #[inline]
    fn check_register(at: BarOffset, width: Width) -> Result<usize, AccessError> {
        AccessError::check_register(at, width, Self::BYTES as u64)?;
        Ok(Self::place(at))
    }

    /// Converts an offset that was checked.
    #[inline]
    fn place(at: BarOffset) -> usize {
        usize::try_from(at.as_u64()).unwrap_or(Self::BYTES)
    }

    /// Returns one cell; `at` was checked by the caller.
    #[inline]
    fn cell<T: vm_memory::AtomicInteger>(&self, at: usize) -> Result<&T, AccessError> {
        let (len, window) = (size_of::<T>() as u64, Self::BYTES as u64);
        let at_error = BarOffset::new(at as u64);
        let outside = AccessError::OutOfBounds { at: at_error, len, window };
        self.memory.get_atomic_ref(at).map_err(|_| outside)
    }

    #[inline]
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let mut offset = Self::check(BarOffset::new(at), into.len() as u64)?;
        let lead = (offset.next_multiple_of(8) - offset).min(into.len());
        let (first, rest) = into.split_at_mut(lead);
        let (words, last) = rest.as_chunks_mut::<8>();
        for byte in first {
            *byte = self.cell::<AtomicU8>(offset)?.load(Ordering::Relaxed);
            offset += 1;
        }
        for word in words {
            let value = self.cell::<AtomicU64>(offset)?.load(Ordering::Relaxed);
            *word = u64::from_le(value).to_le_bytes();
            offset += 8;
        }
        for byte in last {
            *byte = self.cell::<AtomicU8>(offset)?.load(Ordering::Relaxed);
            offset += 1;
        }
        Ok(())
    }

    #[inline]
    fn write_at(&self, at: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut offset = Self::check(BarOffset::new(at), from.len() as u64)?;
        let lead = (offset.next_multiple_of(8) - offset).min(from.len());
        let (first, rest) = from.split_at(lead);
        let (words, last) = rest.as_chunks::<8>();
        for byte in first {
            self.cell::<AtomicU8>(offset)?.store(*byte, Ordering::Relaxed);
            offset += 1;
        }
        for word in words {
            let value = u64::from_le_bytes(*word).to_le();
            self.cell::<AtomicU64>(offset)?.store(value, Ordering::Relaxed);
            offset += 8;
        }
        for byte in last {
            self.cell::<AtomicU8>(offset)?.store(*byte, Ordering::Relaxed);
            offset += 1;
        }
        Ok(())
    }
}

impl ErrorType for RegisterPage {
    type Error = AccessError;
}

impl Mmio for RegisterPage {
    fn len_bytes(&self) -> u64 {
        Self::BYTES as u64
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }

    #[inline]
    fn read(&self, at: BarOffset, width: Width) -> Result<u64, AccessError> {
        let at = Self::check_register(at, width)?;
        Ok(match width {
            // Acquire: an uncached register read is not overtaken by later reads either.
            Width::W8 => self.cell::<AtomicU8>(at)?.load(Ordering::Acquire).into(),
            Width::W16 => u16::from_le(self.cell::<AtomicU16>(at)?.load(Ordering::Acquire)).into(),
            Width::W32 => u32::from_le(self.cell::<AtomicU32>(at)?.load(Ordering::Acquire)).into(),
            Width::W64 => u64::from_le(self.cell::<AtomicU64>(at)?.load(Ordering::Acquire)),
        })
    }

    #[inline]
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), AccessError> {
        AccessError::check_write(at, width, value, Self::BYTES as u64)?;
        let at = Self::place(at);
        let [b0, b1, b2, b3, ..] = value.to_le_bytes();
        match width {
            Width::W8 => self.cell::<AtomicU8>(at)?.store(b0, Ordering::Relaxed),
            Width::W16 => {
                let value = u16::from_le_bytes([b0, b1]);
                self.cell::<AtomicU16>(at)?.store(value.to_le(), Ordering::Relaxed);
            }
            Width::W32 => {
                let value = u32::from_le_bytes([b0, b1, b2, b3]);
                self.cell::<AtomicU32>(at)?.store(value.to_le(), Ordering::Relaxed);
            }
            Width::W64 => self.cell::<AtomicU64>(at)?.store(value.to_le(), Ordering::Relaxed),
        }
        Ok(())
    }

    #[inline]
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), AccessError> {
        self.read_at(at.as_u64(), into)
    }

    #[inline]
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), AccessError> {
        self.write_at(at.as_u64(), from)
    }

    #[inline]
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, AccessError> {
        let at = Self::check_register(at, Width::W64)?;
        // Acquire: pairs with the release store of an index on the other side.
        Ok(u64::from_le(self.cell::<AtomicU64>(at)?.load(Ordering::Acquire)))
    }

    #[inline]
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), AccessError> {
        let at = Self::check_register(at, Width::W64)?;
        // Release: publishes the bytes written before; pairs with the acquire load.
        self.cell::<AtomicU64>(at)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    fn flush(&self) -> Result<(), AccessError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use et_hal::ErrorKind;

    use super::*;

    #[test]
    fn bytes_of_any_alignment_come_back() {
        let page = RegisterPage::new().unwrap();
        let bytes: Vec<u8> = (1..=48).collect();
        for at in 0x100..0x109_u64 {
            for len in [0, 1, 7, 8, 9, 31, 48] {
                page.write_bytes(BarOffset::new(at), &bytes[..len]).unwrap();
                let mut back = vec![0; len];
                page.read_bytes(BarOffset::new(at), &mut back).unwrap();
                assert_eq!(back, bytes[..len]);
            }
        }
    }

    #[test]
    fn accesses_are_checked() {
        let page = RegisterPage::new().unwrap();
        let kind = |e: AccessError| et_hal::Error::kind(&e);
        let read = |at, width| page.read(BarOffset::new(at), width).map_err(kind);
        assert_eq!(read(0x3fff, Width::W8), Ok(0));
        assert_eq!(read(0x4000, Width::W8), Err(ErrorKind::OutOfBounds));
        assert_eq!(read(u64::MAX, Width::W64), Err(ErrorKind::OutOfBounds));
        assert_eq!(read(2, Width::W32), Err(ErrorKind::Misaligned));
        let write = page.write(BarOffset::new(0), Width::W8, 256).map_err(kind);
        assert_eq!(write, Err(ErrorKind::TooLarge));
    }

    #[test]
    fn registers_are_little_endian() {
        let page = RegisterPage::new().unwrap();
        page.write(BarOffset::new(8), Width::W32, 0x0102_0304).unwrap();
        let mut bytes = [0; 4];
        page.read_bytes(BarOffset::new(8), &mut bytes).unwrap();
        assert_eq!(bytes, [4, 3, 2, 1]);
        assert_eq!(page.read(BarOffset::new(10), Width::W16), Ok(0x0102));
    }
}
