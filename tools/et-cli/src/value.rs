//! Arguments of `et run` and `et graph`: scalars, types, shapes.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use et::KernelArgs;
use et::kernel::{ArrayAccess, ParameterKind, Signature};
use half::f16;

/// Type of a scalar or of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
}

impl Type {
    pub(crate) const ALL: [(&'static str, Self, &'static str); 11] = [
        ("u8", Self::U8, "|u1"),
        ("u16", Self::U16, "<u2"),
        ("u32", Self::U32, "<u4"),
        ("u64", Self::U64, "<u8"),
        ("i8", Self::I8, "|i1"),
        ("i16", Self::I16, "<i2"),
        ("i32", Self::I32, "<i4"),
        ("i64", Self::I64, "<i8"),
        ("f16", Self::F16, "<f2"),
        ("f32", Self::F32, "<f4"),
        ("f64", Self::F64, "<f8"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, ty, _)| *ty == self).map_or("", |(name, ..)| name)
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

impl FromStr for Type {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.iter().find(|(name, ..)| *name == text);
        found.map(|(_, ty, _)| *ty).with_context(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, ..)| *name).collect();
            format!("unknown type \"{text}\"; types are {}", names.join(", "))
        })
    }
}

/// One `--arg`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// `f32:2.5`
    Scalar(Type, String),
    /// `in:x.npy`, or `in:x.npy:f32` to have the type checked.
    In(PathBuf, Option<Type>),
    /// `out:z.npy:f32[16384]`
    Out(PathBuf, Type, Vec<u64>),
    /// `inout:y.npy`, written back to the file, or `inout:y.npy:z.npy`, written to another.
    InOut(PathBuf, PathBuf),
}

impl Argument {
    /// What it is, as a kernel's file states it.
    fn kind(&self, elements: Option<Type>) -> String {
        let elements = elements.map_or("", Type::name);
        match self {
            Self::Scalar(ty, _) => ty.name().to_owned(),
            Self::In(..) => format!("in {elements}[]"),
            Self::Out(..) => format!("out {elements}[]"),
            Self::InOut(..) => format!("inout {elements}[]"),
        }
    }
}

impl FromStr for Argument {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, rest) = text
            .split_once(':')
            .with_context(|| format!("\"{text}\" is no argument; write for example f32:2.5, u64:16384, in:x.npy, out:z.npy:f32[16384] or inout:y.npy"))?;
        match kind {
            "in" => Ok(match rest.rsplit_once(':') {
                Some((path, ty)) if ty.parse::<Type>().is_ok() => {
                    Self::In(path.into(), ty.parse().ok())
                }
                _ => Self::In(rest.into(), None),
            }),
            "out" => {
                let (path, shape) = rest.rsplit_once(':').with_context(|| {
                    format!("\"{text}\" needs a type and shape, as out:z.npy:f32[16384]")
                })?;
                let (ty, shape) = shape_of(shape)?;
                Ok(Self::Out(path.into(), ty, shape))
            }
            "inout" => {
                let (from, to) = rest.split_once(':').unwrap_or((rest, rest));
                Ok(Self::InOut(from.into(), to.into()))
            }
            ty => {
                let ty: Type = ty.parse()?;
                scalar(KernelArgs::new(), ty, rest)?;
                Ok(Self::Scalar(ty, rest.to_owned()))
            }
        }
    }
}

/// Compares the arguments with those that the kernel's file states.
pub(crate) fn check(
    signature: &Signature,
    given: &[(&Argument, Option<Type>)],
) -> anyhow::Result<()> {
    let parameters = signature.parameters();
    ensure!(
        parameters.len() == given.len(),
        "the kernel has {} arguments ({signature}), {} were given",
        parameters.len(),
        given.len()
    );
    for (parameter, (argument, elements)) in parameters.iter().zip(given) {
        let (name, kind) = (&parameter.name, parameter.kind);
        let is_right = match (argument, kind) {
            (Argument::Scalar(ty, _), ParameterKind::Scalar(of)) => ty.name() == of.name(),
            // Nothing would be in it.
            (Argument::Out(..), ParameterKind::Array { access: ArrayAccess::In, .. }) => false,
            (_, ParameterKind::Array { of, .. }) => {
                elements.is_some_and(|elements| elements.name() == of.name())
            }
            _ => false,
        };
        let given = argument.kind(*elements);
        ensure!(is_right, "argument {name} of the kernel is {kind}, {given} was given");
    }
    Ok(())
}

/// `f32[16,1024]`
fn shape_of(text: &str) -> anyhow::Result<(Type, Vec<u64>)> {
    let shape = text.strip_suffix(']').and_then(|text| text.split_once('['));
    let (ty, dims) =
        shape.with_context(|| format!("\"{text}\" is no type and shape, as f32[16,1024]"))?;
    let ty: Type = ty.parse()?;
    let dims = dims
        .split(',')
        .map(|dim| dim.trim().parse().with_context(|| format!("bad dimension \"{dim}\"")))
        .collect::<anyhow::Result<Vec<u64>>>()?;
    let bytes = dims.iter().try_fold(ty.size() as u64, |bytes, &dim| bytes.checked_mul(dim));
    ensure!(bytes.is_some_and(|bytes| bytes != 0), "\"{text}\" has no elements, or too many");
    Ok((ty, dims))
}

/// Adds a scalar to the argument block. Integers may be written in hexadecimal.
pub(crate) fn scalar(args: KernelArgs, ty: Type, text: &str) -> anyhow::Result<KernelArgs> {
    let bad = || format!("\"{text}\" is no {}", ty.name());
    macro_rules! integer {
        ($method:ident) => {{
            let value = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16)
                    .ok()
                    .and_then(|value| value.try_into().ok())
                    .with_context(bad)?,
                None => text.parse().with_context(bad)?,
            };
            args.$method(value)
        }};
    }
    Ok(match ty {
        Type::U8 => integer!(u8),
        Type::U16 => integer!(u16),
        Type::U32 => integer!(u32),
        Type::U64 => integer!(u64),
        Type::I8 => integer!(i8),
        Type::I16 => integer!(i16),
        Type::I32 => integer!(i32),
        Type::I64 => integer!(i64),
        // As the kernel's file names it, the nearest number of half precision.
        Type::F16 => args.u16(f16::from_f32(text.parse().with_context(bad)?).to_bits()),
        Type::F32 => args.f32(text.parse().with_context(bad)?),
        Type::F64 => args.f64(text.parse().with_context(bad)?),
    })
}

/// A shire mask: `0x…`, or a list as `0-3,8`.
pub(crate) fn shires(text: &str) -> anyhow::Result<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).with_context(|| format!("bad mask \"{text}\""));
    }
    let mut mask = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| {
            text.trim().parse::<u32>().with_context(|| format!("bad shire \"{text}\""))
        };
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last || last > 63 {
            bail!("bad range of shires \"{part}\"");
        }
        mask |= (first..=last).fold(0, |mask, shire| mask | 1 << shire);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let parse = |text: &str| text.parse::<Argument>();
        assert_eq!(parse("f32:2.5").unwrap(), Argument::Scalar(Type::F32, "2.5".into()));
        assert_eq!(parse("in:x.npy").unwrap(), Argument::In("x.npy".into(), None));
        let typed = Argument::In("x.npy".into(), Some(Type::F32));
        assert_eq!(parse("in:x.npy:f32").unwrap(), typed);
        assert_eq!(
            parse("out:z.npy:f32[16,4]").unwrap(),
            Argument::Out("z.npy".into(), Type::F32, vec![16, 4])
        );
        assert_eq!(parse("inout:y.npy").unwrap(), Argument::InOut("y.npy".into(), "y.npy".into()));
        for bad in
            ["f32", "f32:x", "u8:256", "q8:1", "out:z.npy", "out:z.npy:f32[0]", "out:z:f32[a]"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shires_are_masks_or_lists() {
        assert_eq!(shires("0xf0").unwrap(), 0xf0);
        assert_eq!(shires("0-3,8").unwrap(), 0x10f);
        assert!(shires("3-1").is_err() && shires("64").is_err() && shires("x").is_err());
    }
}
