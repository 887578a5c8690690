//! The kernels that the runtime brings along.

use et_hal::Hal;
use et_runtime::kernel::Builtins;
use et_runtime::{Error, Launch};

use super::bench::{Bench, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::builtins":
    every_builtin_kernel_is_listed_and_runs [Need::Compute],
    cores_copy_any_part_to_any_other [Need::Compute],
    cores_fill_any_part_with_any_pattern [Need::Compute],
    builtins_refuse_mistakes [Need::Compute],
}

/// By its list, without knowing more than that says.
fn every_builtin_kernel_is_listed_and_runs<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let builtins = bench.device.builtins()?;
    check_eq!(Builtins::list().len(), 2, "the number of builtin kernels");
    for builtin in Builtins::list() {
        let (source, target) = (bench.upload(&pattern(4096))?, bench.zeroed(4096)?);
        let mut launch = Launch::new(&builtins.kernel(builtin.name)?);
        for argument in builtin.arguments {
            launch = match *argument {
                "uint8_t *dst" => launch.buffer(&target),
                "const uint8_t *src" => launch.buffer(&source),
                "uint64_t n" => launch.u64(4096),
                "uint8_t pattern[16]" => launch.u64(u64::MAX).u64(u64::MAX),
                other => return Err(Failure::new(format!("{}: {other}", builtin.name))),
            };
        }
        bench.done(&bench.stream().launch(&launch)?)?;
        let expected = if builtin.name == "copy" { pattern(4096) } else { vec![0xff; 4096] };
        same(builtin.name, &bench.download::<u8>(&target)?, &expected)?;
    }
    let used = bench.device.memory_stats().used_bytes;
    drop(bench.device.builtins()?);
    check_eq!(bench.device.memory_stats().used_bytes, used, "the memory of a second load");
    Ok(())
}

/// Offsets and lengths in a buffer of 20 000 bytes: aligned alike, not alike, short, and empty.
const PARTS: [(u64, u64, u64); 7] = [
    (0, 0, 20_000),
    (1, 1, 9_999),
    (3, 64, 5_001),
    (64, 7, 12_345),
    (1000, 1003, 3),
    (5, 6, 1),
    (8, 8, 0),
];

fn cores_copy_any_part_to_any_other<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let builtins = bench.device.builtins()?;
    let data = pattern(20_000);
    let (source, target) = (bench.upload(&data)?, bench.device.alloc(20_000)?);
    for (from, to, len) in PARTS {
        bench.done(&bench.stream().fill(&target, 0xee)?)?;
        let copy = builtins.copy(source.slice(from..from + len)?, target.slice(to..to + len)?)?;
        bench.done(&bench.stream().launch(&copy)?)?;
        let mut expected = vec![0xee; 20_000];
        let (from, to, len) = (usize::try_from(from)?, usize::try_from(to)?, usize::try_from(len)?);
        expected[to..to + len].copy_from_slice(&data[from..from + len]);
        let what = format!("{len} bytes from {from} to {to}");
        same(&what, &bench.download::<u8>(&target)?, &expected)?;
    }
    same("the source", &bench.download::<u8>(&source)?, &data)
}

fn cores_fill_any_part_with_any_pattern<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let builtins = bench.device.builtins()?;
    let target = bench.device.alloc(20_000)?;
    for ((_, to, len), bytes) in PARTS.into_iter().zip([16, 8, 4, 2, 1].into_iter().cycle()) {
        let sample = &pattern(32)[16 - bytes..][..bytes];
        bench.done(&bench.stream().fill(&target, 0xee)?)?;
        let fill = builtins.fill(target.slice(to..to + len)?, sample)?;
        bench.done(&bench.stream().launch(&fill)?)?;
        let mut expected = vec![0xee; 20_000];
        let part = &mut expected[usize::try_from(to)?..usize::try_from(to + len)?];
        part.iter_mut().zip(sample.iter().cycle()).for_each(|(to, from)| *to = *from);
        let what = format!("{bytes} bytes over {len} at {to}");
        same(&what, &bench.download::<u8>(&target)?, &expected)?;
    }
    Ok(())
}

fn builtins_refuse_mistakes<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let builtins = bench.device.builtins()?;
    let buffer = bench.zeroed(256)?;
    let part = |start| buffer.slice(start..start + 100);
    let outcome = builtins.copy(part(0)?, part(99)?);
    check_matches!(outcome, Err(Error::Overlap { .. }), "a copy over itself");
    let outcome = builtins.copy(part(0)?, buffer.slice(100..199)?);
    check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a copy to a shorter place");
    let outcome = builtins.fill(part(0)?, &[1; 3]);
    check_matches!(outcome, Err(Error::Unsupported { .. }), "a pattern of three bytes");
    let outcome = builtins.kernel("sort");
    check_matches!(outcome, Err(Error::Unsupported { .. }), "a kernel that is not built in");
    check!(builtins.copy(part(0)?, part(100)?).is_ok(), "two parts side by side are refused");
    Ok(())
}
