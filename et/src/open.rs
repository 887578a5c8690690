//! Opening and listing devices.

use std::fmt;
#[cfg(feature = "share")]
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "vfio")]
use et_hal::{Error as _, ErrorKind};
#[cfg(feature = "sim")]
use et_hal_sim::{BoardConfig, SimError, SimHal};
#[cfg(feature = "vfio")]
use et_hal_vfio::{Bdf, Mode, VfioAddress, VfioError, VfioHal, VfioOptions};
use et_runtime::{Config, Device, Management, Report};
#[cfg(feature = "vfio")]
use et_vfio_host::{Host, Preflight};

#[cfg(feature = "share")]
use crate::share::{self, ShareError};
use crate::{AnyHal, Locator, LocatorError};

/// How soon a device that is busy is tried again.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A device that could not be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is wrong.
    #[error("bad device name")]
    Locator(#[from] LocatorError),
    /// The simulator did not start.
    #[cfg(feature = "sim")]
    #[error("the simulator did not start")]
    Sim(#[from] SimError),
    /// The card cannot be had.
    #[cfg(feature = "vfio")]
    #[error("the card cannot be used{}", findings(host.as_deref()))]
    Vfio {
        /// What failed.
        #[source]
        source: VfioError,
        /// What this machine lacks, for a card of its own.
        host: Option<Box<Preflight>>,
    },
    /// The device of another process cannot be looked at.
    #[cfg(feature = "share")]
    #[error("the device of another process cannot be seen")]
    Share(#[from] ShareError),
    /// The name is that of a device which a process has open, and what was asked for needs a device
    /// of one's own.
    #[cfg(feature = "share")]
    #[error("process {pid} has the device; others can only look at it")]
    OfProcess {
        /// The process.
        pid: u32,
    },
    /// The device did not open.
    #[error("the device cannot be used")]
    Device(#[from] et_runtime::OpenError),
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Report(self), f)
    }
}

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// What to pass to [`open`].
    pub locator: String,
    /// What it is.
    pub description: String,
    /// Who has it now, where that can be told; opening it fails meanwhile.
    pub holder: Option<Holder>,
}

/// A process that has a device, by its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Number of the user that it acts for, where it says so.
    pub user: Option<u32>,
    /// Command line.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)?;
        self.user.map_or(Ok(()), |user| write!(f, " of user {user}"))
    }
}

#[cfg(feature = "vfio")]
impl From<et_hal_vfio::Holder> for Holder {
    fn from(holder: et_hal_vfio::Holder) -> Self {
        let et_hal_vfio::Holder { pid, user, command, .. } = holder;
        Self { pid, user, command }
    }
}

impl OpenError {
    /// Returns who has the device, if it is in use and that is the reason.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        match self {
            #[cfg(feature = "vfio")]
            Self::Vfio { source: VfioError::Busy { holder, .. }, .. } => {
                holder.clone().map(Holder::from)
            }
            _ => None,
        }
    }

    /// Returns `true` if the device cannot be had as long as another has it, or a reset of it goes
    /// on.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self {
            #[cfg(feature = "vfio")]
            Self::Vfio { source, .. } => source.kind() == ErrorKind::Busy,
            _ => false,
        }
    }
}

/// Opens the device of that name with default options. Errors call it by this name.
///
/// # Errors
/// [`OpenError`].
pub fn open(locator: &str) -> Result<Device<AnyHal>, OpenError> {
    open_with(locator.parse()?, Config::new().name(locator))
}

/// Opens a device. With the feature `share`, others may [look at it](crate::share) meanwhile.
///
/// # Errors
/// [`OpenError`].
pub fn open_with(locator: Locator, config: Config) -> Result<Device<AnyHal>, OpenError> {
    #[cfg(feature = "share")]
    let name = share::key(&locator).unwrap_or_else(|| locator.to_string());
    let config = config.default_name(locator.to_string());
    #[cfg_attr(not(feature = "share"), expect(unused_mut, reason = "nothing is attached"))]
    let mut device = Device::open_with(open_hal(locator)?, config)?;
    #[cfg(feature = "share")]
    share::begin(&mut device, &name);
    Ok(device)
}

/// As [`open_with`]; as long as the device is [busy](OpenError::is_busy), tries again until `limit`
/// has passed.
///
/// Whoever waits gets the device when its holder ends, in whatever way: by a close, or as a process
/// that was killed. Of several who wait, any may be the next. An attempt that has begun is not cut
/// short: at a card of another process it takes ten seconds to see that this serves someone else.
///
/// # Errors
/// [`OpenError`]; the last one if the device is busy all the time.
pub fn open_within(
    locator: &Locator,
    config: &Config,
    limit: Duration,
) -> Result<Device<AnyHal>, OpenError> {
    let since = Instant::now();
    loop {
        let left = limit.saturating_sub(since.elapsed());
        match open_with(locator.clone(), config.clone()) {
            Err(error) if error.is_busy() && !left.is_zero() => {
                #[expect(clippy::disallowed_methods, reason = "another process wakes no one")]
                std::thread::sleep(TRY_EVERY.min(left));
            }
            outcome => return outcome,
        }
    }
}

/// Opens the management endpoint of a device alone, which needs no operations firmware.
///
/// With the feature `share`, that of a card which a process has open goes [through that
/// process](crate::share); it can be asked, and nothing else.
///
/// # Errors
/// [`OpenError`].
pub fn open_management(locator: Locator, config: Config) -> Result<Management<AnyHal>, OpenError> {
    #[cfg(feature = "share")]
    {
        if let Locator::Process { pid, index } = locator {
            return Ok(Management::through(Arc::new(share::connect(pid, index)?), &config));
        }
        if let Some(relay) = share::key(&locator).and_then(|key| share::find(&key)) {
            return Ok(Management::through(Arc::new(relay), &config));
        }
    }
    let config = config.default_name(locator.to_string());
    Ok(Management::open(open_hal(locator)?, config)?)
}

fn open_hal(locator: Locator) -> Result<AnyHal, OpenError> {
    Ok(match locator {
        #[cfg(feature = "sim")]
        Locator::Sim(sim) => AnyHal::from(SimHal::open(sim)?),
        #[cfg(feature = "vfio")]
        Locator::Vfio(address) => {
            let opened = VfioHal::open(&address, &options(&address));
            AnyHal::from(opened.map_err(|source| explained(source, address.bdf))?)
        }
        #[cfg(feature = "vfio")]
        Locator::VfioUser(address) => {
            let opened = VfioHal::connect(address, &VfioOptions::new());
            AnyHal::from(opened.map_err(|source| OpenError::Vfio { source, host: None })?)
        }
        #[cfg(feature = "share")]
        Locator::Process { pid, .. } => return Err(OpenError::OfProcess { pid }),
    })
}

/// Adds what the machine lacks to an error that may come from there.
#[cfg(feature = "vfio")]
fn explained(source: VfioError, bdf: Bdf) -> OpenError {
    let is_of_host = !matches!(source.kind(), ErrorKind::Lost(_) | ErrorKind::Stale);
    let host = is_of_host.then(|| Host::system().preflight(bdf)).filter(|found| !found.is_ok());
    OpenError::Vfio { source, host: host.map(Box::new) }
}

#[cfg(feature = "vfio")]
fn findings(host: Option<&Preflight>) -> String {
    host.map_or_else(String::new, |host| format!("; on this machine:\n{host}"))
}

/// Naming the mode is the explicit consent that the backend asks for.
#[cfg(feature = "vfio")]
fn options(address: &VfioAddress) -> VfioOptions {
    let options = VfioOptions::new();
    if address.mode == Mode::NoIommu { options.allow_unsafe_no_iommu() } else { options }
}

/// Lists the devices that can be opened: the simulator, which is always there, and the cards of
/// this machine.
#[must_use]
pub fn list() -> Vec<DeviceInfo> {
    let mut devices = Vec::new();
    #[cfg(feature = "sim")]
    {
        let board = BoardConfig::default();
        let (gib, threads) = (board.dram_bytes >> 30, board.host_threads);
        // What the registers will say: the master shire is not among them.
        let shires = (board.shires & u64::from(u32::MAX)).count_ones();
        let description = format!(
            "simulated ET-SoC-1, {shires} compute shires, {gib} GiB, {threads} host threads"
        );
        // Each opening makes one.
        devices.push(DeviceInfo { locator: "sim:".into(), description, holder: None });
    }
    #[cfg(feature = "vfio")]
    {
        let host = Host::system();
        // A machine without PCI has no cards.
        for bdf in host.cards().unwrap_or_default() {
            let Ok(card) = host.function(bdf) else { continue };
            let driver = card.driver.as_deref().unwrap_or("no driver");
            let description = format!("ET-SoC-1 {:04x}:{:04x}, {driver}", card.vendor, card.device);
            let holder = et_hal_vfio::Holder::of(bdf, &VfioOptions::new()).map(Holder::from);
            devices.push(DeviceInfo { locator: format!("vfio:{bdf}"), description, holder });
        }
    }
    devices
}

#[cfg(all(test, feature = "vfio"))]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_device_in_use_names_its_holder() {
        let text = "process 77 (other --program) of user 1001";
        let mut error = VfioError::Busy { address: "0000:01:00.0".parse().unwrap(), holder: None };
        let open = |source| OpenError::Vfio { source, host: None };
        if let VfioError::Busy { holder, .. } = &mut error {
            let command = "other --program".to_owned();
            let user = Some(1001);
            *holder = Some(et_hal_vfio::Holder { pid: 77, started: 5, user, command });
        }
        let error = open(error);
        assert_eq!(error.holder().unwrap().to_string(), text);
        assert!(std::error::Error::source(&error).unwrap().to_string().contains(text));
        assert!(error.is_busy() && open(VfioError::ResetBusy).is_busy());
        assert_eq!(open(VfioError::ResetBusy).holder(), None);
    }
}
