//! Vectors taken from the vendor's definitions. Spec: §20
//!
//! Everything here panics on a malformed file: the files are part of this crate.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// A file of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Operations interface.
    Ops,
    /// Management interface.
    Mgmt,
    /// Device interface registers.
    Dir,
    /// Rings.
    Ring,
    /// Kernel environment, exception buffer, traces.
    Abi,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An integer; a signed one as its two's complement in the width of the field.
    Number(u64),
    /// An array.
    Bytes(Vec<u8>),
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, with dots for nested structures.
    pub name: String,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes; 0 for a tail of variable length.
    pub size: usize,
    /// Type as the file has it.
    pub kind: String,
}

/// Bytes and what they mean.
#[derive(Clone, Debug)]
pub struct Example {
    /// What it shows.
    pub label: String,
    /// Values by field name.
    pub values: BTreeMap<String, Value>,
    /// The exact bytes.
    pub bytes: Vec<u8>,
}

/// A structure or message.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Name in the vendor's definitions.
    pub name: String,
    /// Message id.
    pub id: Option<u16>,
    /// `host_to_device` or `device_to_host`; `None` for a structure.
    pub direction: Option<String>,
    /// Size in bytes, without a variable tail.
    pub size: usize,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Examples.
    pub examples: Vec<Example>,
}

impl Example {
    /// Returns an integer.
    #[must_use]
    pub fn number(&self, field: &str) -> u64 {
        match self.values.get(field) {
            Some(Value::Number(number)) => *number,
            other => panic!("{}: {field} is {other:?}", self.label),
        }
    }

    /// Returns an integer that fits the type.
    #[must_use]
    pub fn int<T: TryFrom<u64>>(&self, field: &str) -> T {
        let number = self.number(field);
        T::try_from(number).unwrap_or_else(|_| panic!("{}: {field} = {number:#x}", self.label))
    }

    /// Returns an array.
    #[must_use]
    pub fn array(&self, field: &str) -> &[u8] {
        match self.values.get(field) {
            Some(Value::Bytes(bytes)) => bytes,
            other => panic!("{}: {field} is {other:?}", self.label),
        }
    }
}

/// Returns a whole file.
#[must_use]
pub fn json(file: File) -> Json {
    let text = match file {
        File::Ops => include_str!("../golden/ops_api.json"),
        File::Mgmt => include_str!("../golden/mgmt_api.json"),
        File::Dir => include_str!("../golden/dir.json"),
        File::Ring => include_str!("../golden/circular_buffer.json"),
        File::Abi => include_str!("../golden/kernel_abi_and_trace.json"),
    };
    serde_json::from_str(text).expect("golden files are JSON")
}

/// Returns the structures and messages of a file.
#[must_use]
pub fn vectors(file: File) -> Vec<Vector> {
    let json = json(file);
    let list = json.get("messages").or_else(|| json.get("structs"));
    array(list.expect("the file has structures")).iter().map(vector).collect()
}

/// Returns the constants of every enumeration: enumeration, constant, value.
#[must_use]
pub fn enums(file: File) -> BTreeMap<String, BTreeMap<String, i64>> {
    let constants = |json: &Json| {
        let constant = |(name, value): (&String, &Json)| {
            (name.clone(), value.as_i64().expect("constants are integers"))
        };
        object(json).iter().map(constant).collect()
    };
    let json = json(file);
    object(&json["enums"]).iter().map(|(name, list)| (name.clone(), constants(list))).collect()
}

/// Reads hexadecimal bytes.
#[must_use]
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Returns a member that is text.
#[must_use]
pub fn text<'a>(json: &'a Json, member: &str) -> &'a str {
    json[member].as_str().unwrap_or_else(|| panic!("no text {member} in {json}"))
}

/// Returns a member that is a non-negative integer.
#[must_use]
pub fn int(json: &Json, member: &str) -> u64 {
    json[member].as_u64().unwrap_or_else(|| panic!("no integer {member} in {json}"))
}

/// Returns the elements of a list.
#[must_use]
pub fn array(json: &Json) -> &[Json] {
    json.as_array().expect("a list").as_slice()
}

/// Returns the members of an object.
#[must_use]
pub fn object(json: &Json) -> &serde_json::Map<String, Json> {
    json.as_object().expect("an object")
}

fn size(json: &Json, member: &str) -> usize {
    usize::try_from(int(json, member)).expect("sizes are small")
}

fn vector(json: &Json) -> Vector {
    let id = json.get("id").and_then(Json::as_u64);
    Vector {
        name: text(json, "name").to_owned(),
        id: id.map(|id| u16::try_from(id).expect("ids have 16 bits")),
        direction: json.get("direction").and_then(Json::as_str).map(str::to_owned),
        size: size(json, "size"),
        fields: array(&json["fields"]).iter().map(field).collect(),
        examples: array(&json["examples"]).iter().map(example).collect(),
    }
}

fn field(json: &Json) -> Field {
    Field {
        name: text(json, "name").to_owned(),
        offset: size(json, "offset"),
        size: size(json, "size"),
        kind: text(json, "type").to_owned(),
    }
}

fn example(json: &Json) -> Example {
    let bytes = hex(text(json, "bytes"));
    assert_eq!(bytes.len(), size(json, "total_size"), "{json}");
    let read = |(name, json): (&String, &Json)| {
        (name.clone(), value(json.as_str().expect("values are text")))
    };
    let values = object(&json["values"]).iter().map(read).collect();
    Example { label: text(json, "label").to_owned(), values, bytes }
}

fn value(text: &str) -> Value {
    if let Some(digits) = text.strip_prefix("bytes:") {
        return Value::Bytes(hex(digits));
    }
    let digits = text.strip_prefix("0x").expect("numbers are hexadecimal");
    Value::Number(u64::from_str_radix(digits, 16).expect("hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_loads() {
        for file in [File::Ops, File::Mgmt, File::Dir, File::Abi] {
            let vectors = vectors(file);
            assert!(!vectors.is_empty());
            assert!(vectors.iter().all(|vector| !vector.examples.is_empty()), "{file:?}");
        }
        assert!(!array(&json(File::Ring)["cases"]).is_empty());
    }

    #[test]
    fn values_are_numbers_or_bytes() {
        assert_eq!(value("0x0010"), Value::Number(16));
        assert_eq!(value("bytes:"), Value::Bytes(vec![]));
        assert_eq!(value("bytes:01ff"), Value::Bytes(vec![1, 255]));
    }
}
