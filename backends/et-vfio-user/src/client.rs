//! The driver's side of a connection.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::Message;
use crate::limits::{self, Stated};
use crate::link::{End, Link, SENT_FDS};
use crate::stop::Stop;
use crate::wire::{self, Command, flag};
use crate::{
    Access, ClientError, Closed, DeviceInfo, HostMemory, IoFd, IoFdKind, IrqAction, IrqInfo,
    Limits, Region, region,
};

/// Room for a region's capabilities in the first question; a larger one takes a second.
const REGION_ARGSZ: u32 = 4096;

/// The kernel does not take any duration as a time-out.
const LONGEST_CONNECT: Duration = Duration::from_secs(3600);
/// A short time-out is no reason to give up a server that pauses inside a message.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// To which interrupts of a range something happens.
#[derive(Clone, Copy, Debug)]
pub enum IrqSet<'a> {
    /// To so many. None at all, with [`IrqAction::Trigger`], disconnects the whole kind.
    All(u32),
    /// To those that are true; one per interrupt.
    Bool(&'a [bool]),
    /// Connects these events, or disconnects; one per interrupt.
    Eventfds(&'a [Option<BorrowedFd<'a>>]),
}

/// A device in another process.
///
/// All methods may be called from several threads. Each is answered within the time given at
/// [`Client::connect`], or fails; when the connection is gone all fail at once, those that wait
/// included, with [`ClientError::Disconnected`].
#[derive(Debug)]
pub struct Client {
    link: Arc<Link>,
    stop: Arc<Stop>,
    timeout: Duration,
    limits: Limits,
    version: (u16, u16),
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to the server on a socket and agrees with it on a version.
    ///
    /// `memory` is what the device may reach by message; `timeout` is the longest that any answer
    /// may take, [`Client::reset`] excepted.
    ///
    /// # Errors
    /// [`ClientError::Connect`] if nothing listens, [`ClientError::NoAnswer`] if the server is
    /// busy, [`ClientError::Version`] or [`ClientError::Refused`] if it cannot agree.
    pub fn connect(
        path: impl AsRef<Path>,
        memory: Arc<dyn HostMemory>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let path = path.as_ref();
        let socket = match connect(path, timeout) {
            Ok(socket) => socket,
            // The backlog stayed full.
            Err(Errno::AGAIN) => return Err(ClientError::NoAnswer(timeout)),
            Err(errno) => {
                let (path, source) = (path.to_owned(), errno.into());
                return Err(ClientError::Connect { path, source });
            }
        };
        Self::from_stream(socket.into(), memory, timeout)
    }

    /// As [`Client::connect`], on a connection that someone else made.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn from_stream(
        stream: UnixStream,
        memory: Arc<dyn HostMemory>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let refused =
            |errno: Errno| ClientError::Resource { what: "make an eventfd", source: errno.into() };
        let stop = Arc::new(Stop::new().map_err(refused)?);
        let patience = timeout.max(LEAST_PATIENCE);
        let link = Link::new(stream.into(), Arc::clone(&stop), patience).map_err(refused)?;
        let (version, limits) = negotiate(&link, timeout)?;
        let link = Arc::new(link);
        let bus = Arc::clone(&link);
        let thread = thread::Builder::new()
            .name("vfio-user".into())
            .spawn(move || {
                let end = CloseAtEnd(&bus);
                serve_memory(end.0, &*memory, timeout);
            })
            .map_err(|source| ClientError::Resource { what: "start a thread", source })?;
        Ok(Self { link, stop, timeout, limits, version, thread: Some(thread) })
    }

    /// Returns the version of the protocol that both sides speak: major, minor.
    #[must_use]
    pub fn version(&self) -> (u16, u16) {
        self.version
    }

    /// What the server can take.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Why the connection is gone, if it is.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }

    /// An eventfd that becomes readable when the connection is gone, and stays so. To be polled,
    /// not read.
    #[must_use]
    pub fn closed_fd(&self) -> BorrowedFd<'_> {
        self.link.gone()
    }

    /// What the device is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn device_info(&self) -> Result<DeviceInfo, ClientError> {
        let command = Command::DeviceInfo;
        let argsz = to_u32(size_of::<wire::DeviceInfo>());
        let asked = wire::DeviceInfo { argsz: argsz.into(), ..Default::default() };
        let reply = self.ask(command, asked.as_bytes())?;
        let info = fixed::<wire::DeviceInfo>(command, &reply)?;
        let flags = info.flags.get();
        Ok(DeviceInfo {
            pci: flags & wire::DEVICE_PCI != 0,
            resettable: flags & wire::DEVICE_RESET != 0,
            regions: info.regions.get(),
            irqs: info.irqs.get(),
        })
    }

    /// A region; [`Region::areas`] lists what can be mapped through [`Region::memory`].
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::BadReply`] also if the areas make no sense.
    pub fn region_info(&self, index: u32) -> Result<Region, ClientError> {
        let command = Command::RegionInfo;
        let reply = self.ask_sized(command, REGION_ARGSZ, |argsz| {
            let (argsz, index) = (argsz.into(), index.into());
            wire::RegionInfo { argsz, index, ..Default::default() }
        })?;
        region::decode(index, &reply.body, reply.fds)
            .map_err(|what| ClientError::BadReply { command, what })
    }

    /// Reads from a region, in as many messages as its length needs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let command = Command::RegionRead;
        let mut at = check(command, offset, into.len())?;
        for piece in into.chunks_mut(self.piece()) {
            let access = access(region, at, piece.len());
            let reply = self.ask(command, access.as_bytes())?;
            let (done, data) = split::<wire::RegionAccess>(command, &reply)?;
            if *done != access || data.len() != piece.len() {
                let what = "it is for another place or length";
                return Err(ClientError::BadReply { command, what });
            }
            piece.copy_from_slice(data);
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes to a region, in as many messages as its length needs; returns when the device has
    /// taken the last.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        let command = Command::RegionWrite;
        let mut at = check(command, offset, from.len())?;
        for piece in from.chunks(self.piece()) {
            let access = access(region, at, piece.len());
            let reply = self.ask_with(command, [access.as_bytes(), piece], &[])?;
            if *fixed::<wire::RegionAccess>(command, &reply)? != access {
                let what = "it is for another place or length";
                return Err(ClientError::BadReply { command, what });
            }
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes to a region without waiting for the device: one system call and no allocation for
    /// anything short, such as a doorbell.
    ///
    /// Whether the device refused is never known. Later requests are carried out after it.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`]; [`ClientError::Timeout`] if the server does not read.
    pub fn posted_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        let command = Command::RegionWrite;
        let mut at = check(command, offset, from.len())?;
        for piece in from.chunks(self.piece()) {
            let access = access(region, at, piece.len());
            self.link
                .tell(command, [access.as_bytes(), piece], self.timeout)
                .map_err(|end| lost(command, end, self.timeout))?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Descriptors that take writes to parts of a region.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, ClientError> {
        let command = Command::RegionIoFds;
        let reply = self.ask_sized(command, REGION_ARGSZ, |argsz| wire::RegionIoFds {
            argsz: argsz.into(),
            index: region.into(),
            ..Default::default()
        })?;
        let bad = |what| ClientError::BadReply { command, what };
        let (head, parts) = split::<wire::RegionIoFds>(command, &reply)?;
        let parts = <[wire::SubRegion]>::ref_from_bytes(parts)
            .map_err(|_| bad("the list of sub-regions is cut off"))?;
        if head.index.get() != region || head.count.get() as usize != parts.len() {
            return Err(bad("it is for another region or number of sub-regions"));
        }
        let parts = parts.to_vec();
        let fds: Vec<Arc<OwnedFd>> = reply.fds.into_iter().map(Arc::new).collect();
        let decode = |part: &wire::SubRegion| {
            let fd = fds.get(part.fd_index.get() as usize);
            Ok(IoFd {
                offset: part.offset.get(),
                len: part.len.get(),
                fd: Arc::clone(fd.ok_or_else(|| bad("a descriptor is missing"))?),
                kind: match part.kind.get() {
                    0 => IoFdKind::Ioeventfd,
                    1 => IoFdKind::Ioregionfd,
                    _ => return Err(bad("a sub-region is of an unknown kind")),
                },
                flags: part.flags.get(),
                data: part.data.get(),
            })
        };
        parts.iter().map(decode).collect()
    }

    /// The interrupts of a kind.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn irq_info(&self, index: u32) -> Result<IrqInfo, ClientError> {
        let command = Command::IrqInfo;
        let argsz = to_u32(size_of::<wire::IrqInfo>());
        let (argsz, index) = (argsz.into(), index.into());
        let asked = wire::IrqInfo { argsz, index, ..Default::default() };
        let reply = self.ask(command, asked.as_bytes())?;
        let info = fixed::<wire::IrqInfo>(command, &reply)?;
        if info.index != asked.index {
            return Err(ClientError::BadReply { command, what: "it is for another kind" });
        }
        let has = |bit| info.flags.get() & bit != 0;
        Ok(IrqInfo {
            count: info.count.get(),
            eventfd: has(wire::IRQ_EVENTFD),
            maskable: has(wire::IRQ_MASKABLE),
            automasked: has(wire::IRQ_AUTOMASKED),
            noresize: has(wire::IRQ_NORESIZE),
        })
    }

    /// Connects, masks or triggers interrupts `start` and following of a kind.
    ///
    /// Events go in as many messages as the server's limit needs; if a later one fails the earlier
    /// ones hold.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Argument`] if the server takes no descriptors.
    pub fn set_irqs(
        &self,
        index: u32,
        start: u32,
        action: IrqAction,
        set: IrqSet<'_>,
    ) -> Result<(), ClientError> {
        let command = Command::SetIrqs;
        let argument = |what| ClientError::Argument { command, what };
        let action = match action {
            IrqAction::Mask => wire::SET_MASK,
            IrqAction::Unmask => wire::SET_UNMASK,
            IrqAction::Trigger => wire::SET_TRIGGER,
        };
        let send = |kind: u32, start: u32, count: u32, data: &[u8], fds: &[BorrowedFd<'_>]| {
            let set = wire::SetIrqs {
                argsz: to_u32(size_of::<wire::SetIrqs>() + data.len()).into(),
                flags: (kind | action).into(),
                index: index.into(),
                start: start.into(),
                count: count.into(),
            };
            self.ask_with(command, [set.as_bytes(), data], fds).map(drop)
        };
        match set {
            IrqSet::All(count) => send(wire::SET_NONE, start, count, &[], &[]),
            IrqSet::Bool(which) => {
                if which.len() > self.piece() {
                    return Err(argument("there are too many interrupts"));
                }
                let data: Vec<u8> = which.iter().map(|is| u8::from(*is)).collect();
                send(wire::SET_BOOL, start, to_u32(data.len()), &data, &[])
            }
            IrqSet::Eventfds(events) => {
                let most = self.limits.max_msg_fds.min(SENT_FDS);
                let mut at = start;
                // A message connects or disconnects; so runs of each go separately.
                for run in events.chunk_by(|a, b| a.is_some() == b.is_some()) {
                    let piece = if run[0].is_some() { most } else { run.len() };
                    if piece == 0 {
                        return Err(argument("the server takes no descriptors"));
                    }
                    for part in run.chunks(piece) {
                        let fds: Vec<BorrowedFd<'_>> = part.iter().copied().flatten().collect();
                        send(wire::SET_EVENTFD, at, to_u32(part.len()), &[], &fds)?;
                        at = at
                            .checked_add(to_u32(part.len()))
                            .ok_or_else(|| argument("there are too many interrupts"))?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Lets the device use `len` bytes of bus addresses from `address` on: through the descriptor,
    /// from the offset given, or by message if there is none.
    ///
    /// # Errors
    /// [`ClientError`]; the server refuses with `EEXIST` what overlaps another window.
    pub fn dma_map(
        &self,
        address: u64,
        len: u64,
        access: Access,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<(), ClientError> {
        let command = Command::DmaMap;
        if file.is_some() && self.limits.max_msg_fds == 0 {
            return Err(ClientError::Argument { command, what: "the server takes no descriptors" });
        }
        let mut flags = 0;
        if access.read {
            flags |= wire::ACCESS_READ;
        }
        if access.write {
            flags |= wire::ACCESS_WRITE;
        }
        let map = wire::DmaMap {
            argsz: to_u32(size_of::<wire::DmaMap>()).into(),
            flags: flags.into(),
            offset: file.map_or(0, |(_, offset)| offset).into(),
            address: address.into(),
            len: len.into(),
        };
        let fd = file.map(|(fd, _)| fd);
        self.ask_with(command, [map.as_bytes(), &[]], fd.as_slice()).map(drop)
    }

    /// Takes a window away, and returns how many bytes went; the device does not use them any
    /// more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn dma_unmap(&self, address: u64, len: u64) -> Result<u64, ClientError> {
        self.unmap(wire::DmaUnmap {
            address: address.into(),
            len: len.into(),
            ..Default::default()
        })
    }

    /// Takes all windows away, and returns how many bytes went.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn dma_unmap_all(&self) -> Result<u64, ClientError> {
        self.unmap(wire::DmaUnmap { flags: wire::UNMAP_ALL.into(), ..Default::default() })
    }

    fn unmap(&self, mut unmap: wire::DmaUnmap) -> Result<u64, ClientError> {
        let command = Command::DmaUnmap;
        unmap.argsz = to_u32(size_of::<wire::DmaUnmap>()).into();
        let reply = self.ask(command, unmap.as_bytes())?;
        let done = fixed::<wire::DmaUnmap>(command, &reply)?;
        if done.address != unmap.address {
            return Err(ClientError::BadReply { command, what: "it is for another address" });
        }
        Ok(done.len.get())
    }

    /// Resets the device, which may take long: `within` holds instead of the usual time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn reset(&self, within: Duration) -> Result<(), ClientError> {
        ask(&self.link, Command::DeviceReset, [&[], &[]], &[], within).map(drop)
    }

    /// Bytes of data in one message that both sides can take.
    fn piece(&self) -> usize {
        self.limits.max_data_xfer_size.min(Limits::OURS.max_data_xfer_size)
    }

    fn ask(&self, command: Command, body: &[u8]) -> Result<Message, ClientError> {
        self.ask_with(command, [body, &[]], &[])
    }

    fn ask_with(
        &self,
        command: Command,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message, ClientError> {
        ask(&self.link, command, parts, fds, self.timeout)
    }

    /// Asks for something of unknown length, a second time with the room the first reply asks for.
    fn ask_sized<T: IntoBytes + Immutable>(
        &self,
        command: Command,
        room: u32,
        body: impl Fn(u32) -> T,
    ) -> Result<Message, ClientError> {
        let reply = self.ask(command, body(room).as_bytes())?;
        // All such bodies start with the length of the full one.
        let (full, _) = split::<zerocopy::little_endian::U32>(command, &reply)?;
        if full.get() <= room {
            return Ok(reply);
        }
        if full.get() as usize > self.piece() {
            return Err(ClientError::BadReply { command, what: "it would be too long" });
        }
        self.ask(command, body(full.get()).as_bytes())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.link.is_here() {
            // The thread is the parent's: there is nothing to join, nor to detach.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.raise();
        self.link.close(Closed::Here);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // It has panicked if the memory did, which is reported elsewhere.
            let _ = thread.join();
        }
    }
}

/// Connects; unlike the standard library's way not for ever when the server's backlog is full.
fn connect(path: &Path, timeout: Duration) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // Zero would mean no limit.
    let limit = timeout.clamp(Duration::from_micros(1), LONGEST_CONNECT);
    net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let until = Instant::now().checked_add(timeout);
    loop {
        match net::connect(&socket, &address) {
            Err(Errno::INTR) if until.is_none_or(|until| until > Instant::now()) => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            done => return done.map(|()| socket),
        }
    }
}

/// Returns the version of the other side, and its limits.
fn negotiate(link: &Link, timeout: Duration) -> Result<((u16, u16), Limits), ClientError> {
    let command = Command::Version;
    let ours = wire::Version { major: wire::MAJOR.into(), minor: wire::MINOR.into() };
    let parts = [ours.as_bytes(), &limits::proposal()[..]];
    let reply = ask(link, command, parts, &[], timeout).map_err(|error| match error {
        ClientError::Timeout { after, .. } => ClientError::NoAnswer(after),
        error => error,
    })?;
    let (theirs, text) = split::<wire::Version>(command, &reply)?;
    let (major, minor) = (theirs.major.get(), theirs.minor.get());
    if major != wire::MAJOR || minor > wire::MINOR {
        return Err(ClientError::Version(format!("version {major}.{minor}")));
    }
    let stated = Stated::parse(text).map_err(ClientError::Version)?;
    Ok(((major, minor), stated.limits))
}

fn ask(
    link: &Link,
    command: Command,
    parts: [&[u8]; 2],
    fds: &[BorrowedFd<'_>],
    within: Duration,
) -> Result<Message, ClientError> {
    let reply = link.ask(command, parts, fds, within).map_err(|end| lost(command, end, within))?;
    if let Some(errno) = reply.refusal() {
        return Err(ClientError::Refused { command, errno });
    }
    if reply.cut {
        let what = "it is too long or has too many descriptors";
        return Err(ClientError::BadReply { command, what });
    }
    Ok(reply)
}

fn lost(command: Command, end: End, after: Duration) -> ClientError {
    match end {
        End::Closed(why) => ClientError::Disconnected(why),
        End::Timeout => ClientError::Timeout { command, after },
    }
}

/// Also when the memory panics: no caller is left waiting for it.
struct CloseAtEnd<'a>(&'a Link);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close(Closed::Here);
    }
}

/// Answers the device until the connection is gone.
fn serve_memory(link: &Link, memory: &dyn HostMemory, timeout: Duration) {
    loop {
        let message = match link.next_request(None) {
            Ok(message) => message,
            Err(End::Timeout) => continue,
            Err(End::Closed(why)) => {
                tracing::debug!(%why, "connection to the device is gone");
                return;
            }
        };
        let header = message.header;
        let answer = transfer(&message, memory);
        if header.has(flag::NO_REPLY) {
            continue;
        }
        let sent = match answer {
            Ok(body) => link.send(&header.reply(body.len()), [&body, &[]], &[], timeout),
            Err(errno) => {
                let header = header.refusal(errno.raw_os_error().unsigned_abs());
                link.send(&header, [&[], &[]], &[], timeout)
            }
        };
        if matches!(sent, Err(End::Timeout)) {
            link.close(Closed::NotTaken(timeout));
        }
    }
}

/// Carries out what the device asks of the memory.
fn transfer(message: &Message, memory: &dyn HostMemory) -> Result<Vec<u8>, Errno> {
    let command = Command::from_code(message.header.command.get());
    let Some(command @ (Command::DmaRead | Command::DmaWrite)) = command else {
        return Err(Errno::OPNOTSUPP);
    };
    if message.cut || !message.fds.is_empty() {
        return Err(Errno::INVAL);
    }
    let (access, data) = wire::take::<wire::DmaAccess>(&message.body).ok_or(Errno::INVAL)?;
    let (address, count) = (access.address.get(), access.count.get());
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    let sent = if command == Command::DmaRead { 0 } else { count };
    if count > Limits::OURS.max_data_xfer_size || data.len() != sent {
        return Err(Errno::INVAL);
    }
    if count > 0 && address.checked_add(count as u64 - 1).is_none() {
        return Err(Errno::FAULT);
    }
    let mut reply = access.as_bytes().to_vec();
    if command == Command::DmaRead {
        reply.resize(wire::TRANSFER_BYTES + count, 0);
        memory.read(address, &mut reply[wire::TRANSFER_BYTES..])?;
    } else {
        memory.write(address, data)?;
    }
    Ok(reply)
}

fn access(region: u32, offset: u64, len: usize) -> wire::RegionAccess {
    let (offset, region, count) = (offset.into(), region.into(), to_u32(len).into());
    wire::RegionAccess { offset, region, count }
}

/// Refuses accesses beyond the last offset there is.
fn check(command: Command, offset: u64, len: usize) -> Result<u64, ClientError> {
    match offset.checked_add(len as u64) {
        Some(_) => Ok(offset),
        None => Err(ClientError::Argument { command, what: "offset and length are too large" }),
    }
}

fn split<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    command: Command,
    reply: &Message,
) -> Result<(&T, &[u8]), ClientError> {
    let what = "it is too short";
    wire::take(&reply.body).ok_or(ClientError::BadReply { command, what })
}

fn fixed<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    command: Command,
    reply: &Message,
) -> Result<&T, ClientError> {
    split(command, reply).map(|(fixed, _)| fixed)
}

/// Lengths this crate sends; far below 4 GiB.
fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
