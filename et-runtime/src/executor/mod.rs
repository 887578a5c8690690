//! Running graphs.
//!
//! An executor owns workers and hands them the tasks of graphs as these become ready. [`CpuPool`] has host threads;
//! [`DeviceExecutor`] also has the cores of a device, in one of three [`Place`]s. A launch gives a [`Run`], which can be
//! waited for, polled, awaited, watched and cancelled; its [`Outcome`] says what became of every task.
//!
//! Nobody schedules while nobody has to: the thread that waits for a run schedules meanwhile, and a thread in the
//! background does only if nobody waits. Workers that have nothing to do sleep, and are woken one by one as a backlog shows that
//! more of them are worth it. Book: "Task graphs".

#![allow(
    clippy::cast_possible_truncation,
    reason = "tasks, workers and runs are counted in 32 bits, a graph has no more; memory that exists fits a usize"
)]

mod cores;
mod device;
mod driver;
mod engine;
mod failure;
mod image;
mod outcome;
mod pool;
mod port;
pub mod progress;
mod resident;
mod run;
mod streams;
mod trace;
mod workers;

pub use device::{DeviceExecutor, ExecutorConfig, Place, UnknownPlace};
pub use failure::{RunError, TaskFailure};
pub use outcome::{Outcome, TaskState};
pub use pool::{CpuPool, PoolConfig};
pub use run::{Run, RunOptions};
pub use trace::{RunTrace, TaskSpan};
