//! Arguments of kernels.

use std::sync::Arc;

use et::graph::Access;
use et::{DeviceSlice, KernelArgs};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyTuple};

use crate::card::Card;
use crate::dtype::{DType, Kind};
use crate::error;
use crate::memory::Buffer;
use crate::signature::{Param, Signature, Type};

/// Arguments as a kernel sees them, and the memory whose addresses are among them.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) args: KernelArgs,
    pub(crate) memory: Vec<(DeviceSlice, Access)>,
}

/// Puts arguments together as C does. Without a signature each says its own type.
pub(crate) fn pack(
    card: &Arc<Card>,
    kernel: &str,
    given: &Bound<'_, PyTuple>,
    signature: Option<&Signature>,
) -> PyResult<Packed> {
    let mismatch = |text: String, parameter: Option<&str>| {
        let stated = signature.map(ToString::to_string).unwrap_or_default();
        let args = (format!("kernel {kernel}: {text}"), kernel, stated, parameter);
        error::raise_with(given.py(), "ArgumentsMismatchError", args)
    };
    if let Some(signature) = signature
        && signature.params().len() != given.len()
    {
        let (wanted, found) = (signature.params().len(), given.len());
        let text = format!("it takes {wanted} arguments ({signature}), not {found}");
        return Err(mismatch(text, None));
    }
    let mut packed = Packed { args: KernelArgs::new(), memory: Vec::new() };
    for (index, value) in given.iter().enumerate() {
        let param = signature.map(|signature| &signature.params()[index]);
        append(card, &mut packed, &value, param).map_err(|refused| {
            let name = param.and_then(|param| param.name.as_deref());
            let place = match name {
                Some(name) => format!("argument {index} ({name})"),
                None => format!("argument {index}"),
            };
            match refused {
                Refused::Mismatch(why) => mismatch(format!("{place}: {why}"), name),
                Refused::Other(error) => renamed(value.py(), &error, &place),
            }
        })?;
    }
    Ok(packed)
}

/// Why an argument is not taken.
enum Refused {
    /// It is not what the signature states.
    Mismatch(String),
    Other(PyErr),
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Self::Other(error)
    }
}

/// Names the argument that an error is about.
fn renamed(py: Python<'_>, error: &PyErr, place: &str) -> PyErr {
    let text = format!("{place}: {}", error.value(py));
    let kind = error.get_type(py);
    kind.call1((text.as_str(),)).map_or_else(|_| PyTypeError::new_err(text), PyErr::from_value)
}

fn append(
    card: &Arc<Card>,
    packed: &mut Packed,
    value: &Bound<'_, PyAny>,
    param: Option<&Param>,
) -> Result<(), Refused> {
    let wanted = param.map(|param| param.wants);
    if let Ok(buffer) = value.cast::<Buffer>() {
        let buffer = buffer.get();
        let access = match wanted {
            None if buffer.is_readonly() => Access::Read,
            None => Access::Update,
            Some(Type::Memory(access, dtype)) => {
                check(buffer, access, dtype)?;
                access
            }
            Some(Type::Number(dtype)) => {
                return Err(Refused::Mismatch(format!("a buffer for a {}", dtype.name())));
            }
        };
        if !Arc::ptr_eq(&buffer.card, card) {
            return Err(error::raise("ArgumentError", "the buffer is of another device").into());
        }
        let slice = buffer.slice()?.clone();
        packed.args = std::mem::take(&mut packed.args).addr(slice.addr());
        packed.memory.push((slice, access));
        return Ok(());
    }
    let (dtype, value) = match wanted {
        Some(Type::Number(dtype)) => (dtype, number_for(value, dtype)?),
        Some(Type::Memory(..)) => {
            let what = value.get_type().name()?;
            return Err(Refused::Mismatch(format!("an et.Buffer is wanted, not {what}")));
        }
        None => typed(value)?,
    };
    packed.args = number(std::mem::take(&mut packed.args), dtype, &value)?;
    Ok(())
}

/// Refuses a buffer of other elements, and one that is not to be written where the kernel writes.
fn check(buffer: &Buffer, access: Access, wanted: Option<DType>) -> Result<(), Refused> {
    if let (Some(found), Some(wanted)) = (buffer.type_of(), wanted)
        && found != wanted
    {
        let text = format!("a buffer of {}, not of {}", wanted.name(), found.name());
        return Err(Refused::Mismatch(text + " is wanted; see Buffer.view"));
    }
    if access != Access::Read && buffer.is_readonly() {
        return Err(Refused::Mismatch("the kernel writes it, and the buffer is read-only".into()));
    }
    Ok(())
}

/// A type that a number says in the language of C: one of `et` or of ctypes.
fn stated(value: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if let Ok(dtype) = value.getattr("et_dtype") {
        return Ok(Some(dtype.extract()?));
    }
    let Ok(code) = value.getattr("_type_").and_then(|code| code.extract::<String>()) else {
        return Ok(None);
    };
    Ok(DType::of_format(&std::ffi::CString::new(code)?))
}

/// The value of a number for a parameter. One that says its type in C must have that one; others
/// are converted.
fn number_for<'py>(value: &Bound<'py, PyAny>, wanted: DType) -> Result<Bound<'py, PyAny>, Refused> {
    let is_float = wanted.kind == Kind::Float;
    // What most arguments are; asking them for their type would raise two exceptions in vain.
    if value.is_exact_instance_of::<PyInt>() || is_float && value.is_exact_instance_of::<PyFloat>()
    {
        return Ok(value.clone());
    }
    let Some(found) = stated(value)? else {
        let what = value.get_type().name()?;
        // What is a number of whole ones says so, also those of NumPy.
        let fits = wanted.kind == Kind::Bool
            || value.hasattr("__index__")?
            || is_float && value.hasattr("__float__")?;
        if !fits {
            let text = format!("a number of type {} is wanted, not {what}", wanted.name());
            return Err(Refused::Mismatch(text));
        }
        return Ok(value.clone());
    };
    if found != wanted {
        let text = format!("a {} is wanted, not a {}", wanted.name(), found.name());
        return Err(Refused::Mismatch(text));
    }
    Ok(value.getattr("value")?)
}

/// Type and value of a number that says both: of `et`, of NumPy or of ctypes.
fn typed<'py>(value: &Bound<'py, PyAny>) -> PyResult<(DType, Bound<'py, PyAny>)> {
    if let Some(dtype) = stated(value)? {
        return Ok((dtype, value.getattr("value")?));
    }
    if let Ok(dtype) = value.getattr("dtype") {
        return Ok((dtype.extract()?, value.call_method0("item")?));
    }
    let what = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "C has many types for a Python {what}, and the kernel's file states none: give it a \
         signature, or write for example et.u64({value}) or numpy.float32({value})"
    )))
}

fn number(args: KernelArgs, dtype: DType, value: &Bound<'_, PyAny>) -> PyResult<KernelArgs> {
    Ok(match (dtype.kind, dtype.size) {
        (Kind::Bool, _) => args.u8(value.is_truthy()?.into()),
        (Kind::Int, 1) => args.i8(value.extract()?),
        (Kind::Int, 2) => args.i16(value.extract()?),
        (Kind::Int, 4) => args.i32(value.extract()?),
        (Kind::Int, _) => args.i64(value.extract()?),
        (Kind::Uint, 1) => args.u8(value.extract()?),
        (Kind::Uint, 2) => args.u16(value.extract()?),
        (Kind::Uint, 4) => args.u32(value.extract()?),
        (Kind::Uint, _) => args.u64(value.extract()?),
        (Kind::Float, 4) => {
            let wide: f64 = value.extract()?;
            #[expect(clippy::cast_possible_truncation, reason = "rounds as C does")]
            let narrow = wide as f32;
            if narrow.is_infinite() && wide.is_finite() {
                return Err(PyOverflowError::new_err(format!("{wide} is too large for a float")));
            }
            args.f32(narrow)
        }
        (Kind::Float, 8) => args.f64(value.extract()?),
        (Kind::Float, _) => {
            let pack = value.py().import("struct")?.getattr("pack")?;
            let half = pack.call1(("<e", value.extract::<f64>()?))?;
            args.bytes(half.cast::<PyBytes>()?.as_bytes(), dtype.size)
        }
    })
}
