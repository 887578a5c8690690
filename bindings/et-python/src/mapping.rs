//! Device memory that the host uses like its own.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use et::memory::Access;
use et::{AnyHal, MapPath};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};

use crate::dtype;
use crate::error::{self, Raise};
use crate::life::Here;
use crate::memory::Buffer;
use crate::raw::{Source, Target};
use crate::wait;

type Guard<'a> = MutexGuard<'a, Option<et::Mapping<AnyHal>>>;

/// An array in the memory of a device that the host uses like its own: `mapping[2:5]` reads rows,
/// `mapping[2:5] = array` writes them.
///
/// Made by `Stream.map`. As a context manager it is unmapped at the end; one that is forgotten
/// writes back without waiting.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What is mapped.
    array: Buffer,
    access: Access,
    /// `None` after its end. A thread that holds the interpreter never waits for it.
    mapping: Here<Mutex<Option<et::Mapping<AnyHal>>>>,
}

impl Mapping {
    /// Maps an array, behind what the stream was given before.
    pub(crate) fn map(
        py: Python<'_>,
        stream: &et::Stream<AnyHal>,
        buffer: &Buffer,
        access: &str,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        /// Longer than this no copy takes that makes progress.
        const LIMIT: Duration = Duration::from_secs(3600);
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            "update" => Access::Update,
            _ => {
                let text = format!("access is \"read\", \"write\" or \"update\", not {access:?}");
                return Err(error::raise("ArgumentError", text));
            }
        };
        let slice = if access.writes() { buffer.place()? } else { buffer.slice()? };
        let timeout = wait::timeout(timeout)?;
        Buffer::settle(py, stream, timeout)?;
        let mapped = py.detach(|| stream.map(slice.clone(), access, timeout.unwrap_or(LIMIT)));
        Ok(Self {
            array: buffer.same()?,
            access,
            mapping: Here::new(Mutex::new(Some(mapped.map_err(Raise::raise)?))),
        })
    }

    fn ended() -> PyErr {
        error::raise("FreedError", "the mapping has ended")
    }

    fn lock(&self) -> PyResult<Guard<'_>> {
        let mapping = match self.mapping.get()?.try_lock() {
            Ok(mapping) => mapping,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(error::raise("BusyError", "another thread uses the mapping"));
            }
        };
        if mapping.is_some() { Ok(mapping) } else { Err(Self::ended()) }
    }

    /// The rows of an index, and the byte at which they begin.
    fn rows(&self, index: &Bound<'_, PyAny>) -> PyResult<(Buffer, usize)> {
        let wanted = || PyTypeError::new_err("rows of a mapping are slices, as [2:5]");
        let part = self.array.part(index.cast::<PySlice>().map_err(|_| wanted())?)?;
        let start = part.slice()?.addr().as_u64() - self.array.slice()?.addr().as_u64();
        Ok((part, usize::try_from(start)?))
    }
}

#[pymethods]
impl Mapping {
    /// Extents of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        dtype::tuple(py, self.array.extents())
    }

    /// Name of the type of the elements, as NumPy has it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.array.dtype_or_bytes().name()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.len_bytes()
    }

    /// What it was mapped for: "read", "write" or "update".
    #[getter]
    fn access(&self) -> &'static str {
        match self.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Update => "update",
        }
    }

    /// How the host reaches the memory: "window" if it is the device's own, through its BAR,
    /// "copy" if it is a copy on the host.
    #[getter]
    fn path(&self) -> PyResult<&'static str> {
        Ok(match self.lock()?.as_ref().ok_or_else(Self::ended)?.path() {
            MapPath::Window => "window",
            // Whatever else there may be is not the memory itself.
            _ => "copy",
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.array.extents().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array of no dimensions"))
    }

    /// A new NumPy array with rows.
    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, (part, start)) = (index.py(), self.rows(index)?);
        let array = part.empty_like(py)?;
        let mut target = Target::of(&array)?;
        let mapping = self.lock()?;
        let mapping = mapping.as_ref().ok_or_else(Self::ended)?;
        mapping.read(start, target.bytes_mut()).map_err(Raise::raise)?;
        Ok(array)
    }

    /// Writes rows. The device sees them after `flush` or the end, and may see them before.
    fn __setitem__(&self, index: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let (part, start) = self.rows(index)?;
        let source = Source::of(source)?;
        part.check(&source)?;
        let mut mapping = self.lock()?;
        let mapping = mapping.as_mut().ok_or_else(Self::ended)?;
        mapping.write(start, source.bytes()).map_err(Raise::raise)
    }

    /// Makes what was written visible to the device, and waits for that. When the time is over it
    /// goes on, and the next flush waits again.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        drop(self.lock()?);
        let shared = self.mapping.get()?;
        let limit = wait::timeout(timeout)?;
        let flush = |slice| {
            let mut mapping = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // Ended by another thread meanwhile, and so flushed.
            mapping.as_mut().map_or(Ok(()), |mapping| mapping.flush(slice))
        };
        wait::end(py, limit, flush, || false)?.map_err(Raise::raise)
    }

    /// Ends the mapping, with everything written visible to the device. If that fails the mapping
    /// is there still.
    #[pyo3(signature = (timeout = None))]
    fn unmap(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.flush(py, timeout)?;
        let mapping = self.lock()?.take();
        py.detach(|| drop(mapping));
        Ok(())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Unmaps, unless that was done.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let is_mapped = self.mapping.get()?.try_lock().map_or(true, |mapping| mapping.is_some());
        if is_mapped { self.unmap(py, None) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        let (shape, name) = (self.array.extents(), self.dtype());
        format!("<et.Mapping shape={shape:?} dtype={name} for {}>", self.access())
    }
}
