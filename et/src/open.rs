//! Opening and listing devices.

use et_hal_sim::{SimConfig, SimError, SimHal};
use et_runtime::{Config, Device, Error};

use crate::{Locator, LocatorError};

/// The backend behind [`open`]. Programs that name this type go on to work when more backends are compiled in.
pub type AnyHal = SimHal;

/// A device that could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is wrong.
    #[error("bad device name")]
    Locator(#[from] LocatorError),
    /// The simulator did not start.
    #[error("the simulator did not start")]
    Sim(#[from] SimError),
    /// The device did not open.
    #[error("the device did not open")]
    Device(#[from] Error),
}

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// What to pass to [`open`].
    pub locator: String,
    /// What it is.
    pub description: String,
}

/// Opens the device of that name with default options.
///
/// # Errors
/// [`OpenError`].
pub fn open(locator: &str) -> Result<Device<AnyHal>, OpenError> {
    open_with(locator.parse()?, Config::new())
}

/// Opens a device.
///
/// # Errors
/// [`OpenError`].
pub fn open_with(locator: Locator, config: Config) -> Result<Device<AnyHal>, OpenError> {
    let Locator::Sim(sim) = locator;
    Ok(Device::open_with(SimHal::open(sim)?, config)?)
}

/// Lists the devices that can be opened. The simulator is always there.
#[must_use]
pub fn list() -> Vec<DeviceInfo> {
    let board = SimConfig::default();
    let description = format!(
        "simulated ET-SoC-1, {} GiB, {} host threads",
        board.board().dram_bytes >> 30,
        board.board().host_threads
    );
    vec![DeviceInfo { locator: "sim:".into(), description }]
}
