//! The native part of the Python package `et`: handles over the same runtime that Rust programs
//! use. What needs no speed is in Python, in `python/et`.

mod apart;
mod args;
mod callbacks;
mod card;
mod cc;
mod device;
mod dlpack;
mod dtype;
mod error;
mod event;
mod executor;
mod failure;
mod graph;
mod host;
mod host_data;
mod kernel;
mod life;
mod log;
mod management;
mod mapping;
mod memory;
mod module;
mod profile;
mod properties;
mod raw;
mod recovery;
mod sensors;
mod signature;
mod stream;
mod trace;
mod wait;

/// The native module.
#[pyo3::pymodule(name = "_et", gil_used = true)]
mod native {
    #[pymodule_export]
    use crate::{
        cc::{compiler, run_compiler},
        device::{Device, devices, open, open_management},
        event::Event,
        executor::{Executor, Flow, Run},
        graph::Graph,
        host::HostBuffer,
        host_data::HostData,
        kernel::{Grid, Kernel},
        life::end,
        log::log,
        management::Management,
        mapping::Mapping,
        memory::Buffer,
        module::{Builtin, Builtins, Module},
        profile::{Profile, Record},
        properties::{
            Activity, CopyPaths, DeviceInfo, Holder, Identity, MemoryStats, PeerPath, Properties,
        },
        sensors::{
            AsicVoltages, CacheConfig, CardEvent, ErrorCounts, Frequencies, ManagementCounters,
            MemoryRate, MinionErrors, Residency, Statistic, Temperatures,
        },
        signature::Parameter,
        stream::Stream,
        trace::{FirmwareTrace, KernelTrace},
    };
    use pyo3::prelude::*;

    #[pymodule_init]
    fn start(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::life::watch_forks()?;
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
