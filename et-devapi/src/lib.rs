#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod dir;
pub mod discovery;
pub mod handshake;
pub mod mailbox;
pub mod msg;
pub mod options;
pub mod pci;
pub mod ring;
mod sync;
pub mod trace;
