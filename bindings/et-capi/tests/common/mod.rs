//! What the tests share.

#![allow(dead_code, reason = "not every test program uses everything")]
#![expect(unsafe_code, reason = "calls the C interface")]

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr::null;

use et_capi::{
    ET_ABI_VERSION, et_device, et_device_open, et_init, et_kernel, et_kernel_load_file,
    et_last_error, et_mem, et_mem_alloc, et_status, et_stream, et_stream_create,
};

/// Long enough for a busy machine; only a hang reaches it.
pub(crate) const LONG: u64 = 120_000_000_000;

/// Makes a call that must go well and gives a result.
pub(crate) fn made<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> et_status) -> T {
    let mut place = MaybeUninit::uninit();
    assert_eq!(call(Some(&mut place)), et_status::ET_OK, "{}", last_error());
    // SAFETY: calls that go well write their result.
    unsafe { place.assume_init() }
}

pub(crate) fn ok(status: et_status) {
    assert_eq!(status, et_status::ET_OK, "{}", last_error());
}

pub(crate) fn last_error() -> String {
    // SAFETY: a text of this thread, which makes no other call meanwhile.
    unsafe { CStr::from_ptr(et_last_error()) }.to_string_lossy().into_owned()
}

pub(crate) fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

pub(crate) fn open(locator: &str) -> et_device {
    ok(et_init(ET_ABI_VERSION));
    let locator = text(locator);
    // SAFETY: a text and no options.
    made(|out| unsafe { et_device_open(locator.as_ptr(), null(), out) })
}

pub(crate) fn stream(device: et_device) -> et_stream {
    made(|out| et_stream_create(device, out))
}

pub(crate) fn mem(device: et_device, bytes: u64) -> et_mem {
    made(|out| et_mem_alloc(device, bytes, 0, out))
}

pub(crate) fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf")
}

pub(crate) fn kernel(device: et_device, name: &str) -> et_kernel {
    let path = text(&kernels().join(format!("{name}.elf")).to_string_lossy());
    // SAFETY: a text.
    made(|out| unsafe { et_kernel_load_file(device, path.as_ptr(), out) })
}
