//! Memory of Python objects, by the buffer protocol.

#![expect(unsafe_code, reason = "memory that other code of Python uses too")]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::dtype::DType;
use crate::error;

/// The bytes of an object, which exist as long as this does.
#[derive(Debug)]
pub(crate) struct Source(PyUntypedBuffer);

impl Source {
    /// Takes what lies in one piece, in the order of C.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(error::raise(
                "ArgumentError",
                "the array is not C-contiguous; copy it with numpy.ascontiguousarray",
            ));
        }
        Ok(Self(buffer))
    }

    /// Returns the type of the elements, if it has a name here.
    pub(crate) fn dtype(&self) -> Option<DType> {
        DType::of_format(self.0.format()).filter(|dtype| dtype.size == self.0.item_size())
    }

    /// Returns the format of the elements.
    pub(crate) fn format(&self) -> String {
        self.0.format().to_string_lossy().into_owned()
    }

    pub(crate) fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: the object promises `len` bytes there, in one piece as `of` has checked, as long
        // as the buffer is not released, which it is by `drop`. They are bytes, which need no
        // alignment, and an object is not longer than `isize::MAX`. A thread of Python that writes
        // meanwhile can only change which bytes are copied: they are only ever copied from.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }
}

/// The bytes of an object, to be written.
#[derive(Debug)]
pub(crate) struct Target(Source);

impl Target {
    /// Takes what can be written and lies in one piece.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let source = Source::of(object)?;
        if source.0.readonly() {
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
        let len = self.0.0.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as in `Source::bytes`; the object says that they may be written. The exclusive
        // borrow is of the only Rust value that reaches them.
        unsafe { std::slice::from_raw_parts_mut(self.0.0.buf_ptr().cast(), len) }
    }
}
