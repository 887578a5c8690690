//! A simulated card that a thread of this process serves.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use et::hal::Error as _;
use et::{AnyHal, Config, Device, OpenError};
use et_sim_device::{Board, BoardConfig, ComputeKind};
use et_sim_server::{Card, CardOptions};
use et_vfio_user::{
    BusMaster, Device as Function, DeviceInfo, DmaWindow, Errno, IoFd, IrqInfo, IrqRequest, Peer,
    Region, Server, StopHandle,
};

use crate::common::LONG;

const CONFIG: u32 = 7;
const MAILBOX_BAR: u32 = 2;

/// Two shires and little memory.
pub(crate) fn small() -> BoardConfig {
    let mut config = BoardConfig::default();
    config.dram_bytes = 1 << 30;
    config.shires = 0b11;
    config.waits_for_host = true;
    config
}

/// The same, with kernels that do nothing.
pub(crate) fn without_cores() -> BoardConfig {
    let mut config = small();
    config.compute = ComputeKind::Null;
    config
}

/// In what the function differs from a card.
#[derive(Debug)]
pub(crate) struct Twist {
    /// Vendor and device id.
    pub(crate) ids: [u8; 4],
    /// Bytes of BAR2.
    pub(crate) mailbox_bytes: u64,
    /// Windows that are still accepted.
    pub(crate) windows: AtomicUsize,
    /// Windows without descriptor that were accepted.
    pub(crate) by_message: AtomicUsize,
    /// Doorbells are eventfds.
    pub(crate) has_lines: bool,
    /// The client's memory, once it has offered some.
    pub(crate) bus: Mutex<Option<Arc<BusMaster>>>,
    /// Holds the next unmapping: it says that it has begun, and waits to be let go on.
    pub(crate) hold: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Default for Twist {
    /// In nothing.
    fn default() -> Self {
        let (ids, windows) = ([0x0a, 0x1e, 0x01, 0xeb], AtomicUsize::new(usize::MAX));
        let by_message = AtomicUsize::new(0);
        Self {
            ids,
            mailbox_bytes: 0x4000,
            windows,
            by_message,
            has_lines: true,
            bus: Mutex::default(),
            hold: Mutex::default(),
        }
    }
}

#[derive(Debug)]
struct Twisted {
    card: Arc<Card>,
    twist: Arc<Twist>,
}

impl Function for Twisted {
    fn info(&self) -> DeviceInfo {
        self.card.info()
    }

    fn region(&self, index: u32) -> Option<Region> {
        let mut region = self.card.region(index)?;
        if index == MAILBOX_BAR && self.twist.mailbox_bytes != region.size {
            region = Region::trapped(self.twist.mailbox_bytes, region.access);
        }
        Some(region)
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.card.read(region, offset, into)?;
        if region == CONFIG {
            for (at, byte) in (offset..).zip(into) {
                if let Some(id) = usize::try_from(at).ok().and_then(|at| self.twist.ids.get(at)) {
                    *byte = *id;
                }
            }
        }
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.card.write(region, offset, from)
    }

    fn irq(&self, index: u32) -> IrqInfo {
        self.card.irq(index)
    }

    fn set_irqs(&self, request: IrqRequest) -> Result<(), Errno> {
        self.card.set_irqs(request)
    }

    fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, Errno> {
        if self.twist.has_lines { self.card.io_fds(region) } else { Err(Errno::OPNOTSUPP) }
    }

    fn dma_map(&self, window: DmaWindow, bus: &Arc<BusMaster>) -> Result<(), Errno> {
        let take = |left: usize| left.checked_sub(1);
        let room = &self.twist.windows;
        room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::NOSPC)?;
        self.twist.by_message.fetch_add(window.file.is_none().into(), Ordering::Relaxed);
        *self.twist.bus.lock().unwrap() = Some(Arc::clone(bus));
        self.card.dma_map(window, bus)
    }

    fn dma_unmap(&self, address: u64, len: u64) -> Result<(), Errno> {
        self.twist.windows.fetch_add(1, Ordering::Relaxed);
        let held = self.twist.hold.lock().unwrap().take();
        if let Some((begun, go_on)) = held {
            begun.send(()).unwrap();
            go_on.recv_timeout(LONG).unwrap();
        }
        self.card.dma_unmap(address, len)
    }

    fn reset(&self) -> Result<(), Errno> {
        self.card.reset()
    }

    fn connected(&self, peer: Peer) {
        assert_eq!(peer.pid, std::process::id());
        self.card.connected(peer);
    }

    fn disconnected(&self) {
        self.card.disconnected();
    }
}

/// A card, its board, and the thread that serves it.
pub(crate) struct Rig {
    pub(crate) card: Arc<Card>,
    pub(crate) board: Arc<Board>,
    pub(crate) twist: Arc<Twist>,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(config: BoardConfig) -> Self {
        Self::with(config, CardOptions::new(), Twist::default())
    }

    pub(crate) fn twisted(twist: Twist) -> Self {
        Self::with(without_cores(), CardOptions::new(), twist)
    }

    /// A board that does something wrong.
    pub(crate) fn faulty(fault: &str) -> Self {
        let mut config = without_cores();
        config.faults = vec![fault.parse().unwrap()];
        Self::new(config)
    }

    pub(crate) fn with(config: BoardConfig, options: CardOptions, twist: Twist) -> Self {
        let board = Board::power_on(config).unwrap();
        let card = Arc::new(Card::new(Arc::clone(&board), options));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card");
        let server = Server::bind(&path).unwrap();
        let (stop, twist) = (server.stop_handle(), Arc::new(twist));
        let function: Arc<dyn Function> =
            Arc::new(Twisted { card: Arc::clone(&card), twist: Arc::clone(&twist) });
        let server = std::thread::spawn(move || server.run(&function).unwrap());
        Self { card, board, twist, stop, server: Some(server), path, _folder: folder }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(crate) fn locator(&self) -> String {
        format!("vfio-user:{}", self.path.display())
    }

    pub(crate) fn open(&self) -> Device<AnyHal> {
        et::open(&self.locator()).unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    pub(crate) fn try_open(&self, config: Config) -> Result<Device<AnyHal>, OpenError> {
        et::open_with(self.locator().parse().unwrap(), config)
    }

    /// Ends the service as a process does that is stopped.
    pub(crate) fn stop(&mut self) {
        self.stop.stop();
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }

    /// Waits until the client has gone and the card is as new, and checks that nothing is left.
    pub(crate) fn check_left(&self) {
        assert!(self.card.wait_until_free(LONG), "the client is still there");
        assert_eq!(self.board.host_memory().mappings(), 0);
        let deadline = Instant::now() + LONG;
        while self.board.resetting() {
            assert!(Instant::now() < deadline, "the reset does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.server.take().is_none_or(|server| server.join().is_ok());
        // A test that fails already says more than the server.
        assert!(ended || std::thread::panicking());
    }
}

/// An error and all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    et::Report(error).to_string()
}

/// What kept the card from being opened, if it was the backend.
pub(crate) fn refused(outcome: Result<Device<AnyHal>, OpenError>) -> (et::hal::ErrorKind, String) {
    match outcome {
        Err(OpenError::Vfio { source, .. }) => (source.kind(), chain(&source)),
        Err(error) => panic!("{}", chain(&error)),
        Ok(_) => panic!("the card was opened"),
    }
}
