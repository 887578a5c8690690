//! What recordings have of that which calls of a device return.

use crate::event::Event;
use crate::kernel::{Kernel, Module};
use crate::memory::DeviceBuffer;
use crate::profile::Returned;

impl Returned for DeviceBuffer {}
impl Returned for Kernel {}

impl Returned for (Module, Event) {
    fn operation(&self) -> Option<u64> {
        Some(self.1.id())
    }
}
