//! Whatever fails, nothing stays behind.

use std::ptr::NonNull;
use std::sync::Arc;

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{DeviceAccess, Dma, Hal, Mailbox, ResetScope};
use rustix::io::Errno;

use super::{MODES, format_queues, kernel, layout, open_with, options, reset};
use crate::sys::fake::Fake;
use crate::{ResetAtOpen, VfioBuffer, VfioError, VfioHal};

/// Calls whose failure changes nothing for the caller, by design.
///
/// The owner file and what is told in it only serve messages, and so do the names of driver and
/// kernel; huge pages are replaced by small
/// ones; boot status (in the mailbox BAR) is read until it comes; unmapping is tried again.
fn is_tolerated(mode: &str, log: &[String], index: usize) -> bool {
    let call = &log[index];
    // A buffer that is dropped cannot report that it was not unmapped; closing tries again, and
    // reports.
    let closing = log.iter().rposition(|call| call == "command 0x2").unwrap();
    if call.contains("Unmap") && index < closing {
        return true;
    }
    let advisory = ["owner ", "write owner", "text /proc/self", "text /proc/sys", "read 0x4070"];
    advisory.iter().any(|start| call.starts_with(start))
        || call.starts_with("link ") && call.ends_with("/driver")
        || mode != "noiommu"
            && (call.contains("Huge")
                || call.starts_with("keep") && log[index - 1].contains("Huge"))
}

/// Uses everything once.
fn life(fake: &Arc<Fake>, mode: &str) -> Result<(), VfioError> {
    let hal = open_with(fake, mode, &options().reset_at_open(ResetAtOpen::Always))?;
    let window = hal.window(MAILBOX_BAR)?;
    let small = hal.dma().alloc(100, DeviceAccess::Read)?;
    let large = if mode == "noiommu" { 2 << 20 } else { 3 << 20 };
    let large = hal.dma().alloc(large, DeviceAccess::ReadWrite)?;
    drop(small);
    drop(large);
    drop(window);
    reset(&hal, ResetScope::Function)?;
    if mode != "noiommu" {
        reset(&hal, ResetScope::Slot)?;
    }
    let buffer = hal.dma().alloc(5000, DeviceAccess::Write)?;
    drop(buffer);
    if mode != "noiommu" {
        drop(import(&hal)?);
    }
    hal.close()
}

/// Lends pages that stay where they are to the end of the process.
#[expect(unsafe_code, reason = "imports memory")]
fn import(hal: &VfioHal) -> Result<Option<VfioBuffer>, VfioError> {
    let pages: &'static mut [u8] = Box::leak(vec![0; 3 * 4096].into());
    let start = pages.as_ptr().align_offset(4096);
    let start = NonNull::from(&mut pages[start..]).cast();
    // SAFETY: the bytes are never freed, and nothing refers to them any more.
    unsafe { hal.dma().import_buffer(start, 4096, DeviceAccess::Write) }
}

#[test]
fn every_call_may_fail() {
    for mode in MODES {
        let fake = kernel(mode);
        life(&fake, mode).unwrap();
        fake.assert_clean("after success");
        fake.with(|state| assert_eq!(state.iommu.left_at_close, 0));
        let log = fake.with(|state| state.log.clone());
        let mut tolerated = 0;
        for errno in [Errno::IO, Errno::NOMEM] {
            for (index, call) in log.iter().enumerate() {
                let fake = kernel(mode);
                fake.with(|state| state.fail = Some((index, errno)));
                let outcome = life(&fake, mode);
                if mode == "noiommu" && outcome.is_err() {
                    fake.wait_until_clean_but_memory();
                } else {
                    fake.wait_until_clean();
                }
                let failed = fake.with(|state| state.log[index].clone());
                assert_eq!(&failed, call, "{mode}: the calls come in the same order each time");
                // Unless the failure was in unmapping itself, nothing was left for the kernel to
                // unmap.
                if !call.contains("Unmap") {
                    fake.with(|state| assert_eq!(state.iommu.left_at_close, 0, "{mode}: {call}"));
                }
                if is_tolerated(mode, &log, index) {
                    tolerated += 1;
                } else {
                    assert!(outcome.is_err(), "{mode}: call {index} ({call}) failed unnoticed");
                }
            }
        }
        eprintln!("{mode}: {} points of failure, 2 errors each, {tolerated} tolerated", log.len());
        assert!(log.len() > 50);
    }
}

#[test]
fn every_call_may_be_interrupted() {
    for mode in MODES {
        let fake = kernel(mode);
        life(&fake, mode).unwrap();
        let log = fake.with(|state| state.log.clone());
        for (index, call) in log.iter().enumerate() {
            // These the kernel does not interrupt, or the crate does without.
            if !(call.starts_with("open")
                || call.starts_with("ioctl")
                || call.starts_with("read")
                || call.starts_with("command")
                || call.starts_with("map"))
            {
                continue;
            }
            let fake = kernel(mode);
            fake.with(|state| state.fail = Some((index, Errno::INTR)));
            life(&fake, mode).unwrap_or_else(|error| panic!("{mode}: {call}: {error}"));
            fake.wait_until_clean();
        }
    }
}

#[test]
fn dropping_without_closing_leaves_nothing_either() {
    for mode in MODES {
        let fake = kernel(mode);
        let hal = open_with(&fake, mode, &options()).unwrap();
        let window = format_queues(&hal);
        let mailbox = hal.open_mailbox(&layout()).unwrap();
        let buffer = hal.dma().alloc(1 << 16, DeviceAccess::Read).unwrap();
        drop(hal);
        mailbox.wake();
        drop((window, mailbox, buffer));
        fake.assert_clean(mode);
        fake.with(|state| assert_eq!(state.iommu.left_at_close, 0));
    }
}

#[test]
fn a_device_that_vanished_can_be_dropped() {
    for mode in MODES {
        let fake = kernel(mode);
        let hal = open_with(&fake, mode, &options()).unwrap();
        let window = hal.window(MAILBOX_BAR).unwrap();
        let buffer = hal.dma().alloc(1 << 16, DeviceAccess::Read).unwrap();
        fake.with(|state| state.card.unplugged = true);
        assert!(hal.close().is_err());
        drop((window, buffer));
        if mode == "noiommu" {
            fake.wait_until_clean_but_memory();
        } else {
            fake.wait_until_clean();
        }
    }
}
