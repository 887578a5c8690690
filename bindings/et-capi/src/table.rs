//! Handles: numbers that are looked up, so that a wrong one is an error and nothing worse.

use crate::slots::{Held, Key, LAST_GENERATION, Slots};
use crate::status::{Failure, et_status};

/// Names of the kinds, by the upper byte of their handles.
const KINDS: [&str; 25] = [
    "nothing",
    "et_device",
    "et_mem",
    "et_host_buffer",
    "et_stream",
    "et_event",
    "et_kernel",
    "et_launch",
    "et_failure",
    "et_error_list",
    "et_host_data",
    "et_graph_builder",
    "et_graph",
    "et_executor",
    "et_run",
    "et_task",
    "et_profile",
    "et_management",
    "et_statistics",
    "et_module",
    "et_mapping",
    "et_kernel_trace",
    "et_firmware_trace",
    "et_flow",
    "et_recovery",
];
const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 32;
const _: () = assert!(LAST_GENERATION < 1 << (KIND_SHIFT - GENERATION_SHIFT));

/// A handle, and where its values are.
pub(crate) trait Handle: Copy {
    const KIND: u8;
    type Value: Send + Sync + 'static;
    fn slots() -> &'static Slots<Self::Value>;
    fn id(self) -> u64;
    fn of(id: u64) -> Self;
}

/// Implements [`Handle`] with a table of its own.
macro_rules! handle {
    ($name:ident, $kind:literal, $value:ty) => {
        impl $crate::table::Handle for $name {
            const KIND: u8 = $kind;
            type Value = $value;
            fn slots() -> &'static $crate::slots::Slots<$value> {
                static SLOTS: $crate::slots::Slots<$value> = $crate::slots::Slots::new();
                &SLOTS
            }
            fn id(self) -> u64 {
                self.id
            }
            fn of(id: u64) -> Self {
                Self { id }
            }
        }
    };
}
pub(crate) use handle;

/// Makes a handle for a value.
pub(crate) fn insert<H: Handle>(value: H::Value) -> Result<H, Failure> {
    let Some(Key { index, generation }) = H::slots().insert(value) else {
        return Err(Failure::new(et_status::ET_NO_HANDLES, "there are 2^32 handles"));
    };
    let id = u64::from(H::KIND) << KIND_SHIFT
        | u64::from(generation) << GENERATION_SHIFT
        | u64::from(index);
    Ok(H::of(id))
}

/// Returns what a handle stands for. It stays until that is dropped, also if the handle is freed.
#[inline]
pub(crate) fn get<H: Handle>(handle: H) -> Result<Held<'static, H::Value>, Failure> {
    let found = key(handle).and_then(|key| H::slots().get(key));
    found.ok_or_else(|| wrong(handle))
}

/// Makes a handle stand for nothing.
#[inline]
pub(crate) fn remove<H: Handle>(handle: H) -> Result<(), Failure> {
    let found = key(handle).and_then(|key| H::slots().remove(key));
    found.ok_or_else(|| wrong(handle))
}

/// Returns what a handle stands for, which is none after that.
pub(crate) fn take<H: Handle>(handle: H) -> Result<Held<'static, H::Value>, Failure> {
    let value = get(handle)?;
    remove(handle)?;
    Ok(value)
}

/// Where the value of a handle would be, if it is one of its kind.
fn key<H: Handle>(handle: H) -> Option<Key> {
    let id = handle.id();
    let low = |bits: u64| u32::try_from(bits).unwrap_or_default();
    let generation = low(id >> GENERATION_SHIFT & u64::from(LAST_GENERATION));
    let key = Key { index: low(id & u64::from(u32::MAX)), generation };
    (id >> KIND_SHIFT == u64::from(H::KIND)).then_some(key)
}

/// Why a handle stands for nothing.
#[cold]
fn wrong<H: Handle>(handle: H) -> Failure {
    let (id, wanted) = (handle.id(), KINDS[usize::from(H::KIND)]);
    let kind = id >> KIND_SHIFT;
    let known = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind));
    let (status, why) = match known {
        _ if id == 0 => (et_status::ET_BAD_HANDLE, format!("the {wanted} is 0")),
        _ if kind == u64::from(H::KIND) => {
            (et_status::ET_BAD_HANDLE, format!("{wanted} {id:#x} was freed or never existed"))
        }
        Some(&found) if kind != 0 => {
            (et_status::ET_WRONG_KIND, format!("{id:#x} is {found}, not an {wanted}"))
        }
        _ => (et_status::ET_BAD_HANDLE, format!("{id:#x} is no handle, not an {wanted}")),
    };
    Failure::new(status, why)
}
