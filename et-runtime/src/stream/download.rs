//! Reads of device memory into ordinary memory.

use std::collections::VecDeque;
use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::DmaReadNode;
use et_hal::{DeviceAccess, DeviceAddr, Hal};

use super::Stream;
use super::copy::{advance, check_host};
use super::list::{Piece, Pieces, within};
use crate::clock::Deadline;
use crate::event::Transfer;
use crate::link::core::Command;
use crate::link::{
    Arrival, Devices, Keep, Link, Load, Nodes, OneShot, Submission, Wire, take_arrival,
};
use crate::memory::Access;
use crate::memory::{Chunk, DeviceSlice, Lease, Staging};
use crate::sync::Arc;
use crate::trace::FIRMWARE_BYTES;
use crate::{Error, Result};

/// Pieces in flight at one time for one read.
const READ_AHEAD: usize = 8;

impl<H: Hal> Stream<H> {
    pub(super) fn read_bytes(
        &self,
        from: &DeviceSlice,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<()> {
        if into.len() as u64 != from.len_bytes() {
            return Err(Error::LengthMismatch { from: from.len_bytes(), to: into.len() as u64 });
        }
        self.link().check_slice(from)?;
        check_host(from, Access::Read, "read")?;
        let hal = &self.link().hal;
        let mut rest = into;
        self.download_to(&from.into(), pieces(self.link(), from), timeout, &mut |chunk, pieces| {
            let len = pieces.iter().map(|piece| piece.len).sum();
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            chunk.read(hal, piece)
        })
    }

    /// Reads device memory in pieces, which `sink` gets in their order until it returns `false`.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Aborted`] if the sink has enough.
    pub(crate) fn read_pieces(
        &self,
        from: &DeviceSlice,
        timeout: Duration,
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        self.link().check_slice(from)?;
        let hal = &self.link().hal;
        let mut piece = vec![0; Staging::<H>::largest()];
        self.download_to(&from.into(), pieces(self.link(), from), timeout, &mut |chunk, pieces| {
            let len = pieces.iter().map(|piece| piece.len).sum::<usize>();
            let Some(piece) = piece.get_mut(..len) else { return Err(Error::closed("read")) };
            chunk.read(hal, piece)?;
            if sink(piece) { Ok(()) } else { Err(Error::Aborted { op: "read" }) }
        })
    }

    /// Fetches the traces of firmware: of the master minion, and behind it of the compute minions.
    ///
    /// Spec: §8
    pub(crate) fn fetch_firmware_trace(&self, timeout: Duration) -> Result<Vec<u8>> {
        let link = self.link();
        let buffer = link.host_buffer(FIRMWARE_BYTES, DeviceAccess::ReadWrite)?;
        buffer.sync_for_device(link.hal.dma(), 0..FIRMWARE_BYTES)?;
        let size = u32::try_from(FIRMWARE_BYTES).unwrap_or(u32::MAX);
        // Firmware knows the place.
        let node = DmaReadNode::new(buffer.bus_addr(), DeviceAddr::new(0), size);
        let lease = Lease::new(buffer);
        let keep = Keep::Host { _host: Arc::clone(&lease) };
        let load = Load::copy(Wire::DmaRead(Nodes::One(node)), keep);
        let flags = CommandFlags::MMFW_TRACEBUF.with(CommandFlags::CMFW_TRACEBUF);
        let event = self.submit("fetch trace", Some(Command::new(load).flags(flags)))?;
        let synced = Some((Arc::clone(&link.hal), FIRMWARE_BYTES));
        let fetched = Transfer::new(event, lease, synced).wait(timeout);
        let buffer = fetched.map_err(|failed| failed.error)?;
        let mut bytes = vec![0; FIRMWARE_BYTES];
        buffer.copy_out(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Several commands are on their way while `sink` takes the pieces that came, in their order.
    /// They are one operation, which stays open until the last is here.
    pub(super) fn download_to(
        &self,
        devices: &Devices,
        mut groups: impl Iterator<Item = Pieces>,
        timeout: Duration,
        sink: &mut dyn FnMut(&Chunk<H>, &Pieces) -> Result<()>,
    ) -> Result<()> {
        let deadline = self.link().deadline(timeout);
        let submission = self.begin("read")?;
        let read = self.download_pieces(&submission, devices, &mut groups, deadline, sink);
        let late = || self.link().timeout("read", timeout);
        let operation = submission.finish(read).map_err(|error| match error {
            // Else the stream made no progress for so long as it may.
            Error::Timeout { .. } if self.link().left(deadline).is_zero() => late(),
            error => error,
        })?;
        operation.look_at();
        // If there was nothing to read, its turn may be yet to come.
        let outcome = self.link().wait_for(&operation.result, deadline);
        outcome.unwrap_or_else(|| Err(late())).map(drop)
    }

    fn download_pieces(
        &self,
        submission: &Submission<'_, H>,
        devices: &Devices,
        groups: &mut dyn Iterator<Item = Pieces>,
        deadline: Deadline,
        sink: &mut dyn FnMut(&Chunk<H>, &Pieces) -> Result<()>,
    ) -> Result<()> {
        let link = self.link();
        let mut in_flight = VecDeque::new();
        let mut next = groups.next();
        loop {
            while in_flight.len() < READ_AHEAD
                && let Some(pieces) = next.take()
            {
                let len = link.places(&pieces).last().map_or(0, |(at, size)| at + size as usize);
                let chunk = if in_flight.is_empty() {
                    // Only with nothing in flight may it wait: else it might wait for what it holds
                    // itself.
                    submission.chunk_until(len, DeviceAccess::Write, deadline)?
                } else {
                    match submission.try_chunk(len, DeviceAccess::Write)? {
                        Some(chunk) => chunk,
                        None => {
                            next = Some(pieces);
                            break;
                        }
                    }
                };
                let place = self.ask(submission, chunk, devices, &pieces)?;
                in_flight.push_back((place, pieces));
                next = groups.next();
            }
            let Some((place, pieces)) = in_flight.pop_front() else { return Ok(()) };
            let arrival = link.wait_for(&place, deadline);
            let after = deadline.limit();
            let arrival = arrival.ok_or_else(|| link.timeout("read", after))?;
            sink(&take_arrival(&arrival)?, &pieces)?;
        }
    }

    /// Asks for the pieces of one command.
    fn ask(
        &self,
        submission: &Submission<'_, H>,
        chunk: Chunk<H>,
        devices: &Devices,
        pieces: &Pieces,
    ) -> Result<Arc<OneShot<Arrival<H>>>> {
        let place = Arc::new(OneShot::new());
        let mut nodes =
            self.link().places(pieces).zip(pieces).map(|((place, size), piece)| {
                DmaReadNode::new(within(&chunk, place), piece.at, size)
            });
        let nodes = match (pieces.len(), nodes.next()) {
            (1, Some(node)) => Nodes::One(node),
            (_, first) => Nodes::Many(first.into_iter().chain(nodes).collect()),
        };
        let keep = Keep::Reader { chunk, place: Arc::clone(&place), _device: devices.clone() };
        submission.send(Command::new(Load::copy(Wire::DmaRead(nodes), keep)))?;
        Ok(place)
    }
}

/// The pieces of one copy, one to a command.
fn pieces<H: Hal>(link: &Link<H>, from: &DeviceSlice) -> impl Iterator<Item = Pieces> {
    let mut at = from.addr();
    let mut left = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
    std::iter::from_fn(move || {
        let len = left.min(Staging::<H>::largest());
        let piece = Piece { at, len, size: link.padded(from, len) };
        at = advance(at, len);
        left -= len;
        (len != 0).then(|| vec![piece])
    })
}
