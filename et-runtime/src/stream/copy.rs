//! Copies: splitting, staging, checks.

use et_devapi::msg::ops::{DmaReadNode, DmaWriteNode};
use et_hal::{DeviceAccess, DeviceAddr, Hal};

use super::{ListedCopy, Stream};
use crate::event::{Event, Transfer};
use crate::link::core::Command;
use crate::link::{Devices, Keep, Link, Load, Nodes, Submission, Wire};
use crate::memory::Access;
use crate::memory::{Chunk, DeviceSlice, HostBuffer, Lease, Staging, User};
use crate::sync::Arc;
use crate::{Error, Result};

const TO_DEVICE: &str = "copy from host buffer";
const TO_HOST: &str = "copy to host buffer";

/// Checks that the host may use a part of a buffer so.
pub(super) fn check_host(slice: &DeviceSlice, wanted: Access, op: &'static str) -> Result<()> {
    slice.check_usage(User::Host, wanted, op).map_err(|error| Error::Usage(Box::new(error)))
}

/// Chunks that one copy within the device holds at a time.
const GROUP: usize = 8;

impl<H: Hal> Link<H> {
    /// Checks that a buffer is of this device, since its last reset.
    pub(super) fn check_own(&self, slice: &DeviceSlice) -> Result<()> {
        if slice.belongs_to(&self.memory) {
            return Ok(());
        }
        // Of a device that was reset everything is stale.
        Err(self.refusal().unwrap_or_else(|| slice.memory().foreign()))
    }

    /// Checks the device's side of a copy.
    pub(super) fn check_slice(&self, slice: &DeviceSlice) -> Result<()> {
        self.check_own(slice)?;
        let align = self.copy_align();
        let len = slice.len_bytes();
        // The tail of a buffer may be padded, because the rest of its last granule belongs to it
        // alone.
        let ends_well =
            len.is_multiple_of(align) || slice.padded_len() >= len.next_multiple_of(align);
        if len != 0 && !(slice.addr().is_aligned_to(align) && ends_well) {
            return Err(Error::Misaligned { addr: slice.addr(), len, align });
        }
        Ok(())
    }

    pub(super) fn check_upload(&self, from: &[u8], to: &DeviceSlice) -> Result<()> {
        if from.len() as u64 != to.len_bytes() {
            return Err(Error::LengthMismatch { from: from.len() as u64, to: to.len_bytes() });
        }
        self.check_slice(to)?;
        check_host(to, Access::Write, "copy to the device")
    }

    fn check_bounce(&self, from: &DeviceSlice, to: &DeviceSlice) -> Result<()> {
        let len = from.len_bytes();
        if len != to.len_bytes() {
            return Err(Error::LengthMismatch { from: len, to: to.len_bytes() });
        }
        // First whose they are: addresses of other devices mean nothing here.
        self.check_slice(from)?;
        self.check_slice(to)?;
        check_host(from, Access::Read, "copy on device")?;
        check_host(to, Access::Write, "copy on device")?;
        if len != 0 && from.overlaps(to) {
            return Err(Error::Overlap { src: from.addr(), dst: to.addr(), len });
        }
        Ok(())
    }

    /// The size of a piece of `len` bytes of a copy of `slice`: what goes on the wire is padded to
    /// what the registers say, also if copies may end anywhere, unless others have what is behind.
    pub(super) fn padded(&self, slice: &DeviceSlice, len: usize) -> u32 {
        let align = self.layout.dma.align_bytes;
        let can_pad = slice.padded_len() >= slice.len_bytes().next_multiple_of(align);
        let len = if can_pad { (len as u64).next_multiple_of(align) } else { len as u64 };
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    /// The command that copies the first `len` bytes of a chunk.
    fn piece(
        &self,
        chunk: Chunk<H>,
        len: usize,
        at: DeviceAddr,
        to: &DeviceSlice,
    ) -> Command<Box<Load<H>>> {
        let node = DmaWriteNode::new(chunk.bus_addr(), at, self.padded(to, len));
        let keep = Keep::Chunk { _chunk: chunk, _device: to.into() };
        Command::new(Load::copy(Wire::DmaWrite(Nodes::One(node)), keep))
    }

    /// Host to device through staging, as a part of an operation.
    pub(super) fn stage(
        &self,
        submission: &Submission<'_, H>,
        from: &[u8],
        to: &DeviceSlice,
    ) -> Result<()> {
        let mut at = to.addr();
        for piece in from.chunks(Staging::<H>::largest()) {
            let mut chunk = submission.chunk(piece.len(), DeviceAccess::Read)?;
            chunk.write(&self.hal, piece)?;
            submission.send(self.piece(chunk, piece.len(), at, to))?;
            at = advance(at, piece.len());
        }
        Ok(())
    }

    /// Device to device: each piece is read into staging memory and written from there.
    fn bounce(
        &self,
        submission: &Submission<'_, H>,
        from: &DeviceSlice,
        to: &DeviceSlice,
    ) -> Result<()> {
        let (mut src, mut dst) = (from.addr(), to.addr());
        let mut left = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
        // One barrier covers a whole group of reads.
        while left != 0 {
            let mut group = Vec::new();
            while left != 0 && group.len() < GROUP {
                let piece = left.min(Staging::<H>::largest());
                // The first is waited for, more are taken only if they are there, since the group
                // itself holds what would have to come back.
                let access = DeviceAccess::ReadWrite;
                let chunk = if group.is_empty() {
                    submission.chunk(piece, access)?
                } else {
                    match submission.try_chunk(piece, access)? {
                        Some(chunk) => chunk,
                        None => break,
                    }
                };
                let chunk = Arc::new(chunk);
                let size = self.padded(from, piece).min(self.padded(to, piece));
                let node = DmaReadNode::new(chunk.bus_addr(), src, size);
                let keep = Keep::Shared { _chunk: Arc::clone(&chunk), _device: from.clone() };
                let load = Load::copy(Wire::DmaRead(Nodes::One(node)), keep);
                submission.send(Command::new(load))?;
                group.push((chunk, dst, size));
                src = advance(src, piece);
                dst = advance(dst, piece);
                left -= piece;
            }
            let mut is_first = true;
            for (chunk, dst, size) in group {
                let node = DmaWriteNode::new(chunk.bus_addr(), dst, size);
                let keep = Keep::Shared { _chunk: chunk, _device: to.clone() };
                let load = Load::copy(Wire::DmaWrite(Nodes::One(node)), keep);
                let is_behind = std::mem::take(&mut is_first);
                submission.send(if is_behind {
                    Command::behind(load)
                } else {
                    Command::new(load)
                })?;
            }
        }
        Ok(())
    }
}

pub(super) fn advance(at: DeviceAddr, bytes: usize) -> DeviceAddr {
    // Inside a slice, which is inside the address space.
    DeviceAddr::new(at.as_u64() + bytes as u64)
}

impl<H: Hal> Stream<H> {
    pub(super) fn copy_staged(&self, from: &[u8], to: &DeviceSlice) -> Result<Event> {
        const NAME: &str = "copy to device";
        let link = self.link();
        link.check_upload(from, to)?;
        if from.len() <= Staging::<H>::largest() {
            if from.is_empty() {
                return self.submit(NAME, None);
            }
            if let Some(chunk) = link.staging.spare_with(&link.hal, from)? {
                return self.submit(NAME, Some(link.piece(chunk, from.len(), to.addr(), to)));
            }
        }
        let submission = self.begin(NAME)?;
        let staged = link.stage(&submission, from, to);
        submission.finish(staged).map(|operation| self.event(operation))
    }

    pub(super) fn copy_all(&self, name: &'static str, copies: &[ListedCopy<'_>]) -> Result<Event> {
        let link = self.link();
        for copy in copies {
            match copy {
                ListedCopy::ToDevice(from, to) => link.check_upload(from, to)?,
                ListedCopy::OnDevice(from, to) => link.check_bounce(from, to)?,
            }
        }
        let submission = self.begin(name)?;
        let uploads: Vec<_> = copies
            .iter()
            .filter_map(|copy| match copy {
                ListedCopy::ToDevice(from, to) => Some((*from, to)),
                ListedCopy::OnDevice(..) => None,
            })
            .collect();
        let sent = link.stage_list(&submission, &uploads).and_then(|()| {
            copies.iter().try_for_each(|copy| match copy {
                ListedCopy::ToDevice(..) => Ok(()),
                ListedCopy::OnDevice(from, to) => link.bounce(&submission, from, to),
            })
        });
        submission.finish(sent).map(|operation| self.event(operation))
    }

    /// Sets device memory to a pattern; all commands read the same chunk.
    pub(super) fn fill_with(&self, to: &DeviceSlice, pattern: &[u8]) -> Result<Event> {
        const NAME: &str = "fill";
        let link = self.link();
        link.check_slice(to)?;
        check_host(to, Access::Write, NAME)?;
        let len = usize::try_from(to.len_bytes()).unwrap_or(usize::MAX);
        if len == 0 {
            return self.submit(NAME, None);
        }
        let submission = self.begin(NAME)?;
        let sent = self.fill_from_chunk(&submission, to, len, pattern);
        submission.finish(sent).map(|operation| self.event(operation))
    }

    fn fill_from_chunk(
        &self,
        submission: &Submission<'_, H>,
        to: &DeviceSlice,
        len: usize,
        pattern: &[u8],
    ) -> Result<()> {
        let link = self.link();
        let mut chunk = submission.chunk(len, DeviceAccess::Read)?;
        let size = chunk.len_bytes().min(len.next_multiple_of(8));
        // A multiple of every pattern, so that the pieces fit together.
        chunk.fill(&link.hal, size, pattern)?;
        let chunk = Arc::new(chunk);
        let (mut at, mut left) = (to.addr(), len);
        let max_nodes = usize::from(link.layout.dma.max_nodes.max(1));
        while left != 0 {
            let mut nodes = Vec::new();
            while left != 0 && nodes.len() < max_nodes {
                let piece = left.min(chunk.len_bytes());
                nodes.push(DmaWriteNode::new(chunk.bus_addr(), at, link.padded(to, piece)));
                at = advance(at, piece);
                left -= piece;
            }
            let keep = Keep::Shared { _chunk: Arc::clone(&chunk), _device: to.clone() };
            submission.send(Command::new(Load::copy(Wire::DmaWrite(Nodes::Many(nodes)), keep)))?;
        }
        Ok(())
    }

    pub(super) fn direct_to_device(
        &self,
        from: HostBuffer<H>,
        copies: &[(usize, DeviceSlice)],
    ) -> Result<Transfer<H>> {
        let link = self.link();
        from.check_access(DeviceAccess::Read, TO_DEVICE)?;
        let end = link.check_direct(from.len_bytes(), copies, Access::Write, |host, device| {
            Error::LengthMismatch { from: host, to: device }
        })?;
        from.sync_for_device(link.hal.dma(), 0..end)?;
        let lease = Lease::new(from);
        let submission = self.begin(TO_DEVICE)?;
        let sent = self.direct(&submission, &lease, copies, |nodes| {
            let write = |(bus, at, size): (u64, _, _)| DmaWriteNode::new(bus.into(), at, size);
            Wire::DmaWrite(Nodes::Many(nodes.map(write).collect()))
        });
        let event = submission.finish(sent).map(|operation| self.event(operation))?;
        Ok(Transfer::new(event, lease, None))
    }

    pub(super) fn direct_to_host(
        &self,
        copies: &[(usize, DeviceSlice)],
        to: HostBuffer<H>,
    ) -> Result<Transfer<H>> {
        let (end, lease) = self.lend_for_writing(copies, to)?;
        let submission = self.begin(TO_HOST)?;
        let sent = self.read_direct(&submission, &lease, copies);
        let event = submission.finish(sent).map(|operation| self.event(operation))?;
        Ok(Transfer::new(event, lease, Some((Arc::clone(&self.link().hal), end))))
    }

    /// Checks copies to a host buffer, and gives it to the device; returns where the last of them
    /// ends.
    pub(super) fn lend_for_writing(
        &self,
        copies: &[(usize, DeviceSlice)],
        to: HostBuffer<H>,
    ) -> Result<(usize, Arc<Lease<H>>)> {
        let link = self.link();
        to.check_access(DeviceAccess::Write, TO_HOST)?;
        let end = link.check_direct(to.len_bytes(), copies, Access::Read, |host, device| {
            Error::LengthMismatch { from: device, to: host }
        })?;
        // What the host has written and not handed over would come out over what the device writes.
        to.sync_for_device(link.hal.dma(), 0..to.len_bytes())?;
        Ok((end, Lease::new(to)))
    }

    /// Reads to a host buffer, behind the earlier commands of the operation.
    pub(super) fn read_direct(
        &self,
        submission: &Submission<'_, H>,
        lease: &Arc<Lease<H>>,
        copies: &[(usize, DeviceSlice)],
    ) -> Result<()> {
        self.direct(submission, lease, copies, |nodes| {
            let read = |(bus, at, size): (u64, _, _)| DmaReadNode::new(bus.into(), at, size);
            Wire::DmaRead(Nodes::Many(nodes.map(read).collect()))
        })
    }

    /// Between host buffer and device, in as few commands as the device allows.
    fn direct(
        &self,
        submission: &Submission<'_, H>,
        lease: &Arc<Lease<H>>,
        copies: &[(usize, DeviceSlice)],
        wire: impl Fn(&mut dyn Iterator<Item = (u64, DeviceAddr, u32)>) -> Wire,
    ) -> Result<()> {
        let link = self.link();
        let Some(bus) = lease.with(|buffer| buffer.bus_addr().as_u64()) else {
            return Err(Error::all_closed());
        };
        let devices: Devices = match copies {
            [(_, device)] => device.into(),
            _ => copies.iter().map(|(_, device)| device).collect(),
        };
        let dma = link.layout.dma;
        // A length on the wire has 32 bits. The most is a multiple of every alignment, so that the
        // next piece begins at one.
        let max_bytes = dma.max_node_bytes.clamp(dma.align_bytes, 1 << 31);
        let mut nodes = copies
            .iter()
            .flat_map(|(place, device)| {
                let (bus, start, len) =
                    (bus + *place as u64, device.addr().as_u64(), device.len_bytes());
                let mut offset = 0;
                std::iter::from_fn(move || {
                    let piece = (len - offset).min(max_bytes);
                    let at = DeviceAddr::new(start + offset);
                    let node = (bus + offset, at, u32::try_from(piece).ok()?);
                    offset += piece;
                    (piece != 0).then_some(node)
                })
            })
            .peekable();
        let mut is_first = true;
        while nodes.peek().is_some() {
            let mut list = nodes.by_ref().take(usize::from(dma.max_nodes.max(1)));
            let keep = Keep::Lease { _host: Arc::clone(lease), _device: devices.clone() };
            let load = Load::copy(wire(&mut list), keep);
            let is_behind = std::mem::take(&mut is_first);
            submission.send(if is_behind { Command::behind(load) } else { Command::new(load) })?;
        }
        Ok(())
    }
}
