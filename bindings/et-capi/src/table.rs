//! Handles: numbers that are looked up, so that a wrong one is an error and nothing worse.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
/// Generations end here; a place that has had so many is not used again.
const LAST_GENERATION: u32 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;

/// A handle, and where its values are.
pub(crate) trait Handle: Copy {
    const KIND: u8;
    type Value: Clone + Send + 'static;
    fn table() -> &'static Table<Self::Value>;
    fn id(self) -> u64;
    fn of(id: u64) -> Self;
}

/// Implements [`Handle`] with a table of its own.
macro_rules! handle {
    ($name:ident, $kind:literal, $value:ty) => {
        impl $crate::table::Handle for $name {
            const KIND: u8 = $kind;
            type Value = $value;
            fn table() -> &'static $crate::table::Table<$value> {
                static TABLE: $crate::table::Table<$value> = $crate::table::Table::new();
                &TABLE
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

/// The values behind the handles of one kind.
pub(crate) struct Table<T>(Mutex<Slots<T>>);

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    /// From 1 on.
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Slots { slots: Vec::new(), free: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        // Nothing in here panics with the table half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    fn insert(&mut self, value: T) -> Option<(u32, u32)> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Some((index, slot.generation));
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot { generation: 1, value: Some(value) });
        Some((index, 1))
    }

    fn find(&mut self, index: u32, generation: u32) -> Option<&mut Option<T>> {
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == generation && slot.value.is_some()).then_some(&mut slot.value)
    }

    fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        let value = self.find(index, generation)?.take();
        let slot = &mut self.slots[index as usize];
        if slot.generation < LAST_GENERATION {
            slot.generation += 1;
            self.free.push(index);
        }
        value
    }
}

/// Makes a handle for a value.
pub(crate) fn insert<H: Handle>(value: H::Value) -> Result<H, Failure> {
    let Some((index, generation)) = H::table().lock().insert(value) else {
        return Err(Failure::new(et_status::ET_NO_HANDLES, "there are 2^32 handles"));
    };
    let id = u64::from(H::KIND) << KIND_SHIFT
        | u64::from(generation) << GENERATION_SHIFT
        | u64::from(index);
    Ok(H::of(id))
}

/// Returns what a handle stands for.
pub(crate) fn get<H: Handle>(handle: H) -> Result<H::Value, Failure> {
    let (index, generation) = parts(handle)?;
    let found = H::table().lock().find(index, generation).and_then(|value| value.clone());
    found.ok_or_else(|| was_freed(handle))
}

/// Returns what a handle stands for, which is none after that.
pub(crate) fn remove<H: Handle>(handle: H) -> Result<H::Value, Failure> {
    let (index, generation) = parts(handle)?;
    // Dropped by the caller, not under the lock.
    let found = H::table().lock().remove(index, generation);
    found.ok_or_else(|| was_freed(handle))
}

fn parts<H: Handle>(handle: H) -> Result<(u32, u32), Failure> {
    let id = handle.id();
    let wanted = KINDS[usize::from(H::KIND)];
    if id == 0 {
        return Err(Failure::new(et_status::ET_BAD_HANDLE, format!("the {wanted} is 0")));
    }
    let kind = id >> KIND_SHIFT;
    if kind != u64::from(H::KIND) {
        let known = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind));
        let (status, found) = match known {
            Some(&found) if kind != 0 => (et_status::ET_WRONG_KIND, found),
            _ => (et_status::ET_BAD_HANDLE, "no handle"),
        };
        return Err(Failure::new(status, format!("{id:#x} is {found}, not an {wanted}")));
    }
    let low = |bits: u64| u32::try_from(bits).unwrap_or_default();
    let generation = id >> GENERATION_SHIFT & u64::from(LAST_GENERATION);
    Ok((low(id & u64::from(u32::MAX)), low(generation)))
}

fn was_freed<H: Handle>(handle: H) -> Failure {
    let (id, kind) = (handle.id(), KINDS[usize::from(H::KIND)]);
    Failure::new(et_status::ET_BAD_HANDLE, format!("{kind} {id:#x} was freed or never existed"))
}
