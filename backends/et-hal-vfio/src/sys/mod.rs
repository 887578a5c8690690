//! The seam: every call of the operating system that this crate makes goes through [`Sys`].
//!
//! [`Linux`] makes the calls; the tests put a fake kernel in its place, which keeps books on
//! descriptors, mappings and pins and can refuse any call with any number.

mod linux;
mod record;

#[cfg(test)]
pub(crate) mod fake;

use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use et_vfio_user::Home;

pub(crate) use linux::Linux;
pub(crate) use record::{IOAS_RANGES_BYTES, IOAS_RANGES_COUNT, IOVA_RANGE_BYTES, Record};
pub(crate) use rustix::io::Errno;

#[cfg(target_endian = "big")]
compile_error!("the kernel's structures are decoded as little-endian");

/// A descriptor number; [`Handle`] is the owning form.
pub(crate) type Fd = i32;

/// The `ioctl` requests of VFIO and iommufd that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    ApiVersion,
    CheckExtension,
    SetIommu,
    GroupStatus,
    SetContainer,
    DeviceFd,
    DeviceInfo,
    RegionInfo,
    IrqInfo,
    SetIrqs,
    DeviceReset,
    IommuInfo,
    HotResetInfo,
    HotReset,
    MapDma,
    UnmapDma,
    BindIommufd,
    AttachPageTable,
    IoasAlloc,
    IoasRanges,
    IoasMap,
    IoasUnmap,
}

/// What a request is given.
#[derive(Debug)]
pub(crate) enum Arg<'a> {
    /// Nothing.
    None,
    /// A number in place of a pointer.
    Value(u32),
    /// A structure, which the kernel may fill.
    Record(&'a mut Record),
}

/// Pages a memory file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The processor's smallest.
    Small,
    /// 2 MiB, from the pool the administrator reserved.
    Huge,
}

/// Where and what to map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRequest {
    /// Bytes, a multiple of the page size.
    pub(crate) len: usize,
    /// What to show there; `None` reserves addresses that no access may touch.
    pub(crate) file: Option<(Fd, u64)>,
    /// Replaces this part of a reservation.
    pub(crate) over: Option<NonNull<u8>>,
    /// Gets the pages at once.
    pub(crate) populate: bool,
}

/// A file that says who owns a device.
#[derive(Debug)]
pub(crate) struct OwnerFile {
    pub(crate) fd: Fd,
    /// No other process has it locked.
    pub(crate) locked: bool,
    /// What it says.
    pub(crate) text: String,
}

/// The operating system.
///
/// Calls may fail with `EINTR`; [`retry`] is above the seam, so that the fake can test it.
pub(crate) trait Sys: fmt::Debug + Send + Sync {
    /// Tells kernels apart; there is one outside of tests.
    fn identity(&self) -> usize {
        0
    }

    /// Opens for reading and writing, not inherited by programs this process starts.
    fn open(&self, path: &Path) -> Result<Fd, Errno>;
    fn close(&self, fd: Fd);
    /// Returns a second descriptor of the same open file, not inherited by other programs.
    #[cfg(any(test, feature = "vfio-ioctls"))]
    fn duplicate(&self, fd: Fd) -> Result<Fd, Errno>;
    fn read_at(&self, fd: Fd, into: &mut [u8], at: u64) -> Result<usize, Errno>;
    fn write_at(&self, fd: Fd, from: &[u8], at: u64) -> Result<usize, Errno>;
    fn ioctl(&self, fd: Fd, request: Request, arg: Arg<'_>) -> Result<u32, Errno>;

    /// Reads a small text file.
    fn read_text(&self, path: &Path) -> Result<String, Errno>;
    fn read_link(&self, path: &Path) -> Result<PathBuf, Errno>;
    /// Names in a directory, sorted.
    fn list(&self, path: &Path) -> Result<Vec<String>, Errno>;
    /// Opens or makes the file and tries to lock it.
    fn owner_file(&self, path: &Path) -> Result<OwnerFile, Errno>;
    /// Replaces the contents of an owner file.
    fn write_text(&self, fd: Fd, text: &str) -> Result<(), Errno>;

    /// Creates a memory file whose length cannot change.
    fn memory_file(&self, len: usize, pages: Pages) -> Result<Fd, Errno>;
    fn map(&self, request: MapRequest) -> Result<NonNull<u8>, Errno>;
    /// Takes away a mapping that `map` made and that is not used any more.
    fn unmap(&self, at: NonNull<u8>, len: usize);
    /// Keeps a mapping out of child processes.
    fn keep_from_children(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno>;
    /// Makes all pages of a mapped file in memory present, huge ones where the kernel has them.
    fn populate(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno>;
    /// Soft limit of locked memory in bytes; `None` is no limit.
    fn locked_memory_limit(&self) -> Option<u64>;
    /// The page map entry of a mapped address.
    fn page_map_entry(&self, at: NonNull<u8>) -> Result<u64, Errno>;
    fn page_bytes(&self) -> usize;
    /// Time since some point, to a few milliseconds; takes nanoseconds.
    fn coarse_time(&self) -> Duration;

    /// Creates an event counter: non-blocking, not inherited.
    fn event(&self) -> Result<Fd, Errno>;
    /// Adds one to an event counter.
    fn raise(&self, fd: Fd);
    /// Sets an event counter to zero; returns `true` if it was not.
    fn clear(&self, fd: Fd) -> bool;
    /// Waits until one of at most 32 descriptors is readable; returns them as bits.
    fn poll(&self, fds: &[Fd], timeout: Duration) -> Result<u32, Errno>;
}

/// Repeats a call that a signal interrupted. The number of signals is bounded only by who sends
/// them, hence the limit.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..1000 {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    Err(Errno::INTR)
}

/// An open descriptor, closed on drop.
#[derive(Debug)]
pub(crate) struct Handle {
    sys: Arc<dyn Sys>,
    fd: Fd,
    home: Home,
    /// How long to wait for the close; `None` where it takes no time.
    patience: Option<Duration>,
}

impl Handle {
    /// Takes a descriptor over.
    pub(crate) fn new(sys: &Arc<dyn Sys>, fd: Fd) -> Self {
        Self { sys: Arc::clone(sys), fd, home: Home::new(), patience: None }
    }

    /// Lets a close that takes longer end by itself.
    pub(crate) fn closing_within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Closes on a thread of its own.
    fn close_patiently(&self, patience: Duration) {
        let (sys, fd) = (Arc::clone(&self.sys), self.fd);
        let (done, closed) = mpsc::channel();
        let work = move || {
            sys.close(fd);
            // The receiver is gone if it took too long.
            let _ = done.send(());
        };
        let spawned = thread::Builder::new().name("et-vfio-close".into()).spawn(work);
        if spawned.is_err() {
            self.sys.close(fd);
        } else if closed.recv_timeout(patience).is_err() {
            tracing::warn!(
                "the kernel takes long to close the device, which cannot be opened meanwhile"
            );
        }
    }

    pub(crate) fn open(sys: &Arc<dyn Sys>, path: &Path) -> Result<Self, Errno> {
        Ok(Self::new(sys, retry(|| sys.open(path))?))
    }

    pub(crate) fn event(sys: &Arc<dyn Sys>) -> Result<Self, Errno> {
        Ok(Self::new(sys, sys.event()?))
    }

    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    pub(crate) fn sys(&self) -> &Arc<dyn Sys> {
        &self.sys
    }

    /// Makes a request without argument.
    pub(crate) fn ask(&self, request: Request) -> Result<u32, Errno> {
        retry(|| self.sys.ioctl(self.fd, request, Arg::None))
    }

    /// Makes a request with a number.
    pub(crate) fn ask_value(&self, request: Request, value: u32) -> Result<u32, Errno> {
        retry(|| self.sys.ioctl(self.fd, request, Arg::Value(value)))
    }

    /// Makes a request with a structure.
    pub(crate) fn ask_record(&self, request: Request, record: &mut Record) -> Result<u32, Errno> {
        retry(|| self.sys.ioctl(self.fd, request, Arg::Record(record)))
    }

    /// Makes a request whose answer may be longer than the structure: the kernel says how long it
    /// would be, and is asked again with that much room until it fits.
    pub(crate) fn ask_sized(&self, request: Request, record: Record) -> Result<Record, Errno> {
        let mut record = record;
        for _ in 0..8 {
            let room = record.len();
            let mut answer = record.clone();
            self.ask_record(request, &mut answer)?;
            let wanted = usize::try_from(answer.u32(0)).unwrap_or(usize::MAX);
            if wanted <= room {
                return Ok(answer);
            }
            record = record.resized(wanted).ok_or(Errno::MSGSIZE)?;
        }
        Err(Errno::MSGSIZE)
    }

    /// Reads exactly `into`.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> Result<(), Errno> {
        let read = retry(|| self.sys.read_at(self.fd, into, at))?;
        if read == into.len() { Ok(()) } else { Err(Errno::IO) }
    }

    /// Writes exactly `from`.
    pub(crate) fn write_at(&self, from: &[u8], at: u64) -> Result<(), Errno> {
        let written = retry(|| self.sys.write_at(self.fd, from, at))?;
        if written == from.len() { Ok(()) } else { Err(Errno::IO) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match self.patience {
            // In a child it is a copy, and the device stays open.
            Some(patience) if self.home.is_here() => self.close_patiently(patience),
            _ => self.sys.close(self.fd),
        }
    }
}

/// A mapping, taken away on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    sys: Arc<dyn Sys>,
    base: NonNull<u8>,
    len: usize,
    home: Home,
}

impl Mapping {
    pub(crate) fn new(sys: &Arc<dyn Sys>, request: MapRequest) -> Result<Self, Errno> {
        let base = retry(|| sys.map(request))?;
        let home = Home::new();
        let mapping = Self { sys: Arc::clone(sys), base, len: request.len, home };
        sys.keep_from_children(base, request.len)?;
        Ok(mapping)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child did not inherit it: there may be something else in its place.
        if self.home.is_here() {
            self.sys.unmap(self.base, self.len);
        }
    }
}
