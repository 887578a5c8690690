//! Task graphs: what runs after what, and with what.
//!
//! A graph is described to a [`GraphBuilder`]: tasks that run kernels or host functions, copies,
//! the regions of memory that each of them reads and writes, and edges where that does not say
//! enough. The builder derives the order that the regions demand, refuses what cannot be right with
//! a [`GraphError`], and makes an immutable [`Graph`], to be launched any number of times, with
//! other arguments, buffers and data by a [`Patch`].
//!
//! There are no fixed limits: indices are 32 bits wide, and a million tasks are not many.
//!
//! # Examples
//! Two tasks that each fill half of an array, and one that uses all of it:
//! ```
//! use et_runtime::graph::{GraphBuilder, Resource, Task};
//!
//! let mut builder = GraphBuilder::new();
//! let work = builder.function(|context| {
//!     println!("{} of {:?}", context.task(), context.args());
//!     Ok(())
//! });
//! let array = Resource::new(1000);
//! let low = builder.add(Task::new(work).u64(0).writes(array.range(0..500)))?;
//! let high = builder.add(Task::new(work).u64(500).writes(array.range(500..1000)))?;
//! let sum = builder.add(Task::new(work).name("sum").reads(&array))?;
//!
//! let graph = builder.build()?;
//! assert_eq!(graph.roots().collect::<Vec<_>>(), [low, high]);
//! assert_eq!(graph.predecessors(sum), [low, high]);
//! assert_eq!(
//!     graph.to_string(),
//!     "3 tasks, 2 edges, 2 ready at the start\n\
//!      task 0: host → 2\n\
//!      task 1: host → 2\n\
//!      task 2 \"sum\": host"
//! );
//! # Ok::<(), et_runtime::graph::GraphError>(())
//! ```
//! With device memory, [`Task::input`] and the like pass a buffer and declare its use in one:
//! `Task::new(kernel).input(&x).output(&y).u64(1000)`.

mod builder;
mod check;
mod condition;
mod copies;
mod core_set;
mod error;
mod export;
mod finish;
mod footprint;
mod function;
mod hazard;
mod history;
mod id;
mod intervals;
mod order;
mod parts;
mod patch;
mod plan;
mod query;
mod record;
mod region;
mod shape;
mod span;
mod task;
mod transient;

pub use crate::memory::Access;
pub use builder::GraphBuilder;
pub use condition::{Comparison, Word, WordType};
pub use core_set::CoreSet;
pub use error::{CyclePath, GraphError};
pub use function::{TaskContext, TaskError};
pub use id::{FunctionId, TaskId};
pub use patch::Patch;
pub use region::{HostData, Region, Resource};
pub use shape::{Graph, TransientMemory};
pub use task::Task;
pub use transient::TransientBuffer;

pub(crate) use condition::{Test, WordPlace};
pub(crate) use history::History;
pub(crate) use parts::PartOf;
pub(crate) use record::{Recorded, RecordedRegion};
pub(crate) use shape::Work;
