//! What tasks read and write.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::sync::{Mutex, MutexGuard, lock};

use crate::memory::{DeviceBuffer, DeviceSlice};

/// Bytes on the host that copies of a graph read or write. Clones are the same bytes; the length is
/// fixed.
#[derive(Clone)]
pub struct HostData {
    inner: Arc<HostBytes>,
}

struct HostBytes {
    /// Also for those who must not wait for the lock.
    len: usize,
    bytes: Mutex<Vec<u8>>,
}

impl fmt::Debug for HostData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostData").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl HostData {
    /// Takes over `bytes`.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { inner: Arc::new(HostBytes { len: bytes.len(), bytes: Mutex::new(bytes) }) }
    }

    /// Makes `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` with the bytes. Waits for a copy or another caller that uses them; `look` must
    /// not use the same data again.
    pub fn with<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&lock_bytes(&self.inner.bytes))
    }

    /// Calls `change` with the bytes. As [`with`](Self::with).
    pub fn with_mut<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut lock_bytes(&self.inner.bytes))
    }

    /// Returns a copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.with(<[u8]>::to_vec)
    }

    fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }
}

/// Bytes stay usable when a closure panicked: they are only bytes.
fn lock_bytes(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    lock(bytes)
}

/// Something that tasks share and that is not device memory, such as an array on the host or a
/// file: a range of units of the caller's choice, so that its tasks are ordered like those that
/// share a buffer. Clones are the same resource.
///
/// ```
/// use et_runtime::graph::Resource;
///
/// let rows = Resource::new(1000);
/// let first_half = rows.range(0..500);
/// ```
#[derive(Clone, Debug)]
pub struct Resource {
    len: Arc<u64>,
}

impl Resource {
    /// Makes a resource of `len_units` units, distinct from every other.
    #[must_use]
    pub fn new(len_units: u64) -> Self {
        Self { len: Arc::new(len_units) }
    }

    /// Returns the length in units.
    #[must_use]
    pub fn len_units(&self) -> u64 {
        *self.len
    }

    /// Returns a part of it. Whether it is inside is checked when a task uses it.
    #[must_use]
    pub fn range(&self, units: Range<u64>) -> Region {
        Region(Kind::Resource { resource: self.clone(), start: units.start, end: units.end })
    }

    fn id(&self) -> usize {
        Arc::as_ptr(&self.len).addr()
    }
}

/// A range of device memory, of host data or of a [`Resource`]; keeps it alive. An empty one
/// overlaps nothing.
#[derive(Clone, Debug)]
pub struct Region(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Device(DeviceSlice),
    Host(HostData),
    Resource { resource: Resource, start: u64, end: u64 },
}

impl From<&DeviceBuffer> for Region {
    fn from(buffer: &DeviceBuffer) -> Self {
        Self(Kind::Device(buffer.whole()))
    }
}

impl From<&DeviceSlice> for Region {
    fn from(slice: &DeviceSlice) -> Self {
        Self(Kind::Device(slice.clone()))
    }
}

impl From<DeviceSlice> for Region {
    fn from(slice: DeviceSlice) -> Self {
        Self(Kind::Device(slice))
    }
}

impl From<&HostData> for Region {
    fn from(data: &HostData) -> Self {
        Self(Kind::Host(data.clone()))
    }
}

impl From<&Resource> for Region {
    fn from(resource: &Resource) -> Self {
        resource.range(0..resource.len_units())
    }
}

impl Region {
    pub(super) fn bounds(&self) -> Range<u64> {
        match &self.0 {
            Kind::Device(slice) => {
                let start = slice.addr().as_u64();
                start..start + slice.len_bytes()
            }
            Kind::Host(data) => 0..data.len() as u64,
            Kind::Resource { start, end, .. } => *start..*end,
        }
    }

    /// What tells spaces apart: the address of what the region keeps alive.
    pub(super) fn space_id(&self) -> usize {
        match &self.0 {
            Kind::Device(slice) => slice.allocation_id(),
            Kind::Host(data) => data.id(),
            Kind::Resource { resource, .. } => resource.id(),
        }
    }

    /// Returns `true` if the two have bytes or units in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.bounds(), other.bounds());
        let is_same_space = self.space_id() == other.space_id();
        is_same_space && ours.start.max(theirs.start) < ours.end.min(theirs.end)
    }

    pub(super) fn device(&self) -> Option<&DeviceSlice> {
        match &self.0 {
            Kind::Device(slice) => Some(slice),
            _ => None,
        }
    }

    pub(super) fn host(&self) -> Option<&HostData> {
        match &self.0 {
            Kind::Host(data) => Some(data),
            _ => None,
        }
    }

    /// Returns the length of the resource if the region is not inside it.
    pub(super) fn outside_of(&self) -> Option<u64> {
        match &self.0 {
            Kind::Resource { resource, start, end } => {
                let len = resource.len_units();
                (start > end || *end > len).then_some(len)
            }
            // Slices are checked when they are made.
            _ => None,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match &self.0 {
            Kind::Device(_) => "device",
            Kind::Host(_) => "host",
            Kind::Resource { .. } => "resource",
        }
    }
}
