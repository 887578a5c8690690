//! How the device under test is opened, and what may be expected of it.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use et_hal::Hal;
use et_runtime::{Config, Device};

use crate::{Facts, Failure, Lack, Need, Opened};

/// Time a case may take on a device of scale 1.
const LIMIT: Duration = Duration::from_secs(60);

enum Opener<H: Hal> {
    Hal(Box<dyn Fn() -> Result<H, Failure> + Send + Sync>),
    Device(Box<dyn Fn(Config) -> Result<Device<H>, Failure> + Send + Sync>),
}

/// The device under test.
///
/// A case opens it itself, as often as it wants, and closes what it opened before it opens again:
/// the device may be exclusive.
pub struct Rig<H: Hal> {
    opener: Opener<H>,
    lacks: Vec<Lack>,
    scale: u32,
    limit: Duration,
    commands: Option<fn(&H) -> u64>,
    facts: OnceLock<Result<Facts, Failure>>,
}

impl<H: Hal> fmt::Debug for Rig<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig")
            .field("lacks", &self.lacks)
            .field("scale", &self.scale)
            .field("facts", &self.facts.get())
            .finish_non_exhaustive()
    }
}

impl<H: Hal> Rig<H> {
    /// Makes a rig of a function that opens the backend.
    pub fn new<E: std::error::Error>(
        open: impl Fn() -> Result<H, E> + Send + Sync + 'static,
    ) -> Self {
        let open = move || open().map_err(|error| failed_open(&error));
        Self::with(Opener::Hal(Box::new(open)))
    }

    /// Makes a rig of a function that opens whole devices.
    pub fn of_devices<E: std::error::Error>(
        open: impl Fn(Config) -> Result<Device<H>, E> + Send + Sync + 'static,
    ) -> Self {
        let open = move |config| open(config).map_err(|error| failed_open(&error));
        Self::with(Opener::Device(Box::new(open)))
    }

    fn with(opener: Opener<H>) -> Self {
        let (lacks, commands, facts) = (Vec::new(), None, OnceLock::new());
        Self { opener, lacks, scale: 1, limit: LIMIT, commands, facts }
    }

    /// Says how many times slower than a simulator in the same process the device is; 1 by default.
    /// Cases have that much more time and do less.
    #[must_use]
    pub fn scale(mut self, times: u32) -> Self {
        self.scale = times.max(1);
        self
    }

    /// Says how long a case may take on a device of scale 1; 60 s by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Says what the device lacks that it cannot be asked about.
    #[must_use]
    pub fn lacks(mut self, lack: Lack) -> Self {
        self.lacks.push(lack);
        self
    }

    /// Gives a look at how many commands the device has taken, so that cases can tell that nothing
    /// was sent.
    #[must_use]
    pub fn counts_commands(mut self, count: fn(&H) -> u64) -> Self {
        self.commands = Some(count);
        self
    }

    /// Opens the backend.
    ///
    /// # Errors
    /// The backend's, as the failure of a case.
    pub fn open_hal(&self) -> Result<Opened<H>, Failure> {
        match &self.opener {
            Opener::Hal(open) => open().map(Opened::Hal),
            Opener::Device(open) => open(self.config()).map(Opened::Device),
        }
    }

    /// Opens the device with the options of [`config`](Self::config).
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(&self) -> Result<Device<H>, Failure> {
        self.open_with(self.config())
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Those of the backend and of the runtime, as the failure of a case.
    pub fn open_with(&self, config: Config) -> Result<Device<H>, Failure> {
        match &self.opener {
            Opener::Hal(open) => {
                Device::open_with(open()?, config).map_err(|error| failed_open(&error))
            }
            Opener::Device(open) => open(config),
        }
    }

    /// Returns options with the patience of the rig.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::new().boot_timeout(self.patience()).command_timeout(self.patience())
    }

    /// Returns what the device has; opens it the first time.
    ///
    /// # Errors
    /// Why it could not be opened or asked.
    pub fn facts(&self) -> Result<Facts, Failure> {
        let facts = self.facts.get_or_init(|| {
            let device = self.open()?;
            Ok(Facts::of(&device)?)
        });
        facts.clone()
    }

    /// Returns why the device does not meet the needs, `None` if it does.
    ///
    /// # Errors
    /// As [`facts`](Self::facts).
    pub fn missing(&self, needs: &[Need]) -> Result<Option<String>, Failure> {
        if needs.is_empty() {
            return Ok(None);
        }
        let facts = self.facts()?;
        Ok(needs.iter().find_map(|need| facts.missing(&self.lacks, *need)))
    }

    /// Returns how long a case may take before it counts as hanging.
    #[must_use]
    pub fn case_limit(&self) -> Duration {
        self.limit.saturating_mul(self.scale)
    }

    /// Returns how long to wait for what must happen; ends before the limit of the case, so that
    /// the case can say what did not.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.case_limit() / 2
    }

    /// Returns a time for what must not end, or must be well on its way by then: `time` has plenty
    /// of room on a device of scale 1, so ten times as much is enough everywhere.
    #[must_use]
    pub fn short(&self, time: Duration) -> Duration {
        time.saturating_mul(self.scale.min(10))
    }

    /// Returns a number of repetitions that takes as long as `times` on a device of scale 1, but at
    /// least `least`.
    #[must_use]
    pub fn times(&self, times: usize, least: usize) -> usize {
        (times / usize::try_from(self.scale).unwrap_or(usize::MAX)).max(least)
    }

    /// Returns the number of commands the device has taken, if the rig can tell.
    pub(crate) fn commands(&self, hal: &H) -> Option<u64> {
        self.commands.map(|count| count(hal))
    }
}

fn failed_open(error: &dyn std::error::Error) -> Failure {
    Failure::anywhere(format!("the device did not open: {}", et_runtime::Report(error)))
}
