//! One type for each address space, so that two of them cannot be mixed up.

use core::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// Creates the address from its number.
            #[must_use]
            pub const fn new(address: u64) -> Self {
                Self(address)
            }

            /// Returns the address as a number.
            #[must_use]
            pub const fn as_u64(self) -> u64 {
                self.0
            }

            /// Adds a distance in bytes; `None` if the sum does not fit 64 bits.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// Returns the distance in bytes from `base` up to `self`; `None` if `self` is below.
            #[must_use]
            pub const fn checked_offset_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }

            /// Returns `true` if the address is a multiple of `bytes`, which must not be 0.
            #[must_use]
            pub const fn is_aligned_to(self, bytes: u64) -> bool {
                self.0 % bytes == 0
            }
        }

        impl From<u64> for $name {
            fn from(address: u64) -> Self {
                Self(address)
            }
        }

        impl From<$name> for u64 {
            fn from(address: $name) -> Self {
                address.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// An address inside the device, as its own cores and its DMA engine use it.
    DeviceAddr
}
address! {
    /// An address on the bus: what the device's DMA engine puts out to reach host memory
    /// (an IOVA behind an IOMMU, a physical address without one).
    BusAddr
}
address! {
    /// An offset in bytes from the start of a BAR.
    BarOffset
}

/// The index of a base address register, 0 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bar(u8);

impl Bar {
    /// Creates the index; `None` above 5, the last register of a PCI function.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        if index <= 5 { Some(Self(index)) } else { None }
    }

    /// Returns the index.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BAR{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_arithmetic_is_checked() {
        assert_eq!(DeviceAddr::new(1).checked_add(2), Some(DeviceAddr::new(3)));
        assert_eq!(DeviceAddr::new(u64::MAX).checked_add(1), None);
        assert_eq!(BusAddr::new(7).checked_offset_from(BusAddr::new(3)), Some(4));
        assert_eq!(BusAddr::new(3).checked_offset_from(BusAddr::new(7)), None);
        assert!(BarOffset::new(64).is_aligned_to(64) && !BarOffset::new(65).is_aligned_to(2));
    }

    #[test]
    fn a_function_has_six_bars() {
        assert_eq!(Bar::new(5).map(Bar::index), Some(5));
        assert_eq!(Bar::new(6), None);
    }
}
