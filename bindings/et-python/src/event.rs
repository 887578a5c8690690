//! The ends of operations.

use std::sync::Arc;
use std::time::Duration;

use et::EventState;
use pyo3::prelude::*;

use crate::callbacks;
use crate::card::Card;
use crate::error::{self, Raise};
use crate::host::HostBuffer;
use crate::life::Here;
use crate::wait;

/// The end of an operation. Dropping it cancels nothing.
///
/// It can be waited for by threads (`wait`), awaited under asyncio and trio (`await event`), and
/// told whom to call (`add_done_callback`).
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     event = device.empty(4, "u1").fill(1)
///     ...     event.wait(timeout=60)
///     ...     event.done, event.exception()
///     (True, None)
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Event {
    card: Arc<Card>,
    event: Here<et::Event>,
    /// What comes back with the end.
    host: Option<Py<HostBuffer>>,
}

impl Event {
    pub(crate) fn new(card: &Arc<Card>, event: et::Event) -> Self {
        Self { card: Arc::clone(card), event: Here::new(event), host: None }
    }

    /// The event of a copy that uses a host buffer.
    pub(crate) fn of_host(card: &Arc<Card>, event: et::Event, host: Py<HostBuffer>) -> Self {
        Self { host: Some(host), ..Self::new(card, event) }
    }

    pub(crate) fn get(&self) -> PyResult<&et::Event> {
        self.event.get()
    }

    /// Takes what comes back with the end.
    fn settle(&self) -> PyResult<()> {
        self.host.as_ref().map_or(Ok(()), |host| host.get().settle())
    }

    /// Waits for the end; returns what the operation has come to, and raises what else keeps it
    /// from being known.
    fn end(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<et::Result<()>> {
        let event = self.get()?;
        let limit = wait::timeout(timeout)?;
        // A kernel may have failed with a time-out of its own.
        let outcome = wait::end(py, limit, |slice| event.wait(slice), || event.is_done())?;
        self.settle()?;
        Ok(outcome.map(drop))
    }

    fn name(state: EventState) -> &'static str {
        match state {
            EventState::Queued => "queued",
            EventState::Executed => "executed",
            EventState::Complete => "complete",
            EventState::Failed => "failed",
            // Any other that there may be once lies between being sent and the end.
            _ => "ready",
        }
    }
}

#[pymethods]
impl Event {
    /// Number of the operation.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.get()?.id())
    }

    /// `True` if the operation has ended, well or not.
    #[getter]
    fn done(&self) -> PyResult<bool> {
        Ok(self.get()?.is_done())
    }

    /// How far the operation is: "queued" while it waits for others or for room, "ready" once the
    /// device has been sent it, "executed" while the report of a kernel that failed is fetched,
    /// "complete" or "failed". It only goes forward.
    #[getter]
    fn state(&self) -> PyResult<&'static str> {
        Ok(Self::name(self.get()?.state()))
    }

    /// Seconds of the device's clock on the host at which the operation was queued, sent and
    /// completed; `None` until then.
    #[getter]
    fn times(&self) -> PyResult<Option<(f64, f64, f64)>> {
        let Some(Ok(times)) = self.get()?.outcome() else { return Ok(None) };
        let seconds = Duration::as_secs_f64;
        Ok(Some((seconds(&times.queued), seconds(&times.sent), seconds(&times.completed))))
    }

    /// Waits for the end, for at most `timeout` seconds. Raises what the operation failed with.
    #[pyo3(signature = (timeout = None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.end(py, timeout)?.map_err(Raise::raise)
    }

    /// What the operation failed with, `None` if it went well; waits as `wait`.
    #[pyo3(signature = (timeout = None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let failure = self.end(py, timeout)?.err();
        Ok(failure.map(|failure| failure.raise().into_value(py).into_bound(py).into_any()))
    }

    /// Has a function called with the event when the operation has ended, soon if it has. A thread
    /// of its own calls all such functions, one after the other.
    fn add_done_callback(this: &Bound<'_, Self>, function: Py<PyAny>) -> PyResult<()> {
        let itself = this.clone().unbind();
        this.get().get()?.on_done(move |_| {
            callbacks::post(move |py| callbacks::call(py, &function, (itself,)));
        });
        Ok(())
    }

    /// Has a function called with the event and its state when the operation is in `state` or a
    /// later one, soon if it is; once, by the thread that calls those of `add_done_callback`.
    fn add_state_callback(
        this: &Bound<'_, Self>,
        state: &str,
        function: Py<PyAny>,
    ) -> PyResult<()> {
        let all = EventState::ALL;
        let Some(known) = all.into_iter().find(|known| Self::name(*known) == state) else {
            let names = all.map(|known| format!("{:?}", Self::name(known))).join(", ");
            let text = format!("the states are {names}, not {state:?}");
            return Err(error::raise("ArgumentError", text));
        };
        let itself = this.clone().unbind();
        this.get().get()?.on_state(known, move |state| {
            let state = Self::name(state);
            callbacks::post(move |py| callbacks::call(py, &function, (itself, state)));
        });
        Ok(())
    }

    /// Aborts the operation, and waits until it has ended.
    #[pyo3(signature = (timeout = Some(10.0)), text_signature = "($self, timeout=10.0)")]
    fn abort(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let event = self.get()?;
        let limit = wait::timeout(timeout)?;
        self.card.look(|device| device.request_abort(event))?.map_err(Raise::raise)?;
        let (Ok(_) | Err(_)) = wait::end(py, limit, |slice| event.wait(slice), || event.is_done())?;
        Ok(())
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let wait = this.py().import("et._await")?.getattr("wait")?;
        wait.call1((this,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> PyResult<String> {
        let state = if self.done()? { "done" } else { "pending" };
        Ok(format!("<et.Event {} {state}>", self.id()?))
    }
}
