//! Eventfds that the peer has too.

#![expect(unsafe_code, reason = "requests to the kernel carry addresses")]

use std::fs;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::io::Errno;

use crate::Home;

/// An eventfd that another process has too, to be signalled from here.
///
/// The peer can fill its counter, and it can clear `O_NONBLOCK`, which belongs to the open file and
/// so to both sides: a `write` may then block until the peer reads, which it never does. Therefore
/// none is made. The kernel adds to the counter itself, at the end of an asynchronous request that
/// does nothing; that never blocks, and a full counter stays full.
#[derive(Debug)]
pub struct PeerEvent {
    fd: Arc<OwnedFd>,
    id: Option<u64>,
    /// None where the kernel has no asynchronous requests.
    requests: Option<Arc<Requests>>,
}

impl PeerEvent {
    /// Takes a descriptor that came from the peer, or went to it.
    ///
    /// # Errors
    /// `EINVAL` unless it is an eventfd, by what `/proc` says: anything else could block in ways of
    /// its own.
    pub fn new(fd: Arc<OwnedFd>) -> Result<Self, Errno> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
        let info = info.map_err(|_| Errno::INVAL)?;
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        field("eventfd-count:").ok_or(Errno::INVAL)?;
        let id = field("eventfd-id:").and_then(|id| id.trim().parse().ok());
        Ok(Self { fd, id, requests: Requests::shared() })
    }

    /// Adds one to the counter, if there is room. Never blocks.
    pub fn signal(&self) {
        let outcome = match &self.requests {
            Some(requests) => requests.signal(self.fd.as_fd()),
            None => write_if_there_is_room(self.fd.as_fd()),
        };
        if let Err(errno) = outcome {
            tracing::debug!(%errno, "event not signalled");
        }
    }

    /// Returns the kernel's number of the counter, where it tells: two descriptors of the same one
    /// have the same number.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.id
    }
}

impl AsFd for PeerEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The best there is on kernels without asynchronous requests: a peer that fills the counter
/// between the look and the write, and has cleared `O_NONBLOCK` between its setting and the write,
/// blocks the caller.
fn write_if_there_is_room(event: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(event)?;
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(event, flags | OFlags::NONBLOCK)?;
    }
    let mut fds = [PollFd::from_borrowed_fd(event, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        // Full: as good as signalled.
        return Ok(());
    }
    match rustix::io::write(event, &1_u64.to_le_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// `struct iocb` of the kernel. Key and flags of the request change places with the byte order of
/// the machine; both are 0 here.
#[derive(Debug, Default)]
#[repr(C)]
struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;
/// `IOCB_FLAG_RESFD`: signal an eventfd at the end.
const SIGNAL: u32 = 1;
/// `struct io_event`, in words.
const ENDED_WORDS: usize = 4;
/// Requests that can have ended before the list of them is emptied, which takes a call of its own.
const ROOM: usize = 512;
/// How often the list is emptied for one signal; other threads fill it meanwhile.
const TRIES: u32 = 1000;

/// A way into the kernel for requests that do nothing but signal. One for all events of a process.
#[derive(Debug)]
struct Requests {
    context: libc::c_ulong,
    /// What is read: a file without a byte.
    nothing: OwnedFd,
    home: Home,
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Requests {
    /// Returns the one of this process; none if the kernel has no such thing.
    fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Requests>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel knows the parent's only in the parent.
        if let Some(known) = shared.upgrade().filter(|known| known.home.is_here()) {
            return Some(known);
        }
        let made = Self::new().map(Arc::new);
        let made = made.inspect_err(|errno| {
            tracing::warn!(%errno, "no asynchronous requests: a hostile peer can block signals");
        });
        let made = made.ok()?;
        *shared = Arc::downgrade(&made);
        Some(made)
    }

    fn new() -> Result<Self, Errno> {
        let nothing = memfd_create("nothing", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel fills one word.
        let made = unsafe {
            libc::syscall(libc::SYS_io_setup, ROOM as libc::c_ulong, ptr::from_mut(&mut context))
        };
        if made != 0 {
            return Err(last_errno());
        }
        Ok(Self { context, nothing, home: Home::new() })
    }

    fn signal(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
        let mut request = Request {
            opcode: READ,
            file: number(self.nothing.as_fd()),
            flags: SIGNAL,
            event: number(event),
            ..Request::default()
        };
        for _ in 0..TRIES {
            let list = [ptr::from_mut(&mut request)];
            // SAFETY: the kernel copies the one request, and reads 0 bytes before it returns: there
            // is nothing of this process that it would touch later.
            let begun = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, 1 as libc::c_long, list.as_ptr())
            };
            if begun == 1 {
                return Ok(());
            }
            match last_errno() {
                // The list of those that have ended is full.
                Errno::AGAIN => self.forget_ended()?,
                errno => return Err(errno),
            }
        }
        Err(Errno::AGAIN)
    }

    fn forget_ended(&self) -> Result<(), Errno> {
        let mut ended = [[0_u64; ENDED_WORDS]; ROOM];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for as many as are asked for, and the time is read only.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0 as libc::c_long,
                ROOM as libc::c_long,
                ended.as_mut_ptr(),
                ptr::from_ref(&at_once),
            )
        };
        if taken < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if self.home.is_here() {
            // SAFETY: made by `new`, and no request is in progress: each ends before its call does.
            let destroyed = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
            debug_assert_eq!(destroyed, 0, "a context made here can be destroyed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    /// The largest count that a write leaves.
    const FULL: u64 = u64::MAX - 1;

    fn event(flags: EventfdFlags) -> Arc<OwnedFd> {
        Arc::new(eventfd(0, flags | EventfdFlags::CLOEXEC).unwrap())
    }

    fn add(event: &OwnedFd, count: u64) {
        rustix::io::write(event, &count.to_le_bytes()).unwrap();
    }

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(event, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Fails if `work` does not end; it is left behind then.
    fn ends(work: impl FnOnce() + Send + 'static) {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            work();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LONG).expect("blocked");
    }

    #[test]
    fn every_signal_counts() {
        let fd = event(EventfdFlags::NONBLOCK);
        let peer = PeerEvent::new(Arc::clone(&fd)).unwrap();
        for _ in 0..10 * ROOM {
            peer.signal();
        }
        assert_eq!(count(&fd), 10 * ROOM as u64);
    }

    #[test]
    fn a_full_counter_that_blocks_writers_does_not_block_a_signal() {
        let fd = event(EventfdFlags::empty());
        add(&fd, FULL);
        let peer = PeerEvent::new(Arc::clone(&fd)).unwrap();
        ends(move || (0..3).for_each(|_| peer.signal()));
        assert!(count(&fd) >= FULL);
    }

    #[test]
    fn nor_does_it_where_the_kernel_has_no_requests() {
        let fd = event(EventfdFlags::empty());
        let peer = PeerEvent { fd: Arc::clone(&fd), id: None, requests: None };
        peer.signal();
        assert_eq!(count(&fd), 1);
        add(&fd, FULL);
        ends(move || peer.signal());
        assert_eq!(count(&fd), FULL);
    }

    #[test]
    fn counters_are_told_apart() {
        let (one, other) = (event(EventfdFlags::empty()), event(EventfdFlags::empty()));
        let copy = Arc::new(one.try_clone().unwrap());
        let id = |fd| PeerEvent::new(fd).unwrap().id().unwrap();
        assert_eq!(id(Arc::clone(&one)), id(copy));
        assert_ne!(id(one), id(other));
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
        for fd in [reader.into(), writer.into(), here.into(), there.into(), file] {
            assert_eq!(PeerEvent::new(Arc::new(fd)).unwrap_err(), Errno::INVAL);
        }
    }
}
