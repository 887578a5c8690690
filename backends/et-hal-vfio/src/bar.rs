//! A BAR, mapped as far as the kernel allows, and the accesses to it.

#![expect(unsafe_code, reason = "reads and writes mapped device registers")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use et_hal::{AccessError, BarOffset, Width};
use volatile_register::{RO, WO};

use crate::shared::Shared;
use crate::sync::lock;
use crate::sys::{Errno, Fd, MapRequest, Mapping, retry};
use crate::transport::{Area, Region};
use crate::{Call, VfioError};

/// BARs are mapped in pieces of this many bytes, when they are first needed: the kernel fills in a
/// whole piece at its first access, and of a window of 32 GiB most is never touched.
const PIECE_BYTES: u64 = 64 << 20;
/// BARs up to this size are mapped as a whole when they are opened.
const EAGER_BYTES: u64 = PIECE_BYTES;

/// Longest trapped transfer in one call.
const TRAPPED_BYTES: usize = 4096;

/// A BAR.
///
/// Addresses for all of it are reserved in one piece, so that offsets stay linear; what may be
/// mapped replaces parts of the reservation, the rest is reached through calls. The mapping keeps
/// the device open.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Dropped first: whatever holds the device open last waits for its close, and only a
    /// descriptor waits with a limit.
    reserved: Option<Mapping>,
    shared: Arc<Shared>,
    region: Region,
    /// What is mapped, or will be: whole pages.
    areas: Vec<Area>,
    pieces: Box<[AtomicBool]>,
    /// Held while a piece is mapped.
    mapping: Mutex<()>,
}

// SAFETY: the pointer inside `reserved` is used only for volatile accesses to device registers,
// which any thread may make; the fields that change are atomic or locked.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

/// Where an access goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// To this address, which stays mapped as long as the BAR does.
    Direct(NonNull<u8>),
    /// Through the transport.
    Trapped,
}

impl Bar {
    /// Describes a BAR and maps it, a large one piece by piece later.
    pub(crate) fn open(shared: &Arc<Shared>, region: Region) -> Result<Self, VfioError> {
        let page = shared.sys.page_bytes() as u64;
        let mut areas = Vec::new();
        for area in &region.areas {
            let start = area.start.checked_next_multiple_of(page).unwrap_or(u64::MAX);
            let end = area.end & !(page - 1);
            if start < end {
                areas.push(Area { start, end });
            }
        }
        let count = usize::try_from(region.size.div_ceil(PIECE_BYTES)).unwrap_or(usize::MAX);
        let mut bar = Self {
            shared: Arc::clone(shared),
            areas,
            pieces: (0..count).map(|_| AtomicBool::new(false)).collect(),
            mapping: Mutex::new(()),
            reserved: None,
            region,
        };
        bar.reserve()?;
        Ok(bar)
    }

    fn reserve(&mut self) -> Result<(), VfioError> {
        if self.areas.is_empty() {
            return Ok(());
        }
        let len = usize::try_from(self.region.size.next_multiple_of(self.page()))
            .map_err(|_| self.map_failed(Errno::NOMEM))?;
        let request = MapRequest { len, file: None, over: None, populate: false };
        let reserved = Mapping::new(&self.shared.sys, request);
        self.reserved = Some(reserved.map_err(|errno| self.map_failed(errno))?);
        let first = 0..self.region.size.min(EAGER_BYTES);
        let whole = self.region.size <= EAGER_BYTES;
        match self.map_piece(if whole { first } else { 0..PIECE_BYTES }) {
            Ok(()) => Ok(()),
            // Not mappable after all (a BAR smaller than a page, for one): every access is a call.
            Err(VfioError::Call { errno: Errno::INVAL, .. }) => {
                tracing::info!(bar = self.region.index, "cannot be mapped, accesses are slow");
                self.areas.clear();
                self.reserved = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn page(&self) -> u64 {
        self.shared.sys.page_bytes() as u64
    }

    fn map_failed(&self, errno: Errno) -> VfioError {
        let target = format!("BAR{} of {}", self.region.index, self.shared.name);
        VfioError::call(Call::MapBar, target, errno)
    }

    /// Maps what may be mapped of one piece, over the reservation.
    fn map_piece(&self, piece: std::ops::Range<u64>) -> Result<(), VfioError> {
        let Some(reserved) = &self.reserved else { return Ok(()) };
        let index = usize::try_from(piece.start / PIECE_BYTES).unwrap_or(usize::MAX);
        let Some(done) = self.pieces.get(index) else { return Ok(()) };
        let _one = lock(&self.mapping);
        if done.load(Ordering::Acquire) {
            return Ok(());
        }
        for area in &self.areas {
            let (start, end) = (area.start.max(piece.start), area.end.min(piece.end));
            if start < end {
                let file = self.shared.transport.file(&self.region, start);
                self.map_area(reserved, start, end - start, file)
                    .map_err(|errno| self.map_failed(errno))?;
            }
        }
        // Release: pairs with the Acquire of accesses, which then find the piece mapped.
        done.store(true, Ordering::Release);
        Ok(())
    }

    fn map_area(
        &self,
        reserved: &Mapping,
        start: u64,
        len: u64,
        file: (Fd, u64),
    ) -> Result<(), Errno> {
        let offset = usize::try_from(start).map_err(|_| Errno::OVERFLOW)?;
        let len = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: areas lie inside the region, whose whole size is reserved.
        let over = Some(unsafe { reserved.base().add(offset) });
        let sys = &self.shared.sys;
        let request = MapRequest { len, file: Some(file), over, populate: false };
        let at = retry(|| sys.map(request))?;
        // A new mapping does not have what the reservation was advised.
        sys.keep_from_children(at, len)
    }

    pub(crate) fn len(&self) -> u64 {
        self.region.size
    }

    /// Returns `true` if a range is reached without calls.
    #[inline]
    pub(crate) fn is_direct(&self, start: u64, end: u64) -> bool {
        self.areas.iter().any(|area| area.start <= start && end <= area.end)
    }

    /// Returns where an aligned register is mapped; `None` if it is not, or not yet.
    #[inline]
    fn mapped(&self, at: u64, width: Width) -> Option<NonNull<u8>> {
        let reserved = self.reserved.as_ref()?;
        // An aligned register lies in one piece.
        let piece = self.pieces.get(usize::try_from(at / PIECE_BYTES).ok()?)?;
        if !self.is_direct(at, at.checked_add(width.bytes())?) || !piece.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the range lies in an area (`is_direct`), so inside the reservation.
        Some(unsafe { reserved.base().add(usize::try_from(at).ok()?) })
    }

    /// Reads an aligned register if it is mapped.
    #[inline]
    pub(crate) fn read_mapped(&self, at: u64, width: Width) -> Option<u64> {
        // SAFETY: `mapped` says that the bytes are; the caller, that they are aligned.
        self.mapped(at, width).map(|from| unsafe { load(from, width) })
    }

    /// Writes an aligned register if it is mapped; returns `false` if it is not.
    #[inline]
    pub(crate) fn write_mapped(&self, at: u64, width: Width, value: u64) -> bool {
        let Some(to) = self.mapped(at, width) else { return false };
        // SAFETY: `mapped` says that the bytes are; the caller, that they are aligned.
        unsafe { store(to, width, value) };
        true
    }

    /// Decides the way to `len` bytes that lie in the BAR, and maps what is needed.
    #[inline]
    fn way(&self, at: u64, len: u64) -> Result<Way, VfioError> {
        let Some(reserved) = &self.reserved else { return Ok(Way::Trapped) };
        if !self.is_direct(at, at + len) {
            return Ok(Way::Trapped);
        }
        for piece in at / PIECE_BYTES..=(at + len.max(1) - 1) / PIECE_BYTES {
            let index = usize::try_from(piece).unwrap_or(usize::MAX);
            if !self.pieces.get(index).is_some_and(|done| done.load(Ordering::Acquire)) {
                let start = piece * PIECE_BYTES;
                self.map_piece(start..start.saturating_add(PIECE_BYTES).min(self.region.size))?;
            }
        }
        let offset = usize::try_from(at).unwrap_or(usize::MAX);
        // SAFETY: the range lies in an area (`is_direct`), so inside the reservation; its pieces
        // are mapped.
        Ok(Way::Direct(unsafe { reserved.base().add(offset) }))
    }

    /// Reads a register: inside the BAR, aligned.
    #[inline]
    pub(crate) fn read(&self, at: u64, width: Width) -> Result<u64, VfioError> {
        match self.way(at, width.bytes())? {
            // SAFETY: `way` checked that the bytes are mapped; the caller, that they are aligned.
            Way::Direct(from) => Ok(unsafe { load(from, width) }),
            Way::Trapped => {
                self.check_width(at, width)?;
                let mut bytes = [0; 8];
                let into = &mut bytes[..len_of(width)];
                self.shared.transport.read(&self.region, at, into)?;
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }

    /// Writes a register: inside the BAR, aligned, the value fits.
    #[inline]
    pub(crate) fn write(&self, at: u64, width: Width, value: u64) -> Result<(), VfioError> {
        match self.way(at, width.bytes())? {
            Way::Direct(to) => {
                // SAFETY: `way` checked that the bytes are mapped; the caller, that they are
                // aligned.
                unsafe { store(to, width, value) };
                Ok(())
            }
            Way::Trapped => {
                self.check_width(at, width)?;
                let bytes = value.to_le_bytes();
                self.shared.transport.posted_write(&self.region, at, &bytes[..len_of(width)])
            }
        }
    }

    fn check_width(&self, at: u64, width: Width) -> Result<(), VfioError> {
        if self.shared.transport.unsplit_widths().contains(width) {
            return Ok(());
        }
        Err(AccessError::BadWidth { at: BarOffset::new(at), width }.into())
    }

    /// Reads a queue index: 64 bits, aligned. Where that takes two reads, the halves are consistent
    /// because indices are far below 2³².
    #[inline]
    pub(crate) fn read_index(&self, at: u64) -> Result<u64, VfioError> {
        match self.read(at, Width::W64) {
            Err(VfioError::Access(AccessError::BadWidth { .. })) => {
                let low = self.read(at, Width::W32)?;
                Ok(low | self.read(at + 4, Width::W32)? << 32)
            }
            read => read,
        }
    }

    /// Writes a queue index; where that takes two writes, the half that changes comes last.
    #[inline]
    pub(crate) fn write_index(&self, at: u64, value: u64) -> Result<(), VfioError> {
        match self.write(at, Width::W64, value) {
            Err(VfioError::Access(AccessError::BadWidth { .. })) => {
                self.write(at + 4, Width::W32, value >> 32)?;
                self.write(at, Width::W32, value & u64::from(u32::MAX))
            }
            written => written,
        }
    }

    /// Copies out of the BAR, by the widest aligned accesses.
    pub(crate) fn read_bytes(&self, at: u64, into: &mut [u8]) -> Result<(), VfioError> {
        match self.way(at, into.len() as u64)? {
            Way::Direct(from) => {
                let mut done = 0;
                for width in steps(at, into.len()) {
                    let len = len_of(width);
                    // SAFETY: the steps lie in the range that `way` checked.
                    let place = unsafe { from.add(done) };
                    // SAFETY: as above, and each step is aligned to its width.
                    let value = unsafe { load(place, width) };
                    into[done..done + len].copy_from_slice(&value.to_le_bytes()[..len]);
                    done += len;
                }
                Ok(())
            }
            Way::Trapped => {
                let pieces = into.chunks_mut(TRAPPED_BYTES);
                for (place, piece) in (at..).step_by(TRAPPED_BYTES).zip(pieces) {
                    self.shared.transport.read(&self.region, place, piece)?;
                }
                Ok(())
            }
        }
    }

    /// Copies into the BAR, by the widest aligned accesses.
    pub(crate) fn write_bytes(&self, at: u64, from: &[u8]) -> Result<(), VfioError> {
        match self.way(at, from.len() as u64)? {
            Way::Direct(to) => {
                let mut done = 0;
                for width in steps(at, from.len()) {
                    let len = len_of(width);
                    let mut bytes = [0; 8];
                    bytes[..len].copy_from_slice(&from[done..done + len]);
                    // SAFETY: the steps lie in the range that `way` checked.
                    let place = unsafe { to.add(done) };
                    // SAFETY: as above, and each step is aligned to its width.
                    unsafe { store(place, width, u64::from_le_bytes(bytes)) };
                    done += len;
                }
                Ok(())
            }
            Way::Trapped => {
                let pieces = from.chunks(TRAPPED_BYTES);
                for (place, piece) in (at..).step_by(TRAPPED_BYTES).zip(pieces) {
                    self.shared.transport.write(&self.region, place, piece)?;
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn len_of(width: Width) -> usize {
    match width {
        Width::W8 => 1,
        Width::W16 => 2,
        Width::W32 => 4,
        Width::W64 => 8,
    }
}

/// The accesses that make up a copy: growing to the alignment of 8 bytes, then 8 bytes each, then
/// shrinking, as the vendor's driver does. Spec: §1
fn steps(at: u64, len: usize) -> impl Iterator<Item = Width> {
    let (mut at, mut left) = (at, len);
    std::iter::from_fn(move || {
        let width = [Width::W64, Width::W32, Width::W16, Width::W8]
            .into_iter()
            .find(|&width| at % width.bytes() == 0 && len_of(width) <= left)?;
        at += width.bytes();
        left -= len_of(width);
        Some(width)
    })
}

/// Makes one load.
///
/// # Safety
/// `from` is mapped device memory for the width's bytes, and aligned to them.
#[inline]
unsafe fn load(from: NonNull<u8>, width: Width) -> u64 {
    // The cells exist for one access each, so that no reference to a register outlives it.
    match width {
        Width::W8 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { from.cast::<RO<u8>>().as_ref() };
            cell.read().into()
        }
        Width::W16 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { from.cast::<RO<u16>>().as_ref() };
            cell.read().into()
        }
        Width::W32 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { from.cast::<RO<u32>>().as_ref() };
            cell.read().into()
        }
        Width::W64 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { from.cast::<RO<u64>>().as_ref() };
            cell.read()
        }
    }
}

/// Makes one store of the value's low bytes.
///
/// # Safety
/// As for [`load`].
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the caller checked that the value fits")]
unsafe fn store(to: NonNull<u8>, width: Width, value: u64) {
    match width {
        Width::W8 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { to.cast::<WO<u8>>().as_ref() };
            // SAFETY: a write to a device register changes no memory of this program.
            unsafe { cell.write(value as u8) };
        }
        Width::W16 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { to.cast::<WO<u16>>().as_ref() };
            // SAFETY: as above.
            unsafe { cell.write(value as u16) };
        }
        Width::W32 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { to.cast::<WO<u32>>().as_ref() };
            // SAFETY: as above.
            unsafe { cell.write(value as u32) };
        }
        Width::W64 => {
            // SAFETY: by contract of this function.
            let cell = unsafe { to.cast::<WO<u64>>().as_ref() };
            // SAFETY: as above.
            unsafe { cell.write(value) };
        }
    }
}

// The cells are the registers, without anything around them.
const _: () = assert!(size_of::<RO<u64>>() == 8 && align_of::<RO<u64>>() == 8);
const _: () = assert!(size_of::<WO<u32>>() == 4 && size_of::<WO<u16>>() == 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_made_of_aligned_accesses() {
        let widths = |at, len| steps(at, len).map(len_of).collect::<Vec<_>>();
        assert_eq!(widths(1, 24), [1, 2, 4, 8, 8, 1]);
        assert_eq!(widths(0, 16), [8, 8]);
        assert_eq!(widths(6, 3), [2, 1]);
        assert_eq!(widths(8, 7), [4, 2, 1]);
        assert_eq!(widths(3, 0), [] as [usize; 0]);
        for at in 0..16 {
            for len in 0..40 {
                assert_eq!(widths(at, len).iter().sum::<usize>(), len);
            }
        }
    }
}
