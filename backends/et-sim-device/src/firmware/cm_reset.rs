//! The compute reset. Spec: §10.3

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{Body, CmResetStatus};

use super::mm::Shared;

/// Resets all cores, whatever the mask in the command says. Erratum 11 (§21).
pub(crate) fn execute(tag: Tag, shared: &mut Shared) {
    shared.reset_compute();
    shared.respond(tag, Body::CmReset { status: CmResetStatus::Success });
}
