//! What the thread that drains works with.

use et_devapi::msg::ops::Completion;
use et_hal::Hal;

use super::Load;
use super::core::Output;

/// Largest message of a completion queue that is looked at; the device's are much smaller.
const MESSAGE_BYTES: usize = 1024;
/// Messages whose effects are worked out in one go.
pub(super) const BATCH: usize = 64;

/// What the thread that drains works with.
pub(crate) struct Tools<H: Hal> {
    pub(super) message: Box<[u8; MESSAGE_BYTES]>,
    pub(super) batch: Vec<Completion>,
    pub(super) output: Output<Box<Load<H>>>,
}

impl<H: Hal> Tools<H> {
    pub(super) fn new() -> Self {
        let batch = Vec::with_capacity(BATCH);
        Self { message: Box::new([0; MESSAGE_BYTES]), batch, output: Output::default() }
    }
}
