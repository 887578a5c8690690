//! Running graphs.
//!
//! An executor owns workers and hands them the tasks of graphs as these become ready. [`CpuPool`]
//! has host threads; [`DeviceExecutor`] also has the cores of a device, in one of three [`Place`]s.
//! A launch gives a [`Run`], which can be waited for, polled, awaited, watched and cancelled; its
//! [`Outcome`] says what became of every task. In a [`Flow`] the tasks of a graph follow those of
//! earlier ones one by one, so that work can be described while it runs.
//!
//! # How it works
//!
//! The scheduler is a state machine (`engine`): it knows runs, which of their tasks are ready, and
//! which run waits for which. It offers ready tasks to places (`place`) and takes back what they
//! have done. A place never waits: host threads (`host`), the harts of a device scheduled by the
//! host (`cores`) or by one of them (`resident`), launches and copies (`streams`). Those that need
//! the harts hold them by turns (`harts`).
//!
//! No thread is there to schedule only. The one that waits for a run does it meanwhile (`driver`),
//! as long as there is a processor for it and a task that waits for one more worker; else each
//! worker schedules when it has completed a task. A thread in the background looks at the clock,
//! and at what does not ring while no one waits. Workers that have nothing to do sleep, and more of
//! them are woken as tasks wait that are worth it. Book: "Task graphs".

mod access;
mod config;
mod cores;
mod device;
mod driver;
mod engine;
mod export;
mod failure;
mod flow;
mod guard;
mod handle;
mod harts;
mod host;
mod ids;
mod outcome;
mod own;
mod phases;
mod place;
mod pool;
#[cfg(feature = "unstable-handshake")]
pub mod progress;
#[cfg(not(feature = "unstable-handshake"))]
mod progress;
mod record;
mod resident;
mod run;
mod stall;
mod state;
mod streams;
mod trace;
mod words;

pub use config::{ExecutorConfig, Place, UnknownPlace};
pub use device::DeviceExecutor;
pub use failure::{RunError, TaskFailure};
pub use flow::Flow;
pub use handle::{Run, RunFuture};
pub use outcome::Outcome;
pub use phases::{TaskPhases, TraceDetail};
pub use pool::{CpuPool, PoolConfig};
pub use record::{RecordError, RegionRecord, TaskRecord};
pub use run::RunOptions;
pub use stall::{Stall, StallCause};
pub use state::TaskState;
pub use trace::{RunTrace, TaskSpan};
