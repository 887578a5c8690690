//! `Dma` and `DmaBuffer`, as far as the host alone sees them.

#![expect(unsafe_code, reason = "the traits of embedded-dma are unsafe to call")]

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::{DeviceAccess, Dma, DmaBuffer, ErrorKind, Hal};

use crate::check::{Random, check, check_eq, fails_as, same};
use crate::{Failure, Rig};

crate::case::group! { Hal, "hal::dma":
    buffers_are_zeroed_also_when_memory_is_used_again,
    buffers_have_the_length_asked_for_and_aligned_addresses,
    buffers_do_not_overlap,
    copies_and_fills_touch_the_bytes_they_name_and_no_others,
    ranges_outside_a_buffer_are_refused_and_change_nothing,
    sizes_that_cannot_be_are_refused,
    only_ranges_of_the_buffer_are_synchronised,
    a_buffer_keeps_its_place,
}

const SIZES: [usize; 8] = [1, 7, 64, 100, 4095, 4096, 4097, 3 << 20];

fn buffers_are_zeroed_also_when_memory_is_used_again<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    let max = hal.dma().limits().max_buffer_bytes;
    for len in SIZES.into_iter().filter(|len| *len <= max) {
        for round in 0..3 {
            let mut buffer = hal.dma().alloc(len, DeviceAccess::ReadWrite)?;
            let mut bytes = vec![0xee; len];
            buffer.copy_out(0, &mut bytes)?;
            let dirty = bytes.iter().filter(|byte| **byte != 0).count();
            check!(dirty == 0, "{dirty} of {len} bytes are not zero in round {round}");
            buffer.fill(0, len, 0xdd)?;
        }
    }
    Ok(())
}

fn buffers_have_the_length_asked_for_and_aligned_addresses<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    let limits = hal.dma().limits();
    check!(limits.alignment_bytes.is_power_of_two(), "alignment {}", limits.alignment_bytes);
    check!(limits.max_buffer_bytes >= 2 << 20, "largest buffer {}", limits.max_buffer_bytes);
    for access in [DeviceAccess::Read, DeviceAccess::Write, DeviceAccess::ReadWrite] {
        for len in SIZES.into_iter().filter(|len| *len <= limits.max_buffer_bytes) {
            let buffer = hal.dma().alloc(len, access)?;
            check_eq!(buffer.len_bytes(), len, "the length");
            let bus = buffer.bus_addr();
            check!(bus.as_u64() != 0, "a buffer at bus address 0");
            let align = limits.alignment_bytes as u64;
            check!(bus.is_aligned_to(align), "{bus} is not a multiple of {align}");
            check!(bus.checked_add(len as u64).is_some(), "{bus} and {len} bytes wrap");
        }
    }
    Ok(())
}

/// On the bus, and in the host's memory.
fn buffers_do_not_overlap<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    let mut random = Random::new(3);
    let mut buffers = Vec::new();
    for number in 0..rig.times(96, 32) {
        let len = if number % 16 == 0 { 300_000 } else { 1 + random.below(9000) };
        // Freeing some lets a wrong allocator give out what is still used.
        if number % 5 == 4 {
            drop(buffers.swap_remove(random.below(buffers.len())));
        }
        let mut buffer = hal.dma().alloc(len, DeviceAccess::ReadWrite)?;
        let byte = u8::try_from(1 + number % 250)?;
        buffer.fill(0, len, byte)?;
        buffers.push((buffer, byte));
    }
    let mut ranges: Vec<_> = buffers
        .iter()
        .map(|(buffer, _)| (buffer.bus_addr().as_u64(), buffer.len_bytes() as u64))
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(a, len), (b, _)] = [pair[0], pair[1]];
        check!(a + len <= b, "{len} bytes at {a:#x} overlap the buffer at {b:#x}");
    }
    for (buffer, byte) in &buffers {
        let mut bytes = vec![0; buffer.len_bytes()];
        buffer.copy_out(0, &mut bytes)?;
        same("a buffer after all others were filled", &bytes, &vec![*byte; bytes.len()])?;
    }
    Ok(())
}

fn copies_and_fills_touch_the_bytes_they_name_and_no_others<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    const BYTES: usize = 10_001;
    let hal = rig.open_hal()?;
    let mut buffer = hal.dma().alloc(BYTES, DeviceAccess::ReadWrite)?;
    let mut random = Random::new(4);
    let mut model = vec![0; BYTES];
    for round in 0..rig.times(300, 60) {
        let offset = random.below(BYTES);
        let len = random.below(BYTES - offset + 1);
        match round % 3 {
            0 => {
                let data = random.bytes(len);
                buffer.copy_in(offset, &data)?;
                model[offset..offset + len].copy_from_slice(&data);
            }
            1 => {
                let byte = u8::try_from(random.below(256))?;
                buffer.fill(offset, len, byte)?;
                model[offset..offset + len].fill(byte);
            }
            _ => {
                let mut data = vec![0; len];
                buffer.copy_out(offset, &mut data)?;
                same("a copy out", &data, &model[offset..offset + len])?;
            }
        }
        let mut all = vec![0; BYTES];
        buffer.copy_out(0, &mut all)?;
        same("the whole buffer", &all, &model)?;
    }
    Ok(())
}

fn ranges_outside_a_buffer_are_refused_and_change_nothing<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    // Not a multiple of anything: the room behind its end is not part of it.
    let len = 1001;
    let mut buffer = hal.dma().alloc(len, DeviceAccess::ReadWrite)?;
    buffer.fill(0, len, 0x11)?;
    for (offset, bytes) in [(len, 1), (0, len + 1), (len - 3, 4), (usize::MAX, 1), (usize::MAX, 2)]
    {
        let mut data = vec![0x99; bytes];
        check!(buffer.copy_in(offset, &data).is_err(), "copied {bytes} in at {offset}");
        check!(buffer.fill(offset, bytes, 0x99).is_err(), "filled {bytes} at {offset}");
        check!(buffer.copy_out(offset, &mut data).is_err(), "copied {bytes} out at {offset}");
        same("the target of a refused copy", &data, &vec![0x99; bytes])?;
    }
    let mut bytes = vec![0; len];
    buffer.copy_out(0, &mut bytes)?;
    same("the buffer after refused writes", &bytes, &vec![0x11; len])?;
    buffer.copy_in(len, &[])?;
    Ok(buffer.copy_out(len, &mut [])?)
}

fn sizes_that_cannot_be_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    let limits = hal.dma().limits();
    let try_len = |len| hal.dma().alloc(len, DeviceAccess::Read).map(|buffer| buffer.len_bytes());
    fails_as("a buffer without bytes", try_len(0), ErrorKind::TooLarge)?;
    for len in [limits.max_buffer_bytes.checked_add(1), Some(usize::MAX)].into_iter().flatten() {
        if len > limits.max_buffer_bytes {
            fails_as("a buffer above the limit", try_len(len), ErrorKind::TooLarge)?;
        }
    }
    check_eq!(try_len(1)?, 1, "the length of a buffer after refused ones");
    Ok(())
}

fn only_ranges_of_the_buffer_are_synchronised<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    let (dma, len) = (hal.dma(), 5000);
    let buffer = dma.alloc(len, DeviceAccess::ReadWrite)?;
    for range in [0..len, 17..18, len..len] {
        dma.sync_for_device(&buffer, range.clone())?;
        dma.sync_for_cpu(&buffer, range)?;
    }
    let backwards = std::ops::Range { start: 2, end: 1 };
    for range in [0..len + 1, len + 1..len + 1, 0..usize::MAX, backwards] {
        let outcome = dma.sync_for_device(&buffer, range.clone());
        fails_as("for the device", outcome, ErrorKind::OutOfBounds)?;
        fails_as("for the host", dma.sync_for_cpu(&buffer, range), ErrorKind::OutOfBounds)?;
    }
    Ok(())
}

/// The promise that makes `DmaBuffer` an unsafe trait.
fn a_buffer_keeps_its_place<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let hal = rig.open_hal()?;
    for len in [1, 5000, 1 << 20] {
        let mut buffer = hal.dma().alloc(len, DeviceAccess::ReadWrite)?;
        let bus = buffer.bus_addr();
        // SAFETY: the pointers are compared, not used.
        let read = unsafe { buffer.read_buffer() };
        // SAFETY: as above.
        let write = unsafe { buffer.write_buffer() };
        check_eq!((write.0.cast_const(), write.1), read, "where the buffer is written");
        check_eq!(read.1, len, "its length");
        buffer.fill(0, len, 1)?;
        let mut moved = Box::new(buffer);
        // SAFETY: as above.
        check_eq!(unsafe { moved.write_buffer() }, write, "where the moved buffer is");
        // SAFETY: as above.
        check_eq!(unsafe { moved.read_buffer() }, read, "where the moved buffer is");
        check_eq!(moved.bus_addr(), bus, "its bus address");
    }
    Ok(())
}
