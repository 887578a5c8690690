#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod advice;
mod bdf;
mod bind;
mod checks;
mod error;
mod facts;
mod finding;
mod holder;
mod host;
mod iommu;
mod kernel;
mod node;
mod owner;
mod pci;
mod preflight;
mod state;
mod usage;

pub use advice::{memlock_limits_d, memlock_systemd, udev_rules};
pub use bdf::Bdf;
pub use bind::{BindOptions, Change, Plan, Step};
pub use error::Error;
pub use facts::{Capabilities, Facts};
pub use finding::{Check, Finding, Verdict};
pub use holder::{Holder, Holders};
pub use host::Host;
pub use iommu::{Group, Member};
pub use kernel::{FileKernel, Kernel};
pub use node::Mode;
pub use owner::Owner;
pub use pci::{Config, Function, PciBar};
pub use preflight::{Needs, Preflight};
