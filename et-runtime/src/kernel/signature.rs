//! What a kernel file says about its arguments.

use std::fmt;
use std::str::FromStr;

/// Arguments of a kernel, as its file states them with `ET_ARGUMENTS`.
///
/// The text form is `x: in f32[], y: inout f32[], a: f32, n: u64`: members of the kernel's
/// `struct args` in their order, numbers by type, pointers by what they point to and what the
/// kernel does with that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    parameters: Vec<Parameter>,
    len_bytes: usize,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ParameterKind,
    /// Where it is, in bytes from the first argument.
    pub offset: usize,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// A number.
    Scalar(ScalarType),
    /// The address of an array in device memory.
    Array {
        /// Type of the elements.
        of: ScalarType,
        /// What the kernel does with it.
        access: ArrayAccess,
    },
}

/// What a kernel does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayAccess {
    /// It reads it: `in`.
    In,
    /// It writes it: `out`.
    Out,
    /// Both: `inout`.
    InOut,
}

macro_rules! scalars {
    ($($(#[$doc:meta])* $variant:ident $name:literal $size:literal,)*) => {
        /// Type of a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ScalarType {
            $($(#[$doc])* $variant,)*
        }

        impl ScalarType {
            /// Returns its name, as in the text form.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns its size in bytes, which is its alignment too.
            #[must_use]
            pub const fn size_bytes(self) -> usize {
                match self {
                    $(Self::$variant => $size,)*
                }
            }

            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

scalars! {
    /// `uint8_t`.
    U8 "u8" 1,
    /// `uint16_t`.
    U16 "u16" 2,
    /// `uint32_t`.
    U32 "u32" 4,
    /// `uint64_t`.
    U64 "u64" 8,
    /// `int8_t`.
    I8 "i8" 1,
    /// `int16_t`.
    I16 "i16" 2,
    /// `int32_t`.
    I32 "i32" 4,
    /// `int64_t`.
    I64 "i64" 8,
    /// Half precision.
    F16 "f16" 2,
    /// `float`.
    F32 "f32" 4,
    /// `double`.
    F64 "f64" 8,
}

/// A text that states no arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{parameter}\" states no argument; write name: u64, or name: in f32[]")]
pub struct SignatureError {
    /// The part that is wrong.
    pub parameter: String,
}

impl Signature {
    /// Returns the arguments in their order.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the length of all arguments in bytes, with the padding of a `struct`.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let mut signature = Self { parameters: Vec::new(), len_bytes: 0 };
        let mut align = 1;
        for parameter in text.split(',').map(str::trim) {
            if parameter.is_empty() && text.trim().is_empty() {
                break;
            }
            let error = || SignatureError { parameter: parameter.to_owned() };
            let (name, kind) = parameter.split_once(':').ok_or_else(error)?;
            let kind = kind_of(kind.trim()).ok_or_else(error)?;
            let size = kind.size_bytes();
            let offset = signature.len_bytes.next_multiple_of(size);
            signature.parameters.push(Parameter { name: name.trim().to_owned(), kind, offset });
            signature.len_bytes = offset + size;
            align = align.max(size);
        }
        signature.len_bytes = signature.len_bytes.next_multiple_of(align);
        Ok(signature)
    }
}

fn kind_of(text: &str) -> Option<ParameterKind> {
    let Some((access, of)) = text.split_once(char::is_whitespace) else {
        return ScalarType::named(text).map(ParameterKind::Scalar);
    };
    let access = match access {
        "in" => ArrayAccess::In,
        "out" => ArrayAccess::Out,
        "inout" => ArrayAccess::InOut,
        _ => return None,
    };
    let of = ScalarType::named(of.trim().strip_suffix("[]")?.trim_end())?;
    Some(ParameterKind::Array { of, access })
}

impl ParameterKind {
    const fn size_bytes(self) -> usize {
        match self {
            Self::Scalar(of) => of.size_bytes(),
            Self::Array { .. } => size_of::<u64>(),
        }
    }
}

/// The text form.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Parameter { name, kind, .. }) in self.parameters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}: {kind}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(of) => f.write_str(of.name()),
            Self::Array { of, access } => write!(f, "{access} {}[]", of.name()),
        }
    }
}

impl fmt::Display for ArrayAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::InOut => "inout",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_as_in_a_struct() {
        let text = "x: in f32[], k: u8, y: inout i16[], a: f32, b: u16";
        let signature: Signature = text.parse().unwrap();
        let offsets: Vec<_> = signature.parameters().iter().map(|p| p.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 24, 28]);
        assert_eq!(signature.len_bytes(), 32);
        assert_eq!(signature.to_string(), text);
        let none: Signature = " ".parse().unwrap();
        assert_eq!((none.parameters(), none.len_bytes()), (&[][..], 0));
    }

    #[test]
    fn what_states_no_arguments_is_refused() {
        for (text, part) in [
            ("x", "x"),
            ("x: f31", "x: f31"),
            ("x: u8,", ""),
            ("x: u8, y: of f32[]", "y: of f32[]"),
            ("y: in f32", "y: in f32"),
            ("y: f32[]", "y: f32[]"),
        ] {
            let error = text.parse::<Signature>().unwrap_err();
            assert_eq!(error.parameter, part, "{text}");
        }
    }
}
