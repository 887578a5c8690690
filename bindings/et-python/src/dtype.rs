//! Types of elements, by NumPy's names.

use std::ffi::CStr;

use pyo3::buffer::ElementType;
use pyo3::prelude::*;

use crate::error;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DType {
    pub(crate) kind: Kind,
    /// Bytes of an element.
    pub(crate) size: usize,
}

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
}

/// Name, NumPy's code and the code of buffers.
type Names = (DType, &'static str, &'static str, &'static CStr);

const fn dtype(kind: Kind, size: usize) -> DType {
    DType { kind, size }
}

const ALL: [Names; 12] = [
    (dtype(Kind::Bool, 1), "bool", "b1", c"?"),
    (dtype(Kind::Int, 1), "int8", "i1", c"b"),
    (dtype(Kind::Int, 2), "int16", "i2", c"h"),
    (dtype(Kind::Int, 4), "int32", "i4", c"i"),
    (dtype(Kind::Int, 8), "int64", "i8", c"q"),
    (dtype(Kind::Uint, 1), "uint8", "u1", c"B"),
    (dtype(Kind::Uint, 2), "uint16", "u2", c"H"),
    (dtype(Kind::Uint, 4), "uint32", "u4", c"I"),
    (dtype(Kind::Uint, 8), "uint64", "u8", c"Q"),
    (dtype(Kind::Float, 2), "float16", "f2", c"e"),
    (dtype(Kind::Float, 4), "float32", "f4", c"f"),
    (dtype(Kind::Float, 8), "float64", "f8", c"d"),
];

impl DType {
    /// Bytes without a type.
    pub(crate) const U8: Self = dtype(Kind::Uint, 1);

    fn names(self) -> &'static Names {
        match ALL.iter().find(|(dtype, ..)| *dtype == self) {
            Some(names) => names,
            None => unreachable!("every value comes from the table"),
        }
    }

    /// Returns its name in NumPy.
    pub(crate) fn name(self) -> &'static str {
        self.names().1
    }

    /// Returns its code in the buffer protocol.
    pub(crate) fn format(self) -> &'static CStr {
        self.names().3
    }

    /// The type of that name or code, of the host's byte order.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        let name = name.strip_prefix(['<', '=', '|']).unwrap_or(name);
        let found = ALL.iter().find(|(_, full, code, _)| *full == name || *code == name);
        found.map(|(dtype, ..)| *dtype)
    }

    /// The type of that kind and size.
    pub(crate) fn of(kind: Kind, size: usize) -> Option<Self> {
        let wanted = dtype(kind, size);
        ALL.iter().find(|(dtype, ..)| *dtype == wanted).map(|(dtype, ..)| *dtype)
    }

    /// The type of the elements of a buffer; `None` if it has no name here.
    pub(crate) fn of_format(format: &CStr) -> Option<Self> {
        match ElementType::from_format(format) {
            ElementType::Bool => Self::of(Kind::Bool, 1),
            ElementType::SignedInteger { bytes } => Self::of(Kind::Int, bytes),
            ElementType::UnsignedInteger { bytes } => Self::of(Kind::Uint, bytes),
            ElementType::Float { bytes } => Self::of(Kind::Float, bytes),
            // PyO3 does not know half floats.
            ElementType::Unknown => match format.to_bytes() {
                b"e" | b"<e" | b"=e" | b"@e" => Self::of(Kind::Float, 2),
                _ => None,
            },
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for DType {
    type Error = PyErr;

    /// Takes names, data types of NumPy and PyTorch, NumPy's scalar classes and those of `et`.
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = if let Ok(text) = given.extract::<String>() {
            text
        } else if let Some(code) = attribute(&given, "et_dtype").or(attribute(&given, "str")) {
            code
        } else if let Some(name) = attribute(&given, "__name__") {
            name
        } else {
            given.str()?.to_string()
        };
        DType::of_name(&text).ok_or_else(|| {
            error::raise("ArgumentError", format!("no data type {text:?} for device memory"))
        })
    }
}

fn attribute(of: &Bound<'_, PyAny>, name: &str) -> Option<String> {
    of.getattr(name).ok()?.extract().ok()
}

/// The extents of an array: a number or a sequence of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let negative = |_| error::raise("ArgumentError", format!("{} is not a shape", &*given));
        match given.extract::<isize>() {
            Ok(number) => Ok(Self(vec![usize::try_from(number).map_err(negative)?])),
            Err(_) => {
                let extents: Vec<isize> = given.extract()?;
                let extents = extents.into_iter().map(|extent| extent.try_into());
                Ok(Self(extents.collect::<Result<_, _>>().map_err(negative)?))
            }
        }
    }
}

/// The bytes of an array.
pub(crate) fn len_bytes(shape: &[usize], dtype: DType) -> PyResult<usize> {
    let all = shape.iter().try_fold(dtype.size, |bytes, &extent| bytes.checked_mul(extent));
    all.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
        error::raise("ArgumentError", format!("an array of shape {shape:?} is too large"))
    })
}

/// The strides of a C-contiguous array, in units of `unit`.
pub(crate) fn strides(shape: &[usize], unit: usize) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = unit;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step.try_into().unwrap_or(isize::MAX);
        step = step.saturating_mul(extent.max(1));
    }
    strides
}

/// A tuple of these numbers.
pub(crate) fn tuple<'py>(
    py: Python<'py>,
    shape: &[usize],
) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
    pyo3::types::PyTuple::new(py, shape)
}
