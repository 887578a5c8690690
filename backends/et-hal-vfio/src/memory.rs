//! Memory that can be shown to a device: a file in memory, so that a device in another process can get it by descriptor.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::{Errno, Handle, MapRequest, Mapping, Pages, Sys};
use crate::{Call, VfioError};

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed shared memory, all pages present. Taken out of this process on drop, the mapping before its file. `dma` says why
/// threads may share it.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Mapping,
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
        let request = MapRequest { len, file: Some((file.fd(), 0)), over: None, populate: true };
        let mapping = Mapping::new(sys, request)?;
        Ok(Self { mapping, file, pages })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    pub(crate) fn file(&self) -> &Handle {
        &self.file
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.pages == Pages::Huge
    }
}
