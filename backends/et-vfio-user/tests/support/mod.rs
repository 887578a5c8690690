//! A toy device, a server thread that ends with the test, and a bare socket end.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]
#![expect(clippy::cast_possible_truncation, reason = "test sizes are small")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use et_vfio_user::wire::{Header, flag};
use et_vfio_user::{
    Access, Area, BusError, BusMaster, Client, Command, Device, DeviceInfo, DmaWindow, Errno,
    HostMemory, IoFd, IoFdKind, IrqAction, IrqData, IrqInfo, IrqRequest, NoHostMemory, Peer,
    PeerEvent, Region, RegionMemory, Server, StopHandle,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zerocopy::{FromBytes, IntoBytes};

/// No wait in these tests is longer.
pub const LONG: Duration = Duration::from_secs(60);

/// Region behind a descriptor.
pub const MEMORY: u32 = 0;
/// Trapped registers.
pub const REGS: u32 = 2;
/// Read-only.
pub const ROM: u32 = 6;
/// Bytes of `REGS` and `MEMORY`.
pub const REGS_BYTES: u64 = 3 << 20;
pub const MEMORY_BYTES: u64 = 0x1_0000;
/// `MEMORY` starts here in its file.
pub const MEMORY_AT: u64 = 0x4000;
/// Write of an address here: the device copies 16 bytes from there to `BUS_DATA` inside the call.
pub const BUS_READ: u64 = 0x100;
/// Write of an address here: the device copies `BUS_DATA` there inside the call.
pub const BUS_WRITE: u64 = 0x108;
pub const BUS_DATA: u64 = 0x110;
/// Write here returns when the gate is open.
pub const GATE: u64 = 0x180;
/// Access here fails with EIO.
pub const BROKEN: u64 = 0x200;
/// MSI vectors.
pub const VECTORS: u32 = 40;

/// Length, access and file of a window.
pub type Window = (u64, Access, Option<(OwnedFd, u64)>);

/// What the device has been told.
#[derive(Debug, Default)]
pub struct Seen {
    pub connected: u32,
    pub disconnected: u32,
    pub resets: u32,
    pub writes: Vec<(u32, u64, usize)>,
    pub irqs: Vec<(u32, u32, u32, IrqAction, String)>,
    pub vectors: BTreeMap<u32, PeerEvent>,
    /// By address.
    pub windows: BTreeMap<u64, Window>,
    pub bus: Option<Arc<BusMaster>>,
}

pub struct Toy {
    pub regs: Mutex<Vec<u8>>,
    pub memory: Arc<OwnedFd>,
    pub doorbell: Arc<OwnedFd>,
    pub seen: Mutex<Seen>,
    changed: Condvar,
    gate: Mutex<bool>,
    gated: Condvar,
    /// `dma_map` and `dma_unmap` at this address fail.
    pub refuse_at: u64,
}

pub fn memfd(len: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fd
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Counter of an eventfd; waits for it to be signalled.
pub fn count(event: impl AsFd) -> u64 {
    assert!(readable(&event), "event is not signalled");
    let mut bytes = [0; 8];
    rustix::io::read(event, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Waits until readable; false after `LONG`.
pub fn readable(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    let timeout = Timespec::try_from(LONG).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

impl Toy {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            regs: Mutex::new(vec![0; REGS_BYTES as usize]),
            memory: Arc::new(memfd(MEMORY_AT + MEMORY_BYTES)),
            doorbell: Arc::new(event()),
            seen: Mutex::default(),
            changed: Condvar::new(),
            gate: Mutex::new(false),
            gated: Condvar::new(),
            refuse_at: 0xbad_0000,
        })
    }

    /// Waits until what was seen is as wanted.
    pub fn until(&self, wanted: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + LONG;
        let mut seen = self.seen.lock().unwrap();
        while !wanted(&seen) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "device has seen {seen:?}");
            seen = self.changed.wait_timeout(seen, left).unwrap().0;
        }
    }

    pub fn open_gate(&self) {
        *self.gate.lock().unwrap() = true;
        self.gated.notify_all();
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }

    pub fn bus(&self) -> Arc<BusMaster> {
        Arc::clone(self.seen.lock().unwrap().bus.as_ref().unwrap())
    }

    fn bus_errno(error: BusError) -> Errno {
        match error {
            BusError::Refused { errno, .. } => errno,
            _ => Errno::TIMEDOUT,
        }
    }
}

impl Device for Toy {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { pci: true, resettable: true, regions: 9, irqs: 5 }
    }

    fn region(&self, index: u32) -> Option<Region> {
        Some(match index {
            MEMORY => Region {
                size: MEMORY_BYTES,
                access: Access::READ_WRITE,
                areas: vec![Area { offset: 0, len: 0x1000 }, Area { offset: 0x8000, len: 0x8000 }],
                memory: Some(RegionMemory { fd: Arc::clone(&self.memory), offset: MEMORY_AT }),
            },
            REGS => Region::trapped(REGS_BYTES, Access::READ_WRITE),
            ROM => Region::trapped(64, Access::READ),
            7 => Region::trapped(4096, Access::READ_WRITE),
            _ => return None,
        })
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        match region {
            MEMORY => {
                rustix::io::pread(&self.memory, into, MEMORY_AT + offset)?;
            }
            REGS if offset == BROKEN => return Err(Errno::IO),
            REGS => {
                let regs = self.regs.lock().unwrap();
                into.copy_from_slice(&regs[offset as usize..][..into.len()]);
            }
            _ => into.fill(region as u8),
        }
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.note(|seen| seen.writes.push((region, offset, from.len())));
        if region != REGS {
            return Ok(());
        }
        match offset {
            BROKEN => return Err(Errno::IO),
            GATE => {
                let shut = self.gate.lock().unwrap();
                let waited = self.gated.wait_timeout_while(shut, LONG, |open| !*open).unwrap();
                assert!(!waited.1.timed_out());
            }
            BUS_READ | BUS_WRITE => {
                let address = u64::from_le_bytes(from.try_into().map_err(|_| Errno::INVAL)?);
                let mut data = [0; 16];
                if offset == BUS_READ {
                    self.bus().read(address, &mut data, LONG).map_err(Self::bus_errno)?;
                    self.regs.lock().unwrap()[BUS_DATA as usize..][..16].copy_from_slice(&data);
                } else {
                    data.copy_from_slice(&self.regs.lock().unwrap()[BUS_DATA as usize..][..16]);
                    self.bus().write(address, &data, LONG).map_err(Self::bus_errno)?;
                }
            }
            _ => self.regs.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from),
        }
        Ok(())
    }

    fn irq(&self, index: u32) -> IrqInfo {
        match index {
            0 => IrqInfo {
                count: 1,
                eventfd: true,
                maskable: true,
                automasked: true,
                noresize: false,
            },
            1 => IrqInfo { count: VECTORS, eventfd: true, noresize: true, ..Default::default() },
            _ => IrqInfo::default(),
        }
    }

    fn set_irqs(&self, request: IrqRequest) -> Result<(), Errno> {
        let IrqRequest { index, start, count, action, data } = request;
        let text = match &data {
            IrqData::Eventfds(events) => {
                events.iter().map(|event| if event.is_some() { 'e' } else { '-' }).collect()
            }
            other => format!("{other:?}"),
        };
        self.note(|seen| {
            seen.irqs.push((index, start, count, action, text));
            match data {
                IrqData::Eventfds(events) => {
                    for (vector, event) in (start..).zip(events) {
                        match event {
                            Some(event) => drop(seen.vectors.insert(vector, event)),
                            None => drop(seen.vectors.remove(&vector)),
                        }
                    }
                }
                IrqData::None if count == 0 => seen.vectors.clear(),
                IrqData::None => {
                    for (_, event) in seen.vectors.range(start..start + count) {
                        event.signal();
                    }
                }
                IrqData::Bool(_) => {}
            }
        });
        Ok(())
    }

    fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, Errno> {
        if region != REGS {
            return Ok(Vec::new());
        }
        let io = |offset, data| IoFd {
            offset,
            len: 4,
            fd: Arc::clone(&self.doorbell),
            kind: IoFdKind::Ioeventfd,
            flags: 1,
            data,
        };
        Ok(vec![io(0x2000, 1), io(0x2004, 2)])
    }

    fn dma_map(&self, window: DmaWindow, bus: &Arc<BusMaster>) -> Result<(), Errno> {
        if window.address == self.refuse_at {
            return Err(Errno::NOMEM);
        }
        let DmaWindow { address, len, access, file } = window;
        self.note(|seen| {
            seen.windows.insert(address, (len, access, file));
            seen.bus = Some(Arc::clone(bus));
        });
        Ok(())
    }

    fn dma_unmap(&self, address: u64, len: u64) -> Result<(), Errno> {
        let mut seen = self.seen.lock().unwrap();
        let (known, ..) = seen.windows.remove(&address).expect("a window that was mapped");
        assert_eq!(known, len);
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        self.note(|seen| seen.resets += 1);
        Ok(())
    }

    fn connected(&self, _: Peer) {
        self.note(|seen| seen.connected += 1);
    }

    fn disconnected(&self) {
        self.note(|seen| {
            seen.disconnected += 1;
            seen.windows.clear();
            seen.vectors.clear();
        });
    }
}

/// A server in a thread; stopped and joined when dropped.
pub struct Served {
    pub toy: Arc<Toy>,
    pub path: PathBuf,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Self {
        Self::with_patience(LONG)
    }

    pub fn with_patience(patience: Duration) -> Self {
        let toy = Toy::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        let server = Server::bind(&path).unwrap().with_patience(patience);
        let stop = server.stop_handle();
        let device: Arc<dyn Device> = Arc::clone(&toy) as _;
        let thread = std::thread::spawn(move || server.run(&device).unwrap());
        Self { toy, path, stop, thread: Some(thread), _folder: folder }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.path, Arc::new(NoHostMemory), LONG).unwrap()
    }

    pub fn client_with(&self, memory: Arc<dyn HostMemory>) -> Client {
        Client::connect(&self.path, memory, LONG).unwrap()
    }

    /// A bare connection that has agreed on a version.
    pub fn raw(&self) -> Raw {
        let mut raw = Raw(UnixStream::connect(&self.path).unwrap());
        raw.greet();
        raw
    }

    pub fn stop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// A socket end that sends what it likes.
pub struct Raw(pub UnixStream);

impl Raw {
    pub fn greet(&mut self) {
        self.0.set_read_timeout(Some(LONG)).unwrap();
        let text = b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8}}\0";
        let (header, _) = self.ask(Command::Version, text);
        assert_eq!(header.flags.get(), flag::REPLY);
    }

    pub fn send(&self, bytes: &[u8]) {
        self.send_with(bytes, &[]);
    }

    pub fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent =
            sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    pub fn message(command: Command, body: &[u8]) -> Vec<u8> {
        let header = Header::request(7, command, body.len(), 0);
        [header.as_bytes(), body].concat()
    }

    pub fn ask(&mut self, command: Command, body: &[u8]) -> (Header, Vec<u8>) {
        self.send(&Self::message(command, body));
        self.receive()
    }

    pub fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        let header = Header::read_from_bytes(&header).unwrap();
        let mut body = vec![0; header.size.get() as usize - 16];
        self.0.read_exact(&mut body).unwrap();
        (header, body)
    }

    /// Receives a refusal and returns its errno.
    pub fn refusal(&mut self) -> u32 {
        let (header, body) = self.receive();
        assert!(header.has(flag::REPLY | flag::ERROR), "{header:?}");
        assert!(body.is_empty());
        header.errno.get()
    }

    /// Whether the other side has closed, with whatever it sent before.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// The connection still works.
    pub fn works(&mut self) {
        let body = [16_u32.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        let (header, body) = self.ask(Command::DeviceInfo, &body);
        assert_eq!(header.flags.get(), flag::REPLY);
        assert_eq!(body.len(), 16);
    }
}
