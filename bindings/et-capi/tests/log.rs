//! What the library says while it works.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "texts of one call promise the same")]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use common::{kernel, last_error, made, ok, open, stream};
use et_capi::et_log_level::{ET_LOG_DEBUG, ET_LOG_INFO};
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
    let (queue, trap) = (stream(device), kernel(device, "trap_load"));
    let launch = made(|out| et_launch_create(trap, out));
    ok(et_launch_arg_u32(launch, 5));
    ok(et_launch_arg_u32(launch, 0));
    let event = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no times wanted.
    assert_eq!(unsafe { et_event_wait(event, common::LONG, null_mut()) }, ET_LAUNCH_FAILED);
    ok(et_event_free(event));
    ok(et_device_close(device));
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
}
