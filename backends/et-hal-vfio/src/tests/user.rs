//! Servers of simulated cards that mean no good.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{AccessPath, BarOffset, Hal, Mmio, Width};
use et_vfio_user::{
    Access, Area, BusMaster, Device, DeviceInfo, DmaWindow, IoFd, IoFdKind, IrqInfo, IrqRequest,
    Region, RegionMemory, Server, StopHandle,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::sync::lock;
use crate::sys::Errno;
use crate::{VfioHal, VfioOptions};

const LONG: Duration = Duration::from_secs(20);
const CONFIG: u32 = 7;
const MAILBOX: u32 = 2;
const MAILBOX_BYTES: u64 = 0x4000;
const MAPPED: Area = Area { offset: 0, len: 0x2000 };
const BELL: u64 = 0x2004;

/// A function with the ids of the card, and little behind them.
struct Bare {
    config: Mutex<Vec<u8>>,
    /// Behind BAR2, if accesses do not go to a file.
    mailbox: Mutex<Vec<u8>>,
    file: Option<Arc<OwnedFd>>,
    bell: Option<Arc<OwnedFd>>,
    /// Ends the reset that waits for it.
    reset: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Bare {
    fn new() -> Self {
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0x0a, 0x1e, 0x01, 0xeb]);
        // Boot status of the operations endpoint.
        let mut mailbox = vec![0; 0x4000];
        mailbox[8] = 1;
        Self {
            config: Mutex::new(config),
            mailbox: Mutex::new(mailbox),
            file: None,
            bell: None,
            reset: Mutex::new(None),
        }
    }

    fn memory(&self, region: u32) -> &Mutex<Vec<u8>> {
        if region == CONFIG { &self.config } else { &self.mailbox }
    }
}

fn range(offset: u64, len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap();
    start..start + len
}

impl Device for Bare {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { pci: true, resettable: true, regions: 9, irqs: 5 }
    }

    fn region(&self, index: u32) -> Option<Region> {
        Some(match index {
            CONFIG => Region::trapped(256, Access::READ_WRITE),
            MAILBOX => {
                let mut region = Region::trapped(MAILBOX_BYTES, Access::READ_WRITE);
                if let Some(fd) = &self.file {
                    region.memory = Some(RegionMemory { fd: Arc::clone(fd), offset: 0 });
                    region.areas = vec![MAPPED];
                }
                region
            }
            _ => Region::ABSENT,
        })
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&lock(self.memory(region))[range(offset, into.len())]);
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        lock(self.memory(region))[range(offset, from.len())].copy_from_slice(from);
        Ok(())
    }

    fn irq(&self, _: u32) -> IrqInfo {
        IrqInfo::default()
    }

    fn set_irqs(&self, _: IrqRequest) -> Result<(), Errno> {
        Ok(())
    }

    fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, Errno> {
        let bell = self.bell.iter().filter(|_| region == MAILBOX).map(|fd| IoFd {
            offset: BELL,
            len: 4,
            fd: Arc::clone(fd),
            kind: IoFdKind::Ioeventfd,
            flags: 1,
            data: 1,
        });
        Ok(bell.collect())
    }

    fn dma_map(&self, _: DmaWindow, _: &Arc<BusMaster>) -> Result<(), Errno> {
        Ok(())
    }

    fn dma_unmap(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        let held = lock(&self.reset).take();
        // It ends when the test ends it, or ends itself.
        held.map_or(Ok(()), |held| held.recv().or(Ok(())))
    }
}

/// A server in a thread of this process.
struct Rig {
    path: PathBuf,
    device: Arc<Bare>,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
}

impl Rig {
    fn new(device: Bare) -> Self {
        static NUMBER: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut number = lock(&NUMBER);
            *number += 1;
            *number
        };
        let name = format!("et-hal-vfio-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let server = Server::bind(&path).unwrap();
        let stop = server.stop_handle();
        let device = Arc::new(device);
        let served: Arc<dyn Device> = Arc::clone(&device) as _;
        let server = Some(std::thread::spawn(move || server.run(&served).unwrap()));
        Self { path, device, stop, server }
    }

    fn connect(&self) -> VfioHal {
        VfioHal::connect(&self.path, &VfioOptions::new()).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.server.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn file(len: u64, seals: SealFlags) -> Arc<OwnedFd> {
    let fd = memfd_create("bar2", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    Arc::new(fd)
}

/// A file that becomes shorter takes the process that has it mapped down.
#[test]
fn bars_are_mapped_only_if_their_file_keeps_its_length() {
    let cases = [
        (file(MAPPED.len, SealFlags::SHRINK), AccessPath::Direct),
        (file(MAPPED.len, SealFlags::SHRINK | SealFlags::GROW), AccessPath::Direct),
        (file(MAPPED.len, SealFlags::empty()), AccessPath::Trapped),
        (file(MAPPED.len, SealFlags::GROW), AccessPath::Trapped),
        // Nothing can be cut off what is not there.
        (file(MAPPED.len - 1, SealFlags::SHRINK), AccessPath::Trapped),
        // Cannot be mapped for writing.
        (file(MAPPED.len, SealFlags::SHRINK | SealFlags::WRITE), AccessPath::Trapped),
        (Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()), AccessPath::Trapped),
    ];
    for (index, (file, path)) in cases.into_iter().enumerate() {
        let rig = Rig::new(Bare { file: Some(Arc::clone(&file)), ..Bare::new() });
        let hal = rig.connect();
        let window = hal.window(MAILBOX_BAR).unwrap();
        assert_eq!(window.path(BarOffset::new(0), MAPPED.len), path, "case {index}");
        window.write(BarOffset::new(0x100), Width::W32, 7).unwrap();
        assert_eq!(window.read(BarOffset::new(0x100), Width::W32).unwrap(), 7);
        // Whatever the server tries.
        let cut = ftruncate(&file, 0);
        assert_eq!(cut.is_ok(), path == AccessPath::Trapped && (2..4).contains(&index));
        assert_eq!(window.read(BarOffset::new(0x100), Width::W32).unwrap(), 7);
        let by_message = lock(&rig.device.mailbox)[0x100] == 7;
        assert_eq!(by_message, path == AccessPath::Trapped, "case {index}");
    }
}

#[test]
fn a_doorbell_that_is_full_and_blocks_does_not_stop_who_rings() {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    rustix::io::write(&bell, &(u64::MAX - 1).to_le_bytes()).unwrap();
    let rig = Rig::new(Bare { bell: Some(Arc::clone(&bell)), ..Bare::new() });
    let hal = rig.connect();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let (rung, has_rung) = mpsc::channel();
    std::thread::spawn(move || {
        rung.send(window.write(BarOffset::new(BELL), Width::W32, 1).is_ok()).unwrap();
    });
    assert_eq!(has_rung.recv_timeout(LONG), Ok(true));
}

#[test]
fn what_is_no_eventfd_is_no_doorbell() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let rig = Rig::new(Bare { bell: Some(Arc::new(writer.into())), ..Bare::new() });
    let hal = rig.connect();
    let window = hal.window(MAILBOX_BAR).unwrap();
    window.write(BarOffset::new(BELL), Width::W32, 1).unwrap();
    // A read comes after the write that was not waited for.
    let _ = window.read(BarOffset::new(0), Width::W32).unwrap();
    assert_eq!(lock(&rig.device.mailbox)[range(BELL, 4)], [1, 0, 0, 0], "it went by message");
}
