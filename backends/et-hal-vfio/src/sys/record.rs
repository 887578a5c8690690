//! The kernel's structures as bytes.

/// iommufd's question for ranges: bytes, and where the number and the address of the array are. The
/// array follows directly in the same record.
pub(crate) const IOAS_RANGES_BYTES: usize = 32;
pub(crate) const IOAS_RANGES_COUNT: usize = 8;
pub(crate) const IOAS_RANGES_ARRAY: usize = 16;
/// Bytes of a range: first and last address.
pub(crate) const IOVA_RANGE_BYTES: usize = 16;

/// Longest structure a kernel is believed to send.
const MAX_BYTES: usize = 1 << 20;

/// A structure for an `ioctl`: bytes that begin with their own length, read and written at the
/// offsets of the bindings.
///
/// What the kernel points to inside it is looked at only after a check, so reads outside give 0.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Creates a structure of zeros that begins with its length, as both interfaces want it.
    pub(crate) fn new(len: usize) -> Self {
        let mut record = Self(vec![0; len]);
        record.put_u32(0, u32::try_from(len).unwrap_or(u32::MAX));
        record
    }

    /// Creates a structure without length.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns the structure with another length; `None` if it is unreasonable.
    pub(crate) fn resized(mut self, len: usize) -> Option<Self> {
        if len > MAX_BYTES {
            return None;
        }
        self.0.resize(len, 0);
        self.put_u32(0, u32::try_from(len).ok()?);
        Some(self)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.0.len())
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let end = at.saturating_add(N);
        self.0.get(at..end).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({} bytes)", self.0.len())
    }
}
