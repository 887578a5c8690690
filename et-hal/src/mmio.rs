//! Windows on device registers and device memory.

use crate::{BarOffset, ErrorType};

/// The width of one register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 8 bits.
    W8,
    /// 16 bits.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl Width {
    /// Returns the width in bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::W8 => 1,
            Self::W16 => 2,
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }

    /// Returns the width of that many bytes; `None` unless 1, 2, 4 or 8.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            1 => Some(Self::W8),
            2 => Some(Self::W16),
            4 => Some(Self::W32),
            8 => Some(Self::W64),
            _ => None,
        }
    }

    /// Returns the largest value a register of this width holds.
    #[must_use]
    pub const fn max_value(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// A set of access widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Widths(u8);

impl Widths {
    /// All four widths.
    pub const ALL: Self = Self(0b1111);

    /// Creates the set of one width.
    #[must_use]
    pub const fn only(width: Width) -> Self {
        Self(1 << width as u8)
    }

    /// Returns the set with `width` added.
    #[must_use]
    pub const fn with(self, width: Width) -> Self {
        Self(self.0 | 1 << width as u8)
    }

    /// Returns `true` if the set has `width`.
    #[must_use]
    pub const fn contains(self, width: Width) -> bool {
        self.0 & (1 << width as u8) != 0
    }
}

/// How an access reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessPath {
    /// By the processor's own loads and stores.
    Direct,
    /// By a system call or message for each access: expensive, batch them.
    Trapped,
}

/// A window on a BAR.
///
/// Access is by offset and always checked. How it is made (volatile for a BAR, atomic for a
/// simulator in this process) is the backend's business.
///
/// # For driver authors
///
/// Ring indices go through [`load_acquire_u64`](Mmio::load_acquire_u64) and
/// [`store_release_u64`](Mmio::store_release_u64); bulk data through the byte copies, and only
/// while the protocol says that this side owns it. Registers with side effects through `read` and
/// `write`.
///
/// # For HAL authors
///
/// An access of legal width at an aligned offset MUST be made exactly once, unsplit. Byte copies
/// MAY be split in any way, but MUST touch no byte outside the range. A window of an older
/// generation answers [`ErrorKind::Stale`](crate::ErrorKind::Stale).
pub trait Mmio: ErrorType {
    /// Returns the length of the window in bytes.
    fn len_bytes(&self) -> u64;

    /// Returns the widths [`read`](Mmio::read) and [`write`](Mmio::write) accept.
    fn widths(&self) -> Widths;

    /// Returns how accesses to `len` bytes reach the device: the slower way, if parts of the range
    /// differ.
    fn path(&self, at: BarOffset, len: u64) -> AccessPath;

    /// Reads one register; the value is zero-extended.
    ///
    /// # Errors
    /// `OutOfBounds`; `Misaligned` unless `at` is a multiple of the width; `BadWidth`; `Stale`;
    /// `Lost`.
    fn read(&self, at: BarOffset, width: Width) -> Result<u64, Self::Error>;

    /// Writes one register.
    ///
    /// # Errors
    /// As [`read`](Mmio::read); `TooLarge` if `value` does not fit the width.
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), Self::Error>;

    /// Copies bytes out of the window.
    ///
    /// # Errors
    /// `OutOfBounds`, with `into` unchanged; `Stale`; `Lost`.
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Copies bytes into the window.
    ///
    /// # Errors
    /// `OutOfBounds`, with nothing written; `Stale`; `Lost`.
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), Self::Error>;

    /// Loads `at` before every later access through this window.
    ///
    /// # Errors
    /// `OutOfBounds`; `Misaligned` unless `at` is a multiple of 8; `Stale`; `Lost`.
    ///
    /// # Ordering
    /// Acquire; pairs with the release store on the other side.
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, Self::Error>;

    /// Stores `value` after every earlier write through this window.
    ///
    /// # Errors
    /// As [`load_acquire_u64`](Mmio::load_acquire_u64).
    ///
    /// # Ordering
    /// Release; pairs with the acquire load on the other side.
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), Self::Error>;

    /// Returns when every earlier write has reached the device (on a bus: by reading back).
    ///
    /// # Errors
    /// `Stale`; `Lost`.
    fn flush(&self) -> Result<(), Self::Error>;
}

const _: fn(&dyn Mmio<Error = crate::ErrorKind>) = |_| ();

macro_rules! forward {
    ($(#[$attr:meta])* $target:ty) => {
        $(#[$attr])*
        impl<T: Mmio + ?Sized> Mmio for $target {
            fn len_bytes(&self) -> u64 {
                T::len_bytes(self)
            }
            fn widths(&self) -> Widths {
                T::widths(self)
            }
            fn path(&self, at: BarOffset, len: u64) -> AccessPath {
                T::path(self, at, len)
            }
            fn read(&self, at: BarOffset, width: Width) -> Result<u64, Self::Error> {
                T::read(self, at, width)
            }
            fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), Self::Error> {
                T::write(self, at, width, value)
            }
            fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), Self::Error> {
                T::read_bytes(self, at, into)
            }
            fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), Self::Error> {
                T::write_bytes(self, at, from)
            }
            fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, Self::Error> {
                T::load_acquire_u64(self, at)
            }
            fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), Self::Error> {
                T::store_release_u64(self, at, value)
            }
            fn flush(&self) -> Result<(), Self::Error> {
                T::flush(self)
            }
        }
    };
}

forward!(&T);
forward!(&mut T);
forward!(
    #[cfg(feature = "alloc")]
    alloc::sync::Arc<T>
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_know_their_bytes_and_range() {
        for (width, bytes) in [(Width::W8, 1), (Width::W16, 2), (Width::W32, 4), (Width::W64, 8)] {
            assert_eq!(width.bytes(), bytes);
            assert_eq!(Width::from_bytes(bytes), Some(width));
            assert!(Widths::ALL.contains(width));
        }
        assert_eq!(Width::from_bytes(3), None);
        assert_eq!(Width::W16.max_value(), 0xffff);
        assert_eq!(Width::W64.max_value(), u64::MAX);
        let set = Widths::only(Width::W32).with(Width::W64);
        assert!(set.contains(Width::W64) && !set.contains(Width::W8));
    }
}
