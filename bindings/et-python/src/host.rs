//! Memory of the host that a device reads and writes directly.

#![expect(unsafe_code, reason = "exports memory by the buffer protocol")]

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_dma::ReadBuffer;
use et::{AnyBuffer, AnyHal, DeviceSlice, Remains, Transfer};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::device::Device;
use crate::dtype::{self, DType, Shape};
use crate::error::{self, Raise};
use crate::event::Event;
use crate::life::Here;

/// An array in memory of the host that a device reads and writes directly, without staging.
///
/// `numpy.asarray(buffer)`, `memoryview` and `numpy.from_dlpack` show the memory itself. While a
/// copy uses it, that is until its event is done, do not change it, nor read what the device
/// writes.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct HostBuffer {
    pub(crate) card: Arc<Card>,
    state: Here<Mutex<State>>,
    memory: Here<Memory>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

#[derive(Debug)]
enum State {
    Here(et::HostBuffer<AnyHal>),
    Lent(Transfer<AnyHal>),
    /// The device was lost with it, or a copy was refused.
    Gone,
}

/// What others are shown, whatever becomes of the buffer.
#[derive(Debug)]
struct Memory {
    address: usize,
    _keep: Arc<AnyBuffer>,
}

impl HostBuffer {
    /// Allocates zeros.
    pub(crate) fn alloc(
        py: Python<'_>,
        card: &Arc<Card>,
        shape: Shape,
        dtype: DType,
    ) -> PyResult<Self> {
        let Shape(shape) = shape;
        let len = dtype::len_bytes(&shape, dtype)?;
        let buffer = card.with(py, |device| device.host_buffer(len.max(1)))?;
        let memory = buffer.memory().unwrap_or_else(|| unreachable!("it is memory of its own"));
        // SAFETY: the address is only noted here; it is used while this object exists, which keeps
        // the memory.
        let (address, _) = unsafe { memory.read_buffer() };
        Ok(Self {
            card: Arc::clone(card),
            state: Here::new(Mutex::new(State::Here(buffer))),
            memory: Here::new(Memory { address: address.expose_provenance(), _keep: memory }),
            dtype,
            strides: dtype::strides(&shape, dtype.size),
            shape,
        })
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        Ok(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn address(&self) -> PyResult<*mut c_void> {
        Ok(std::ptr::with_exposed_provenance_mut(self.memory.get()?.address))
    }

    pub(crate) fn extents(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn type_of(&self) -> DType {
        self.dtype
    }

    fn len_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size
    }

    /// Takes the memory back from a copy that has ended.
    pub(crate) fn settle(&self) -> PyResult<()> {
        self.lock()?.settle();
        Ok(())
    }

    fn lend(
        this: &Bound<'_, Self>,
        card: &Arc<Card>,
        start: impl FnOnce(et::HostBuffer<AnyHal>) -> et::Result<Transfer<AnyHal>>,
    ) -> PyResult<Event> {
        let own = this.get();
        if !Arc::ptr_eq(&own.card, card) {
            return Err(error::raise("ArgumentError", "the host buffer is of another device"));
        }
        let mut state = own.lock()?;
        state.settle();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Here(buffer) => {
                let transfer = start(buffer).map_err(Raise::raise)?;
                let event = transfer.event().clone();
                *state = State::Lent(transfer);
                drop(state);
                Ok(Event::of_host(&own.card, event, this.clone().unbind()))
            }
            lent @ State::Lent(_) => {
                *state = lent;
                Err(error::raise("BusyError", "a copy uses the host buffer"))
            }
            State::Gone => {
                let why =
                    "the host buffer was lost with a copy that failed; its memory is still shown";
                Err(error::raise("LostError", why))
            }
        }
    }

    /// Starts a copy to the device.
    pub(crate) fn upload(
        this: &Bound<'_, Self>,
        stream: &et::Stream<AnyHal>,
        to: &DeviceSlice,
        card: &Arc<Card>,
    ) -> PyResult<Event> {
        Self::lend(this, card, |buffer| stream.upload(buffer, to))
    }

    /// Starts a copy from the device.
    pub(crate) fn download(
        this: &Bound<'_, Self>,
        stream: &et::Stream<AnyHal>,
        from: &DeviceSlice,
        card: &Arc<Card>,
    ) -> PyResult<Event> {
        Self::lend(this, card, |buffer| stream.download(from, buffer))
    }
}

impl State {
    fn settle(&mut self) {
        if !matches!(self, Self::Lent(transfer) if transfer.event().is_done()) {
            return;
        }
        let Self::Lent(transfer) = std::mem::replace(self, Self::Gone) else { return };
        *self = match transfer.wait(Duration::ZERO) {
            Ok(buffer) => Self::Here(buffer),
            // Whoever has the event hears of the failure.
            Err(error) => match error.remains {
                Remains::Buffer(buffer) => Self::Here(buffer),
                Remains::Transfer(transfer) => Self::Lent(transfer),
                Remains::Nothing => Self::Gone,
            },
        };
    }
}

#[pymethods]
impl HostBuffer {
    /// Extents of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        dtype::tuple(py, &self.shape)
    }

    /// Name of the type of the elements, as NumPy has it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len_bytes()
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device::of(&self.card)
    }

    /// `True` while a copy uses the memory.
    #[getter]
    fn busy(&self) -> PyResult<bool> {
        let mut state = self.lock()?;
        state.settle();
        Ok(matches!(&*state, State::Lent(_)))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("an array of no dimensions"))
    }

    fn __repr__(&self) -> String {
        let (shape, name) = (&self.shape, self.dtype.name());
        format!("<et.HostBuffer shape={shape:?} dtype={name} of {}>", self.card.locator)
    }

    /// Shows the memory itself.
    ///
    /// # Safety
    /// - `view` is what the interpreter hands to exporters.
    unsafe fn __getbuffer__(
        this: PyRef<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let wants = |flag: c_int| flags & flag == flag;
        let shape = this.shape.as_ptr().cast_mut().cast();
        let strides = this.strides.as_ptr().cast_mut();
        let value = ffi::Py_buffer {
            buf: this.address()?,
            len: this.len_bytes().try_into()?,
            itemsize: this.dtype.size.try_into()?,
            readonly: 0,
            ndim: this.shape.len().try_into()?,
            format: match wants(ffi::PyBUF_FORMAT) {
                true => this.dtype.format().as_ptr().cast_mut(),
                false => std::ptr::null_mut(),
            },
            shape: if wants(ffi::PyBUF_ND) { shape } else { std::ptr::null_mut() },
            strides: if wants(ffi::PyBUF_STRIDES) { strides } else { std::ptr::null_mut() },
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
        };
        let owner: Py<Self> = this.into();
        let value = ffi::Py_buffer { obj: owner.into_ptr(), ..value };
        // SAFETY: not null, and the interpreter's to be written. The view owns the reference in
        // `obj`, so this object lives as long, and with it the memory, shape and strides, which
        // never change: all are read-only here but the memory, which Python may write.
        unsafe { view.write(value) };
        Ok(())
    }

    /// Memory of the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (crate::dlpack::CPU, 0)
    }

    /// Shows the memory itself to another library.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        this: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some_and(|stream| !stream.is_none()) {
            return Err(PyBufferError::new_err("memory of the host has no streams"));
        }
        if dl_device.is_some_and(|device| device != (crate::dlpack::CPU, 0)) || copy == Some(true) {
            return Err(PyBufferError::new_err("memory of the host is not copied elsewhere"));
        }
        crate::dlpack::export(this, max_version.as_ref())
    }
}
