//! What kernels take.

use std::fmt;
use std::sync::Arc;

use et::graph::Access;
use et::kernel::{ArrayAccess, ParameterKind, ScalarType};
use pyo3::prelude::*;

use crate::dtype::{DType, Kind};
use crate::error;

/// What a kernel wants in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// The address of memory, of any type if there is none.
    Memory(Access, Option<DType>),
    Number(DType),
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    /// Its name, if that is known.
    pub(crate) name: Option<String>,
    pub(crate) wants: Type,
}

/// The parameters of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature(Arc<[Param]>);

impl<'py> FromPyObject<'_, 'py> for Param {
    type Error = PyErr;

    /// Takes `(name or None, "in" | "out" | "inout" | "scalar", type or None)`.
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (name, what, dtype): (Option<String>, String, Option<DType>) = given.extract()?;
        let wants = match (what.as_str(), dtype) {
            ("in", dtype) => Type::Memory(Access::Read, dtype),
            ("out", dtype) => Type::Memory(Access::Write, dtype),
            ("inout", dtype) => Type::Memory(Access::Update, dtype),
            ("scalar", Some(dtype)) => Type::Number(dtype),
            _ => return Err(error::raise("ArgumentError", format!("no parameter is {what:?}"))),
        };
        Ok(Self { name, wants })
    }
}

fn dtype(of: ScalarType) -> DType {
    let kind = match of {
        ScalarType::U8 | ScalarType::U16 | ScalarType::U32 | ScalarType::U64 => Kind::Uint,
        ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::I64 => Kind::Int,
        ScalarType::F16 | ScalarType::F32 | ScalarType::F64 => Kind::Float,
    };
    DType::of(kind, of.size_bytes()).unwrap_or(DType::U8)
}

impl Type {
    fn of(kind: ParameterKind) -> Self {
        match kind {
            ParameterKind::Array { of, access } => {
                let access = match access {
                    ArrayAccess::In => Access::Read,
                    ArrayAccess::Out => Access::Write,
                    ArrayAccess::InOut => Access::Update,
                };
                Self::Memory(access, Some(dtype(of)))
            }
            ParameterKind::Scalar(of) => Self::Number(dtype(of)),
            // A kind of a later version: nothing is known of it but that it is passed on.
            _ => Self::Memory(Access::Update, None),
        }
    }

    /// Returns `true` if `stated`, which a file says, is what this means.
    fn agrees_with(self, stated: Self) -> bool {
        match (self, stated) {
            // Memory of any type is left open, not said.
            (Self::Memory(access, None), Self::Memory(other, _)) => access == other,
            (one, other) => one == other,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Memory(Access::Read, _) => "in",
            Self::Memory(Access::Write, _) => "out",
            Self::Memory(Access::Update, _) => "inout",
            Self::Number(_) => "scalar",
        }
    }

    fn dtype(self) -> Option<DType> {
        match self {
            Self::Memory(_, dtype) => dtype,
            Self::Number(dtype) => Some(dtype),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(dtype) => f.write_str(dtype.name()),
            memory @ Self::Memory(_, dtype) => {
                write!(f, "{} {}[]", memory.what(), dtype.map_or("any", DType::name))
            }
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Param { name, wants }) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let name = name.as_deref().unwrap_or("_");
            write!(f, "{comma}{name}: {wants}")?;
        }
        Ok(())
    }
}

impl Signature {
    /// Reads what a program says of a kernel: annotations, or a function with them.
    pub(crate) fn parse(said: &Bound<'_, PyAny>) -> PyResult<Vec<Param>> {
        said.py().import("et._types")?.getattr("parameters")?.call1((said,))?.extract()
    }

    /// Makes one of what a program says of a kernel.
    fn new(params: Vec<Param>) -> Self {
        Self(params.into())
    }

    /// Makes one of what a file says of a kernel.
    fn stated(signature: &et::kernel::Signature) -> Self {
        let param = |parameter: &et::kernel::Parameter| Param {
            name: Some(parameter.name.clone()),
            wants: Type::of(parameter.kind),
        };
        Self(signature.parameters().iter().map(param).collect())
    }

    /// Returns what is known of a kernel: what the program says, else what the file does.
    ///
    /// # Errors
    /// `ArgumentsMismatchError` if they do not agree.
    pub(crate) fn of(
        py: Python<'_>,
        kernel: &et::Kernel,
        said: Option<Vec<Param>>,
    ) -> PyResult<Option<Self>> {
        let stated = kernel.signature().map(Self::stated);
        let (Some(said), Some(stated)) = (&said, &stated) else {
            return Ok(said.map(Self::new).or(stated));
        };
        let mismatch = |text: String, parameter: Option<&str>| {
            let text = format!("kernel {}: {text}", kernel.name());
            let args = (text, kernel.name(), stated.to_string(), parameter);
            error::raise_with(py, "ArgumentsMismatchError", args)
        };
        if said.len() != stated.0.len() {
            let (said, states) = (said.len(), stated.0.len());
            let text = format!("its file states {states} arguments ({stated}), not {said}");
            return Err(mismatch(text, None));
        }
        let mut params = said.clone();
        for (index, (param, stated)) in params.iter_mut().zip(&*stated.0).enumerate() {
            let name = stated.name.as_deref();
            if !param.wants.agrees_with(stated.wants) {
                let (wants, states) = (param.wants, stated.wants);
                let place = format!("argument {index} ({})", name.unwrap_or("_"));
                return Err(mismatch(
                    format!("{place}: its file states {states}, not {wants}"),
                    name,
                ));
            }
            param.name.clone_from(&stated.name);
        }
        Ok(Some(Self::new(params)))
    }

    pub(crate) fn params(&self) -> &[Param] {
        &self.0
    }

    /// Returns the parameters for Python, with their places.
    pub(crate) fn list(&self) -> Vec<Parameter> {
        let mut end = 0_usize;
        let mut place = |size: usize| {
            let offset = end.next_multiple_of(size);
            end = offset + size;
            offset
        };
        let parameter = |Param { name, wants }: &Param| Parameter {
            name: name.clone(),
            access: wants.what(),
            dtype: wants.dtype().map(DType::name),
            offset: place(match wants {
                Type::Memory(..) => size_of::<u64>(),
                Type::Number(dtype) => dtype.size,
            }),
            text: wants.to_string(),
        };
        self.0.iter().map(parameter).collect()
    }
}

/// A parameter of a kernel.
#[pyclass(frozen, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Its name; `None` if that is not known.
    #[pyo3(get)]
    name: Option<String>,
    /// What the kernel does with it: "in", "out" or "inout" of memory, "scalar" of a number.
    #[pyo3(get)]
    access: &'static str,
    /// Name of the type of a number, or of the elements of memory, as NumPy has it; `None` of
    /// memory of any type.
    #[pyo3(get)]
    dtype: Option<&'static str>,
    /// Where it is, in bytes from the first argument.
    #[pyo3(get)]
    offset: usize,
    text: String,
}

#[pymethods]
impl Parameter {
    fn __str__(&self) -> String {
        format!("{}: {}", self.name.as_deref().unwrap_or("_"), self.text)
    }

    fn __repr__(&self) -> String {
        format!("<et.Parameter {}>", self.__str__())
    }
}
