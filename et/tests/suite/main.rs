//! Tests of the facade on simulated cards, in one program: each of its own would be built from the
//! whole stack anew. What needs a process to itself is beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod book;
mod copies;
mod core_dump;
mod executor;
mod failures;
mod graphs;
mod link;
mod mapped;
mod memory_check;
mod peers;
mod profile;
mod race_check;
mod random_graphs;
mod records;
mod regions;
mod transients;
mod usage;
#[cfg(feature = "vfio")]
mod vfio_user;
