//! What must be an error and nothing worse, one test for each family of functions.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};

use common::{LONG, kernel, last_error, made, mem, ok, open, stream, text};
use et_capi::et_status::{
    ET_ABI_MISMATCH, ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_BUFFER_TOO_SMALL, ET_BUSY, ET_CLOSED,
    ET_FILE, ET_IN_CALLBACK, ET_INVALID, ET_LAUNCH_FAILED, ET_MISALIGNED, ET_NOT_READY,
    ET_NOT_UTF8, ET_NULL_POINTER, ET_OK, ET_OUT_OF_BOUNDS, ET_STALE, ET_TASK_FAILED, ET_TIMEOUT,
    ET_TOO_LARGE, ET_WRONG_KIND,
};
use et_capi::*;

const SMALL: &str = "sim:shires=1,dram=1GiB";
const NULL: &str = "sim:compute=null,dram=1GiB";

#[test]
fn versions_are_compared() {
    assert_eq!(et_init(0x1_0000), ET_ABI_MISMATCH);
    assert!(last_error().contains("1.0, the library has 0.1"), "{}", last_error());
    assert_eq!(et_init(ET_ABI_VERSION + 1), ET_ABI_MISMATCH);
    ok(et_init(ET_ABI_VERSION));
    assert_eq!(et_abi_version(), ET_ABI_VERSION);
    // SAFETY: texts of the library.
    let (version, name, unknown) = unsafe {
        (
            CStr::from_ptr(et_version()),
            CStr::from_ptr(et_status_name(ET_TIMEOUT as i32)),
            CStr::from_ptr(et_status_name(-1)),
        )
    };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!((name, unknown), (c"ET_TIMEOUT", c"unknown"));
}

#[test]
fn devices_that_are_none() {
    ok(et_init(ET_ABI_VERSION));
    let mut device = MaybeUninit::uninit();
    let mut try_open = |locator: *const c_char, options: *const et_device_options| {
        // SAFETY: pointers are null or to live texts and options.
        unsafe { et_device_open(locator, options, Some(&mut device)) }
    };
    assert_eq!(try_open(null(), null()), ET_NULL_POINTER);
    assert_eq!(try_open(c"nothing".as_ptr(), null()), ET_INVALID);
    assert!(last_error().contains("names no backend"), "{}", last_error());
    assert_eq!(try_open(c"sim:\xff".as_ptr(), null()), ET_NOT_UTF8);
    // SAFETY: numbers only.
    let mut options: et_device_options = unsafe { MaybeUninit::zeroed().assume_init() };
    assert_eq!(try_open(c"sim:".as_ptr(), &raw const options), ET_BAD_STRUCT_SIZE);

    // From a newer version, and asking for something.
    #[repr(C)]
    struct Newer(et_device_options, u64);
    options.size = size_of::<Newer>();
    let newer = Newer(options, 1);
    assert_eq!(try_open(c"sim:".as_ptr(), (&raw const newer).cast()), ET_BAD_STRUCT_SIZE);
    let newer = Newer(options, 0);
    assert_eq!(try_open(c"sim:dram=1GiB".as_ptr(), (&raw const newer).cast()), ET_OK);
    // SAFETY: written by the call.
    let device = unsafe { device.assume_init() };

    let mut properties = MaybeUninit::<et_properties>::zeroed();
    // SAFETY: a place of that size, and null.
    unsafe {
        assert_eq!(et_device_properties(device, properties.as_mut_ptr()), ET_BAD_STRUCT_SIZE);
        assert_eq!(et_device_properties(device, null_mut()), ET_NULL_POINTER);
        assert_eq!(et_device_activity(device, null_mut()), ET_NULL_POINTER);
    }
    // SAFETY: a text and no place.
    assert_eq!(unsafe { et_device_open(c"sim:".as_ptr(), null(), None) }, ET_NULL_POINTER);
    ok(et_device_close(device));
    assert_eq!(et_device_close(device), ET_BAD_HANDLE);
    assert_eq!(et_device_poll(et_device { id: 0 }, None), ET_BAD_HANDLE);
    assert_eq!(et_device_poll(et_device { id: u64::MAX }, None), ET_BAD_HANDLE);
    assert_eq!(et_device_poll(device, None), ET_BAD_HANDLE);
    assert_eq!(et_profile_start(device), ET_BAD_HANDLE);
}

#[test]
fn memory_of_no_one_of_others_and_of_before() {
    let (device, other) = (open(NULL), open(NULL));
    let (queue, buffer, foreign) = (stream(device), mem(device, 4096), mem(other, 4096));
    assert_eq!(et_mem_alloc(device, 64, 0, None), ET_NULL_POINTER);
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_mem_alloc(device, 64, 3, Some(&mut place)), ET_INVALID);
    assert_eq!(et_mem_alloc(device, 0, 0, Some(&mut place)), ET_INVALID);
    let all = u64::MAX;
    assert_ne!(et_mem_alloc(device, all, 0, Some(&mut place)), ET_OK);
    assert_eq!(et_fill(queue, foreign, 0, 4096, 1, None), ET_INVALID);
    assert!(last_error().contains("another device"), "{}", last_error());
    assert_eq!(et_fill(queue, buffer, 4000, 97, 1, None), ET_OUT_OF_BOUNDS);
    assert_eq!(et_fill(queue, buffer, u64::MAX, 2, 1, None), ET_OUT_OF_BOUNDS);
    assert_eq!(et_fill(queue, buffer, 1, 8, 1, None), ET_MISALIGNED);
    assert_eq!(et_mem_free(et_mem { id: queue.id }), ET_WRONG_KIND);
    assert!(last_error().contains("et_stream"), "{}", last_error());
    ok(et_mem_free(buffer));
    assert_eq!(et_mem_free(buffer), ET_BAD_HANDLE);
    // Its place is used again, its number is not.
    let next = mem(device, 4096);
    assert_ne!(next.id, buffer.id);
    assert_eq!(et_fill(queue, buffer, 0, 64, 1, None), ET_BAD_HANDLE);

    ok(et_device_reset(device, LONG));
    assert_eq!(et_fill(queue, next, 0, 64, 1, None), ET_STALE);
    let fresh = stream(device);
    let newest = mem(device, 64);
    ok(et_fill(fresh, newest, 0, 64, 1, None));
    ok(et_stream_synchronize(fresh, LONG));
    ok(et_device_close(device));
    assert_eq!(et_fill(fresh, newest, 0, 64, 1, None), ET_CLOSED);
    ok(et_mem_free(newest));
    ok(et_device_close(other));
    ok(et_mem_free(foreign));
}

#[test]
fn copies_of_nothing_and_of_too_much() {
    let device = open(NULL);
    let (queue, buffer) = (stream(device), mem(device, 64));
    let mut bytes = [1u8; 64];
    let data = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: 64 bytes that no one else uses, or null, or a length that is refused.
    unsafe {
        assert_eq!(et_copy_to_device(queue, null(), 64, buffer, 0, None), ET_NULL_POINTER);
        assert_eq!(et_copy_to_device(queue, data, usize::MAX, buffer, 0, None), ET_TOO_LARGE);
        assert_eq!(et_copy_to_device(queue, data, 64, buffer, 8, None), ET_OUT_OF_BOUNDS);
        assert_eq!(et_copy_to_host(queue, buffer, 0, null_mut(), 64, LONG), ET_NULL_POINTER);
        let none = et_stream { id: 0 };
        assert_eq!(et_copy_to_device(none, data, 64, buffer, 0, None), ET_BAD_HANDLE);
        ok(et_copy_to_device(queue, null(), 0, buffer, 0, None));
        ok(et_copy_to_device(queue, data, 64, buffer, 0, None));
        bytes.fill(0);
        ok(et_copy_to_host(queue, buffer, 0, data, 64, LONG));
    }
    assert_eq!(bytes, [1; 64]);
    // SAFETY: 64 bytes that no one else uses until the event has ended.
    unsafe {
        bytes.fill(0);
        assert_eq!(et_copy_to_host_async(queue, buffer, 0, data, 64, None), ET_NULL_POINTER);
        let mut event = MaybeUninit::uninit();
        let asked = et_copy_to_host_async(queue, buffer, 1, data, 64, Some(&mut event));
        assert_eq!(asked, ET_OUT_OF_BOUNDS);
        let event = made(|out| et_copy_to_host_async(queue, buffer, 0, data, 64, out));
        ok(et_event_wait(event, LONG, null_mut()));
        ok(et_event_free(event));
    }
    assert_eq!(bytes, [1; 64]);
    // Freed before it has ended: the memory is the caller's again, and stays as it is.
    let mut kept = Box::new([0u8; 64]);
    // SAFETY: 64 bytes that no one else uses until the event is freed.
    let event = made(|out| unsafe {
        et_copy_to_host_async(queue, buffer, 0, kept.as_mut_ptr().cast(), 64, out)
    });
    ok(et_event_free(event));
    ok(et_stream_synchronize(queue, LONG));
    assert_eq!(*kept, [0; 64]);

    let pinned = made(|out| et_host_buffer_alloc(device, 64, out));
    // SAFETY: 64 bytes that no one else uses.
    unsafe {
        assert_eq!(et_host_buffer_write(pinned, 1, data, 64), ET_OUT_OF_BOUNDS);
        ok(et_host_buffer_write(pinned, 0, data, 64));
    }
    assert_eq!(et_upload(queue, pinned, buffer, 8, 64, None), ET_OUT_OF_BOUNDS);
    // Behind a barrier that does not come, the buffer is the device's.
    let other = open(SMALL);
    let (slow, hang) = (stream(other), kernel(other, "hang"));
    let launch = made(|out| et_launch_create(hang, out));
    let never = made(|out| et_launch_submit(slow, launch, out));
    ok(et_stream_wait_for(queue, never));
    let copied = made(|out| et_upload(queue, pinned, buffer, 0, 64, out));
    // SAFETY: 64 bytes that no one else uses.
    assert_eq!(unsafe { et_host_buffer_write(pinned, 0, data, 64) }, ET_BUSY);
    assert_eq!(et_upload(queue, pinned, buffer, 0, 64, None), ET_BUSY);
    assert_eq!(et_event_status(copied), ET_NOT_READY);
    assert_eq!(et_stream_synchronize(queue, 1_000_000), ET_TIMEOUT);
    let said = last_error();
    assert!(said.starts_with("synchronize on sim:compute=null,dram=1GiB did not"), "{said}");
    // SAFETY: no times wanted.
    assert_eq!(unsafe { et_event_wait(copied, 1_000_000, null_mut()) }, ET_TIMEOUT);
    ok(et_device_abort(other, never, LONG));
    assert_eq!(et_device_abort(other, never, LONG), ET_INVALID);
    assert_eq!(et_device_abort(device, never, LONG), ET_INVALID);
    // SAFETY: no times wanted; 64 bytes that no one else uses.
    unsafe {
        ok(et_event_wait(copied, LONG, null_mut()));
        ok(et_host_buffer_read(pinned, 0, data, 64));
    }
    ok(et_host_buffer_free(pinned));
    assert_eq!(et_host_buffer_free(pinned), ET_BAD_HANDLE);
    ok(et_device_close(other));
    ok(et_device_close(device));
}

#[test]
fn kernels_launches_and_their_failures() {
    let device = open(SMALL);
    let queue = stream(device);
    let mut place = MaybeUninit::uninit();
    // SAFETY: texts, and bytes of the length given.
    unsafe {
        let missing = c"/nowhere/x.elf".as_ptr();
        assert_eq!(et_kernel_load_file(device, missing, Some(&mut place)), ET_FILE);
        assert!(last_error().contains("/nowhere/x.elf"), "{}", last_error());
        let junk = [0u8; 100];
        let (name, data) = (c"x".as_ptr(), junk.as_ptr().cast());
        assert_eq!(et_kernel_load(device, name, data, 100, Some(&mut place)), ET_INVALID);
        assert_eq!(et_kernel_load(device, name, null(), 100, Some(&mut place)), ET_NULL_POINTER);
        assert_eq!(et_kernel_load(device, name, data, 100, None), ET_NULL_POINTER);
    }
    let trap = kernel(device, "trap_load");
    let launch = made(|out| et_launch_create(trap, out));
    // SAFETY: 8 bytes, or what is refused before it is read.
    unsafe {
        let args = 0u64;
        let data = (&raw const args).cast();
        assert_eq!(et_launch_args(launch, data, 8, 3), ET_INVALID);
        assert_eq!(et_launch_args(launch, data, 1 << 30, 0), ET_TOO_LARGE);
        assert_eq!(et_launch_args(launch, null(), 8, 0), ET_NULL_POINTER);
        ok(et_launch_args(launch, data, 8, 8));
        assert_eq!(et_launch_trace(launch, et_mem { id: 0 }, 0, 64, null()), ET_BAD_HANDLE);
    }
    ok(et_launch_shires(launch, 2));
    assert_eq!(et_launch_submit(queue, launch, None), ET_INVALID);
    assert!(last_error().contains("shire mask 0x2"), "{}", last_error());
    assert_eq!(et_launch_arg_mem(launch, et_mem { id: trap.id }, 0), ET_WRONG_KIND);
    ok(et_launch_shires(launch, 1));

    let event = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no times wanted.
    assert_eq!(unsafe { et_event_wait(event, LONG, null_mut()) }, ET_LAUNCH_FAILED);
    assert!(last_error().contains("trap_load"), "{}", last_error());
    assert_eq!(et_event_status(event), ET_LAUNCH_FAILED);
    // A trap, by the table of section 7.6.
    assert_eq!(made(|out| et_event_device_status(event, out)), 2);
    let failure = made(|out| et_event_failure(event, out));
    assert_eq!(made(|out| et_failure_harts(failure, out, None)), 1);
    let mut hart = MaybeUninit::<et_hart>::zeroed();
    // SAFETY: places of the lengths given; `hart` is zeroed, and its size set before it is used.
    let (small, function, line) = unsafe {
        assert_eq!(et_failure_hart(failure, 0, hart.as_mut_ptr()), ET_BAD_STRUCT_SIZE);
        (*hart.as_mut_ptr()).size = size_of::<et_hart>();
        assert_eq!(et_failure_hart(failure, 1, hart.as_mut_ptr()), ET_OUT_OF_BOUNDS);
        ok(et_failure_hart(failure, 0, hart.as_mut_ptr()));
        let mut needed = MaybeUninit::new(0);
        let mut small = [1; 4];
        let asked = et_failure_text(failure, small.as_mut_ptr(), 4, Some(&mut needed));
        assert_eq!(asked, ET_BUFFER_TOO_SMALL);
        assert!(needed.assume_init() > 4);
        let mut function: [c_char; 100] = [1; 100];
        ok(et_failure_function(failure, 0, None, function.as_mut_ptr(), 100, None));
        let mut code: [c_char; 1000] = [1; 1000];
        ok(et_failure_code(failure, 0, code.as_mut_ptr(), 1000, None));
        assert_eq!(et_failure_code(failure, 0, null_mut(), 1000, None), ET_NULL_POINTER);
        let text = |of: &[c_char]| CStr::from_ptr(of.as_ptr()).to_string_lossy().into_owned();
        (small, text(&function), text(&code))
    };
    assert_eq!(small[3], 0);
    assert_eq!(function, "load_from_null");
    assert!(line.contains("ld"), "{line}");
    // SAFETY: written by the call.
    let hart = unsafe { hart.assume_init() };
    assert_eq!((hart.exception, hart.cause, hart.has_registers), (1, 5, 1));

    ok(et_kernel_free(trap));
    assert_eq!(et_kernel_free(trap), ET_BAD_HANDLE);
    // The description keeps the kernel.
    let event = made(|out| et_launch_submit(queue, launch, out));
    ok(et_event_free(event));
    ok(et_stream_synchronize(queue, LONG));
    let list = made(|out| et_stream_take_errors(queue, out));
    assert_eq!(made(|out| et_error_list_count(list, out, None)), 1);
    let mut status = MaybeUninit::uninit();
    // SAFETY: no text is wanted; the status is written by a call that fails for the text only.
    unsafe {
        let out = Some(&mut status);
        let asked = et_error_list_get(list, 0, out, None, null_mut(), 0, None);
        assert_eq!(asked, ET_BUFFER_TOO_SMALL);
        assert_eq!(status.assume_init(), ET_LAUNCH_FAILED);
        let asked = et_error_list_get(list, 1, None, None, null_mut(), 0, None);
        assert_eq!(asked, ET_OUT_OF_BOUNDS);
    }
    ok(et_error_list_free(list));
    ok(et_failure_free(failure));
    assert_eq!(et_failure_free(failure), ET_BAD_HANDLE);
    ok(et_launch_free(launch));
    assert_eq!(et_launch_submit(queue, launch, None), ET_BAD_HANDLE);
    ok(et_device_reset_compute(device, LONG));
    ok(et_device_close(device));
}

static CALLED: AtomicI32 = AtomicI32::new(0);

/// What a callback must not do.
unsafe extern "C" fn naughty(user: *mut c_void, status: et_status) {
    // SAFETY: the test gives its handles and waits for the call.
    let (device, queue) = unsafe { *user.cast::<(et_device, et_stream)>() };
    assert_eq!(status, ET_OK);
    let mut place = MaybeUninit::uninit();
    let refused = [
        et_stream_synchronize(queue, LONG),
        et_stream_barrier(queue, Some(&mut place)),
        et_device_close(device),
        et_mapping_flush(et_mapping { id: 0 }, 0),
        et_mapping_unmap(et_mapping { id: 0 }, 0),
        et_mapping_free(et_mapping { id: 0 }),
        et_stream_map(queue, et_mem { id: 0 }, 0, 8, 1, 0, None),
        et_copy_on_device(queue, et_mem { id: 0 }, 0, et_mem { id: 0 }, 0, 8, None),
        et_copy_to_peer(queue, et_mem { id: 0 }, 0, queue, et_mem { id: 0 }, 0, 8, None),
        et_fill(queue, et_mem { id: 0 }, 0, 8, 0, None),
        et_launch_submit(queue, et_launch { id: 0 }, None),
        // SAFETY: nothing is read of nothing.
        unsafe {
            et_launch_staged(
                queue,
                null(),
                0,
                et_launch { id: 0 },
                null(),
                0,
                et_host_buffer { id: 0 },
                None,
            )
        },
        // SAFETY: as above.
        unsafe { et_copy_list(queue, null(), 0, None) },
        // SAFETY: as above.
        unsafe { et_read_list(queue, null(), 0, 0) },
        // SAFETY: as above.
        unsafe { et_upload_list(queue, et_host_buffer { id: 0 }, null(), 0, None) },
        // SAFETY: as above.
        unsafe { et_download_list(queue, null(), 0, et_host_buffer { id: 0 }, None) },
        // SAFETY: as above.
        unsafe { et_copy_to_device(queue, null(), 0, et_mem { id: 0 }, 0, None) },
        // SAFETY: as above.
        unsafe { et_copy_to_host_async(queue, et_mem { id: 0 }, 0, null_mut(), 0, None) },
        // SAFETY: as above.
        unsafe { et_fill_pattern(queue, et_mem { id: 0 }, 0, 8, null(), 0, None) },
    ];
    for (index, status) in refused.iter().enumerate().filter(|(_, s)| **s != ET_IN_CALLBACK) {
        eprintln!("call {index} gives {status:?}");
    }
    let is_right = refused.iter().all(|&status| status == ET_IN_CALLBACK);
    CALLED.store(if is_right { 1 } else { -1 }, Ordering::Release);
}

#[test]
fn events_and_callbacks() {
    let device = open(NULL);
    let queue = stream(device);
    let mut handles = (device, queue);
    let event = made(|out| et_stream_barrier(queue, out));
    assert_eq!(et_stream_barrier(queue, None), ET_NULL_POINTER);
    assert_eq!(et_event_on_done(event, None, null_mut()), ET_NULL_POINTER);
    let failure = MaybeUninit::uninit();
    ok(et_event_on_done(event, Some(naughty), (&raw mut handles).cast()));
    // SAFETY: no times wanted.
    ok(unsafe { et_event_wait(event, LONG, null_mut()) });
    while CALLED.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(CALLED.load(Ordering::Acquire), 1);
    assert_eq!(et_event_failure(event, Some(&mut { failure })), ET_INVALID);
    assert_eq!(et_event_device_status(event, Some(&mut MaybeUninit::new(0))), ET_INVALID);
    let mut times = MaybeUninit::<et_timeline>::zeroed();
    // SAFETY: a place whose size is wrong.
    assert_eq!(unsafe { et_event_wait(event, 0, times.as_mut_ptr()) }, ET_BAD_STRUCT_SIZE);
    ok(et_event_free(event));
    assert_eq!(et_event_free(event), ET_BAD_HANDLE);
    assert_eq!(et_event_status(event), ET_BAD_HANDLE);
    assert_eq!(et_stream_wait_for(queue, event), ET_BAD_HANDLE);
    ok(et_stream_abort(queue, LONG));
    ok(et_stream_free(queue));
    assert_eq!(et_stream_free(queue), ET_BAD_HANDLE);
    ok(et_device_close(device));
}

unsafe extern "C" fn fails(_: *mut c_void, task: u32, _: *const u64, _: usize) -> i32 {
    let mut cancelled = MaybeUninit::uninit();
    if et_task_is_cancelled(Some(&mut cancelled)) != ET_OK {
        return -1;
    }
    i32::try_from(task).unwrap_or(-1) + 40
}

#[test]
fn conditions_of_tasks() {
    let (word, equal, not_equal) = (et_word::ET_WORD_I32 as u32, 1, 2);
    let device = open(SMALL);
    let builder = made(|out| et_graph_builder_create(out));
    // It would fail if it ran.
    let function = made(|out| et_graph_function(builder, Some(fails), null_mut(), out));
    let task = made(|out| et_task_create(builder, function, out));
    let flags = mem(device, 64);
    for (status, offset, word, comparison, value) in [
        (ET_OUT_OF_BOUNDS, 61, word, equal, 0),
        (ET_INVALID, 2, word, equal, 0),
        (ET_INVALID, 0, 5, equal, 0),
        (ET_INVALID, 0, word, 0, 0),
        (ET_INVALID, 0, word, 7, 0),
        (ET_INVALID, 0, word, equal, 1 << 31),
        (ET_INVALID, 0, et_word::ET_WORD_U32 as u32, equal, u64::MAX),
    ] {
        let refused = et_task_only_if(task, flags, offset, word, comparison, value);
        assert_eq!(refused, status, "{offset} {word} {comparison} {value}: {}", last_error());
    }
    let bad = et_mem { id: 0 };
    assert_eq!(et_task_only_if(task, bad, 0, word, equal, 0), ET_BAD_HANDLE);
    let minus_one = (-1_i64).cast_unsigned();
    assert_eq!(et_task_parts(et_task { id: 0 }, 2), ET_BAD_HANDLE);
    ok(et_task_only_if(task, flags, 4, word, not_equal, minus_one));
    let queue = stream(device);
    let fill = |byte| {
        ok(et_fill(queue, flags, 0, 64, byte, None));
        ok(et_stream_synchronize(queue, LONG));
    };
    // -1 in all words.
    fill(0xff);
    let task = made(|out| et_graph_add(builder, task, out));
    let graph = made(|out| et_graph_build(builder, out));
    // SAFETY: no options.
    let executor = made(|out| unsafe { et_executor_create(device, null(), out) });
    // SAFETY: no options.
    let run = made(|out| unsafe { et_graph_launch(executor, graph, null(), out) });
    ok(et_run_wait(run, LONG));
    let state = made(|out| et_run_task_state(run, task, out));
    assert_eq!(state, et_task_state::ET_TASK_SKIPPED);
    fill(0);
    // SAFETY: no options.
    let run = made(|out| unsafe { et_graph_launch(executor, graph, null(), out) });
    assert_eq!(et_run_wait(run, LONG), ET_TASK_FAILED);
    ok(et_executor_free(executor));
    ok(et_graph_free(graph));
}

#[test]
fn memory_of_a_graph() {
    let device = open(SMALL);
    let builder = made(|out| et_graph_builder_create(out));
    assert_eq!(et_graph_transient(builder, device, 256, 0, None), ET_NULL_POINTER);
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_graph_transient(builder, device, 0, 0, Some(&mut place)), ET_INVALID);
    assert_eq!(et_graph_transient(builder, device, 256, 3, Some(&mut place)), ET_INVALID);
    let between = made(|out| et_graph_transient(builder, device, 256, 0, out));
    let queue = stream(device);
    assert_ne!(et_fill(queue, between, 0, 256, 1, None), ET_OK);
    let (a, b) = (mem(device, 256), mem(device, 256));
    ok(et_fill(queue, a, 0, 256, 0x40, None));
    let add = kernel(device, "add");
    let add = made(|out| et_graph_kernel(builder, add, out));
    let sum = |from, to| {
        let task = made(|out| et_task_create(builder, add, out));
        for (mem, access) in [(from, 1), (from, 1), (to, 2)] {
            ok(et_task_arg_mem(task, mem, 0, 256, access));
        }
        ok(et_task_arg_u64(task, 64));
        task
    };
    let early = sum(between, b);
    assert_eq!(et_graph_add(builder, early, None), ET_INVALID, "nothing has written it");
    ok(et_task_free(early));
    let first = made(|out| et_graph_add(builder, sum(a, between), out));
    let second = made(|out| et_graph_add(builder, sum(between, b), out));
    ok(et_graph_edge_and_retain(builder, first, second));
    assert_eq!(et_graph_edge_and_retain(builder, first, 7), ET_INVALID);
    let result = made(|out| et_host_data_create(256, out));
    ok(et_graph_copy_out(builder, b, 0, result, None));
    let graph = made(|out| et_graph_build(builder, out));
    // SAFETY: no options.
    let executor = made(|out| unsafe { et_executor_create(device, null(), out) });
    ok(et_stream_synchronize(queue, LONG));
    // SAFETY: no options.
    let run = made(|out| unsafe { et_graph_launch(executor, graph, null(), out) });
    ok(et_run_wait(run, LONG));
    let mut found = [0_f32; 64];
    let into = (&raw mut found).cast();
    // SAFETY: as many bytes.
    ok(unsafe { et_host_data_read(result, 0, into, size_of_val(&found)) });
    assert_eq!(found, [4.0 * f32::from_bits(0x4040_4040); 64]);
    ok(et_mem_free(between));
    ok(et_executor_free(executor));
    ok(et_graph_free(graph));
}

/// Doubles a value graph by graph, as long as the host finds that to be too little; then a task
/// fails.
#[test]
fn flows() {
    let device = open(SMALL);
    let (line, other) = (mem(device, 64), mem(device, 64));
    let queue = stream(device);
    ok(et_fill(queue, line, 0, 64, 0x40, None));
    ok(et_stream_synchronize(queue, LONG));
    // SAFETY: no options.
    let executor = made(|out| unsafe { et_executor_create(device, null(), out) });
    let add = kernel(device, "add");
    let step = || {
        let builder = made(|out| et_graph_builder_create(out));
        let add = made(|out| et_graph_kernel(builder, add, out));
        let task = made(|out| et_task_create(builder, add, out));
        for access in [1, 1, 2] {
            ok(et_task_arg_mem(task, line, 0, 64, access));
        }
        ok(et_task_arg_u64(task, 16));
        ok(et_graph_add(builder, task, None));
        made(|out| et_graph_build(builder, out))
    };
    let bad = et_flow { id: 0 };
    assert_eq!(et_flow_create(executor, None), ET_NULL_POINTER);
    assert_eq!(et_flow_create(et_executor { id: 7 }, None), ET_NULL_POINTER);
    let mut flow = MaybeUninit::uninit();
    assert_eq!(et_flow_create(et_executor { id: 7 }, Some(&mut flow)), ET_BAD_HANDLE);
    let flow = made(|out| et_flow_create(executor, out));
    let graph = step();
    let mut run = MaybeUninit::uninit();
    // SAFETY: no options.
    let refused = unsafe { et_flow_launch(bad, graph, null(), Some(&mut run)) };
    assert_eq!(refused, ET_BAD_HANDLE);
    // SAFETY: no options.
    assert_eq!(unsafe { et_flow_launch(flow, graph, null(), None) }, ET_NULL_POINTER);
    assert_eq!(et_flow_settled(flow, line, 1, 64, Some(&mut run)), ET_OUT_OF_BOUNDS);
    assert_eq!(et_flow_settled(flow, line, 0, 64, None), ET_NULL_POINTER);
    let value = || {
        let mut found = [0_f32; 16];
        let into = (&raw mut found).cast();
        // SAFETY: as many bytes.
        ok(unsafe { et_copy_to_host(queue, line, 0, into, 64, LONG) });
        found[0] / f32::from_bits(0x4040_4040)
    };
    let mut steps = 0;
    while value() < 8.0 {
        // SAFETY: no options.
        let run = made(|out| unsafe { et_flow_launch(flow, graph, null(), out) });
        ok(et_run_free(run));
        let there = made(|out| et_flow_settled(flow, line, 0, 64, out));
        ok(et_run_wait(there, LONG));
        ok(et_run_free(there));
        steps += 1;
    }
    assert_eq!((steps, value()), (3, 8.0));
    ok(et_flow_finish(flow, LONG));

    let builder = made(|out| et_graph_builder_create(out));
    let function = made(|out| et_graph_function(builder, Some(fails), null_mut(), out));
    let task = made(|out| et_task_create(builder, function, out));
    ok(et_task_uses_mem(task, line, 0, 64, 2));
    ok(et_graph_add(builder, task, None));
    let failing = made(|out| et_graph_build(builder, out));
    // SAFETY: no options.
    let first = made(|out| unsafe { et_flow_launch(flow, failing, null(), out) });
    // SAFETY: no options.
    let behind = made(|out| unsafe { et_flow_launch(flow, graph, null(), out) });
    let beside = made(|out| et_flow_settled(flow, other, 0, 64, out));
    assert_eq!(et_run_wait(behind, LONG), ET_TASK_FAILED);
    assert_eq!(et_run_wait(first, LONG), ET_TASK_FAILED);
    assert!(last_error().contains("returned 40"), "{}", last_error());
    ok(et_run_wait(beside, LONG));
    assert_eq!(et_flow_finish(flow, LONG), ET_TASK_FAILED);
    assert!(last_error().contains("returned 40"), "the first one: {}", last_error());
    ok(et_flow_finish(flow, LONG));
    assert_eq!(value(), 8.0);
    ok(et_executor_free(executor));
    // SAFETY: no options.
    let refused = unsafe { et_flow_launch(flow, graph, null(), Some(&mut run)) };
    assert_eq!(refused, ET_CLOSED);
    ok(et_flow_free(flow));
    assert_eq!(et_flow_free(flow), ET_BAD_HANDLE);
    ok(et_graph_free(graph));
}

#[test]
fn graphs_and_runs() {
    let device = open(SMALL);
    let builder = made(|out| et_graph_builder_create(out));
    let function = made(|out| et_graph_function(builder, Some(fails), null_mut(), out));
    assert_eq!(et_graph_function(builder, None, null_mut(), None), ET_NULL_POINTER);
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_task_create(builder, 7, Some(&mut place)), ET_OUT_OF_BOUNDS);
    let task = made(|out| et_task_create(builder, function, out));
    assert_eq!(et_task_arg_mem(task, et_mem { id: 0 }, 0, 1, 1), ET_BAD_HANDLE);
    let buffer = mem(device, 64);
    assert_eq!(et_task_arg_mem(task, buffer, 0, 64, 9), ET_INVALID);
    assert_eq!(et_task_uses_mem(task, buffer, 1, 64, 1), ET_OUT_OF_BOUNDS);
    let first = made(|out| et_graph_add(builder, task, out));
    assert_eq!(et_graph_add(builder, task, None), ET_BAD_HANDLE);
    assert_eq!(et_graph_edge(builder, first, 5), ET_INVALID);
    assert_eq!(et_graph_edge(builder, first, first), ET_INVALID);
    let task = made(|out| et_task_create(builder, function, out));
    let second = made(|out| et_graph_add(builder, task, out));
    ok(et_graph_edge(builder, first, second));
    let graph = made(|out| et_graph_build(builder, out));
    assert_eq!(et_graph_edge(builder, first, second), ET_BAD_HANDLE);
    assert_eq!(et_graph_builder_free(builder), ET_BAD_HANDLE);

    // SAFETY: numbers only.
    let mut options: et_executor_options = unsafe { MaybeUninit::zeroed().assume_init() };
    options.size = size_of::<et_executor_options>();
    options.place = 9;
    let mut executor = MaybeUninit::uninit();
    // SAFETY: options, or none.
    unsafe {
        let refused = et_executor_create(device, &raw const options, Some(&mut executor));
        assert_eq!(refused, ET_INVALID);
    }
    // SAFETY: no options.
    let executor = made(|out| unsafe { et_executor_create(device, null(), out) });
    // SAFETY: no options.
    let run = made(|out| unsafe { et_graph_launch(executor, graph, null(), out) });
    assert_eq!(et_run_wait(run, LONG), ET_TASK_FAILED);
    assert!(last_error().contains("returned 40"), "{}", last_error());
    let state = made(|out| et_run_task_state(run, second, out));
    assert_eq!(state, et_task_state::ET_TASK_NOT_RUN);
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_run_task_state(run, 2, Some(&mut place)), ET_OUT_OF_BOUNDS);
    let failure = |index| {
        // SAFETY: no text wanted.
        unsafe { et_run_failure(run, index, None, None, null_mut(), 0, None) }
    };
    assert_eq!((failure(0), failure(1)), (ET_BUFFER_TOO_SMALL, ET_OUT_OF_BOUNDS));
    let (none, path) = (et_profile { id: 0 }, text("/nowhere/profile.json"));
    let write = |detail, recorded, path: *const c_char| {
        // SAFETY: a text, or none.
        unsafe { et_run_write_profile(run, detail, recorded, path) }
    };
    assert_eq!(write(0, none, null()), ET_NULL_POINTER);
    assert_eq!(write(3, none, path.as_ptr()), ET_INVALID);
    assert_eq!(write(0, et_profile { id: run.id }, path.as_ptr()), ET_WRONG_KIND);
    assert_eq!(write(2, none, path.as_ptr()), ET_FILE);
    let mut cancelled = MaybeUninit::uninit();
    assert_eq!(et_task_is_cancelled(Some(&mut cancelled)), ET_INVALID);
    ok(et_run_free(run));
    assert_eq!(et_run_cancel(run), ET_BAD_HANDLE);
    assert_eq!(write(0, none, path.as_ptr()), ET_BAD_HANDLE);
    ok(et_executor_free(executor));
    assert_eq!(et_executor_free(executor), ET_BAD_HANDLE);
    ok(et_graph_free(graph));

    // Two tasks that wait for each other.
    let builder = made(|out| et_graph_builder_create(out));
    let function = made(|out| et_graph_function(builder, Some(fails), null_mut(), out));
    for _ in 0..2 {
        let task = made(|out| et_task_create(builder, function, out));
        ok(et_graph_add(builder, task, None));
    }
    ok(et_graph_edge(builder, 0, 1));
    ok(et_graph_edge(builder, 1, 0));
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_graph_build(builder, Some(&mut place)), ET_INVALID);

    let data = made(|out| et_host_data_create(8, out));
    let mut bytes = [0u8; 8];
    // SAFETY: 8 bytes that no one else uses.
    let read = unsafe { et_host_data_read(data, 1, bytes.as_mut_ptr().cast(), 8) };
    assert_eq!(read, ET_OUT_OF_BOUNDS);
    ok(et_host_data_free(data));
    assert_eq!(et_host_data_free(data), ET_BAD_HANDLE);
    ok(et_device_close(device));
}

#[test]
fn profiles() {
    let device = open(NULL);
    ok(et_profile_start(device));
    assert_eq!(et_profile_stop(device, None), ET_NULL_POINTER);
    ok(et_stream_synchronize(stream(device), LONG));
    let profile = made(|out| et_profile_stop(device, out));
    let path = text("/nowhere/profile.json");
    // SAFETY: a text.
    assert_eq!(unsafe { et_profile_write(profile, path.as_ptr()) }, ET_FILE);
    ok(et_profile_free(profile));
    assert_eq!(et_profile_count(profile, None, None), ET_BAD_HANDLE);
    ok(et_device_close(device));
}
