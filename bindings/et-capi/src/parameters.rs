//! What kernels take, as their files state it.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;

use et::kernel::{ArrayAccess, ParameterKind, ScalarType};

use crate::call::guard;
use crate::device::no_such;
use crate::graph::et_access;
use crate::kernel::et_kernel;
use crate::raw::{self, Growing};
use crate::status::et_status;
use crate::table;

/// Type of a number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_scalar {
    /// `uint8_t`.
    ET_U8 = 1,
    /// `uint16_t`.
    ET_U16 = 2,
    /// `uint32_t`.
    ET_U32 = 3,
    /// `uint64_t`.
    ET_U64 = 4,
    /// `int8_t`.
    ET_I8 = 5,
    /// `int16_t`.
    ET_I16 = 6,
    /// `int32_t`.
    ET_I32 = 7,
    /// `int64_t`.
    ET_I64 = 8,
    /// Half precision.
    ET_F16 = 9,
    /// `float`.
    ET_F32 = 10,
    /// `double`.
    ET_F64 = 11,
}

impl From<ScalarType> for et_scalar {
    fn from(of: ScalarType) -> Self {
        match of {
            ScalarType::U8 => Self::ET_U8,
            ScalarType::U16 => Self::ET_U16,
            ScalarType::U32 => Self::ET_U32,
            ScalarType::U64 => Self::ET_U64,
            ScalarType::I8 => Self::ET_I8,
            ScalarType::I16 => Self::ET_I16,
            ScalarType::I32 => Self::ET_I32,
            ScalarType::I64 => Self::ET_I64,
            ScalarType::F16 => Self::ET_F16,
            ScalarType::F32 => Self::ET_F32,
            ScalarType::F64 => Self::ET_F64,
        }
    }
}

/// An argument that a kernel takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_parameter {
    /// `sizeof(et_parameter)`, set by the caller.
    pub size: usize,
    /// Where it is, in bytes from the first argument.
    pub offset: usize,
    /// An `et_scalar`: the type of a number, or of the elements of an array. 0 if this version does
    /// not know it.
    pub scalar: u32,
    /// An `et_access`: what the kernel does with an array whose address it gets; 0 of a number.
    pub access: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_parameter {
    const FIRST: usize = size_of::<Self>();
}

/// Returns the number of arguments that a kernel takes, and 1 in `is_stated` if its file states
/// them with `ET_ARGUMENTS`; if not, both are 0, and anything is passed on. `is_stated` may be
/// null.
///
/// A launch with other arguments than those stated is `ET_INVALID`.
#[unsafe(no_mangle)]
pub extern "C" fn et_kernel_parameter_count(
    kernel: et_kernel,
    count: Option<&mut MaybeUninit<usize>>,
    is_stated: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let kernel = table::get(kernel)?;
        let signature = kernel.signature();
        let out = raw::wanted(count, "count")?;
        out.write(signature.map_or(0, |signature| signature.parameters().len()));
        raw::store(is_stated, signature.is_some().into());
        Ok(())
    })
}

/// Returns an argument that a kernel takes, and its name. The caller sets `parameter->size`;
/// `parameter` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_parameter(
    kernel: et_kernel,
    index: usize,
    parameter: *mut et_parameter,
    name: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let kernel = table::get(kernel)?;
        let stated = kernel.signature().map_or(&[][..], |signature| signature.parameters());
        let found = stated.get(index).ok_or_else(|| no_such("parameter", index))?;
        let (scalar, access) = match found.kind {
            ParameterKind::Scalar(of) => (et_scalar::from(of) as u32, 0),
            ParameterKind::Array { of, access } => {
                let access = match access {
                    ArrayAccess::In => et_access::ET_READS,
                    ArrayAccess::Out => et_access::ET_WRITES,
                    ArrayAccess::InOut => et_access::ET_UPDATES,
                };
                (et_scalar::from(of) as u32, access as u32)
            }
            _ => (0, 0),
        };
        if !parameter.is_null() {
            let value = et_parameter { size: 0, offset: found.offset, scalar, access };
            // SAFETY: promised by the caller.
            unsafe { raw::put(&value, parameter, "parameter") }?;
        }
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&found.name, name, capacity, needed) }
    })
}

/// Returns all that a kernel takes as a text, such as `x: in f32[], n: u64`; an empty one if its
/// file does not state it. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_signature(
    kernel: et_kernel,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let text = table::get(kernel)?.signature().map(ToString::to_string).unwrap_or_default();
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}
