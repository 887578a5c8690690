//! Graphs on a device.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use et_hal::Hal;

use super::cores::CoresPort;
use super::driver::Check;
use super::pool::{Owner, PoolConfig};
use super::port::{Done, Offer, Port, Unit};
use super::resident::{self, ResidentPort};
use super::run::RunShared;
use super::streams::StreamPort;
use super::{Run, RunError, RunOptions, TaskFailure};
use crate::graph::{Graph, TaskId, Work};
use crate::link::Link as Shared;
use crate::{Device, Result};

/// Who schedules the kernels of a graph, and what runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Place {
    /// For each graph the first of resident, cores and streams that can run it.
    #[default]
    Auto,
    /// Single harts run tasks, the host schedules through mapped device memory.
    Cores,
    /// Single harts run tasks, one of them schedules; the host hands over the graph and fetches the results.
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

/// Options of a [`DeviceExecutor`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ExecutorConfig {
    place: Place,
    workers: u32,
    cores: Option<u32>,
    shires: Option<u64>,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutorConfig {
    /// Place [`Auto`](Place::Auto), two host threads, the harts of one shire.
    pub const fn new() -> Self {
        Self { place: Place::Auto, workers: 2, cores: None, shires: None }
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

    /// Harts that run tasks as workers, besides the one that coordinates them; all of the shires by default.
    pub const fn cores(mut self, harts: u32) -> Self {
        self.cores = Some(harts);
        self
    }

    /// Shires whose harts are workers, as a mask; the lowest one by default.
    pub const fn shires(mut self, mask: u64) -> Self {
        self.shires = Some(mask);
        self
    }
}

/// The harts that work on tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crew {
    pub(super) shires: u64,
    /// With the coordinator.
    pub(super) harts: u32,
}

impl Crew {
    fn new<H: Hal>(shared: &Shared<H>, config: &ExecutorConfig) -> Result<Self, RunError> {
        let available = shared.available_shires();
        let shires = config.shires.unwrap_or(available & available.wrapping_neg());
        if shires == 0 || shires & !available != 0 {
            return Err(RunError::Device(crate::Error::ShireMask { asked: shires, available }));
        }
        let all = et_devapi::abi::harts_in_mask(shires);
        let harts = config.cores.map_or(all, |cores| cores.saturating_add(1));
        if harts < 2 || harts > all {
            return Err(RunError::Unsupported {
                place: "cores",
                why: format!("{} workers asked, the shires have {}", harts - 1, all - 1),
            });
        }
        Ok(Self { shires, harts })
    }
}

/// Runs graphs of kernels, copies and host functions on a device.
///
/// Host functions run on host threads, copies on streams, kernels where the [`Place`] says. Dropping it cancels what has not
/// started. One executor should use the cores of a device at a time; others, and launches on streams, wait for it.
pub struct DeviceExecutor<H: Hal> {
    owner: Owner,
    place: Place,
    /// The ports have it.
    _shared: std::marker::PhantomData<Arc<Shared<H>>>,
}

impl<H: Hal> fmt::Debug for DeviceExecutor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceExecutor").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<H: Hal> DeviceExecutor<H> {
    /// Makes an executor on `device`.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] if the device cannot have the place or the number of cores; [`RunError::Device`].
    pub fn new(device: &Device<H>, config: &ExecutorConfig) -> Result<Self, RunError> {
        let shared = device.link();
        let crew = Crew::new(shared, config)?;
        let has_cores = !matches!(config.place, Place::Streams | Place::Resident)
            && CoresPort::is_possible(shared);
        if config.place == Place::Cores && !has_cores {
            return Err(RunError::Unsupported {
                place: "cores",
                why: "its memory is not mapped".into(),
            });
        }
        let workers = match config.place {
            Place::Streams => None,
            _ => Some(device.load_kernel("graph", GRAPH_KERNEL)?),
        };
        let check = Checker {
            shared: Arc::clone(shared),
            place: config.place,
            has_cores,
            shires: shared.available_shires(),
        };
        let pool_config =
            PoolConfig::new(config.workers).name("et-host").clock(Arc::clone(&shared.config.clock));
        let owner = Owner::new(&pool_config, |pool| {
            let port = DevicePort {
                place: config.place,
                streams: StreamPort::new(shared, pool),
                cores: workers
                    .clone()
                    .filter(|_| has_cores)
                    .map(|kernel| CoresPort::new(shared, pool, kernel, crew)),
                resident: workers
                    .filter(|_| matches!(config.place, Place::Auto | Place::Resident))
                    .map(|kernel| ResidentPort::new(shared, pool, kernel, crew)),
            };
            Some((Box::new(port) as Box<dyn Port>, Box::new(check) as Box<dyn Check>))
        })
        .map_err(|error| RunError::Unsupported { place: "cpu", why: error.to_string() })?;
        Ok(Self { owner, place: config.place, _shared: std::marker::PhantomData })
    }

    /// Returns the place it was made with.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Launches a graph; it may overlap with earlier ones whose declared regions do not conflict with its own.
    ///
    /// # Errors
    /// [`RunError::OtherDevice`], [`RunError::Unsupported`], [`RunError::NoSuchWorker`], [`RunError::DeviceFull`]; nothing is
    /// launched then.
    pub fn launch(&self, graph: &Graph) -> Result<Run, RunError> {
        self.launch_with(graph, RunOptions::new())
    }

    /// Launches a graph with options.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_with(&self, graph: &Graph, options: RunOptions) -> Result<Run, RunError> {
        self.owner.pool.launch(graph, options)
    }
}

/// Workers and coordinator; built from `testing/kernels/src/graph.c`.
const GRAPH_KERNEL: &[u8] = include_bytes!("graph.elf");

/// Where the kernels of a graph can run, and why not elsewhere.
fn place_of<H: Hal>(
    graph: &Graph,
    place: Place,
    has_cores: bool,
    shared: &Shared<H>,
) -> Result<Place, RunError> {
    let as_tasks = can_be_tasks(graph);
    let resident = || {
        as_tasks.clone()?;
        resident::fits(graph, &shared.memory)
    };
    let unsupported = |place: Place, why| RunError::Unsupported { place: place.name(), why };
    match place {
        Place::Resident => resident().map(|()| place).map_err(|e| e.into_run_error(place)),
        Place::Cores => as_tasks.map(|()| place).map_err(|Why(why)| unsupported(place, why)),
        Place::Streams => Ok(place),
        Place::Auto if resident().is_ok() => Ok(Place::Resident),
        Place::Auto if has_cores && as_tasks.is_ok() => Ok(Place::Cores),
        Place::Auto => Ok(Place::Streams),
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
    fn into_run_error(self, place: Place) -> RunError {
        match self {
            Self::Why(why) => RunError::Unsupported { place: place.name(), why },
            Self::Full { needed, free } => {
                RunError::DeviceFull { what: "its tables and arguments", needed, free }
            }
        }
    }
}

fn can_be_tasks(graph: &Graph) -> Result<(), Why> {
    let view = graph.view();
    for task in 0..view.len() as u32 {
        if let Work::Kernel(kernel) = view.work(task) {
            if kernel.task_entry().is_none() {
                return Err(Why(format!(
                    "kernel \"{}\" has no function et_task to run on a single hart",
                    kernel.name()
                )));
            }
            if view.args_len(task) > super::cores::MAX_ARGS {
                return Err(Why(format!(
                    "{} has {} bytes of arguments, the place takes {}",
                    TaskId::from_index(task),
                    view.args_len(task),
                    super::cores::MAX_ARGS
                )));
            }
        }
    }
    Ok(())
}

struct Checker<H: Hal> {
    shared: Arc<Shared<H>>,
    place: Place,
    has_cores: bool,
    shires: u64,
}

impl<H: Hal> Check for Checker<H> {
    fn check(&self, graph: &Graph) -> Result<(), RunError> {
        let view = graph.view();
        if view.device_memory().is_some_and(|memory| !Arc::ptr_eq(memory, &self.shared.memory)) {
            return Err(RunError::OtherDevice);
        }
        if let Some(error) = self.shared.refusal() {
            return Err(RunError::Device(error));
        }
        for task in 0..view.len() as u32 {
            let Work::Kernel(kernel) = view.work(task) else { continue };
            if !kernel.inner.code.whole().belongs_to(&self.shared.memory) {
                return Err(RunError::OtherDevice);
            }
            if let Some(asked) = view.shires(task)
                && (asked == 0 || asked & !self.shires != 0)
            {
                let error = crate::Error::ShireMask { asked, available: self.shires };
                return Err(RunError::Device(error));
            }
        }
        place_of(graph, self.place, self.has_cores, &self.shared).map(drop)
    }
}

/// All of a device's ways.
struct DevicePort<H: Hal> {
    place: Place,
    streams: StreamPort<H>,
    cores: Option<CoresPort<H>>,
    resident: Option<ResidentPort<H>>,
}

impl<H: Hal> DevicePort<H> {
    fn place_of(&self, graph: &Graph) -> Place {
        place_of(graph, self.place, self.cores.is_some(), &self.streams.shared)
            .unwrap_or(Place::Streams)
    }
}

impl<H: Hal> Port for DevicePort<H> {
    fn name(&self, graph: &Graph) -> &'static str {
        self.place_of(graph).name()
    }

    fn take(&mut self, run: &Arc<RunShared>) -> Result<bool, TaskFailure> {
        if !run.graph.view().has_kernels() || self.place_of(&run.graph) != Place::Resident {
            return Ok(false);
        }
        let Some(resident) = &mut self.resident else { return Ok(false) };
        // Harts that wait for tasks of others would never let it start.
        if let Some(cores) = &mut self.cores {
            cores.rest();
        }
        resident.take(run)?;
        Ok(true)
    }

    fn offer(&mut self, unit: &Unit<'_>) -> Result<Offer, TaskFailure> {
        let is_kernel = matches!(unit.run.graph.view().work(unit.task), Work::Kernel(_));
        match &mut self.cores {
            Some(cores)
                if is_kernel && self.place != Place::Streams && can_be_tasks_cached(unit.run) =>
            {
                cores.offer(unit)
            }
            _ => {
                if is_kernel && let Some(cores) = &mut self.cores {
                    cores.rest();
                }
                self.streams.offer(unit)
            }
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> bool {
        let mut progress = self.streams.poll(done);
        if let Some(cores) = &mut self.cores {
            progress |= cores.poll(done);
        }
        if let Some(resident) = &mut self.resident {
            progress |= resident.poll(done);
        }
        progress
    }

    fn is_busy(&self) -> bool {
        self.streams.is_busy()
            || self.cores.as_ref().is_some_and(Port::is_busy)
            || self.resident.as_ref().is_some_and(ResidentPort::is_busy)
    }

    fn nap(&self) -> Option<std::time::Duration> {
        let naps = [
            self.streams.nap(),
            self.cores.as_ref().and_then(Port::nap),
            self.resident.as_ref().and_then(ResidentPort::nap),
        ];
        naps.into_iter().flatten().min()
    }

    fn give_up(&mut self, run: u64, late: Option<std::time::Duration>, done: &mut Vec<Done>) {
        self.streams.give_up(run, late, done);
        if let Some(cores) = &mut self.cores {
            cores.give_up(run, late, done);
        }
        if let Some(resident) = &mut self.resident {
            resident.give_up(run, late);
        }
    }

    fn describe(&self) -> String {
        let parts = [
            self.streams.describe(),
            self.cores.as_ref().map_or(String::new(), Port::describe),
            self.resident.as_ref().map_or(String::new(), ResidentPort::describe),
        ];
        parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
    }

    fn close(&mut self) {
        if let Some(cores) = &mut self.cores {
            cores.close();
        }
    }
}

/// Kernels without `et_task` make the whole graph run on streams.
fn can_be_tasks_cached(run: &RunShared) -> bool {
    *run.can_be_tasks.get_or_init(|| can_be_tasks(&run.graph).is_ok())
}
