//! The PCIe function of a client, and who uses it.

use std::sync::{Arc, Mutex, PoisonError};

use et_sim_device::Board;
use et_sim_server::{Card, CardOptions};
use et_vfio_user::{
    BusMaster, Device, DeviceInfo, DmaWindow, Errno, IoFd, IrqInfo, IrqRequest, Peer, Region,
};

/// A card that knows its client.
#[derive(Debug)]
pub(crate) struct Function {
    card: Card,
    board: Arc<Board>,
    /// Who uses it now, and how many have so far.
    client: Mutex<(Option<Peer>, u64)>,
}

impl Function {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        let card = Card::new(Arc::clone(&board), CardOptions::new());
        Self { card, board, client: Mutex::default() }
    }

    /// Returns who uses it, and how many have so far.
    pub(crate) fn client(&self) -> (Option<Peer>, u64) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The card behind it has failed.
    pub(crate) fn lose(&self) {
        self.board.lose_link();
        self.card.report_bus_error();
    }

    /// Asks the client to go.
    pub(crate) fn request_removal(&self) -> bool {
        self.card.request_removal()
    }

    /// Waits until no client uses it; returns `true` if that happened within the time.
    pub(crate) fn wait_until_free(&self, within: std::time::Duration) -> bool {
        self.card.wait_until_free(within)
    }
}

impl Device for Function {
    fn info(&self) -> DeviceInfo {
        self.card.info()
    }

    fn region(&self, index: u32) -> Option<Region> {
        self.card.region(index)
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.card.read(region, offset, into)
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
        self.card.io_fds(region)
    }

    fn dma_map(&self, window: DmaWindow, bus: &Arc<BusMaster>) -> Result<(), Errno> {
        self.card.dma_map(window, bus)
    }

    fn dma_unmap(&self, address: u64, len: u64) -> Result<(), Errno> {
        self.card.dma_unmap(address, len)
    }

    fn reset(&self) -> Result<(), Errno> {
        self.card.reset()
    }

    fn connected(&self, peer: Peer) {
        tracing::info!(pid = peer.pid, uid = peer.uid, "a client has come");
        {
            let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            *client = (Some(peer), client.1 + 1);
        }
        self.card.connected(peer);
    }

    fn disconnected(&self) {
        self.card.disconnected();
        let gone = self.client.lock().unwrap_or_else(PoisonError::into_inner).0.take();
        tracing::info!(pid = gone.map(|peer| peer.pid), "a client has gone");
    }
}
