//! The management endpoint: what the service processor knows of the card, and what it does to it.
//!
//! It shares nothing with the operations endpoint but the card, so it works while kernels hang, and
//! [`Management::open`] works on a card whose operations firmware does not start.
//!
//! | File | What |
//! |---|---|
//! | `core.rs` | the state machine: tags, answers, events |
//! | `way.rs` | to the endpoint of this process, or of another |
//! | `link.rs` | carries messages between it and the mailbox, by the thread that waits |
//! | `query.rs`, `control.rs`, `update.rs` | typed calls |
//! | `named.rs` | queries by the names of their commands |
//! | `trace.rs` | traces of the service processor and of statistics |
//! | `values.rs`, `stats.rs` | what they return, with units |
//! | `device.rs` | resets that concern an open device |
//! | `relay.rs` | cards that another process has, and where a device keeps its endpoint |
//!
//! Spec: §17

mod control;
mod core;
mod device;
mod link;
mod named;
mod query;
pub(crate) mod relay;
mod stats;
mod trace;
mod update;
mod values;
mod way;

use std::fmt;
use std::time::Duration;

use et_devapi::discovery;
use et_devapi::msg::mgmt::{Call, Quad};
use et_hal::Hal;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::link::ManagementLink;
use self::way::Way;
use crate::config::Config;
use crate::device::open;
use crate::sync::Arc;
use crate::{Error, OpenError, Refusal, Result};

pub use self::core::{Answer, ManagementCounters, ManagementEvent, ManagementEventKind};
pub use self::named::{Field, FieldValue};
pub use self::relay::Watch;
pub use self::stats::{Statistic, Unit};
pub use self::trace::ManagementTrace;
pub use self::values::{
    AsicVoltages, Asset, CacheConfig, ErrorCounts, ErrorSource, FirmwareVersions, Frequencies,
    MemoryRate, MinionErrors, ModuleVoltages, Residency, Temperatures,
};
pub use self::way::Relay;
pub use et_devapi::msg::mgmt::calls::{CommandInfo, command_info};
pub use et_devapi::msg::mgmt::{
    ActivePowerManagement, BreakpointEvent, Event as CardEvent, EventClass, EventDetail, EventId,
    HartStatus, LaneWidth, LinkSpeed, Module, Pll, PowerState, StatsControl, StatsKind, StepClock,
    ThrottleState, TraceControl, TraceEvents, TraceFilter,
};

/// The management endpoint of a device.
///
/// Handles are cheap to clone and usable from any thread; the service processor executes one
/// command after the other. Every call has a deadline, [`Config::command_timeout`] unless
/// [`with_timeout`](Self::with_timeout) says otherwise.
///
/// # Errors
///
/// All calls fail with [`Error::Refused`] if the service processor says no, with
/// [`Error::Timeout`], with [`Error::Malformed`] for an answer that makes no sense, with
/// [`Error::Hal`] if the backend fails, and with [`Error::Closed`] or [`Error::Stale`] after the
/// device was closed or reset.
///
/// # Examples
///
/// ```
/// # let hal = et_hal_sim::SimHal::open("shires=1,dram=256MiB,serial=A-7".parse()?)?;
/// let device = et_runtime::Device::open(hal)?;
/// let management = device.management()?;
/// assert_eq!(management.serial_number()?, "A-7");
/// println!("{} °C", management.temperatures()?.minion_average_c);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Management<H: Hal> {
    way: Way<H>,
    timeout: Duration,
}

impl<H: Hal> Clone for Management<H> {
    fn clone(&self) -> Self {
        Self { way: self.way.clone(), timeout: self.timeout }
    }
}

impl<H: Hal> fmt::Debug for Management<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<H: Hal> Management<H> {
    /// Opens the management endpoint alone. That needs no operations firmware: a card whose
    /// firmware does not start can be updated and reset.
    ///
    /// # Errors
    /// [`OpenError`].
    ///
    /// Spec: §4
    pub fn open(hal: H, config: Config) -> Result<Self, OpenError> {
        let config = config.named_for(&hal);
        Self::open_alone(Arc::new(hal), config)
    }

    fn open_alone(hal: Arc<H>, config: Config) -> Result<Self, OpenError> {
        let dir = open::management_registers(&*hal, &config)?;
        let layout =
            discovery::mgmt_mailbox(&dir).map_err(|error| OpenError::Registers(Arc::new(error)))?;
        Ok(Self::new(Arc::new(ManagementLink::open(hal, dir, layout, config)?)))
    }

    fn new(link: Arc<ManagementLink<H>>) -> Self {
        let timeout = link.config.command_timeout;
        Self { way: Way::Own(link), timeout }
    }

    /// Returns `true` if the card belongs to another process, [through](Self::through) which this
    /// handle asks.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        matches!(self.way, Way::Relay(_))
    }

    /// Returns a handle whose calls have another deadline.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns what has come so far.
    #[must_use]
    pub fn counters(&self) -> ManagementCounters {
        match &self.way {
            Way::Own(link) => link.counters(),
            Way::Relay(relay) => relay.counters(),
        }
    }

    /// Takes the next event of the card; `None` if there is none within `timeout`.
    ///
    /// Events come in order. The runtime keeps 1024 of them, the device as many as its queue has
    /// room for; what was lost is [counted](Self::counters). They are looked for whenever a handle
    /// of the endpoint is used, so call this often enough, or in a thread of its own.
    ///
    /// # Errors
    /// Why no events will come any more.
    ///
    /// Spec: §17.4
    pub fn event(&self, timeout: Duration) -> Result<Option<ManagementEvent>> {
        let link = self.way.own("card event")?;
        link.event(link.deadline(timeout))
    }

    /// Executes a command and reads the start of its answer.
    fn call<Q, R>(&self, call: Call<Q, R>, payload: &Q, op: &'static str) -> Result<R>
    where
        Q: IntoBytes + Immutable,
        R: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let answer = self.way.call(call.id, payload.as_bytes(), op, self.timeout)?;
        tracing::trace!(op, status = answer.status, latency = ?answer.latency, "management");
        if answer.status != 0 {
            return Err(Error::Refused { op, status: Refusal::Management(answer.status) });
        }
        R::read_from_prefix(&answer.payload).map(|(answer, _)| answer).map_err(|_| {
            let (len, needed) = (answer.payload.len(), size_of::<R>());
            let why = format!("an answer of {len} bytes, {needed} are needed").into();
            Error::Malformed { op, why }
        })
    }

    /// Executes a command without parameters.
    fn get<R>(&self, call: Call<Quad, R>, op: &'static str) -> Result<R>
    where
        R: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        self.call(call, &Quad::new_zeroed(), op)
    }
}
