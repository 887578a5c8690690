//! Queues of operations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use et::AnyHal;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::device::Device;
use crate::error::{self, Raise};
use crate::event::Event;
use crate::host::HostBuffer;
use crate::kernel::Kernel;
use crate::life::Here;
use crate::mapping::Mapping;
use crate::memory::{Buffer, SMALL};
use crate::raw::Source;
use crate::trace::KernelTrace;
use crate::wait;

/// An in-order queue of operations on a device; those of different streams may overlap.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     stream, buffer = device.stream(priority="high"), device.zeros(4, "u1")
///     ...     copy = buffer.copy_from(b"abcd", stream=stream)
///     ...     fill = buffer[:2].fill(0x78, stream=stream)
///     ...     stream.synchronize(timeout=60)
///     ...     copy.done, fill.done, buffer.to_bytes()
///     (True, True, b'xxcd')
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

/// What is copied to a host buffer, and where to.
struct Output<'py> {
    buffer: PyRef<'py, Buffer>,
    offset: Option<usize>,
}

impl<'py> FromPyObject<'_, 'py> for Output<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(buffer) = given.extract() {
            return Ok(Self { buffer, offset: None });
        }
        let (buffer, offset) = given.extract()?;
        Ok(Self { buffer, offset: Some(offset) })
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
    #[pyo3(
        signature = (
            kernel, *args, shires = None, stack = None, flush_l3 = false, core_dump = None,
            trace = None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are those of Python, by name")]
    fn launch(
        &self,
        kernel: &Kernel,
        args: &Bound<'_, PyTuple>,
        shires: Option<&Bound<'_, PyAny>>,
        stack: Option<u64>,
        flush_l3: bool,
        core_dump: Option<PathBuf>,
        trace: Option<&KernelTrace>,
    ) -> PyResult<Event> {
        kernel.launch(args, shires, Some(self), stack, flush_l3, core_dump, trace)
    }

    /// Copies arrays to the device, launches a kernel, and copies what it made to a host buffer: as
    /// one operation, whose event is done when all of it is.
    ///
    /// `inputs` are pairs of an array and the buffer that it goes to; they may be changed when this
    /// returns. `outputs` are buffers, which come one after the other to `into`, or pairs of a
    /// buffer and its byte offset there. The options are those of `Kernel.launch`.
    #[pyo3(
        signature = (
            kernel, *args, into, inputs = vec![], outputs = vec![], shires = None, stack = None,
            flush_l3 = false, core_dump = None
        ),
        text_signature = "($self, kernel, *args, into, inputs=(), outputs=(), shires=None, \
                          stack=None, flush_l3=False, core_dump=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "most are options by their names")]
    fn launch_staged(
        &self,
        kernel: &Kernel,
        args: &Bound<'_, PyTuple>,
        into: &Bound<'_, HostBuffer>,
        inputs: Vec<(Bound<'_, PyAny>, PyRef<'_, Buffer>)>,
        outputs: Vec<Output<'_>>,
        shires: Option<&Bound<'_, PyAny>>,
        stack: Option<u64>,
        flush_l3: bool,
        core_dump: Option<PathBuf>,
    ) -> PyResult<Event> {
        let (py, stream) = (args.py(), self.get()?);
        let launch = kernel.describe(args, kernel.mask(shires)?, stack, flush_l3, core_dump)?;
        let mut sources = Vec::with_capacity(inputs.len());
        for (source, target) in &inputs {
            let source = Source::of(source)?;
            target.check(&source)?;
            sources.push((source, target.place()?.clone()));
        }
        let inputs: Vec<_> = sources.iter().map(|(from, to)| (from.bytes(), to.clone())).collect();
        let mut parts = Vec::with_capacity(outputs.len());
        let mut end = 0_usize;
        for Output { buffer, offset } in &outputs {
            let slice = buffer.slice()?.clone();
            let offset = offset.unwrap_or(end);
            end = offset.saturating_add(usize::try_from(slice.len_bytes())?);
            parts.push((offset, slice));
        }
        if inputs.iter().map(|(from, _)| from.len()).sum::<usize>() > SMALL {
            Buffer::settle(py, stream, None)?;
        }
        HostBuffer::receive(into, &self.card, |into| {
            stream.launch_staged(&inputs, &launch, &parts, into)
        })
    }

    /// Copies an array to one of another device, without waiting: when the earlier operations of
    /// this stream and of the other device's, `peer`, have ended. The data goes through the host in
    /// pieces. The event is the other device's.
    #[pyo3(signature = (source, target, *, peer = None))]
    fn copy_to_peer(
        &self,
        py: Python<'_>,
        source: &Buffer,
        target: &Buffer,
        peer: Option<&Self>,
    ) -> PyResult<Event> {
        let (stream, peer) = (self.get()?, target.stream(peer)?);
        let (from, to) = (source.slice()?, target.place()?);
        let event = py.detach(|| stream.copy_to_peer(from, &peer, to)).map_err(Raise::raise)?;
        Ok(Event::new(&target.card, event))
    }

    /// Maps an array for the host, when the earlier operations have ended.
    ///
    /// `access` is what the host does with it: "read", "write" or "update". For "write" nothing is
    /// fetched, so all of it should be written. An array that is written has one mapping at a
    /// time; kernels and copies are not kept from it.
    #[pyo3(
        signature = (buffer, access = "update", *, timeout = None),
        text_signature = "($self, buffer, access='update', *, timeout=None)"
    )]
    fn map(
        &self,
        py: Python<'_>,
        buffer: &Buffer,
        access: &str,
        timeout: Option<f64>,
    ) -> PyResult<Mapping> {
        Mapping::map(py, self.get()?, buffer, access, timeout)
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
        let ended = wait::end(py, limit, |slice| stream.synchronize(slice), || false)?;
        ended.map_err(Raise::raise)
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
