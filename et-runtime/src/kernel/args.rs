//! Argument blocks.

use et_hal::DeviceAddr;

/// The arguments of a kernel, laid out as a C struct: each at its natural alignment.
///
/// ```
/// use et_runtime::KernelArgs;
/// let args = KernelArgs::new().u32(7).u64(8).f32(1.0);
/// assert_eq!(args.as_bytes().len(), 24);
/// assert_eq!(args.as_bytes()[8], 8);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct KernelArgs {
    /// Padded to `align`, as C pads a struct.
    bytes: Vec<u8>,
    /// Bytes without that padding.
    used: usize,
    align: usize,
}

impl Default for KernelArgs {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! scalars {
    ($($name:ident)*) => {$(
        #[doc = concat!("Adds a `", stringify!($name), "`.")]
        pub fn $name(self, value: $name) -> Self {
            self.bytes(&value.to_le_bytes(), size_of::<$name>())
        }
    )*};
}

impl KernelArgs {
    /// No arguments.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), used: 0, align: 1 }
    }

    scalars!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

    /// Adds a pointer.
    pub fn addr(self, addr: DeviceAddr) -> Self {
        self.u64(addr.as_u64())
    }

    /// Adds bytes at a multiple of `align`, which is rounded up to a power of two.
    pub fn bytes(mut self, bytes: &[u8], align: usize) -> Self {
        let align = align.max(1).next_power_of_two();
        self.bytes.resize(self.used.next_multiple_of(align), 0);
        self.bytes.extend_from_slice(bytes);
        self.used = self.bytes.len();
        self.align = self.align.max(align);
        self.bytes.resize(self.used.next_multiple_of(self.align), 0);
        self
    }

    /// Returns the block.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length of the block in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Tells whether there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_c_layout() {
        let args = KernelArgs::new().u8(1).u16(2).u64(3).u8(4);
        let mut expected = vec![1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4];
        expected.resize(24, 0);
        assert_eq!(args.as_bytes(), expected);
    }

    #[test]
    fn a_narrow_field_after_a_wide_one_uses_its_padding() {
        let args = KernelArgs::new().u64(1).u32(2).u32(3);
        assert_eq!(args.len(), 16);
        assert_eq!(args.as_bytes()[12], 3);
    }
}
