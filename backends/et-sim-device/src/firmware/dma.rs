//! The DMA workers: checks, channels, copies in slices.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use et_devapi::abi;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{
    Body, DmaReadNode, DmaStatus, DmaWriteNode, P2pReadNode, P2pWriteNode, Times,
};
use et_sim_cores::{Dram, Scratchpads};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use vm_memory::{Bytes, VolatileSlice};

use super::mm::{Executed, Origin, Shared};
use super::trace::FirmwareBuffers;
use crate::board::Slot;
use crate::host_memory::{BusFault, EngineAccess, Reach};
use crate::parent::Arrivals;
use crate::{Check, CopyDirection, CopyPart, ForwardedCopy, PIECE_BYTES};

/// Channels of each direction. Spec: §8
const CHANNELS: usize = 4;
/// Most nodes of a list, as published in the registers. Spec: §8
const MAX_NODES: usize = 8;
/// Most bytes of a node, as published in the registers. Spec: §8
const MAX_NODE_BYTES: u64 = 128 << 20;
/// L2 scratchpads, as far as the firmware lets DMA go. Spec: §8
const SCRATCHPAD: std::ops::RangeInclusive<u64> =
    abi::SCRATCHPAD_FIRST.as_u64()..=abi::SCRATCHPAD_LAST.as_u64();
/// What a channel copies before the next look at the bell.
const SLICE_BYTES: u64 = 8 << 10;
/// Slices before other channels and workers get their turn, if the bell is not rung.
const SLICES: usize = 16;
/// The same if other processes ring, which is heard of only between turns.
const SLICES_UNHEARD: usize = 4;
/// What is kept of a copy that goes through the firmware's own memory.
const BOUNCE_BYTES: usize = 64 << 10;
/// A list up to this size is copied at once.
const AT_ONCE_BYTES: u64 = 1 << 20;

/// Kinds of lists; each has its own response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    P2pRead,
    P2pWrite,
}

impl Kind {
    /// What the engine does on the host side.
    fn host_access(self) -> EngineAccess {
        match self {
            Self::Read | Self::P2pRead => EngineAccess::Write,
            Self::Write | Self::P2pWrite => EngineAccess::Read,
        }
    }

    fn direction_of_copy(self) -> CopyDirection {
        match self.host_access() {
            EngineAccess::Write => CopyDirection::ToHost,
            EngineAccess::Read => CopyDirection::ToDevice,
        }
    }

    fn direction(self) -> usize {
        match self.host_access() {
            EngineAccess::Write => 0,
            EngineAccess::Read => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    host: u64,
    device: u64,
    len: u64,
}

/// A list on its way through a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    origin: Origin,
    kind: Kind,
    /// Trace buffers to be fetched instead of what the nodes say.
    fetch: FirmwareBuffers,
    nodes: [Node; MAX_NODES],
    /// Number of nodes in the command; more than [`MAX_NODES`] are not kept.
    count: usize,
    dispatched: u64,
    /// Node being copied, and bytes of it already copied.
    at: (usize, u64),
    /// The piece that the parent has, if there is one, by its ticket; and where the list is behind
    /// it.
    piece: Option<(u64, (usize, u64))>,
    /// What it ends with when the parent has no piece of it.
    verdict: Option<DmaStatus>,
    /// Bytes copied that the engine has not counted yet.
    uncounted: u64,
}

impl Transfer {
    pub(crate) fn read(origin: Origin, flags: CommandFlags, nodes: &[DmaReadNode]) -> Self {
        let nodes = nodes.iter().map(|node| Node {
            host: node.dst_host_phy_addr.get(),
            device: node.src_device_phy_addr.get(),
            len: node.size.get().into(),
        });
        Self { fetch: FirmwareBuffers::of(flags), ..Self::new(origin, Kind::Read, nodes) }
    }

    pub(crate) fn write(origin: Origin, nodes: &[DmaWriteNode]) -> Self {
        let nodes = nodes.iter().map(|node| Node {
            host: node.src_host_phy_addr.get(),
            device: node.dst_device_phy_addr.get(),
            len: node.size.get().into(),
        });
        Self::new(origin, Kind::Write, nodes)
    }

    pub(crate) fn p2p_read(origin: Origin, nodes: &[P2pReadNode]) -> Self {
        let nodes = nodes.iter().map(|node| Node {
            host: node.dst_device_bus_addr.get(),
            device: node.src_device_phy_addr.get(),
            len: node.size.get().into(),
        });
        Self::new(origin, Kind::P2pRead, nodes)
    }

    pub(crate) fn p2p_write(origin: Origin, nodes: &[P2pWriteNode]) -> Self {
        let nodes = nodes.iter().map(|node| Node {
            host: node.src_device_bus_addr.get(),
            device: node.dst_device_phy_addr.get(),
            len: node.size.get().into(),
        });
        Self::new(origin, Kind::P2pWrite, nodes)
    }

    fn new(origin: Origin, kind: Kind, list: impl ExactSizeIterator<Item = Node>) -> Self {
        let count = list.len();
        let mut nodes = [Node::default(); MAX_NODES];
        nodes.iter_mut().zip(list).for_each(|(to, from)| *to = from);
        let fetch = FirmwareBuffers::NONE;
        let (at, piece, verdict, uncounted) = ((0, 0), None, None, 0);
        Self { origin, kind, fetch, nodes, count, dispatched: 0, at, piece, verdict, uncounted }
    }

    /// Returns `true` if the parent copies it; traces are the board's own.
    fn is_forwarded(&self, slot: &Slot) -> bool {
        slot.parent.is_some() && self.fetch.is_empty()
    }

    /// Takes as much of the list as makes a piece; `None` if there is nothing left.
    fn next_piece(&self) -> Option<(Vec<CopyPart>, (usize, u64))> {
        let (mut at, mut left) = (self.at, PIECE_BYTES as u64);
        let mut parts = Vec::new();
        while let Some(node) = self.nodes[..self.count].get(at.0).filter(|_| left != 0) {
            let len = left.min(node.len - at.1);
            parts.push(CopyPart {
                device: node.device + at.1,
                len: usize::try_from(len).ok()?,
                // What wraps around is mapped nowhere.
                bus: node.host.saturating_add(at.1),
            });
            left -= len;
            at = if at.1 + len == node.len { (at.0 + 1, 0) } else { (at.0, at.1 + len) };
        }
        (!parts.is_empty()).then_some((parts, at))
    }

    /// Checks the list in the firmware's order. Spec: §8
    fn check(&mut self, slot: &Slot) -> Result<(), DmaStatus> {
        if let Some(area) = self.fetch.area() {
            let node = &mut self.nodes[0];
            if node.len > area.end - area.start {
                return Err(DmaStatus::InvalidSize);
            }
            // Spec §8: only node 0 counts, and its device address does not.
            node.device = area.start;
            self.count = 1;
            return Ok(());
        }
        if !(1..=MAX_NODES).contains(&self.count) {
            return Err(DmaStatus::InvalidSize);
        }
        let nodes = &self.nodes[..self.count];
        if nodes.iter().any(|node| !(1..=MAX_NODE_BYTES).contains(&node.len)) {
            return Err(DmaStatus::InvalidSize);
        }
        let managed = slot.host_managed();
        let has_scratchpads = slot.parent.is_none();
        let inside = |node: &Node| {
            let Some(last) = node.device.checked_add(node.len - 1) else { return false };
            let is_scratchpad = SCRATCHPAD.contains(&node.device) && SCRATCHPAD.contains(&last);
            managed.contains(&node.device) && managed.contains(&last)
                || has_scratchpads && is_scratchpad
        };
        if nodes.iter().all(inside) { Ok(()) } else { Err(DmaStatus::InvalidAddress) }
    }

    fn total_bytes(&self) -> u64 {
        self.nodes[..self.count].iter().map(|node| node.len).sum()
    }

    /// Returns how many bytes of the list are in front of a place.
    fn bytes_before(&self, (node, done): (usize, u64)) -> u64 {
        self.nodes[..node].iter().map(|node| node.len).sum::<u64>() + done
    }

    /// Copies up to `limit` bytes; returns `true` if the list is finished.
    fn advance(
        &mut self,
        slot: &Slot,
        scratchpads: Option<&Scratchpads>,
        limit: u64,
    ) -> Result<bool, BusFault> {
        let mut left = limit;
        loop {
            let (index, done) = self.at;
            let Some(node) = self.nodes[..self.count].get(index) else { return Ok(true) };
            if done >= node.len {
                self.at = (index + 1, 0);
                continue;
            }
            if left == 0 {
                return Ok(false);
            }
            let want = left.min(node.len - done);
            let bus = node.host.checked_add(done).ok_or(BusFault)?;
            let access = self.kind.host_access();
            let span = slot.host.find(bus, want, access)?;
            let device = node.device + done;
            let chip = Chip { slot, scratchpads };
            match span.reach()? {
                Reach::Mapped(memory) if !SCRATCHPAD.contains(&device) => {
                    let copied = match access {
                        EngineAccess::Write => slot.dram.read_to_volatile(device, &memory),
                        EngineAccess::Read if is_hole(slot, device, &memory) => Ok(()),
                        EngineAccess::Read => slot.dram.write_from_volatile(device, &memory),
                    };
                    copied.map_err(|_| BusFault)?;
                }
                host => chip.copy_in_pieces(device, &host, span.len, access)?,
            }
            let moved = span.len as u64;
            self.at = (index, done + moved);
            self.uncounted += moved;
            left -= moved;
        }
    }

    fn answer(&self, times: Times, status: DmaStatus) -> Body {
        match self.kind {
            Kind::Read => Body::DmaRead { times, status },
            Kind::Write => Body::DmaWrite { times, status },
            Kind::P2pRead => Body::P2pRead { times, status },
            Kind::P2pWrite => Body::P2pWrite { times, status },
        }
    }
}

/// Returns `true` if memory that no one has touched would be written with what it reads as, zeros:
/// the host need not give pages for that. Memory that is watched has to know of every write.
fn is_hole(slot: &Slot, device: u64, from: &VolatileSlice<'_>) -> bool {
    let ends = |at: usize| from.load::<u8>(at, Ordering::Relaxed).is_ok_and(|byte| byte == 0);
    if slot.config.check != Check::None || !ends(0) || !ends(from.len().saturating_sub(1)) {
        return false;
    }
    let start = device.saturating_sub(Dram::BASE);
    let end = start.saturating_add(from.len() as u64);
    let data = match rustix::fs::seek(slot.dram.file(), SeekFrom::Data(start)) {
        Ok(data) => data,
        // Nothing but a hole from there on.
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => return false,
    };
    if data < end || !slot.dram.contains(device, from.len() as u64) {
        return false;
    }
    let mut piece = [0; 4096];
    (0..from.len()).step_by(piece.len()).all(|at| {
        let len = piece.len().min(from.len() - at);
        from.read_slice(&mut piece[..len], at).is_ok() && piece[..len].iter().all(|&byte| byte == 0)
    })
}

/// The channels of both directions.
#[derive(Debug)]
pub(crate) struct DmaEngine {
    channels: [[Option<Transfer>; CHANNELS]; 2],
    /// Channels in use.
    active: usize,
    /// The channel that is looked at first.
    turn: usize,
    /// Number of the last piece that went to the parent.
    ticket: u64,
    /// Ends of such pieces.
    arrivals: Arc<Arrivals>,
    /// Bytes copied so far, towards the host and towards the device.
    moved: [u64; 2],
}

impl DmaEngine {
    /// Returns how many bytes were copied so far, towards the host and towards the device.
    pub(crate) fn moved(&self) -> [u64; 2] {
        self.moved
    }

    pub(crate) fn new() -> Self {
        let (channels, arrivals) = ([[None; CHANNELS]; 2], Arc::default());
        Self { channels, active: 0, turn: 0, ticket: 0, arrivals, moved: [0; 2] }
    }

    /// Returns `true` if the parent has a piece of a list of that queue.
    pub(crate) fn is_away(&self, queue: usize) -> bool {
        let away = |transfer: &Transfer| transfer.origin.queue == queue && transfer.piece.is_some();
        self.channels.iter().flatten().flatten().any(away)
    }
}

impl Shared {
    /// Starts a list, or answers it at once.
    pub(crate) fn dma(&mut self, mut transfer: Transfer) -> Executed {
        if let Err(status) = transfer.check(&self.slot) {
            let times = self.times_of_rejected(transfer.origin);
            self.respond(transfer.origin.tag, transfer.answer(times, status));
            return Executed::Done;
        }
        let channels = &mut self.dma.channels[transfer.kind.direction()];
        let Some(channel) = channels.iter_mut().find(|channel| channel.is_none()) else {
            return Executed::NeedsChannel;
        };
        transfer.dispatched = self.compute.cycles();
        if !transfer.fetch.is_empty() {
            self.trace.refresh(&self.slot.dram, transfer.fetch);
        }
        if transfer.is_forwarded(&self.slot) || transfer.total_bytes() > AT_ONCE_BYTES {
            *channel = Some(transfer);
            self.dma.active += 1;
            self.outstanding[transfer.origin.queue] += 1;
            return Executed::Done;
        }
        let result = transfer.advance(&self.slot, self.compute.scratchpads(), u64::MAX);
        self.dma.moved[transfer.kind.direction()] += transfer.uncounted;
        self.finish(&transfer, status_of(result));
        Executed::Done
    }

    /// Copies some slices of one list that is on its way, of each in turn: who is rung for and
    /// shares the thread waits for one slice only.
    pub(crate) fn step_dma(&mut self) -> bool {
        if self.dma.active == 0 {
            return false;
        }
        if self.slot.parent.is_some() {
            return self.step_forwarded();
        }
        let turn = self.dma.turn;
        let mut channels = all_channels().cycle().skip(turn).take(2 * CHANNELS);
        let is_active =
            |&(direction, index): &(usize, usize)| self.dma.channels[direction][index].is_some();
        let Some((direction, index)) = channels.find(is_active) else { return false };
        self.dma.turn = (direction * CHANNELS + index + 1) % (2 * CHANNELS);
        if let Some(transfer) = &mut self.dma.channels[direction][index] {
            let (bell, scratchpads) = (&self.slot.bell, self.compute.scratchpads());
            let slices = if bell.has_lines() { SLICES_UNHEARD } else { SLICES };
            let seen = bell.epoch();
            let mut result = Ok(false);
            for _ in 0..slices {
                result = transfer.advance(&self.slot, scratchpads, SLICE_BYTES);
                if result != Ok(false) || bell.epoch() != seen {
                    break;
                }
            }
            self.dma.moved[direction] += std::mem::take(&mut transfer.uncounted);
            if result != Ok(false) {
                self.release(direction, index, status_of(result));
            }
        }
        true
    }

    /// Stops the lists of a queue and answers them. Spec: §10.1
    pub(crate) fn abort_dma(&mut self, queue: usize) {
        for (direction, index) in all_channels() {
            let transfer = &mut self.dma.channels[direction][index];
            let Some(transfer) = transfer.as_mut().filter(|t| t.origin.queue == queue) else {
                continue;
            };
            if transfer.piece.is_some() {
                // The parent still reaches the host's memory.
                transfer.verdict.get_or_insert(DmaStatus::HostAborted);
            } else {
                self.release(direction, index, DmaStatus::HostAborted);
            }
        }
    }

    /// Takes back what the parent has copied, and hands it the next pieces.
    fn step_forwarded(&mut self) -> bool {
        let Some(parent) = self.slot.parent.clone() else { return false };
        let mut busy = false;
        while let Some(arrival) = self.dma.arrivals.take() {
            busy = true;
            let mut transfers = self.dma.channels.iter_mut().flatten().flatten();
            // One that a reset has ended is not there.
            let meant = transfers
                .find_map(|t| t.piece.take_if(|piece| piece.0 == arrival.ticket).map(|p| (t, p)));
            if let Some((transfer, (_, behind))) = meant {
                let bytes = transfer.bytes_before(behind) - transfer.bytes_before(transfer.at);
                transfer.at = behind;
                if arrival.is_good {
                    self.dma.moved[transfer.kind.direction()] += bytes;
                } else {
                    transfer.verdict.get_or_insert(DmaStatus::ErrorAborted);
                }
            }
        }
        for (direction, index) in all_channels() {
            let transfer = &mut self.dma.channels[direction][index];
            let Some(transfer) = transfer.as_mut().filter(|t| t.piece.is_none()) else { continue };
            busy = true;
            if !transfer.is_forwarded(&self.slot) {
                let result = transfer.advance(&self.slot, None, u64::MAX);
                self.release(direction, index, status_of(result));
                continue;
            }
            let next = transfer.next_piece().filter(|_| transfer.verdict.is_none());
            let Some((parts, behind)) = next else {
                let status = transfer.verdict.unwrap_or(DmaStatus::Complete);
                self.release(direction, index, status);
                continue;
            };
            self.dma.ticket += 1;
            transfer.piece = Some((self.dma.ticket, behind));
            let way = transfer.kind.direction_of_copy();
            let arrivals = &self.dma.arrivals;
            parent.copy(ForwardedCopy::new(way, &parts, &self.slot, self.dma.ticket, arrivals));
        }
        busy
    }

    fn release(&mut self, direction: usize, index: usize, status: DmaStatus) {
        let Some(transfer) = self.dma.channels[direction][index].take() else { return };
        self.dma.active -= 1;
        let outstanding = &mut self.outstanding[transfer.origin.queue];
        *outstanding = outstanding.saturating_sub(1);
        self.finish(&transfer, status);
    }

    fn finish(&mut self, transfer: &Transfer, status: DmaStatus) {
        if transfer.kind.host_access() == EngineAccess::Read {
            self.compute.memory_changed();
        }
        let Origin { start, .. } = transfer.origin;
        let times = Times {
            start,
            wait: transfer.dispatched.wrapping_sub(start),
            execute: self.compute.cycles().wrapping_sub(transfer.dispatched),
        };
        self.respond(transfer.origin.tag, transfer.answer(times, status));
        // A thread that waits for a copy should not wait for the rest of the batch.
        self.cq.announce(&self.slot);
    }
}

/// Memory on the card.
struct Chip<'a> {
    slot: &'a Slot,
    scratchpads: Option<&'a Scratchpads>,
}

impl Chip<'_> {
    fn read(&self, device: u64, into: &mut [u8]) -> Result<(), BusFault> {
        let read = if SCRATCHPAD.contains(&device) {
            self.scratchpads.ok_or(BusFault)?.read(device, into)
        } else {
            self.slot.dram.read(device, into)
        };
        read.map_err(|_| BusFault)
    }

    fn write(&self, device: u64, from: &[u8]) -> Result<(), BusFault> {
        let written = if SCRATCHPAD.contains(&device) {
            self.scratchpads.ok_or(BusFault)?.write(device, from)
        } else {
            self.slot.dram.write(device, from)
        };
        written.map_err(|_| BusFault)
    }

    /// Copies what cannot be copied directly: scratchpads, and memory that has to be asked for.
    fn copy_in_pieces(
        &self,
        device: u64,
        host: &Reach<'_>,
        len: usize,
        access: EngineAccess,
    ) -> Result<(), BusFault> {
        let mut buffer = vec![0; len.min(BOUNCE_BYTES)];
        let mut done = 0;
        while done < len {
            let piece_len = buffer.len().min(len - done);
            let piece = &mut buffer[..piece_len];
            let at = device + done as u64;
            match access {
                EngineAccess::Write => {
                    self.read(at, piece)?;
                    host.write(done, piece)?;
                }
                EngineAccess::Read => {
                    host.read(done, piece)?;
                    self.write(at, piece)?;
                }
            }
            done += piece_len;
        }
        Ok(())
    }
}

impl Reach<'_> {
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), BusFault> {
        match self {
            Self::Mapped(memory) => memory.read_slice(into, offset).map_err(|_| BusFault),
            Self::Remote(memory, bus) => {
                let bus = bus.checked_add(offset as u64).ok_or(BusFault)?;
                memory.read(bus, into).then_some(()).ok_or(BusFault)
            }
        }
    }

    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result<(), BusFault> {
        match self {
            Self::Mapped(memory) => memory.write_slice(from, offset).map_err(|_| BusFault),
            Self::Remote(memory, bus) => {
                let bus = bus.checked_add(offset as u64).ok_or(BusFault)?;
                memory.write(bus, from).then_some(()).ok_or(BusFault)
            }
        }
    }
}

fn status_of(result: Result<bool, BusFault>) -> DmaStatus {
    match result {
        Ok(_) => DmaStatus::Complete,
        Err(BusFault) => DmaStatus::ErrorAborted,
    }
}

fn all_channels() -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..2).flat_map(|direction| (0..CHANNELS).map(move |index| (direction, index)))
}
