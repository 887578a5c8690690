#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bus;
mod client;
mod device;
mod error;
mod event;
mod frame;
mod home;
mod limits;
mod link;
mod memory;
mod region;
mod server;
mod session;
mod stop;
pub mod wire;

pub use bus::BusMaster;
pub use client::{Client, IrqSet};
pub use device::{
    Access, Area, Device, DeviceInfo, DmaWindow, IoFd, IoFdKind, IrqAction, IrqData, IrqInfo,
    IrqRequest, Peer, Region, RegionMemory,
};
pub use error::{BusError, ClientError, Closed, ServerError};
pub use event::PeerEvent;
pub use home::Home;
pub use limits::Limits;
pub use memory::{HostMemory, NoHostMemory};
pub use rustix::io::Errno;
pub use server::{Ended, Server, StopHandle};
pub use wire::Command;
