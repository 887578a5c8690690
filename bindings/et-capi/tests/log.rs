//! What the library says while it works.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "texts of one call promise the same")]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use common::{kernel, last_error, made, ok, open, stream};
use et_capi::et_log_level::{ET_LOG_DEBUG, ET_LOG_ERROR, ET_LOG_INFO, ET_LOG_WARN};
use et_capi::et_status::{ET_IN_CALLBACK, ET_INVALID, ET_LAUNCH_FAILED, ET_NULL_POINTER};
use et_capi::*;

#[derive(Default)]
struct Seen {
    messages: Mutex<Vec<(u32, String, String)>>,
    /// What a call of the library gave.
    refusal: AtomicI32,
}

unsafe extern "C" fn listen(
    user: *mut c_void,
    level: u32,
    target: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the argument that was registered, and texts of the library.
    let (seen, target, text) =
        unsafe { (&*user.cast::<Seen>(), CStr::from_ptr(target), CStr::from_ptr(text)) };
    let words = |text: &CStr| text.to_str().unwrap().to_owned();
    seen.messages.lock().unwrap().push((level, words(target), words(text)));
    seen.refusal.store(et_init(ET_ABI_VERSION) as i32, Ordering::Relaxed);
}

fn trap() {
    let device = open("sim:shires=1,dram=1GiB");
    run_trap(device);
    ok(et_device_close(device));
}

fn run_trap(device: et_device) {
    let (queue, trap) = (stream(device), kernel(device, "trap_load"));
    let launch = made(|out| et_launch_create(trap, out));
    ok(et_launch_arg_u32(launch, 5));
    ok(et_launch_arg_u32(launch, 0));
    let event = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no times wanted.
    assert_eq!(unsafe { et_event_wait(event, common::LONG, null_mut()) }, ET_LAUNCH_FAILED);
    ok(et_event_free(event));
}

/// The only test of its program: messages go to one place.
#[test]
fn messages_come_to_the_program_as_far_as_it_wants_them() {
    let seen: &'static Seen = Box::leak(Box::default());
    let user = std::ptr::from_ref(seen).cast_mut().cast();
    // SAFETY: texts or null, a function that takes such a user.
    let to = |filter: *const c_char| unsafe { et_log_to(filter, Some(listen), user) };
    assert_eq!(to(null()), ET_NULL_POINTER);
    assert_eq!(to(c"et_runtime=loud".as_ptr()), ET_INVALID);
    assert!(last_error().contains("et_runtime=loud"), "{}", last_error());
    ok(to(c"debug".as_ptr()));
    trap();
    {
        let messages = seen.messages.lock().unwrap();
        let failed = messages.iter().find(|(.., text)| text.contains("trap_load.elf harts=1"));
        let (level, target, _) = failed.unwrap_or_else(|| panic!("{messages:?}"));
        assert_eq!(*level, ET_LOG_DEBUG as u32);
        assert!(target.starts_with("et_runtime::"), "{target}");
        assert!(messages.iter().any(|(level, ..)| *level == ET_LOG_INFO as u32), "{messages:?}");
    }
    assert_eq!(seen.refusal.load(Ordering::Relaxed), ET_IN_CALLBACK as i32);
    ok(to(c"off".as_ptr()));
    let before = seen.messages.lock().unwrap().len();
    trap();
    assert_eq!(seen.messages.lock().unwrap().len(), before);

    // Kernels and firmware keep to the same threshold, and say where.
    for (filter, highest) in
        [(c"error", ET_LOG_ERROR), (c"warn", ET_LOG_WARN), (c"info", ET_LOG_INFO)]
    {
        ok(to(filter.as_ptr()));
        seen.messages.lock().unwrap().clear();
        let entries = log_all_levels();
        let messages = seen.messages.lock().unwrap();
        let said = messages.iter().filter(|(_, target, _)| target == "et::kernel");
        let said: Vec<_> = said.map(|(level, _, text)| (*level, text.as_str())).collect();
        // The device's lowest level, which is "critical", and those up to the threshold.
        let expected: Vec<_> = [1].into_iter().chain(1..=highest as u32).collect();
        let levels: Vec<_> = said.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, expected, "{said:?}");
        assert_eq!(entries, expected.len(), "what is not wanted is not written");
        for (_, text) in said {
            assert!(text.starts_with("hart 0000 of shire 00 hart=0 cycle="), "{text}");
        }
        let trapped = messages.iter().find(|(.., text)| text.starts_with("U-mode exception"));
        let (level, target, text) = trapped.unwrap_or_else(|| panic!("{messages:?}"));
        assert_eq!((*level, target.as_str()), (highest as u32, "et::firmware"));
        assert!(text.contains("hart=5 "), "{text}");
    }
    ok(to(c"off".as_ptr()));
}

/// A kernel logs a text of each level on one hart, then one traps. Returns the entries of the
/// former.
fn log_all_levels() -> usize {
    let device = open("sim:shires=1,dram=1GiB");
    let (queue, kernel) = (stream(device), kernel(device, "trace"));
    let options = et_kernel_trace_options {
        size: size_of::<et_kernel_trace_options>(),
        shire_mask: 0,
        thread_mask: 1,
        bytes_per_hart: 0,
        level: 0,
    };
    let wrong = et_kernel_trace_options { level: 6, ..options };
    let mut none = MaybeUninit::uninit();
    // SAFETY: options that are there.
    let refused = unsafe { et_kernel_trace_create(device, &raw const wrong, Some(&mut none)) };
    assert_eq!(refused, ET_INVALID);
    // SAFETY: as above.
    let traced = made(|out| unsafe { et_kernel_trace_create(device, &raw const options, out) });
    let firmware = made(|out| et_firmware_trace_create(device, out));
    let mut all = 0;
    for level in 0..=4 {
        let launch = made(|out| et_launch_create(kernel, out));
        ok(et_launch_arg_u64(launch, 0));
        ok(et_launch_arg_u64(launch, level));
        ok(et_launch_kernel_trace(launch, traced));
        let event = made(|out| et_launch_submit(queue, launch, out));
        // SAFETY: no times wanted.
        ok(unsafe { et_event_wait(event, common::LONG, null_mut()) });
        all += made(|out| et_kernel_trace_log(traced, common::LONG, out));
    }
    run_trap(device);
    assert_ne!(made(|out| et_firmware_trace_log(firmware, common::LONG, out)), 0);
    ok(et_kernel_trace_free(traced));
    ok(et_firmware_trace_free(firmware));
    ok(et_device_close(device));
    all
}
