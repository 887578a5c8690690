//! Comparing what a kernel made with what it should have made.

use std::fmt;

use anyhow::ensure;
use half::f16;
use serde_json::{Value, json};

use crate::npy::Array;
use crate::value::Type;

/// How two arrays differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Elements that are not what they should be.
    elements: u64,
    /// Elements there are.
    of: u64,
    /// The place of the first of them.
    at: Vec<u64>,
    found: Element,
    expected: Element,
}

impl Difference {
    pub(crate) fn document(&self) -> Value {
        let value = |element: Element| element.to_string();
        json!({
            "elements": self.elements, "of": self.of, "index": self.at,
            "found": value(self.found), "expected": value(self.expected),
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elements, of, at, found, expected } = self;
        write!(f, "{elements} of {of} elements differ; {at:?} is {found} and should be {expected}")
    }
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    Integer(i128),
    Float(f64),
}

impl Element {
    /// Reads one; integers keep all their bits.
    fn read(ty: Type, bytes: &[u8]) -> Self {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        let signed = |bits: u32| i128::from(word.cast_signed() << (64 - bits) >> (64 - bits));
        #[expect(clippy::cast_possible_truncation, reason = "the element has no more bits")]
        match ty {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => Self::Integer(word.into()),
            Type::I8 => Self::Integer(signed(8)),
            Type::I16 => Self::Integer(signed(16)),
            Type::I32 => Self::Integer(signed(32)),
            Type::I64 => Self::Integer(signed(64)),
            Type::F16 => Self::Float(f16::from_bits(word as u16).into()),
            Type::F32 => Self::Float(f32::from_bits(word as u32).into()),
            Type::F64 => Self::Float(f64::from_bits(word)),
        }
    }

    /// Returns `true` if both are the same. Floats may differ by `tolerance` times the larger one.
    fn is_near(self, other: Self, tolerance: f64) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => {
                let difference = (a - b).abs();
                a == b
                    || a.is_nan() && b.is_nan()
                    || difference.is_finite() && difference <= tolerance * a.abs().max(b.abs())
            }
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// Compares an array with what it should be.
///
/// # Errors
/// If they have not the same type and number of elements.
pub(crate) fn compare(
    found: &Array,
    expected: &Array,
    tolerance: f64,
) -> anyhow::Result<Option<Difference>> {
    ensure!(
        found.ty == expected.ty && found.bytes.len() == expected.bytes.len(),
        "an array of {}{:?} cannot be compared with one of {}{:?}",
        found.ty.name(),
        found.shape,
        expected.ty.name(),
        expected.shape
    );
    let size = found.ty.size();
    let mut first = None;
    let mut elements = 0;
    let pairs = found.bytes.chunks_exact(size).zip(expected.bytes.chunks_exact(size));
    for ((found_bytes, expected_bytes), at) in pairs.zip(0..) {
        if found_bytes == expected_bytes {
            continue;
        }
        let (a, b) =
            (Element::read(found.ty, found_bytes), Element::read(found.ty, expected_bytes));
        if !a.is_near(b, tolerance) {
            elements += 1;
            first.get_or_insert((at, a, b));
        }
    }
    let of = (found.bytes.len() / size) as u64;
    Ok(first.map(|(at, a, b)| {
        let at = place(at, &found.shape);
        Difference { elements, of, at, found: a, expected: b }
    }))
}

/// Returns the index of an element in each dimension.
fn place(mut at: u64, shape: &[u64]) -> Vec<u64> {
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&dim| {
            let here = at % dim.max(1);
            at /= dim.max(1);
            here
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Array {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Array { ty: Type::F32, shape: vec![2, values.len() as u64 / 2], bytes }
    }

    #[test]
    fn the_first_difference_is_named_and_all_are_counted() {
        let (found, expected) = (floats(&[1.0, 2.0, 3.0, 4.0]), floats(&[1.0, 2.0, 3.5, 5.0]));
        assert_eq!(compare(&found, &found, 0.0).unwrap(), None);
        let difference = compare(&found, &expected, 0.0).unwrap().unwrap();
        let text = "2 of 4 elements differ; [1, 0] is 3 and should be 3.5";
        assert_eq!(difference.to_string(), text);
        assert_eq!(difference.document()["index"], json!([1, 0]));
    }

    #[test]
    fn floats_have_a_tolerance_and_no_number_is_itself() {
        let (found, near) = (floats(&[1.0, f32::NAN]), floats(&[1.001, -f32::NAN]));
        assert_eq!(compare(&found, &near, 0.001).unwrap(), None);
        assert!(compare(&found, &near, 0.0001).unwrap().is_some());
        let (zero, small) = (floats(&[0.0, -0.0]), floats(&[-0.0, 1e-30]));
        assert_eq!(compare(&zero, &small, 0.5).unwrap().unwrap().elements, 1);
        // What is infinite is near nothing but itself.
        let (infinite, other) = (floats(&[f32::INFINITY; 2]), floats(&[f32::INFINITY, 1.0]));
        assert_eq!(compare(&infinite, &other, 0.5).unwrap().unwrap().elements, 1);
    }

    #[test]
    fn integers_keep_their_signs_and_all_bits() {
        let of = |ty, bytes: Vec<u8>| Array { ty, shape: vec![1], bytes };
        let (max, less) = (u64::MAX.to_le_bytes(), (u64::MAX - 1).to_le_bytes());
        for (ty, found, expected) in
            [(Type::U64, "18446744073709551615", "18446744073709551614"), (Type::I64, "-1", "-2")]
        {
            let (max, less) = (of(ty, max.to_vec()), of(ty, less.to_vec()));
            let difference = compare(&max, &less, 0.5).unwrap().unwrap();
            assert_eq!(difference.document()["found"], found);
            assert_eq!(difference.document()["expected"], expected);
        }
        let half = |value| of(Type::F16, f16::from_f32(value).to_bits().to_le_bytes().to_vec());
        let difference = compare(&half(1.5), &half(-2.0), 0.0).unwrap().unwrap();
        assert_eq!(difference.document()["found"], "1.5");
        assert_eq!(difference.document()["expected"], "-2");
        let i8s = compare(&of(Type::I8, vec![0x80]), &of(Type::I8, vec![1]), 0.0);
        assert_eq!(i8s.unwrap().unwrap().document()["found"], "-128");
    }

    #[test]
    fn arrays_of_other_types_or_sizes_are_not_compared() {
        let (two, four) = (floats(&[1.0, 2.0]), floats(&[1.0, 2.0, 3.0, 4.0]));
        assert!(compare(&two, &four, 0.0).is_err());
        let other = Array { ty: Type::I32, ..two.clone() };
        assert!(compare(&two, &other, 0.0).is_err());
    }
}
