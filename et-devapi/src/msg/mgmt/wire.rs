//! The payloads of the management interface, byte for byte. Padding is last and has no name where
//! its type does not matter.

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

use zerocopy::little_endian::{I16, I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}
pub(super) use wire;

wire! {
    /// What follows the header in every response. Spec: §17.1.
    ResponseExt = 16 {
        /// Time the service processor spent on the command, in microseconds.
        device_latency_usec: U64,
        /// 0, or a negative error of the firmware.
        status: I32,
        /// Padding.
        pad: [u8; 4],
    }
    /// A number of 64 bits: a parameter, a result, or nothing at all.
    Quad = 8 {
        /// The number.
        value: U64,
    }
    /// A number of 8 bits.
    ByteArg = 8 {
        /// The number.
        value: u8,
        /// Padding.
        pad: [u8; 7],
    }
    /// A number of 32 bits.
    WordArg = 8 {
        /// The number.
        value: U32,
        /// Padding.
        pad: U32,
    }
    /// A number of 32 bits, mostly a status besides that of the [extension](ResponseExt).
    StatusWord = 8 {
        /// The number.
        status: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// The payload of responses that say nothing more than a status.
    DefaultRsp = 8 {
        /// Usually the status again.
        payload: I32,
        /// Padding.
        pad: U32,
    }
    /// Text that ends with the first NUL, or 256 bytes of data.
    Text = 256 {
        /// The bytes.
        asset: [u8; 256],
    }
    /// The fused public keys.
    PublicKeys = 32 {
        /// The bytes.
        keys: [u8; 32],
    }
    /// Versions of firmware: major, minor and revision in bits 31:24, 23:16 and 15:8.
    FirmwareVersions = 32 {
        /// First boot loader.
        bl1_v: U32,
        /// Second boot loader, the service processor's runtime.
        bl2_v: U32,
        /// Master minion.
        mm_v: U32,
        /// Worker minions.
        wm_v: U32,
        /// Machine mode of the minions.
        machm_v: U32,
        /// The release all of them belong to.
        fw_release_rev: U32,
        /// Power management controller.
        pmic_v: U32,
        /// Padding.
        pad: U32,
    }
    /// Where an image came from.
    ImagePath = 64 {
        /// Text that ends with the first NUL.
        path: [u8; 64],
    }
    /// A root certificate to be fused.
    CertificateHash = 96 {
        /// Key.
        key_blob: [u8; 48],
        /// Associated data.
        associated_data: [u8; 48],
    }
    /// Temperatures in °C.
    Temperatures = 16 {
        /// I/O shire, now.
        ioshire_current: I16,
        /// I/O shire, lowest.
        ioshire_low: I16,
        /// I/O shire, highest.
        ioshire_high: I16,
        /// Minion shires, average.
        minshire_avg: I16,
        /// Minion shires, lowest.
        minshire_low: I16,
        /// Minion shires, highest.
        minshire_high: I16,
        /// Power management controller.
        pmic_sys: u8,
        /// Padding.
        pad: [u8; 3],
    }
    /// How long the device was in a state, in microseconds.
    Residency = 32 {
        /// In all.
        cumulative: U64,
        /// Average of a stay.
        average: U64,
        /// Longest stay.
        maximum: U64,
        /// Shortest stay.
        minimum: U64,
    }
    /// Power of the module, in milliwatts.
    Power = 8 {
        /// The power.
        power: U16,
        /// Padding.
        pad: [u8; 6],
    }
    /// Time since the service processor started.
    Uptime = 8 {
        /// Days.
        day: U16,
        /// Hours, 0 to 23.
        hours: u8,
        /// Minutes, 0 to 59.
        mins: u8,
        /// Padding.
        pad: [u8; 4],
    }
    /// Reads and writes of the memory.
    ReadWrite = 8 {
        /// Reads.
        read: U32,
        /// Writes.
        write: U32,
    }
    /// Errors that error correction has found.
    ErrorCounts = 8 {
        /// Corrected ones.
        ecc: U32,
        /// Uncorrectable ones.
        uecc: U32,
    }
    /// Errors of the master minion.
    MinionErrors = 8 {
        /// Hangs.
        hang_count: U32,
        /// Exceptions.
        exception_count: U32,
    }
    /// Clocks in MHz.
    Frequencies = 24 {
        /// Minion shires.
        minion_shire_mhz: U32,
        /// Network on chip.
        noc_mhz: U32,
        /// Memory shires.
        mem_shire_mhz: U32,
        /// Memory.
        ddr_mhz: U32,
        /// PCIe shire.
        pcie_shire_mhz: U32,
        /// I/O shire.
        io_shire_mhz: U32,
    }
    /// Voltages in mV, as measured in the chip.
    AsicVoltages = 24 {
        /// Memory.
        ddr: U16,
        /// L2 caches.
        l2_cache: U16,
        /// Maxions.
        maxion: U16,
        /// Minions.
        minion: U16,
        /// PCIe shire, 0.75 V.
        pshire_0p75: U16,
        /// Network on chip.
        noc: U16,
        /// I/O shire, 0.75 V.
        ioshire_0p75: U16,
        /// VDDQLP.
        vddqlp: U16,
        /// VDDQ.
        vddq: U16,
        /// Padding.
        pad: [u8; 6],
    }
    /// Voltages as the codes of their regulators.
    ModuleVoltages = 16 {
        /// Memory.
        ddr: u8,
        /// L2 caches.
        l2_cache: u8,
        /// Maxions.
        maxion: u8,
        /// Minions.
        minion: u8,
        /// PCIe.
        pcie: u8,
        /// Network on chip.
        noc: u8,
        /// PCIe logic.
        pcie_logic: u8,
        /// VDDQLP.
        vddqlp: u8,
        /// VDDQ.
        vddq: u8,
        /// Padding.
        pad: [u8; 7],
    }
    /// Sets a voltage.
    SetVoltage = 8 {
        /// Which, a [`Module`](super::Module).
        r#type: u8,
        /// The regulator's code.
        value: u8,
        /// Padding.
        pad: [u8; 6],
    }
    /// Sets a clock.
    SetFrequency = 8 {
        /// Frequency in MHz.
        pll_freq: U16,
        /// Which, a [`Pll`](super::Pll).
        pll_id: u8,
        /// A [`StepClock`](super::StepClock).
        use_step_clock: u8,
        /// Padding.
        pad: [u8; 4],
    }
    /// Controls statistics.
    StatsRun = 8 {
        /// Whose, a [`StatsKind`](super::StatsKind).
        r#type: U32,
        /// Bits of [`StatsControl`](super::StatsControl).
        control: U32,
    }
    /// What the service processor traces.
    TraceMasks = 8 {
        /// Kinds of entries, see [`TraceEvents`](super::TraceEvents).
        event_mask: U32,
        /// Levels, see [`TraceFilter`](super::TraceFilter).
        filter_mask: U32,
    }
    /// How the memory of each shire is divided.
    CacheSizes = 6 {
        /// Scratchpad.
        scp_size: U16,
        /// L2 cache.
        l2_size: U16,
        /// L3 cache.
        l3_size: U16,
    }
    /// Harts to be debugged.
    HartSelection = 24 {
        /// Their shire.
        shire_id: U64,
        /// Harts of the shire.
        thread_mask: U64,
        /// A [`HartFlag`](super::HartFlag).
        flags: U64,
    }
    /// Controls a hart.
    HartControl = 16 {
        /// Which.
        hart_id: U64,
        /// A [`HartFlag`](super::HartFlag).
        flags: U64,
    }
    /// Sets or removes a breakpoint.
    Breakpoint = 40 {
        /// Where.
        hart_id: U64,
        /// Address.
        bp_address: U64,
        /// A [`Privilege`](super::Privilege).
        mode: U64,
        /// How long to wait for it, in milliseconds.
        bp_event_wait_timeout: U64,
        /// 0 to set, 1 to remove.
        flags: U64,
    }
    /// Switches single steps on or off.
    SingleStep = 24 {
        /// Shires.
        shire_mask: U64,
        /// Harts of each.
        thread_mask: U64,
        /// 0 for on, 1 for off.
        flags: U64,
    }
    /// Reads a register of a hart.
    RegisterRead = 16 {
        /// Which hart.
        hart_id: U64,
        /// Number of the register, or of the control register.
        register: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// Writes a register of a hart.
    RegisterWrite = 24 {
        /// Which hart.
        hart_id: U64,
        /// The value.
        data: U64,
        /// Number of the register, or of the control register.
        register: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// All integer registers of a hart.
    GprDump = 256 {
        /// `x0` to `x31`.
        gpr: [U64; 32],
    }
    /// Reads memory.
    MemRead = 24 {
        /// Address.
        address: U64,
        /// Hart through which it is read.
        hart_id: U64,
        /// Bytes.
        size: U32,
        /// A [`MemAccess`](super::MemAccess).
        access_type: u8,
        /// Padding.
        pad: [u8; 3],
    }
    /// Writes memory.
    MemWrite = 24 {
        /// Address.
        address: U64,
        /// The value.
        data: U64,
        /// Bytes.
        size: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// The payload of an event; the numbers of 64 bits are not aligned. Spec: §17.4.
    EventMessage = 24 {
        /// Class in bits 1:0, count in bits 15:2.
        class_count: U16,
        /// First syndrome.
        syndrome0: U64,
        /// Second syndrome.
        syndrome1: U64,
        /// Padding.
        pad: [u8; 6],
    }
}
