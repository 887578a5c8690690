//! A server of a simulated card, as a test wants it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use et_hal_vfio::{VfioHal, VfioOptions};
use et_vfio_user::{
    Access, Area, BusMaster, Device, DeviceInfo, DmaWindow, Errno, IoFd, IoFdKind, IrqInfo,
    IrqRequest, Region, RegionMemory, Server, StopHandle,
};

pub(crate) const CONFIG: u32 = 7;
const MAILBOX: u32 = 2;
const MAILBOX_BYTES: u64 = 0x4000;
/// What can be mapped of BAR2.
pub(crate) const MAPPED: Area = Area { offset: 0, len: 0x2000 };
/// Doorbell of the operations endpoint. Spec: §2.2
pub(crate) const BELL: u64 = 0x2004;

/// A function with the ids of the card, and little behind them.
pub(crate) struct Bare {
    pub(crate) config: Mutex<Vec<u8>>,
    /// Behind BAR2, if accesses do not go to a file.
    pub(crate) mailbox: Mutex<Vec<u8>>,
    pub(crate) file: Option<Arc<OwnedFd>>,
    pub(crate) bell: Option<Arc<OwnedFd>>,
    /// Windows that the client has offered.
    pub(crate) windows: AtomicUsize,
    /// Ends the reset that waits for it.
    pub(crate) reset: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Bare {
    pub(crate) fn new() -> Self {
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
            windows: AtomicUsize::new(0),
            reset: Mutex::new(None),
        }
    }

    fn memory(&self, region: u32) -> &Mutex<Vec<u8>> {
        if region == CONFIG { &self.config } else { &self.mailbox }
    }
}

pub(crate) fn range(offset: u64, len: usize) -> std::ops::Range<usize> {
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
        into.copy_from_slice(&self.memory(region).lock().unwrap()[range(offset, into.len())]);
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.memory(region).lock().unwrap()[range(offset, from.len())].copy_from_slice(from);
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
        self.windows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn dma_unmap(&self, _: u64, _: u64) -> Result<(), Errno> {
        self.windows.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        let held = self.reset.lock().unwrap().take();
        // It ends when the test ends it, or ends itself.
        held.map_or(Ok(()), |held| held.recv().or(Ok(())))
    }
}

/// A server in a thread of this process.
pub(crate) struct Rig {
    pub(crate) path: PathBuf,
    pub(crate) device: Arc<Bare>,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(device: Bare) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card");
        let server = Server::bind(&path).unwrap();
        let stop = server.stop_handle();
        let device = Arc::new(device);
        let served: Arc<dyn Device> = Arc::clone(&device) as _;
        let server = Some(std::thread::spawn(move || server.run(&served).unwrap()));
        Self { path, device, stop, server, _folder: folder }
    }

    pub(crate) fn connect(&self) -> VfioHal {
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
