//! Lists of copies, patterns, and host buffers for one use.

use et_hal::{DeviceAccess, Hal};
use et_runtime::{DeviceBuffer, Error, HostBuffer, ListedCopy};

use super::bench::{Bench, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Rig};

crate::case::group! { Runtime, "runtime::lists":
    lists_of_any_length_are_copied_in_both_directions,
    parts_of_a_host_buffer_are_one_list,
    lists_with_a_mistake_are_refused,
    patterns_fill_parts_and_nothing_else,
    host_and_device_memory_is_aligned_as_asked,
    host_buffers_serve_what_they_were_made_for,
}

/// Buffers of many sizes: more than fit into one command, the last larger than a piece.
fn buffers<H: Hal>(bench: &Bench<H>) -> Result<Vec<DeviceBuffer>, Failure> {
    let nodes = u64::from(bench.device.properties().dma_max_nodes);
    let small = (0..3 * nodes + 1).map(|number| 1 + number * 37 % 2000);
    let lens = small.chain([600_001]);
    Ok(lens.map(|len| bench.device.alloc(len)).collect::<Result<_, _>>()?)
}

/// Different bytes for each.
fn contents(buffers: &[DeviceBuffer]) -> Result<Vec<Vec<u8>>, Failure> {
    let content = |(number, buffer): (usize, &DeviceBuffer)| {
        Ok(pattern(usize::try_from(buffer.len_bytes())? + number).split_off(number))
    };
    buffers.iter().enumerate().map(content).collect()
}

fn lists_of_any_length_are_copied_in_both_directions<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffers = buffers(&bench)?;
    let data = contents(&buffers)?;
    let pairs = data.iter().zip(&buffers);
    let list: Vec<_> = pairs.map(|(from, to)| ListedCopy::ToDevice(from, to.whole())).collect();
    let event = bench.stream().copy_list(&list)?;
    let mut back: Vec<_> = data.iter().map(|data| vec![0; data.len()]).collect();
    let pairs = buffers.iter().zip(&mut back);
    let mut list: Vec<_> = pairs.map(|(from, into)| (from.whole(), &mut into[..])).collect();
    bench.stream().read_list(&mut list, bench.patience)?;
    bench.done(&event)?;
    for (back, data) in back.iter().zip(&data) {
        same("a part of a list", back, data)?;
    }
    bench.stream().read_list(&mut [], bench.patience)?;
    Ok(())
}

/// Each part lies at a multiple of 64 bytes, with a gap behind it.
fn parts_of_a_host_buffer_are_one_list<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffers: Vec<_> = (0..40).map(|_| bench.device.alloc(192)).collect::<Result<_, _>>()?;
    let places = || (0..).step_by(256).zip(buffers.iter().map(DeviceBuffer::whole));
    let len = buffers.len() * 256;
    let data = pattern(len);
    let mut host = bench.device.host_buffer(len)?;
    host.copy_in(0, &data)?;
    let copies: Vec<_> = places().collect();
    let host = bench.stream().upload_list(host, &copies)?.wait(bench.patience)?;
    for (place, buffer) in (0..).step_by(256).zip(&buffers) {
        same("a part", &bench.download::<u8>(buffer)?, &data[place..place + 192])?;
    }
    let mut host = host;
    host.fill(0, len, 0xee)?;
    let host = bench.stream().download_list(&copies, host)?.wait(bench.patience)?;
    let mut back = vec![0; len];
    host.copy_out(0, &mut back)?;
    for (back, data) in back.chunks(256).zip(data.chunks(256)) {
        same("a part that came back", &back[..192], &data[..192])?;
        same("the gap behind it", &back[192..], &[0xee; 64])?;
    }
    Ok(())
}

fn lists_with_a_mistake_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.stream();
    let (a, b) = (bench.upload(&[1u8; 64])?, bench.upload(&[2u8; 64])?);
    let (mut first, mut short) = ([0; 64], [0; 63]);
    let mut list = [(a.whole(), &mut first[..]), (b.whole(), &mut short[..])];
    let outcome = stream.read_list(&mut list, bench.patience);
    check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a read of another length");
    same("the first target", &first, &[0; 64])?;
    let host = || bench.device.host_buffer(128);
    let outcome = stream.upload_list(host()?, &[(0, a.whole()), (65, b.whole())]);
    check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a part behind the end");
    let outcome = stream.download_list(&[(usize::MAX, a.whole())], host()?);
    check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a part far behind the end");
    if bench.device.properties().dma_align_bytes > 1 {
        let outcome = stream.upload_list(host()?, &[(1, a.whole())]);
        check_matches!(outcome, Err(Error::Misaligned { .. }), "a part at an odd place");
    }
    same("the targets", &bench.download::<u8>(&a)?, &[1; 64])?;
    bench.works()
}

fn patterns_fill_parts_and_nothing_else<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    // The tail cuts every pattern off.
    let len = rig.times(700_000, 300_000) + 5;
    let buffer = bench.device.alloc(len as u64)?;
    for bytes in [1, 2, 4, 8, 16] {
        let sample = &pattern(32)[16 - bytes..][..bytes];
        for (start, end) in [(0, len), (24, 24 + 8), (8, 300_000), (len / 8 * 8 - 8, len)] {
            bench.done(&bench.stream().fill(&buffer, 0xee)?)?;
            let part = buffer.slice(start as u64..end as u64)?;
            bench.done(&bench.stream().fill_pattern(&part, sample)?)?;
            let mut expected = vec![0xee; len];
            let fill = sample.iter().cycle();
            expected[start..end].iter_mut().zip(fill).for_each(|(to, from)| *to = *from);
            let what = format!("{bytes} bytes over {start}..{end}");
            same(&what, &bench.download::<u8>(&buffer)?, &expected)?;
        }
    }
    for bytes in [0, 3, 5, 32] {
        let outcome = bench.stream().fill_pattern(&buffer, &vec![1; bytes]);
        check_matches!(outcome, Err(Error::Unsupported { .. }), "a pattern of {bytes} bytes");
    }
    Ok(())
}

fn host_and_device_memory_is_aligned_as_asked<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let mut kept = Vec::new();
    for align in (0..=21).map(|power| 1usize << power) {
        // Without an IOMMU pieces of host memory are small.
        let on_host = align.min(64 << 10);
        for len in [1, 100, 5000] {
            let host = bench.device.host_buffer_for(DeviceAccess::ReadWrite, len, on_host)?;
            check!(host.bus_addr().is_aligned_to(on_host as u64), "{host:?} is not at {on_host}");
            check_eq!(host.len_bytes(), len, "the length of a host buffer");
            let device = bench.device.alloc_aligned(len as u64, align as u64)?;
            check!(device.addr().is_aligned_to(align as u64), "{device:?} is not at {align}");
            kept.push(round_trip(&bench, host, device)?);
        }
    }
    let mut ranges: Vec<_> =
        kept.iter().map(|(_, device)| (device.addr().as_u64(), device.len_bytes())).collect();
    ranges.sort_unstable();
    let is_apart = ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    check!(is_apart, "device memory overlaps: {ranges:x?}");
    let odd = bench.device.host_buffer_for(DeviceAccess::Read, 64, 48);
    check_matches!(odd, Err(Error::Memory(_)), "an alignment of 48");
    Ok(())
}

/// To the device and back, by way of the same host buffer.
fn round_trip<H: Hal>(
    bench: &Bench<H>,
    mut host: HostBuffer<H>,
    device: DeviceBuffer,
) -> Result<(HostBuffer<H>, DeviceBuffer), Failure> {
    let len = host.len_bytes() / 8 * 8;
    let (part, data) = (device.slice(0..len as u64)?, pattern(len));
    host.copy_in(0, &data)?;
    let mut host = bench.stream().upload(host, &part)?.wait(bench.patience)?;
    host.fill(0, len, 0)?;
    let host = bench.stream().download(&part, host)?.wait(bench.patience)?;
    let mut back = vec![0; len];
    host.copy_out(0, &mut back)?;
    same("what came back", &back, &data)?;
    Ok((host, device))
}

fn host_buffers_serve_what_they_were_made_for<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.stream();
    let device = bench.zeroed(4096)?;
    let host = |access| bench.device.host_buffer_for(access, 4096, 64);
    let outcome = stream.download(&device, host(DeviceAccess::Read)?);
    check_matches!(outcome, Err(Error::Access { .. }), "a copy to what the device may only read");
    let outcome = stream.upload(host(DeviceAccess::Write)?, &device);
    check_matches!(outcome, Err(Error::Access { .. }), "a copy from what it may only write");
    let (mut source, target) = (host(DeviceAccess::Read)?, host(DeviceAccess::Write)?);
    source.copy_in(0, &pattern(4096))?;
    stream.upload(source, &device)?.wait(bench.patience)?;
    let target = stream.download(&device, target)?.wait(bench.patience)?;
    let mut back = vec![0; 4096];
    target.copy_out(0, &mut back)?;
    same("what came back", &back, &pattern(4096))
}
