//! Device memory that the host uses like its own.

use std::fmt;
use std::time::Duration;

use et_hal::{DeviceAccess, Hal, Mmio};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Stream;
use super::copy::check_host;
use crate::event::{Remains, Transfer};
use crate::link::{StreamError, Window};
use crate::memory::{Access, Claim, DeviceSlice, HostBuffer};
use crate::profile::Returned;
use crate::{Error, Result};

/// What the device does with a copy that the host uses so.
fn device_access(access: Access) -> DeviceAccess {
    match access {
        Access::Read => DeviceAccess::Write,
        Access::Update => DeviceAccess::ReadWrite,
        Access::Write => DeviceAccess::Read,
    }
}

/// How the host reaches what it has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MapPath {
    /// The device's own memory, through its BAR.
    Window,
    /// A copy in host memory.
    Copy,
}

enum Memory<H: Hal> {
    Window(Window<H>),
    Copy(Copy<H>),
}

/// A copy in host memory.
enum Copy<H: Hal> {
    Here(HostBuffer<H>),
    /// It is being written back.
    Leaving(Transfer<H>),
    /// It went with its device.
    Gone(Error),
}

impl<H: Hal> Returned for Mapping<H> {}

/// Device memory that the host has [mapped](Stream::map).
///
/// [`unmap`](Self::unmap) says whether everything written has reached the device. Dropping it
/// writes back too, without waiting; a failure of that is in
/// [`Stream::take_errors`](crate::Stream::take_errors).
pub struct Mapping<H: Hal> {
    stream: Stream<H>,
    slice: DeviceSlice,
    access: Access,
    memory: Memory<H>,
    is_changed: bool,
    _claim: Claim,
}

impl<H: Hal> fmt::Debug for Mapping<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("addr", &self.slice.addr())
            .field("len_bytes", &self.slice.len_bytes())
            .field("access", &self.access)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

/// A mapping that has not ended, because what was written has not reached the device.
#[derive(thiserror::Error)]
#[error("mapped memory was not written back")]
pub struct UnmapError<H: Hal> {
    /// Why.
    #[source]
    pub error: Error,
    /// To be ended once more, or dropped.
    pub mapping: Box<Mapping<H>>,
}

impl<H: Hal> fmt::Debug for UnmapError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnmapError")
            .field("error", &self.error)
            .field("mapping", &self.mapping)
            .finish()
    }
}

impl<H: Hal> From<UnmapError<H>> for Error {
    fn from(failed: UnmapError<H>) -> Self {
        failed.error
    }
}

impl<H: Hal> Stream<H> {
    pub(super) fn map_slice(
        &self,
        slice: DeviceSlice,
        access: Access,
        timeout: Duration,
    ) -> Result<Mapping<H>> {
        let link = self.link();
        link.check_slice(&slice)?;
        check_host(&slice, access, "map")?;
        let claim = link.memory.map(slice.addr(), slice.len_bytes(), access.writes())?;
        let memory = match link.window() {
            Some(window) => {
                // What was asked for before may change it.
                self.synchronize(timeout)?;
                Memory::Window(window)
            }
            None => {
                let len = usize::try_from(slice.len_bytes()).unwrap_or(usize::MAX);
                let mut buffer = link.host_buffer(len, device_access(access))?;
                if access.reads() {
                    let transfer = self.direct_to_host(&[(0, slice.clone())], buffer)?;
                    buffer = transfer.wait(timeout).map_err(|failed| failed.error)?;
                }
                Memory::Copy(Copy::Here(buffer))
            }
        };
        let stream = self.clone();
        Ok(Mapping { stream, slice, access, memory, is_changed: false, _claim: claim })
    }
}

impl<H: Hal> Mapping<H> {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.slice.len_bytes()
    }

    /// Returns what it was mapped for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns how the host reaches the memory.
    #[must_use]
    pub fn path(&self) -> MapPath {
        match self.memory {
            Memory::Window(_) => MapPath::Window,
            Memory::Copy(_) => MapPath::Copy,
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        let whole = usize::try_from(self.slice.len_bytes()).unwrap_or(usize::MAX);
        et_hal::OutOfRange::check(offset, len, whole).map(|_| ()).map_err(|e| Error::range(&e))
    }

    /// Reads from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Unsupported`] if it was mapped for writing alone, or is
    /// being written back; what became of the device. `into` is unchanged.
    pub fn read<T: FromBytes + IntoBytes>(&self, offset: usize, into: &mut [T]) -> Result<()> {
        const OP: &str = "reading a mapping";
        let bytes = into.as_mut_bytes();
        self.check(offset, bytes.len())?;
        if !self.access.reads() {
            let why = "it was mapped to be written, and its old contents were not fetched";
            return Err(Error::Unsupported { op: OP, why });
        }
        match &self.memory {
            Memory::Window(window) => {
                let at = window.at(self.slice.addr().as_u64() + offset as u64);
                window.mmio.read_bytes(at, bytes).map_err(Error::hal(OP))
            }
            Memory::Copy(Copy::Here(buffer)) => buffer.copy_out(offset, bytes),
            Memory::Copy(copy) => Err(copy.absence(OP)),
        }
    }

    /// Writes from byte `offset` on. The device sees it after [`flush`](Self::flush) or
    /// [`unmap`](Self::unmap), and may see it before.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Unsupported`] if it was mapped for reading, or is being
    /// written back; what became of the device.
    pub fn write<T: IntoBytes + Immutable>(&mut self, offset: usize, from: &[T]) -> Result<()> {
        const OP: &str = "writing a mapping";
        let bytes = from.as_bytes();
        self.check(offset, bytes.len())?;
        if !self.access.writes() {
            return Err(Error::Unsupported { op: OP, why: "it was mapped for reading" });
        }
        self.is_changed |= !bytes.is_empty();
        match &mut self.memory {
            Memory::Window(window) => {
                let at = window.at(self.slice.addr().as_u64() + offset as u64);
                window.mmio.write_bytes(at, bytes).map_err(Error::hal(OP))
            }
            Memory::Copy(Copy::Here(buffer)) => buffer.copy_in(offset, bytes),
            Memory::Copy(copy) => Err(copy.absence(OP)),
        }
    }

    /// Makes what was written visible to the device, behind the earlier operations of the stream
    /// that it was mapped with, and waits for that.
    ///
    /// # Errors
    /// As [`Stream::upload`] and [`Event::wait`](crate::Event::wait); [`Error::Hal`]. After
    /// [`Error::Timeout`] it goes on, and the next flush waits again; after a failure of the copy
    /// what was written is still here.
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        let copy = match &mut self.memory {
            Memory::Window(window) => return window.mmio.flush().map_err(Error::hal("flushing")),
            Memory::Copy(copy) => copy,
        };
        let transfer = match std::mem::replace(copy, Copy::Gone(Error::all_closed())) {
            Copy::Leaving(transfer) => transfer,
            Copy::Here(buffer) if self.is_changed => {
                let sent = self.stream.direct_to_device(buffer, &[(0, self.slice.clone())]);
                sent.inspect_err(|error| *copy = Copy::Gone(error.clone()))?
            }
            other => {
                *copy = other;
                return match copy {
                    Copy::Gone(error) => Err(error.clone()),
                    _ => Ok(()),
                };
            }
        };
        match transfer.wait(timeout) {
            Ok(buffer) => {
                *copy = Copy::Here(buffer);
                self.is_changed = false;
                Ok(())
            }
            Err(failed) => {
                *copy = match failed.remains {
                    Remains::Buffer(buffer) => Copy::Here(buffer),
                    Remains::Transfer(transfer) => Copy::Leaving(transfer),
                    Remains::Nothing => Copy::Gone(failed.error.clone()),
                };
                Err(failed.error)
            }
        }
    }

    /// Ends the mapping, with everything written visible to the device.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), with the mapping.
    pub fn unmap(mut self, timeout: Duration) -> Result<(), UnmapError<H>> {
        self.flush(timeout).map_err(|error| UnmapError { error, mapping: Box::new(self) })
    }
}

impl<H: Hal> Copy<H> {
    /// Why it cannot be used now.
    fn absence(&self, op: &'static str) -> Error {
        match self {
            Self::Gone(error) => error.clone(),
            _ => Error::Unsupported { op, why: "it is being written back; flush it again" },
        }
    }
}

impl<H: Hal> Drop for Mapping<H> {
    fn drop(&mut self) {
        if let Memory::Copy(copy) = &mut self.memory
            && self.is_changed
            && let Copy::Here(buffer) = std::mem::replace(copy, Copy::Gone(Error::all_closed()))
        {
            // What becomes of one that is accepted is in the list of the stream by itself.
            let sent = self.stream.direct_to_device(buffer, &[(0, self.slice.clone())]);
            if let Err(error) = sent {
                let error = StreamError::NotWrittenBack { addr: self.slice.addr(), error };
                self.stream.link().report_quietly(self.stream.id(), error);
            }
        }
    }
}
