//! Arrays that other libraries take and give, by DLPack.

#![expect(unsafe_code, reason = "a C interface of pointers")]

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dtype::{self, DType, Kind};
use crate::error;
use crate::host::HostBuffer;

/// Number of memory that the host addresses.
pub(crate) const CPU: i32 = 1;
/// Number of memory that only its own library knows.
pub(crate) const EXTENSION: i32 = 12;
/// Numbers of memory of other devices that the host addresses.
const PINNED: [i32; 2] = [3, 11];

const NAME: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// Flag of memory that is not to be written.
const READ_ONLY: u64 = 1;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a tensor points to.
struct Context {
    _owner: Py<HostBuffer>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A struct of the interface that owns itself.
trait Exported: Sized {
    const NAME: &'static CStr;
    fn new(tensor: Tensor, context: *mut c_void) -> Self;
    fn context(&self) -> *mut c_void;

    /// # Safety
    /// - `this` is null, or comes from `Box::into_raw`, with a context that does, and is not used
    ///   again.
    unsafe extern "C" fn delete(this: *mut Self) {
        if this.is_null() {
            return;
        }
        // SAFETY: promised by the caller.
        let this = unsafe { Box::from_raw(this) };
        // SAFETY: made by `Box::into_raw` in `export`, and freed only here.
        drop(unsafe { Box::from_raw(this.context().cast::<Context>()) });
    }

    /// Frees what no one has taken.
    ///
    /// # Safety
    /// - `capsule` was made by `export` for this type.
    unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
        // SAFETY: a capsule, by promise; who has taken the tensor has renamed it.
        let is_untaken = unsafe { ffi::PyCapsule_IsValid(capsule, Self::NAME.as_ptr()) } != 0;
        if is_untaken {
            // SAFETY: valid under that name, as just seen.
            let this = unsafe { ffi::PyCapsule_GetPointer(capsule, Self::NAME.as_ptr()) };
            // SAFETY: it is that of `export`, and not taken.
            unsafe { Self::delete(this.cast()) };
        }
    }
}

impl Exported for Managed {
    const NAME: &'static CStr = NAME;
    fn new(tensor: Tensor, context: *mut c_void) -> Self {
        Self { tensor, context, deleter: Some(Self::delete) }
    }
    fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Exported for ManagedVersioned {
    const NAME: &'static CStr = VERSIONED;
    fn new(tensor: Tensor, context: *mut c_void) -> Self {
        Self { version: [1, 0], context, deleter: Some(Self::delete), flags: 0, tensor }
    }
    fn context(&self) -> *mut c_void {
        self.context
    }
}

/// Makes a capsule of a host buffer, of the version that the consumer knows.
pub(crate) fn export<'py>(
    of: &Bound<'py, HostBuffer>,
    max_version: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let major = match max_version {
        Some(version) if !version.is_none() => version.extract::<(u32, u32)>()?.0,
        _ => 0,
    };
    match major {
        0 => capsule::<Managed>(of),
        _ => capsule::<ManagedVersioned>(of),
    }
}

fn capsule<'py, E: Exported>(of: &Bound<'py, HostBuffer>) -> PyResult<Bound<'py, PyAny>> {
    let (buffer, py) = (of.get(), of.py());
    let dtype = buffer.type_of();
    let to_i64 = |&extent: &usize| i64::try_from(extent);
    let shape: Vec<i64> = buffer.extents().iter().map(to_i64).collect::<Result<_, _>>()?;
    let strides = dtype::strides(buffer.extents(), 1).into_iter().map(|step| step as i64);
    let context = Context { _owner: of.clone().unbind(), shape, strides: strides.collect() };
    let context = Box::new(context);
    let (code, lanes) = (code(dtype.kind), 1);
    let tensor = Tensor {
        data: buffer.address()?,
        device: [CPU, 0],
        ndim: context.shape.len().try_into()?,
        code,
        bits: u8::try_from(8 * dtype.size)?,
        lanes,
        shape: context.shape.as_ptr(),
        strides: context.strides.as_ptr(),
        byte_offset: 0,
    };
    let context = Box::into_raw(context);
    let exported = Box::into_raw(Box::new(E::new(tensor, context.cast())));
    // SAFETY: the pointer is not null, the name lives for ever, and the destructor gets this
    // capsule only.
    let capsule =
        unsafe { ffi::PyCapsule_New(exported.cast(), E::NAME.as_ptr(), Some(E::destroy)) };
    // SAFETY: a new reference, or null with an exception set, as the function takes it.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    if capsule.is_err() {
        // SAFETY: made above, and in no capsule.
        unsafe { E::delete(exported) };
    }
    capsule
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Int => 0,
        Kind::Uint => 1,
        Kind::Float => 2,
        Kind::Bool => 6,
    }
}

fn kind(code: u8) -> Option<Kind> {
    [Kind::Int, Kind::Uint, Kind::Float, Kind::Bool]
        .into_iter()
        .find(|kind| self::code(*kind) == code)
}

/// An array of another library, whose memory exists as long as this does.
#[derive(Debug)]
pub(crate) struct Imported {
    /// It owns the tensor, and frees it.
    _capsule: Py<PyAny>,
    data: *mut u8,
    len: usize,
    dtype: DType,
    shape: Vec<usize>,
    is_readonly: bool,
}

// SAFETY: the memory is what the capsule owns, wherever this is used from; the capsule itself is
// only dropped, which PyO3 does on any thread.
unsafe impl Send for Imported {}
// SAFETY: as above; nothing changes by a shared reference.
unsafe impl Sync for Imported {}

impl Imported {
    /// Takes what lies in one piece in memory of the host, in the order of C.
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (device, _): (i32, i32) = array.call_method0("__dlpack_device__")?.extract()?;
        if device != CPU && !PINNED.contains(&device) {
            return Err(refuse(format!("memory of a device of kind {device} is not the host's")));
        }
        let py = array.py();
        let version = pyo3::types::PyDict::new(py);
        version.set_item("max_version", (1, 0))?;
        let capsule = match array.call_method("__dlpack__", (), Some(&version)) {
            // Libraries from before version 1 know no versions.
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
                array.call_method0("__dlpack__")?
            }
            capsule => capsule?,
        };
        let (tensor, is_readonly) = read(&capsule)?;
        let shape = extents(tensor, tensor.shape)?.into_iter().map(usize::try_from);
        let shape: Vec<usize> = shape.collect::<Result<_, _>>()?;
        let known = kind(tensor.code).filter(|_| tensor.lanes == 1);
        let known = known.and_then(|kind| DType::of(kind, usize::from(tensor.bits / 8)));
        let Some(dtype) = known else {
            let (code, bits, lanes) = (tensor.code, tensor.bits, tensor.lanes);
            return Err(refuse(format!("elements of kind {code}, {bits} bits, {lanes} lanes")));
        };
        let len = dtype::len_bytes(&shape, dtype)?;
        let strides = extents(tensor, tensor.strides)?;
        let dense = dtype::strides(&shape, 1);
        // How far apart elements are matters where there is more than one.
        let is_dense = strides.is_empty()
            || len == 0
            || shape.iter().zip(strides.iter().zip(&dense)).all(|(&extent, (stride, dense))| {
                extent == 1 || i64::try_from(*dense).is_ok_and(|dense| dense == *stride)
            });
        if !is_dense {
            let why = "the tensor is not C-contiguous; make it so with its contiguous()";
            return Err(error::raise("ArgumentError", why));
        }
        let data = tensor.data.wrapping_byte_add(usize::try_from(tensor.byte_offset)?).cast();
        Ok(Self { _capsule: capsule.unbind(), data, len, dtype, shape, is_readonly })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns `true` if its owner does not want it written.
    pub(crate) fn readonly(&self) -> bool {
        self.is_readonly
    }

    /// Returns where its bytes are, and how many: in one piece, as long as this exists.
    pub(crate) fn bytes(&self) -> (*mut u8, usize) {
        (self.data, self.len)
    }
}

fn refuse(why: String) -> PyErr {
    PyBufferError::new_err(why)
}

/// Returns the tensor of a capsule, which frees it when it goes, and whether it is read-only.
fn read<'a>(capsule: &'a Bound<'_, PyAny>) -> PyResult<(&'a Tensor, bool)> {
    let pointer = |name: &CStr| {
        // SAFETY: asks only; any object may be given.
        let is_valid = unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } != 0;
        // SAFETY: a capsule of that name, as just seen.
        is_valid.then(|| unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) })
    };
    if let Some(managed) = pointer(VERSIONED) {
        let managed = managed.cast::<ManagedVersioned>();
        // SAFETY: capsules of that name point to such a struct; all versions begin like this.
        let version = unsafe { (*managed).version };
        if version[0] != 1 {
            return Err(refuse(format!("version {} of DLPack", version[0])));
        }
        // SAFETY: of version 1, it is as declared above.
        let managed = unsafe { &*managed };
        Ok((&managed.tensor, managed.flags & READ_ONLY != 0))
    } else if let Some(managed) = pointer(NAME) {
        // SAFETY: capsules of that name point to such a struct.
        let managed = unsafe { &*managed.cast::<Managed>() };
        // What is read-only is not exported by libraries of that time.
        Ok((&managed.tensor, false))
    } else {
        Err(refuse("__dlpack__ gave no tensor".to_owned()))
    }
}

/// Returns as many numbers as the tensor has dimensions; none if there are none.
fn extents(tensor: &Tensor, from: *const i64) -> PyResult<Vec<i64>> {
    let ndim = usize::try_from(tensor.ndim)?;
    if ndim == 0 || from.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: not null, and of `ndim` numbers, as DLPack has it.
    Ok(unsafe { std::slice::from_raw_parts(from, ndim) }.to_vec())
}
