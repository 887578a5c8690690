//! Graphs of tasks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use et::graph::{Access, Comparison, GraphBuilder, Task, TaskError, TaskId, Word};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::apart;
use crate::args::Packed;
use crate::card::Card;
use crate::device::Device;
use crate::dtype::{self, DType, Kind, Shape};
use crate::error::{self, Raise};
use crate::executor::{Executor, Run};
use crate::host_data::HostData;
use crate::kernel::Kernel;
use crate::life::Here;
use crate::memory::Buffer;

/// What host functions raised, by the number of their task.
pub(crate) type Raised = Arc<Mutex<HashMap<usize, PyErr>>>;

/// A graph of tasks. What each reads and writes gives the order: a task waits for the earlier ones
/// with whose use of memory its own conflicts.
///
/// `add` and its like describe tasks; the first launch fixes the graph, which can be launched again
/// and again then.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     buffer, result = device.empty(4, "u1"), et.HostData(bytes(4))
///     ...     graph = et.Graph()
///     ...     source = et.HostData(b"abcd")
///     ...     tasks = [graph.copy_in(source, buffer), graph.copy_out(buffer, result)]
///     ...     run = graph.run()
///     >>> result.to_bytes(), tasks, graph.edges
///     (b'abcd', [0, 1], 1)
#[pyclass(frozen, module = "et")]
pub(crate) struct Graph {
    state: Here<Mutex<State>>,
    raised: Raised,
}

#[derive(Default)]
struct State {
    builder: Option<GraphBuilder>,
    graph: Option<Arc<et::graph::Graph>>,
    /// That of the first kernel or buffer.
    card: Option<Arc<Card>>,
    functions: HashMap<usize, et::graph::FunctionId>,
    /// Keeps the kernels of `functions`, so that no other comes to be at their addresses.
    kernels: Vec<Py<Kernel>>,
}

impl State {
    fn builder(&mut self) -> PyResult<&mut GraphBuilder> {
        let built = || error::raise("GraphError", "a graph that was launched takes no more tasks");
        self.builder.as_mut().ok_or_else(built)
    }

    fn note(&mut self, card: &Arc<Card>) {
        self.card.get_or_insert_with(|| Arc::clone(card));
    }
}

fn declare(task: Task, buffers: &[PyRef<'_, Buffer>], access: Access) -> PyResult<Task> {
    buffers.iter().try_fold(task, |task, buffer| {
        let slice = if access == Access::Read { buffer.slice()? } else { buffer.place()? };
        Ok(match access {
            Access::Read => task.reads(slice),
            Access::Write => task.writes(slice),
            Access::Update => task.updates(slice),
        })
    })
}

/// A buffer of one element, an operator and a value.
type Condition<'py> = (PyRef<'py, Buffer>, String, Bound<'py, PyAny>);

fn only_if(task: Task, condition: Option<&Condition<'_>>) -> PyResult<Task> {
    let Some((buffer, operator, value)) = condition else { return Ok(task) };
    let wrong = |what: String| error::raise("ArgumentError", what);
    let Some(comparison) = Comparison::named(operator) else {
        return Err(wrong(format!("{operator:?} is no comparison")));
    };
    let slice = buffer.slice()?;
    let ty = buffer.dtype_or_bytes();
    if slice.len_bytes() != ty.size as u64 {
        return Err(wrong("a condition looks at one element".into()));
    }
    Ok(match ty {
        DType { kind: Kind::Uint, size: 4 } => task.only_if(
            &Word::on_device(slice, 0).map_err(Raise::raise)?,
            comparison,
            value.extract::<u32>()?,
        ),
        DType { kind: Kind::Uint, size: 8 } => task.only_if(
            &Word::on_device(slice, 0).map_err(Raise::raise)?,
            comparison,
            value.extract::<u64>()?,
        ),
        DType { kind: Kind::Int, size: 4 } => task.only_if(
            &Word::on_device(slice, 0).map_err(Raise::raise)?,
            comparison,
            value.extract::<i32>()?,
        ),
        DType { kind: Kind::Int, size: 8 } => task.only_if(
            &Word::on_device(slice, 0).map_err(Raise::raise)?,
            comparison,
            value.extract::<i64>()?,
        ),
        other => {
            let name = other.name();
            return Err(wrong(format!(
                "a condition looks at int32, uint32, int64 or uint64, not {name}"
            )));
        }
    })
}

fn number(index: usize) -> PyResult<TaskId> {
    let index = u32::try_from(index);
    index.map(TaskId::from_index).map_err(|_| error::raise("GraphError", "no such task"))
}

impl Graph {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        Ok(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Fixes the graph, the first time.
    pub(crate) fn build(&self) -> PyResult<Arc<et::graph::Graph>> {
        let mut state = self.lock()?;
        if let Some(graph) = &state.graph {
            return Ok(Arc::clone(graph));
        }
        let builder = std::mem::take(state.builder()?);
        state.builder = None;
        let graph = Arc::new(builder.build().map_err(Raise::raise)?);
        state.graph = Some(Arc::clone(&graph));
        Ok(graph)
    }

    pub(crate) fn raised(&self) -> &Raised {
        &self.raised
    }

    fn finish(task: Task, name: Option<String>, after: Vec<usize>) -> PyResult<Task> {
        let task = after
            .into_iter()
            .try_fold(task, |task, index| Ok::<_, PyErr>(task.after(number(index)?)))?;
        Ok(match name {
            Some(name) => task.name(name),
            None => task,
        })
    }
}

#[pymethods]
impl Graph {
    #[new]
    fn new() -> Self {
        let state = State { builder: Some(GraphBuilder::new()), ..State::default() };
        Self { state: Here::new(Mutex::new(state)), raised: Arc::default() }
    }

    /// Adds a task that runs a kernel, and returns its number. The kernel's signature says which
    /// arguments it reads and writes; without one it is taken to do both with all. `shires` is as
    /// for `Kernel.launch`, where tasks become launches. `parts` splits the task into so many
    /// parts, which run on different harts where tasks are not launches.
    ///
    /// `only_if=(flag, "!=", 0)` has the task run only if the one element of `flag`, a 32-bit or
    /// 64-bit integer, compares so when all before the task has ended. If not, it is skipped, and
    /// those behind it go on.
    #[expect(clippy::too_many_arguments, reason = "most are keywords with defaults")]
    #[pyo3(
        signature = (
            kernel, *args, name = None, after = vec![], shires = None, parts = 1, only_if = None
        ),
        text_signature =
            "($self, kernel, *args, name=None, after=(), shires=None, parts=1, only_if=None)"
    )]
    fn add(
        &self,
        kernel: &Bound<'_, Kernel>,
        args: &Bound<'_, PyTuple>,
        name: Option<String>,
        after: Vec<usize>,
        shires: Option<&Bound<'_, PyAny>>,
        parts: u32,
        only_if: Option<Condition<'_>>,
    ) -> PyResult<usize> {
        let own = kernel.get();
        let Packed { args, memory } = own.pack(args)?;
        let mask = own.mask(shires)?;
        let loaded = own.get()?;
        let mut state = self.lock()?;
        state.note(&own.card);
        let address = kernel.as_ptr().addr();
        let function = match state.functions.get(&address) {
            Some(function) => *function,
            None => {
                let function = state.builder()?.kernel(loaded);
                state.functions.insert(address, function);
                state.kernels.push(kernel.clone().unbind());
                function
            }
        };
        let mut task = Task::new(function).args(args);
        for (slice, access) in memory {
            task = match access {
                Access::Read => task.reads(&slice),
                Access::Write => task.writes(&slice),
                Access::Update => task.updates(&slice),
            };
        }
        if let Some(mask) = mask {
            task = task.shires(mask);
        }
        if parts != 1 {
            task = task.parts(parts);
        }
        let task = self::only_if(task, only_if.as_ref())?;
        let id = state.builder()?.add(Self::finish(task, name, after)?).map_err(Raise::raise)?;
        Ok(id.index())
    }

    /// Adds a task that calls a function without arguments on a thread of the host, and returns its
    /// number. `reads`, `writes` and `updates` are buffers that order it; `only_if` is as for
    /// `add`.
    #[pyo3(
        signature = (
            function, *, reads = vec![], writes = vec![], updates = vec![], name = None,
            after = vec![], only_if = None
        ),
        text_signature = "($self, function, *, reads=(), writes=(), updates=(), name=None, after=(), \
                          only_if=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn host(
        &self,
        function: Py<PyAny>,
        reads: Vec<PyRef<'_, Buffer>>,
        writes: Vec<PyRef<'_, Buffer>>,
        updates: Vec<PyRef<'_, Buffer>>,
        name: Option<String>,
        after: Vec<usize>,
        only_if: Option<Condition<'_>>,
    ) -> PyResult<usize> {
        let raised = Arc::clone(&self.raised);
        let call = move |context: &et::graph::TaskContext<'_>| {
            let called =
                Python::try_attach(|py| match apart::host_function(|| function.call0(py)) {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        let text = error.to_string();
                        let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
                        raised.insert(context.task().index(), error);
                        Err(TaskError::from(text))
                    }
                });
            called.unwrap_or_else(|| Err(TaskError::from("the interpreter has ended")))
        };
        let mut state = self.lock()?;
        let tested = only_if.as_ref().map(|(buffer, ..)| buffer);
        for buffer in reads.iter().chain(&writes).chain(&updates).chain(tested) {
            state.note(&buffer.card);
        }
        let function = state.builder()?.function(call);
        let task = declare(Task::new(function), &reads, Access::Read)?;
        let task = declare(task, &writes, Access::Write)?;
        let task = declare(task, &updates, Access::Update)?;
        let task = self::only_if(task, only_if.as_ref())?;
        let id = state.builder()?.add(Self::finish(task, name, after)?).map_err(Raise::raise)?;
        Ok(id.index())
    }

    /// Declares an array that the graph has for itself, for tasks to leave data for later ones; it
    /// shares memory with other such arrays if the order of the tasks allows. Only tasks use it,
    /// and they read only what earlier ones write.
    #[pyo3(signature = (device, shape, dtype = None))]
    fn transient(
        &self,
        py: Python<'_>,
        device: &Device,
        shape: Shape,
        dtype: Option<DType>,
    ) -> PyResult<Buffer> {
        let dtype = dtype.or_else(|| DType::of_name("f4"));
        let len = dtype::len_bytes(&shape.0, dtype.unwrap_or(DType::U8))? as u64;
        let card = device.card();
        let mut state = self.lock()?;
        state.note(card);
        let builder = state.builder()?;
        let made = card.with(py, |device| builder.transient(device, len, 64))?;
        Ok(Buffer::of_slice(card, (&made).into(), shape.0, dtype))
    }

    /// Adds a copy of host data to device memory.
    fn copy_in(&self, source: &HostData, target: &Buffer) -> PyResult<usize> {
        let mut state = self.lock()?;
        state.note(&target.card);
        let id = state.builder()?.copy_in(&source.data, target.place()?);
        Ok(id.map_err(Raise::raise)?.index())
    }

    /// Adds a copy of device memory to host data.
    fn copy_out(&self, source: &Buffer, target: &HostData) -> PyResult<usize> {
        let mut state = self.lock()?;
        state.note(&source.card);
        let id = state.builder()?.copy_out(source.slice()?, &target.data);
        Ok(id.map_err(Raise::raise)?.index())
    }

    /// Runs one task after another, whatever they declare. With `retain` the graph's own arrays
    /// that the first one writes live until the second has ended, although it does not declare
    /// them.
    #[pyo3(signature = (before, after, *, retain = false))]
    fn edge(&self, before: usize, after: usize, retain: bool) -> PyResult<()> {
        let (before, after) = (number(before)?, number(after)?);
        let mut state = self.lock()?;
        let builder = state.builder()?;
        let edge = match retain {
            true => builder.edge_and_retain(before, after),
            false => builder.edge(before, after),
        };
        edge.map_err(Raise::raise)
    }

    fn __len__(&self) -> PyResult<usize> {
        let state = self.lock()?;
        Ok(match (&state.graph, &state.builder) {
            (Some(graph), _) => graph.len(),
            (None, Some(builder)) => builder.len(),
            (None, None) => 0,
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        let tasks = self.__len__()?;
        let state = self.lock()?;
        let place = state.card.as_ref().map(|card| format!(" on {}", card.locator));
        let plural = if tasks == 1 { "" } else { "s" };
        let fixed = if state.builder.is_none() { ", fixed" } else { "" };
        Ok(format!("<et.Graph of {tasks} task{plural}{}{fixed}>", place.unwrap_or_default()))
    }

    /// Number of edges; fixes the graph.
    #[getter]
    fn edges(&self) -> PyResult<usize> {
        Ok(self.build()?.edges())
    }

    /// Bytes of device memory that the graph's own arrays take together; fixes the graph.
    #[getter]
    fn transient_nbytes(&self) -> PyResult<u64> {
        Ok(self.build()?.transient_memory().peak_bytes)
    }

    /// The graph in the language of Graphviz; fixes it.
    fn to_dot(&self) -> PyResult<String> {
        Ok(self.build()?.to_dot())
    }

    /// Launches the graph, on the executor or on the device's own, and returns at once.
    #[pyo3(signature = (executor = None, *, deadline = None, trace = false))]
    fn launch(
        &self,
        py: Python<'_>,
        executor: Option<&Executor>,
        deadline: Option<f64>,
        trace: bool,
    ) -> PyResult<Run> {
        if let Some(executor) = executor {
            return executor.launch(py, self, deadline, trace);
        }
        let card = self.lock()?.card.clone();
        let none = || error::raise("GraphError", "a graph without device memory needs an executor");
        let card = card.ok_or_else(none)?;
        let crew = card.default_executor(py)?;
        Executor::new(&card, crew).launch(py, self, deadline, trace)
    }

    /// Launches the graph, waits for its end, and raises what went wrong.
    #[pyo3(signature = (executor = None, *, timeout = None))]
    fn run(
        &self,
        py: Python<'_>,
        executor: Option<&Executor>,
        timeout: Option<f64>,
    ) -> PyResult<Run> {
        let run = self.launch(py, executor, None, false)?;
        run.wait(py, timeout)?;
        Ok(run)
    }
}
