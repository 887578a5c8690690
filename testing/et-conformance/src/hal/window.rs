//! `Mmio`.

use et_devapi::pci::{DRAM_BAR, MAILBOX_BAR};
use et_hal::{Bar, BarOffset, ErrorKind, Hal, Mmio, Width};

use super::{Ready, ping};
use crate::check::{Random, check, check_eq, fails_as, same, until};
use crate::{Failure, Rig};

crate::case::group! { Hal, "hal::window":
    bars_that_do_not_exist_are_refused,
    accesses_outside_are_refused_and_change_nothing,
    misaligned_registers_are_refused,
    offered_widths_work_and_no_others,
    values_that_do_not_fit_are_refused_and_change_nothing,
    doorbells_cannot_be_read_and_still_ring,
    copies_touch_the_bytes_they_name_and_no_others,
    acquire_and_release_see_the_memory_of_all_other_accesses,
    a_release_publishes_what_was_written_before,
    all_windows_on_a_bar_show_the_same_memory,
}

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

fn bars_that_do_not_exist_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    for bar in [1, 3, 4, 5].into_iter().filter_map(Bar::new) {
        let outcome = ready.hal.window(bar).map(|_| bar);
        fails_as("a window on a BAR that is not there", outcome, ErrorKind::Unsupported)?;
    }
    for bar in [DRAM_BAR, MAILBOX_BAR] {
        check!(ready.hal.window(bar)?.len_bytes() >= 0x4000, "{bar} is too small");
    }
    Ok(())
}

fn accesses_outside_are_refused_and_change_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    for bar in [MAILBOX_BAR, DRAM_BAR] {
        let window = ready.hal.window(bar)?;
        let len = window.len_bytes();
        let refused = |what: &str, outcome| fails_as(what, outcome, ErrorKind::OutOfBounds);
        for at in [len, len + 0x1000, u64::MAX - 7].map(BarOffset::new) {
            for width in WIDTHS.into_iter().filter(|width| window.widths().contains(*width)) {
                refused("a read", window.read(at, width).map(drop))?;
                refused("a write", window.write(at, width, 0))?;
            }
            refused("an acquire", window.load_acquire_u64(at).map(drop))?;
            refused("a release", window.store_release_u64(at, 0))?;
        }
        let mut bytes = [0x55; 16];
        for at in [len - 15, len, u64::MAX - 7, u64::MAX].map(BarOffset::new) {
            refused("a copy out", window.read_bytes(at, &mut bytes))?;
            refused("a copy in", window.write_bytes(at, &[0xaa; 16]))?;
        }
        check_eq!(bytes, [0x55; 16], "the target of a refused copy");
    }
    Ok(())
}

fn misaligned_registers_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let (playground, _) = ready.playground()?;
    for (bar, base) in [(MAILBOX_BAR, 0), (DRAM_BAR, playground.as_u64())] {
        let window = ready.hal.window(bar)?;
        for width in WIDTHS.into_iter().filter(|width| window.widths().contains(*width)) {
            for offset in 1..width.bytes() {
                let at = BarOffset::new(base + offset);
                fails_as("a read", window.read(at, width), ErrorKind::Misaligned)?;
                fails_as("a write", window.write(at, width, 0), ErrorKind::Misaligned)?;
            }
        }
        for offset in 1..8 {
            let at = BarOffset::new(base + offset);
            fails_as("an acquire", window.load_acquire_u64(at), ErrorKind::Misaligned)?;
            fails_as("a release", window.store_release_u64(at, 0), ErrorKind::Misaligned)?;
        }
    }
    Ok(())
}

/// One value, seen through every width at every aligned place of 8 bytes.
fn offered_widths_work_and_no_others<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let window = ready.hal.window(DRAM_BAR)?;
    let (base, _) = ready.playground()?;
    let offset = |bytes: u64| BarOffset::new(base.as_u64() + bytes);
    let mut offered = 0;
    for width in WIDTHS {
        if !window.widths().contains(width) {
            fails_as("a width not offered", window.read(base, width), ErrorKind::BadWidth)?;
            fails_as("a width not offered", window.write(base, width, 0), ErrorKind::BadWidth)?;
            continue;
        }
        offered += 1;
        for at in (0..8).step_by(usize::try_from(width.bytes())?) {
            let mut model = [0xc3_u8, 0x5a, 0x81, 0x7e, 0x18, 0xe7, 0x3c, 0xa5];
            window.write_bytes(base, &model)?;
            let range = usize::try_from(at)?..usize::try_from(at + width.bytes())?;
            let mut value = [0; 8];
            value[..range.len()].copy_from_slice(&model[range.clone()]);
            let expected = u64::from_le_bytes(value);
            check_eq!(window.read(offset(at), width)?, expected, "{width:?} at {at}");
            let new = 0x1122_3344_5566_7788 & width.max_value();
            window.write(offset(at), width, new)?;
            model[range.clone()].copy_from_slice(&new.to_le_bytes()[..range.len()]);
            let mut bytes = [0; 8];
            window.read_bytes(base, &mut bytes)?;
            check_eq!(bytes, model, "memory after {width:?} at {at}");
        }
    }
    check!(offered > 0, "the window offers no width at all");
    Ok(())
}

fn values_that_do_not_fit_are_refused_and_change_nothing<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let window = ready.hal.window(DRAM_BAR)?;
    let (base, _) = ready.playground()?;
    window.write_bytes(base, &[0x77; 8])?;
    let mut tried = 0;
    for width in [Width::W8, Width::W16, Width::W32] {
        if window.widths().contains(width) {
            tried += 1;
            for value in [width.max_value() + 1, u64::MAX] {
                fails_as("a write", window.write(base, width, value), ErrorKind::TooLarge)?;
            }
        }
    }
    check!(tried > 0, "the window has none of the small widths");
    let mut bytes = [0; 8];
    window.read_bytes(base, &mut bytes)?;
    check_eq!(bytes, [0x77; 8], "memory after refused writes");
    Ok(())
}

/// Spec: §2.2: reading a doorbell has effects, so no read of any kind may reach one.
fn doorbells_cannot_be_read_and_still_ring<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let window = ready.hal.window(MAILBOX_BAR)?;
    let unsupported = ErrorKind::Unsupported;
    for layout in [ready.layout.ops_mailbox, ready.layout.mgmt_mailbox] {
        let bell = layout.doorbell;
        fails_as("a read", window.read(bell.at, bell.width), unsupported)?;
        let aligned = BarOffset::new(bell.at.as_u64() & !7);
        fails_as("an acquire", window.load_acquire_u64(aligned), unsupported)?;
        let mut bytes = [0x55; 16];
        fails_as("a copy", window.read_bytes(bell.at, &mut bytes[..4]), unsupported)?;
        let before = BarOffset::new(aligned.as_u64() - 8);
        fails_as("a copy over it", window.read_bytes(before, &mut bytes), unsupported)?;
        check_eq!(bytes, [0x55; 16], "the target of a refused copy");
        fails_as("a bulk write", window.write_bytes(bell.at, &[1, 0, 0, 0]), unsupported)?;
    }
    ping(&ready.mailbox()?, 1, ready.patience)
}

/// Random copies in and out, at all offsets and lengths, against a copy of the memory on the host.
fn copies_touch_the_bytes_they_name_and_no_others<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const BYTES: usize = 4096;
    let ready = Ready::open(rig)?;
    let window = ready.hal.window(DRAM_BAR)?;
    let (base, _) = ready.playground()?;
    let at = |offset: usize| BarOffset::new(base.as_u64() + offset as u64);
    let mut random = Random::new(1);
    let mut model = random.bytes(BYTES);
    window.write_bytes(base, &model)?;
    for round in 0..rig.times(600, 60) {
        let offset = random.below(BYTES);
        // Mostly short ones: what goes wrong goes wrong at the ends.
        let most = (BYTES - offset).min(if round % 8 == 0 { BYTES } else { 40 });
        let len = random.below(most + 1);
        if round % 2 == 0 {
            let data = random.bytes(len);
            window.write_bytes(at(offset), &data)?;
            model[offset..offset + len].copy_from_slice(&data);
        } else {
            let mut data = vec![0; len];
            window.read_bytes(at(offset), &mut data)?;
            same("a copy out", &data, &model[offset..offset + len])?;
        }
        let start = offset.saturating_sub(16);
        let end = (offset + len + 16).min(BYTES);
        let mut around = vec![0; end - start];
        window.read_bytes(at(start), &mut around)?;
        same("memory around a copy", &around, &model[start..end])?;
    }
    let mut all = vec![0; BYTES];
    window.read_bytes(base, &mut all)?;
    same("all of the memory", &all, &model)?;
    Ok(window.flush()?)
}

fn acquire_and_release_see_the_memory_of_all_other_accesses<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let window = ready.hal.window(DRAM_BAR)?;
    let (base, _) = ready.playground()?;
    window.write_bytes(base, &[1, 2, 3, 4, 5, 6, 7, 8])?;
    check_eq!(window.load_acquire_u64(base)?, 0x0807_0605_0403_0201, "an acquire");
    window.store_release_u64(base, u64::MAX - 1)?;
    let mut bytes = [0; 8];
    window.read_bytes(base, &mut bytes)?;
    check_eq!(bytes, [0xfe, 255, 255, 255, 255, 255, 255, 255], "memory after a release");
    // The same on a ring of the mailbox, whose indices are what these accesses are for.
    let mailboxes = ready.hal.window(MAILBOX_BAR)?;
    let head = ready.layout.ops_mailbox.submission.at;
    let mut bytes = [0; 8];
    mailboxes.read_bytes(head, &mut bytes)?;
    check_eq!(mailboxes.load_acquire_u64(head)?, u64::from_le_bytes(bytes), "an index");
    Ok(())
}

/// Message passing between two threads, each with a window of its own.
fn a_release_publishes_what_was_written_before<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let (base, _) = ready.playground()?;
    let rounds = rig.times(2000, 100) as u64;
    let at = |line: u64| BarOffset::new(base.as_u64() + 64 * line);
    let (flag, data, answer) = (at(0), at(1), at(3));
    let window = ready.hal.window(DRAM_BAR)?;
    window.write_bytes(base, &[0; 256])?;
    let content = |round: u64| [u8::try_from(round % 251).unwrap_or(0); 100];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<(), Failure> {
            let window = ready.hal.window(DRAM_BAR)?;
            for round in 1..=rounds {
                window.write_bytes(data, &content(round))?;
                window.store_release_u64(flag, round)?;
                until("the answer", ready.patience, || {
                    Ok(window.load_acquire_u64(answer)? == round)
                })?;
            }
            Ok(())
        });
        let read = || -> Result<(), Failure> {
            for round in 1..=rounds {
                until("the flag", ready.patience, || Ok(window.load_acquire_u64(flag)? == round))?;
                let mut bytes = [0; 100];
                window.read_bytes(data, &mut bytes)?;
                same("what was published", &bytes, &content(round))?;
                window.store_release_u64(answer, round)?;
            }
            Ok(())
        };
        let outcome = read();
        let written = writer.join().map_err(|_| Failure::new("the writer panicked"))?;
        outcome.and(written)
    })
}

fn all_windows_on_a_bar_show_the_same_memory<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let (base, _) = ready.playground()?;
    let (a, b) = (ready.hal.window(DRAM_BAR)?, ready.hal.window(DRAM_BAR)?);
    check_eq!(a.len_bytes(), b.len_bytes(), "the length of the second window");
    let data = Random::new(2).bytes(1000);
    a.write_bytes(base, &data)?;
    a.flush()?;
    let mut seen = vec![0; 1000];
    b.read_bytes(base, &mut seen)?;
    same("memory through the second window", &seen, &data)?;
    drop(a);
    b.read_bytes(base, &mut seen)?;
    same("memory when the first window is gone", &seen, &data)
}
