//! Copies: splitting, staging, checks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{DmaReadNode, DmaWriteNode};
use et_hal::{DeviceAddr, Dma, Hal};

use crate::clock::Deadline;
use crate::command::{Keep, Then, Wire};
use crate::event::Transfer;
use crate::memory::{Chunk, DeviceSlice, HostBuffer, Lease, Staging};
use crate::shared::{Shared, locked};
use crate::stream::{Order, Stream, Turn};
use crate::{Error, Result};

/// Reads in flight at one time for one blocking read of ordinary memory.
const READ_AHEAD: usize = 8;

impl<H: Hal> Shared<H> {
    /// Waits for a staging chunk.
    fn chunk(&self, len: usize, deadline: Deadline) -> Result<Chunk<H>> {
        let mut idle = 0;
        loop {
            if let Some(chunk) = self.staging.take(&self.hal, len)? {
                return Ok(chunk);
            }
            if let Some(error) = self.refusal() {
                return Err(error);
            }
            if deadline.has_passed(&*self.config.clock) {
                let after = deadline.limit();
                return Err(Error::Timeout { op: "waiting for staging memory", after });
            }
            self.step(&mut idle, deadline);
        }
    }
}

impl<H: Hal> Turn<'_, H> {
    fn check(&self, slice: &DeviceSlice) -> Result<()> {
        if !slice.belongs_to(&self.shared().memory) {
            return Err(Error::ForeignBuffer);
        }
        let align = self.shared().layout.dma.align_bytes;
        let len = slice.len_bytes();
        // The tail of a buffer may be padded, because the rest of its last granule belongs to nobody else.
        let ends_well =
            len.is_multiple_of(align) || slice.padded_len() >= len.next_multiple_of(align);
        if len != 0 && !(slice.addr().is_aligned_to(align) && ends_well) {
            return Err(Error::Misaligned { addr: slice.addr(), len, align });
        }
        Ok(())
    }

    pub(crate) fn check_upload(&self, from: &[u8], to: &DeviceSlice) -> Result<()> {
        if from.len() as u64 != to.len_bytes() {
            return Err(Error::LengthMismatch { from: from.len() as u64, to: to.len_bytes() });
        }
        self.check(to)
    }

    pub(crate) fn check_bounce(&self, from: &DeviceSlice, to: &DeviceSlice) -> Result<()> {
        let len = from.len_bytes();
        if len != to.len_bytes() {
            return Err(Error::LengthMismatch { from: len, to: to.len_bytes() });
        }
        // First whose they are: addresses of other devices mean nothing here.
        self.check(from)?;
        self.check(to)?;
        if len != 0 && from.overlaps(to) {
            return Err(Error::Overlap { src: from.addr(), dst: to.addr(), len });
        }
        Ok(())
    }

    /// Waits for a staging chunk.
    fn chunk(&self, len: usize) -> Result<Chunk<H>> {
        self.shared().chunk(len, self.deadline)
    }

    /// The size of a piece of a copy of `len` bytes: what goes on the wire is padded to the alignment.
    fn padded(&self, len: usize) -> u32 {
        let align = usize::try_from(self.shared().layout.dma.align_bytes).unwrap_or(8);
        u32::try_from(len.next_multiple_of(align)).unwrap_or(u32::MAX)
    }

    fn sync_for_device(&self, chunk: &Chunk<H>, len: usize) -> Result<()> {
        let synced = self.shared().hal.dma().sync_for_device(chunk.get(), 0..len);
        synced.map_err(Error::hal("synchronising staging memory"))
    }

    /// Host to device through staging.
    pub(crate) fn upload(&mut self, from: &[u8], to: &DeviceSlice) -> Result<()> {
        self.check_upload(from, to)?;
        let mut at = to.addr();
        for piece in from.chunks(Staging::<H>::largest()) {
            let mut chunk = self.chunk(piece.len())?;
            chunk.copy_in(piece)?;
            self.sync_for_device(&chunk, piece.len())?;
            let node = DmaWriteNode::new(chunk.bus_addr(), at, self.padded(piece.len()));
            let keep = Keep::Chunk { _chunk: chunk, _device: to.clone() };
            self.send(CommandFlags::EMPTY, Wire::DmaWrite(vec![node]), Then::Check(keep))?;
            at = advance(at, piece.len());
        }
        Ok(())
    }

    /// Sets device memory; all commands read the same chunk.
    pub(crate) fn fill(&mut self, to: &DeviceSlice, byte: u8) -> Result<()> {
        self.check(to)?;
        let len = usize::try_from(to.len_bytes()).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(());
        }
        let mut chunk = self.chunk(len)?;
        let size = chunk.len_bytes().min(len.next_multiple_of(8));
        chunk.fill(size, byte)?;
        self.sync_for_device(&chunk, size)?;
        let chunk = Arc::new(chunk);
        let (mut at, mut left) = (to.addr(), len);
        let max_nodes = usize::from(self.shared().layout.dma.max_nodes.max(1));
        while left != 0 {
            let mut nodes = Vec::new();
            while left != 0 && nodes.len() < max_nodes {
                let piece = left.min(chunk.len_bytes());
                nodes.push(DmaWriteNode::new(chunk.bus_addr(), at, self.padded(piece)));
                at = advance(at, piece);
                left -= piece;
            }
            let keep = Keep::Shared { _chunk: Arc::clone(&chunk), _device: to.clone() };
            self.send(CommandFlags::EMPTY, Wire::DmaWrite(nodes), Then::Check(keep))?;
        }
        Ok(())
    }

    /// Device to device: each piece is read into staging memory and written from there behind a barrier.
    pub(crate) fn bounce(&mut self, from: &DeviceSlice, to: &DeviceSlice) -> Result<()> {
        self.check_bounce(from, to)?;
        let (mut src, mut dst) = (from.addr(), to.addr());
        let mut left = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
        // One barrier covers a whole group of reads.
        while left != 0 {
            let mut group = Vec::new();
            while left != 0 && group.len() < READ_AHEAD {
                let piece = left.min(Staging::<H>::largest());
                let Some(chunk) = self.group_chunk(piece, group.is_empty())? else {
                    break;
                };
                let chunk = Arc::new(chunk);
                let size = self.padded(piece);
                let node = DmaReadNode::new(chunk.bus_addr(), src, size);
                let keep = Keep::Shared { _chunk: Arc::clone(&chunk), _device: from.clone() };
                self.send(CommandFlags::EMPTY, Wire::DmaRead(vec![node]), Then::Check(keep))?;
                group.push((chunk, dst, size));
                src = advance(src, piece);
                dst = advance(dst, piece);
                left -= piece;
            }
            self.require_barrier();
            for (chunk, dst, size) in group {
                let node = DmaWriteNode::new(chunk.bus_addr(), dst, size);
                let keep = Keep::Shared { _chunk: chunk, _device: to.clone() };
                self.send(CommandFlags::EMPTY, Wire::DmaWrite(vec![node]), Then::Check(keep))?;
            }
        }
        Ok(())
    }

    /// A chunk for a group: the first is waited for, more are taken only if they are there, since the group itself
    /// holds what would have to come back.
    fn group_chunk(&self, len: usize, is_first: bool) -> Result<Option<Chunk<H>>> {
        if is_first {
            return self.chunk(len).map(Some);
        }
        self.shared().staging.take(&self.shared().hal, len)
    }

    /// Between host buffer and device, in as few commands as the device allows.
    fn direct(
        &mut self,
        lease: &Arc<Lease<H>>,
        device: &DeviceSlice,
        to_device: bool,
    ) -> Result<()> {
        self.check(device)?;
        let Some((mut bus, host_len)) =
            lease.with(|buffer| (buffer.bus_addr().as_u64(), buffer.len_bytes() as u64))
        else {
            return Err(Error::Closed);
        };
        let mut left = device.len_bytes();
        if left > host_len {
            return Err(if to_device {
                Error::LengthMismatch { from: host_len, to: left }
            } else {
                Error::LengthMismatch { from: left, to: host_len }
            });
        }
        let dma = self.shared().layout.dma;
        let max_nodes = usize::from(dma.max_nodes.max(1));
        let max_bytes = dma.max_node_bytes.clamp(dma.align_bytes, u64::from(u32::MAX / 2));
        let mut at = device.addr();
        while left != 0 {
            let (mut writes, mut reads) = (Vec::new(), Vec::new());
            while left != 0 && writes.len() + reads.len() < max_nodes {
                let piece = left.min(max_bytes);
                let size = u32::try_from(piece).unwrap_or(u32::MAX);
                if to_device {
                    writes.push(DmaWriteNode::new(bus.into(), at, size));
                } else {
                    reads.push(DmaReadNode::new(bus.into(), at, size));
                }
                bus += piece;
                at = DeviceAddr::new(at.as_u64() + piece);
                left -= piece;
            }
            let wire = if to_device { Wire::DmaWrite(writes) } else { Wire::DmaRead(reads) };
            let keep = Keep::Lease { _host: Arc::clone(lease), _device: device.clone() };
            self.send(CommandFlags::EMPTY, wire, Then::Check(keep))?;
        }
        Ok(())
    }
}

fn advance(at: DeviceAddr, bytes: usize) -> DeviceAddr {
    // Inside a slice, which is inside the address space.
    DeviceAddr::new(at.as_u64() + bytes as u64)
}

impl<H: Hal> Stream<H> {
    pub(crate) fn direct(
        &self,
        name: &'static str,
        host: HostBuffer<H>,
        device: &DeviceSlice,
        to_device: bool,
    ) -> Result<Transfer<H>> {
        let lease = Lease::new(host);
        let event =
            self.operate(name, Order::InOrder, |turn| turn.direct(&lease, device, to_device))?;
        Ok(Transfer::new(event, lease))
    }

    /// Device to ordinary memory: several pieces are on their way while the caller copies out the one that came.
    pub(crate) fn download(
        &self,
        from: &DeviceSlice,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<()> {
        if into.len() as u64 != from.len_bytes() {
            return Err(Error::LengthMismatch { from: from.len_bytes(), to: into.len() as u64 });
        }
        let shared = &self.inner.shared;
        let deadline = shared.deadline(timeout);
        let mut in_flight = std::collections::VecDeque::new();
        let mut pieces = into.chunks_mut(Staging::<H>::largest()).peekable();
        let mut offset = 0;
        let mut order = Order::InOrder;
        loop {
            while in_flight.len() < READ_AHEAD {
                let Some(piece) = pieces.peek() else { break };
                let len = piece.len();
                let slice = from.slice(offset..offset + len as u64)?;
                // Only with nothing in flight may it wait: else it might wait for what it holds itself.
                let chunk = match shared.staging.take(&shared.hal, len)? {
                    Some(chunk) => chunk,
                    None if in_flight.is_empty() => shared.chunk(len, deadline)?,
                    None => break,
                };
                let place = Arc::new(Mutex::new(None));
                let event = self.operate("read", order, |turn| {
                    turn.check(&slice)?;
                    let node = DmaReadNode::new(chunk.bus_addr(), slice.addr(), turn.padded(len));
                    let place = Arc::clone(&place);
                    let keep = Keep::Reader { chunk, place, _device: slice.clone() };
                    turn.send(CommandFlags::EMPTY, Wire::DmaRead(vec![node]), Then::Check(keep))
                })?;
                offset += len as u64;
                // The first waits for what was before; the others cannot start before it.
                order = Order::Unordered;
                let Some(piece) = pieces.next() else { break };
                in_flight.push_back((event, place, piece));
            }
            let Some((event, place, piece)) = in_flight.pop_front() else {
                return Ok(());
            };
            let left = deadline.left(&*shared.config.clock);
            event.wait(left).map_err(|error| match error {
                Error::Timeout { .. } => Error::Timeout { op: "read", after: timeout },
                error => error,
            })?;
            let chunk = locked(&place).take();
            let chunk = chunk.unwrap_or_else(|| unreachable!("a successful read has its chunk"));
            let synced = shared.hal.dma().sync_for_cpu(chunk.get(), 0..piece.len());
            synced.map_err(Error::hal("synchronising staging memory"))?;
            chunk.copy_out(piece)?;
        }
    }
}
