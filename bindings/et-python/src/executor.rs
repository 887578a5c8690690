//! Running graphs.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use et::executor::{RunError, RunOptions, TraceDetail};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::apart;
use crate::callbacks;
use crate::card::{Card, Crew};
use crate::error::{self, Raise};
use crate::graph::{Graph, Raised};
use crate::life::Here;
use crate::memory::Buffer;
use crate::profile::Profile;
use crate::wait;

/// Runs graphs on a device. Made by `Device.executor`.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     graph, seen = et.Graph(), []
///     ...     task = graph.host(lambda: seen.append(1))
///     ...     with device.executor("streams") as executor:
///     ...         executor.launch(graph).wait()
///     ...         executor.launch(graph).wait()
///     >>> seen
///     [1, 1]
#[pyclass(frozen, module = "et")]
pub(crate) struct Executor {
    card: Arc<Card>,
    crew: Here<Arc<Crew>>,
}

impl Executor {
    pub(crate) fn new(card: &Arc<Card>, crew: Arc<Crew>) -> Self {
        Self { card: Arc::clone(card), crew: Here::new(crew) }
    }
}

#[pymethods]
impl Executor {
    /// Launches a graph, and returns at once. `deadline` ends the run so many seconds later,
    /// `trace` records when tasks run.
    #[pyo3(signature = (graph, *, deadline = None, trace = false))]
    pub(crate) fn launch(
        &self,
        py: Python<'_>,
        graph: &Graph,
        deadline: Option<f64>,
        trace: bool,
    ) -> PyResult<Run> {
        let options = options(deadline, trace)?;
        let built = graph.build()?;
        let crew = self.crew.get()?;
        let run = crew.with(py, |executor| executor.launch_with(&built, options))?;
        Ok(Run::new(run, graph.raised(), crew, &self.card))
    }

    /// Makes a flow: graphs that follow one another task by task.
    fn flow(&self, py: Python<'_>) -> PyResult<Flow> {
        let crew = self.crew.get()?;
        let flow = crew.with(py, |executor| Ok::<_, RunError>(executor.flow()))?;
        Ok(Flow {
            flow: Here::new(flow),
            crew: Here::new(Arc::clone(crew)),
            card: Arc::clone(&self.card),
        })
    }

    /// Closes it: what has not started is cancelled, what runs is stopped after a while. A Ctrl-C
    /// ends the wait for that and not the close; calling this again waits for its end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let crew = Arc::clone(self.crew.get()?);
        apart::work(py, move || crew.close())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> PyResult<String> {
        let place = self.crew.get()?.place();
        let state = place.map_or_else(|| "closed".to_owned(), |place| format!("place={place}"));
        Ok(format!("<et.Executor on {}, {state}>", self.card.locator))
    }
}

fn options(deadline: Option<f64>, trace: bool) -> PyResult<RunOptions> {
    let mut options = RunOptions::new();
    if let Some(after) = wait::timeout(deadline)? {
        options = options.deadline(after);
    }
    if trace {
        options = options.traced();
    }
    Ok(options)
}

/// Graphs that are launched one after the other, and whose tasks follow one another as if they were
/// tasks of one graph: each begins as soon as those before it have ended that use what it uses. So
/// work can be described while it runs, and depend on what has been computed.
///
/// A task that depends on one of an earlier graph that did not complete fails, until `finish` has
/// raised what went wrong. At the end of a `with` block `finish` is called.
#[pyclass(frozen, module = "et")]
pub(crate) struct Flow {
    flow: Here<et::executor::Flow>,
    crew: Here<Arc<Crew>>,
    card: Arc<Card>,
}

#[pymethods]
impl Flow {
    /// Launches a graph behind those before it, and returns at once. `deadline` ends the run so
    /// many seconds later, `trace` records when tasks run.
    #[pyo3(signature = (graph, *, deadline = None, trace = false))]
    fn launch(
        &self,
        py: Python<'_>,
        graph: &Graph,
        deadline: Option<f64>,
        trace: bool,
    ) -> PyResult<Run> {
        let options = options(deadline, trace)?;
        let (built, flow) = (graph.build()?, self.flow.get()?);
        let run = py.detach(|| flow.launch_with(&built, options)).map_err(Raise::raise)?;
        Ok(Run::new(run, graph.raised(), self.crew.get()?, &self.card))
    }

    /// Launches a graph that does nothing: it ends when all that the flow writes to an array by now
    /// is written, and fails if that did not complete. To be waited for, or awaited.
    fn settled(&self, py: Python<'_>, buffer: &Buffer) -> PyResult<Run> {
        let (slice, flow) = (buffer.slice()?.clone(), self.flow.get()?);
        let run = py.detach(|| flow.settled(slice)).map_err(Raise::raise)?;
        Ok(Run::new(run, &Raised::default(), self.crew.get()?, &self.card))
    }

    /// Waits until all that was launched has ended, for at most `timeout` seconds; later tasks
    /// depend on none of it. Raises what went wrong with the first graph that did not end well.
    #[pyo3(signature = (timeout = None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let flow = self.flow.get()?;
        let limit = wait::timeout(timeout)?;
        wait::end(py, limit, |slice| flow.finish(slice), || false)?.map_err(Raise::raise)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// What the block raised goes before what went wrong in the flow.
    #[pyo3(signature = (kind, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if kind.is_none() { self.finish(py, None) } else { Ok(()) }
    }
}

/// A launched graph. Dropping it leaves the run alone.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     graph = et.Graph()
///     ...     task = graph.host(lambda: 1 / 0, name="divide")
///     ...     run = graph.launch(device.executor("streams"))
///     ...     try:
///     ...         run.wait(timeout=60)
///     ...     except et.TaskError as error:
///     ...         print(repr(error.__cause__), run.progress)
///     ZeroDivisionError('division by zero') (1, 1)
#[pyclass(frozen, module = "et")]
pub(crate) struct Run {
    run: Here<et::executor::Run>,
    raised: Raised,
    /// Would the executor be closed, the run would end.
    crew: Here<Arc<Crew>>,
    _card: Arc<Card>,
}

impl Run {
    fn new(run: et::executor::Run, raised: &Raised, crew: &Arc<Crew>, card: &Arc<Card>) -> Self {
        Self {
            run: Here::new(run),
            raised: Arc::clone(raised),
            crew: Here::new(Arc::clone(crew)),
            _card: Arc::clone(card),
        }
    }

    /// The exception of a run, with what a host function raised as its cause.
    fn failed(&self, py: Python<'_>, failure: RunError) -> PyErr {
        let task = match &failure {
            RunError::TaskFailed { task, .. } => Some(task.index()),
            _ => None,
        };
        let error = failure.raise();
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = task.and_then(|task| raised.get(&task)) {
            error.set_cause(py, Some(cause.clone_ref(py)));
        }
        error
    }
}

#[pymethods]
impl Run {
    /// `True` if the run has ended, well or not.
    #[getter]
    fn done(&self) -> PyResult<bool> {
        Ok(self.run.get()?.is_done())
    }

    /// How many tasks have ended, and how many there are.
    #[getter]
    fn progress(&self) -> PyResult<(usize, usize)> {
        Ok(self.run.get()?.progress())
    }

    /// Seconds from the launch to the end of the last task; `None` until then.
    #[getter]
    fn elapsed(&self) -> PyResult<Option<f64>> {
        let outcome = self.run.get()?.outcome();
        Ok(outcome.map(|outcome| outcome.elapsed().as_secs_f64()))
    }

    /// Name of the place where the tasks ran; `None` until then.
    #[getter]
    fn place(&self) -> PyResult<Option<&'static str>> {
        Ok(self.run.get()?.outcome().map(|outcome| outcome.place()))
    }

    /// When each task ran, if the launch asked for that: task, worker, and seconds since the
    /// launch.
    #[getter]
    fn spans(&self) -> PyResult<Vec<(usize, u32, f64, f64)>> {
        let outcome = self.run.get()?.outcome();
        let trace = outcome.as_ref().and_then(|outcome| outcome.trace());
        let seconds = |time: Duration| time.as_secs_f64();
        let spans = trace.map(|trace| trace.spans()).unwrap_or_default().iter();
        let spans = spans
            .map(|span| (span.task.index(), span.worker, seconds(span.start), seconds(span.end)));
        Ok(spans.collect())
    }

    /// The run as Chrome trace events, which Perfetto and `et report` open: when each task ran, if
    /// the launch asked for a trace; what did not succeed, and why. `detail` is `tasks`, `phases`
    /// or `overhead`; a `profile` of the device adds the memory in use. Before the end of the run
    /// an error.
    #[pyo3(signature = (detail = "tasks", *, profile = None))]
    fn to_json(&self, py: Python<'_>, detail: &str, profile: Option<&Profile>) -> PyResult<String> {
        let detail = match detail {
            "tasks" => TraceDetail::Tasks,
            "phases" => TraceDetail::Phases,
            "overhead" => TraceDetail::Overhead,
            _ => {
                let text = format!("detail is 'tasks', 'phases' or 'overhead', not '{detail}'");
                return Err(error::raise("ArgumentError", text));
            }
        };
        let not_ended = || error::raise("Error", "the run has not ended");
        let outcome = self.run.get()?.outcome().ok_or_else(not_ended)?;
        let recorded = profile.map(Profile::recorded).transpose()?;
        let text = py.detach(|| {
            let mut text = Vec::new();
            match &recorded {
                Some(recorded) => {
                    outcome.write_chrome_json_with_memory(detail, recorded, &mut text)
                }
                None => outcome.write_chrome_json_with(detail, &mut text),
            }
            .map(|()| text)
        })?;
        Ok(String::from_utf8(text)?)
    }

    /// Writes `to_json` to a file.
    #[pyo3(signature = (path, detail = "tasks", *, profile = None))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        detail: &str,
        profile: Option<&Profile>,
    ) -> PyResult<()> {
        let text = self.to_json(py, detail, profile)?;
        Ok(py.detach(|| std::fs::write(path, text))?)
    }

    fn _repr_html_<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("et._html")?.call_method1("run", (this,))
    }

    /// Waits for the end, for at most `timeout` seconds. Raises what went wrong.
    #[pyo3(signature = (timeout = None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let run = self.run.get()?;
        let limit = wait::timeout(timeout)?;
        let outcome = wait::end(py, limit, |slice| run.wait(slice), || false)?;
        outcome.and_then(|outcome| outcome.check()).map_err(|failure| self.failed(py, failure))
    }

    /// Cancels what has not started.
    fn cancel(&self) -> PyResult<()> {
        self.run.get()?.cancel();
        Ok(())
    }

    /// Has a function called with the run when it has ended, soon if it has.
    fn add_done_callback(this: &Bound<'_, Self>, function: Py<PyAny>) -> PyResult<()> {
        let itself = this.clone().unbind();
        this.get().crew.get()?;
        this.get().run.get()?.on_done(move |_| {
            callbacks::post(move |py| callbacks::call(py, &function, (itself,)));
        });
        Ok(())
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let wait = this.py().import("et._await")?.getattr("wait")?;
        wait.call1((this,))?.call_method0("__await__")
    }
}
