//! The card as a PCI function.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use et_devapi::pci::{BAR0_DEVICE_ADDR, DOORBELLS, DRAM_BAR, MAILBOX_BAR, NO_ANSWER, Vector};
use et_hal::{Bar, BarOffset, BusAddr, Endpoint, Width};
use et_sim_device::{BarWindow, Board, InterruptLine, Link, MemoryAfterReset};
use et_vfio_user::{
    Access, Area, BusMaster, Device, DeviceInfo, DmaWindow, Errno, IoFd, IoFdKind, IrqAction,
    IrqData, IrqInfo, IrqRequest, Peer, PeerEvent, Region, RegionMemory,
};

use crate::config_space::{self, ConfigSpace, Effect};
use crate::windows::Windows;

/// Index of the region that is the configuration space, as `vfio-pci` counts.
const CONFIG_REGION: u32 = 7;
/// Number of regions, as `vfio-pci` counts: BARs, ROM, configuration space, VGA.
const REGIONS: u32 = 9;
/// Kinds of interrupts, as `vfio-pci` counts.
const IRQS: u32 = 5;
const IRQ_MSI: u32 = 1;
const MSIS: u32 = 4;
const _: () = assert!(MSIS as usize == Vector::ALL.len());
const IRQ_ERROR: u32 = 3;
const IRQ_REQUEST: u32 = 4;
/// Device memory before BAR0. Spec: §1, §12.1
const BEFORE_BAR0: u64 = BAR0_DEVICE_ADDR.as_u64() - et_sim_device::Dram::BASE;
/// Limit of what a reset does before the boot; kernels are stopped first.
const RESET: Duration = Duration::from_secs(5);
/// Longest access by message that is made at once.
const PIECE_BYTES: usize = 64 << 10;

/// How a card is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardOptions {
    /// No BAR can be mapped: each access is a message. Slow, but closed BARs read as ones.
    pub trap: bool,
}

impl CardOptions {
    /// The default: BARs can be mapped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether each access to a BAR is a message.
    #[must_use]
    pub fn trap(mut self, trap: bool) -> Self {
        self.trap = trap;
        self
    }
}

/// A simulated card for one client after another.
#[derive(Debug)]
pub struct Card {
    board: Arc<Board>,
    options: CardOptions,
    state: Mutex<State>,
    /// The client has gone.
    free: Condvar,
}

#[derive(Debug)]
struct State {
    has_client: bool,
    /// Clients so far.
    clients: u64,
    config: ConfigSpace,
    windows: Windows,
    /// MSIs are enabled by connecting eventfds, or in configuration space by a kernel that does
    /// both.
    has_msi_lines: bool,
    error_line: Option<PeerEvent>,
    request_line: Option<PeerEvent>,
}

impl Card {
    /// Shows a board, which should [wait for its host](et_sim_device::BoardConfig::waits_for_host).
    #[must_use]
    pub fn new(board: Arc<Board>, options: CardOptions) -> Self {
        let state = State {
            // A card that has not been set up.
            config: ConfigSpace::new(),
            has_client: false,
            clients: 0,
            windows: Windows::default(),
            has_msi_lines: false,
            error_line: None,
            request_line: None,
        };
        let card = Self { board, options, state: Mutex::new(state), free: Condvar::new() };
        card.tell_board(&card.state());
        card
    }

    /// Returns how many clients have used the card.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.state().clients
    }

    /// Waits until no client uses the card; returns `true` if that happened within the time.
    pub fn wait_until_free(&self, within: Duration) -> bool {
        let waited = self.free.wait_timeout_while(self.state(), within, |state| state.has_client);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Asks the client to let the card go, as a kernel does before it takes a device away; tells
    /// whether the client has said that it wants to hear of this.
    pub fn request_removal(&self) -> bool {
        signal(self.state().request_line.as_ref())
    }

    /// Tells the client of an error that the card does not recover from by itself; returns `true`
    /// if the client has said that it wants to hear of this.
    pub fn report_bus_error(&self) -> bool {
        signal(self.state().error_line.as_ref())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on what the board can see of the configuration.
    fn tell_board(&self, state: &State) {
        let msi = state.has_msi_lines || state.config.msi_enabled();
        let is_allowed = state.config.bus_master_enabled();
        self.board.host_memory().set_bus_master(is_allowed);
        self.board.interrupts().set_bus_master(is_allowed);
        self.board.set_host_ready(state.config.memory_enabled() && msi);
    }

    /// Resets everything but the configuration space.
    fn reset_board(&self, memory: MemoryAfterReset) {
        // A reset while one is in progress changes nothing.
        let (Ok(_) | Err(_)) = self.board.begin_reset(memory);
        // What is mapped must not show the time before the reset to those who look after it.
        if !self.board.wait_reset(RESET) {
            tracing::warn!("the board does not finish its reset");
        }
    }

    fn memory(&self, bar: Bar) -> Option<RegionMemory> {
        let (file, offset) = match bar {
            DRAM_BAR => (self.board.dram().file(), BEFORE_BAR0),
            _ => (self.board.page().file()?, 0),
        };
        let fd = file.try_clone().inspect_err(|error| {
            tracing::warn!(error = error as &dyn std::error::Error, "BAR cannot be shared");
        });
        Some(RegionMemory { fd: Arc::new(fd.ok()?.into()), offset })
    }

    /// A BAR with one part that can be mapped.
    fn bar(&self, bar: Bar) -> Region {
        let Some(window) = self.window(bar) else { return Region::ABSENT };
        let size = window.len_bytes();
        let area = Area { offset: 0, len: window.mappable_bytes() };
        let memory = if self.options.trap { None } else { self.memory(bar) };
        if bar == DRAM_BAR && memory.is_some() {
            self.board.bar0_mapped();
        }
        let areas = if memory.is_some() { vec![area] } else { Vec::new() };
        Region { size, access: Access::READ_WRITE, areas, memory }
    }

    fn is_open(&self) -> bool {
        self.state().config.memory_enabled() && self.board.link(self.board.generation()) == Link::Up
    }

    fn window(&self, bar: Bar) -> Option<BarWindow> {
        BarWindow::new(Arc::clone(&self.board), bar)
    }

    /// Registers are read as they are, whatever else is copied.
    fn read_bar(&self, bar: Bar, at: u64, into: &mut [u8]) {
        let window = self.window(bar).filter(|_| self.is_open());
        let Some(window) = window else { return into.fill(NO_ANSWER) };
        let offset = BarOffset::new(at);
        match register(at, into.len()) {
            Some(width) => {
                let value = window.read(offset, width);
                into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
            }
            None => window.read_bytes(offset, into),
        }
    }

    fn write_bar(&self, bar: Bar, at: u64, from: &[u8]) {
        let Some(window) = self.window(bar).filter(|_| self.is_open()) else { return };
        let offset = BarOffset::new(at);
        match register(at, from.len()) {
            Some(Width::W64) => window.store_release_u64(offset, number(from)),
            Some(width) => window.write(offset, width, number(from)),
            None => window.write_bytes(offset, from),
        }
    }

    fn connect_msi(&self, state: &mut State, request: IrqRequest) -> Result<(), Errno> {
        let interrupts = self.board.interrupts();
        let vectors = Vector::ALL.iter().copied().skip(request.start as usize);
        match request.data {
            IrqData::None if request.count == 0 => {
                Vector::ALL.iter().for_each(|&vector| interrupts.connect(vector, None));
                state.has_msi_lines = false;
            }
            IrqData::None => {
                vectors.take(request.count as usize).for_each(|vector| interrupts.trigger(vector));
            }
            IrqData::Bool(which) => {
                for (vector, _) in vectors.zip(which).filter(|(_, is_meant)| *is_meant) {
                    interrupts.trigger(vector);
                }
            }
            IrqData::Eventfds(lines) => {
                for (vector, line) in vectors.zip(lines) {
                    state.has_msi_lines |= line.is_some();
                    interrupts.connect(vector, line.map(|line| Box::new(Line(line)) as _));
                }
            }
        }
        self.tell_board(state);
        Ok(())
    }
}

/// Returns the width of a register access, if it is one.
fn register(at: u64, len: usize) -> Option<Width> {
    Width::from_bytes(len as u64).filter(|width| at.is_multiple_of(width.bytes()))
}

/// Returns the BAR that a region shows.
fn bar_of(region: u32) -> Result<Bar, Errno> {
    u8::try_from(region).ok().and_then(Bar::new).ok_or(Errno::INVAL)
}

/// A little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// An interrupt on its way to the client.
#[derive(Debug)]
struct Line(PeerEvent);

impl InterruptLine for Line {
    fn signal(&self) {
        self.0.signal();
    }

    fn id(&self) -> Option<u64> {
        self.0.id()
    }
}

/// Returns `true` if there is a line.
fn signal(line: Option<&PeerEvent>) -> bool {
    line.map(PeerEvent::signal).is_some()
}

impl Device for Card {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { pci: true, resettable: true, regions: REGIONS, irqs: IRQS }
    }

    fn region(&self, index: u32) -> Option<Region> {
        let region = match index {
            0 => self.bar(DRAM_BAR),
            2 => self.bar(MAILBOX_BAR),
            CONFIG_REGION => Region::trapped(config_space::BYTES as u64, Access::READ_WRITE),
            _ if index < REGIONS => Region::ABSENT,
            _ => return None,
        };
        Some(region)
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        if region == CONFIG_REGION {
            let at = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
            self.state().config.read(at, into);
            return Ok(());
        }
        let bar = bar_of(region)?;
        for (at, piece) in (offset..).step_by(PIECE_BYTES).zip(into.chunks_mut(PIECE_BYTES)) {
            self.read_bar(bar, at, piece);
        }
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        if region != CONFIG_REGION {
            self.write_bar(bar_of(region)?, offset, from);
            return Ok(());
        }
        let at = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let mut state = self.state();
        match state.config.write(at, from) {
            Effect::Nothing => {}
            Effect::Enables => self.tell_board(&state),
            Effect::Reset => {
                tracing::debug!("function-level reset");
                self.reset_board(MemoryAfterReset::Kept);
                self.tell_board(&state);
            }
        }
        Ok(())
    }

    fn irq(&self, index: u32) -> IrqInfo {
        let count = match index {
            IRQ_MSI => MSIS,
            IRQ_ERROR | IRQ_REQUEST => 1,
            _ => 0,
        };
        IrqInfo { count, eventfd: count != 0, noresize: count != 0, ..IrqInfo::default() }
    }

    fn set_irqs(&self, request: IrqRequest) -> Result<(), Errno> {
        let mut state = self.state();
        if request.action != IrqAction::Trigger {
            // As vfio-pci: only INTx can be masked, and there is none.
            return Err(Errno::NOTTY);
        }
        let line = match request.index {
            IRQ_MSI => return self.connect_msi(&mut state, request),
            IRQ_ERROR => &mut state.error_line,
            IRQ_REQUEST => &mut state.request_line,
            _ => return Err(Errno::INVAL),
        };
        match request.data {
            IrqData::None if request.count == 0 => *line = None,
            IrqData::None => {
                signal(line.as_ref());
            }
            IrqData::Bool(which) => {
                if which.first() == Some(&true) {
                    signal(line.as_ref());
                }
            }
            IrqData::Eventfds(lines) => *line = lines.into_iter().next().flatten(),
        }
        Ok(())
    }

    fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, Errno> {
        if region != 2 || self.options.trap {
            return Ok(Vec::new());
        }
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let lines = self.board.doorbell_lines().map_err(failed)?;
        // Value, width and place of the writes: spec §2.2
        [(Endpoint::Management, 0), (Endpoint::Operations, 4)]
            .into_iter()
            .map(|(endpoint, at)| {
                let fd = lines.line(endpoint).try_clone_to_owned().map_err(failed)?;
                let (offset, kind) = (DOORBELLS.as_u64() + at, IoFdKind::Ioeventfd);
                Ok(IoFd { offset, len: 4, fd: Arc::new(fd), kind, flags: DATAMATCH, data: 1 })
            })
            .collect()
    }

    fn dma_map(&self, window: DmaWindow, bus: &Arc<BusMaster>) -> Result<(), Errno> {
        self.state().windows.map(self.board.host_memory(), window, bus)
    }

    fn dma_unmap(&self, address: u64, _len: u64) -> Result<(), Errno> {
        let host = self.board.host_memory();
        host.unmap(BusAddr::new(address)).map_err(|_| Errno::NOENT)?;
        host.quiesce();
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        self.reset_board(MemoryAfterReset::Kept);
        // Kernels put the configuration space back after a reset; here there is none in between.
        self.tell_board(&self.state());
        Ok(())
    }

    fn connected(&self, _: Peer) {
        let mut state = self.state();
        state.has_client = true;
        state.clients += 1;
    }

    fn disconnected(&self) {
        // First the device ends what it does: without its memory it would still answer, that
        // transfers have failed.
        // What one user of a shared card leaves is not for the next.
        let memory = if self.board.is_mediated() {
            MemoryAfterReset::Cleared
        } else {
            MemoryAfterReset::Kept
        };
        self.reset_board(memory);
        let host = self.board.host_memory();
        host.unmap_all();
        host.quiesce();
        let mut state = self.state();
        Vector::ALL.iter().for_each(|&vector| self.board.interrupts().connect(vector, None));
        state.has_client = false;
        state.windows.clear();
        state.config = ConfigSpace::new();
        state.has_msi_lines = false;
        state.error_line = None;
        state.request_line = None;
        self.tell_board(&state);
        self.free.notify_all();
    }
}

/// Only writes of the value count, as KVM numbers the flag.
const DATAMATCH: u32 = 1;
