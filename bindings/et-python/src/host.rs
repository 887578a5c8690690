//! Memory of the host that a device reads and writes directly.

#![expect(unsafe_code, reason = "exports memory by the buffer protocol")]

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_dma::ReadBuffer;
use et::hal::{Bounce, DeviceAccess};
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
use crate::raw::Lent;

/// An array in memory of the host that a device reads and writes directly, without staging.
///
/// `numpy.asarray(buffer)`, `memoryview` and `numpy.from_dlpack` show the memory itself. While a
/// copy uses it, that is until its event is done, do not change it, nor read what the device
/// writes. Of memory of another object (`Device.import_`) that object is asked, see `base`.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct HostBuffer {
    pub(crate) card: Arc<Card>,
    state: Here<Mutex<State>>,
    memory: Shown,
    access: DeviceAccess,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

#[derive(Debug)]
enum State {
    Here(et::HostBuffer<AnyHal>),
    Lent(Transfer<AnyHal>),
    /// A copy that will use it is being sent.
    Starting,
    /// The device was lost with it, or a copy was refused.
    Gone,
}

/// Where the memory can be looked at.
#[derive(Debug)]
enum Shown {
    Own(Here<Memory>),
    /// The object whose memory it is.
    ByObject(Py<PyAny>),
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
            memory: Shown::Own(Here::new(Memory {
                address: address.expose_provenance(),
                _keep: memory,
            })),
            access: DeviceAccess::ReadWrite,
            dtype,
            strides: dtype::strides(&shape, dtype.size),
            shape,
        })
    }

    /// Takes memory of an object of Python.
    pub(crate) fn import(
        card: &Arc<Card>,
        object: &Bound<'_, PyAny>,
        access: &str,
    ) -> PyResult<Self> {
        let access = match access {
            "read" => DeviceAccess::Read,
            "write" => DeviceAccess::Write,
            "both" => DeviceAccess::ReadWrite,
            _ => {
                let text = format!("access is \"read\", \"write\" or \"both\", not {access:?}");
                return Err(error::raise("ArgumentError", text));
            }
        };
        let lent = Lent::of(object, access != DeviceAccess::Read)?;
        let dtype = lent.source().dtype()?;
        let shape = lent.source().shape().to_vec();
        // The runtime would copy. Here copies are not hidden.
        let granule = card.look(|device| device.import_granule())?;
        let is_whole = |granule: usize| {
            let is_multiple = |n: usize| n.is_multiple_of(granule);
            !lent.is_empty() && is_multiple(lent.as_ptr().addr()) && is_multiple(lent.len())
        };
        match granule {
            Some(granule) if !is_whole(granule) => {
                let text = format!(
                    "{}: take memory of whole pages, as that of mmap, or Device.host_empty",
                    Bounce::Granule(granule)
                );
                return Err(error::raise("ArgumentError", text));
            }
            Some(_) => {}
            None => return Err(error::raise("UnsupportedError", Bounce::Unsupported.to_string())),
        }
        let buffer = card.with(object.py(), |device| {
            let imported = match access {
                DeviceAccess::Read => device.import(lent),
                _ => device.import_mut(lent, access),
            };
            imported.map_err(|refused| refused.error)
        })?;
        if let Some(why) = buffer.bounce() {
            return Err(error::raise("UnsupportedError", why.to_string()));
        }
        Ok(Self {
            card: Arc::clone(card),
            state: Here::new(Mutex::new(State::Here(buffer))),
            memory: Shown::ByObject(object.clone().unbind()),
            access,
            dtype,
            strides: dtype::strides(&shape, dtype.size),
            shape,
        })
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        Ok(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn address(&self) -> PyResult<*mut c_void> {
        match &self.memory {
            Shown::Own(memory) => Ok(std::ptr::with_exposed_provenance_mut(memory.get()?.address)),
            Shown::ByObject(_) => {
                Err(PyBufferError::new_err("the memory is that of another object: see base"))
            }
        }
    }

    pub(crate) fn extents(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn type_of(&self) -> DType {
        self.dtype
    }

    pub(crate) fn len_bytes(&self) -> usize {
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
        access: DeviceAccess,
        start: impl FnOnce(et::HostBuffer<AnyHal>) -> et::Result<Transfer<AnyHal>> + Send,
    ) -> PyResult<Event> {
        let own = this.get();
        if own.access != DeviceAccess::ReadWrite && own.access != access {
            let text = format!("the host buffer was imported for the device to {}", own.access());
            return Err(error::raise("ArgumentError", text));
        }
        if !Arc::ptr_eq(&own.card, card) {
            return Err(error::raise("ArgumentError", "the host buffer is of another device"));
        }
        let mut state = own.lock()?;
        state.settle();
        match std::mem::replace(&mut *state, State::Starting) {
            State::Here(buffer) => {
                // Not with the lock, for which threads wait that hold the interpreter.
                drop(state);
                let (next, event) = match this.py().detach(|| start(buffer)) {
                    Ok(transfer) => {
                        let event = transfer.event().clone();
                        (State::Lent(transfer), Ok(event))
                    }
                    Err(error) => (State::Gone, Err(error)),
                };
                *own.lock()? = next;
                Ok(Event::of_host(&own.card, event.map_err(Raise::raise)?, this.clone().unbind()))
            }
            busy @ (State::Lent(_) | State::Starting) => {
                *state = busy;
                Err(error::raise("BusyError", "a copy uses the host buffer"))
            }
            State::Gone => {
                *state = State::Gone;
                let why = "the host buffer was released, or lost with a copy that failed";
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
        Self::lend(this, card, DeviceAccess::Read, |buffer| stream.upload(buffer, to))
    }

    /// Starts a copy from the device.
    pub(crate) fn download(
        this: &Bound<'_, Self>,
        stream: &et::Stream<AnyHal>,
        from: &DeviceSlice,
        card: &Arc<Card>,
    ) -> PyResult<Event> {
        Self::receive(this, card, |buffer| stream.download(from, buffer))
    }

    /// Starts what writes into it.
    pub(crate) fn receive(
        this: &Bound<'_, Self>,
        card: &Arc<Card>,
        start: impl FnOnce(et::HostBuffer<AnyHal>) -> et::Result<Transfer<AnyHal>> + Send,
    ) -> PyResult<Event> {
        Self::lend(this, card, DeviceAccess::Write, start)
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
        Ok(matches!(&*state, State::Lent(_) | State::Starting))
    }

    /// The object whose memory it is; `None` if it has memory of its own.
    #[getter]
    fn base(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.memory {
            Shown::Own(_) => None,
            Shown::ByObject(object) => Some(object.clone_ref(py)),
        }
    }

    /// What the device may do with it: "read", "write" or "both".
    #[getter]
    fn access(&self) -> &'static str {
        match self.access {
            DeviceAccess::Read => "read",
            DeviceAccess::Write => "write",
            DeviceAccess::ReadWrite => "both",
        }
    }

    /// Takes the memory from the device now, and gives that of another object back to it. No copy
    /// can use the buffer any more; memory of its own is shown as long as anything shows it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock()?;
        state.settle();
        let buffer = match std::mem::replace(&mut *state, State::Gone) {
            State::Here(buffer) => buffer,
            busy @ (State::Lent(_) | State::Starting) => {
                *state = busy;
                return Err(error::raise("BusyError", "a copy uses the host buffer"));
            }
            State::Gone => return Ok(()),
        };
        drop(state);
        // Of memory of its own, there is no other owner.
        if let Ok(lent) = py.detach(|| buffer.into_owner::<Lent>()) {
            lent.release(py);
        }
        Ok(())
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
        if let Shown::ByObject(object) = &this.memory {
            // SAFETY: an object that is alive, and the interpreter's view, to be written. The
            // object becomes the owner in it, and is told of its end.
            let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) };
            return match status {
                0 => Ok(()),
                _ => Err(PyErr::fetch(this.py())),
            };
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
