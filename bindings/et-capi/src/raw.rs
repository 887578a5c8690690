//! Everything that touches memory of the caller.

#![expect(unsafe_code, reason = "pointers of C callers")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use crate::status::{Failure, et_status};

/// A place of the caller for a result.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

fn null(what: &str) -> Failure {
    Failure::new(et_status::ET_NULL_POINTER, format!("{what} is null"))
}

/// Demands a place for a result.
pub(crate) fn wanted<'a, T>(
    out: Out<'a, T>,
    what: &str,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    out.ok_or_else(|| null(what))
}

/// Stores a result that the caller need not want.
pub(crate) fn store<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Reads bytes of the caller.
///
/// # Safety
/// - `data` is null, or points to `len` bytes that no one writes before `'a` ends.
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    len: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    check(data, len, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null and not longer than an object can be, by `check`; the rest is what the
    // caller promises. Bytes need no alignment.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Reads an array of the caller.
///
/// # Safety
/// - `data` is null, or points to `count` values that no one writes before `'a` ends, aligned as C
///   demands.
pub(crate) unsafe fn array<'a, T: Copy>(
    data: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    let len = count.saturating_mul(size_of::<T>());
    check(data.cast(), len, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null and not longer than an object can be, by `check`; the rest is what the
    // caller promises. The types have numbers and pointers only.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// Gives access to bytes of the caller, to be written.
///
/// # Safety
/// - `data` is null, or points to `len` bytes that no one else uses before `'a` ends.
pub(crate) unsafe fn bytes_mut<'a>(
    data: *mut c_void,
    len: usize,
    what: &str,
) -> Result<&'a mut [u8], Failure> {
    check(data, len, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `bytes`. That C never wrote it is nothing this side can see: memory that came
    // from outside has some value, and the bytes are only ever written here.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// Checks that a place of the caller can be one.
pub(crate) fn check(data: *const c_void, len: usize, what: &str) -> Result<(), Failure> {
    if data.is_null() && len != 0 {
        return Err(null(what));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::new(et_status::ET_TOO_LARGE, format!("{what} of {len} bytes")));
    }
    Ok(())
}

/// Reads a text of the caller.
///
/// # Safety
/// - `text` is null, or points to bytes with a 0 among them, which no one writes before `'a` ends.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null; the rest is what the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::of(et_status::ET_NOT_UTF8, &error))
}

/// Reads a file that the caller names.
pub(crate) fn file(path: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::new(et_status::ET_FILE, format!("reading {path}: {error}"));
    std::fs::read(path).map_err(failed)
}

/// Gives a text to the caller: as much as there is room for and a 0, and the bytes needed for all.
///
/// # Safety
/// - `buffer` is null, or points to `capacity` bytes that no one else uses during the call.
pub(crate) unsafe fn put_text(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    needed: Out<'_, usize>,
) -> Result<(), Failure> {
    let all = text.len() + 1;
    store(needed, all);
    if buffer.is_null() && capacity != 0 {
        return Err(null("buffer"));
    }
    if let Some(room) = capacity.checked_sub(1) {
        let len =
            (0..=room.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        // SAFETY: `len` is less than `capacity`, and `buffer` is not null, by the tests above; text
        // of this library does not overlap memory of the caller.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, len) };
        // SAFETY: still inside, since `len` is less than `capacity`.
        let end = unsafe { buffer.add(len) };
        // SAFETY: as before.
        unsafe { end.write(0) };
    }
    if capacity < all {
        let why = format!("a buffer of {capacity} bytes for a text of {all}");
        return Err(Failure::new(et_status::ET_BUFFER_TOO_SMALL, why));
    }
    Ok(())
}

/// A struct of the interface that may grow.
///
/// # Safety
/// - The type is `repr(C)` and begins with a `usize`, the size in bytes.
/// - All bytes zero are a value of it, and so are all others for its fields.
pub(crate) unsafe trait Growing: Copy {
    /// The size in the first version.
    const FIRST: usize;
}

/// Reads the size of a struct of the caller.
unsafe fn size_of_callers<T: Growing>(of: *const T, what: &str) -> Result<usize, Failure> {
    if of.is_null() {
        return Err(null(what));
    }
    // SAFETY: a `T` begins with its size, and callers set it.
    let size = unsafe { of.cast::<usize>().read() };
    if size < T::FIRST {
        let why = format!("{what} has size {size}, at least {} is needed", T::FIRST);
        return Err(Failure::new(et_status::ET_BAD_STRUCT_SIZE, why));
    }
    Ok(size)
}

/// Reads options of the caller; null and what an older caller does not know are zero.
///
/// # Safety
/// - `from` is null or points to as many bytes as its first field says, which no one writes
///   meanwhile.
pub(crate) unsafe fn options<T: Growing>(from: *const T, what: &str) -> Result<T, Failure> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: as this function's caller promises.
        let size = unsafe { size_of_callers(from, what) }?;
        let common = size.min(size_of::<T>());
        // SAFETY: `size` bytes can be read, by the promise of the caller, and as many as a `T` has
        // written. They are different places.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), common);
        }
        let more = from.cast::<c_void>().wrapping_byte_add(common);
        // SAFETY: inside of the `size` bytes of the caller.
        let newer = unsafe { bytes(more, size - common, what) }?;
        if newer.iter().any(|&byte| byte != 0) {
            let why = format!("{what} of {size} bytes sets what this version does not have");
            return Err(Failure::new(et_status::ET_BAD_STRUCT_SIZE, why));
        }
    }
    // SAFETY: zero or what the caller set; both are values, by the contract of the trait.
    Ok(unsafe { value.assume_init() })
}

/// Gives a struct to the caller, as much of it as he knows; his size stays.
///
/// # Safety
/// - `to` is null or points to as many bytes as its first field says, which no one else uses
///   meanwhile.
pub(crate) unsafe fn put<T: Growing>(value: &T, to: *mut T, what: &str) -> Result<(), Failure> {
    // SAFETY: as this function's caller promises.
    let size = unsafe { size_of_callers(to.cast_const(), what) }?;
    let skip = size_of::<usize>();
    let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(skip);
    let len = size.min(size_of::<T>()) - skip;
    // SAFETY: both sides have `skip + len` bytes, and a value of this library does not overlap
    // memory of the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to.cast::<u8>().wrapping_add(skip), len) };
    Ok(())
}

/// The `user` pointer of a callback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User(*mut c_void);

// SAFETY: it is only handed back; callers promise that their callbacks may get it on any thread.
unsafe impl Send for User {}
// SAFETY: as for `Send`.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(user: *mut c_void) -> Self {
        Self(user)
    }

    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}
