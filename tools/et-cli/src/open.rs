//! Opening the device that the command line names.

use std::sync::OnceLock;
use std::time::Duration;

use et::{AnyHal, Config, Device, OpenError};

/// How long a device is tried again that another has.
static BUSY_TIMEOUT: OnceLock<Duration> = OnceLock::new();
static DEVICE_TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets what `--busy-timeout` and `--device-timeout` say, once.
pub(crate) fn set_timeouts(busy: Duration, device: Option<Duration>) {
    // A second time would be the same.
    let _ = BUSY_TIMEOUT.set(busy);
    if let Some(device) = device {
        let _ = DEVICE_TIMEOUT.set(device);
    }
}

/// How long a copy, a trace or an abort may take.
pub(crate) fn device_timeout() -> Duration {
    DEVICE_TIMEOUT.get().copied().unwrap_or(Duration::from_secs(60))
}

/// As `et::open`, and waits for a device that is in use.
pub(crate) fn open(locator: &str) -> Result<Device<AnyHal>, OpenError> {
    open_with(locator, Config::new())
}

/// As [`open`], with options.
pub(crate) fn open_with(locator: &str, config: Config) -> Result<Device<AnyHal>, OpenError> {
    let limit = BUSY_TIMEOUT.get().copied().unwrap_or_default();
    let config = match DEVICE_TIMEOUT.get() {
        // The end of the program, too, waits for an answer.
        Some(limit) => config.command_timeout(*limit).watchdog(*limit),
        None => config,
    };
    et::open_within(&locator.parse()?, &config.name(locator), limit)
}

/// Reads seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
