#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;

mod access;
mod addr;
mod dma;
mod error;
mod hal;
mod identity;
#[cfg(feature = "alloc")]
mod import;
mod mailbox;
mod mmio;
mod reset;
#[cfg(feature = "alloc")]
mod watch;

pub use access::AccessError;
pub use addr::{Bar, BarOffset, BusAddr, DeviceAddr};
pub use dma::{DeviceAccess, Dma, DmaBuffer, DmaLimits, OutOfRange};
pub use error::{Error, ErrorKind, ErrorType, LossReason, Resource};
pub use hal::Hal;
pub use identity::{Identity, PciIds, Sharing};
#[cfg(feature = "alloc")]
pub use import::{Bounce, Import, ImportError, Pages, StableDeref, Word};
pub use mailbox::{
    Doorbell, Endpoint, Mailbox, MailboxLayout, Pop, Push, QueueId, RingSet, Ticket, Wake,
};
pub use mmio::{AccessPath, Mmio, Width, Widths};
pub use reset::{Generation, Loss, Reset, ResetScope, ResetState};
#[cfg(feature = "alloc")]
pub use watch::{MemoryWatch, WatchedBuffer};
