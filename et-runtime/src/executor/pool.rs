//! Host threads as a place for tasks.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::driver::{Check, Limits, Pool};
use super::engine::{Beside, Engine};
use super::host::{Desk, HostThreads, Threads};
use super::own;
use super::run::Runs;
use super::{Flow, Run, RunError, RunOptions};
use crate::clock::{Clock, SystemClock};
use crate::graph::Graph;
use crate::handshake::Patience;

/// Options of a [`CpuPool`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PoolConfig {
    pub(super) workers: u32,
    pub(super) spins: u32,
    pub(super) name: String,
    pub(super) clock: Arc<dyn Clock>,
    start_limit: Duration,
    processors: u32,
}

impl PoolConfig {
    /// A pool of at most `workers` threads, at least one.
    pub fn new(workers: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            workers: workers.max(1),
            start_limit: Duration::from_secs(10),
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            spins: 2000,
            name: "et-worker".into(),
            clock: Arc::new(SystemClock::default()),
        }
    }

    /// How often workers and scheduler look before they sleep, some ten nanoseconds each; up to 16
    /// times that while sleeps turn out to be short.
    pub fn spins(mut self, looks: u32) -> Self {
        self.spins = looks.max(1);
        self
    }

    /// What the threads are called, with their numbers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long a new thread may take to announce itself before another one is started instead.
    /// Default 10 s.
    pub fn start_limit(mut self, time: Duration) -> Self {
        self.start_limit = time;
        self
    }

    /// How many threads can run at the same time; as many as the system says by default. As long as
    /// fewer workers have tasks, the thread that waits for a run looks for what they complete; else
    /// it leaves its processor to them.
    pub fn processors(mut self, threads: u32) -> Self {
        self.processors = threads.max(1);
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

/// What there is beside the host threads.
#[derive(Default)]
pub(super) struct Others {
    pub(super) beside: Beside,
    /// What says which graphs can run there.
    pub(super) check: Option<Box<dyn Check>>,
}

impl Owner {
    pub(super) fn new(
        config: &PoolConfig,
        limits: Limits,
        others: impl FnOnce(&Weak<dyn Desk>) -> Others,
    ) -> std::io::Result<Self> {
        let PoolConfig { workers, spins, name, clock, start_limit, processors } = config.clone();
        let pool = Arc::new_cyclic(|pool: &Weak<Pool>| {
            let desk: Weak<dyn Desk> = Weak::<Pool>::clone(pool);
            let Others { beside, check } = others(&desk);
            let (table, name) = (Arc::new(Runs::default()), name.clone());
            let threads = Threads { name, limit: workers, spins, processors, start_limit };
            let host = HostThreads::new(
                Weak::clone(pool),
                Arc::clone(&table),
                Arc::clone(&clock),
                threads,
            );
            let patience = Patience::new(spins);
            let engine = Engine::new(host, beside, table, Arc::clone(&clock), patience);
            Pool::new(clock, spins, (workers, limits), engine, check)
        });
        let its = Arc::clone(&pool);
        let background =
            std::thread::Builder::new().name(format!("{name}-sched")).spawn(move || {
                own::belong_to(Arc::as_ptr(&its));
                its.stand_by();
            })?;
        Ok(Self { pool, background: Some(background) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (pool, background) = (Arc::clone(&self.pool), self.background.take());
        let end = move || {
            pool.close();
            if let Some(background) = background {
                drop(background.join());
            }
        };
        if !own::belongs_to(Arc::as_ptr(&self.pool)) {
            return end();
        }
        // A task or a callback of the pool lets it go: its thread cannot be waited for by itself.
        if let Err(error) = std::thread::Builder::new().name("et-end".into()).spawn(end) {
            tracing::error!(%error, "no thread that could end a pool; its threads stay");
        }
    }
}

/// Host threads that run the tasks of graphs.
///
/// Threads are started when there is work for them. Dropping the pool cancels what has not started,
/// and waits for what runs. One of its own tasks or callbacks may drop it: then it does so later,
/// in another thread.
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
        let limits = Limits { grace: Duration::ZERO, abort: Duration::ZERO };
        Ok(Self { owner: Owner::new(config, limits, |_| Others::default())? })
    }

    /// Returns how many callbacks and wakers of runs have panicked. Such a panic harms nothing
    /// else.
    #[must_use]
    pub fn callback_panics(&self) -> u64 {
        self.owner.pool.callback_panics()
    }

    /// Launches a graph of host functions; it may overlap with earlier ones whose declared regions
    /// do not conflict with its own.
    ///
    /// # Errors
    /// [`RunError::NeedsDevice`], [`RunError::NoSuchWorker`], [`RunError::TooManyParts`].
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
