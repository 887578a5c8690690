//! Structures: size, offset and size of every field, bytes to fields, fields to bytes.

use std::collections::BTreeSet;

use et_testkit::golden::{Example, Value, Vector};
use zerocopy::little_endian::{I16, I32, I64, U16, U32, U64};

/// A field of a Rust structure, as a vector describes it.
pub(crate) trait Field {
    fn value(&self) -> Value;
    fn set(&mut self, value: &Value);
}

macro_rules! number_field {
    ($($type:ty: $get:path, $make:path;)*) => {$(
        impl Field for $type {
            fn value(&self) -> Value {
                Value::Number($get(*self))
            }
            fn set(&mut self, value: &Value) {
                let Value::Number(number) = value else { panic!("{value:?} is no number") };
                *self = $make(*number);
            }
        }
    )*};
}

fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap()
}
fn u16_of(number: u64) -> U16 {
    u16::try_from(number).unwrap().into()
}
fn u32_of(number: u64) -> U32 {
    u32::try_from(number).unwrap().into()
}
fn i16_bits(number: I16) -> u64 {
    number.get().cast_unsigned().into()
}
fn i16_of(number: u64) -> I16 {
    u16::try_from(number).unwrap().cast_signed().into()
}
fn i32_bits(number: I32) -> u64 {
    number.get().cast_unsigned().into()
}
fn i32_of(number: u64) -> I32 {
    u32::try_from(number).unwrap().cast_signed().into()
}
fn i64_bits(number: I64) -> u64 {
    number.get().cast_unsigned()
}
fn i64_of(number: u64) -> I64 {
    number.cast_signed().into()
}

number_field! {
    u8: u64::from, byte;
    U16: u64::from, u16_of;
    U32: u64::from, u32_of;
    U64: u64::from, U64::new;
    I16: i16_bits, i16_of;
    I32: i32_bits, i32_of;
    I64: i64_bits, i64_of;
}

impl<const N: usize> Field for [u8; N] {
    fn value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }
    fn set(&mut self, value: &Value) {
        let Value::Bytes(bytes) = value else { panic!("{value:?} is no array") };
        self.copy_from_slice(bytes);
    }
}

impl<const N: usize> Field for [U64; N] {
    fn value(&self) -> Value {
        Value::Bytes(self.iter().flat_map(|x| x.get().to_le_bytes()).collect())
    }
    fn set(&mut self, value: &Value) {
        let Value::Bytes(bytes) = value else { panic!("{value:?} is no array") };
        let (words, rest) = bytes.as_chunks::<8>();
        assert_eq!((words.len(), rest.len()), (N, 0));
        for (place, word) in self.iter_mut().zip(words) {
            *place = U64::new(u64::from_le_bytes(*word));
        }
    }
}

/// The Rust type of a vector.
pub(crate) struct Layout {
    pub(crate) vector: &'static str,
    pub(crate) size: usize,
    /// Name, offset, size.
    pub(crate) fields: Vec<(String, usize, usize)>,
    pub(crate) decode: fn(&[u8]) -> Vec<Value>,
    pub(crate) encode: fn(&[Value]) -> Vec<u8>,
}

/// `"vector" => Type { path, path = "other name", .. }`.
///
/// A field is named in the vector as it is in Rust, unless it says otherwise.
macro_rules! layouts {
    ($($vector:literal => $type:ty {
        $($($path:ident).+ $([$index:literal])? $(= $name:literal)?),* $(,)?
    })*) => {
        vec![$({
            fn decode(bytes: &[u8]) -> Vec<Value> {
                let (message, _) = <$type>::ref_from_prefix(bytes).unwrap();
                vec![$(Field::value(&message.$($path).+ $([$index])?)),*]
            }
            fn encode(values: &[Value]) -> Vec<u8> {
                let mut message = <$type>::new_zeroed();
                let mut values = values.iter();
                $(Field::set(&mut message.$($path).+ $([$index])?, values.next().unwrap());)*
                assert!(values.next().is_none());
                message.as_bytes().to_vec()
            }
            let message = <$type>::new_zeroed();
            let start = std::ptr::from_ref(&message).addr();
            let fields = vec![$({
                let field = &message.$($path).+ $([$index])?;
                let name = [$(stringify!($path)),+].join(".").replace("r#", "");
                $(let name = { let _ = name; $name.to_owned() };)?
                (name, std::ptr::from_ref(field).addr() - start, size_of_val(field))
            }),*];
            Layout { vector: $vector, size: size_of::<$type>(), fields, decode, encode }
        }),*]
    };
}
pub(crate) use layouts;

fn find<'l>(layouts: &'l [Layout], vector: &str) -> &'l Layout {
    let found = layouts.iter().find(|layout| layout.vector == vector);
    found.unwrap_or_else(|| panic!("{vector} has no Rust type"))
}

/// Checks every vector, and that no layout is left over. Returns how many examples were checked.
pub(crate) fn check(vectors: &[Vector], layouts: &[Layout]) -> usize {
    let mut checked = 0;
    for vector in vectors {
        let layout = find(layouts, &vector.name);
        check_fields(vector, layout);
        for example in &vector.examples {
            check_example(vector, layout, layouts, example);
            checked += 1;
        }
    }
    let known: BTreeSet<_> = layouts.iter().map(|layout| layout.vector.to_owned()).collect();
    let handled: BTreeSet<_> = vectors.iter().map(|vector| vector.name.clone()).collect();
    assert_eq!(known, handled);
    assert_eq!(known.len(), layouts.len(), "a layout occurs twice");
    checked
}

fn check_fields(vector: &Vector, layout: &Layout) {
    assert_eq!(layout.size, vector.size, "size of {}", vector.name);
    let (tails, fixed): (Vec<_>, Vec<_>) =
        vector.fields.iter().partition(|field| field.kind.starts_with("flex:"));
    let expected: Vec<_> =
        fixed.iter().map(|field| (field.name.clone(), field.offset, field.size)).collect();
    assert_eq!(layout.fields, expected, "fields of {}", vector.name);
    for tail in tails {
        assert_eq!((tail.offset, tail.size), (layout.size, 0), "tail of {}", vector.name);
    }
}

fn check_example(vector: &Vector, layout: &Layout, layouts: &[Layout], example: &Example) {
    let what = format!("{}: {}", vector.name, example.label);
    let expected = values(layout, "", example, &what);
    assert_eq!((layout.decode)(&example.bytes), expected, "{what}");

    let mut rebuilt = (layout.encode)(&expected);
    let mut used = expected.len();
    for tail in vector.fields.iter().filter(|field| field.size == 0) {
        match tail.kind.strip_prefix("flex:") {
            Some(node) if layouts.iter().any(|layout| layout.vector == node) => {
                let node = find(layouts, node);
                for index in 0.. {
                    let start = format!("{}[{index}].", tail.name);
                    if !example.values.keys().any(|name| name.starts_with(&start)) {
                        break;
                    }
                    let expected = values(node, &start, example, &what);
                    assert_eq!((node.decode)(&example.bytes[rebuilt.len()..]), expected, "{what}");
                    rebuilt.extend((node.encode)(&expected));
                    used += expected.len();
                }
            }
            _ => {
                rebuilt.extend(example.array(&tail.name));
                used += 1;
            }
        }
    }
    assert_eq!(rebuilt, example.bytes, "{what}");
    assert_eq!(used, example.values.len(), "{what}: values that no field has");
}

fn values(layout: &Layout, start: &str, example: &Example, what: &str) -> Vec<Value> {
    let value = |(name, ..): &(String, usize, usize)| {
        let name = format!("{start}{name}");
        example.values.get(&name).unwrap_or_else(|| panic!("{what}: no value for {name}")).clone()
    };
    layout.fields.iter().map(value).collect()
}
