//! `et-vm-hal LOCATOR`: drives QEMU's `edu` through this project's VFIO backend.
//!
//! The device is not ours: what backend and simulator both have wrong shows here.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use et_hal::{
    Bar, BarOffset, DeviceAccess, Dma, DmaBuffer, Hal, Mmio, Reset, ResetScope, ResetState, Width,
};
use et_hal_vfio::{VfioAddress, VfioError, VfioHal, VfioOptions, VfioWindow};
use et_vm_edu::Checks;

/// The device's identity.
const EDU: (u16, u16) = (0x1234, 0x11e8);
/// Limit of everything that the device does.
const LIMIT: Duration = Duration::from_secs(10);
const IDENTITY: u64 = 0x00;
const LIVENESS: u64 = 0x04;
const FACTORIAL: u64 = 0x08;
const STATUS: u64 = 0x20;
const COMPUTING: u64 = 1;
const DMA_SOURCE: u64 = 0x80;
const DMA_TARGET: u64 = 0x88;
const DMA_COUNT: u64 = 0x90;
const DMA_COMMAND: u64 = 0x98;
const START: u64 = 1;
const TO_MEMORY: u64 = 2;
/// The device's own buffer of 4 KiB; half of it is used, as a transfer that ends at its very end
/// aborts older QEMUs.
const BUFFER: u64 = 0x4_0000;
const TRANSFER: usize = 2048;

fn main() -> ExitCode {
    let mut checks = Checks::new();
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: et-vm-hal ADDRESS[,KEY=VALUE…]");
        return ExitCode::FAILURE;
    };
    run(&mut checks, &address);
    checks.finish()
}

fn options() -> VfioOptions {
    VfioOptions::new().also_accept(EDU.0, EDU.1)
}

fn run(checks: &mut Checks, text: &str) -> Option<()> {
    // The device has 28 address bits.
    let address: VfioAddress = checks.step("address", format!("{text},iova-bits=28").parse())?;
    let refused = VfioHal::open(&address, &VfioOptions::new());
    checks.holds(
        "a_device_that_is_not_ours_is_refused",
        matches!(refused, Err(VfioError::NotOurs { .. })),
        format_args!("{refused:?}"),
    );
    drop(refused);
    let hal = checks.works("open", VfioHal::open(&address, &options()))?;
    let again = VfioHal::open(&address, &options());
    checks.holds(
        "a_second_opener_is_refused",
        matches!(again, Err(VfioError::Busy { .. })),
        format_args!("{again:?}"),
    );
    drop(again);
    let facts = checks.works("facts", hal.facts())?;
    checks.same("vectors", facts.vectors, 1);
    let tests = checks.works("interrupt_test", hal.test_interrupts(LIMIT))?;
    checks.holds("the_interrupt_arrives", tests.iter().all(|test| test.arrived), "none");
    let window = checks.works("window", hal.window(Bar::new(0)?))?;
    registers(checks, &window)?;
    transfers(checks, &hal, &window)?;
    reset(checks, &hal, &window)?;
    drop(window);
    checks.works("close", hal.close())?;
    let hal = checks.works("open_again", VfioHal::open(&address, &options()))?;
    checks.works("close_again", hal.close())
}

fn registers(checks: &mut Checks, window: &VfioWindow) -> Option<()> {
    checks.same("length_of_the_window", window.len_bytes(), 1 << 20);
    let read = |at| window.read(BarOffset::new(at), Width::W32);
    let write = |at, value| window.write(BarOffset::new(at), Width::W32, value);
    checks.same("identity", step(read(IDENTITY))? & 0xffff, 0xed);
    step(write(LIVENESS, 0x1234_5678))?;
    checks.same("liveness", step(read(LIVENESS))?, !0x1234_5678 & 0xffff_ffff);
    step(write(FACTORIAL, 10))?;
    let end = Instant::now() + LIMIT;
    while step(read(STATUS))? & COMPUTING != 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    checks.same("factorial", step(read(FACTORIAL))?, 3_628_800);
    Some(())
}

/// A register access that fails ends the checks; the missing ones are a failure of their own.
fn step<T>(result: Result<T, VfioError>) -> Option<T> {
    result.inspect_err(|error| eprintln!("register access: {error}")).ok()
}

/// Has the device copy, and waits until it says that it is done.
fn copy(window: &VfioWindow, source: u64, target: u64, command: u64) -> Option<bool> {
    let write = |at, value| step(window.write(BarOffset::new(at), Width::W64, value));
    write(DMA_SOURCE, source)?;
    write(DMA_TARGET, target)?;
    write(DMA_COUNT, TRANSFER as u64)?;
    write(DMA_COMMAND, command)?;
    let end = Instant::now() + LIMIT;
    while step(window.read(BarOffset::new(DMA_COMMAND), Width::W64))? & START != 0 {
        if Instant::now() > end {
            return Some(false);
        }
        std::thread::yield_now();
    }
    Some(true)
}

fn transfers(checks: &mut Checks, hal: &VfioHal, window: &VfioWindow) -> Option<()> {
    let alloc = |access| hal.dma().alloc(64 << 10, access);
    let mut from = checks.works("buffer_to_read", alloc(DeviceAccess::Read))?;
    let mut to = checks.works("buffer_to_write", alloc(DeviceAccess::Write))?;
    let pattern: Vec<u8> =
        (0..=250_u8).map(|i| i.wrapping_mul(31)).cycle().take(TRANSFER).collect();
    from.copy_in(4096, &pattern).ok()?;
    to.fill(0, to.len_bytes(), 0xee).ok()?;
    let address = |buffer: &et_hal_vfio::VfioBuffer, at: u64| buffer.bus_addr().as_u64() + at;
    checks.same("to_the_device", copy(window, address(&from, 4096), BUFFER, START)?, true);
    let command = START | TO_MEMORY;
    checks.same("to_memory", copy(window, BUFFER, address(&to, 8192), command)?, true);
    let mut found = vec![0; to.len_bytes()];
    to.copy_out(0, &mut found).ok()?;
    checks.same("what_came_back", found.get(8192..8192 + TRANSFER), Some(&pattern[..]));
    let around = found[..8192].iter().chain(&found[8192 + TRANSFER..]);
    checks.holds("nothing_else_changed", around.copied().all(|byte| byte == 0xee), "other bytes");
    // The IOMMU keeps the device from writing what it may only read.
    copy(window, BUFFER, address(&from, 0), command)?;
    let mut start = vec![1; TRANSFER];
    from.copy_out(0, &mut start).ok()?;
    checks.holds("read_only_memory_is_not_written", start.iter().all(|&byte| byte == 0), "bytes");
    let gone = address(&to, 8192);
    drop(to);
    let after = checks.works("buffer_after_one_was_freed", alloc(DeviceAccess::ReadWrite))?;
    checks.holds("addresses_are_not_used_again_at_once", address(&after, 8192) != gone, gone);
    Some(())
}

fn reset(checks: &mut Checks, hal: &VfioHal, window: &VfioWindow) -> Option<()> {
    let before = hal.generation();
    let mut reset = checks.works("reset_handle", hal.reset())?;
    checks.works("reset_begins", reset.begin(ResetScope::Function))?;
    let old = window.read(BarOffset::new(IDENTITY), Width::W32);
    checks.holds("old_windows_are_stale", matches!(old, Err(VfioError::Stale)), "another answer");
    let end = Instant::now() + LIMIT;
    let done = loop {
        match reset.poll() {
            Ok(ResetState::InProgress) if Instant::now() < end => std::thread::yield_now(),
            outcome => break outcome,
        }
    };
    let done = checks.works("reset_ends", done)?;
    checks.holds(
        "there_is_a_new_generation",
        matches!(done, ResetState::Done(now) if now > before),
        format_args!("{done:?}"),
    );
    let window = checks.works("window_after_the_reset", hal.window(Bar::new(0)?))?;
    let identity = step(window.read(BarOffset::new(IDENTITY), Width::W32))?;
    checks.same("identity_after_the_reset", identity & 0xffff, 0xed);
    Some(())
}
