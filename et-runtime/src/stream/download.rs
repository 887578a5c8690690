//! Reads of device memory into ordinary memory.

use std::collections::VecDeque;
use std::time::Duration;

use et_devapi::msg::ops::DmaReadNode;
use et_hal::{DeviceAccess, Hal};

use super::Stream;
use super::copy::advance;
use crate::clock::Deadline;
use crate::link::core::Command;
use crate::link::{Arrival, Keep, Load, Nodes, OneShot, Submission, Wire, take_arrival};
use crate::memory::{Chunk, DeviceSlice, Staging};
use crate::sync::Arc;
use crate::{Error, Result};

/// Pieces in flight at one time for one read.
const READ_AHEAD: usize = 8;

impl<H: Hal> Stream<H> {
    /// Several pieces are on their way while the caller copies out the one that came. They are one
    /// operation, which stays open until the last is here.
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
        let deadline = self.link().deadline(timeout);
        let submission = self.begin("read")?;
        let read = self.download_pieces(&submission, from, into, deadline);
        submission.finish(read).map(drop).map_err(|error| match error {
            Error::Timeout { .. } => Error::Timeout { op: "read", after: timeout },
            error => error,
        })
    }

    fn download_pieces(
        &self,
        submission: &Submission<'_, H>,
        from: &DeviceSlice,
        into: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        let link = self.link();
        let mut in_flight = VecDeque::new();
        let mut at = from.addr();
        let mut pieces = into.chunks_mut(Staging::<H>::largest()).peekable();
        loop {
            while in_flight.len() < READ_AHEAD
                && let Some(piece) = pieces.peek()
            {
                let len = piece.len();
                let chunk = if in_flight.is_empty() {
                    // Only with nothing in flight may it wait: else it might wait for what it holds
                    // itself.
                    submission.chunk_until(len, DeviceAccess::Write, deadline)?
                } else {
                    match submission.try_chunk(len, DeviceAccess::Write)? {
                        Some(chunk) => chunk,
                        None => break,
                    }
                };
                let place = self.ask(submission, chunk, from, at, len)?;
                at = advance(at, len);
                in_flight.extend(pieces.next().map(|piece| (place, piece)));
            }
            let Some((place, piece)) = in_flight.pop_front() else { return Ok(()) };
            let arrival = link.wait_for(&place, deadline);
            let after = deadline.limit();
            let arrival = arrival.ok_or(Error::Timeout { op: "read", after })?;
            take_arrival(&arrival)?.read(&link.hal, piece)?;
        }
    }

    /// Asks for one piece.
    fn ask(
        &self,
        submission: &Submission<'_, H>,
        chunk: Chunk<H>,
        from: &DeviceSlice,
        at: et_hal::DeviceAddr,
        len: usize,
    ) -> Result<Arc<OneShot<Arrival<H>>>> {
        let place = Arc::new(OneShot::new());
        let node = DmaReadNode::new(chunk.bus_addr(), at, self.link().padded(len));
        let keep = Keep::Reader { chunk, place: Arc::clone(&place), _device: from.clone() };
        submission.send(Command::new(Load::copy(Wire::DmaRead(Nodes::One(node)), keep)))?;
        Ok(place)
    }
}
