//! Bytes on the host that copies of graphs read and write.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::dtype::{self, DType};
use crate::error;
use crate::raw::Source;

/// An array on the host that copies of graphs read and write.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct HostData {
    pub(crate) data: et::graph::HostData,
    dtype: DType,
    shape: Vec<usize>,
}

#[pymethods]
impl HostData {
    /// Copies an array.
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let source = Source::of(source)?;
        Ok(Self {
            data: et::graph::HostData::new(source.bytes().to_vec()),
            dtype: source.dtype()?,
            shape: source.shape().to_vec(),
        })
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.data.len()
    }

    /// Replaces the elements. Waits for a copy of a graph that uses them.
    fn write(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(source)?;
        let bytes = source.bytes();
        if bytes.len() != self.data.len() {
            let text = format!("{} bytes for {}", bytes.len(), self.data.len());
            return Err(error::raise("ArgumentError", text));
        }
        py.detach(|| self.data.with_mut(|own| own.copy_from_slice(bytes)));
        Ok(())
    }

    /// The bytes of all elements. Waits for a copy of a graph that uses them.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.data.to_vec());
        PyBytes::new(py, &bytes)
    }

    /// A new NumPy array with the elements. Waits for a copy of a graph that uses them.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let numpy = py.import("numpy")?;
        let flat = numpy.call_method1("frombuffer", (self.to_bytes(py), self.dtype.name()))?;
        flat.call_method1("reshape", (dtype::tuple(py, &self.shape)?,))?.call_method0("copy")
    }

    fn __repr__(&self) -> String {
        format!("<et.HostData shape={:?} dtype={}>", self.shape, self.dtype.name())
    }
}
