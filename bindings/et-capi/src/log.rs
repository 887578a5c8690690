//! What the library says while it works.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{CString, c_char, c_void};

use et::log::{self, LogError};

use crate::call::{Inside, guard, inside};
use crate::raw::{self, User};
use crate::status::{Failure, et_status};

/// How much a message matters; a higher number matters less.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_log_level {
    /// Something failed.
    ET_LOG_ERROR = 1,
    /// Something is not as it should be.
    ET_LOG_WARN = 2,
    /// What users want to know.
    ET_LOG_INFO = 3,
    /// What helps to find mistakes.
    ET_LOG_DEBUG = 4,
    /// Every step.
    ET_LOG_TRACE = 5,
}

/// To be called with a message: `level` is an `et_log_level`, `target` says who speaks, as
/// `et_runtime::link`. Both texts are there during the call only. Any thread of the library may
/// call it, at any time and several at once; it must not throw, and must call nothing of the
/// library.
pub type et_log_callback = Option<
    unsafe extern "C" fn(user: *mut c_void, level: u32, target: *const c_char, text: *const c_char),
>;

/// Has a function called for each message that the filter lets through: a level (`debug`), or
/// levels of targets (`warn,et_runtime=trace`). What was asked for before ends.
///
/// Without a function messages are lines on standard error, which the environment variable `ET_LOG`
/// asks for too. `ET_BUSY` if the program hears them as a user of Rust's `tracing`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_log_to(
    filter: *const c_char,
    callback: et_log_callback,
    user: *mut c_void,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let filter = unsafe { raw::text(filter, "filter") }?;
        let Some(function) = callback else {
            return Ok(log::to_stderr(filter)?);
        };
        let user = User::new(user);
        log::forward(filter, move |message| {
            let text = |text: &str| CString::new(text.replace('\0', "␀")).unwrap_or_default();
            let (target, text) = (text(message.target), text(message.text));
            let level = message.level as u32;
            // SAFETY: the caller gave a function that may be called with this pointer on any
            // thread; the texts end with a 0.
            inside(Inside::Release, || unsafe {
                function(user.get(), level, target.as_ptr(), text.as_ptr());
            });
        })?;
        Ok(())
    })
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        let status = match error {
            LogError::Taken => et_status::ET_BUSY,
            _ => et_status::ET_INVALID,
        };
        Self::of(status, &error)
    }
}
