//! Kernel arguments.

use et_hal::DeviceAddr;

/// Builds the arguments of a kernel as a C compiler lays out a struct: each value at a multiple of
/// its size, the whole a multiple of the largest alignment, everything little-endian, gaps zero.
///
/// # Examples
/// The arguments `struct { float *values; uint32_t count; uint64_t seed; }`:
/// ```
/// use et_hal::DeviceAddr;
/// use et_runtime::KernelArgs;
///
/// let args = KernelArgs::new().addr(DeviceAddr::new(0x80_0600_0000)).u32(100).u64(7);
/// assert_eq!(args.len(), 24);
/// assert_eq!(args.as_bytes()[8..16], [100, 0, 0, 0, 0, 0, 0, 0]);
/// ```
///
/// Spec: §9.1
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelArgs {
    /// Always padded.
    bytes: Vec<u8>,
    /// Bytes up to the end of the last value.
    used: usize,
    /// Largest alignment so far, in bytes.
    align: usize,
}

impl Default for KernelArgs {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(self, value: $type) -> Self {
            self.bytes(&value.to_le_bytes(), size_of::<$type>())
        }
    )*};
}

impl KernelArgs {
    /// Makes empty arguments.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), used: 0, align: 1 }
    }

    number! {
        /// Appends a `uint8_t`.
        u8: u8,
        /// Appends a `uint16_t`.
        u16: u16,
        /// Appends a `uint32_t`.
        u32: u32,
        /// Appends a `uint64_t`.
        u64: u64,
        /// Appends an `int8_t`.
        i8: i8,
        /// Appends an `int16_t`.
        i16: i16,
        /// Appends an `int32_t`.
        i32: i32,
        /// Appends an `int64_t`.
        i64: i64,
        /// Appends a `float`.
        f32: f32,
        /// Appends a `double`. The minions have no instructions for it.
        f64: f64,
    }

    /// Appends a pointer to device memory.
    #[must_use]
    pub fn addr(self, address: DeviceAddr) -> Self {
        self.u64(address.as_u64())
    }

    /// Appends bytes at a multiple of `align` bytes, such as a nested struct or an array.
    ///
    /// # Panics
    /// If `align` is not a power of two, or above 4096, the alignment at which arguments are
    /// placed.
    #[must_use]
    pub fn bytes(mut self, value: &[u8], align: usize) -> Self {
        assert!(
            align.is_power_of_two() && align <= 4096,
            "alignment {align} is not a power of two up to 4096"
        );
        self.align = self.align.max(align);
        let start = self.used.next_multiple_of(align);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(value);
        self.used = self.bytes.len();
        self.bytes.resize(self.used.next_multiple_of(self.align), 0);
        self
    }

    /// Returns the arguments as the kernel sees them, padding included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length in bytes, padding included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if there are no arguments.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_a_c_compiler_puts_them() {
        let args = KernelArgs::new().u8(1).u16(2).u8(3).u32(4).u8(5).u64(6).u8(7);
        let mut expected = vec![0; 40];
        for (at, value) in [(0, 1), (2, 2), (4, 3), (8, 4), (12, 5), (16, 6), (24, 7)] {
            expected[at] = value;
        }
        expected.truncate(32);
        assert_eq!(args.as_bytes(), expected);
        assert_eq!(args.len(), 32);
    }

    #[test]
    fn every_type_is_little_endian() {
        let args = KernelArgs::new()
            .i8(-1)
            .i16(-2)
            .i32(-3)
            .i64(-4)
            .f32(1.5)
            .f64(-2.5)
            .addr(DeviceAddr::new(0x80_0580_1000));
        let bytes = args.as_bytes();
        assert_eq!(bytes[..8], [0xff, 0, 0xfe, 0xff, 0xfd, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[8..16], (-4i64).to_le_bytes());
        assert_eq!(bytes[16..20], 1.5f32.to_le_bytes());
        assert_eq!(bytes[24..32], (-2.5f64).to_le_bytes());
        assert_eq!(bytes[32..], 0x80_0580_1000u64.to_le_bytes());
    }

    #[test]
    fn the_end_is_padded_to_the_largest_alignment() {
        assert_eq!(KernelArgs::new().u64(1).u8(2).len(), 16);
        assert_eq!(KernelArgs::new().u32(1).u8(2).len(), 8);
        assert_eq!(KernelArgs::new().bytes(&[1, 2, 3], 1).len(), 3);
        let aligned = KernelArgs::new().u8(9).bytes(&[1; 5], 64);
        assert_eq!(aligned.len(), 128);
        assert_eq!(aligned.as_bytes()[64..69], [1; 5]);
    }

    #[test]
    fn padding_is_used_by_the_next_value() {
        assert_eq!(KernelArgs::new().u64(1).u8(2).u32(3).len(), 16);
    }

    #[test]
    fn no_arguments_are_no_bytes() {
        assert!(KernelArgs::new().is_empty());
        assert!(!KernelArgs::new().u8(0).is_empty());
        assert_eq!(KernelArgs::default(), KernelArgs::new());
    }

    #[test]
    #[should_panic(expected = "alignment 3 is not a power of two")]
    fn an_alignment_that_no_type_has_is_a_mistake() {
        let _ = KernelArgs::new().bytes(&[], 3);
    }
}
