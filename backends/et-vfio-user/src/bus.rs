//! The device as master of the bus: it reads and writes the client's memory by message.

use std::sync::Arc;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::frame::Message;
use crate::link::{End, Link};
use crate::wire::{self, Command, DmaAccess};
use crate::{BusError, Closed};

/// Reaches the memory of the connected client, from any thread, until the client goes.
///
/// For windows without a descriptor; those with one are better mapped. The client checks address
/// and access. A transfer longer than one message may be done in part when it fails.
#[derive(Debug)]
pub struct BusMaster {
    link: Arc<Link>,
    /// Bytes of data in one message, as both sides can take.
    piece: usize,
}

impl BusMaster {
    pub(crate) fn new(link: Arc<Link>, piece: usize) -> Self {
        Self { link, piece }
    }

    /// Reads bus addresses from `address` on.
    ///
    /// # Errors
    /// [`BusError`]; each message is answered `within` the time given, or it is a failure.
    pub fn read(&self, address: u64, into: &mut [u8], within: Duration) -> Result<(), BusError> {
        check(address, into.len())?;
        let mut at = address;
        for piece in into.chunks_mut(self.piece) {
            let reply = self.ask(Command::DmaRead, at, piece.len(), &[], within)?;
            let (done, data) = wire::take::<DmaAccess>(&reply.body)
                .ok_or(BusError::BadReply { address: at, what: "it is too short" })?;
            if done.address.get() != at || data.len() != piece.len() {
                let what = "it is for another address or length";
                return Err(BusError::BadReply { address: at, what });
            }
            piece.copy_from_slice(data);
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes bus addresses from `address` on; returns when the client has stored the bytes.
    ///
    /// # Errors
    /// As for [`BusMaster::read`].
    pub fn write(&self, address: u64, from: &[u8], within: Duration) -> Result<(), BusError> {
        check(address, from.len())?;
        let mut at = address;
        for piece in from.chunks(self.piece) {
            // QEMU replies without a body, so there is nothing to check in it.
            self.ask(Command::DmaWrite, at, piece.len(), piece, within)?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Why the client is gone, if it is.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }

    fn ask(
        &self,
        command: Command,
        address: u64,
        count: usize,
        data: &[u8],
        within: Duration,
    ) -> Result<Message, BusError> {
        let access = DmaAccess { address: address.into(), count: (count as u64).into() };
        let reply = self.link.ask(command, [access.as_bytes(), data], &[], within).map_err(
            |end| match end {
                End::Closed(why) => BusError::Disconnected(why),
                End::Timeout => BusError::Timeout { address, after: within },
            },
        )?;
        if let Some(errno) = reply.refusal() {
            return Err(BusError::Refused { address, errno });
        }
        if reply.cut {
            return Err(BusError::BadReply { address, what: "it is too long" });
        }
        Ok(reply)
    }
}

fn check(address: u64, len: usize) -> Result<(), BusError> {
    match (len as u64).checked_sub(1) {
        Some(last) if address.checked_add(last).is_none() => Err(BusError::Wraps { address, len }),
        _ => Ok(()),
    }
}
