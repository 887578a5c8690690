//! Memory of Python objects, by the buffer protocol.

#![expect(unsafe_code, reason = "memory that other code of Python uses too")]

use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use et::hal::StableDeref;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::callbacks;
use crate::dtype::DType;
use crate::error;

/// The bytes of an object, which exist as long as this does.
#[derive(Debug)]
pub(crate) struct Source {
    buffer: PyUntypedBuffer,
    /// Type and extents of an array without dimensions, whose buffer is a view of its bytes.
    single: Option<CString>,
}

impl Source {
    /// Takes what lies in one piece, in the order of C.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(object)?;
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
        Ok(Self { buffer, single })
    }

    /// Returns the type of the elements, if it has a name here.
    pub(crate) fn dtype(&self) -> Option<DType> {
        let size =
            self.single.as_ref().map_or(self.buffer.item_size(), |_| self.buffer.len_bytes());
        DType::of_format(self.code()).filter(|dtype| dtype.size == size)
    }

    fn code(&self) -> &CStr {
        self.single.as_deref().unwrap_or_else(|| self.buffer.format())
    }

    /// Returns the format of the elements.
    pub(crate) fn format(&self) -> String {
        self.code().to_string_lossy().into_owned()
    }

    pub(crate) fn shape(&self) -> &[usize] {
        if self.single.is_some() { &[] } else { self.buffer.shape() }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = self.buffer.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: the object promises `len` bytes there, in one piece as `of` has checked, as long
        // as the buffer is not released, which it is by `drop`. They are bytes, which need no
        // alignment, and an object is not longer than `isize::MAX`. A thread of Python that writes
        // meanwhile can only change which bytes are copied: they are only ever copied from.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast(), len) }
    }
}

/// The bytes of an object, to be written.
#[derive(Debug)]
pub(crate) struct Target(Source);

impl Target {
    /// Takes what can be written and lies in one piece.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let source = Source::of(object)?;
        if source.buffer.readonly() {
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
        let len = self.0.buffer.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as in `Source::bytes`; the object says that they may be written. The exclusive
        // borrow is of the only Rust value that reaches them.
        unsafe { std::slice::from_raw_parts_mut(self.0.buffer.buf_ptr().cast(), len) }
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
            source.buffer.release(py);
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
        let source = self.source();
        let len = source.buffer.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as in `Target::bytes_mut`; `of` has checked that the object may be written.
        unsafe { std::slice::from_raw_parts_mut(source.buffer.buf_ptr().cast(), len) }
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
        callbacks::post(move |py| ManuallyDrop::into_inner(source).buffer.release(py));
    }
}
