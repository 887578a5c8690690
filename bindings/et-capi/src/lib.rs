#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(non_camel_case_types, reason = "the names are those of the C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "what callers promise is the same everywhere; the README's section on pointers has it"
)]

mod builtins;
mod call;
mod device;
mod event;
mod executor;
mod failure;
mod finding;
mod graph;
mod host_data;
mod identity;
mod imports;
mod kernel;
mod launch;
mod lists;
mod log;
mod management;
mod mapping;
mod memory;
mod module;
mod parameters;
mod profile;
mod raw;
mod recovery;
mod sensors;
mod slots;
mod status;
mod stream;
mod table;
mod trace;

pub use builtins::*;
pub use device::*;
pub use event::*;
pub use executor::*;
pub use failure::*;
pub use finding::*;
pub use graph::*;
pub use host_data::*;
pub use identity::*;
pub use imports::*;
pub use kernel::*;
pub use launch::*;
pub use lists::*;
pub use log::*;
pub use management::*;
pub use mapping::*;
pub use memory::*;
pub use module::*;
pub use parameters::*;
pub use profile::*;
pub use recovery::*;
pub use sensors::*;
pub use status::*;
pub use stream::*;
pub use trace::*;
