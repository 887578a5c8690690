//! Files with several kernels, and what devices say about themselves.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use common::{LONG, kernels, last_error, made, mem, ok, open, stream, text};
use et_capi::et_status::{
    ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_CLOSED, ET_FILE, ET_INVALID, ET_NULL_POINTER,
    ET_OUT_OF_BOUNDS,
};
use et_capi::*;

const SMALL: &str = "sim:shires=1,dram=1GiB";

/// Reads a text of less than 200 bytes.
fn said(call: impl FnOnce(*mut c_char, usize) -> et_status) -> String {
    let mut buffer: [c_char; 200] = [1; 200];
    ok(call(buffer.as_mut_ptr(), buffer.len()));
    // SAFETY: a call that went well has put a 0 there.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn several_kernels_come_from_one_file() {
    let device = open(SMALL);
    let (queue, out) = (stream(device), mem(device, 64));
    let path = kernels().join("entries.elf");
    let name = text(&path.to_string_lossy());
    let mut copied = MaybeUninit::uninit();
    let module = made(|module| {
        // SAFETY: a text.
        unsafe { et_module_load_file(device, name.as_ptr(), module, Some(&mut copied)) }
    });
    // SAFETY: written by the call; no times wanted.
    ok(unsafe { et_event_wait(copied.assume_init(), LONG, null_mut()) });
    for (function, number) in [(null(), 1u64), (c"second".as_ptr(), 2), (c"third".as_ptr(), 3)] {
        // SAFETY: a text, or null.
        let kernel = made(|kernel| unsafe { et_module_kernel(module, function, kernel) });
        let launch = made(|launch| et_launch_create(kernel, launch));
        ok(et_launch_arg_mem(launch, out, 0));
        ok(et_launch_submit(queue, launch, None));
        let mut found = 0u64;
        // SAFETY: 8 bytes.
        ok(unsafe { et_copy_to_host(queue, out, 0, (&raw mut found).cast(), 8, LONG) });
        assert_eq!(found, number);
    }
    let elf = std::fs::read(path).unwrap();
    // SAFETY: texts, and as many bytes; or what is refused before it is looked at.
    unsafe {
        let mut place = MaybeUninit::uninit();
        let mut kernel = MaybeUninit::uninit();
        let asked = et_module_kernel(module, c"fourth".as_ptr(), Some(&mut kernel));
        assert_eq!(asked, ET_INVALID);
        assert!(last_error().contains("fourth"), "{}", last_error());
        assert_eq!(et_module_kernel(module, null(), None), ET_NULL_POINTER);
        let (name, data) = (c"e".as_ptr(), elf.as_ptr().cast());
        let load = |name, data, out: Option<&mut MaybeUninit<_>>| {
            et_module_load(device, name, data, elf.len(), out, None)
        };
        assert_eq!(load(null(), data, Some(&mut place)), ET_NULL_POINTER);
        assert_eq!(load(name, null(), Some(&mut place)), ET_NULL_POINTER);
        assert_eq!(load(name, data, None), ET_NULL_POINTER);
        ok(load(name, data, Some(&mut place)));
        let missing = c"/nowhere/x.elf".as_ptr();
        assert_eq!(et_module_load_file(device, missing, Some(&mut place), None), ET_FILE);
        ok(et_module_free(module));
        assert_eq!(et_module_free(module), ET_BAD_HANDLE);
        assert_eq!(et_module_kernel(module, null(), Some(&mut kernel)), ET_BAD_HANDLE);
    }
    ok(et_device_close(device));
}

#[test]
fn devices_say_what_connects_them_and_who_has_them() {
    let device = open(SMALL);
    let identity = |what: et_identity| {
        said(|buffer, capacity| {
            // SAFETY: a place of that length.
            unsafe { et_device_identity(device, what as u32, buffer, capacity, None) }
        })
    };
    for what in [et_identity::ET_IDENTITY_BACKEND, et_identity::ET_IDENTITY_BACKEND_VERSION] {
        assert_ne!(identity(what), "", "{what:?}");
    }
    assert_eq!(identity(et_identity::ET_IDENTITY_DRIVER), "");
    assert_eq!(identity(et_identity::ET_IDENTITY_SHARING), "one each");
    assert_eq!(identity(et_identity::ET_IDENTITY_RUNTIME_VERSION), env!("CARGO_PKG_VERSION"));
    assert!(identity(et_identity::ET_IDENTITY_PCI_IDS).starts_with("1e0a:"));
    // SAFETY: no place.
    let asked = |what| unsafe { et_device_identity(device, what, null_mut(), 0, None) };
    assert_eq!(asked(0), ET_INVALID);
    ok(et_device_close(device));
    assert!(matches!(asked(1), ET_BAD_HANDLE | ET_CLOSED));

    let count = made(|out| et_device_count(out));
    let locators: Vec<_> = (0..count)
        .map(|index| {
            // SAFETY: a place of that length.
            said(|buffer, capacity| unsafe { et_device_locator(index, buffer, capacity, None) })
        })
        .collect();
    let simulator = locators.iter().position(|locator| locator == "sim:").unwrap();
    let description = said(|buffer, capacity| {
        // SAFETY: a place of that length.
        unsafe { et_device_description(simulator, buffer, capacity, None) }
    });
    assert!(description.contains("simulated"), "{description}");
    // SAFETY: numbers only.
    let mut holder: et_holder = unsafe { MaybeUninit::zeroed().assume_init() };
    holder.pid = 7;
    // SAFETY: a place whose size is wrong; then one of that size, and a text.
    unsafe {
        let asked = et_device_holder(simulator, &raw mut holder, null_mut(), 0, None);
        assert_eq!(asked, ET_BAD_STRUCT_SIZE);
        holder.size = size_of::<et_holder>();
        let command = said(|buffer, capacity| {
            et_device_holder(simulator, &raw mut holder, buffer, capacity, None)
        });
        assert_eq!((holder.pid, holder.has_user, command.as_str()), (0, 0, ""));
        assert_eq!(et_device_description(count, null_mut(), 0, None), ET_OUT_OF_BOUNDS);
    }
}
