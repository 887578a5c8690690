//! How a device is opened.

use std::sync::Arc;
use std::time::Duration;

use et_hal::Hal;

use crate::clock::{Clock, SystemClock};

/// Who takes responses from the completion queue when no one waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// A thread of the device's own. It sleeps while nothing is in flight.
    Thread,
    /// The caller, by waiting or by [`Device::poll`](crate::Device::poll); no thread is started.
    Caller,
}

/// Options of a device.
///
/// ```
/// use std::time::Duration;
/// let config = et_runtime::Config::new().boot_timeout(Duration::from_secs(5));
/// assert_eq!(config, config.clone());
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) boot_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) watchdog: Duration,
    pub(crate) staging_bytes: usize,
    pub(crate) in_flight: u16,
    pub(crate) byte_copies: bool,
    pub(crate) failure_messages: bool,
    pub(crate) spin: Duration,
    pub(crate) drain: Drain,
    pub(crate) clock: Arc<dyn Clock>,
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.boot_timeout == other.boot_timeout
            && self.command_timeout == other.command_timeout
            && self.shutdown_timeout == other.shutdown_timeout
            && self.watchdog == other.watchdog
            && self.staging_bytes == other.staging_bytes
            && self.in_flight == other.in_flight
            && self.byte_copies == other.byte_copies
            && self.failure_messages == other.failure_messages
            && self.spin == other.spin
            && self.drain == other.drain
            && Arc::ptr_eq(&self.clock, &other.clock)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: None,
            boot_timeout: Duration::from_secs(100),
            command_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
            watchdog: Duration::from_secs(10),
            staging_bytes: 32 << 20,
            in_flight: 256,
            byte_copies: false,
            failure_messages: true,
            spin: Duration::from_micros(50),
            drain: Drain::Thread,
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// What errors and messages call the device. By default its place on the bus, or its backend.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same, unless a name was given.
    #[must_use]
    pub fn default_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name.get_or_insert_with(|| name.into());
        self
    }

    /// The same, with a name.
    pub(crate) fn named_for(mut self, hal: &impl Hal) -> Self {
        self.name.get_or_insert_with(|| {
            let identity = hal.identity();
            match identity.pci_address.unwrap_or(identity.backend) {
                "" => "the device".into(),
                name => name.into(),
            }
        });
        self
    }

    /// What errors call the device.
    pub(crate) fn device_name(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| "the device".into())
    }

    /// How long the device may take to boot. Default 100 s, as long as the vendor's driver waits.
    /// Spec: §4.
    #[must_use]
    pub fn boot_timeout(mut self, timeout: Duration) -> Self {
        self.boot_timeout = timeout;
        self
    }

    /// How long a call may block for room — in a queue, in the staging pool, for a tag — while
    /// nothing of its stream makes any progress. Also the limit of the runtime's own commands.
    /// Default 30 s.
    #[must_use]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// How long closing may take before work in flight is abandoned. Default 5 s.
    #[must_use]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// How long the device may answer nothing at all, while it has commands, until it is asked
    /// whether it is still there; and how long it may take to answer that. Then it is lost. Watched
    /// by the thread of [`Drain::Thread`]. Default 10 s.
    #[must_use]
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = limit;
        self
    }

    /// Most DMA memory, in bytes, for copies from and to ordinary memory. Default 32 MiB.
    #[must_use]
    pub fn staging_bytes(mut self, bytes: usize) -> Self {
        self.staging_bytes = bytes;
        self
    }

    /// Most commands in flight, over all streams: 1 to 4096. Default 256.
    #[must_use]
    pub fn in_flight(mut self, commands: u16) -> Self {
        self.in_flight = commands.clamp(1, 4096);
        self
    }

    /// Copies may start and end anywhere. By default device addresses and lengths are multiples of
    /// what the device's registers say, mostly 8 bytes; a copy through staging memory that can keep
    /// to that does so all the same, padded behind the end of its buffer. Firmware does not check
    /// that, and the vendor's host software sends what it is given; how the copy engine of a card
    /// treats other addresses is not documented. Spec: §8.
    #[must_use]
    pub fn byte_copies(mut self, allowed: bool) -> Self {
        self.byte_copies = allowed;
        self
    }

    /// Reports of failed launches have what the firmware traced meanwhile:
    /// [`LaunchFailure::firmware`](crate::LaunchFailure::firmware). That takes 9 MiB of DMA memory
    /// from the first failure on, and one copy of them for each. On by default.
    #[must_use]
    pub fn failure_messages(mut self, wanted: bool) -> Self {
        self.failure_messages = wanted;
        self
    }

    /// How long a waiter polls before it sleeps. Default 50 µs; zero sleeps at once.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Who drains the completion queue. Default [`Drain::Thread`].
    #[must_use]
    pub fn drain(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    /// Where the time comes from. Default [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}
