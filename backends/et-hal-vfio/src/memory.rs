//! Memory that can be shown to a device: a file in memory, so that a device in another process can
//! get it by descriptor.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::{Errno, Handle, MapRequest, Mapping, Pages, Sys, retry};
use crate::{Call, VfioError};

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed shared memory, all pages present. Taken out of this process on drop, the mapping before
/// its file. `dma` says why threads may share it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What `base` is in; taken away as a whole.
    _mapping: Mapping,
    base: NonNull<u8>,
    len: usize,
    file: Handle,
    pages: Pages,
}

impl Memory {
    /// Makes memory of small pages.
    pub(crate) fn small(sys: &Arc<dyn Sys>, len: usize) -> Result<Self, VfioError> {
        let len = len.next_multiple_of(sys.page_bytes());
        Self::of(sys, len, Pages::Small)
            .map_err(|errno| VfioError::call(Call::Memory, format!("{len} bytes"), errno))
    }

    /// Makes memory of huge pages; `None` if not enough are free.
    pub(crate) fn huge(sys: &Arc<dyn Sys>, len: usize) -> Option<Self> {
        let len = len.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
        let made = Self::of(sys, len, Pages::Huge);
        made.inspect_err(|errno| tracing::debug!(len, %errno, "no huge pages")).ok()
    }

    fn of(sys: &Arc<dyn Sys>, len: usize, pages: Pages) -> Result<Self, Errno> {
        let file = Handle::new(sys, sys.memory_file(len, pages)?);
        let whole = MapRequest { len, file: Some((file.fd(), 0)), over: None, populate: true };
        if pages == Pages::Huge || len < HUGE_PAGE_BYTES {
            let mapping = Mapping::new(sys, whole)?;
            let base = mapping.base();
            return Ok(Self { _mapping: mapping, base, len, file, pages });
        }
        // Huge pages need their place: reserve more, and map over an aligned part of it.
        let room = len.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let reserve = MapRequest { len: room, file: None, over: None, populate: false };
        let mapping = Mapping::new(sys, reserve)?;
        let start = mapping.base().as_ptr();
        // The lead is less than a huge page, and the reservation is longer by one.
        let aligned = start.wrapping_add(start.align_offset(HUGE_PAGE_BYTES));
        let base = NonNull::new(aligned).ok_or(Errno::NOMEM)?;
        retry(|| sys.map(MapRequest { over: Some(base), populate: false, ..whole }))?;
        sys.keep_from_children(base, len)?;
        if retry(|| sys.populate(base, len)).is_err() {
            // A kernel that does not know the request populates when it maps.
            retry(|| sys.map(MapRequest { over: Some(base), ..whole }))?;
            sys.keep_from_children(base, len)?;
        }
        Ok(Self { _mapping: mapping, base, len, file, pages })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn file(&self) -> &Handle {
        &self.file
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.pages == Pages::Huge || self.len >= HUGE_PAGE_BYTES
    }
}
