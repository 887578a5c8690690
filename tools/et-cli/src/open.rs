//! Opening the device that the command line names.

use std::sync::OnceLock;
use std::time::Duration;

use et::{AnyHal, Config, Device, OpenError};

/// How long a device is tried again that another has.
static BUSY_TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets what `--busy-timeout` says, once.
pub(crate) fn set_busy_timeout(limit: Duration) {
    // A second time would be the same.
    let _ = BUSY_TIMEOUT.set(limit);
}

/// As `et::open`, and waits for a device that is in use.
pub(crate) fn open(locator: &str) -> Result<Device<AnyHal>, OpenError> {
    open_with(locator, Config::new())
}

/// As [`open`], with options.
pub(crate) fn open_with(locator: &str, config: Config) -> Result<Device<AnyHal>, OpenError> {
    let limit = BUSY_TIMEOUT.get().copied().unwrap_or_default();
    et::open_within(&locator.parse()?, &config.name(locator), limit)
}

/// Reads seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
