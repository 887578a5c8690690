//! Kernel files from which several kernels come, and the kernels that the runtime brings along.

use std::sync::Arc;

use et::Launch;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::card::Card;
use crate::device::Device;
use crate::error::Raise;
use crate::event::Event;
use crate::kernel::Kernel;
use crate::life::Here;
use crate::memory::Buffer;
use crate::signature::Signature;
use crate::stream::Stream;

/// A kernel file on a device, from which kernels with different entries come.
///
/// Made by `Device.load_module`. The kernels need not be outlived by it, and launches need not wait
/// for `loaded`: they do so themselves.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Module {
    card: Arc<Card>,
    module: Here<et::Module>,
    loaded: Py<Event>,
}

impl Module {
    pub(crate) fn new(card: &Arc<Card>, module: et::Module, loaded: Py<Event>) -> Self {
        Self { card: Arc::clone(card), module: Here::new(module), loaded }
    }

    fn finish(
        &self,
        kernel: Result<et::Kernel, et::LoadError>,
        signature: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Kernel> {
        let kernel = kernel.map_err(Raise::raise)?;
        let said = signature.map(Signature::parse).transpose()?;
        let signature = Signature::of(py, &kernel, said)?;
        Ok(Kernel::new(&self.card, kernel, signature))
    }
}

#[pymethods]
impl Module {
    /// The name it was loaded with.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(self.module.get()?.name())
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device::of(&self.card)
    }

    /// Bytes of the file on the device.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.module.get()?.len_bytes())
    }

    /// The event of the copy to the device.
    #[getter]
    fn loaded(&self, py: Python<'_>) -> Py<Event> {
        self.loaded.clone_ref(py)
    }

    /// The kernel that starts at the entry the file names. `signature` is as for `Device.load`.
    #[pyo3(signature = (*, signature = None))]
    fn kernel(&self, py: Python<'_>, signature: Option<&Bound<'_, PyAny>>) -> PyResult<Kernel> {
        self.finish(self.module.get()?.kernel(), signature, py)
    }

    /// The kernel that starts at a function, which is named `module:function`.
    #[pyo3(signature = (name, *, signature = None))]
    fn function(
        &self,
        py: Python<'_>,
        name: &str,
        signature: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Kernel> {
        self.finish(self.module.get()?.function(name), signature, py)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<et.Module {} on {}>", self.name()?, self.card.locator))
    }
}

/// A kernel that the runtime brings along.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Builtin {
    /// Its name.
    name: &'static str,
    /// Its arguments in their order: type and name of each, as in C.
    arguments: Vec<&'static str>,
    /// What it does.
    about: &'static str,
}

#[pymethods]
impl Builtin {
    fn __repr__(&self) -> String {
        format!("<et.Builtin {}({})>", self.name, self.arguments.join(", "))
    }
}

/// The kernels that the runtime brings along, on a device.
///
/// The cores do the work: no data goes through the host, but it waits for kernels that run, as
/// every launch does.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Builtins {
    card: Arc<Card>,
    builtins: Here<et::kernel::Builtins>,
}

impl Builtins {
    pub(crate) fn new(card: &Arc<Card>, builtins: et::kernel::Builtins) -> Self {
        Self { card: Arc::clone(card), builtins: Here::new(builtins) }
    }

    fn start(
        &self,
        py: Python<'_>,
        launch: et::Result<Launch>,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let launch = launch.map_err(Raise::raise)?;
        let stream = self.card.stream(stream)?;
        let event = py.detach(|| stream.launch(&launch)).map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }
}

#[pymethods]
impl Builtins {
    /// Every one there is.
    #[staticmethod]
    fn list() -> Vec<Builtin> {
        let builtin = |from: et::kernel::Builtin| Builtin {
            name: from.name,
            arguments: from.arguments.to_vec(),
            about: from.about,
        };
        et::kernel::Builtins::list().map(builtin).collect()
    }

    /// A kernel by its name, to be launched with the arguments that the list says.
    fn kernel(&self, name: &str) -> PyResult<Kernel> {
        let kernel = self.builtins.get()?.kernel(name).map_err(Raise::raise)?;
        Ok(Kernel::new(&self.card, kernel, None))
    }

    /// Copies within the device, from any byte to any byte. The two must not overlap.
    #[pyo3(signature = (source, target, *, stream = None))]
    fn copy(
        &self,
        py: Python<'_>,
        source: &Buffer,
        target: &Buffer,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let launch = self.builtins.get()?.copy(source.slice()?, target.place()?);
        self.start(py, launch, stream)
    }

    /// Fills an array with a byte or a pattern of 1, 2, 4, 8 or 16 bytes, which begins at its first
    /// byte and is cut off at its end.
    #[pyo3(signature = (target, pattern, *, stream = None))]
    fn fill(
        &self,
        py: Python<'_>,
        target: &Buffer,
        pattern: Pattern,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let launch = self.builtins.get()?.fill(target.place()?, &pattern.0);
        self.start(py, launch, stream)
    }
}

/// What memory is filled with: a byte as a number, or bytes.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Pattern {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self(bytes.as_bytes().to_vec())),
            Err(_) => Ok(Self(vec![given.extract()?])),
        }
    }
}
