//! The management endpoint of a board that mediates: its host may ask the card, reset its own
//! function and switch its own traces; what would change the card for others is refused.

use et_devapi::msg::HEADER_BYTES;
use et_devapi::msg::mgmt::{ResponseExt, calls, command_info};

use super::commands::{Answer, FAILED};
use crate::Parent;

/// Commands that concern the board alone.
const OWN: [u16; 5] = [
    calls::GET_MODULE_MEMORY_SIZE_MB.id,
    calls::SET_STATS_RUN_CONTROL.id,
    calls::MM_RESET.id,
    calls::SET_DM_TRACE_RUN_CONTROL.id,
    calls::SET_DM_TRACE_CONFIG.id,
];

/// Returns `true` if the board executes a command itself.
pub(super) fn is_own(id: u16) -> bool {
    OWN.contains(&id)
}

/// Has the parent answer what only asks, and refuses everything else.
pub(super) fn answer(parent: &dyn Parent, id: u16, payload: &[u8]) -> Option<Answer> {
    let info = command_info(id)?;
    // Erratum 3 (§21).
    let answered = if id == calls::GET_ASIC_VOLTAGE.id { calls::GET_MODULE_VOLTAGE.id } else { id };
    if info.is_query() {
        let len = info.command_bytes.saturating_sub(HEADER_BYTES).min(payload.len());
        let (status, payload) = parent.query(id, &payload[..len])?;
        return Answer::of(answered, status, &payload);
    }
    let fixed = HEADER_BYTES + size_of::<ResponseExt>();
    let len = info.response_bytes?.saturating_sub(fixed);
    tracing::debug!(id, name = info.name, "refused: the card has other users");
    Answer::of(answered, FAILED, &vec![0; len])
}
