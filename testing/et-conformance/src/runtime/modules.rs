//! Kernel files with several entries, loaded once and without waiting.

use et_hal::Hal;
use et_runtime::memory::BufferOptions;
use et_runtime::{Error, Kernel, Launch, LoadError};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig, kernels};

crate::case::group! { Runtime, "runtime::modules":
    every_entry_of_a_file_is_a_kernel_and_the_file_is_there_once [Need::Compute],
    launches_wait_for_the_copy_of_their_kernel [Need::Compute],
    files_without_variables_are_shared_and_others_are_not [Need::Compute],
    a_kernel_is_loaded_where_the_caller_wants_it [Need::Compute],
}

fn every_entry_of_a_file_is_a_kernel_and_the_file_is_there_once<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let out = bench.zeroed(64)?;
    let used = || bench.device.memory_stats().used_bytes;
    let before = used();
    let (module, copy) = bench.device.load_module("entries", kernels::elf("entries")?)?;
    bench.done(&copy)?;
    let with_module = used();
    let kernels = [module.kernel()?, module.function("second")?, module.function("third")?];
    check_matches!(module.function("fourth"), Err(LoadError::Elf { .. }), "an unknown function");
    check_eq!(used(), with_module, "the memory of three kernels of a module");
    let names = kernels.each_ref().map(Kernel::name);
    check_eq!(names, ["entries", "entries:second", "entries:third"], "the names");
    for kernel in &kernels {
        check_eq!(kernel.load_address(), module.load_address(), "the place of a kernel");
    }
    drop(module);
    for (kernel, number) in kernels.iter().zip(1u64..) {
        bench.done(&bench.stream().launch(&Launch::new(kernel).buffer(&out))?)?;
        same(kernel.name(), &bench.download::<u64>(&out)?[..1], &[number])?;
    }
    let [first, second, third] = kernels;
    drop((first, second));
    check!(used() > before, "the image goes with the first kernel");
    third.unload().map_err(|(_, error)| error)?;
    Ok(())
}

/// The copy is of many pieces, and the launches are in other streams.
fn launches_wait_for_the_copy_of_their_kernel<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let out = bench.zeroed(64)?;
    let file = long_kernel(kernels::elf("entries")?)?;
    for round in 0..rig.times(8, 2) {
        // What was at the place before is no code.
        let space = bench.device.alloc(8 << 20)?;
        bench.done(&bench.stream().fill(&space, 0)?)?;
        drop(space);
        bench.done(&bench.stream().fill(&out, 0)?)?;
        let (module, copy) = bench.device.load_module("long", &file)?;
        let kernel = module.function("second")?;
        let event = bench.device.stream().launch(&Launch::new(&kernel).buffer(&out))?;
        check!(!event.is_done() || copy.is_done(), "a launch in round {round} overtook its kernel");
        bench.done(&event)?;
        bench.done(&copy)?;
        same("what it wrote", &bench.download::<u64>(&out)?[..1], &[2])?;
    }
    Ok(())
}

/// The file with zeros behind its only segment, which make it long and are otherwise unused.
fn long_kernel(elf: &[u8]) -> Result<Vec<u8>, Failure> {
    const BYTES: u64 = 4 << 20;
    let mut file = elf.to_vec();
    // Fields of the first program header: offset, size in the file, size in memory.
    let field = |file: &[u8], at: usize| -> Result<u64, Failure> {
        let bytes = file.get(64 + at..72 + at).and_then(|bytes| bytes.try_into().ok());
        Ok(u64::from_le_bytes(bytes.ok_or_else(|| Failure::new("the file is too short"))?))
    };
    let (start, len) = (field(&file, 8)?, field(&file, 32)?);
    let content = file[usize::try_from(start)?..usize::try_from(start + len)?].to_vec();
    let end = file.len().next_multiple_of(4096);
    file.resize(end, 0);
    file.extend(content);
    file.resize(end + usize::try_from(BYTES)?, 0);
    for (at, value) in [(8, end as u64), (32, BYTES), (40, BYTES)] {
        file[64 + at..72 + at].copy_from_slice(&value.to_le_bytes());
    }
    Ok(file)
}

fn files_without_variables_are_shared_and_others_are_not<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (first, second) = (bench.load("add")?, bench.load("add")?);
    check_eq!(first.load_address(), second.load_address(), "a file that is there already");
    let at = first.load_address();
    drop(first);
    bench.device.load_kernel("another name", kernels::elf("add")?)?;
    let used = || bench.device.memory_stats().used_bytes;
    let with_image = used();
    second.unload().map_err(|(_, error)| error)?;
    check!(used() < with_image, "the memory of an image that is gone is in use");
    let _other = bench.load("mul")?;
    let again = bench.load("add")?;
    check!(again.load_address() != at, "an image that is gone is found");
    let (first, second) = (bench.load("bss")?, bench.load("bss")?);
    check!(first.load_address() != second.load_address(), "kernels share their variables");
    let asked = second.clone().unload();
    check_matches!(asked, Err((_, Error::KernelInUse { .. })), "a kernel with a clone");
    bench.works()
}

fn a_kernel_is_loaded_where_the_caller_wants_it<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const PLACE: u64 = 4096;
    let bench = Bench::open(rig)?;
    let (elf, out) = (kernels::elf("entries")?, bench.zeroed(64)?);
    let options = BufferOptions::new().align(PLACE);
    let memory = bench.device.alloc_with(16 << 10, &options)?;
    let load = |range: std::ops::Range<u64>, function| -> Result<_, Failure> {
        let place = memory.slice(range)?;
        Ok(bench.device.load_kernel_to("placed", elf, function, &place))
    };
    let elsewhere = bench.load("entries")?;
    for (function, number) in [(None, 1u64), (Some("third"), 3)] {
        let kernel = load(PLACE..16 << 10, function)??;
        check_eq!(kernel.load_address().as_u64(), memory.addr().as_u64() + PLACE, "where it is");
        check!(kernel.len_bytes() <= 12 << 10, "it has {} bytes", kernel.len_bytes());
        bench.done(&bench.stream().launch(&Launch::new(&kernel).buffer(&out))?)?;
        same("what it wrote", &bench.download::<u64>(&out)?[..1], &[number])?;
        check!(elsewhere.load_address() != kernel.load_address(), "it is shared");
    }
    let refused = |outcome: Result<Kernel, LoadError>| match outcome {
        Err(LoadError::Device { source, .. }) => Ok(*source),
        other => Err(Failure::new(format!("{other:?} for memory that cannot hold a kernel"))),
    };
    check_matches!(refused(load(0..8, None)?)?, Error::OutOfRange { buffer: 8, .. }, "too short");
    let odd = refused(load(8..16 << 10, None)?)?;
    check_matches!(odd, Error::Misaligned { .. }, "no multiple of its alignment");
    let unknown = load(0..16 << 10, Some("fourth"))?;
    check_matches!(unknown, Err(LoadError::Elf { .. }), "an unknown function");
    let used = || bench.device.memory_stats().used_bytes;
    let (kernel, with_memory) = (load(0..16 << 10, None)??, used());
    drop(memory);
    check_eq!(used(), with_memory, "what is in use while the kernel is");
    drop(kernel);
    check!(used() < with_memory, "the memory goes with the kernel");
    bench.works()
}
