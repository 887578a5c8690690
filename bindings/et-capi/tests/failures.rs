//! What failed launches leave: core files, and what checks have found.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use common::{LONG, kernel, last_error, made, mem, ok, open, stream, text};
use et_capi::et_status::{
    ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_FILE, ET_INVALID, ET_LAUNCH_FAILED, ET_NOT_UTF8,
    ET_NULL_POINTER, ET_OUT_OF_BOUNDS,
};
use et_capi::*;

fn fail(queue: et_stream, launch: et_launch) -> et_failure {
    let event = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no times wanted.
    assert_eq!(unsafe { et_event_wait(event, LONG, null_mut()) }, ET_LAUNCH_FAILED);
    made(|out| et_event_failure(event, out))
}

fn core_file(failure: et_failure) -> Result<et_core_file, et_status> {
    let mut core = et_core_file { size: 40, bytes: 0, harts: 0, regions: 0, incomplete: 0 };
    // SAFETY: a struct with its size.
    match unsafe { et_failure_core_file(failure, &raw mut core) } {
        et_status::ET_OK => Ok(core),
        status => Err(status),
    }
}

#[test]
fn failed_launches_leave_core_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("failed.core");
    let device = open("sim:shires=1,dram=1GiB");
    let (queue, kept) = (stream(device), mem(device, 4096));
    ok(et_fill(queue, kept, 0, 4096, 0xA5, None));
    let launch = made(|out| et_launch_create(kernel(device, "trap_load"), out));
    ok(et_launch_arg_u64(launch, 0));
    ok(et_launch_keep(launch, kept));
    assert_eq!(core_file(fail(queue, launch)).unwrap_err(), ET_INVALID);
    assert!(last_error().contains("no core file"), "{}", last_error());

    // SAFETY: texts, and no text.
    unsafe {
        let name = text(&path.to_string_lossy());
        ok(et_launch_core_dump(launch, name.as_ptr()));
        assert_eq!(et_launch_core_dump(launch, null()), ET_NULL_POINTER);
        assert_eq!(et_launch_core_dump(et_launch { id: 0 }, name.as_ptr()), ET_BAD_HANDLE);
        let bad = CString::new([0xFF]).unwrap();
        assert_eq!(et_launch_core_dump(launch, bad.as_ptr()), ET_NOT_UTF8);
    }
    ok(et_launch_stack(launch, 8192));
    let failure = fail(queue, launch);
    let core = core_file(failure).unwrap();
    let file = std::fs::read(&path).unwrap();
    assert_eq!((core.size, core.bytes), (size_of::<et_core_file>(), file.len() as u64));
    assert_eq!((core.harts, core.incomplete), (1, 0));
    assert!(core.regions >= 3, "the kernel, its stack and what it keeps: {core:?}");
    assert!(file.windows(4096).any(|window| window == [0xA5; 4096]));
    let mut small = MaybeUninit::<et_core_file>::zeroed();
    // SAFETY: a struct that says that it has no bytes, and none.
    unsafe {
        assert_eq!(et_failure_core_file(failure, small.as_mut_ptr()), ET_BAD_STRUCT_SIZE);
        assert_eq!(et_failure_core_file(failure, null_mut()), ET_NULL_POINTER);
    }

    // One that cannot be written is listed, beside the failure.
    let nowhere = text("/does/not/exist/x.core");
    // SAFETY: a text.
    ok(unsafe { et_launch_core_dump(launch, nowhere.as_ptr()) });
    assert_eq!(core_file(fail(queue, launch)).unwrap_err(), ET_INVALID);
    let list = made(|out| et_stream_take_errors(queue, out));
    assert_eq!(made(|out| et_error_list_count(list, out, None)), 1);
    let (mut why, mut status, mut operation) =
        ([0_u8; 512], MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: as many bytes as are there.
    ok(unsafe {
        let buffer = why.as_mut_ptr().cast();
        et_error_list_get(list, 0, Some(&mut status), Some(&mut operation), buffer, why.len(), None)
    });
    // SAFETY: written by a call that went well.
    let (status, operation) = unsafe { (status.assume_init(), operation.assume_init()) };
    assert!(status == ET_FILE && operation != 0, "{status:?} of {operation}");
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("/does/not/exist/x.core") && why.contains("No such file"), "{why}");
    ok(et_device_close(device));
}

fn finding(failure: et_failure, index: usize) -> et_finding {
    let mut finding = et_finding { size: size_of::<et_finding>(), ..et_finding::default() };
    // SAFETY: a struct with its size.
    ok(unsafe { et_failure_finding(failure, index, &raw mut finding) });
    finding
}

/// The other hart's function and source file, and its line.
fn other_place(failure: et_failure) -> (String, String, u32) {
    let (mut function, mut file, mut line) = ([1; 100], [1; 500], MaybeUninit::uninit());
    // SAFETY: places of the lengths given, which calls that go well fill.
    unsafe {
        ok(et_failure_other_function(failure, 0, None, function.as_mut_ptr(), 100, None));
        ok(et_failure_other_source(failure, 0, Some(&mut line), file.as_mut_ptr(), 500, None));
        let [function, file] = [&function[..], &file[..]]
            .map(|text| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned());
        (function, file, line.assume_init())
    }
}

#[test]
fn races_are_numbers_too() {
    let device = open("sim:check=races,shires=2,dram=1GiB");
    let (queue, cells, sums) = (stream(device), mem(device, 24 << 16), mem(device, 128 * 64));
    for buffer in [cells, sums] {
        ok(et_fill(queue, buffer, 0, 128 * 64, 0, None));
    }
    let launch = made(|out| et_launch_create(kernel(device, "races"), out));
    // Harts read what others have written, and not written back.
    ok(et_launch_arg_u64(launch, 2));
    ok(et_launch_arg_mem(launch, cells, 0));
    ok(et_launch_arg_mem(launch, sums, 0));
    let failure = fail(queue, launch);
    let found = finding(failure, 0);
    assert_eq!(found.kind, et_finding_kind::ET_FINDING_NOT_WRITTEN_BACK as u32);
    assert_eq!(found.access, et_memory_access::ET_MEMORY_LOAD as u32);
    assert_eq!(found.other_access, et_memory_access::ET_MEMORY_STORE as u32);
    let address = made(|out| et_mem_address(cells, out));
    assert_eq!((found.buffer, found.buffer_bytes, found.buffer_is_freed), (address, 24 << 16, 0));
    assert_eq!((found.address - address, found.bytes), (64 * found.other_hart, 8));
    assert_ne!(found.other_pc, 0);
    let (function, file, line) = other_place(failure);
    assert!(!function.is_empty() && file.ends_with("races.c") && line == 31, "{file}:{line}");

    let mut small = et_finding::default();
    // SAFETY: a struct that says that it has no bytes, and none.
    unsafe {
        let harts = made(|out| et_failure_harts(failure, out, None));
        small.size = size_of::<et_finding>();
        assert_eq!(et_failure_finding(failure, harts, &raw mut small), ET_OUT_OF_BOUNDS);
        small.size = 4;
        assert_eq!(et_failure_finding(failure, 0, &raw mut small), ET_BAD_STRUCT_SIZE);
        assert_eq!(et_failure_finding(failure, 0, null_mut()), ET_NULL_POINTER);
        ok(et_failure_free(failure));
        assert_eq!(et_failure_finding(failure, 0, &raw mut small), ET_BAD_HANDLE);
    }
    ok(et_device_close(device));
}

#[test]
fn what_a_check_of_memory_finds_has_no_other_hart() {
    let device = open("sim:check=memory,shires=1,dram=1GiB");
    let (queue, buffer) = (stream(device), mem(device, 64));
    let launch = made(|out| et_launch_create(kernel(device, "memset"), out));
    ok(et_launch_arg_mem(launch, buffer, 0));
    ok(et_launch_arg_u64(launch, 1));
    ok(et_launch_arg_u64(launch, 65));
    let failure = fail(queue, launch);
    let found = finding(failure, 0);
    assert_eq!(found.kind, et_finding_kind::ET_FINDING_OUT_OF_BOUNDS as u32);
    assert_eq!(found.access, et_memory_access::ET_MEMORY_STORE as u32);
    let address = made(|out| et_mem_address(buffer, out));
    assert_eq!((found.buffer, found.buffer_bytes), (address, 64));
    assert_eq!((found.address - address, found.bytes), (64, 1));
    assert_eq!((found.other_access, found.other_hart, found.other_pc), (0, 0, 0));
    assert_eq!(other_place(failure), (String::new(), String::new(), 0));

    // A trap that has nothing to do with it.
    let launch = made(|out| et_launch_create(kernel(device, "trap_illegal"), out));
    let found = finding(fail(queue, launch), 0);
    assert_eq!((found.kind, found.address, found.buffer), (0, 0, 0));
    ok(et_device_close(device));
}
