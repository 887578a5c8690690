//! Arrays in `.npy` files, as bytes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use half::f16;
use npyz::{DType, NpyHeader, Order, WriterBuilder};

use crate::value::Type;

/// An array: elements in C order, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) ty: Type,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Reads an array of any supported type.
pub(crate) fn read(path: &Path) -> anyhow::Result<Array> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    read_from(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))
}

fn read_from(mut file: impl Read) -> anyhow::Result<Array> {
    let header = NpyHeader::from_reader(&mut file).context("not an .npy file")?;
    let DType::Plain(plain) = header.dtype() else { bail!("structured arrays are not supported") };
    let name = plain.to_string();
    let ty = Type::ALL
        .iter()
        .find(|(.., npy)| *npy == name)
        .map(|(_, ty, _)| *ty)
        .with_context(|| format!("elements of type \"{name}\" are not supported"))?;
    let shape = header.shape().to_vec();
    ensure!(
        header.order() == Order::C || shape.len() < 2,
        "the array is in Fortran order; save numpy.ascontiguousarray of it"
    );
    let count = shape.iter().try_fold(ty.size() as u64, |bytes, &dim| bytes.checked_mul(dim));
    let count = count.and_then(|count| usize::try_from(count).ok()).context("impossible shape")?;
    let mut bytes = Vec::new();
    file.take(count as u64 + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() == count, "the shape needs {count} bytes, the file has another number");
    Ok(Array { ty, shape, bytes })
}

/// Writes an array.
pub(crate) fn write(path: &Path, array: &Array) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut out = BufWriter::new(file);
    write_to(&mut out, array).with_context(|| format!("writing {}", path.display()))?;
    out.flush().with_context(|| format!("writing {}", path.display()))
}

fn write_to(out: &mut impl Write, array: &Array) -> anyhow::Result<()> {
    macro_rules! elements {
        ($type:ty) => {{
            let mut writer = npyz::WriteOptions::<$type>::new()
                .default_dtype()
                .shape(&array.shape)
                .writer(out)
                .begin_nd()?;
            for bytes in array.bytes.chunks_exact(size_of::<$type>()) {
                let bytes = bytes.try_into().context("chunks have the size of the element")?;
                writer.push(&<$type>::from_le_bytes(bytes))?;
            }
            writer.finish()?;
        }};
    }
    match array.ty {
        Type::U8 => elements!(u8),
        Type::U16 => elements!(u16),
        Type::U32 => elements!(u32),
        Type::U64 => elements!(u64),
        Type::I8 => elements!(i8),
        Type::I16 => elements!(i16),
        Type::I32 => elements!(i32),
        Type::I64 => elements!(i64),
        Type::F16 => elements!(f16),
        Type::F32 => elements!(f32),
        Type::F64 => elements!(f64),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_survive_the_round_trip() {
        for (_, ty, npy) in Type::ALL {
            let bytes = (0..6 * ty.size()).map(|i| u8::try_from(i % 64).unwrap()).collect();
            let array = Array { ty, shape: vec![2, 3], bytes };
            let mut file = Vec::new();
            write_to(&mut file, &array).unwrap();
            assert!(file.windows(3).any(|window| window == npy.as_bytes()), "{npy}");
            assert_eq!(read_from(&file[..]).unwrap(), array);
        }
    }

    #[test]
    fn damaged_files_are_errors() {
        let array = Array { ty: Type::F32, shape: vec![4], bytes: vec![0; 16] };
        let mut file = Vec::new();
        write_to(&mut file, &array).unwrap();
        assert!(read_from(&file[..file.len() - 1]).is_err());
        file.push(0);
        assert!(read_from(&file[..]).is_err());
        assert!(read_from(&b"no npy"[..]).is_err());
    }
}
