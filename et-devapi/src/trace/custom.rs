//! Events of a writer's own, as far as their bytes are known.

use zerocopy::FromBytes;

use super::{CustomEvent, MmEvent, SpEvent};
use crate::msg::mgmt::{MmStats, SpStats};

/// What the bytes of a [`CustomEvent`] say.
///
/// The specification numbers these events and gives no layout of them (§16.2). What is read here is
/// what the simulated card writes, the layout of the answers to the commands for statistics
/// (§17.3), and only from as many bytes as that has. Whether a card's firmware writes the same is
/// not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CustomPayload<'a> {
    /// [`SpEvent::OpStats`]: averages and extremes of power, temperature, voltage and clock.
    OpStats(&'a SpStats),
    /// [`MmEvent::ComputeResources`]: averages and extremes of utilisations and bandwidths.
    ComputeResources(&'a MmStats),
    /// Any other event, and one of these with another number of bytes.
    Unknown(&'a [u8]),
}

impl CustomEvent {
    /// Reads the bytes that follow the event in its entry.
    #[must_use]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> CustomPayload<'a> {
        let Ok(number) = u16::try_from(self.custom_type.get()) else {
            return CustomPayload::Unknown(bytes);
        };
        let known = if SpEvent::from_number(number) == Some(SpEvent::OpStats) {
            SpStats::ref_from_bytes(bytes).ok().map(CustomPayload::OpStats)
        } else if MmEvent::from_number(number) == Some(MmEvent::ComputeResources) {
            MmStats::ref_from_bytes(bytes).ok().map(CustomPayload::ComputeResources)
        } else {
            None
        };
        known.unwrap_or(CustomPayload::Unknown(bytes))
    }
}
