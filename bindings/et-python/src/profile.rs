//! Recording what a device did.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::error;

/// A recording of what a device does in a `with` block.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     with device.profile() as profile:
///     ...         device.empty(4, "u1").fill(1).wait()
///     >>> len(profile), profile.records[0].failed
///     (1, False)
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Profile {
    card: Arc<Card>,
    recorded: Mutex<Option<(et::Profile, Option<u32>)>>,
}

/// An operation of a recording; times are seconds of the host.
#[pyclass(frozen, get_all, module = "et")]
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// What it was.
    name: &'static str,
    /// Name of the kernel, of a launch.
    kernel: Option<String>,
    /// Number of the operation.
    id: u64,
    /// Number of its stream.
    stream: u32,
    /// When it was called.
    queued: f64,
    /// When it was sent.
    sent: f64,
    /// When its end was seen.
    completed: f64,
    /// Cycles of the device that it took, if it says.
    cycles: Option<u64>,
    /// It failed.
    failed: bool,
}

#[pymethods]
impl Record {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

impl Profile {
    pub(crate) fn new(card: &Arc<Card>) -> Self {
        Self { card: Arc::clone(card), recorded: Mutex::new(None) }
    }

    /// What was recorded, for as long as it takes to write it.
    pub(crate) fn recorded(&self) -> PyResult<et::Profile> {
        self.with(|profile, _| profile.clone())
    }

    fn with<R>(&self, with: impl FnOnce(&et::Profile, Option<u32>) -> R) -> PyResult<R> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let (profile, frequency) = recorded.as_ref().ok_or_else(|| {
            error::raise(
                "Error",
                "nothing is recorded yet: use `with device.profile() as profile:`",
            )
        })?;
        Ok(with(profile, *frequency))
    }
}

#[pymethods]
impl Profile {
    fn __enter__(this: Py<Self>) -> PyResult<Py<Self>> {
        this.get().card.look(|device| device.profiler().start())?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let recorded = self
            .card
            .look(|device| (device.profiler().stop(), device.properties().boot_frequency_mhz))?;
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorded);
        Ok(())
    }

    /// The operations, in the order in which they ended.
    #[getter]
    fn records(&self) -> PyResult<Vec<Record>> {
        let seconds = |time: Duration| time.as_secs_f64();
        self.with(|profile, _| {
            let records = profile.records.iter().map(|record| Record {
                name: record.name,
                kernel: record.kernel.as_deref().map(str::to_owned),
                id: record.id,
                stream: record.stream,
                queued: seconds(record.timeline.queued),
                sent: seconds(record.timeline.sent),
                completed: seconds(record.timeline.completed),
                cycles: record.timeline.device.map(|times| times.execute),
                failed: record.failed,
            });
            records.collect()
        })
    }

    /// Operations for which there was no room.
    #[getter]
    fn dropped(&self) -> PyResult<u64> {
        self.with(|profile, _| profile.dropped)
    }

    /// The recording as Chrome trace events, which Perfetto opens.
    fn to_json(&self) -> PyResult<String> {
        let mut text = Vec::new();
        self.with(|profile, frequency| profile.write_chrome_json(&mut text, frequency))??;
        Ok(String::from_utf8(text)?)
    }

    /// Writes `to_json` to a file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let text = self.to_json()?;
        Ok(py.detach(|| std::fs::write(path, text))?)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|profile, _| profile.records.len())
    }

    fn _repr_html_<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("et._html")?.call_method1("profile", (this,))
    }
}
