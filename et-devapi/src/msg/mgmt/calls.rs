//! Every command, and the types of its payloads. Spec: §17.2

use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    AsicVoltages, Breakpoint, ByteArg, CacheSizes, CertificateHash, DefaultRsp, ErrorCounts,
    FirmwareVersions, Frequencies, GprDump, HartControl, HartSelection, ImagePath, MemRead,
    MemWrite, MinionErrors, MmStats, ModuleVoltages, Power, PublicKeys, Quad, ReadWrite,
    RegisterRead, RegisterWrite, Residency, ResponseExt, SetFrequency, SetVoltage, SingleStep,
    SpStats, StatsRun, StatusWord, Temperatures, Text, TraceMasks, Uptime, WordArg,
};
use crate::msg::HEADER_BYTES;

/// A command with a payload of type `Q`, whose response has one of type `R`; `()` for a command
/// that is not answered.
#[derive(Debug)]
pub struct Call<Q, R> {
    /// The message id.
    pub id: u16,
    types: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Clone for Call<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, R> Copy for Call<Q, R> {}

/// What is known of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// The message id.
    pub id: u16,
    /// The vendor's name.
    pub name: &'static str,
    /// Bytes of the command.
    pub command_bytes: usize,
    /// Bytes of the response; `None` if there is none.
    pub response_bytes: Option<usize>,
}

impl CommandInfo {
    /// Returns `true` for a command that only asks: it changes nothing, reads no memory of anyone
    /// and is answered.
    #[must_use]
    pub fn is_query(&self) -> bool {
        // That one has the firmware send events.
        let is_get = self.name.starts_with("GET_") && self.id != GET_DEVICE_ERROR_EVENTS.id;
        is_get && self.response_bytes.is_some()
    }
}

const fn command_bytes<Q: IntoBytes + Immutable>() -> usize {
    HEADER_BYTES.saturating_add(size_of::<Q>()).next_multiple_of(8)
}

const fn response_bytes<R: FromBytes + Immutable>() -> usize {
    let fixed = HEADER_BYTES.saturating_add(size_of::<ResponseExt>());
    fixed.saturating_add(size_of::<R>()).next_multiple_of(8)
}

macro_rules! response_type {
    () => {
        ()
    };
    ($type:ty) => {
        $type
    };
}

macro_rules! maybe_bytes {
    () => {
        None
    };
    ($type:ty) => {
        Some(response_bytes::<$type>())
    };
}

macro_rules! calls {
    ($($name:ident = $id:literal: $request:ty $(=> $response:ty)?, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $name: Call<$request, response_type!($($response)?)> =
                Call { id: $id, types: PhantomData };
        )*

        /// All commands, in the order of their ids.
        pub const COMMANDS: &[CommandInfo] = &[$(CommandInfo {
            id: $id,
            name: stringify!($name),
            command_bytes: command_bytes::<$request>(),
            response_bytes: maybe_bytes!($($response)?),
        }),*];
    };
}

calls! {
    GET_MODULE_MANUFACTURE_NAME = 0: Quad => Text, "Name of the manufacturer.";
    GET_MODULE_PART_NUMBER = 1: Quad => Text, "Part number.";
    GET_MODULE_SERIAL_NUMBER = 2: Quad => Text, "Serial number.";
    GET_ASIC_CHIP_REVISION = 3: Quad => Text, "Revision of the chip.";
    GET_MODULE_DRIVER_REVISION = 4: Quad => Text, "Revision of the driver; answered with an empty text.";
    GET_MODULE_PCIE_ADDR = 5: Quad => Text, "PCIe address; answered with an empty text.";
    GET_MODULE_PCIE_NUM_PORTS_MAX_SPEED = 6: Quad => Text, "Number of PCIe ports and their speed.";
    GET_MODULE_MEMORY_SIZE_MB = 7: Quad => Text, "Size of the memory in MB.";
    GET_MODULE_REVISION = 8: Quad => Text, "Revision of the module.";
    GET_MODULE_FORM_FACTOR = 9: Quad => Text, "Form factor.";
    GET_MODULE_MEMORY_VENDOR_PART_NUMBER = 10: Quad => Text, "Vendor and part number of the memory.";
    GET_MODULE_MEMORY_TYPE = 11: Quad => Text, "Type of the memory.";
    SET_MODULE_PART_NUMBER = 12: WordArg => Text, "Sets the part number.";
    GET_FUSED_PUBLIC_KEYS = 13: Quad => PublicKeys, "The fused public keys.";
    GET_MODULE_FIRMWARE_REVISIONS = 14: Quad => FirmwareVersions, "Versions of the firmware.";
    SET_FIRMWARE_UPDATE = 15: ImagePath => DefaultRsp, "Installs the image in the scratch region.";
    GET_FIRMWARE_BOOT_STATUS = 16: Quad => DefaultRsp, "Whether the firmware has booted.";
    SET_SP_BOOT_ROOT_CERT = 17: CertificateHash => DefaultRsp, "Fuses a root certificate.";
    SET_SW_BOOT_ROOT_CERT = 18: CertificateHash => DefaultRsp, "Fuses a root certificate.";
    SET_FIRMWARE_VERSION_COUNTER = 19: Quad => DefaultRsp, "Do not use: erratum 4 (§21).";
    SET_FIRMWARE_VALID = 20: Quad, "Not handled.";
    GET_MODULE_TEMPERATURE_THRESHOLDS = 21: Quad => ByteArg, "Threshold of the temperature in °C.";
    SET_MODULE_TEMPERATURE_THRESHOLDS = 22: ByteArg => DefaultRsp, "Sets the threshold of the temperature in °C.";
    GET_MODULE_POWER_STATE = 23: ByteArg => ByteArg, "Power state.";
    SET_MODULE_ACTIVE_POWER_MANAGEMENT = 24: ByteArg => DefaultRsp, "Switches power management.";
    GET_MODULE_STATIC_TDP_LEVEL = 25: Quad => ByteArg, "Thermal design power in watts.";
    SET_MODULE_STATIC_TDP_LEVEL = 26: ByteArg => DefaultRsp, "Sets the thermal design power in watts.";
    GET_MODULE_CURRENT_TEMPERATURE = 27: Quad => Temperatures, "Temperatures.";
    GET_MODULE_TEMPERATURE_THROTTLE_STATUS = 28: Quad, "Not handled.";
    GET_MODULE_RESIDENCY_THROTTLE_STATES = 29: ByteArg => Residency, "How long the throttle was in a state.";
    GET_MODULE_UPTIME = 30: Quad => Uptime, "Time since the start.";
    GET_MODULE_VOLTAGE = 31: Quad => ModuleVoltages, "Voltages as codes.";
    GET_ASIC_VOLTAGE = 32: Quad => AsicVoltages, "Voltages in mV; answered with id 31, erratum 3 (§21).";
    GET_MODULE_POWER = 33: Quad => Power, "Power.";
    GET_MODULE_RESIDENCY_POWER_STATES = 34: ByteArg => Residency, "How long the module was in a power state.";
    SET_MODULE_VOLTAGE = 35: SetVoltage => Quad, "Sets a voltage.";
    SET_THROTTLE_POWER_STATE_TEST = 36: ByteArg => StatusWord, "Forces a state of the throttle.";
    SET_FREQUENCY = 37: SetFrequency => Quad, "Sets a clock.";
    GET_MODULE_MAX_TEMPERATURE = 38: Quad => ByteArg, "Highest temperature in °C.";
    GET_MODULE_MAX_DDR_BW = 39: Quad => ReadWrite, "Highest bandwidth of the memory.";
    GET_MAX_MEMORY_ERROR = 40: Quad => WordArg, "Greatest count of memory errors.";
    SET_DDR_ECC_COUNT = 41: ByteArg => DefaultRsp, "Sets the threshold of memory errors; firmware ignores the payload.";
    SET_PCIE_ECC_COUNT = 42: ByteArg => DefaultRsp, "Sets the threshold of PCIe errors; firmware ignores the payload.";
    SET_SRAM_ECC_COUNT = 43: ByteArg => DefaultRsp, "Sets the threshold of SRAM errors; firmware ignores the payload.";
    SET_PCIE_RESET = 44: WordArg => DefaultRsp, "Resets through PCIe; mostly a stub.";
    GET_MODULE_PCIE_ECC_UECC = 45: Quad => ErrorCounts, "PCIe errors.";
    GET_MODULE_DDR_BW_COUNTER = 46: Quad => ReadWrite, "Requests to the memory per second.";
    GET_MODULE_DDR_ECC_UECC = 47: Quad => ErrorCounts, "Memory errors.";
    GET_MODULE_SRAM_ECC_UECC = 48: Quad => ErrorCounts, "SRAM errors.";
    SET_PCIE_MAX_LINK_SPEED = 49: WordArg => DefaultRsp, "Sets the speed of the link.";
    SET_PCIE_LANE_WIDTH = 50: WordArg => DefaultRsp, "Sets the width of the link.";
    SET_PCIE_RETRAIN_PHY = 51: Quad => DefaultRsp, "Trains the link again.";
    RESET_ETSOC = 52: Quad, "Resets the whole chip; not answered.";
    GET_ASIC_FREQUENCIES = 53: Quad => Frequencies, "Clocks.";
    GET_DRAM_BANDWIDTH = 54: Quad => ReadWrite, "Bandwidth of the memory.";
    GET_DRAM_CAPACITY_UTILIZATION = 55: Quad => WordArg, "Used part of the memory in percent.";
    GET_ASIC_PER_CORE_DATAPATH_UTILIZATION = 56: Quad => Quad, "Utilisation of each core; answered with nothing.";
    GET_ASIC_UTILIZATION = 57: Quad => Quad, "Utilisation; answered with nothing.";
    GET_ASIC_STALLS = 58: Quad => Quad, "Stalls; answered with nothing.";
    GET_ASIC_LATENCY = 59: Quad => Quad, "Latency; answered with nothing.";
    GET_SP_STATS = 60: Quad => SpStats, "Statistics of the service processor.";
    GET_MM_STATS = 61: Quad => MmStats, "Statistics of the master minion.";
    SET_STATS_RUN_CONTROL = 62: StatsRun => DefaultRsp, "Controls statistics.";
    GET_MM_ERROR_COUNT = 63: Quad => MinionErrors, "Errors of the master minion.";
    MM_RESET = 64: Quad => MinionErrors, "Resets the master minion.";
    GET_DEVICE_ERROR_EVENTS = 65: Quad => DefaultRsp, "Sends every event once, in test builds.";
    SET_DM_TRACE_RUN_CONTROL = 66: StatusWord => DefaultRsp, "Switches the trace.";
    SET_DM_TRACE_CONFIG = 67: TraceMasks => StatusWord, "Configures the trace.";
    SET_SHIRE_CACHE_CONFIG = 68: CacheSizes => Quad, "Divides the memory of the shires.";
    GET_SHIRE_CACHE_CONFIG = 69: Quad => CacheSizes, "How the memory of the shires is divided.";
    SET_FRU = 70: Text => Text, "Sets the data of the replaceable unit.";
    GET_FRU = 71: Quad => Text, "Data of the replaceable unit.";
    SET_VMIN_LUT = 72: Text => Text, "Sets the table of least voltages.";
    GET_VMIN_LUT = 73: Quad => Text, "Table of least voltages.";
    MDI_SELECT_HART = 128: HartSelection => StatusWord, "Selects harts.";
    MDI_UNSELECT_HART = 129: HartSelection => StatusWord, "Deselects harts.";
    MDI_RESET_HART = 130: HartControl => StatusWord, "Resets a hart.";
    MDI_HALT_HART = 131: HartControl => StatusWord, "Halts a hart.";
    MDI_RESUME_HART = 132: HartControl => StatusWord, "Lets a hart go on.";
    MDI_GET_HART_STATUS = 133: HartControl => StatusWord, "State of a hart.";
    MDI_SET_BREAKPOINT = 134: Breakpoint => StatusWord, "Sets a breakpoint.";
    MDI_UNSET_BREAKPOINT = 135: Breakpoint => StatusWord, "Removes a breakpoint.";
    MDI_ENABLE_SINGLE_STEP = 136: SingleStep => StatusWord, "Steps harts.";
    MDI_DISABLE_SINGLE_STEP = 137: SingleStep => StatusWord, "Ends stepping.";
    MDI_READ_GPR = 138: RegisterRead => Quad, "Reads a register.";
    MDI_DUMP_GPR = 139: Quad => GprDump, "Do not use: erratum 2 (§21).";
    MDI_WRITE_GPR = 140: RegisterWrite => DefaultRsp, "Writes a register.";
    MDI_READ_CSR = 141: RegisterRead => Quad, "Reads a control register.";
    MDI_WRITE_CSR = 142: RegisterWrite => DefaultRsp, "Writes a control register.";
    MDI_READ_MEM = 143: MemRead => Quad, "Reads memory.";
    MDI_WRITE_MEM = 144: MemWrite => StatusWord, "Writes memory.";
}

/// Returns what is known of a command.
#[must_use]
pub fn command_info(id: u16) -> Option<&'static CommandInfo> {
    COMMANDS.iter().find(|command| command.id == id)
}
