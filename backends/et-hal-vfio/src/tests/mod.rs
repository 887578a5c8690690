//! The backend on the fake kernel.

mod closing;
mod dma;
mod errors;
mod interrupts;
mod leaks;
mod lent;
mod mailbox;
mod open;
mod reset;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use et_devapi::pci::MAILBOX_BAR;
use et_devapi::ring::Ring;
use et_hal::{
    BarOffset, Doorbell, Endpoint, ErrorKind, Hal, MailboxLayout, Mmio, Reset, ResetScope,
    ResetState, RingSet, Width,
};

use crate::sys::Linux;
use crate::sys::fake::{BDF, Fake};
use crate::{VfioAddress, VfioError, VfioHal, VfioOptions, VfioWindow};

/// Only a hang reaches it.
const LONG: Duration = Duration::from_secs(20);

/// The modes of the kernel.
const MODES: [&str; 3] = ["group", "cdev", "noiommu"];

fn options() -> VfioOptions {
    VfioOptions::new()
        .allow_unsafe_no_iommu()
        .reset_timeout(2 * LONG)
        .close_timeout(2 * LONG)
        .boot_timeout(Duration::from_millis(50))
        .spin(Duration::ZERO)
}

/// Makes a kernel that suits a mode.
fn kernel(mode: &str) -> Arc<Fake> {
    let fake = Fake::new();
    fake.with(|state| {
        state.iommu.absent = mode == "noiommu";
        state.has_cdev = mode == "cdev";
        state.huge_pages_free = 16;
    });
    fake
}

fn address(mode: &str) -> VfioAddress {
    format!("{BDF},mode={mode}").parse().unwrap()
}

fn open_with(fake: &Arc<Fake>, mode: &str, options: &VfioOptions) -> Result<VfioHal, VfioError> {
    VfioHal::open_with(Arc::clone(fake) as _, &address(mode), options)
}

fn open(fake: &Arc<Fake>, mode: &str) -> Result<VfioHal, VfioError> {
    open_with(fake, mode, &options())
}

fn kind(error: &VfioError) -> ErrorKind {
    et_hal::Error::kind(error)
}

/// Writes into the card's memory as its firmware would.
fn poke(fake: &Fake, bar: u32, at: u64, bytes: &[u8]) {
    fake.with(|state| state.card.poke(&Linux, bar, at, bytes));
}

fn peek<const N: usize>(fake: &Fake, bar: u32, at: u64) -> [u8; N] {
    fake.with(|state| state.card.peek(&Linux, bar, at))
}

/// Waits for a reset; the tests' resets are bounded by their options.
fn finish(reset: &mut impl Reset<Error = VfioError>) -> Result<(), VfioError> {
    loop {
        match reset.poll()? {
            ResetState::Done(_) => return Ok(()),
            ResetState::InProgress => std::thread::yield_now(),
        }
    }
}

fn reset(hal: &VfioHal, scope: ResetScope) -> Result<(), VfioError> {
    let mut reset = hal.reset()?;
    reset.begin(scope)?;
    finish(&mut reset)
}

/// Queues of the operations endpoint, where current firmware has them.
fn layout() -> MailboxLayout {
    let set = |at, size_bytes, count| RingSet { at: BarOffset::new(at), size_bytes, count };
    MailboxLayout {
        endpoint: Endpoint::Operations,
        submission: set(0x100, 0x440, 2),
        high_priority: set(0x980, 0x40, 2),
        completion: set(0xa00, 0x600, 1),
        doorbell: Doorbell { at: BarOffset::new(0x2004), width: Width::W32, value: 1 },
    }
}

/// Makes the queues, as the firmware does when it boots.
fn format_queues(hal: &VfioHal) -> VfioWindow {
    let window = hal.window(MAILBOX_BAR).unwrap();
    let layout = layout();
    for set in [layout.submission, layout.high_priority, layout.completion] {
        for index in 0..u64::from(set.count) {
            let at = set.at.as_u64() + index * u64::from(set.size_bytes);
            let ring = Ring::new::<VfioError>(BarOffset::new(at), set.size_bytes).unwrap();
            ring.format(&window).unwrap();
        }
    }
    window
}

#[test]
fn handles_cross_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<VfioHal>();
    is_send_and_sync::<VfioWindow>();
    is_send_and_sync::<crate::VfioBuffer>();
    is_send_and_sync::<crate::VfioMailbox>();
    is_send_and_sync::<crate::VfioReset>();
    is_send_and_sync::<crate::Imported>();
    is_send_and_sync::<VfioError>();
}

#[test]
fn the_window_is_an_mmio_object() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window: Box<dyn Mmio<Error = VfioError>> = Box::new(hal.window(MAILBOX_BAR).unwrap());
    assert_eq!(window.len_bytes(), 0x4000);
}
