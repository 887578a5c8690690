//! Mistakes of the caller.

use et_hal::Hal;
use et_runtime::graph::{GraphBuilder, GraphError, Task};
use et_runtime::{Error, KernelArgs, Launch};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Rig};

crate::case::group! { Runtime, "runtime::mistakes":
    bad_launches_are_refused,
    bad_copies_are_refused_and_copy_nothing,
    buffers_and_kernels_of_another_device_are_refused,
    handles_of_a_closed_device_say_so,
}

/// Runs mistakes, and checks that none of them reached the device, if the rig can tell.
fn unsent<H: Hal>(
    rig: &Rig<H>,
    bench: &Bench<H>,
    mistakes: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = rig.commands(bench.device.hal());
    mistakes()?;
    check_eq!(rig.commands(bench.device.hal()), before, "the commands the device has seen");
    Ok(())
}

fn bad_launches_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("add")?;
    let available = bench.device.properties().shire_mask;
    let used = bench.device.memory_stats().used_bytes;
    let launch = |launch: Launch| bench.stream().launch(&launch);
    unsent(rig, &bench, || {
        for asked in [0, available | 1 << 40, 1 << 63] {
            let outcome = launch(Launch::new(&kernel).shires(asked));
            let Err(Error::ShireMask { asked: its, available: has }) = outcome else {
                return Err(Failure::new(format!("shires {asked:#x} gave {outcome:?}")));
            };
            check_eq!((its, has), (asked, available), "the masks in the error");
        }
        let args = KernelArgs::new().bytes(&vec![0; (1 << 20) + 1], 1);
        let outcome = launch(Launch::new(&kernel).args(args));
        check_matches!(outcome, Err(Error::ArgumentsTooLarge { .. }), "too many arguments");
        for words in [0, 3, 5] {
            let outcome = launch((0..words).fold(Launch::new(&kernel), Launch::u64));
            let Err(Error::ArgumentsMismatch { found, expected: 32, .. }) = outcome else {
                return Err(Failure::new(format!("{words} arguments gave {outcome:?}")));
            };
            check_eq!(found as u64, 8 * words, "the bytes in the error");
            // A task of a graph is one too.
            let mut builder = GraphBuilder::new();
            let add = builder.kernel(&kernel);
            let outcome = builder.add((0..words).fold(Task::new(add), Task::u64));
            let Err(GraphError::ArgumentsMismatch { found, expected: 32, .. }) = outcome else {
                return Err(Failure::new(format!("a task of {words} arguments gave {outcome:?}")));
            };
            check_eq!(found as u64, 8 * words, "the bytes in the error of the graph");
        }
        let four = (0..4).fold(Launch::new(&kernel), Launch::u64);
        let outcome = launch(four.stack_bytes(1 << 40));
        check_matches!(outcome, Err(Error::LaunchOption { option: "stack", .. }), "a huge stack");
        Ok(())
    })?;
    check_eq!(bench.device.memory_stats().used_bytes, used, "the memory of refused launches");
    check!(bench.stream().is_idle(), "the stream has refused launches");
    bench.works()
}

fn bad_copies_are_refused_and_copy_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.stream();
    let buffer = bench.upload(&[0x5au8; 1024])?;
    unsent(rig, &bench, || {
        for range in [1000..1025, 1025..1025, 0..u64::MAX] {
            let outcome = buffer.slice(range.clone());
            check_matches!(outcome, Err(Error::OutOfRange { .. }), "the slice {range:?}");
        }
        let outcome = stream.copy_to_device(&[0u8; 8], buffer.slice(4..12)?);
        check_matches!(outcome, Err(Error::Misaligned { .. }), "a copy to an odd place");
        let outcome = stream.copy_to_device(&[0u8; 5], buffer.slice(0..5)?);
        check_matches!(outcome, Err(Error::Misaligned { .. }), "an odd copy inside a buffer");
        let outcome = stream.fill(buffer.slice(8..13)?, 0);
        check_matches!(outcome, Err(Error::Misaligned { .. }), "an odd fill inside a buffer");
        let outcome = stream.copy_to_device(&[0u8; 8], &buffer);
        check_matches!(
            outcome,
            Err(Error::LengthMismatch { from: 8, to: 1024 }),
            "a copy of another length"
        );
        let outcome = stream.read(&buffer, &mut [0u8; 1025], bench.patience);
        check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a read of another length");
        let (low, high) = (buffer.slice(0..512)?, buffer.slice(256..768)?);
        let outcome = stream.copy_on_device(low, high);
        check_matches!(outcome, Err(Error::Overlap { len: 512, .. }), "an overlap");
        let outcome = bench.device.alloc(1 << 50);
        let text = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        check!(text.contains("1125899906842624") && text.contains("largest"), "{text}");
        Ok(())
    })?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &[0x5a; 1024])
}

/// The other device is the same one, opened again: it may be the only one there is.
fn buffers_and_kernels_of_another_device_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let first = Bench::open(rig)?;
    let (buffer, kernel) = (first.zeroed(1024)?, first.load("add")?);
    first.device.close();
    let bench = Bench::open(rig)?;
    // The address of the foreign buffer is used too, by something else.
    let same_place = bench.zeroed(1024)?;
    check_eq!(same_place.addr(), buffer.addr(), "the first address of a device");
    let own = bench.zeroed(1024)?;
    unsent(rig, &bench, || {
        let stream = bench.stream();
        let foreign = |what: &str, outcome: Result<(), Error>| {
            check_matches!(outcome, Err(Error::ForeignBuffer), "{what}");
            Ok::<(), Failure>(())
        };
        foreign("a fill", stream.fill(&buffer, 1).map(drop))?;
        foreign("a copy", stream.copy_to_device(&[1u8; 1024], &buffer).map(drop))?;
        foreign("a copy from", stream.copy_on_device(&buffer, &own).map(drop))?;
        foreign("a copy to", stream.copy_on_device(&own, &buffer).map(drop))?;
        foreign("a launch", stream.launch(&Launch::new(&kernel)).map(drop))
    })?;
    same("the buffer in its place", &bench.download::<u8>(&same_place)?, &[0; 1024])?;
    bench.works()
}

fn handles_of_a_closed_device_say_so<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let buffer = bench.zeroed(64)?;
    let event = stream.barrier()?;
    let launch = Launch::new(&bench.load("memset")?);
    let patience = bench.patience;
    bench.device.close();
    // What was in flight was waited for.
    event.wait(patience)?;
    let closed = |what: &str, outcome: Result<(), Error>| {
        let site = match &outcome {
            Err(Error::Closed { site }) => site,
            _ => return Err(Failure::new(format!("{what} on a closed device: {outcome:?}"))),
        };
        let is_named = site.operation().is_some() && site.device().is_some();
        check!(is_named, "{what} on a closed device fails as {site}");
        Ok::<(), Failure>(())
    };
    closed("a fill", stream.fill(&buffer, 1).map(drop))?;
    closed("a copy", stream.copy_to_device(&[0u8; 64], &buffer).map(drop))?;
    closed("a read", stream.read(&buffer, &mut [0u8; 64], patience))?;
    closed("a launch", stream.launch(&launch).map(drop))?;
    closed("a barrier", stream.barrier().map(drop))?;
    // Streams and events keep their device from others.
    drop((stream, event));
    Bench::open(rig)?.works()
}
