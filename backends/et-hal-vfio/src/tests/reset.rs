//! Resets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    DeviceAccess, Dma, DmaBuffer, ErrorKind, Generation, Hal, Loss, LossReason, Reset, ResetScope,
    ResetState,
};
use rustix::io::Errno;

use super::{LONG, MODES, finish, kernel, kind, open, open_with, options, reset};
use crate::sys::fake::Fake;
use crate::sys::{Linux, Request};
use crate::{ResetAtOpen, VfioError};

#[test]
fn a_reset_sets_everything_up_again() {
    for mode in MODES {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        assert_eq!(hal.generation(), Generation(0));
        let scopes = [ResetScope::Function, ResetScope::Slot];
        for (number, scope) in
            (1..).zip(scopes.into_iter().take(if mode == "noiommu" { 1 } else { 2 }))
        {
            let start = fake.calls();
            // The fake insists that bus mastering is off during a reset.
            reset(&hal, scope).unwrap();
            assert_eq!(hal.generation(), Generation(number));
            fake.with(|state| {
                assert!(state.card.is_bus_master());
                assert_eq!(state.card.irqs[&1].len(), 4);
                let log = &state.log[start..];
                let place = |text: &str| log.iter().position(|call| call.contains(text)).unwrap();
                let back = log.iter().rposition(|call| call == "command 0x6").unwrap();
                let arm = log.iter().rposition(|call| call.contains("SetIrqs")).unwrap();
                assert!(
                    place("command 0x2") < place("Reset") && place("Reset") < arm && arm < back
                );
            });
        }
        hal.close().unwrap();
        fake.assert_clean(mode);
    }
}

#[test]
fn memory_stays_mapped_while_the_device_may_use_it() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let kept = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
    let dropped = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
    let (kept_at, dropped_at) = (kept.bus_addr().as_u64(), dropped.bus_addr().as_u64());
    fake.with(|state| state.hang_resets = true);
    let mut control = hal.reset().unwrap();
    control.begin(ResetScope::Function).unwrap();
    assert_eq!(kind(&hal.dma().alloc(64, DeviceAccess::Read).unwrap_err()), ErrorKind::Stale);
    assert_eq!(kind(&hal.window(MAILBOX_BAR).unwrap_err()), ErrorKind::Stale);
    drop(dropped);
    fake.with(|state| {
        assert!(
            state.iommu.pins.contains_key(&kept_at) && state.iommu.pins.contains_key(&dropped_at)
        );
    });
    assert_eq!(control.poll().unwrap(), ResetState::InProgress);
    assert_eq!(kind(&control.begin(ResetScope::Function).unwrap_err()), ErrorKind::Busy);
    fake.release_resets();
    finish(&mut control).unwrap();
    fake.with(|state| {
        assert!(
            state.iommu.pins.contains_key(&kept_at) && !state.iommu.pins.contains_key(&dropped_at)
        );
    });
    assert_eq!(control.poll().unwrap(), ResetState::Done(Generation(1)));
    drop((control, kept));
    hal.close().unwrap();
    fake.assert_clean("after close");
}

#[test]
fn control_is_given_to_one_at_a_time() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let control = hal.reset().unwrap();
    assert_eq!(kind(&hal.reset().unwrap_err()), ErrorKind::Busy);
    let all = Loss { queues: true, compute: true, memory: true };
    assert_eq!(control.loss(ResetScope::Function), Some(all));
    assert_eq!(control.loss(ResetScope::Compute), None);
    drop(control);
    let mut control = hal.reset().unwrap();
    let error = control.begin(ResetScope::Operations).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    drop(control);
    hal.close().unwrap();
}

#[test]
fn a_busy_kernel_is_asked_again() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    fake.with(|state| {
        state.refuse.insert(Request::DeviceReset, [Errno::AGAIN, Errno::BUSY].into());
    });
    reset(&hal, ResetScope::Function).unwrap();
    assert_eq!(fake.with(|state| state.card.resets), 1);
    // But not for ever.
    fake.with(|state| {
        state.refuse.insert(Request::DeviceReset, [Errno::AGAIN; 30].into());
    });
    let error = reset(&hal, ResetScope::Function).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Busy);
    // Nothing was done to the device, so it works on.
    hal.window(MAILBOX_BAR).unwrap();
    assert!(fake.with(|state| state.card.is_bus_master()));
}

#[test]
fn a_failed_reset_asks_for_a_larger_one() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    fake.with(|state| {
        state.refuse.insert(Request::DeviceReset, [Errno::IO].into());
    });
    let mut control = hal.reset().unwrap();
    control.begin(ResetScope::Function).unwrap();
    let error = finish(&mut control).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::NeedsReset(ResetScope::Slot), "{error}");
    assert_eq!(kind(&hal.window(MAILBOX_BAR).unwrap_err()), ErrorKind::Stale);
    control.begin(ResetScope::Slot).unwrap();
    finish(&mut control).unwrap();
    assert_eq!(fake.with(|state| state.card.slot_resets), 1);
    hal.window(MAILBOX_BAR).unwrap();
}

#[test]
fn a_slot_is_not_reset_under_others() {
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        fake.with(|state| {
            state.card.slot_groups.push(99);
            state.card.slot_owned = false;
        });
        let hal = open(&fake, mode).unwrap();
        let error = reset(&hal, ResetScope::Slot).unwrap_err();
        assert_eq!(kind(&error), ErrorKind::Permission);
        assert!(error.to_string().contains("share the slot"), "{error}");
        let asked = fake.with(|state| state.log.iter().any(|call| call == "ioctl HotReset"));
        assert!(!asked, "the kernel would refuse too, but is not relied on");
        hal.window(MAILBOX_BAR).unwrap();
    }
}

#[test]
fn a_device_without_function_reset_says_so() {
    let fake = kernel("group");
    fake.with(|state| state.card.has_reset = false);
    let hal = open(&fake, "group").unwrap();
    let mut control = hal.reset().unwrap();
    assert_eq!(control.loss(ResetScope::Function), None);
    let error = control.begin(ResetScope::Function).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    assert_eq!(hal.generation(), Generation(0), "nothing became stale");
}

fn hanging(fake: &Arc<Fake>) -> Instant {
    fake.with(|state| state.hang_resets = true);
    Instant::now()
}

#[test]
fn a_reset_that_hangs_loses_the_device_in_time() {
    let fake = kernel("group");
    let short = options().reset_timeout(Duration::from_millis(20));
    let hal = open_with(&fake, "group", &short).unwrap();
    let begin = hanging(&fake);
    let error = reset(&hal, ResetScope::Function).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    // The device cannot be touched while the kernel has it, and closing does not wait for that.
    let mut control = hal.reset().unwrap();
    assert_eq!(kind(&control.begin(ResetScope::Slot).unwrap_err()), ErrorKind::Busy);
    drop(control);
    assert_eq!(kind(&hal.close().unwrap_err()), ErrorKind::Busy);
    assert!(begin.elapsed() < LONG, "no wait without end");
    fake.release_resets();
    fake.wait_until_clean();
}

#[test]
fn a_reset_that_hangs_when_opening_is_bounded_too() {
    let fake = kernel("cdev");
    let begin = hanging(&fake);
    let short =
        options().reset_timeout(Duration::from_millis(20)).reset_at_open(ResetAtOpen::Always);
    let error = open_with(&fake, "cdev", &short).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    assert!(begin.elapsed() < LONG, "no wait without end");
    fake.release_resets();
    fake.wait_until_clean();
}

#[test]
fn a_dead_device_can_be_reset_and_closed_in_time() {
    let fake = kernel("group");
    let short =
        options().reset_timeout(Duration::from_millis(20)).close_timeout(Duration::from_millis(20));
    let hal = open_with(&fake, "group", &short).unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    fake.with(|state| {
        state.card.die_behind(&Linux);
        state.hang_close = true;
    });
    let begin = hanging(&fake);
    // Bus mastering cannot be taken away from a device that does not answer; the reset is tried all
    // the same.
    let error = reset(&hal, ResetScope::Function).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    assert!(hal.close().is_err());
    drop(window);
    assert!(begin.elapsed() < LONG, "no wait without end");
    fake.release_resets();
    fake.wait_until_clean();

    // Without a reset, closing alone takes the kernel as long.
    let fake = kernel("cdev");
    let hal = open_with(&fake, "cdev", &short).unwrap();
    fake.with(|state| state.hang_close = true);
    let begin = Instant::now();
    hal.close().unwrap();
    assert!(begin.elapsed() < LONG, "no wait without end");
    fake.release_resets();
    fake.wait_until_clean();
}

#[test]
fn a_device_that_does_not_boot_after_a_reset_is_lost() {
    // The kernel says that the reset succeeded, and configuration space answers.
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let mut control = hal.reset().unwrap();
    control.begin(ResetScope::Function).unwrap();
    fake.with(|state| state.card.die(&Linux, false));
    let error = finish(&mut control).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    assert!(matches!(error, VfioError::Lost(_)));
    assert_eq!(kind(&hal.window(MAILBOX_BAR).unwrap_err()), ErrorKind::Lost(LossReason::LinkDown));
    // A slot reset may still revive it.
    super::poke(&fake, 2, 0, &[0; 0x2000]);
    control.begin(ResetScope::Slot).unwrap();
    finish(&mut control).unwrap();
    hal.window(MAILBOX_BAR).unwrap();
    drop(control);
    hal.close().unwrap();
    fake.assert_clean("after revival");
}

#[test]
fn closing_during_a_reset_is_safe() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
    fake.with(|state| state.hang_resets = true);
    let mut control = hal.reset().unwrap();
    control.begin(ResetScope::Function).unwrap();
    drop(buffer);
    drop(control);
    drop(hal);
    fake.release_resets();
    fake.wait_until_clean();
}
