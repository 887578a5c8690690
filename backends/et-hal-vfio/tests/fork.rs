//! A process that forks while it has a device.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![expect(unsafe_code, reason = "forks, and imports memory")]

mod support;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use embedded_dma::ReadBuffer;
use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    BarOffset, DeviceAccess, Dma, DmaBuffer, Error, ErrorKind, Hal, LossReason, Mmio, Reset,
    ResetScope, ResetState, Width,
};
use et_hal_vfio::VfioError;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use support::{Bare, MAPPED, Rig};

const PAGE: usize = 4096;
const FORKED: ErrorKind = ErrorKind::Lost(LossReason::Forked);
const AT: BarOffset = BarOffset::new(0x100);

/// Runs `work` in a child; returns how many of its checks failed, which the child prints.
fn in_a_child(work: impl FnOnce(&mut dyn FnMut(bool, &str))) -> i32 {
    // SAFETY: the child uses memory, locks of its own and system calls only, and does not return.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut failed = 0;
        let mut check = |is_right: bool, what: &str| {
            if !is_right {
                failed += 1;
                let line = format!("in the child: {what}\n");
                let (Ok(_) | Err(_)) = rustix::io::write(std::io::stderr(), line.as_bytes());
            }
        };
        let ended = catch_unwind(AssertUnwindSafe(|| work(&mut check)));
        check(ended.is_ok(), "panicked");
        // SAFETY: ends the child without the parent's handlers.
        unsafe { libc::_exit(failed) };
    }
    let mut status = 0;
    // SAFETY: the kernel fills one number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died by signal {}", libc::WTERMSIG(status));
    libc::WEXITSTATUS(status)
}

fn is_forked<T>(outcome: Result<T, VfioError>) -> bool {
    outcome.is_err_and(|error| error.kind() == FORKED)
}

fn rig() -> Rig {
    let fd = memfd_create("bar2", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, MAPPED.len).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    Rig::new(Bare { file: Some(fd.into()), ..Bare::new() })
}

/// A page that is not shared with anything.
fn page() -> NonNull<u8> {
    let shape = Layout::from_size_align(PAGE, PAGE).unwrap();
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(shape) }).unwrap()
}

#[test]
fn children_are_refused_and_change_nothing() {
    let rig = rig();
    let hal = rig.connect();
    let window = hal.window(MAILBOX_BAR).unwrap();
    window.write(AT, Width::W32, 7).unwrap();
    let mut small = hal.dma().alloc(100, DeviceAccess::Read).unwrap();
    let large = hal.dma().alloc(1 << 20, DeviceAccess::ReadWrite).unwrap();
    let memory = page();
    // SAFETY: the page is freed at the end of the test, and used by the device only.
    let import = unsafe { hal.dma().import(memory, PAGE, DeviceAccess::ReadWrite) }.unwrap();
    let mut reset = hal.reset().unwrap();
    let windows = rig.device.windows.load(Ordering::Relaxed);
    assert!(windows >= 3);

    let (mut window, mut hal, mut large) = (Some(window), Some(hal), Some(large));
    let (mut import, mut rig_of_child) = (Some(import), Some(self::rig()));
    for closes in [true, false] {
        let failed = in_a_child(|check| {
            // The child ends without their drops unless it makes them.
            let (window, hal) = (window.take().unwrap(), hal.take().unwrap());
            let (large, import) = (large.take().unwrap(), import.take().unwrap());
            check(is_forked(window.read(AT, Width::W32)), "a window reads");
            check(is_forked(window.write(AT, Width::W32, 9)), "a window writes");
            check(is_forked(window.read_bytes(AT, &mut [0; 8])), "a window copies");
            check(is_forked(window.flush()), "a window flushes");
            check(is_forked(hal.window(MAILBOX_BAR)), "a window opens");
            check(is_forked(hal.dma().alloc(8, DeviceAccess::Read)), "memory is given");
            check(is_forked(hal.dma().sync_for_cpu(&small, 0..1)), "memory is synchronised");
            check(is_forked(hal.facts()), "facts are told");
            check(is_forked(hal.reset()), "control over resets is given");
            check(is_forked(reset.begin(ResetScope::Function)), "a reset begins");
            check(is_forked(reset.poll()), "a reset is polled");
            check(small.copy_in(0, &[1]).is_err(), "a buffer is written");
            check(small.copy_out(0, &mut [0]).is_err(), "a buffer is read");
            check(small.fill(0, 1, 1).is_err(), "a buffer is filled");

            // Where the buffer was, the child has something of its own.
            // SAFETY: the pointer is only looked at.
            let (at, len) = unsafe { large.read_buffer() };
            let own = map_at(at, len);
            drop(large);
            // SAFETY: mapped above, for writing; if not any more, the child dies and the test
            // fails.
            unsafe { own.write_volatile(1) };
            drop((window, import));
            if closes {
                check(is_forked(hal.close()), "the device is closed");
            } else {
                drop(hal);
            }
            // What it opens itself, it may use.
            let other = rig_of_child.take().unwrap();
            let mine = other.connect();
            let window = mine.window(MAILBOX_BAR).unwrap();
            window.write(AT, Width::W32, 3).unwrap();
            check(window.read(AT, Width::W32).unwrap() == 3, "own windows work");
            drop(window);
            check(mine.close().is_ok(), "own devices close");
            // The server's thread is the parent's.
            std::mem::forget(other);
        });
        assert_eq!(failed, 0);
    }

    let (window, hal, import) = (window.unwrap(), hal.unwrap(), import.unwrap());
    assert_eq!(window.read(AT, Width::W32).unwrap(), 7);
    // By message, through the connection.
    window.read(BarOffset::new(0x3000), Width::W32).unwrap_err();
    window.flush().unwrap();
    assert_eq!(rig.device.windows.load(Ordering::Relaxed), windows);
    assert_eq!(rig.device.config.lock().unwrap()[4] & 4, 4, "still master of the bus");
    small.copy_in(0, &[1]).unwrap();
    reset.begin(ResetScope::Function).unwrap();
    while reset.poll().unwrap() == ResetState::InProgress {
        std::thread::yield_now();
    }
    drop((window, small, large, import, reset));
    hal.close().unwrap();
    assert_eq!(rig.device.windows.load(Ordering::Relaxed), 0);
    // SAFETY: allocated with this shape by `page`.
    unsafe { dealloc(memory.as_ptr(), Layout::from_size_align(PAGE, PAGE).unwrap()) };
}

/// Maps memory of the child's own at a place that must be free.
fn map_at(at: *const u8, len: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel refuses if anything is there.
    let own = unsafe { mmap_anonymous(at.cast_mut().cast(), len, protection, flags) };
    own.expect("nothing is inherited there").cast()
}
