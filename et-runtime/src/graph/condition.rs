//! Conditions: whether a task runs depends on a word that others have written.

use std::fmt;
use std::marker::PhantomData;

use super::{GraphError, HostData, Region};
use crate::memory::DeviceSlice;

/// How a word is compared with a value: `word < value` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    const ALL: [Self; 6] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
    ];

    /// Returns the operator.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Returns the comparison that is written so.
    #[must_use]
    pub fn named(operator: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|comparison| comparison.as_str() == operator)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The types that a [`Word`] can have: `u32`, `u64`, `i32` and `i64`.
pub trait WordType: Copy + sealed::Sealed {
    #[doc(hidden)]
    const KIND: WordKind;

    /// The value as 64 bits, extended with zeros or its sign.
    #[doc(hidden)]
    fn bits(self) -> u64;
}

mod sealed {
    pub trait Sealed {}
}

/// Length of a word, and whether it has a sign.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    U32,
    U64,
    I32,
    I64,
}

macro_rules! word_type {
    ($($type:ty => $kind:ident, $bits:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl WordType for $type {
            const KIND: WordKind = WordKind::$kind;

            fn bits(self) -> u64 {
                let bits: fn($type) -> u64 = $bits;
                bits(self)
            }
        }
    )*};
}

word_type! {
    u32 => U32, u64::from;
    u64 => U64, |value| value;
    i32 => I32, |value| i64::from(value).cast_unsigned();
    i64 => I64, i64::cast_unsigned;
}

impl WordKind {
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::U32 | Self::I32 => 4,
            Self::U64 | Self::I64 => 8,
        }
    }

    pub(crate) const fn is_signed(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// The word that these bytes begin with, as 64 bits.
    fn read(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        let len = if self.bytes() == 4 { 4 } else { 8 }.min(bytes.len());
        word[..len].copy_from_slice(&bytes[..len]);
        match self {
            Self::I32 => {
                i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]])).cast_unsigned()
            }
            _ => u64::from_le_bytes(word),
        }
    }
}

/// A word of device memory or host data that a condition looks at, for
/// [`Task::only_if`](super::Task::only_if): little-endian, at its natural alignment.
#[derive(Clone, Debug)]
pub struct Word<T> {
    pub(super) place: WordPlace,
    value: PhantomData<T>,
}

/// Where a word is.
#[derive(Clone, Debug)]
pub(crate) enum WordPlace {
    Device(DeviceSlice),
    /// From this byte on.
    Host(HostData, usize),
}

impl WordPlace {
    pub(super) fn region(&self) -> Region {
        match self {
            Self::Device(slice) => slice.into(),
            Self::Host(data, _) => data.into(),
        }
    }
}

impl<T: WordType> Word<T> {
    /// The word at this byte of a buffer or slice.
    ///
    /// # Errors
    /// [`GraphError::NoWord`] if it is not inside, or not aligned.
    pub fn on_device(memory: impl Into<DeviceSlice>, offset: u64) -> Result<Self, GraphError> {
        let (memory, bytes) = (memory.into(), T::KIND.bytes());
        let (start, len) = (memory.addr().as_u64(), memory.len_bytes());
        let end = offset.checked_add(bytes).filter(|end| *end <= len);
        let slice = end.and_then(|end| memory.slice(offset..end).ok());
        match slice {
            Some(slice) if (start + offset).is_multiple_of(bytes) => {
                Ok(Self::at(WordPlace::Device(slice)))
            }
            _ => Err(GraphError::NoWord { kind: T::KIND.as_str(), offset, len }),
        }
    }

    /// The word at this byte of host data.
    ///
    /// # Errors
    /// As [`on_device`](Self::on_device).
    pub fn on_host(data: &HostData, offset: usize) -> Result<Self, GraphError> {
        let (bytes, start) = (T::KIND.bytes(), offset as u64);
        let len = data.len() as u64;
        if start.checked_add(bytes).is_none_or(|end| end > len) || !start.is_multiple_of(bytes) {
            return Err(GraphError::NoWord { kind: T::KIND.as_str(), offset: start, len });
        }
        Ok(Self::at(WordPlace::Host(data.clone(), offset)))
    }

    fn at(place: WordPlace) -> Self {
        Self { place, value: PhantomData }
    }
}

/// A comparison with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) kind: WordKind,
    pub(super) comparison: Comparison,
    bits: u64,
}

/// Which words pass a test: those whose [key](Test::key) is one of a range of numbers, or is none
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u64,
    /// The last one minus the first one.
    pub(crate) span: u64,
    pub(crate) is_outside: bool,
}

impl Test {
    pub(super) fn new<T: WordType>(comparison: Comparison, value: T) -> Self {
        Self { kind: T::KIND, comparison, bits: value.bits() }
    }

    /// Returns `true` if the word that these bytes begin with passes.
    pub(crate) fn passes(self, bytes: &[u8]) -> bool {
        let Range { first, span, is_outside } = self.range();
        let key = self.key(self.kind.read(bytes));
        (key.wrapping_sub(first) <= span) != is_outside
    }

    /// Makes numbers with a sign such without one, in the same order.
    fn key(self, bits: u64) -> u64 {
        if self.kind.is_signed() { bits ^ 1 << 63 } else { bits }
    }

    /// All comparisons in one form, so that a scheduler on the device needs no more than one.
    pub(crate) fn range(self) -> Range {
        let value = self.key(self.bits);
        let (first, last, is_outside) = match self.comparison {
            Comparison::Equal => (value, value, false),
            Comparison::NotEqual => (value, value, true),
            Comparison::Less => (value, u64::MAX, true),
            Comparison::LessOrEqual => (0, value, false),
            Comparison::Greater => (0, value, true),
            Comparison::GreaterOrEqual => (value, u64::MAX, false),
        };
        Range { first, span: last - first, is_outside }
    }

    pub(super) fn value(self) -> String {
        match self.kind {
            WordKind::U32 | WordKind::U64 => self.bits.to_string(),
            WordKind::I32 | WordKind::I64 => self.bits.cast_signed().to_string(),
        }
    }
}

/// As it is written: `u32 != 0`.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.as_str(), self.comparison, self.value())
    }
}

/// The condition of a task.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) place: WordPlace,
    pub(super) test: Test,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use proptest::prop_assert_eq;

    use super::*;

    /// Near the ends and the middle of all types, where mistakes are.
    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            -3..4_i64,
            any::<i32>().prop_map(i64::from),
            (0..3_i64).prop_map(|n| i64::MAX - n),
            (0..3_i64).prop_map(|n| i64::MIN + n),
            (0..3_i64).prop_map(|n| i64::from(i32::MAX) - n),
            (0..3_i64).prop_map(|n| i64::from(i32::MIN) + n),
        ]
    }

    fn holds<T: PartialOrd>(word: T, comparison: Comparison, value: T) -> bool {
        match comparison {
            Comparison::Equal => word == value,
            Comparison::NotEqual => word != value,
            Comparison::Less => word < value,
            Comparison::LessOrEqual => word <= value,
            Comparison::Greater => word > value,
            Comparison::GreaterOrEqual => word >= value,
        }
    }

    proptest! {
        #[test]
        fn a_test_is_the_comparison_of_its_type(word in number(), value in number()) {
            for comparison in Comparison::ALL {
                macro_rules! check {
                    ($($type:ty),*) => {$({
                        let low = |number: i64| {
                            let bytes = number.to_le_bytes();
                            <$type>::from_le_bytes(bytes[..size_of::<$type>()].try_into().unwrap())
                        };
                        let (word, value) = (low(word), low(value));
                        let mut bytes = word.to_le_bytes().to_vec();
                        // What is behind the word is none of its business.
                        bytes.push(0xff);
                        prop_assert_eq!(
                            Test::new(comparison, value).passes(&bytes),
                            holds(word, comparison, value),
                            "{} {} {}", word, comparison, value
                        );
                    })*};
                }
                check!(u32, u64, i32, i64);
            }
        }
    }

    #[test]
    fn comparisons_are_named_by_their_operators() {
        for comparison in Comparison::ALL {
            assert_eq!(Comparison::named(comparison.as_str()), Some(comparison));
        }
        assert_eq!(Comparison::named("="), None);
    }

    #[test]
    fn a_word_is_inside_and_aligned() {
        let data = HostData::zeroed(12);
        assert!(Word::<u64>::on_host(&data, 0).is_ok() && Word::<i32>::on_host(&data, 8).is_ok());
        for (kind, offset, refused) in [
            ("u64", 8, Word::<u64>::on_host(&data, 8).err()),
            ("u64", 4, Word::<u64>::on_host(&data, 4).err()),
            ("i32", 2, Word::<i32>::on_host(&data, 2).err()),
            ("u32", usize::MAX as u64, Word::<u32>::on_host(&data, usize::MAX).err()),
        ] {
            assert_eq!(refused, Some(GraphError::NoWord { kind, offset, len: 12 }));
        }
    }
}
