//! Graphs on a device.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::Hal;

use super::access::Access;
use super::config::{ExecutorConfig, Place, Why};
use super::cores::{self, Cores, Crew};
use super::driver::{Check, Kind, Limits, start_together};
use super::engine::Beside;
use super::harts::{Holder, tenants};
use super::host::Desk;
use super::ids::count;
use super::pool::{Others, Owner, PoolConfig};
use super::resident::{self, Resident};
use super::run::Route;
use super::streams::Streams;
use super::words::DeviceWords;
use super::{Flow, Run, RunError, RunOptions};
use crate::graph::{Graph, TaskId, Work};
use crate::memory::DeviceMemory;
use crate::{Device, Error, Result};

/// Runs graphs of kernels, copies and host functions on a device.
///
/// Host functions run on host threads, copies on streams, kernels where the [`Place`] says.
/// Dropping it cancels what has not started, and stops kernels that run after
/// [`close_grace`](ExecutorConfig::close_grace). One of its own tasks or callbacks may drop it:
/// then it does so later, in another thread. One executor should use the cores of a device at a
/// time; others, and launches on streams, wait for it.
pub struct DeviceExecutor<H: Hal> {
    owner: Owner,
    place: Place,
    /// The places have it.
    _hal: std::marker::PhantomData<Arc<H>>,
}

impl<H: Hal> fmt::Debug for DeviceExecutor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceExecutor").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Where the scheduler keeps the places that it has beside the host threads, which are the first.
const COPIES: u8 = 1;
const LAUNCHES: u8 = 2;
const RESIDENT: u8 = 3;
const CORES: u8 = 4;

impl<H: Hal> Device<H> {
    /// Makes an executor for graphs that use this device.
    ///
    /// # Errors
    /// As [`DeviceExecutor::new`].
    pub fn executor(&self, config: &ExecutorConfig) -> Result<DeviceExecutor<H>, RunError> {
        DeviceExecutor::new(self, config)
    }
}

impl<H: Hal> DeviceExecutor<H> {
    /// Makes an executor on `device`.
    ///
    /// # Errors
    /// [`RunError::NoCpuAccess`] for [`Place::Cores`] if the registers do not grant it;
    /// [`RunError::Unsupported`] if device memory cannot be mapped, or there are not as many cores;
    /// [`RunError::Device`].
    pub fn new(device: &Device<H>, config: &ExecutorConfig) -> Result<Self, RunError> {
        let access = Access::new(device);
        let crew = Crew::new(access.shires(), config)?;
        let wants_cores = matches!(config.place, Place::Auto | Place::Cores);
        let window = if wants_cores { access.window() } else { None };
        if config.place == Place::Cores && window.is_none() {
            return Err(match access.grants_cpu_access() {
                false => RunError::NoCpuAccess,
                true => RunError::Unsupported {
                    place: "cores",
                    why: "device memory cannot be mapped here".into(),
                },
            });
        }
        let workers = match config.place {
            Place::Streams => None,
            _ => Some(device.load_kernel("graph", GRAPH_KERNEL).map_err(Error::from)?),
        };
        let check = Checker {
            access: access.clone(),
            memory: Arc::clone(access.memory()),
            place: config.place,
            cores: window.is_some().then_some(crew.workers()),
            shires: access.shires(),
        };
        let limits = Limits { grace: config.grace, abort: config.limit };
        let patience = cores::Patience {
            rest: Duration::from_millis(5),
            stall: Duration::from_millis(25),
            grace: config.grace,
            limit: config.limit,
        };
        let pool_config = PoolConfig::new(config.workers)
            .name("et-host")
            .start_limit(config.start_limit)
            .clock(Arc::clone(access.clock()));
        let places = move |desk: &Weak<dyn Desk>| {
            let holders = [Holder::Launches, Holder::Resident, Holder::Cores];
            let [launches, resident, cores] = tenants(holders);
            let mut places: Vec<Box<dyn super::place::Place>> = vec![
                Box::new(Streams::new(&access, desk, None, patience)),
                Box::new(Streams::new(&access, desk, Some(launches), patience)),
            ];
            if let Some(kernel) = workers {
                let team = (kernel.clone(), crew);
                places.push(Box::new(Resident::new(&access, desk, team, resident, patience)));
                if let Some(window) = window {
                    let team = (kernel, crew);
                    places.push(Box::new(Cores::new(&access, desk, team, window, cores, patience)));
                }
            }
            let words = DeviceWords::new(&access, desk);
            let beside = Beside { places, words: Some(Box::new(words)) };
            Others { beside, check: Some(Box::new(check)) }
        };
        let owner = Owner::new(&pool_config, limits, places)
            .map_err(|error| RunError::Unsupported { place: "cpu", why: error.to_string() })?;
        Ok(Self { owner, place: config.place, _hal: std::marker::PhantomData })
    }

    /// Returns how many callbacks and wakers of runs have panicked. Such a panic harms nothing
    /// else.
    #[must_use]
    pub fn callback_panics(&self) -> u64 {
        self.owner.pool.callback_panics()
    }

    /// Returns the place it was made with.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Launches a graph; it may overlap with earlier ones whose declared regions do not conflict
    /// with its own.
    ///
    /// # Errors
    /// [`RunError::OtherDevice`], [`RunError::Unsupported`], [`RunError::NoSuchWorker`],
    /// [`RunError::TooManyParts`], [`RunError::DeviceFull`], [`RunError::Device`]; nothing is
    /// launched then.
    pub fn launch(&self, graph: &Graph) -> Result<Run, RunError> {
        self.launch_with(graph, RunOptions::new())
    }

    /// Launches a graph with options.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_with(&self, graph: &Graph, options: RunOptions) -> Result<Run, RunError> {
        let shared = self.owner.pool.launch(graph, options)?;
        Ok(Run::new(shared, Arc::clone(&self.owner.pool)))
    }

    /// Makes a flow: graphs that follow one another task by task.
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow::new(&self.owner.pool)
    }
}

/// Workers and coordinator; built from `testing/kernels/src/graph.c`.
const GRAPH_KERNEL: &[u8] = include_bytes!("graph.elf");

/// Where the kernels of a graph can run, and why not elsewhere.
fn place_of(
    graph: &Graph,
    place: Place,
    cores: Option<u32>,
    memory: &Arc<DeviceMemory>,
) -> Result<Place, RunError> {
    let as_tasks = can_be_tasks(graph);
    let resident = || {
        as_tasks.clone()?;
        resident::fits(graph, memory)
    };
    let unsupported = |place: Place, why| RunError::Unsupported { place: place.name(), why };
    match place {
        Place::Resident => resident().map(|()| place).map_err(|e| e.into_run_error(place)),
        Place::Cores => {
            as_tasks.map_err(|Why(why)| unsupported(place, why))?;
            start_together(graph, cores.unwrap_or(0), Kind::Kernel).map(|()| place)
        }
        Place::Streams => Ok(place),
        Place::Auto if resident().is_ok() => Ok(Place::Resident),
        Place::Auto
            if as_tasks.is_ok()
                && cores.is_some_and(|all| start_together(graph, all, Kind::Kernel).is_ok()) =>
        {
            Ok(Place::Cores)
        }
        Place::Auto => Ok(Place::Streams),
    }
}

fn can_be_tasks(graph: &Graph) -> Result<(), Why> {
    let view = graph.view();
    for task in 0..count(view.len()) {
        if let Work::Kernel(kernel) = view.work(task) {
            if kernel.task_entry().is_none() {
                return Err(Why(format!(
                    "kernel \"{}\" has no function et_task to run on a single hart",
                    kernel.name()
                )));
            }
            if view.args_len(task) > cores::MAX_ARGS as usize {
                return Err(Why(format!(
                    "{} has {} bytes of arguments, the place takes {}",
                    TaskId::from_index(task),
                    view.args_len(task),
                    cores::MAX_ARGS
                )));
            }
        }
    }
    Ok(())
}

struct Checker<H: Hal> {
    access: Access<H>,
    memory: Arc<DeviceMemory>,
    place: Place,
    /// How many there are, if they can be used.
    cores: Option<u32>,
    shires: u64,
}

impl<H: Hal> Check for Checker<H> {
    fn device(&self) -> Arc<str> {
        self.access.device()
    }

    fn check(&self, graph: &Graph) -> Result<Route, RunError> {
        let view = graph.view();
        let of_another = |memory: &DeviceMemory| match memory.foreign() {
            crate::Error::ForeignBuffer => RunError::OtherDevice,
            stale => RunError::Device(stale.during("graph").on(self.device())),
        };
        if let Some(memory) = view.device_memory().filter(|its| !Arc::ptr_eq(its, &self.memory)) {
            return Err(of_another(memory));
        }
        if let Some(error) = self.access.refusal() {
            return Err(RunError::Device(error));
        }
        for task in 0..count(view.len()) {
            let Work::Kernel(kernel) = view.work(task) else { continue };
            if !kernel.inner.code.belongs_to(&self.memory) {
                return Err(of_another(kernel.inner.code.memory()));
            }
            // Harts that are at work already do not order it behind the copy.
            kernel.image.wait().map_err(RunError::Device)?;
            if let Some(asked) = view.shires(task)
                && (asked == 0 || asked & !self.shires != 0)
            {
                let error = crate::Error::ShireMask { asked, available: self.shires };
                return Err(RunError::Device(error));
            }
        }
        let place = place_of(graph, self.place, self.cores, &self.memory)?;
        // Copies alone need no harts.
        let name = place.name();
        Ok(match place {
            Place::Resident if view.has_kernels() => Route::whole(RESIDENT, name),
            Place::Cores => Route::new(CORES, COPIES, name),
            _ => Route::new(LAUNCHES, COPIES, name).launches(),
        })
    }
}
