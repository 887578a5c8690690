//! Arguments of kernels.

use std::sync::Arc;

use et::graph::Access;
use et::{DeviceSlice, KernelArgs};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::card::Card;
use crate::dtype::{DType, Kind};
use crate::error;
use crate::memory::Buffer;

/// What a kernel wants in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Param {
    /// The address of memory, of any type if there is none.
    Memory(Access, Option<DType>),
    Number(DType),
}

impl<'py> FromPyObject<'_, 'py> for Param {
    type Error = PyErr;

    /// Takes `("in" | "out" | "inout" | "scalar", type or None)`.
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (what, dtype): (String, Option<DType>) = given.extract()?;
        match (what.as_str(), dtype) {
            ("in", dtype) => Ok(Self::Memory(Access::Read, dtype)),
            ("out", dtype) => Ok(Self::Memory(Access::Write, dtype)),
            ("inout", dtype) => Ok(Self::Memory(Access::Update, dtype)),
            ("scalar", Some(dtype)) => Ok(Self::Number(dtype)),
            _ => Err(error::raise("ArgumentError", format!("no parameter is {what:?}"))),
        }
    }
}

/// Arguments as a kernel sees them, and the memory whose addresses are among them.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) args: KernelArgs,
    pub(crate) memory: Vec<(DeviceSlice, Access)>,
}

/// Puts arguments together as C does. Without a signature each says its own type.
pub(crate) fn pack(
    card: &Arc<Card>,
    given: &Bound<'_, PyTuple>,
    signature: Option<&[Param]>,
) -> PyResult<Packed> {
    if let Some(signature) = signature
        && signature.len() != given.len()
    {
        let (wanted, found) = (signature.len(), given.len());
        return Err(PyTypeError::new_err(format!(
            "the kernel takes {wanted} arguments, not {found}"
        )));
    }
    let mut packed = Packed { args: KernelArgs::new(), memory: Vec::new() };
    for (index, value) in given.iter().enumerate() {
        let param = signature.map(|signature| signature[index]);
        let appended = append(card, &mut packed, &value, param);
        appended.map_err(|error| named(value.py(), &error, index))?;
    }
    Ok(packed)
}

/// Names the argument that an error is about.
fn named(py: Python<'_>, error: &PyErr, index: usize) -> PyErr {
    let text = format!("argument {index}: {}", error.value(py));
    let kind = error.get_type(py);
    kind.call1((text.as_str(),)).map_or_else(|_| PyTypeError::new_err(text), PyErr::from_value)
}

fn append(
    card: &Arc<Card>,
    packed: &mut Packed,
    value: &Bound<'_, PyAny>,
    param: Option<Param>,
) -> PyResult<()> {
    if let Ok(buffer) = value.cast::<Buffer>() {
        let buffer = buffer.get();
        let access = match param {
            None => Access::Update,
            Some(Param::Memory(access, dtype)) => {
                check(buffer.type_of(), dtype)?;
                access
            }
            Some(Param::Number(dtype)) => {
                return Err(PyTypeError::new_err(format!("a buffer for a {}", dtype.name())));
            }
        };
        if !Arc::ptr_eq(&buffer.card, card) {
            return Err(error::raise("ArgumentError", "the buffer is of another device"));
        }
        let slice = buffer.slice()?.clone();
        packed.args = std::mem::take(&mut packed.args).addr(slice.addr());
        packed.memory.push((slice, access));
        return Ok(());
    }
    let (dtype, value) = match param {
        Some(Param::Number(dtype)) => (dtype, bare(value)?),
        Some(Param::Memory(..)) => {
            let what = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("an et.Buffer is wanted, not {what}")));
        }
        None => typed(value)?,
    };
    packed.args = number(std::mem::take(&mut packed.args), dtype, &value)?;
    Ok(())
}

fn check(found: Option<DType>, wanted: Option<DType>) -> PyResult<()> {
    match (found, wanted) {
        (Some(found), Some(wanted)) if found != wanted => {
            let text = format!("a buffer of {}, not of {}", wanted.name(), found.name());
            Err(PyTypeError::new_err(text + " is wanted; see Buffer.view"))
        }
        _ => Ok(()),
    }
}

/// The value of a number that also says its type.
fn bare<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match value.hasattr("et_dtype")? || value.hasattr("_type_")? {
        true => value.getattr("value"),
        false => Ok(value.clone()),
    }
}

/// Type and value of a number that says both: of `et`, of NumPy or of ctypes.
fn typed<'py>(value: &Bound<'py, PyAny>) -> PyResult<(DType, Bound<'py, PyAny>)> {
    if let Ok(dtype) = value.getattr("et_dtype") {
        return Ok((dtype.extract()?, value.getattr("value")?));
    }
    if let Ok(dtype) = value.getattr("dtype") {
        return Ok((dtype.extract()?, value.call_method0("item")?));
    }
    if let Ok(code) = value.getattr("_type_") {
        let code = std::ffi::CString::new(code.extract::<String>()?)?;
        if let Some(dtype) = DType::of_format(&code) {
            return Ok((dtype, value.getattr("value")?));
        }
    }
    let what = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "C has many types for a Python {what}: give the kernel a signature, or write for example \
         et.u64({value}) or numpy.float32({value})"
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
        (Kind::Float, _) => return Err(PyTypeError::new_err("C has no type for half floats")),
    })
}
