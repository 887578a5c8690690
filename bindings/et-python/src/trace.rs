//! What kernels and firmware say, for the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use et::AnyHal;
use et::trace::{FirmwareTraceConfig, KernelTraceConfig};
use pyo3::prelude::*;

use crate::card::Card;
use crate::error::{self, Raise};
use crate::life::Here;
use crate::wait;

/// Memory that kernels write texts into: `Kernel.launch(..., trace=trace)`.
///
/// One launch at a time may use it, and `log` is called between two of them.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct KernelTrace {
    inner: Here<et::trace::KernelTrace<AnyHal>>,
}

impl KernelTrace {
    pub(crate) fn new(
        py: Python<'_>,
        card: &Arc<Card>,
        shires: Option<u64>,
        bytes_per_hart: u32,
        level: Option<&str>,
    ) -> PyResult<Self> {
        let level = level.map(self::level).transpose()?;
        let inner = card.with(py, |device| {
            let shires = shires.unwrap_or(device.properties().shire_mask);
            let mut config = KernelTraceConfig::new(shires);
            config.bytes_per_hart = bytes_per_hart;
            config.level = level;
            device.kernel_trace(config)
        })?;
        Ok(Self { inner: Here::new(inner) })
    }

    /// What a launch is given.
    pub(crate) fn option(&self) -> PyResult<et::kernel::UserTrace> {
        Ok(self.inner.get()?.option())
    }
}

#[pymethods]
impl KernelTrace {
    /// Takes what the last launch has traced, and hands it to the loggers that `enable_logging`
    /// serves: to `et.kernel`, each entry with hart and time, and with the level at which the
    /// kernel wrote it. Returns the number of entries.
    #[pyo3(signature = (timeout = 60.0))]
    fn log(&self, py: Python<'_>, timeout: f64) -> PyResult<usize> {
        let timeout = wait::timeout(Some(timeout))?.unwrap_or(Duration::MAX);
        let inner = self.inner.get()?;
        py.detach(|| inner.log(timeout)).map_err(Raise::raise)
    }
}

fn level(name: &str) -> PyResult<u8> {
    match name {
        "error" => Ok(1),
        "warn" => Ok(2),
        "info" => Ok(3),
        "debug" => Ok(4),
        _ => {
            let text = format!("level is \"error\", \"warn\", \"info\" or \"debug\", not {name:?}");
            Err(error::raise("ArgumentError", text))
        }
    }
}

/// A reader of what firmware says.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct FirmwareTrace {
    inner: Here<Mutex<et::trace::FirmwareTrace<AnyHal>>>,
}

impl FirmwareTrace {
    pub(crate) fn new(py: Python<'_>, card: &Arc<Card>) -> PyResult<Self> {
        let inner = card.with(py, |device| {
            let config = FirmwareTraceConfig::new(device.properties().shire_mask);
            device.configure_trace(&config)?;
            Ok::<_, et::Error>(device.firmware_trace())
        })?;
        Ok(Self { inner: Here::new(Mutex::new(inner)) })
    }
}

#[pymethods]
impl FirmwareTrace {
    /// Fetches what firmware has traced since the last call, 9 MiB, and hands it to the logger
    /// `et.firmware`. Returns the number of entries.
    #[pyo3(signature = (timeout = 60.0))]
    fn log(&self, py: Python<'_>, timeout: f64) -> PyResult<usize> {
        let timeout = wait::timeout(Some(timeout))?.unwrap_or(Duration::MAX);
        let inner = self.inner.get()?;
        py.detach(|| inner.lock().unwrap_or_else(PoisonError::into_inner).log(timeout))
            .map_err(Raise::raise)
    }
}
