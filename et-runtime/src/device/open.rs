//! From a HAL to a checked layout: boot wait, registers, first commands.

use std::time::Duration;

use et_devapi::dir::{BarSizes, MgmtDir, MgmtStatus, OpsStatus};
use et_devapi::discovery::{self, DiscoveryError, Layout};
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{API_MAJOR, AbortStatus, Body, CompatibilityStatus, Version};
use et_devapi::pci::{BAR0_BYTES, MAILBOX_BAR};
use et_hal::{Hal, Mmio};

use crate::clock::Deadline;
use crate::config::Config;
use crate::link::{ErrorLists, Link, Parker, Wire};
use crate::sync::Arc;
use crate::{Error, OpenError, Refusal, Result};

/// First pause between two looks at the boot status, doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Waits for the device to boot, reads its registers and opens the operations mailbox.
///
/// Spec: §4
pub(crate) fn open<H: Hal>(
    hal: Arc<H>,
    config: Config,
    errors: ErrorLists,
) -> Result<(Link<H>, Version), OpenError> {
    let deadline = Deadline::after(&*config.clock, config.boot_timeout);
    let mgmt = management_registers(&*hal, &config)?;
    let bar2 = hal.window(MAILBOX_BAR).map_err(Error::hal("mapping BAR 2"))?;
    let bars = BarSizes { bar0: BAR0_BYTES, bar2: bar2.len_bytes() };
    poll(&config, deadline, "ops", || {
        let status = discovery::ops_status(&bar2).map_err(Error::hal("reading the boot status"))?;
        Ok((status == OpsStatus::Ready, status.into()))
    })?;
    let ops = discovery::read_ops(&bar2, &bars).map_err(registers)?;
    for warning in ops.warnings().iter() {
        tracing::warn!(device = %config.device_name(), ?warning, "operations registers");
    }
    let layout = Layout::new(mgmt, ops).map_err(|error| OpenError::Registers(Arc::new(error)))?;
    let mailbox =
        hal.open_mailbox(&layout.ops_mailbox).map_err(Error::hal("opening the mailbox"))?;
    let link = Link::new(hal, layout, mailbox, config, errors)?;
    let version = greet(&link)?;
    Ok((link, version))
}

/// Waits for the service processor to boot and reads its registers.
///
/// Spec: §4
pub(crate) fn management_registers<H: Hal>(hal: &H, config: &Config) -> Result<MgmtDir, OpenError> {
    let bar2 = hal.window(MAILBOX_BAR).map_err(Error::hal("mapping BAR 2"))?;
    let deadline = Deadline::after(&*config.clock, config.boot_timeout);
    let bars = BarSizes { bar0: BAR0_BYTES, bar2: bar2.len_bytes() };
    // All ones is "boot error" and "nothing mapped yet": only the deadline tells.
    poll(config, deadline, "mgmt", || {
        let status =
            discovery::mgmt_status(&bar2).map_err(Error::hal("reading the boot status"))?;
        Ok((status == MgmtStatus::DevReady, status.into()))
    })?;
    let mgmt = discovery::read_mgmt(&bar2, &bars).map_err(registers)?;
    for warning in mgmt.warnings().iter() {
        tracing::warn!(device = %config.device_name(), ?warning, "management registers");
    }
    Ok(mgmt)
}

fn registers<E: et_hal::Error>(error: DiscoveryError<E>) -> OpenError {
    match error {
        DiscoveryError::Access(error) => Error::hal("reading registers")(error).into(),
        DiscoveryError::Registers(error) => OpenError::Registers(Arc::new(error)),
        error => OpenError::Registers(Arc::new(error)),
    }
}

/// Polls a boot status, less and less often.
fn poll(
    config: &Config,
    deadline: Deadline,
    endpoint: &'static str,
    mut look: impl FnMut() -> Result<(bool, i16)>,
) -> Result<(), OpenError> {
    let parker = Parker::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let (is_ready, status) = look()?;
        if is_ready {
            return Ok(());
        }
        let left = deadline.left(&*config.clock);
        if left.is_zero() {
            return Err(OpenError::Boot { endpoint, status, after: config.boot_timeout });
        }
        // No one gives the token: this only passes the time.
        parker.park_timeout(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Gets rid of a previous user's work, then checks the version.
///
/// Spec: §10.1, §19
fn greet<H: Hal>(link: &Link<H>) -> Result<Version, OpenError> {
    let deadline = link.deadline(link.config.command_timeout);
    for queue in 0..usize::from(link.layout.ops_mailbox.high_priority.count) {
        if queue < link.queue_count() {
            let op = "abort of earlier work";
            match link.call_high(queue, CommandFlags::BARRIER, Wire::ABORT, op, deadline)? {
                Body::Abort { status: AbortStatus::Success } => {}
                Body::Abort { status } => {
                    return Err(Error::Refused { op, status: Refusal::Abort(status) }.into());
                }
                other => return Err(Error::lost(format!("answer to an {op} is {other:?}")).into()),
            }
        }
    }
    let op = "compatibility check";
    match link.call(Wire::COMPATIBILITY, op, deadline)? {
        Body::Compatibility { status: CompatibilityStatus::Success, version, .. } => {
            if version.major != API_MAJOR {
                return Err(OpenError::Version { found: version, required: API_MAJOR });
            }
            tracing::info!(device = %link.name, %version, "device API");
            Ok(version)
        }
        Body::Compatibility { status, .. } => {
            Err(Error::Refused { op, status: Refusal::Compatibility(status) }.into())
        }
        other => Err(Error::lost(format!("answer to a {op} is {other:?}")).into()),
    }
}
