//! Running graphs.
//!
//! An executor owns workers and hands them the tasks of graphs as these become ready. [`CpuPool`] has host threads;
//! [`DeviceExecutor`] also has the cores of a device, in one of three [`Place`]s. A launch gives a [`Run`], which can be
//! waited for, polled, awaited, watched and cancelled; its [`Outcome`] says what became of every task.
//!
//! Nobody schedules while nobody has to: the thread that waits for a run schedules meanwhile, and a thread in the
//! background does only if nobody waits. Workers that have nothing to do sleep, and are woken one by one as a backlog shows that
//! more of them are worth it. Book: "Task graphs".

mod driver;
mod engine;
mod failure;
mod outcome;
mod pool;
mod port;
mod run;
mod trace;
mod workers;

pub use failure::{RunError, TaskFailure};
pub use outcome::{Outcome, TaskState};
pub use pool::{CpuPool, PoolConfig};
pub use run::{Run, RunOptions};
pub use trace::{RunTrace, TaskSpan};
