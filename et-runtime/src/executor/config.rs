//! Where graphs run on a device, and why they cannot.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::RunError;

/// Who schedules the kernels of a graph, and what runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Place {
    /// For each graph the first of resident, cores and streams that can run it.
    #[default]
    Auto,
    /// Single harts run tasks, the host schedules through mapped device memory. Only if the
    /// registers grant that, as [`Properties::cpu_access`](crate::Properties::cpu_access) says.
    Cores,
    /// Single harts run tasks, one of them schedules; the host hands over the graph and fetches the
    /// results.
    Resident,
    /// Each task is a launch of its own on all harts, or on those of its shires.
    Streams,
}

impl Place {
    /// Returns its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cores => "cores",
            Self::Resident => "resident",
            Self::Streams => "streams",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No place has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place \"{0}\"; there are auto, cores, resident and streams")]
pub struct UnknownPlace(String);

impl FromStr for Place {
    type Err = UnknownPlace;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownPlace> {
        [Self::Auto, Self::Cores, Self::Resident, Self::Streams]
            .into_iter()
            .find(|place| place.name() == name)
            .ok_or_else(|| UnknownPlace(name.to_owned()))
    }
}

/// Options of a [`DeviceExecutor`](super::DeviceExecutor).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ExecutorConfig {
    pub(super) place: Place,
    pub(super) workers: u32,
    pub(super) cores: Option<u32>,
    pub(super) shires: Option<u64>,
    pub(super) grace: Duration,
    pub(super) limit: Duration,
    pub(super) start_limit: Duration,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutorConfig {
    /// Place [`Auto`](Place::Auto), two host threads, the harts of one shire.
    pub const fn new() -> Self {
        Self {
            place: Place::Auto,
            workers: 2,
            cores: None,
            shires: None,
            grace: Duration::from_millis(100),
            limit: Duration::from_secs(10),
            start_limit: Duration::from_secs(10),
        }
    }

    /// Where kernels run.
    pub const fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Most host threads for host functions.
    pub const fn workers(mut self, threads: u32) -> Self {
        self.workers = threads;
        self
    }

    /// Harts that run tasks as workers, besides the one that coordinates them; all of the shires by
    /// default.
    pub const fn cores(mut self, harts: u32) -> Self {
        self.cores = Some(harts);
        self
    }

    /// Shires whose harts are workers, as a mask; the lowest one by default.
    pub const fn shires(mut self, mask: u64) -> Self {
        self.shires = Some(mask);
        self
    }

    /// How long kernels and copies that run may go on when the executor is dropped, before they are
    /// stopped. Default 100 ms.
    pub const fn close_grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// How long the device may take to do what it is told: to bring harts in, to let them go, to
    /// abort a kernel. After that the cores are reset. Default 10 s.
    pub const fn abort_limit(mut self, time: Duration) -> Self {
        self.limit = time;
        self
    }

    /// How long a new host thread may take to announce itself before it is given up. Default 10 s.
    pub const fn start_limit(mut self, time: Duration) -> Self {
        self.start_limit = time;
        self
    }
}

/// Why a graph cannot run at a place.
#[derive(Clone, Debug)]
pub(super) struct Why(pub(super) String);

/// The same, for the resident place.
pub(super) enum NotResident {
    Why(String),
    Full { needed: u64, free: u64 },
}

impl From<Why> for NotResident {
    fn from(Why(why): Why) -> Self {
        Self::Why(why)
    }
}

impl NotResident {
    pub(super) fn into_run_error(self, place: Place) -> RunError {
        match self {
            Self::Why(why) => RunError::Unsupported { place: place.name(), why },
            Self::Full { needed, free } => {
                RunError::DeviceFull { what: "its tables and arguments", needed, free }
            }
        }
    }
}
