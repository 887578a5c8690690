//! Checks of the kernel's VFIO, to be run in a guest.
//!
//! [`Function`] is what a driver needs of a PCI function. [`Kernel`] gives it by the kernel's own
//! calls and nothing of ours, so that what fails below our backend can be told from what fails in
//! it.

mod checks;
mod config;
mod event;
mod function;
mod host;
mod kernel;
mod mapping;
mod memory;
mod sys;
mod sysfs;

pub use checks::Checks;
pub use config::{BUS_MASTER, set_bus_master};
pub use event::Event;
pub use function::{Access, Function, Region, index};
pub use host::ask;
pub use kernel::{Kernel, Mode};
pub use mapping::Mapping;
pub use memory::{Memory, Pages};
pub use sysfs::Sysfs;
