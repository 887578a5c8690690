//! Copies and fills.

use std::time::Duration;

use et_hal::{DmaBuffer, Hal};
use et_runtime::{Error, Launch, ListedCopy, Remains};

use super::bench::{Bench, pattern};
use crate::check::{Random, check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::copies":
    copies_of_all_sizes_arrive,
    parts_of_buffers_are_copied_without_their_surroundings,
    the_tail_of_a_buffer_does_not_touch_its_neighbour,
    fills_of_all_sizes_arrive,
    a_tiny_staging_pool_slows_down_and_does_not_block,
    copies_on_the_device_and_lists_keep_their_data_apart,
    a_list_with_a_mistake_copies_nothing,
    a_host_buffer_is_copied_directly_and_comes_back,
    parts_of_host_buffers_stay_untouched,
    shown_memory_outlives_a_refused_copy,
    a_transfer_that_runs_out_of_time_can_be_waited_for_again [Need::Compute, Need::Abort],
    copies_of_nothing_succeed,
}

/// Small ones, those at the limits of granules, pages and staging pieces, and some MiB.
const SIZES: [usize; 12] =
    [1, 7, 8, 63, 64, 4095, 4096, 4097, 262_143, 262_144, 262_145, 3_000_001];

fn sizes<H: Hal>(rig: &Rig<H>) -> impl Iterator<Item = usize> {
    let most = rig.times(3_000_001, 300_000);
    SIZES.into_iter().filter(move |len| *len <= most)
}

fn copies_of_all_sizes_arrive<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for len in sizes(rig) {
        let data = pattern(len);
        let buffer = bench.upload(&data)?;
        same(&format!("{len} bytes"), &bench.download(&buffer)?, &data)?;
    }
    Ok(())
}

/// Against a copy of the memory on the host.
fn parts_of_buffers_are_copied_without_their_surroundings<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    const BYTES: usize = 20_000;
    let bench = Bench::open(rig)?;
    let align = usize::try_from(bench.device.properties().dma_align_bytes)?;
    let mut random = Random::new(11);
    let mut model = random.bytes(BYTES);
    let buffer = bench.upload(&model)?;
    for _ in 0..rig.times(100, 20) {
        let start = random.below(BYTES / align) * align;
        // The last part may end where the buffer does; all others end at a multiple of the
        // alignment.
        let len = random.below((BYTES - start) / align + 1) * align;
        let part = buffer.slice(start as u64..(start + len) as u64)?;
        let data = random.bytes(len);
        bench.done(&bench.stream().copy_to_device(&data, &part)?)?;
        model[start..start + len].copy_from_slice(&data);
        let mut back = vec![0; len];
        bench.stream().read(&part, &mut back, bench.patience)?;
        same("a part", &back, &data)?;
    }
    same("the whole buffer", &bench.download(&buffer)?, &model)
}

fn the_tail_of_a_buffer_does_not_touch_its_neighbour<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.stream();
    for odd in [1, 5, 61, 4093] {
        let around = [64, odd, 64].map(|len| bench.device.alloc(len));
        let [before, tail, after] = around;
        let (before, tail, after) = (before?, tail?, after?);
        for neighbour in [&before, &after] {
            bench.done(&stream.fill(neighbour, 0xbb)?)?;
        }
        bench.done(&stream.copy_to_device(&vec![0xaa_u8; usize::try_from(odd)?], &tail)?)?;
        bench.done(&stream.fill(&tail, 0xcc)?)?;
        for neighbour in [&before, &after] {
            same("a neighbour", &bench.download::<u8>(neighbour)?, &[0xbb; 64])?;
        }
        let expected = vec![0xcc; usize::try_from(odd)?];
        same("the buffer", &bench.download::<u8>(&tail)?, &expected)?;
    }
    Ok(())
}

fn fills_of_all_sizes_arrive<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for (byte, len) in (1u8..).zip(sizes(rig)) {
        let buffer = bench.device.alloc(len as u64)?;
        bench.done(&bench.stream().fill(&buffer, 0)?)?;
        bench.done(&bench.stream().fill(&buffer, byte)?)?;
        same(&format!("{len} bytes"), &bench.download(&buffer)?, &vec![byte; len])?;
    }
    Ok(())
}

fn a_tiny_staging_pool_slows_down_and_does_not_block<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().staging_bytes(1))?;
    let len = rig.times(5 << 20, 600_000);
    let data = pattern(len);
    let a = bench.upload(&data)?;
    let b = bench.device.alloc(len as u64)?;
    let copy = bench.stream().copy_on_device(&a, &b)?;
    same("the copy of the copy", &bench.download(&b)?, &data)?;
    bench.done(&copy)
}

fn copies_on_the_device_and_lists_keep_their_data_apart<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let len = rig.times(1 << 20, 300_000);
    let (x, y) = (pattern(len), vec![9u8; 4096]);
    let a = bench.upload(&x)?;
    let (b, c) = (bench.device.alloc(len as u64)?, bench.device.alloc(4096)?);
    let list = [ListedCopy::OnDevice(a.whole(), b.whole()), ListedCopy::ToDevice(&y, c.whole())];
    bench.done(&bench.stream().copy_list(&list)?)?;
    same("the copy on the device", &bench.download(&b)?, &x)?;
    same("the copy to the device", &bench.download(&c)?, &y)?;
    same("the source", &bench.download(&a)?, &x)
}

fn a_list_with_a_mistake_copies_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (a, b) = (bench.upload(&[1u8; 256])?, bench.upload(&[2u8; 256])?);
    let news = [3u8; 256];
    let list = [
        ListedCopy::ToDevice(&news, a.whole()),
        ListedCopy::OnDevice(a.slice(0..128)?, a.slice(64..192)?),
        ListedCopy::ToDevice(&news, b.whole()),
    ];
    let outcome = bench.stream().copy_list(&list);
    check_matches!(outcome, Err(Error::Overlap { len: 128, .. }), "a list with an overlap");
    same("the first target", &bench.download::<u8>(&a)?, &[1; 256])?;
    same("the last target", &bench.download::<u8>(&b)?, &[2; 256])
}

fn a_host_buffer_is_copied_directly_and_comes_back<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.stream();
    let len = rig.times(4 << 20, 300_000).next_multiple_of(4096);
    let data = pattern(len);
    let mut host = bench.device.host_buffer(len)?;
    host.copy_in(0, &data)?;
    let target = bench.device.alloc(len as u64)?;
    let host = stream.upload(host, &target)?.wait(bench.patience)?;
    let other = bench.device.host_buffer(len)?;
    let other = stream.download(&target, other)?.wait(bench.patience)?;
    let mut back = vec![0u8; len];
    other.copy_out(0, &mut back)?;
    same("what came back", &back, &data)?;
    host.copy_out(0, &mut back)?;
    same("the source", &back, &data)
}

fn parts_of_host_buffers_stay_untouched<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let data = pattern(4096);
    let source = bench.upload(&data)?;
    let mut host = bench.device.host_buffer(12_000)?;
    host.fill(0, 12_000, 0x5c)?;
    let part = source.slice(64..64 + 2048)?;
    let host = bench.stream().download(&part, host)?.wait(bench.patience)?;
    let mut back = vec![0u8; 12_000];
    host.copy_out(0, &mut back)?;
    same("the part that was copied", &back[..2048], &data[64..64 + 2048])?;
    same("the rest of the buffer", &back[2048..], &[0x5c; 12_000 - 2048])?;
    let outcome = bench.stream().download(&source, bench.device.host_buffer(100)?);
    check_matches!(outcome, Err(Error::LengthMismatch { from: 4096, .. }), "a small buffer");
    Ok(())
}

fn shown_memory_outlives_a_refused_copy<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let mut host = bench.device.host_buffer(64)?;
    host.fill(0, 64, 7)?;
    let shown = host.memory().ok_or_else(|| Failure::new("memory of no one"))?;
    let outcome = host.fill(0, 1, 8);
    check_matches!(outcome, Err(Error::Unsupported { .. }), "a write while others look");
    let large = bench.device.alloc(4096)?;
    let outcome = bench.stream().upload(host, &large);
    check_matches!(
        outcome,
        Err(Error::LengthMismatch { .. }),
        "a copy that takes the buffer along"
    );
    let mut back = [0u8; 64];
    shown.copy_out(0, &mut back)?;
    same("what is shown", &back, &[7; 64])
}

fn a_transfer_that_runs_out_of_time_can_be_waited_for_again<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let hang = bench.load("hang")?;
    let event = stream.launch(&Launch::new(&hang).shires(bench.one_shire()))?;
    let target = bench.zeroed(4096)?;
    let mut host = bench.device.host_buffer(4096)?;
    host.fill(0, 4096, 0x3d)?;
    let transfer = stream.upload(host, &target)?;
    let late = match transfer.wait(Duration::from_millis(5)) {
        Err(late) => late,
        Ok(_) => return Err(Failure::new("a copy overtook the kernel before it")),
    };
    check_matches!(late.error, Error::Timeout { .. }, "a wait behind an endless kernel");
    let Remains::Transfer(transfer) = late.remains else {
        return Err(Failure::new(format!("the transfer is lost: {late:?}")));
    };
    bench.device.abort(&event, bench.patience)?;
    transfer.wait(bench.patience)?;
    check!(event.wait(bench.patience).is_err(), "an aborted kernel succeeded");
    same("the target", &bench.download::<u8>(&target)?, &[0x3d; 4096])
}

fn copies_of_nothing_succeed<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.upload(&[8u8; 64])?;
    let nothing = buffer.slice(64..64)?;
    check_eq!(nothing.len_bytes(), 0, "the length of nothing");
    let stream = bench.stream();
    bench.done(&stream.copy_to_device::<u8>(&[], &nothing)?)?;
    stream.read::<u8>(&nothing, &mut [], bench.patience)?;
    bench.done(&stream.fill(&nothing, 1)?)?;
    bench.done(&stream.copy_on_device(&nothing, &nothing)?)?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &[8; 64])
}
