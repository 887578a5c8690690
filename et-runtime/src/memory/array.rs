//! Arrays in device memory: buffers that are counted in elements.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::buffer::{DeviceBuffer, DeviceSlice};
use crate::{Error, Result};

/// An array of `T` in device memory, made by [`Device::alloc_array`](crate::Device::alloc_array):
/// a buffer of which lengths and parts are counted in elements.
///
/// It goes wherever a [`DeviceBuffer`] does. [`Stream::write`](crate::Stream::write) and
/// [`Stream::to_vec`](crate::Stream::to_vec) copy elements of this type only.
#[derive(Debug)]
pub struct DeviceArray<T> {
    buffer: DeviceBuffer,
    // It has no `T`: those are on the device.
    element: PhantomData<fn() -> T>,
}

impl<T> DeviceArray<T> {
    /// Says that a buffer is an array; what its bytes are is the caller's word.
    pub(crate) fn new(buffer: DeviceBuffer) -> Self {
        Self { buffer, element: PhantomData }
    }

    /// Returns how many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        elements::<T>(self.buffer.len_bytes())
    }

    /// Returns `true` if there are none, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory as bytes.
    #[must_use]
    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// Returns a part, by elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], in bytes.
    pub fn slice(&self, elements: impl RangeBounds<usize>) -> Result<ArraySlice<T>> {
        self.whole().slice(elements)
    }

    /// Returns all of it as a slice.
    #[must_use]
    pub fn whole(&self) -> ArraySlice<T> {
        ArraySlice { slice: self.buffer.whole(), element: PhantomData }
    }
}

/// A part of an array in device memory; keeps the array alive.
#[derive(Debug)]
pub struct ArraySlice<T> {
    slice: DeviceSlice,
    element: PhantomData<fn() -> T>,
}

// Derived, it would ask for `T: Clone`.
impl<T> Clone for ArraySlice<T> {
    fn clone(&self) -> Self {
        Self { slice: self.slice.clone(), element: PhantomData }
    }
}

impl<T> ArraySlice<T> {
    /// Returns how many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        elements::<T>(self.slice.len_bytes())
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory as bytes.
    #[must_use]
    pub fn bytes(&self) -> &DeviceSlice {
        &self.slice
    }

    /// Returns a part of this slice, by elements.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], in bytes.
    pub fn slice(&self, elements: impl RangeBounds<usize>) -> Result<Self> {
        let start = match elements.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match elements.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len()),
        };
        // What does not fit into 64 bits is outside as well.
        let bytes = |at: Option<usize>| at?.checked_mul(size_of::<T>())?.try_into().ok();
        let (start, end) = (bytes(start).unwrap_or(u64::MAX), bytes(end).unwrap_or(u64::MAX));
        Ok(Self { slice: self.slice.slice(start..end)?, element: PhantomData })
    }
}

impl<T> From<&DeviceArray<T>> for ArraySlice<T> {
    fn from(array: &DeviceArray<T>) -> Self {
        array.whole()
    }
}

impl<T> From<&ArraySlice<T>> for ArraySlice<T> {
    fn from(slice: &ArraySlice<T>) -> Self {
        slice.clone()
    }
}

impl<T> From<&DeviceArray<T>> for DeviceSlice {
    fn from(array: &DeviceArray<T>) -> Self {
        array.buffer.whole()
    }
}

impl<T> From<&ArraySlice<T>> for DeviceSlice {
    fn from(slice: &ArraySlice<T>) -> Self {
        slice.slice.clone()
    }
}

impl<T> From<ArraySlice<T>> for DeviceSlice {
    fn from(slice: ArraySlice<T>) -> Self {
        slice.slice
    }
}

/// Returns the bytes of an array, if there can be such.
pub(crate) fn array_bytes<T>(len: usize) -> Result<u64> {
    let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.try_into().ok());
    let offset = len as u64;
    bytes.ok_or(Error::OutOfRange { offset, len: size_of::<T>() as u64, buffer: u64::MAX })
}

fn elements<T>(bytes: u64) -> usize {
    // An array of elements without bytes has none: there is no memory of no bytes.
    bytes
        .checked_div(size_of::<T>() as u64)
        .and_then(|elements| usize::try_from(elements).ok())
        .unwrap_or(0)
}
