#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod about;
mod address;
mod advice;
mod bar;
mod barrier;
mod config_space;
mod dma;
mod error;
mod hal;
mod import;
mod iova;
mod irq;
mod memory;
mod notifier;
mod options;
mod owed;
mod owner;
mod pool;
mod reset;
mod shared;
mod signal;
mod slab;
mod sync;
mod sys;
mod transport;
mod window;

#[cfg(test)]
mod tests;

pub use address::{AddressError, HugePages, KEYS, Mode, USER_KEYS, UserAddress, VfioAddress};
pub use dma::{VfioBuffer, VfioDma};
pub use error::{Call, LostBecause, VfioError};
pub use et_vfio_host::Bdf;
pub use hal::{Counters, Facts, InterruptTest, VfioHal, VfioMailbox};
pub use import::Imported;
pub use options::{ResetAtOpen, VfioOptions};
pub use owner::Holder;
pub use reset::VfioReset;
pub use signal::VfioSignal;
pub use window::VfioWindow;
