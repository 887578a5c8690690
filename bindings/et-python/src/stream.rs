//! Queues of operations.

use std::sync::Arc;
use std::time::Duration;

use et::AnyHal;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::card::Card;
use crate::device::Device;
use crate::error::{self, Raise};
use crate::event::Event;
use crate::kernel::Kernel;
use crate::life::Here;
use crate::wait;

/// An in-order queue of operations on a device; those of different streams may overlap.
#[pyclass(frozen, module = "et")]
pub(crate) struct Stream {
    card: Arc<Card>,
    stream: Here<et::Stream<AnyHal>>,
}

impl Stream {
    pub(crate) fn new(card: &Arc<Card>, stream: et::Stream<AnyHal>) -> Self {
        Self { card: Arc::clone(card), stream: Here::new(stream) }
    }

    pub(crate) fn get(&self) -> PyResult<&et::Stream<AnyHal>> {
        self.stream.get()
    }
}

#[pymethods]
impl Stream {
    /// Number of the stream.
    #[getter]
    fn id(&self) -> PyResult<u32> {
        Ok(self.get()?.id())
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device::of(&self.card)
    }

    /// `True` if all operations have ended.
    #[getter]
    fn idle(&self) -> PyResult<bool> {
        Ok(self.get()?.is_idle())
    }

    /// Launches a kernel on this stream, as `Kernel.launch`.
    #[pyo3(signature = (kernel, *args, **options))]
    fn launch(
        this: &Bound<'_, Self>,
        kernel: &Bound<'_, Kernel>,
        args: &Bound<'_, PyTuple>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Event>> {
        let all = options.map_or_else(|| Ok(PyDict::new(this.py())), |given| given.copy())?;
        all.set_item("stream", this)?;
        let event = kernel.call_method("launch", args, Some(&all))?;
        Ok(event.cast_into::<Event>()?.unbind())
    }

    /// An event that is done when everything before it is.
    fn record(&self) -> PyResult<Event> {
        let event = self.get()?.barrier().map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }

    /// Has later operations wait for an event of this or another device. If what it stands for
    /// fails, the stream goes on.
    fn wait_event(&self, event: &Event) -> PyResult<()> {
        self.get()?.wait_for(event.get()?);
        Ok(())
    }

    /// Waits until all operations have ended, failed ones included.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let stream = self.get()?;
        let limit = wait::timeout(timeout)?;
        let ended = wait::wait(py, limit, |slice| match stream.synchronize(slice) {
            Err(et::Error::Timeout { .. }) => None,
            ended => Some(ended),
        })?;
        let late = || error::raise("TimeoutError", "the stream did not become idle in time");
        ended.ok_or_else(late)?.map_err(Raise::raise)
    }

    /// Aborts the operations of this stream, and waits until they have ended.
    #[pyo3(signature = (timeout = Some(10.0)), text_signature = "($self, timeout=10.0)")]
    fn abort(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let stream = self.get()?;
        match py.detach(|| stream.abort(Duration::ZERO)) {
            Ok(()) => Ok(()),
            Err(et::Error::Timeout { .. }) => self.synchronize(py, timeout),
            Err(error) => Err(error.raise()),
        }
    }

    /// Takes what went wrong without anyone hearing of it, as texts.
    fn take_errors(&self) -> PyResult<Vec<String>> {
        let list = self.get()?.take_errors();
        let mut texts: Vec<_> = list.errors.iter().map(|error| error::message(error)).collect();
        if list.dropped != 0 {
            texts.push(format!("and {} more", list.dropped));
        }
        Ok(texts)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<et.Stream {} on {}>", self.id()?, self.card.locator))
    }
}
