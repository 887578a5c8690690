//! Memory of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use et::{AnyHal, DeviceSlice};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};

use crate::card::Card;
use crate::device::Device;
use crate::dtype::{self, DType, Shape};
use crate::error::{self, Raise};
use crate::event::Event;
use crate::host::HostBuffer;
use crate::life::Here;
use crate::module::Pattern;
use crate::raw::{Source, Target};
use crate::stream::Stream;
use crate::wait;

/// An array in the memory of a device; rows are in the order of C.
///
/// Made by `Device.alloc`, `empty`, `zeros`, `array` and `from_dlpack`. The memory is freed with
/// the last array that uses it, once the last operation that uses it has ended.
///
///     >>> import et, numpy
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     buffer = device.array(numpy.arange(6, dtype="i4").reshape(3, 2))
///     ...     buffer[1:].fill(b"\x07\0\0\0").wait()
///     ...     buffer[0].to_numpy().tolist(), buffer.to_numpy().tolist()
///     ([0, 1], [[0, 1], [7, 7], [7, 7]])
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) card: Arc<Card>,
    slice: Here<DeviceSlice>,
    /// Relaxed: it publishes nothing.
    is_freed: Arc<AtomicBool>,
    /// `None` of bytes, which any kernel may take for what it wants.
    dtype: Option<DType>,
    shape: Vec<usize>,
    is_readonly: bool,
}

/// What fits in here goes to staging memory at once, unless others use it up.
pub(crate) const SMALL: usize = 1 << 20;

impl Buffer {
    /// Allocates an array; one of no bytes has the address of a byte.
    pub(crate) fn alloc(
        py: Python<'_>,
        card: &Arc<Card>,
        shape: Vec<usize>,
        dtype: Option<DType>,
    ) -> PyResult<Self> {
        let len = dtype::len_bytes(&shape, dtype.unwrap_or(DType::U8))? as u64;
        let memory = card.with(py, |device| device.alloc(len.max(1)))?;
        let slice = memory.slice(..len).map_err(Raise::raise)?;
        Ok(Self::of_slice(card, slice, shape, dtype))
    }

    /// The array in a slice of as many bytes.
    pub(crate) fn of_slice(
        card: &Arc<Card>,
        slice: DeviceSlice,
        shape: Vec<usize>,
        dtype: Option<DType>,
    ) -> Self {
        Self {
            card: Arc::clone(card),
            slice: Here::new(slice),
            is_freed: Arc::default(),
            dtype,
            shape,
            is_readonly: false,
        }
    }

    /// Returns where it is, unless it was freed.
    pub(crate) fn slice(&self) -> PyResult<&DeviceSlice> {
        if self.is_freed.load(Ordering::Relaxed) {
            return Err(error::raise("FreedError", "the buffer was freed"));
        }
        self.slice.get()
    }

    pub(crate) fn is_readonly(&self) -> bool {
        self.is_readonly
    }

    /// Returns where it is, to be written.
    pub(crate) fn place(&self) -> PyResult<&DeviceSlice> {
        if self.is_readonly {
            return Err(error::raise("ArgumentError", "the buffer is read-only"));
        }
        self.slice()
    }

    /// Returns the type of the elements; bytes have none.
    pub(crate) fn type_of(&self) -> Option<DType> {
        self.dtype
    }

    pub(crate) fn dtype_or_bytes(&self) -> DType {
        self.dtype.unwrap_or(DType::U8)
    }

    pub(crate) fn extents(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype_or_bytes().size
    }

    /// Another view of the same memory.
    fn view_of(&self, slice: DeviceSlice, shape: Vec<usize>, dtype: Option<DType>) -> Self {
        Self {
            card: Arc::clone(&self.card),
            slice: Here::new(slice),
            is_freed: Arc::clone(&self.is_freed),
            dtype,
            shape,
            is_readonly: self.is_readonly,
        }
    }

    /// The same array once more.
    pub(crate) fn same(&self) -> PyResult<Self> {
        Ok(self.view_of(self.slice()?.clone(), self.shape.clone(), self.dtype))
    }

    /// A part along the first axis.
    pub(crate) fn part(&self, index: &Bound<'_, PySlice>) -> PyResult<Self> {
        let slice = self.slice()?;
        let rows = self.__len__()?;
        let range = index.indices(rows.try_into()?)?;
        if range.step != 1 {
            return Err(error::raise("ArgumentError", "only slices of step 1 lie in one piece"));
        }
        let start = usize::try_from(range.start)?;
        let end = start + range.slicelength;
        let row = self.len_bytes().checked_div(rows).unwrap_or(0) as u64;
        let part = slice.slice(start as u64 * row..end as u64 * row).map_err(Raise::raise)?;
        let mut shape = self.shape.clone();
        shape[0] = range.slicelength;
        Ok(self.view_of(part, shape, self.dtype))
    }

    /// One row, which has not the first axis any more.
    fn row(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let slice = self.slice()?;
        let rows = self.__len__()?;
        let outside = || PyIndexError::new_err(format!("row {index} of an array of {rows}"));
        let at: isize = index.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(index.py()) {
                return outside();
            }
            let what = index.get_type();
            PyTypeError::new_err(format!("an array has rows by integers and slices, not by {what}"))
        })?;
        let at = if at < 0 { rows.checked_add_signed(at) } else { usize::try_from(at).ok() };
        let at = at.filter(|&at| at < rows).ok_or_else(outside)?;
        let row = (self.len_bytes() / rows) as u64;
        let start = at as u64 * row;
        let part = slice.slice(start..start + row).map_err(Raise::raise)?;
        Ok(self.view_of(part, self.shape[1..].to_vec(), self.dtype))
    }

    /// A new NumPy array of the same shape and type.
    pub(crate) fn empty_like<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shape = dtype::tuple(py, &self.shape)?;
        py.import("numpy")?.call_method1("empty", (shape, self.dtype()))
    }

    /// Returns the stream to use, which must be of the same device.
    pub(crate) fn stream(&self, given: Option<&Stream>) -> PyResult<et::Stream<AnyHal>> {
        self.card.stream(given)
    }

    /// Refuses a copy of elements of another type or number. Bytes go with anything.
    pub(crate) fn check(&self, what: &Source) -> PyResult<()> {
        self.fits(what.shape(), what.bytes().len(), what.format())
    }

    /// As [`check`](Self::check).
    fn check_host(&self, host: &HostBuffer) -> PyResult<()> {
        self.fits(host.extents(), host.len_bytes(), Ok(host.type_of()))
    }

    fn fits(&self, other: &[usize], len: usize, format: Result<DType, String>) -> PyResult<()> {
        if len != self.len_bytes() {
            let shape = &self.shape;
            let text = format!(
                "{len} bytes of shape {other:?} do not fit a buffer of {} bytes of shape {shape:?}",
                self.len_bytes()
            );
            return Err(error::raise("ArgumentError", text));
        }
        let own = self.dtype_or_bytes();
        if own == DType::U8
            || format.as_ref().is_ok_and(|&other| other == DType::U8 || other == own)
        {
            return Ok(());
        }
        let text = format!(
            "elements of type {} do not go with a buffer of {}",
            format.map_or_else(|format| format, |other| other.name().to_owned()),
            own.name()
        );
        Err(error::raise("ArgumentError", text))
    }

    /// Waits, so that Ctrl-C ends it, for what is before in a stream.
    pub(crate) fn settle(
        py: Python<'_>,
        stream: &et::Stream<AnyHal>,
        timeout: Option<std::time::Duration>,
    ) -> PyResult<()> {
        if stream.is_idle() {
            return Ok(());
        }
        let end = stream.barrier().map_err(Raise::raise)?;
        let outcome = wait::end(py, timeout, |slice| end.wait(slice), || end.is_done())?;
        outcome.map(drop).map_err(Raise::raise)
    }

    /// Copies to memory of the host, and waits.
    pub(crate) fn read(
        &self,
        py: Python<'_>,
        into: &mut [u8],
        stream: Option<&Stream>,
        timeout: Option<std::time::Duration>,
    ) -> PyResult<()> {
        // Longer than this no copy takes that makes progress.
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(3600);
        let slice = self.slice()?;
        let stream = self.stream(stream)?;
        Self::settle(py, &stream, timeout)?;
        let limit = timeout.unwrap_or(LIMIT);
        py.detach(|| stream.read(slice, into, limit)).map_err(Raise::raise)
    }

    /// Copies from memory of the host, which is free again when this returns.
    pub(crate) fn write(
        &self,
        py: Python<'_>,
        from: &[u8],
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let slice = self.place()?;
        let stream = self.stream(stream)?;
        if from.len() > SMALL {
            Self::settle(py, &stream, None)?;
        }
        let event = py.detach(|| stream.copy_to_device(from, slice)).map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }
}

#[pymethods]
impl Buffer {
    /// Extents of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        dtype::tuple(py, &self.shape)
    }

    /// Name of the type of the elements, as NumPy has it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype_or_bytes().name()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.dtype_or_bytes().size
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len_bytes()
    }

    /// Device address of the first element.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.slice()?.addr().as_u64())
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device::of(&self.card)
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| PyTypeError::new_err("an array of no dimensions"))
    }

    fn __repr__(&self) -> String {
        let freed = if self.is_freed.load(Ordering::Relaxed) { ", freed" } else { "" };
        format!(
            "<et.Buffer shape={:?} dtype={} on {}{freed}>",
            self.shape,
            self.dtype_or_bytes().name(),
            self.card.locator
        )
    }

    /// A part along the first axis, of the same memory: rows, as `buffer[10:20]`, or one of them,
    /// as `buffer[3]`, which has a dimension less.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        match index.cast::<PySlice>() {
            Ok(slice) => self.part(slice),
            Err(_) => self.row(index),
        }
    }

    /// The same elements in another shape; -1 stands for what is left.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let given: Vec<isize> = match shape.len() {
            1 => shape.get_item(0)?.extract().or_else(|_| shape.extract())?,
            _ => shape.extract()?,
        };
        let known: usize =
            given.iter().filter_map(|&extent| usize::try_from(extent).ok()).product();
        let rest = self.size().checked_div(known).unwrap_or(0);
        let shape: Vec<usize> =
            given.iter().map(|&extent| usize::try_from(extent).unwrap_or(rest)).collect();
        let open = given.iter().filter(|&&extent| extent < 0).count();
        if open > 1 || shape.iter().product::<usize>() != self.size() {
            let text = format!("{} elements have no shape {given:?}", self.size());
            return Err(error::raise("ArgumentError", text));
        }
        Ok(self.view_of(self.slice()?.clone(), shape, self.dtype))
    }

    /// The same bytes as elements of another type, in one dimension.
    fn view(&self, dtype: DType) -> PyResult<Self> {
        if !self.len_bytes().is_multiple_of(dtype.size) {
            let text = format!("{} bytes are no elements of {}", self.len_bytes(), dtype.name());
            return Err(error::raise("ArgumentError", text));
        }
        let shape = vec![self.len_bytes() / dtype.size];
        Ok(self.view_of(self.slice()?.clone(), shape, Some(dtype)))
    }

    /// `True` if it is not to be written through this array, see `toreadonly`.
    #[getter]
    fn readonly(&self) -> bool {
        self.is_readonly
    }

    /// The same memory, not to be written through this array: copies to it and kernels that write
    /// it are refused.
    fn toreadonly(&self) -> PyResult<Self> {
        Ok(Self { is_readonly: true, ..self.same()? })
    }

    /// Copies an array, or anything with the buffer protocol or DLPack, to the device. When this
    /// returns, the source may be changed; the copy has ended when the event has.
    ///
    /// A `HostBuffer` is not copied first: the device reads it, so it must not be changed before
    /// the event is done.
    #[pyo3(signature = (source, *, stream = None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        if let Ok(host) = source.cast::<HostBuffer>() {
            self.check_host(host.get())?;
            return HostBuffer::upload(host, &self.stream(stream)?, self.place()?, &self.card);
        }
        let source = Source::of(source)?;
        self.check(&source)?;
        self.write(py, source.bytes(), stream)
    }

    /// Copies the array into anything that can be written by the buffer protocol or DLPack, and
    /// waits.
    ///
    /// To a `HostBuffer` use `copy_to_host`, which does not wait.
    #[pyo3(signature = (target, *, stream = None, timeout = None))]
    fn copy_to(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut target = Target::of(target)?;
        self.check(target.as_source())?;
        self.read(py, target.bytes_mut(), stream, wait::timeout(timeout)?)
    }

    /// Has the device write into a host buffer of the same length, without waiting.
    #[pyo3(signature = (target, *, stream = None))]
    fn copy_to_host(
        &self,
        target: &Bound<'_, HostBuffer>,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        self.check_host(target.get())?;
        HostBuffer::download(target, &self.stream(stream)?, self.slice()?, &self.card)
    }

    /// Copies within the device.
    #[pyo3(signature = (source, *, stream = None))]
    fn copy_from_buffer(
        &self,
        py: Python<'_>,
        source: &Self,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let (from, to) = (source.slice()?, self.place()?);
        let stream = self.stream(stream)?;
        Self::settle(py, &stream, None)?;
        let event = py.detach(|| stream.copy_on_device(from, to)).map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }

    /// Fills the array with a byte, or with a pattern of 1, 2, 4, 8 or 16 bytes, which begins at
    /// its first byte and is cut off at its end.
    #[pyo3(signature = (pattern, *, stream = None))]
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        pattern: Pattern,
        stream: Option<&Stream>,
    ) -> PyResult<Event> {
        let slice = self.place()?;
        let stream = self.stream(stream)?;
        Self::settle(py, &stream, None)?;
        let event = py.detach(|| stream.fill_pattern(slice, &pattern.0)).map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }

    /// A new NumPy array with the elements.
    #[pyo3(signature = (*, stream = None, timeout = None))]
    fn to_numpy<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Stream>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // First: an error should not need NumPy.
        self.slice()?;
        let array = self.empty_like(py)?;
        let mut target = Target::of(&array)?;
        self.read(py, target.bytes_mut(), stream, wait::timeout(timeout)?)?;
        Ok(array)
    }

    /// For `numpy.asarray`.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(error::raise(
                "ArgumentError",
                "device memory cannot be had without a copy",
            ));
        }
        let array = self.to_numpy(py, None, None)?;
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    /// The bytes of all elements.
    #[pyo3(signature = (*, stream = None, timeout = None))]
    fn to_bytes<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Stream>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let timeout = wait::timeout(timeout)?;
        PyBytes::new_with(py, self.len_bytes(), |bytes| self.read(py, bytes, stream, timeout))
    }

    /// An extension device: only producers and consumers that know it take its memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (crate::dlpack::EXTENSION, 0)
    }

    /// A copy on the host, if that is asked for; device memory cannot be addressed from there.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream;
        if dl_device != Some((crate::dlpack::CPU, 0)) || copy == Some(false) {
            return Err(pyo3::exceptions::PyBufferError::new_err(
                "device memory goes to other libraries as a copy on the host only: \
                 ask for the device \"cpu\", or use to_numpy()",
            ));
        }
        let shape = Shape(self.shape.clone());
        let host =
            Bound::new(py, HostBuffer::alloc(py, &self.card, shape, self.dtype_or_bytes())?)?;
        let mut target = Target::of(host.as_any())?;
        self.read(py, target.bytes_mut(), None, None)?;
        drop(target);
        crate::dlpack::export(&host, max_version.as_ref())
    }

    /// Frees the memory now, of all arrays that share it: using them is an error then. Operations
    /// in flight keep it until they have ended.
    fn free(&self) {
        self.is_freed.store(true, Ordering::Relaxed);
    }
}
