//! Pairs of devices.

use et_hal::Hal;

use super::Device;
use crate::sync::Arc;

/// The way from the memory of one device to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerPath {
    /// They are one device: its copies are
    /// [`Stream::copy_on_device`](crate::Stream::copy_on_device) and
    /// [`Builtins::copy`](crate::kernel::Builtins::copy), whose ways
    /// [`Properties::copies`](crate::Properties::copies) says.
    SameDevice,
    /// Through memory of the host, in two copies:
    /// [`Stream::copy_to_peer`](crate::Stream::copy_to_peer).
    Host(NoPeer),
}

/// Why two devices do not reach each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoPeer {
    /// The registers of at least one of them keep other devices out of its memory.
    Refused,
    /// Both would, but no backend maps the memory of one device on the bus of another.
    NotMapped,
}

impl<H: Hal> Device<H> {
    /// Returns the way that bytes take from this device to `other`, which may belong to another
    /// backend. It is the same in both directions.
    ///
    /// Spec: §3.5, §8
    #[must_use]
    pub fn peer_path<G: Hal>(&self, other: &Device<G>) -> PeerPath {
        if std::ptr::addr_eq(Arc::as_ptr(&self.link), Arc::as_ptr(&other.link)) {
            return PeerPath::SameDevice;
        }
        PeerPath::Host(why_not([self.link.layout.dma.p2p, other.link.layout.dma.p2p]))
    }
}

/// Takes what the registers of both say.
fn why_not(let_others_in: [bool; 2]) -> NoPeer {
    if let_others_in == [true; 2] { NoPeer::NotMapped } else { NoPeer::Refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_that_keeps_others_out_is_enough() {
        assert_eq!(why_not([true, true]), NoPeer::NotMapped);
        for pair in [[true, false], [false, true], [false, false]] {
            assert_eq!(why_not(pair), NoPeer::Refused, "{pair:?}");
        }
    }
}
