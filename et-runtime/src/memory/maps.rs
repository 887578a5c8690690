//! Parts of device memory that the host has mapped.

use std::ops::Range;

use et_hal::DeviceAddr;

use crate::sync::{Arc, Mutex, lock};
use crate::{Error, Result};

/// Who has mapped what: any number may read the same part, and one alone may write.
#[derive(Debug, Default)]
pub(super) struct Maps {
    held: Mutex<Vec<Held>>,
}

#[derive(Debug)]
struct Held {
    range: Range<u64>,
    is_written: bool,
}

impl Maps {
    /// Takes a part.
    ///
    /// # Errors
    /// [`Error::Mapped`] if a part of it is mapped already, and either is to be written.
    pub(super) fn claim(
        self: &Arc<Self>,
        addr: DeviceAddr,
        len_bytes: u64,
        is_written: bool,
    ) -> Result<Claim> {
        let start = addr.as_u64();
        let range = start..start.saturating_add(len_bytes);
        let mut held = lock(&self.held);
        let clashes = |other: &&Held| {
            (is_written || other.is_written)
                && range.start < other.range.end
                && other.range.start < range.end
        };
        if let Some(other) = held.iter().find(clashes) {
            let (addr, len) = (other.range.start, other.range.end - other.range.start);
            return Err(Error::Mapped { addr: DeviceAddr::new(addr), len });
        }
        held.push(Held { range: range.clone(), is_written });
        Ok(Claim { maps: Arc::clone(self), range, is_written })
    }
}

/// A part that is mapped; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    maps: Arc<Maps>,
    range: Range<u64>,
    is_written: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = lock(&self.maps.held);
        // Those of readers of the same part are as good.
        let is_it = |other: &Held| other.range == self.range && other.is_written == self.is_written;
        if let Some(at) = held.iter().position(is_it) {
            held.swap_remove(at);
        }
    }
}
