//! What every window checks before an access.

use core::fmt;

use crate::{BarOffset, Error, ErrorKind, Width};

/// An access that a window cannot make, whatever is behind it.
///
/// Windows make their checks with the functions here, in this order: the range, the alignment, the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// The range does not lie inside the window.
    OutOfBounds {
        /// First byte asked for.
        at: BarOffset,
        /// Bytes asked for.
        len: u64,
        /// Length of the window in bytes.
        window: u64,
    },
    /// The offset is not a multiple of the access width.
    Misaligned {
        /// Offset asked for.
        at: BarOffset,
        /// Width of the access.
        width: Width,
    },
    /// The access would be split on its way.
    BadWidth {
        /// Offset asked for.
        at: BarOffset,
        /// Width of the access.
        width: Width,
    },
    /// The value does not fit the access width.
    ValueTooLarge {
        /// Value to be written.
        value: u64,
        /// Width of the access.
        width: Width,
    },
}

impl AccessError {
    /// Checks a range against the length of its window.
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`] unless `at + len <= window`.
    #[inline]
    pub const fn check(at: BarOffset, len: u64, window: u64) -> Result<(), Self> {
        match at.as_u64().checked_add(len) {
            Some(end) if end <= window => Ok(()),
            _ => Err(Self::OutOfBounds { at, len, window }),
        }
    }

    /// Checks the place of a register.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`AccessError::Misaligned`].
    #[inline]
    pub const fn check_register(at: BarOffset, width: Width, window: u64) -> Result<(), Self> {
        if let Err(error) = Self::check(at, width.bytes(), window) {
            return Err(error);
        }
        if at.is_aligned_to(width.bytes()) { Ok(()) } else { Err(Self::Misaligned { at, width }) }
    }

    /// Checks a write to a register.
    ///
    /// # Errors
    /// As [`check_register`](Self::check_register); [`AccessError::ValueTooLarge`].
    #[inline]
    pub const fn check_write(
        at: BarOffset,
        width: Width,
        value: u64,
        window: u64,
    ) -> Result<(), Self> {
        if let Err(error) = Self::check_register(at, width, window) {
            return Err(error);
        }
        if value <= width.max_value() { Ok(()) } else { Err(Self::ValueTooLarge { value, width }) }
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { at, len, window } => {
                write!(f, "{len} bytes at offset {at} are outside the window of {window} bytes")
            }
            Self::Misaligned { at, width } => {
                write!(f, "offset {at} is not a multiple of {} bytes", width.bytes())
            }
            Self::BadWidth { at, width } => {
                write!(f, "no access of {} bytes at {at}: it would be split", width.bytes())
            }
            Self::ValueTooLarge { value, width } => {
                write!(f, "value {value:#x} does not fit {} bytes", width.bytes())
            }
        }
    }
}

impl core::error::Error for AccessError {}

impl Error for AccessError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfBounds { .. } => ErrorKind::OutOfBounds,
            Self::Misaligned { .. } => ErrorKind::Misaligned,
            Self::BadWidth { .. } => ErrorKind::BadWidth,
            Self::ValueTooLarge { .. } => ErrorKind::TooLarge,
        }
    }
}

impl From<AccessError> for ErrorKind {
    fn from(error: AccessError) -> Self {
        error.kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 0x4000;

    fn at(offset: u64) -> BarOffset {
        BarOffset::new(offset)
    }

    #[test]
    fn ranges_end_with_the_window() {
        let check = |offset, len| AccessError::check(at(offset), len, WINDOW);
        assert_eq!(check(0, WINDOW), Ok(()));
        assert_eq!(check(WINDOW, 0), Ok(()));
        assert_eq!(check(WINDOW - 1, 1), Ok(()));
        for (offset, len) in [(WINDOW, 1), (0, WINDOW + 1), (u64::MAX, 1), (1, u64::MAX)] {
            let (at, window) = (at(offset), WINDOW);
            assert_eq!(check(offset, len), Err(AccessError::OutOfBounds { at, len, window }));
        }
    }

    #[test]
    fn registers_are_aligned_and_values_fit() {
        for width in [Width::W8, Width::W16, Width::W32, Width::W64] {
            let bytes = width.bytes();
            let check = |offset| AccessError::check_register(at(offset), width, WINDOW);
            assert_eq!(check(WINDOW - bytes), Ok(()));
            assert_eq!(check(WINDOW).map_err(|e| e.kind()), Err(ErrorKind::OutOfBounds));
            let odd = check(bytes + 1);
            assert_eq!(odd.is_ok(), bytes == 1);
            assert!(
                odd.is_ok() || odd == Err(AccessError::Misaligned { at: at(bytes + 1), width })
            );
            let write = |value| AccessError::check_write(at(0), width, value, WINDOW);
            assert_eq!(write(width.max_value()), Ok(()));
            if let Some(value) = width.max_value().checked_add(1) {
                assert_eq!(write(value), Err(AccessError::ValueTooLarge { value, width }));
            }
        }
    }
}
