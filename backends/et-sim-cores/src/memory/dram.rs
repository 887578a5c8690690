//! Device memory: DRAM and the L2 scratchpads, each one shared mapping of a sealed memfd.
//!
//! Cores reach it word by word through atomics, the DMA engine in bulk. The bulk copies are plain
//! ones: like on the card, a range that is copied while a kernel writes it holds old or new bytes,
//! in no particular order.

#![expect(
    unsafe_code,
    reason = "the one place that makes atomics of a mapping that other processes may share"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::error::CoresError;
use crate::memory::check::Buffers;
use crate::memory::map::{self, DRAM_BASE, FIRMWARE_BYTES, USER_BASE};
use crate::near;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("simulated memory is accessed with the host's byte order and 64-bit offsets");

/// A sparse block of memory that cores and DMA share.
#[derive(Debug)]
pub(crate) struct Region {
    map: MmapRegion,
    file: File,
    len: u64,
}

/// Defines a method that finds the naturally aligned word at an offset.
macro_rules! word_at {
    ($name:ident, $atomic:ident) => {
        /// Returns the word at `offset`; none if it is misaligned or not inside the region.
        #[inline(always)]
        #[expect(clippy::cast_possible_truncation, reason = "offsets are below the mapping's size")]
        pub(crate) fn $name(&self, offset: u64) -> Option<&$atomic> {
            let bytes = size_of::<$atomic>() as u64;
            // Rotation moves the misaligned bits to the top: one comparison checks both rules.
            if offset.rotate_right(bytes.trailing_zeros()) >= self.len / bytes {
                return None;
            }
            let word = self.map.as_ptr().wrapping_add(offset as usize).cast();
            // SAFETY: the comparison above proved that the word is inside the mapping and aligned
            // to its size (the mapping itself is page aligned); the mapping is readable and
            // writable and lives as long as `self`. Cores use only atomics on it; where they mix
            // sizes, or where bulk copies run at the same time, kernel and host broke the
            // ownership protocol and get unspecified bytes, all of which are valid.
            Some(unsafe { $atomic::from_ptr(word) })
        }
    };
}

impl Region {
    /// Maps `len` bytes that cost memory only where touched.
    fn new(what: &'static str, len: u64) -> Result<Self, CoresError> {
        let failed = |source| CoresError::Memory { what, bytes: len, source };
        let refused = |errno: rustix::io::Errno| failed(errno.into());
        let size = usize::try_from(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let fd = rustix::fs::memfd_create(what, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(refused)?;
        rustix::fs::ftruncate(&fd, len).map_err(refused)?;
        // A peer that shrank the file would turn every access into a fatal signal.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(refused)?;
        let file = File::from(fd);
        let mapped = file.try_clone().map_err(failed)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let map = MmapRegionBuilder::new(size)
            .with_file_offset(FileOffset::new(mapped, 0))
            .with_mmap_prot(protection.bits().cast_signed())
            .with_mmap_flags(flags.bits().cast_signed())
            .build()
            .map_err(|error| failed(io::Error::other(error)))?;
        // SAFETY: the range is exactly the mapping made above, and this advice changes no
        // content. Failure costs speed only.
        let advised =
            unsafe { rustix::mm::madvise(map.as_ptr().cast(), map.size(), Advice::LinuxHugepage) };
        if let Err(errno) = advised {
            tracing::debug!(what, %errno, "no huge pages");
        }
        Ok(Self { map, file, len })
    }

    word_at!(byte, AtomicU8);
    word_at!(half, AtomicU16);
    word_at!(word, AtomicU32);
    word_at!(double, AtomicU64);

    /// Has the processor bring the bytes at `offset` near, if it can: no access is made, and none
    /// need be possible.
    #[inline(always)]
    pub(crate) fn bring_near(&self, offset: u64) {
        let offset = usize::try_from(offset).unwrap_or(0);
        near::bring_line(self.map.as_ptr().wrapping_add(offset).cast_const());
    }

    /// Returns consecutive words from `offset`; none if it is misaligned for one, or they are not
    /// inside the region.
    #[inline(always)]
    pub(crate) fn doubles<const N: usize>(&self, offset: u64) -> Option<&[AtomicU64; N]> {
        // As for a single word; the first has to be so far from the end.
        let firsts = (self.len / 8).saturating_sub(N as u64 - 1);
        if offset.rotate_right(3) >= firsts {
            return None;
        }
        let words = self.map.as_ptr().wrapping_add(usize::try_from(offset).ok()?);
        // SAFETY: the comparison above proved that all words are inside the mapping and aligned;
        // what `double` says of one holds for the array.
        Some(unsafe { &*words.cast::<[AtomicU64; N]>() })
    }

    /// Returns `len` bytes from `offset`; none if they are not inside the region.
    #[inline(always)]
    fn bytes(&self, offset: u64, len: u64) -> Option<&[AtomicU8]> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        let bytes = self.map.as_ptr().wrapping_add(offset).cast();
        // SAFETY: the bytes are inside the mapping; what `double` says of a word holds for each.
        Some(unsafe { std::slice::from_raw_parts(bytes, len) })
    }

    /// Returns the bytes from `offset` for a bulk copy.
    fn slice(&self, offset: u64, len: usize) -> Option<VolatileSlice<'_>> {
        self.map.get_slice(usize::try_from(offset).ok()?, len).ok()
    }

    /// Sets `len` bytes from `offset` to `byte`.
    fn fill(&self, offset: u64, len: usize, byte: u8) -> Option<()> {
        let slice = self.slice(offset, len)?;
        let guard = slice.ptr_guard_mut();
        // SAFETY: the slice proves that `len` bytes from the pointer are inside the mapping, and
        // the guard keeps it mapped; bytes have no invalid patterns and need no alignment.
        unsafe { guard.as_ptr().write_bytes(byte, len) };
        Some(())
    }

    /// Gives all pages back; the region then reads as zeros.
    pub(crate) fn discard(&self) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(errno) = rustix::fs::fallocate(&self.file, punch, 0, self.len) {
            tracing::debug!(%errno, "no hole punching, clearing by hand");
            let cleared = self.fill(0, self.map.size(), 0);
            debug_assert!(cleared.is_some(), "the whole region is inside itself");
        }
    }

    /// Returns how much host memory the region occupies, in bytes.
    fn resident_bytes(&self) -> u64 {
        let blocks = rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_blocks);
        u64::try_from(blocks).unwrap_or(0) * 512
    }
}

/// Device DRAM: sparse, over a sealed memfd, from device address [`Dram::BASE`] up.
///
/// Shared by the cores and the DMA engine. Only touched pages cost host memory.
///
/// Spec: §12.1
#[derive(Debug)]
pub struct Dram {
    region: Region,
    /// What it is in use for, if someone wants that to be checked.
    watched: RwLock<Option<Arc<Buffers>>>,
    is_watched: AtomicBool,
}

/// Defines a method that finds the word a kernel means by an effective address.
macro_rules! user_word {
    ($name:ident, $of:ident, $atomic:ident) => {
        /// Returns the word at `effective` in the DRAM open to kernels; none if it is misaligned,
        /// elsewhere, or named by an address with meaningless high bits.
        #[inline(always)]
        pub(crate) fn $name(&self, effective: u64) -> Option<&$atomic> {
            if effective < USER_BASE {
                return None;
            }
            self.region.$of(effective - DRAM_BASE)
        }
    };
}

impl Dram {
    /// device address of the first byte.
    pub const BASE: u64 = DRAM_BASE;
    const STEP_BYTES: u64 = 2 << 20;
    const MIN_BYTES: u64 = 128 << 20;
    const MAX_BYTES: u64 = 256 << 30;

    /// Creates memory of `size_bytes`, all zero.
    ///
    /// # Errors
    /// [`CoresError::DramSize`] unless the size is a multiple of 2 MiB from 128 MiB to 256 GiB;
    /// [`CoresError::Memory`] if the host refuses.
    pub fn new(size_bytes: u64) -> Result<Self, CoresError> {
        if !(Self::MIN_BYTES..=Self::MAX_BYTES).contains(&size_bytes)
            || !size_bytes.is_multiple_of(Self::STEP_BYTES)
        {
            return Err(CoresError::DramSize { bytes: size_bytes });
        }
        Ok(Self {
            region: Region::new("DRAM", size_bytes)?,
            watched: RwLock::default(),
            is_watched: AtomicBool::new(false),
        })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.region.len
    }

    /// Checks every access to DRAM of the kernels that are launched from now on: they may use
    /// `open`, and the buffers of `managed` that are announced. Replaces all earlier buffers.
    #[must_use]
    pub fn watch(&self, managed: Range<u64>, open: Range<u64>) -> Arc<Buffers> {
        let buffers = Arc::new(Buffers::new(managed, open));
        let mut watched = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        *watched = Some(Arc::clone(&buffers));
        self.is_watched.store(true, Ordering::Relaxed);
        buffers
    }

    /// Returns the buffers that launches are to be checked against, if they are.
    pub(crate) fn watched(&self) -> Option<Arc<Buffers>> {
        self.watched.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note that something other than a kernel has written memory.
    fn note_written(&self, addr: u64, len: u64) {
        // Relaxed: whoever watches does so before there is a buffer to be written.
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        if let Some(buffers) = self.watched() {
            buffers.written(addr, len);
        }
    }

    /// Returns `true` if `len` bytes from device address `addr` are all inside.
    #[must_use]
    pub fn contains(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(DRAM_BASE)
            .and_then(|offset| offset.checked_add(len))
            .is_some_and(|end| end <= self.size())
    }

    /// Copies from device address `addr` to `out`.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`]; nothing is copied then.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), CoresError> {
        self.slice(addr, out.len())?.copy_to(out);
        Ok(())
    }

    /// Copies `data` to device address `addr`.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`]; nothing is copied then.
    pub fn write(&self, addr: u64, data: &[u8]) -> Result<(), CoresError> {
        self.slice(addr, data.len())?.copy_from(data);
        self.note_written(addr, data.len() as u64);
        Ok(())
    }

    /// Sets `len` bytes from device address `addr` to `byte`.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`]; nothing is written then.
    pub fn fill(&self, addr: u64, len: u64, byte: u8) -> Result<(), CoresError> {
        let out_of_range = || CoresError::OutOfRange { addr, len };
        let offset = addr.checked_sub(DRAM_BASE).ok_or_else(out_of_range)?;
        let bytes = usize::try_from(len).map_err(|_| out_of_range())?;
        self.region.fill(offset, bytes, byte).ok_or_else(out_of_range)?;
        self.note_written(addr, len);
        Ok(())
    }

    /// Copies from device address `addr` to foreign memory, as many bytes as `dst` has.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`]; nothing is copied then.
    pub fn read_to_volatile(&self, addr: u64, dst: &VolatileSlice<'_>) -> Result<(), CoresError> {
        self.slice(addr, dst.len())?.copy_to_volatile_slice(*dst);
        Ok(())
    }

    /// Copies all bytes of foreign memory to device address `addr`.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`]; nothing is copied then.
    pub fn write_from_volatile(
        &self,
        addr: u64,
        src: &VolatileSlice<'_>,
    ) -> Result<(), CoresError> {
        src.copy_to_volatile_slice(self.slice(addr, src.len())?);
        self.note_written(addr, src.len() as u64);
        Ok(())
    }

    /// Sets everything back to zero and gives the host its memory back, as a board reset does.
    pub fn discard(&self) {
        self.region.discard();
    }

    /// Returns how much host memory is in use, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.region.resident_bytes()
    }

    /// Returns the memfd behind the memory, for mapping it elsewhere. Offset 0 is
    /// [`Dram::BASE`]. It is sealed against a change of size.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.region.file
    }

    /// Returns the memory; offset 0 is [`Dram::BASE`].
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the words from `effective` on, with the rules of a single one for each.
    #[inline(always)]
    pub(crate) fn user_lanes(&self, effective: u64) -> Option<[u32; 8]> {
        let offset = effective.wrapping_sub(DRAM_BASE);
        if effective < USER_BASE {
            return None;
        }
        if let Some(doubles) = self.region.doubles(offset) {
            return Some(lanes_of(doubles));
        }
        let mut lanes = [0; 8];
        for (lane, at) in lanes.iter_mut().zip((offset..).step_by(4)) {
            *lane = self.region.word(at)?.load(Ordering::Relaxed);
        }
        Some(lanes)
    }

    /// Returns four double words from `effective` on, with the rules of a single one for each.
    #[inline(always)]
    pub(crate) fn user_doubles(&self, effective: u64) -> Option<&[AtomicU64; 4]> {
        if effective < USER_BASE {
            return None;
        }
        self.region.doubles(effective - DRAM_BASE)
    }

    /// Returns bytes from `effective` on, with the rules of a single one for each.
    #[inline(always)]
    pub(crate) fn user_bytes(&self, effective: u64, len: u64) -> Option<&[AtomicU8]> {
        if effective < USER_BASE {
            return None;
        }
        self.region.bytes(effective.wrapping_sub(DRAM_BASE), len)
    }

    /// Returns eight bytes from `effective` on, with the rules of a single one for each.
    #[inline(always)]
    pub(crate) fn user_eight(&self, effective: u64) -> Option<u64> {
        let (first, shift) = (effective & !7, effective % 8 * 8);
        let low = self.user_double(first)?.load(Ordering::Relaxed) >> shift;
        if shift == 0 {
            return Some(low);
        }
        let high = self.user_double(first.wrapping_add(8))?.load(Ordering::Relaxed);
        Some(low | high << (64 - shift))
    }

    /// Stores words from `effective` on, with the rules of a single one for each; none of them if
    /// one cannot be stored.
    #[inline(always)]
    pub(crate) fn store_user_lanes(&self, effective: u64, lanes: [u32; 8]) -> Option<()> {
        let offset = effective.wrapping_sub(DRAM_BASE);
        if effective < USER_BASE {
            return None;
        }
        if let Some(doubles) = self.region.doubles(offset) {
            store_lanes(doubles, lanes);
            return Some(());
        }
        self.region.word(offset + 28)?;
        for (lane, at) in lanes.into_iter().zip((offset..).step_by(4)) {
            self.region.word(at)?.store(lane, Ordering::Relaxed);
        }
        Some(())
    }

    user_word!(user_byte, byte, AtomicU8);
    user_word!(user_half, half, AtomicU16);
    user_word!(user_word, word, AtomicU32);
    user_word!(user_double, double, AtomicU64);

    fn slice(&self, addr: u64, len: usize) -> Result<VolatileSlice<'_>, CoresError> {
        addr.checked_sub(DRAM_BASE)
            .and_then(|offset| self.region.slice(offset, len))
            .ok_or(CoresError::OutOfRange { addr, len: len as u64 })
    }
}

const _: () = assert!(FIRMWARE_BYTES < Dram::MIN_BYTES);

/// Loads eight words.
#[inline(always)]
pub(crate) fn lanes_of(doubles: &[AtomicU64; 4]) -> [u32; 8] {
    let mut lanes = [0; 8];
    let (pairs, _) = lanes.as_chunks_mut::<2>();
    for (pair, double) in pairs.iter_mut().zip(doubles) {
        let double = double.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "its halves")]
        let halves = [double as u32, (double >> 32) as u32];
        *pair = halves;
    }
    lanes
}

/// Stores eight words.
#[inline(always)]
pub(crate) fn store_lanes(doubles: &[AtomicU64; 4], lanes: [u32; 8]) {
    let (pairs, _) = lanes.as_chunks::<2>();
    for ([low, high], double) in pairs.iter().zip(doubles) {
        double.store(u64::from(*low) | u64::from(*high) << 32, Ordering::Relaxed);
    }
}

/// The L2 scratchpads of all shires. Spec: ISA §4.3
#[derive(Debug)]
pub struct Scratchpads {
    region: Region,
}

impl Scratchpads {
    /// Creates the scratchpads of a whole chip, all zero.
    ///
    /// # Errors
    /// [`CoresError::Memory`] if the host refuses.
    pub fn new() -> Result<Self, CoresError> {
        let bytes = u64::from(map::SHIRES) * map::SCRATCHPAD_BYTES;
        Ok(Self { region: Region::new("L2 scratchpad", bytes)? })
    }

    /// Copies from device address `addr`, in either format, to `out`. "Own shire" is shire 0.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`] if an address is not scratchpad; bytes before it are copied.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), CoresError> {
        self.lines(addr, out.len(), |at, range| {
            self.region.slice(at, range.len())?.copy_to(out.get_mut(range)?);
            Some(())
        })
    }

    /// Copies `data` to device address `addr`, in either format. "Own shire" is shire 0.
    ///
    /// # Errors
    /// [`CoresError::OutOfRange`] if an address is not scratchpad; bytes before it are copied.
    pub fn write(&self, addr: u64, data: &[u8]) -> Result<(), CoresError> {
        self.lines(addr, data.len(), |at, range| {
            self.region.slice(at, range.len())?.copy_from(data.get(range)?);
            Some(())
        })
    }

    /// Calls `copy` for the part of each 64-byte line: neighbouring lines may be far apart.
    fn lines(
        &self,
        addr: u64,
        len: usize,
        mut copy: impl FnMut(u64, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), CoresError> {
        const LINE: usize = 64;
        let mut done = 0;
        while done < len {
            let at = addr.wrapping_add(done as u64);
            let part = (LINE - usize::from(at.to_le_bytes()[0]) % LINE).min(len - done);
            match map::place(at, 0) {
                map::Place::Scratchpad(offset) => copy(offset, done..done + part),
                _ => None,
            }
            .ok_or(CoresError::OutOfRange { addr, len: len as u64 })?;
            done += part;
        }
        Ok(())
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dram() -> Dram {
        Dram::new(Dram::MIN_BYTES).unwrap()
    }

    #[test]
    fn sizes_outside_the_rule_are_refused() {
        for bytes in [0, 1 << 20, (128 << 20) + 4096, 512 << 30] {
            assert!(matches!(Dram::new(bytes), Err(CoresError::DramSize { .. })));
        }
    }

    #[test]
    fn words_outside_or_misaligned_are_not_found() {
        let dram = dram();
        let end = Dram::BASE + dram.size();
        assert!(dram.user_double(end - 8).is_some());
        assert!(dram.user_double(end - 4).is_none());
        assert!(dram.user_double(end).is_none());
        assert!(dram.user_byte(end - 1).is_some());
        assert!(dram.user_byte(end).is_none());
        assert!(dram.user_word(USER_BASE - 4).is_none());
        assert!(dram.user_word(USER_BASE + 2).is_none());
        assert!(dram.user_half(u64::MAX).is_none());
        assert!(dram.user_byte(0).is_none());
    }

    #[test]
    fn bulk_and_word_accesses_see_the_same_bytes() {
        let dram = dram();
        dram.write(USER_BASE, &0x1122_3344_5566_7788_u64.to_le_bytes()).unwrap();
        let word = dram.user_double(USER_BASE).unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 0x1122_3344_5566_7788);
        dram.user_byte(USER_BASE + 1).unwrap().store(0xAA, Ordering::Relaxed);
        let mut out = [0; 2];
        dram.read(USER_BASE, &mut out).unwrap();
        assert_eq!(out, [0x88, 0xAA]);
    }

    #[test]
    fn copies_that_leave_the_memory_are_refused_whole() {
        let dram = dram();
        let end = Dram::BASE + dram.size();
        assert!(dram.write(end - 4, &[1; 8]).is_err());
        assert!(dram.read(Dram::BASE - 4, &mut [0; 8]).is_err());
        assert!(dram.fill(end - 4, 5, 1).is_err());
        assert!(dram.fill(end - 4, u64::MAX, 1).is_err());
        let mut out = [9; 4];
        dram.read(end - 4, &mut out).unwrap();
        assert_eq!(out, [0; 4]);
        assert!(dram.contains(end - 4, 4) && !dram.contains(end - 4, 5));
        assert!(!dram.contains(0, 4) && !dram.contains(u64::MAX, 2));
    }

    #[test]
    fn discard_zeroes_and_gives_memory_back() {
        let dram = dram();
        dram.fill(Dram::BASE, 16 << 20, 7).unwrap();
        assert!(dram.resident_bytes() >= 16 << 20);
        dram.discard();
        assert_eq!(dram.resident_bytes(), 0);
        let mut out = [9; 4];
        dram.read(Dram::BASE, &mut out).unwrap();
        assert_eq!(out, [0; 4]);
    }

    #[test]
    fn foreign_memory_is_copied_both_ways() {
        let dram = dram();
        let mut near = *b"abcdef";
        dram.write_from_volatile(Dram::BASE + 3, &VolatileSlice::from(&mut near[..])).unwrap();
        let mut back = [0; 6];
        dram.read_to_volatile(Dram::BASE + 3, &VolatileSlice::from(&mut back[..])).unwrap();
        assert_eq!(back, near);
    }

    #[test]
    fn scratchpad_lines_of_the_interleaved_format_are_scattered() {
        let scratchpads = Scratchpads::new().unwrap();
        let data: Vec<u8> = (0..128).collect();
        scratchpads.write(0xC000_0000, &data).unwrap();
        let mut line = [0; 64];
        scratchpads.read(0x8000_0000 + (1 << 23), &mut line).unwrap();
        assert_eq!(line, data[64..]);
        assert!(scratchpads.read(0x8027_FFFF, &mut [0; 2]).is_err());
    }
}
