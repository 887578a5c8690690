//! Devices that work again, and devices that do not.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use common::{LONG, kernel, last_error, made, mem, ok, open, stream, text};
use et_capi::et_remedy::{
    ET_REMEDY_ABORT, ET_REMEDY_CHIP_RESET, ET_REMEDY_COMPUTE_RESET, ET_REMEDY_OPERATIONS_RESET,
};
use et_capi::et_status::{
    ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_BUFFER_TOO_SMALL, ET_INVALID, ET_NULL_POINTER, ET_OK,
    ET_OUT_OF_BOUNDS, ET_STALE, ET_TIMEOUT, ET_WRONG_KIND,
};
use et_capi::*;

const SMALL: &str = "sim:shires=1,dram=1GiB";
/// The firmware hangs after the third command since a boot, which is the last one of opening it.
const ILL: &str = "sim:shires=1,dram=1GiB,fault=hang:3";
const SHORT: u64 = 100_000_000;

/// A struct whose size is set, with zeros else.
macro_rules! sized {
    ($type:ident) => {{
        // SAFETY: numbers only.
        let mut value: $type = unsafe { MaybeUninit::zeroed().assume_init() };
        value.size = size_of::<$type>();
        value
    }};
}

/// A device that is not waited for at the end.
fn open_ill() -> et_device {
    ok(et_init(ET_ABI_VERSION));
    let mut options = sized!(et_device_options);
    (options.shutdown_timeout_ns, options.watchdog_ns) = (SHORT, LONG);
    let locator = text(ILL);
    // SAFETY: a text, and options of that size.
    made(|out| unsafe { et_device_open(locator.as_ptr(), &raw const options, out) })
}

fn policy(widest: u32) -> et_recovery_policy {
    et_recovery_policy { timeout_ns: SHORT, widest, ..sized!(et_recovery_policy) }
}

fn info(recovery: et_recovery) -> et_recovery_info {
    let mut info = sized!(et_recovery_info);
    // SAFETY: a place of that size.
    ok(unsafe { et_recovery_get(recovery, &raw mut info) });
    info
}

fn step(recovery: et_recovery, index: usize) -> et_recovery_step {
    let mut step = sized!(et_recovery_step);
    // SAFETY: a place of that size.
    ok(unsafe { et_recovery_step_get(recovery, index, &raw mut step) });
    step
}

/// What a call writes into a buffer.
fn said(call: impl FnOnce(*mut c_char, usize) -> et_status) -> String {
    let mut buffer: [c_char; 400] = [1; 400];
    ok(call(buffer.as_mut_ptr(), buffer.len()));
    // SAFETY: a call that went well has put a 0 there.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn an_endless_kernel_is_aborted_and_all_handles_stay() {
    let device = open(SMALL);
    // SAFETY: no policy.
    let healthy = made(|out| unsafe { et_device_recover(device, null(), out) });
    assert_eq!((info(healthy).steps, info(healthy).ill), (0, ET_OK as u32));
    // SAFETY: a place of that length.
    assert_eq!(said(|to, len| unsafe { et_recovery_message(healthy, to, len, None) }), "");
    ok(et_recovery_free(healthy));

    let (queue, buffer, hang) = (stream(device), mem(device, 64), kernel(device, "hang"));
    let launch = made(|out| et_launch_create(hang, out));
    let never = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no policy.
    let recovery = made(|out| unsafe { et_device_recover(device, null(), out) });
    let found = info(recovery);
    assert_eq!((found.steps, found.ill), (1, ET_TIMEOUT as u32));
    assert_eq!((found.lost_queues, found.lost_compute, found.lost_memory), (0, 0, 0));
    let only = step(recovery, 0);
    assert_eq!((only.remedy, only.status), (ET_REMEDY_ABORT as u32, ET_OK as u32));
    assert!(only.took_ns > 0);
    // SAFETY: places of that length.
    let (why, still) = unsafe {
        (
            said(|to, len| et_recovery_message(recovery, to, len, None)),
            said(|to, len| et_recovery_step_message(recovery, 0, to, len, None)),
        )
    };
    assert!(why.starts_with("work in flight on sim:") && still.is_empty(), "{why}: {still}");
    // SAFETY: no times wanted.
    assert_ne!(unsafe { et_event_wait(never, LONG, null_mut()) }, ET_TIMEOUT);
    ok(et_fill(queue, buffer, 0, 64, 1, None));
    ok(et_stream_synchronize(queue, LONG));
    ok(et_recovery_free(recovery));
    ok(et_device_close(device));
}

#[test]
fn a_device_that_stays_ill_says_what_was_tried() {
    let device = open_ill();
    let mut place = MaybeUninit::uninit();
    let mut recover = |widest: et_remedy| {
        let policy = policy(widest as u32);
        // SAFETY: a policy of that size; what the call writes in every case.
        unsafe {
            let status = et_device_recover(device, &raw const policy, Some(&mut place));
            (status, place.assume_init())
        }
    };
    let (status, recovery) = recover(ET_REMEDY_COMPUTE_RESET);
    assert_eq!(status, ET_TIMEOUT, "{}", last_error());
    assert!(last_error().contains("work again after abort, compute reset: "), "{}", last_error());
    let found = info(recovery);
    assert_eq!((found.steps, found.ill), (2, ET_TIMEOUT as u32));
    assert_eq!((found.lost_queues, found.lost_compute, found.lost_memory), (0, 1, 0));
    for (index, remedy) in [ET_REMEDY_ABORT, ET_REMEDY_COMPUTE_RESET].into_iter().enumerate() {
        let step = step(recovery, index);
        assert_eq!((step.remedy, step.status), (remedy as u32, ET_TIMEOUT as u32));
        // SAFETY: a place of that length.
        let why =
            said(|to, len| unsafe { et_recovery_step_message(recovery, index, to, len, None) });
        assert!(why.contains("did not finish within 100ms"), "{why}");
    }
    ok(et_recovery_free(recovery));

    let buffer = mem(device, 64);
    let (status, recovery) = recover(ET_REMEDY_CHIP_RESET);
    assert_eq!(status, ET_TIMEOUT);
    let found = info(recovery);
    assert_eq!((found.lost_queues, found.lost_compute, found.lost_memory), (1, 1, 1));
    assert_eq!(step(recovery, 2).remedy, ET_REMEDY_OPERATIONS_RESET as u32);
    assert_eq!(step(recovery, found.steps - 1).remedy, ET_REMEDY_CHIP_RESET as u32);
    let fresh = stream(device);
    assert_eq!(et_fill(fresh, buffer, 0, 64, 1, None), ET_STALE);
    ok(et_recovery_free(recovery));
    ok(et_device_close(device));
}

#[test]
fn what_is_no_recovery() {
    let device = open(SMALL);
    let mut place = MaybeUninit::uninit();
    let mut refused = |device: et_device, policy: et_recovery_policy| {
        // SAFETY: a policy of that size; what the call writes in every case.
        unsafe {
            let status = et_device_recover(device, &raw const policy, Some(&mut place));
            assert_eq!(place.assume_init().id, 0);
            status
        }
    };
    assert_eq!(refused(device, policy(ET_REMEDY_ABORT as u32)), ET_INVALID);
    assert!(last_error().contains("widest is 1"), "{}", last_error());
    assert_eq!(refused(device, policy(7)), ET_INVALID);
    let sizeless = et_recovery_policy { size: 0, ..policy(0) };
    assert_eq!(refused(device, sizeless), ET_BAD_STRUCT_SIZE);
    assert_eq!(refused(et_device { id: 0 }, policy(0)), ET_BAD_HANDLE);
    assert_eq!(refused(et_device { id: stream(device).id }, policy(0)), ET_WRONG_KIND);
    // SAFETY: no policy and no place.
    ok(unsafe { et_device_recover(device, null(), None) });

    // SAFETY: no policy; places of no size, none, and one that is too small.
    unsafe {
        let recovery = made(|out| et_device_recover(device, null(), out));
        let mut info = MaybeUninit::<et_recovery_info>::zeroed();
        assert_eq!(et_recovery_get(recovery, info.as_mut_ptr()), ET_BAD_STRUCT_SIZE);
        assert_eq!(et_recovery_get(recovery, null_mut()), ET_NULL_POINTER);
        assert_eq!(et_recovery_step_get(recovery, 0, null_mut()), ET_OUT_OF_BOUNDS);
        let asked = et_recovery_step_message(recovery, 0, null_mut(), 0, None);
        assert_eq!(asked, ET_OUT_OF_BOUNDS);
        assert_eq!(et_recovery_message(recovery, null_mut(), 1, None), ET_NULL_POINTER);
        assert_eq!(et_recovery_message(recovery, null_mut(), 0, None), ET_BUFFER_TOO_SMALL);
        ok(et_recovery_free(recovery));
        assert_eq!(et_recovery_get(recovery, null_mut()), ET_BAD_HANDLE);
        assert_eq!(et_recovery_step_get(recovery, 0, null_mut()), ET_BAD_HANDLE);
        assert_eq!(et_recovery_message(recovery, null_mut(), 0, None), ET_BAD_HANDLE);
        assert_eq!(et_recovery_step_message(recovery, 0, null_mut(), 0, None), ET_BAD_HANDLE);
        assert_eq!(et_recovery_free(recovery), ET_BAD_HANDLE);
        assert_eq!(et_recovery_free(et_recovery { id: device.id }), ET_WRONG_KIND);
    }
    ok(et_device_close(device));
    assert_eq!(refused(device, policy(0)), ET_BAD_HANDLE);
}
