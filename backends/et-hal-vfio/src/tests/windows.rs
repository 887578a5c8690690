//! Windows on BARs.

use et_devapi::pci::{DRAM_BAR, MAILBOX_BAR};
use et_hal::{
    AccessPath, Bar, BarOffset, ErrorKind, Hal, LossReason, Mmio, ResetScope, Width, Widths,
};
use rustix::io::Errno;

use super::{kernel, kind, open, peek, poke, reset};
use crate::VfioError;
use crate::sys::Linux;

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

fn at(offset: u64) -> BarOffset {
    BarOffset::new(offset)
}

#[test]
fn accesses_reach_the_card_without_calls() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    assert_eq!(
        (window.len_bytes(), window.path(BarOffset::new(0), 0x4000)),
        (0x4000, AccessPath::Direct)
    );
    assert_eq!(window.widths(), Widths::ALL);
    let calls = fake.calls();
    let value = 0x8877_6655_4433_2211_u64;
    for width in WIDTHS {
        let value = value & width.max_value();
        window.write(at(0x1ff8), width, value).unwrap();
        assert_eq!(window.read(at(0x1ff8), width).unwrap(), value);
    }
    assert_eq!(peek(&fake, 2, 0x1ff8), value.to_le_bytes());
    window.store_release_u64(at(0x100), 42).unwrap();
    assert_eq!(window.load_acquire_u64(at(0x100)).unwrap(), 42);
    assert_eq!(fake.calls(), calls, "no call was made");
    window.flush().unwrap();
    assert_eq!(fake.calls(), calls + 1, "a flush reads the function back");
}

#[test]
fn bounds_alignment_and_width_are_checked() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    for width in WIDTHS {
        for offset in [0x4000, 0x4000 - width.bytes() + 1, u64::MAX] {
            let read = window.read(at(offset), width).unwrap_err();
            assert_eq!(kind(&read), ErrorKind::OutOfBounds, "{offset:#x}");
            let write = window.write(at(offset), width, 0).unwrap_err();
            assert_eq!(kind(&write), ErrorKind::OutOfBounds, "{offset:#x}");
        }
        if width != Width::W8 {
            assert_eq!(kind(&window.read(at(1), width).unwrap_err()), ErrorKind::Misaligned);
            assert_eq!(kind(&window.write(at(1), width, 0).unwrap_err()), ErrorKind::Misaligned);
        }
        if width != Width::W64 {
            let large = window.write(at(0), width, width.max_value() + 1).unwrap_err();
            assert_eq!(kind(&large), ErrorKind::TooLarge);
        }
    }
    assert_eq!(kind(&window.load_acquire_u64(at(4)).unwrap_err()), ErrorKind::Misaligned);
    assert_eq!(kind(&window.store_release_u64(at(4), 0).unwrap_err()), ErrorKind::Misaligned);
    let mut bytes = [9; 8];
    assert_eq!(
        kind(&window.read_bytes(at(0x3ffc), &mut bytes).unwrap_err()),
        ErrorKind::OutOfBounds
    );
    assert_eq!(bytes, [9; 8]);
    assert_eq!(
        kind(&window.write_bytes(at(u64::MAX), &bytes).unwrap_err()),
        ErrorKind::OutOfBounds
    );
}

#[test]
fn doorbells_take_register_writes_only() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    for width in WIDTHS {
        window.write(at(0x2000), width, 1).unwrap();
        let read = window.read(at(0x2000), width).unwrap_err();
        assert!(matches!(read, VfioError::Doorbell { .. }));
    }
    assert!(window.read_bytes(at(0x1ffc), &mut [0; 8]).is_err());
    assert!(window.write_bytes(at(0x1ffc), &[0; 8]).is_err());
    assert!(window.load_acquire_u64(at(0x2000)).is_err());
    assert!(window.store_release_u64(at(0x3ff8), 0).is_err());
    assert_eq!(peek(&fake, 2, 0x2000), 1_u64.to_le_bytes());
    // Device memory has none.
    let memory = hal.window(DRAM_BAR).unwrap();
    memory.write(at(0x2000), Width::W32, 7).unwrap();
    assert_eq!(memory.read(at(0x2000), Width::W32).unwrap(), 7);
}

#[test]
fn copies_touch_exactly_their_bytes() {
    let fake = kernel("group");
    for trapped in [false, true] {
        if trapped {
            fake.with(|state| state.card.trapped.push(2));
        }
        let hal = open(&fake, "group").unwrap();
        let window = hal.window(MAILBOX_BAR).unwrap();
        for offset in 0x100..0x110 {
            for len in 0..40_usize {
                poke(&fake, 2, 0x100, &[0xaa; 64]);
                let bytes: Vec<u8> = (1..).take(len).collect();
                window.write_bytes(at(offset), &bytes).unwrap();
                let mut expected = [0xaa; 64];
                let start = usize::try_from(offset - 0x100).unwrap();
                expected[start..start + len].copy_from_slice(&bytes);
                assert_eq!(peek::<64>(&fake, 2, 0x100), expected);
                let mut back = vec![0; len];
                window.read_bytes(at(offset), &mut back).unwrap();
                assert_eq!(back, bytes);
            }
        }
        drop(window);
        hal.close().unwrap();
    }
}

#[test]
fn what_cannot_be_mapped_is_reached_by_calls() {
    for how in ["flag", "refusal"] {
        let fake = kernel("group");
        fake.with(|state| match how {
            "flag" => state.card.trapped.push(2),
            _ => state.refuse_bar_maps = Some(Errno::INVAL),
        });
        let hal = open(&fake, "group").unwrap();
        let window = hal.window(MAILBOX_BAR).unwrap();
        assert_eq!(window.path(BarOffset::new(0), 8), AccessPath::Trapped);
        assert!(!window.widths().contains(Width::W64) && window.widths().contains(Width::W32));
        window.write(at(8), Width::W32, 0xdead_beef).unwrap();
        assert_eq!(window.read(at(8), Width::W16).unwrap(), 0xbeef);
        assert_eq!(kind(&window.read(at(8), Width::W64).unwrap_err()), ErrorKind::BadWidth);
        assert_eq!(kind(&window.write(at(8), Width::W64, 0).unwrap_err()), ErrorKind::BadWidth);
        // Queue indices work all the same.
        window.store_release_u64(at(16), 0x1234).unwrap();
        assert_eq!(window.load_acquire_u64(at(16)).unwrap(), 0x1234);
        assert_eq!(peek(&fake, 2, 16), 0x1234_u64.to_le_bytes());
        let mut long = vec![0; 0x1f00];
        window.read_bytes(at(0), &mut long).unwrap();
        drop(window);
        hal.close().unwrap();
        fake.assert_clean(how);
    }
}

#[test]
fn only_listed_areas_are_mapped() {
    let fake = kernel("group");
    fake.with(|state| state.card.sparse.insert(2, vec![(0x1000, 0x1000), (0x3000, 0x1000)]));
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let whole = window.path(BarOffset::new(0), window.len_bytes());
    assert_eq!(whole, AccessPath::Trapped, "the slower way is promised for the whole");
    let calls = fake.calls();
    window.write(at(0x1ff8), Width::W64, 3).unwrap();
    window.write(at(0x3000), Width::W32, 4).unwrap();
    assert_eq!(fake.calls(), calls);
    window.write(at(0xffc), Width::W32, 5).unwrap();
    assert_eq!(fake.calls(), calls + 1);
    assert_eq!(kind(&window.write(at(0xff8), Width::W64, 5).unwrap_err()), ErrorKind::BadWidth);
    // Over the edge of an area: by calls as a whole.
    window.write_bytes(at(0xffe), &[1, 2, 3, 4]).unwrap();
    assert_eq!(peek(&fake, 2, 0xffe), [1, 2, 3, 4]);
    let mut back = [0; 4];
    window.read_bytes(at(0xffe), &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    assert_eq!(peek(&fake, 2, 0x3000), 4_u32.to_le_bytes());
    drop(window);
    hal.close().unwrap();
    fake.assert_clean("after sparse areas");
}

#[test]
fn areas_that_are_not_whole_pages_are_cut() {
    let fake = kernel("group");
    fake.with(|state| state.card.sparse.insert(2, vec![(0x800, 0x1c00)]));
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let calls = fake.calls();
    window.write(at(0x1000), Width::W32, 1).unwrap();
    assert_eq!(fake.calls(), calls);
    window.write(at(0xffc), Width::W32, 1).unwrap();
    window.write(at(0x2000), Width::W32, 1).unwrap();
    assert_eq!(fake.calls(), calls + 2);
}

#[test]
fn of_a_large_bar_only_what_is_touched_is_mapped() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let memory = hal.window(DRAM_BAR).unwrap();
    let len = memory.len_bytes();
    assert_eq!(len, 32 << 30);
    let mapped = || fake.with(|s| s.log.iter().filter(|c| c.starts_with("map Device")).count());
    let start = mapped();
    memory.write(at(8), Width::W64, 1).unwrap();
    assert_eq!(mapped(), start, "the first piece is there from the beginning");
    memory.write(at(len - 8), Width::W64, 2).unwrap();
    memory.write(at(len - 16), Width::W64, 3).unwrap();
    assert_eq!(mapped(), start + 1);
    // Over the border of two pieces.
    let border = 5 * (64 << 20);
    memory.write_bytes(at(border - 4), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(mapped(), start + 3);
    assert_eq!(peek(&fake, 0, border - 4), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(peek(&fake, 0, len - 8), 2_u64.to_le_bytes());
    // A second window shares the mapping.
    let again = hal.window(DRAM_BAR).unwrap();
    assert_eq!(again.read(at(len - 8), Width::W64).unwrap(), 2);
    assert_eq!(mapped(), start + 3);
    // A piece that cannot be had is an error of this access only.
    fake.with(|state| state.refuse_bar_maps = Some(Errno::NOMEM));
    let error = memory.read(at(1 << 30), Width::W32).unwrap_err();
    assert!(matches!(kind(&error), ErrorKind::Exhausted(_)), "{error}");
    assert_eq!(memory.read(at(8), Width::W64).unwrap(), 1);
    drop((memory, again));
    hal.close().unwrap();
    fake.assert_clean("after a large BAR");
}

#[test]
fn every_mapping_is_kept_from_children() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let before = fake.with(|state| state.kept_from_children);
    let _window = hal.window(MAILBOX_BAR).unwrap();
    // The reservation, and what replaces it.
    assert_eq!(fake.with(|state| state.kept_from_children), before + 2);
}

#[test]
fn bars_that_are_not_there_have_no_window() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    for index in [1, 3, 4, 5] {
        let bar = Bar::new(index).unwrap();
        assert_eq!(kind(&hal.window(bar).unwrap_err()), ErrorKind::Unsupported);
    }
}

#[test]
fn all_ones_are_believed_while_the_device_boots() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    fake.with(|state| state.card.die(&Linux, false));
    assert_eq!(window.read(at(8), Width::W16).unwrap(), 0xffff);
    assert_eq!(window.load_acquire_u64(at(0x100)).unwrap(), u64::MAX);
    // Once configuration space does not answer either, the device is gone.
    fake.with(|state| state.card.die(&Linux, true));
    let error = window.read(at(8), Width::W32).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    assert!(error.to_string().contains("reset the slot"), "{error}");
    // From then on nothing is tried.
    let calls = fake.calls();
    assert!(matches!(kind(&window.write(at(8), Width::W32, 0).unwrap_err()), ErrorKind::Lost(_)));
    assert_eq!(fake.calls(), calls);
}

#[test]
fn a_kernel_that_answers_for_a_dead_device_does_not_deceive() {
    let lost = ErrorKind::Lost(LossReason::LinkDown);
    for is_index in [false, true] {
        let fake = kernel("group");
        let hal = open(&fake, "group").unwrap();
        let window = hal.window(MAILBOX_BAR).unwrap();
        // Not even before the device has answered once.
        fake.with(|state| state.card.die_behind(&Linux));
        let read = match is_index {
            true => window.load_acquire_u64(at(8)),
            false => window.read(at(8), Width::W32),
        };
        assert_eq!(kind(&read.unwrap_err()), lost);
    }
    assert_eq!(kind(&open(&kernel_of_dead_card(), "group").unwrap_err()), lost);
}

fn kernel_of_dead_card() -> std::sync::Arc<crate::sys::fake::Fake> {
    let fake = kernel("group");
    fake.with(|state| state.card.die_behind(&Linux));
    fake
}

#[test]
fn a_flush_of_a_dead_device_loses_it() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    window.flush().unwrap();
    fake.with(|state| state.card.die_behind(&Linux));
    assert_eq!(kind(&window.flush().unwrap_err()), ErrorKind::Lost(LossReason::LinkDown));
    assert_eq!(kind(&hal.window(MAILBOX_BAR).unwrap_err()), ErrorKind::Lost(LossReason::LinkDown));
}

#[test]
fn single_bytes_of_ones_are_just_data() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    poke(&fake, 2, 0x300, &[0xff; 16]);
    let calls = fake.calls();
    assert_eq!(window.read(at(0x300), Width::W8).unwrap(), 0xff);
    assert_eq!(fake.calls(), calls);
    assert_eq!(window.read(at(0x300), Width::W64).unwrap(), u64::MAX);
    assert!(fake.calls() > calls, "wider ones are looked into");
}

#[test]
fn windows_of_an_older_generation_are_stale() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    reset(&hal, ResetScope::Function).unwrap();
    assert_eq!(kind(&window.read(at(0), Width::W32).unwrap_err()), ErrorKind::Stale);
    assert_eq!(kind(&window.flush().unwrap_err()), ErrorKind::Stale);
    let fresh = hal.window(MAILBOX_BAR).unwrap();
    fresh.write(at(0), Width::W32, 1).unwrap();
}
