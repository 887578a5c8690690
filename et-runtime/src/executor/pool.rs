//! Host threads as a place for tasks.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use super::driver::{Check, Pool};
use super::engine::Engine;
use super::port::Port;
use super::{Run, RunError, RunOptions};
use crate::clock::{Clock, SystemClock};
use crate::graph::Graph;

/// Options of a [`CpuPool`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PoolConfig {
    pub(super) workers: u32,
    pub(super) spins: u32,
    pub(super) name: String,
    pub(super) clock: Arc<dyn Clock>,
}

impl PoolConfig {
    /// A pool of at most `workers` threads, at least one.
    pub fn new(workers: u32) -> Self {
        Self {
            workers: workers.max(1),
            spins: 2000,
            name: "et-worker".into(),
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// How often workers and scheduler look before they sleep, some ten nanoseconds each; up to 16 times that while sleeps turn
    /// out to be short.
    pub fn spins(mut self, looks: u32) -> Self {
        self.spins = looks.max(1);
        self
    }

    /// What the threads are called, with their numbers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where times and deadlines come from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

/// A scheduler with its threads; ends with its last handle's owner.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) pool: Arc<Pool>,
    background: Option<JoinHandle<()>>,
}

impl Owner {
    pub(super) fn new(
        config: &PoolConfig,
        device: impl FnOnce(&Weak<Pool>) -> Option<(Box<dyn Port>, Box<dyn Check>)>,
    ) -> std::io::Result<Self> {
        let pool = Arc::new_cyclic(|weak| {
            let (port, check) = device(weak).unzip();
            let (weak, name) = (Weak::clone(weak), config.name.clone());
            let engine = Engine::new(weak, name, config.workers, config.spins, port);
            Pool::new(Arc::clone(&config.clock), config.spins, engine, check)
        });
        let its = Arc::clone(&pool);
        let background = std::thread::Builder::new()
            .name(format!("{}-sched", config.name))
            .spawn(move || its.stand_by())?;
        Ok(Self { pool, background: Some(background) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.pool.close();
        if let Some(background) = self.background.take() {
            drop(background.join());
        }
    }
}

/// Host threads that run the tasks of graphs.
///
/// Threads are started when there is work for them. Dropping the pool cancels what has not started, and waits for what runs.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
/// use et_runtime::executor::CpuPool;
/// use et_runtime::graph::{GraphBuilder, Task};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let value = Arc::new(AtomicU32::new(3));
/// let mut builder = GraphBuilder::new();
/// let its = Arc::clone(&value);
/// let add = builder.function(move |task| {
///     its.fetch_add(task.args()[0] as u32, Ordering::Relaxed);
///     Ok(())
/// });
/// let its = Arc::clone(&value);
/// let double = builder.function(move |_| {
///     its.fetch_add(its.load(Ordering::Relaxed), Ordering::Relaxed);
///     Ok(())
/// });
/// let first = builder.add(Task::new(add).u64(4))?;
/// builder.add(Task::new(double).after(first))?;
/// let graph = builder.build()?;
///
/// let pool = CpuPool::new(2)?;
/// pool.launch(&graph)?.finish(Duration::from_secs(5))?;
/// assert_eq!(value.load(Ordering::Relaxed), 14);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CpuPool {
    owner: Owner,
}

impl CpuPool {
    /// Makes a pool of at most `workers` threads.
    ///
    /// # Errors
    /// Those of the system, if it gives no thread.
    pub fn new(workers: u32) -> std::io::Result<Self> {
        Self::with_config(&PoolConfig::new(workers))
    }

    /// Makes a pool with options.
    ///
    /// # Errors
    /// Those of the system, if it gives no thread.
    pub fn with_config(config: &PoolConfig) -> std::io::Result<Self> {
        Ok(Self { owner: Owner::new(config, |_| None)? })
    }

    /// Launches a graph of host functions; it may overlap with earlier ones whose declared regions do not conflict with its own.
    ///
    /// # Errors
    /// [`RunError::NeedsDevice`], [`RunError::NoSuchWorker`].
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
