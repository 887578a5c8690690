//! Memory that others change: device registers, and buffers that devices reach.

#![expect(unsafe_code, reason = "maps memory, and touches it by volatile loads and stores")]

use std::io::Result;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a file or a device; ends when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is a range of addresses that belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so nothing that exists is replaced.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; the kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A place for a `T`.
    ///
    /// # Panics
    /// If it is not within the mapping, or not aligned.
    fn at<T>(&self, offset: usize) -> *mut T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.len), "{offset:#x} is not within the mapping");
        assert!(offset.is_multiple_of(align_of::<T>()), "{offset:#x} is not aligned");
        // SAFETY: the assertion above keeps it within the mapping.
        unsafe { self.base.as_ptr().add(offset) }.cast()
    }

    /// Loads 32 bits.
    ///
    /// # Panics
    /// If they are not within the mapping, or not aligned; so in all methods.
    pub fn load32(&self, offset: usize) -> u32 {
        // SAFETY: `at` has checked bounds and alignment, and every bit pattern is a number.
        unsafe { self.at::<u32>(offset).read_volatile() }
    }

    /// Stores 32 bits.
    ///
    /// # Panics
    /// As [`Mapping::load32`].
    pub fn store32(&self, offset: usize, value: u32) {
        // SAFETY: `at` has checked bounds and alignment; no Rust reference to the mapping exists.
        unsafe { self.at::<u32>(offset).write_volatile(value) }
    }

    /// Stores 64 bits.
    ///
    /// # Panics
    /// As [`Mapping::load32`].
    pub fn store64(&self, offset: usize, value: u64) {
        // SAFETY: as in `store32`.
        unsafe { self.at::<u64>(offset).write_volatile(value) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// As [`Mapping::load32`].
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        // SAFETY: `at` has checked the bounds, and every bit pattern is a number.
        (offset..offset + len).map(|at| unsafe { self.at::<u8>(at).read_volatile() }).collect()
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// As [`Mapping::load32`].
    pub fn set_bytes(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `store32`.
            unsafe { self.at::<u8>(offset + at).write_volatile(*byte) }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours alone, and no pointer into it is kept.
        let ended = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(ended.is_ok(), "the mapping was made with this length");
    }
}
