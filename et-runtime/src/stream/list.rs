//! Lists: many small copies in few commands.

use std::time::Duration;

use et_devapi::msg::ops::DmaWriteNode;
use et_hal::{BusAddr, DeviceAccess, DeviceAddr, Hal};

use super::Stream;
use super::copy::{advance, check_host};
use crate::link::core::Command;
use crate::link::{Devices, Keep, Link, Load, Nodes, Submission, Wire};
use crate::memory::Access;
use crate::memory::{Chunk, DeviceSlice, Staging};
use crate::{Error, Result};

/// Pieces that travel in one command, through one chunk of staging memory.
pub(super) type Pieces = Vec<Piece>;

/// A piece of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Where it is on the device.
    pub(super) at: DeviceAddr,
    /// Its bytes.
    pub(super) len: usize,
    /// The same on the wire.
    pub(super) size: u32,
}

impl<H: Hal> Link<H> {
    /// Divides copies, in their order, so that each group is within the limits of a list and of a
    /// chunk.
    pub(super) fn groups<'a>(&self, copies: impl Iterator<Item = &'a DeviceSlice>) -> Vec<Pieces> {
        let limit = self.piece_limit();
        let max_nodes = usize::from(self.layout.dma.max_nodes.max(1));
        let mut groups = Vec::new();
        let (mut group, mut bytes) = (Pieces::new(), 0);
        for slice in copies {
            let mut at = slice.addr();
            let mut left = usize::try_from(slice.len_bytes()).unwrap_or(usize::MAX);
            while left != 0 {
                let len = left.min(limit);
                let size = self.padded(slice, len);
                let room = self.room(size);
                if group.len() == max_nodes || bytes + room > Staging::<H>::largest() {
                    groups.push(std::mem::take(&mut group));
                    bytes = 0;
                }
                group.push(Piece { at, len, size });
                bytes += room;
                at = advance(at, len);
                left -= len;
            }
        }
        groups.extend((!group.is_empty()).then_some(group));
        groups
    }

    /// Most bytes of a node that goes through staging memory.
    fn piece_limit(&self) -> usize {
        let dma = self.layout.dma;
        let most = dma.max_node_bytes.max(dma.align_bytes);
        Staging::<H>::largest().min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Bytes of a chunk for a piece: the next one begins at the alignment of copies.
    fn room(&self, size: u32) -> usize {
        let align = usize::try_from(self.layout.dma.align_bytes).unwrap_or(8);
        (size as usize).next_multiple_of(align)
    }

    /// The places of pieces in their chunk, and their sizes.
    pub(super) fn places(&self, pieces: &Pieces) -> impl Iterator<Item = (usize, u32)> {
        pieces.iter().scan(0, |offset, piece| {
            let place = *offset;
            *offset += self.room(piece.size);
            Some((place, piece.size))
        })
    }

    /// Host to device through staging, several copies to a command.
    pub(super) fn stage_list(
        &self,
        submission: &Submission<'_, H>,
        copies: &[(&[u8], &DeviceSlice)],
    ) -> Result<()> {
        let limit = self.piece_limit();
        let devices: Devices = copies.iter().map(|(_, to)| *to).collect();
        let mut bytes = copies.iter().flat_map(|(from, _)| from.chunks(limit));
        for pieces in self.groups(copies.iter().map(|(_, to)| *to)) {
            let size = self.places(&pieces).last().map_or(0, |(at, size)| at + size as usize);
            let mut chunk = submission.chunk(size, DeviceAccess::Read)?;
            let mut nodes = Vec::with_capacity(pieces.len());
            for ((place, size), piece) in self.places(&pieces).zip(&pieces) {
                chunk.put(place, bytes.next().unwrap_or_default())?;
                nodes.push(DmaWriteNode::new(within(&chunk, place), piece.at, size));
            }
            chunk.hand_over(&self.hal, size)?;
            let keep = Keep::Chunk { _chunk: chunk, _device: devices.clone() };
            let load = Load::copy(Wire::DmaWrite(Nodes::Many(nodes)), keep);
            submission.send(Command::new(load))?;
        }
        Ok(())
    }

    /// Checks copies between a host buffer of `host` bytes and the device; returns where the last
    /// ends in the buffer.
    pub(super) fn check_direct(
        &self,
        host: usize,
        copies: &[(usize, DeviceSlice)],
        wanted: Access,
        too_short: impl Fn(u64, u64) -> Error,
    ) -> Result<usize> {
        let mut end = 0;
        for (offset, device) in copies {
            self.check_slice(device)?;
            let op = if wanted.writes() { "copy from host buffer" } else { "copy to host buffer" };
            check_host(device, wanted, op)?;
            let len = device.len_bytes();
            let room = host.checked_sub(*offset).map(|room| room as u64);
            if room.is_none_or(|room| len > room) {
                return Err(too_short(room.unwrap_or(0), len));
            }
            if !(*offset as u64).is_multiple_of(self.copy_align()) {
                let (addr, align) = (device.addr(), self.copy_align());
                return Err(Error::Misaligned { addr, len, align });
            }
            end = end.max(offset + usize::try_from(len).unwrap_or(usize::MAX));
        }
        Ok(end)
    }
}

/// Returns the bus address of a byte of a chunk.
pub(super) fn within<H: Hal>(chunk: &Chunk<H>, offset: usize) -> BusAddr {
    BusAddr::new(chunk.bus_addr().as_u64() + offset as u64)
}

impl<H: Hal> Stream<H> {
    pub(super) fn read_all(
        &self,
        copies: &mut [(DeviceSlice, &mut [u8])],
        timeout: Duration,
    ) -> Result<()> {
        let link = self.link();
        for (from, into) in copies.iter() {
            if into.len() as u64 != from.len_bytes() {
                return Err(Error::LengthMismatch {
                    from: from.len_bytes(),
                    to: into.len() as u64,
                });
            }
            link.check_slice(from)?;
            check_host(from, Access::Read, "read list")?;
        }
        let devices: Devices = copies.iter().map(|(from, _)| from).collect();
        let groups = link.groups(copies.iter().map(|(from, _)| from));
        let limit = link.piece_limit();
        let mut rest = copies.iter_mut().flat_map(|(_, into)| into.chunks_mut(limit));
        self.download_to(&devices, groups.into_iter(), timeout, &mut |chunk, pieces| {
            for ((place, _), into) in link.places(pieces).zip(&mut rest) {
                chunk.read_at(&link.hal, place, into)?;
            }
            Ok(())
        })
    }
}
