//! Status codes, messages and versions.

#![expect(unsafe_code, reason = "exported names")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

use et::executor::{RunError, TaskFailure};
use et::hal::{Error as _, ErrorKind, LossReason, ResetScope, Resource};

use crate::call::guard;

/// What became of a call, or of an operation. Names and numbers never change.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_status {
    /// It went well.
    ET_OK = 0,
    /// A place outside of its buffer.
    ET_OUT_OF_BOUNDS = 1,
    /// An address or length is not a multiple of what the device needs.
    ET_MISALIGNED = 2,
    /// An access of a width that the device does not have.
    ET_BAD_WIDTH = 3,
    /// More than is ever possible.
    ET_TOO_LARGE = 4,
    /// Arguments that make no sense, or belong to another device.
    ET_INVALID = 5,
    /// The device cannot do this.
    ET_UNSUPPORTED = 6,
    /// From before a reset of the device.
    ET_STALE = 7,
    /// The process may not do this.
    ET_PERMISSION = 8,
    /// In use; trying again can succeed.
    ET_BUSY = 9,
    /// No host memory, or no right to pin more of it.
    ET_NO_HOST_MEMORY = 10,
    /// No device memory.
    ET_NO_DEVICE_MEMORY = 11,
    /// No bus addresses.
    ET_NO_BUS_ADDRESSES = 12,
    /// No file descriptors, interrupt vectors or the like.
    ET_NO_HANDLES = 13,
    /// Time ran out. What was waited for goes on.
    ET_TIMEOUT = 14,
    /// The device broke the protocol.
    ET_PROTOCOL = 15,
    /// The cores must be reset, see `et_device_reset_compute`.
    ET_NEEDS_COMPUTE_RESET = 16,
    /// The device must be reset, see `et_device_reset`.
    ET_NEEDS_RESET = 17,
    /// The device is gone.
    ET_LOST = 18,
    /// The device was closed.
    ET_CLOSED = 19,
    /// Something else; the message says what.
    ET_OTHER = 20,
    /// The device failed a copy.
    ET_COPY_FAILED = 30,
    /// The device refused or failed a launch; `et_event_failure` has the details.
    ET_LAUNCH_FAILED = 31,
    /// The device refused a command.
    ET_REFUSED = 32,
    /// The operation was aborted. A kernel that had begun ends with `ET_LAUNCH_FAILED`, since it
    /// has a report.
    ET_ABORTED = 33,
    /// A task of a graph failed.
    ET_TASK_FAILED = 40,
    /// The run of a graph was cancelled, or its deadline passed.
    ET_CANCELLED = 41,
    /// A pointer that must not be null is null.
    ET_NULL_POINTER = 64,
    /// The handle is 0, was freed, or never was one.
    ET_BAD_HANDLE = 65,
    /// The handle is of another kind.
    ET_WRONG_KIND = 66,
    /// The operation has not ended.
    ET_NOT_READY = 67,
    /// The buffer of the caller is too small for the text.
    ET_BUFFER_TOO_SMALL = 68,
    /// The `size` of a struct is none that any version of the library had, or is from a newer
    /// version and asks for something that this one does not have.
    ET_BAD_STRUCT_SIZE = 69,
    /// The header is of another version than the library.
    ET_ABI_MISMATCH = 70,
    /// A text is not UTF-8.
    ET_NOT_UTF8 = 71,
    /// The call may wait, and was made in a callback, which must not.
    ET_IN_CALLBACK = 72,
    /// A file could not be read or written.
    ET_FILE = 73,
    /// `et_init` was not called.
    ET_NOT_INITIALISED = 74,
    /// A defect of the library; please report it.
    ET_INTERNAL = 127,
}

use et_status::{
    ET_ABI_MISMATCH, ET_ABORTED, ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_BAD_WIDTH,
    ET_BUFFER_TOO_SMALL, ET_BUSY, ET_CANCELLED, ET_CLOSED, ET_COPY_FAILED, ET_FILE, ET_IN_CALLBACK,
    ET_INTERNAL, ET_INVALID, ET_LAUNCH_FAILED, ET_LOST, ET_MISALIGNED, ET_NEEDS_COMPUTE_RESET,
    ET_NEEDS_RESET, ET_NO_BUS_ADDRESSES, ET_NO_DEVICE_MEMORY, ET_NO_HANDLES, ET_NO_HOST_MEMORY,
    ET_NOT_INITIALISED, ET_NOT_READY, ET_NOT_UTF8, ET_NULL_POINTER, ET_OK, ET_OTHER,
    ET_OUT_OF_BOUNDS, ET_PERMISSION, ET_PROTOCOL, ET_REFUSED, ET_STALE, ET_TASK_FAILED, ET_TIMEOUT,
    ET_TOO_LARGE, ET_UNSUPPORTED, ET_WRONG_KIND,
};

/// Every code with its name.
const NAMES: [(et_status, &CStr); 39] = [
    (ET_OK, c"ET_OK"),
    (ET_OUT_OF_BOUNDS, c"ET_OUT_OF_BOUNDS"),
    (ET_MISALIGNED, c"ET_MISALIGNED"),
    (ET_BAD_WIDTH, c"ET_BAD_WIDTH"),
    (ET_TOO_LARGE, c"ET_TOO_LARGE"),
    (ET_INVALID, c"ET_INVALID"),
    (ET_UNSUPPORTED, c"ET_UNSUPPORTED"),
    (ET_STALE, c"ET_STALE"),
    (ET_PERMISSION, c"ET_PERMISSION"),
    (ET_BUSY, c"ET_BUSY"),
    (ET_NO_HOST_MEMORY, c"ET_NO_HOST_MEMORY"),
    (ET_NO_DEVICE_MEMORY, c"ET_NO_DEVICE_MEMORY"),
    (ET_NO_BUS_ADDRESSES, c"ET_NO_BUS_ADDRESSES"),
    (ET_NO_HANDLES, c"ET_NO_HANDLES"),
    (ET_TIMEOUT, c"ET_TIMEOUT"),
    (ET_PROTOCOL, c"ET_PROTOCOL"),
    (ET_NEEDS_COMPUTE_RESET, c"ET_NEEDS_COMPUTE_RESET"),
    (ET_NEEDS_RESET, c"ET_NEEDS_RESET"),
    (ET_LOST, c"ET_LOST"),
    (ET_CLOSED, c"ET_CLOSED"),
    (ET_OTHER, c"ET_OTHER"),
    (ET_COPY_FAILED, c"ET_COPY_FAILED"),
    (ET_LAUNCH_FAILED, c"ET_LAUNCH_FAILED"),
    (ET_REFUSED, c"ET_REFUSED"),
    (ET_ABORTED, c"ET_ABORTED"),
    (ET_TASK_FAILED, c"ET_TASK_FAILED"),
    (ET_CANCELLED, c"ET_CANCELLED"),
    (ET_NULL_POINTER, c"ET_NULL_POINTER"),
    (ET_BAD_HANDLE, c"ET_BAD_HANDLE"),
    (ET_WRONG_KIND, c"ET_WRONG_KIND"),
    (ET_NOT_READY, c"ET_NOT_READY"),
    (ET_BUFFER_TOO_SMALL, c"ET_BUFFER_TOO_SMALL"),
    (ET_BAD_STRUCT_SIZE, c"ET_BAD_STRUCT_SIZE"),
    (ET_ABI_MISMATCH, c"ET_ABI_MISMATCH"),
    (ET_NOT_UTF8, c"ET_NOT_UTF8"),
    (ET_IN_CALLBACK, c"ET_IN_CALLBACK"),
    (ET_FILE, c"ET_FILE"),
    (ET_NOT_INITIALISED, c"ET_NOT_INITIALISED"),
    (ET_INTERNAL, c"ET_INTERNAL"),
];

/// Version of this interface: the major number in the upper half, the minor one in the lower. A
/// program runs with libraries of the same major and at least the same minor number.
pub const ET_ABI_VERSION: u32 = 1;

/// A wait without an end, in nanoseconds.
pub const ET_FOREVER: u64 = u64::MAX;

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// To be called first, with `ET_ABI_VERSION`: checks that header and library fit. May be called any
/// number of times.
///
/// `ET_ABI_MISMATCH` names both versions.
#[unsafe(no_mangle)]
pub extern "C" fn et_init(abi_version: u32) -> et_status {
    guard(|| {
        let parts = |version: u32| (version >> 16, version & 0xffff);
        let ((major, minor), (our_major, our_minor)) = (parts(abi_version), parts(ET_ABI_VERSION));
        if major != our_major || minor > our_minor {
            return Err(Failure::new(
                ET_ABI_MISMATCH,
                format!(
                    "the program was built for interface {major}.{minor}, the library has \
                     {our_major}.{our_minor}"
                ),
            ));
        }
        // Relaxed: a flag that guards no data.
        INITIALISED.store(true, Ordering::Relaxed);
        et::log::to_stderr_if_asked();
        Ok(())
    })
}

pub(crate) fn initialised() -> Result<(), Failure> {
    if INITIALISED.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(Failure::new(ET_NOT_INITIALISED, "call et_init(ET_ABI_VERSION) first"))
}

/// Returns the version of the interface that the library has.
#[unsafe(no_mangle)]
pub extern "C" fn et_abi_version() -> u32 {
    ET_ABI_VERSION
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn et_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the name of a status code, such as `ET_TIMEOUT`; of other numbers `unknown`.
#[unsafe(no_mangle)]
pub extern "C" fn et_status_name(status: i32) -> *const c_char {
    let known = NAMES.iter().find(|(code, _)| *code as i32 == status);
    known.map_or(c"unknown", |(_, name)| name).as_ptr()
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last call of this thread that failed, with all causes; empty if none
/// did. Valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn et_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A failed call: its code and message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: et_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: et_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Of an error with its causes.
    pub(crate) fn of(status: et_status, error: &dyn std::error::Error) -> Self {
        Self::new(status, et::Report(error).to_string())
    }

    /// Leaves the message to `et_last_error`.
    pub(crate) fn report(self) -> et_status {
        let mut bytes = self.message.into_bytes();
        bytes.retain(|&byte| byte != 0);
        let text = CString::new(bytes).unwrap_or_default();
        // A thread that ends has no place for it any more.
        let _ = LAST.try_with(|last| last.replace(text));
        self.status
    }
}

fn of_kind(kind: ErrorKind) -> et_status {
    match kind {
        ErrorKind::OutOfBounds => ET_OUT_OF_BOUNDS,
        ErrorKind::Misaligned => ET_MISALIGNED,
        ErrorKind::BadWidth => ET_BAD_WIDTH,
        ErrorKind::TooLarge => ET_TOO_LARGE,
        ErrorKind::Invalid => ET_INVALID,
        ErrorKind::Unsupported => ET_UNSUPPORTED,
        ErrorKind::Stale => ET_STALE,
        ErrorKind::Permission => ET_PERMISSION,
        ErrorKind::Busy => ET_BUSY,
        ErrorKind::Exhausted(Resource::HostMemory) => ET_NO_HOST_MEMORY,
        ErrorKind::Exhausted(Resource::DeviceMemory) => ET_NO_DEVICE_MEMORY,
        ErrorKind::Exhausted(Resource::BusAddresses) => ET_NO_BUS_ADDRESSES,
        ErrorKind::Exhausted(_) => ET_NO_HANDLES,
        ErrorKind::Timeout => ET_TIMEOUT,
        ErrorKind::Protocol => ET_PROTOCOL,
        ErrorKind::NeedsReset(ResetScope::Compute) => ET_NEEDS_COMPUTE_RESET,
        ErrorKind::NeedsReset(_) => ET_NEEDS_RESET,
        ErrorKind::Lost(LossReason::Closed) => ET_CLOSED,
        ErrorKind::Lost(_) => ET_LOST,
        _ => ET_OTHER,
    }
}

pub(crate) fn status_of(error: &et::Error) -> et_status {
    match error {
        et::Error::Copy { .. } => ET_COPY_FAILED,
        et::Error::Launch(_) => ET_LAUNCH_FAILED,
        et::Error::Refused { .. } => ET_REFUSED,
        et::Error::Aborted { .. } | et::Error::AbortedWith { .. } => ET_ABORTED,
        other => of_kind(other.kind()),
    }
}

impl From<et::Error> for Failure {
    fn from(error: et::Error) -> Self {
        Self::of(status_of(&error), &error)
    }
}

impl From<et::LoadError> for Failure {
    fn from(error: et::LoadError) -> Self {
        Self::of(of_kind(error.kind()), &error)
    }
}

impl From<et::OpenError> for Failure {
    fn from(error: et::OpenError) -> Self {
        let status = match &error {
            et::OpenError::Locator(_) => ET_INVALID,
            #[cfg(feature = "sim")]
            et::OpenError::Sim(error) => of_kind(error.kind()),
            #[cfg(feature = "vfio")]
            et::OpenError::Vfio { source, .. } => of_kind(source.kind()),
            et::OpenError::Device(error) => of_kind(error.kind()),
            _ => ET_OTHER,
        };
        Self::of(status, &error)
    }
}

impl From<et::graph::GraphError> for Failure {
    fn from(error: et::graph::GraphError) -> Self {
        Self::of(ET_INVALID, &error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let status = match &error {
            RunError::TaskFailed { .. } => ET_TASK_FAILED,
            RunError::Cancelled { .. } | RunError::Deadline { .. } => ET_CANCELLED,
            RunError::NeedsDevice { .. }
            | RunError::OtherDevice
            | RunError::NoSuchWorker { .. }
            | RunError::TooManyParts { .. } => ET_INVALID,
            RunError::NoCpuAccess | RunError::Unsupported { .. } => ET_UNSUPPORTED,
            RunError::DeviceFull { .. } => ET_NO_DEVICE_MEMORY,
            RunError::Device(error) => status_of(error),
            RunError::Closed { .. } => ET_CLOSED,
            RunError::Timeout { .. } => ET_TIMEOUT,
            _ => ET_OTHER,
        };
        Self::of(status, &error)
    }
}

/// The code for why a task failed.
pub(crate) fn status_of_task(failure: &TaskFailure) -> et_status {
    match failure.cause() {
        TaskFailure::Device(error) => status_of(error),
        TaskFailure::Returned { .. } | TaskFailure::Trapped { .. } => ET_LAUNCH_FAILED,
        TaskFailure::Deadline { .. } => ET_TIMEOUT,
        TaskFailure::WorkerLost { .. } => ET_LOST,
        _ => ET_TASK_FAILED,
    }
}
