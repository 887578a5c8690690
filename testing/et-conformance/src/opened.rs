//! The backend of a device, however it was opened.

use std::ops::Deref;

use et_hal::Hal;
use et_runtime::Device;

/// An open backend.
///
/// Where only whole devices can be opened, the device lends its backend. Its runtime then has
/// nothing in flight and leaves the queues alone.
#[derive(Debug)]
pub enum Opened<H: Hal> {
    /// The backend itself.
    Hal(H),
    /// A device on it.
    Device(Device<H>),
}

impl<H: Hal> Deref for Opened<H> {
    type Target = H;

    fn deref(&self) -> &H {
        match self {
            Self::Hal(hal) => hal,
            Self::Device(device) => device.hal(),
        }
    }
}
