//! Device interface registers (DIR): what the device says about itself.
//!
//! A DIR is a header, one queue block and region records, packed. Each block begins with its own
//! size: a larger block is newer firmware, a smaller one an error.
//!
//! Spec: §3

mod error;
mod mgmt;
mod ops;
mod parse;
mod region;
mod wire;

pub use error::{DirError, DirWarning, Warnings};
pub use mgmt::{MgmtDir, MgmtRegion};
pub use ops::{OpsDir, OpsRegion};
pub use region::{AccessAttr, DmaInfo, Region, check_overlap};
pub use wire::{MgmtHeader, MgmtQueues, OpsHeader, OpsQueues, RegionRecord};

/// Version of the operations registers. Spec: §3.1.
pub const OPS_VERSION: u16 = 1;
/// Version of the management registers. Spec: §3.3.
pub const MGMT_VERSION: u16 = 2;

/// Lengths of the BARs as the bus reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarSizes {
    /// BAR 0 in bytes.
    pub bar0: u64,
    /// BAR 2 in bytes.
    pub bar2: u64,
}

impl BarSizes {
    /// The sizes of an ET-SoC-1. Spec: §1.
    pub const ET_SOC_1: Self = Self { bar0: crate::pci::BAR0_BYTES, bar2: crate::pci::BAR2_BYTES };

    pub(crate) fn of(&self, bar: u8) -> Option<u64> {
        match bar {
            0 => Some(self.bar0),
            2 => Some(self.bar2),
            _ => None,
        }
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident { $($value:literal => $variant:ident $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!($text, ".")] $variant,)*
            /// A value this version does not know.
            Unknown(i16),
        }

        impl From<i16> for $name {
            fn from(value: i16) -> Self {
                match value {
                    $($value => Self::$variant,)*
                    value => Self::Unknown(value),
                }
            }
        }

        impl From<$name> for i16 {
            fn from(status: $name) -> Self {
                match status {
                    $($name::$variant => $value,)*
                    $name::Unknown(value) => value,
                }
            }
        }
    )*};
}

statuses! {
    /// Boot status of the service processor; not monotonic. Spec: §3.9.
    MgmtStatus {
        -1 => BootError "Boot error, or nothing mapped there",
        0 => NotReady "Not ready",
        1 => VqReady "Queues ready",
        2 => NocInitialized "Network on chip initialised",
        3 => DdrInitialized "Memory initialised",
        4 => MinionInitialized "Minions initialised",
        5 => MinionFwAuthenticated "Minion firmware authenticated",
        6 => CommandDispatcherInitialized "Command dispatcher initialised",
        7 => MmFwLaunched "Master minion firmware launched",
        8 => AtuProgrammed "Address translation programmed",
        9 => PmReady "Power management ready",
        10 => SpWatchdogReady "Watchdog ready",
        11 => EventHandlerReady "Event handler ready",
        12 => DevReady "Ready",
    }
    /// Boot status of the master minions; not monotonic. Spec: §3.9.
    OpsStatus {
        -1 => FwError "Firmware error, or nothing mapped there",
        0 => DevIntfNotReady "Not ready",
        1 => DevIntfReady "Registers ready",
        2 => InterruptInitialized "Interrupts initialised",
        3 => CmInterfaceReady "Compute interface ready",
        4 => CmWorkersInitialized "Compute workers initialised",
        5 => WorkersInitialized "Workers initialised",
        6 => HostVqReady "Queues ready",
        7 => SpInterfaceReady "Service processor interface ready",
        8 => Ready "Ready",
    }
}
