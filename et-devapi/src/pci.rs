//! PCI identity, BARs and interrupt vectors.

use et_hal::{Bar, BarOffset, DeviceAddr, PciIds};

/// Vendor ID. Spec: §1.
pub const VENDOR_ID: u16 = 0x1e0a;
/// Device ID of the silicon. Spec: §1.
pub const DEVICE_ID: u16 = 0xeb01;
/// Device ID of the test and emulation device. Spec: §1.
pub const DEVICE_ID_EMULATION: u16 = 0x9038;
/// Ids of a simulated card: those of the silicon, and the same as subsystem, which the interface
/// does not name. Spec: §1.
pub const SIMULATED_IDS: PciIds = PciIds {
    vendor: VENDOR_ID,
    device: DEVICE_ID,
    subsystem_vendor: VENDOR_ID,
    subsystem: DEVICE_ID,
    revision: 0,
};
/// Base class code: processing accelerator. Spec: §1.
pub const BASE_CLASS: u8 = 0x12;

/// The BAR with the linear window on device DRAM. Spec: §1.
pub const DRAM_BAR: Bar = bar(0);
/// The BAR with mailboxes and doorbells. Spec: §1.
pub const MAILBOX_BAR: Bar = bar(2);
/// Size of BAR 0 in bytes. Spec: §1.
pub const BAR0_BYTES: u64 = 0x8_0000_0000;
/// Size of BAR 2 in bytes. Spec: §1.
pub const BAR2_BYTES: u64 = 0x4000;
/// Device address at offset 0 of BAR 0. Spec: §1.
pub const BAR0_DEVICE_ADDR: DeviceAddr = DeviceAddr::new(0x80_0400_1000);

/// Start of the doorbells in BAR 2; they reach to its end. Spec: §1.
pub const DOORBELLS: BarOffset = BarOffset::new(0x2000);
/// What each byte of a read without an answer holds.
pub const NO_ANSWER: u8 = 0xff;

/// Where the operations registers are in BAR 2. Spec: §1.
pub const OPS_DIR: BarOffset = BarOffset::new(0x0000);
/// Where the management registers are in BAR 2. Spec: §1.
pub const MGMT_DIR: BarOffset = BarOffset::new(0x1000);
/// Bytes that a DIR may use. Spec: §1, §3.8.
pub const DIR_BYTES: usize = 0x200;

/// Number of interrupt vectors; fewer are not enough. Spec: §2.1.
pub const VECTORS: usize = 4;

/// An interrupt vector. Spec: §2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Vector {
    /// A management command was consumed.
    MgmtSubmission = 0,
    /// The management completion queue has new data.
    MgmtCompletion = 1,
    /// An operations command was consumed, from an SQ or HPSQ.
    OpsSubmission = 2,
    /// The operations completion queue has new data.
    OpsCompletion = 3,
}

impl Vector {
    /// All vectors, in order.
    pub const ALL: [Self; VECTORS] =
        [Self::MgmtSubmission, Self::MgmtCompletion, Self::OpsSubmission, Self::OpsCompletion];
}

const fn bar(index: u8) -> Bar {
    match Bar::new(index) {
        Some(bar) => bar,
        None => panic!("a PCI function has six BARs"),
    }
}
