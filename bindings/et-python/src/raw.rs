//! Memory of Python objects, by the buffer protocol or DLPack.

#![expect(unsafe_code, reason = "memory that other code of Python uses too")]

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use et::hal::StableDeref;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::dtype::DType;
use crate::{callbacks, dlpack, error};

/// The bytes of an object, which exist as long as this does.
#[derive(Debug)]
pub(crate) enum Source {
    /// By the buffer protocol.
    Buffer {
        buffer: PyUntypedBuffer,
        /// Type and extents of an array without dimensions, whose buffer is a view of its bytes.
        single: Option<CString>,
    },
    /// By DLPack.
    Tensor(dlpack::Imported),
}

impl Source {
    /// Takes what lies in one piece, in the order of C: of the buffer protocol, or, where an object
    /// does not have it, as PyTorch's tensors, of DLPack.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = match PyMemoryView::from(object) {
            Ok(view) => view,
            Err(_) if object.hasattr("__dlpack__")? => return Self::of_dlpack(object),
            Err(error) => return Err(error),
        };
        let (buffer, single) = match view.getattr("ndim")?.extract()? {
            // PyO3 takes the missing extents of such arrays for a mistake.
            0 => {
                let format: String = view.getattr("format")?.extract()?;
                let bytes = view.call_method1("cast", ("B",))?;
                (PyUntypedBuffer::get(&bytes)?, Some(CString::new(format)?))
            }
            1_u32.. => (PyUntypedBuffer::get(object)?, None),
        };
        if !buffer.is_c_contiguous() {
            return Err(error::raise(
                "ArgumentError",
                "the array is not C-contiguous; copy it with numpy.ascontiguousarray",
            ));
        }
        Ok(Self::Buffer { buffer, single })
    }

    /// Takes an array by DLPack, whatever else it has.
    pub(crate) fn of_dlpack(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        dlpack::Imported::of(array).map(Self::Tensor)
    }

    /// Returns the type of the elements, or their format, if that has no name here.
    pub(crate) fn format(&self) -> Result<DType, String> {
        let (code, size) = match self {
            Self::Buffer { buffer, single: None } => (buffer.format(), buffer.item_size()),
            Self::Buffer { buffer, single: Some(code) } => (&**code, buffer.len_bytes()),
            Self::Tensor(tensor) => return Ok(tensor.dtype()),
        };
        let known = DType::of_format(code).filter(|dtype| dtype.size == size);
        known.ok_or_else(|| code.to_string_lossy().into_owned())
    }

    /// Returns the type of the elements; an error if it has no name here.
    pub(crate) fn dtype(&self) -> PyResult<DType> {
        self.format().map_err(|format| {
            let text = format!("no data type for elements of format {format:?}");
            error::raise("ArgumentError", text)
        })
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::Buffer { single: Some(_), .. } => &[],
            Self::Buffer { buffer, .. } => buffer.shape(),
            Self::Tensor(tensor) => tensor.shape(),
        }
    }

    fn readonly(&self) -> bool {
        match self {
            Self::Buffer { buffer, .. } => buffer.readonly(),
            Self::Tensor(tensor) => tensor.readonly(),
        }
    }

    /// Returns where its bytes are, and how many. The object promises them there, in one piece as
    /// has been checked, as long as this is not released, which it is by `drop`. They are bytes,
    /// which need no alignment, and an object is not longer than `isize::MAX`.
    fn raw(&self) -> (*mut u8, usize) {
        let (start, len) = match self {
            Self::Buffer { buffer, .. } => (buffer.buf_ptr().cast(), buffer.len_bytes()),
            Self::Tensor(tensor) => tensor.bytes(),
        };
        // What is empty may be anywhere.
        if len == 0 { (NonNull::dangling().as_ptr(), 0) } else { (start, len) }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, len) = self.raw();
        // SAFETY: as `raw` says. A thread of Python that writes meanwhile can only change which
        // bytes are copied: they are only ever copied from.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    fn release(self, py: Python<'_>) {
        match self {
            Self::Buffer { buffer, .. } => buffer.release(py),
            // It gives the memory back by itself.
            Self::Tensor(tensor) => drop(tensor),
        }
    }
}

/// The bytes of an object, to be written.
#[derive(Debug)]
pub(crate) struct Target(Source);

impl Target {
    /// Takes what can be written and lies in one piece.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let source = Source::of(object)?;
        if source.readonly() {
            return Err(error::raise("ArgumentError", "the array is read-only"));
        }
        Ok(Self(source))
    }

    /// Returns how the bytes are read.
    pub(crate) fn as_source(&self) -> &Source {
        &self.0
    }

    /// Returns the bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.0.raw();
        // SAFETY: as `raw` says; the object says that they may be written. The exclusive borrow is
        // of the only Rust value that reaches them.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// The bytes of an object while a device has them.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None` only inside `drop` and `release`.
    source: Option<Source>,
    may_write: bool,
}

impl Lent {
    /// Takes what lies in one piece, for the device to read, or to write as well.
    pub(crate) fn of(object: &Bound<'_, PyAny>, may_write: bool) -> PyResult<Self> {
        let source = if may_write { Target::of(object)?.0 } else { Source::of(object)? };
        Ok(Self { source: Some(source), may_write })
    }

    pub(crate) fn source(&self) -> &Source {
        match &self.source {
            Some(source) => source,
            None => unreachable!("taken out at the end only"),
        }
    }

    /// Gives the object back at once.
    pub(crate) fn release(mut self, py: Python<'_>) {
        if let Some(source) = self.source.take() {
            source.release(py);
        }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.source().bytes()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.may_write, "lent to be read");
        let (start, len) = self.source().raw();
        // SAFETY: as in `Target::bytes_mut`; `of` has checked that the object may be written.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

// SAFETY: the bytes are those of the object, which the buffer keeps where they are; they do not
// move with this value.
unsafe impl StableDeref for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(source) = self.source.take() else { return };
        // This may be a thread of the runtime, with locks that threads of Python wait for: it must
        // not wait for the interpreter. One that ends needs no memory back.
        let source = ManuallyDrop::new(source);
        callbacks::post(move |py| ManuallyDrop::into_inner(source).release(py));
    }
}
