//! The calls, made.

#![expect(unsafe_code, reason = "makes system calls that take addresses and descriptor numbers")]

use std::fs::{self, File, OpenOptions};
use std::io::{IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags};
use rustix::io::ReadWriteFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;
use vfio_bindings::bindings::vfio;

use crate::memory::HUGE_PAGE_BYTES;

use super::record::{IOAS_RANGES_ARRAY, IOAS_RANGES_BYTES, IOAS_RANGES_COUNT, IOVA_RANGE_BYTES};
use super::{Arg, Errno, Fd, MapRequest, OwnerFile, Pages, Record, Request, Sys};

/// Texts that are read whole: sysfs attributes, owner files.
const MAX_TEXT_BYTES: u64 = 64 << 10;
/// Offset of a read that is made at no place of its own.
const CURRENT: u64 = u64::MAX;
/// Bytes of a page map entry.
const PAGE_MAP_ENTRY_BYTES: u64 = 8;

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linux;

/// Number of a request: both interfaces use the type `;` and put neither size nor direction into
/// it.
fn number(request: Request) -> libc::c_ulong {
    let offset = match request {
        Request::ApiVersion => 0,
        Request::CheckExtension => 1,
        Request::SetIommu => 2,
        Request::GroupStatus => 3,
        Request::SetContainer => 4,
        Request::DeviceFd => 6,
        Request::DeviceInfo => 7,
        Request::RegionInfo => 8,
        Request::IrqInfo => 9,
        Request::SetIrqs => 10,
        Request::DeviceReset => 11,
        // The same number means one thing to a container and another to a device.
        Request::IommuInfo | Request::HotResetInfo => 12,
        Request::MapDma | Request::HotReset => 13,
        Request::UnmapDma => 14,
        Request::BindIommufd => 18,
        Request::AttachPageTable => 19,
        // iommufd counts from 0x80, VFIO from 100.
        Request::IoasAlloc => 0x81 - 100,
        Request::IoasRanges => 0x84 - 100,
        Request::IoasMap => 0x85 - 100,
        Request::IoasUnmap => 0x86 - 100,
    };
    (libc::c_ulong::from(vfio::VFIO_TYPE) << 8) | libc::c_ulong::from(vfio::VFIO_BASE + offset)
}

/// Shortest structure the kernel may read or fill, which it does not learn from the structure
/// itself.
fn fixed_bytes(request: Request) -> usize {
    match request {
        Request::SetContainer => 4,
        Request::DeviceFd => 1,
        _ => 8,
    }
}

/// Puts the address of the array behind the structure into it, after checking that it holds what it
/// says.
fn point_at_array(record: &mut Record) -> Result<(), Errno> {
    let count = usize::try_from(record.u32(IOAS_RANGES_COUNT)).map_err(|_| Errno::INVAL)?;
    let bytes = count.checked_mul(IOVA_RANGE_BYTES).ok_or(Errno::INVAL)?;
    if !record.contains(IOAS_RANGES_BYTES, bytes) {
        return Err(Errno::INVAL);
    }
    let array = record.bytes_mut()[IOAS_RANGES_BYTES..].as_mut_ptr();
    record.put_u64(IOAS_RANGES_ARRAY, array.expose_provenance() as u64);
    Ok(())
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn of_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Lends a descriptor number for the time of one call.
fn lend<'a>(fd: Fd) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1. The callers pass the number of a `Handle` they hold a reference
    // to, so it stays open during the call; the result does not leave this file.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

impl Sys for Linux {
    fn open(&self, path: &Path) -> Result<Fd, Errno> {
        // The standard library opens with O_CLOEXEC.
        let file = OpenOptions::new().read(true).write(true).open(path);
        file.map(IntoRawFd::into_raw_fd).map_err(|error| of_io(&error))
    }

    fn close(&self, fd: Fd) {
        if fd >= 0 {
            // SAFETY: `Handle` calls this once, for a number it owns.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    #[cfg(any(test, feature = "vfio-ioctls"))]
    fn duplicate(&self, fd: Fd) -> Result<Fd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(lend(fd)?, 0).map(IntoRawFd::into_raw_fd)
    }

    fn read_at(&self, fd: Fd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        rustix::io::pread(lend(fd)?, into, at)
    }

    fn write_at(&self, fd: Fd, from: &[u8], at: u64) -> Result<usize, Errno> {
        rustix::io::pwrite(lend(fd)?, from, at)
    }

    fn ioctl(&self, fd: Fd, request: Request, arg: Arg<'_>) -> Result<u32, Errno> {
        let arg: *mut u8 = match arg {
            Arg::None => ptr::null_mut(),
            Arg::Value(value) => {
                ptr::without_provenance_mut(usize::try_from(value).unwrap_or(usize::MAX))
            }
            Arg::Record(record) => {
                let claimed = usize::try_from(record.u32(0)).unwrap_or(usize::MAX);
                let fixed = fixed_bytes(request);
                // From 8 bytes on the structure begins with its length, which must not promise more
                // than there is.
                if record.len() < fixed || (fixed == 8 && claimed > record.len()) {
                    return Err(Errno::INVAL);
                }
                if request == Request::IoasRanges {
                    point_at_array(record)?;
                }
                record.bytes_mut().as_mut_ptr()
            }
        };
        // SAFETY: the kernel reads and fills at most the number of bytes that the structure names,
        // which is no more than there are (checked above), or a fixed number that is there
        // (`fixed_bytes`); the other requests take no pointer. Addresses of memory inside a
        // structure are those of mappings that the caller keeps.
        let answer = unsafe { libc::ioctl(fd, number(request) as _, arg) };
        u32::try_from(answer).map_err(|_| last_error())
    }

    fn read_text(&self, path: &Path) -> Result<String, Errno> {
        let file = File::open(path).map_err(|error| of_io(&error))?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT_BYTES).read_to_end(&mut bytes).map_err(|error| of_io(&error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Errno> {
        fs::read_link(path).map_err(|error| of_io(&error))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Errno> {
        let entries = fs::read_dir(path).map_err(|error| of_io(&error))?;
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn owner_file(&self, path: &Path) -> Result<OwnerFile, Errno> {
        let mut options = OpenOptions::new();
        // The directory may be writable for every user: a link that another one put there is not
        // followed.
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        // What others have made there may be opened, but not with a wish to create it
        // (`fs.protected_regular`).
        let file = options.open(path).or_else(|error| {
            if error.kind() != std::io::ErrorKind::NotFound {
                return Err(error);
            }
            let file = options.create(true).truncate(false).open(path)?;
            // The next owner may be another user.
            file.set_permissions(fs::Permissions::from_mode(0o666))?;
            Ok(file)
        });
        let mut file = file.map_err(|error| of_io(&error))?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut bytes = Vec::new();
        let read = (&mut file).take(MAX_TEXT_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| of_io(&error))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(OwnerFile { fd: file.into_raw_fd(), locked, text })
    }

    fn write_text(&self, fd: Fd, text: &str) -> Result<(), Errno> {
        let owned = rustix::io::dup(lend(fd)?)?;
        let mut file = File::from(owned);
        let write = file.set_len(0).and_then(|()| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        });
        write.map_err(|error| of_io(&error))
    }

    fn memory_file(&self, len: usize, pages: Pages) -> Result<Fd, Errno> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if pages == Pages::Huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let fd = rustix::fs::memfd_create("et-dma", flags)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // Whoever gets the descriptor cannot shorten the file under the mapping.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(fd.into_raw_fd())
    }

    fn map(&self, request: MapRequest) -> Result<NonNull<u8>, Errno> {
        let mut flags = MapFlags::SHARED;
        let mut at = ptr::null_mut();
        if let Some(over) = request.over {
            flags |= MapFlags::FIXED;
            at = over.as_ptr().cast();
        }
        if request.populate {
            flags |= MapFlags::POPULATE;
        }
        let mapped = if let Some((fd, offset)) = request.file {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: without `over` the kernel chooses free addresses. With it, the caller owns
            // the reservation that is replaced, and that part has not been touched yet.
            unsafe { rustix::mm::mmap(at, request.len, protection, flags, lend(fd)?, offset) }?
        } else {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: the kernel chooses free addresses.
            unsafe { rustix::mm::mmap_anonymous(at, request.len, ProtFlags::empty(), flags) }?
        };
        NonNull::new(mapped.cast()).ok_or(Errno::NOMEM)
    }

    fn unmap(&self, at: NonNull<u8>, len: usize) {
        // SAFETY: `Mapping` calls this once, for what it mapped, when nothing refers to it any
        // more.
        let unmapped = unsafe { rustix::mm::munmap(at.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "a mapping made here can be taken away");
    }

    fn keep_from_children(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: the range was mapped by the caller; the advice changes nothing for this process.
        unsafe { rustix::mm::madvise(at.as_ptr().cast(), len, Advice::LinuxDontFork) }
    }

    fn populate(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno> {
        let populate = |at: *mut u8, len: usize| {
            // SAFETY: the callers' range is a mapping of their own; the advice keeps its contents.
            unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxPopulateWrite) }
        };
        // One small page, then a request to make it a huge one: quicker than all the small ones,
        // and system-wide settings do not forbid it, as they do when huge pages are to come by
        // themselves.
        for offset in (0..len).step_by(HUGE_PAGE_BYTES) {
            let rest = len - offset;
            let chunk = at.as_ptr().wrapping_add(offset);
            if rest < HUGE_PAGE_BYTES {
                break;
            }
            populate(chunk, self.page_bytes())?;
            // SAFETY: as above.
            let done = unsafe { libc::madvise(chunk.cast(), HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
            if done != 0 {
                tracing::debug!(errno = %last_error(), "no huge pages");
                break;
            }
        }
        populate(at.as_ptr(), len)
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        rustix::process::getrlimit(Resource::Memlock).current
    }

    fn page_map_entry(&self, at: NonNull<u8>) -> Result<u64, Errno> {
        let map = File::open("/proc/self/pagemap").map_err(|error| of_io(&error))?;
        let mut entry = [0; 8];
        let page = (at.addr().get() / self.page_bytes()) as u64;
        let read = map.read_exact_at(&mut entry, page * PAGE_MAP_ENTRY_BYTES);
        read.map_err(|error| of_io(&error))?;
        Ok(u64::from_le_bytes(entry))
    }

    fn page_bytes(&self) -> usize {
        rustix::param::page_size()
    }

    fn coarse_time(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        Duration::try_from(time).unwrap_or_default()
    }

    fn event(&self) -> Result<Fd, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        rustix::event::eventfd(0, flags).map(IntoRawFd::into_raw_fd)
    }

    fn raise(&self, fd: Fd) {
        // The only failure is a counter at its maximum, which is as good as raised.
        let written = lend(fd).and_then(|fd| rustix::io::write(fd, &1_u64.to_le_bytes()));
        tracing::trace!(?written, "event raised");
    }

    fn clear(&self, fd: Fd) -> bool {
        let Ok(fd) = lend(fd) else { return false };
        let mut count = [0; 8];
        // A server that signals the event has it too. It can take the count first, and clear
        // `O_NONBLOCK`, which belongs to the open file; so the read itself says that it does not
        // wait.
        let into = &mut [IoSliceMut::new(&mut count)];
        match rustix::io::preadv2(fd, into, CURRENT, ReadWriteFlags::NOWAIT) {
            // Kernels before 5.8 know that of files only.
            Err(Errno::OPNOTSUPP) => rustix::io::read(fd, &mut count).is_ok(),
            read => read.is_ok(),
        }
    }

    fn poll(&self, fds: &[Fd], timeout: Duration) -> Result<u32, Errno> {
        let polled: Result<Vec<_>, _> =
            fds.iter().map(|&fd| Ok(PollFd::from_borrowed_fd(lend(fd)?, PollFlags::IN))).collect();
        let mut polled = polled?;
        let timeout = Timespec::try_from(timeout).ok();
        rustix::event::poll(&mut polled, timeout.as_ref())?;
        let ready = polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.fold(0, |bits, (index, _)| bits | 1_u32.checked_shl(bit(index)).unwrap_or(0)))
    }
}

fn bit(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed_on_exec(fd: Fd) -> bool {
        let flags = rustix::io::fcntl_getfd(lend(fd).unwrap()).unwrap();
        flags.contains(rustix::io::FdFlags::CLOEXEC)
    }

    #[test]
    fn no_descriptor_is_inherited() {
        let sys = Linux;
        let directory = std::env::temp_dir();
        let path = directory.join(format!("et-hal-vfio-cloexec-{}", std::process::id()));
        let owner = sys.owner_file(&path).unwrap();
        let fds = [
            sys.open(Path::new("/dev/null")).unwrap(),
            sys.event().unwrap(),
            sys.memory_file(4096, Pages::Small).unwrap(),
            sys.duplicate(owner.fd).unwrap(),
            owner.fd,
        ];
        assert!(owner.locked);
        for fd in fds {
            assert!(is_closed_on_exec(fd));
            sys.close(fd);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn numbers_are_those_of_the_kernel() {
        // Independent of `number`: from the numbers as the kernel's log prints them.
        for (request, expected) in [
            (Request::ApiVersion, 0x3b64),
            (Request::DeviceFd, 0x3b6a),
            (Request::SetIrqs, 0x3b6e),
            (Request::DeviceReset, 0x3b6f),
            (Request::MapDma, 0x3b71),
            (Request::UnmapDma, 0x3b72),
            (Request::BindIommufd, 0x3b76),
            (Request::AttachPageTable, 0x3b77),
            (Request::IoasAlloc, 0x3b81),
            (Request::IoasRanges, 0x3b84),
            (Request::IoasMap, 0x3b85),
            (Request::IoasUnmap, 0x3b86),
        ] {
            assert_eq!(number(request), expected, "{request:?}");
        }
    }

    #[test]
    fn a_structure_that_promises_too_much_does_not_reach_the_kernel() {
        let fd = Linux.event().unwrap();
        let mut record = Record::new(16);
        record.put_u32(0, 4096);
        let refused = Linux.ioctl(fd, Request::DeviceInfo, Arg::Record(&mut record));
        assert_eq!(refused, Err(Errno::INVAL));
        Linux.close(fd);
    }

    /// Who got the descriptor can clear the flag and take the count just before us.
    #[test]
    fn an_event_that_blocks_readers_does_not_block_us() {
        let fd = Linux.event().unwrap();
        rustix::fs::fcntl_setfl(lend(fd).unwrap(), rustix::fs::OFlags::empty()).unwrap();
        let (cleared, is_cleared) = std::sync::mpsc::channel();
        std::thread::spawn(move || cleared.send(Linux.clear(fd)));
        assert_eq!(is_cleared.recv_timeout(Duration::from_secs(20)), Ok(false));
        Linux.raise(fd);
        assert!(Linux.clear(fd));
        Linux.close(fd);
    }

    #[test]
    fn events_count_and_clear() {
        let fd = Linux.event().unwrap();
        assert_eq!(Linux.poll(&[fd], Duration::ZERO), Ok(0));
        Linux.raise(fd);
        Linux.raise(fd);
        assert_eq!(Linux.poll(&[fd], Duration::ZERO), Ok(1));
        assert!(Linux.clear(fd));
        assert!(!Linux.clear(fd));
        Linux.close(fd);
    }
}
