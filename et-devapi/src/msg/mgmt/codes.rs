//! The enumerations of the management interface. Spec: §17.3, §17.4

use crate::msg::codes::codes;

codes! {
    /// Power state.
    PowerState {
        0 => MaxPower "maximum power",
        1 => ManagedPower "managed power",
        2 => SafePower "safe power",
        3 => LowPower "low power",
        4 => Invalid "invalid",
    }
    /// What has a voltage.
    Module {
        0 => Ddr "DDR",
        1 => L2Cache "L2 cache",
        2 => Maxion "Maxion",
        3 => Minion "minion",
        4 => Pcie "PCIe",
        5 => Noc "network on chip",
        6 => PcieLogic "PCIe logic",
        7 => Vddqlp "VDDQLP",
        8 => Vddq "VDDQ",
        9 => Invalid "invalid",
    }
    /// Result of a command of the vendor's library.
    DmStatus {
        0 => Success "success",
        1 => Error "error",
    }
    /// Boot status of the firmware.
    FirmwareStatus {
        0 => Pass "pass",
        1 => Failed "failed",
    }
    /// Kind of a reset through PCIe. Spec: §18.
    PcieReset {
        0 => Flr "function level",
        1 => Hot "hot",
        2 => Warm "warm",
    }
    /// Speed of the link.
    LinkSpeed {
        0 => Gen3 "generation 3",
        1 => Gen4 "generation 4",
    }
    /// Width of the link.
    LaneWidth {
        0 => X4 "4 lanes",
        1 => X8 "8 lanes",
    }
    /// State of the throttle.
    ThrottleState {
        0 => Idle "power idle",
        1 => Up "power up",
        2 => Down "power down",
        3 => Safe "power safe",
        4 => Undefined "unknown",
    }
    /// Whether firmware manages the power.
    ActivePowerManagement {
        0 => Off "off",
        1 => On "on",
        2 => Invalid "invalid",
    }
    /// Source of a clock.
    Pll {
        0 => Noc "network on chip",
        1 => Minion "minions",
    }
    /// How a clock is changed.
    StepClock {
        0 => Off "at once",
        1 => On "through the step clock",
    }
    /// Whose statistics.
    StatsKind {
        1 => Sp "service processor",
        2 => Mm "master minion",
    }
    /// What is done to harts that are selected, and to one that is controlled, to a breakpoint or
    /// to single steps: 0 and 1 have a meaning of their own in each.
    HartFlag {
        0 => First "select, halt, set or enable",
        1 => Second "unselect, resume, unset or disable",
        2 => Reset "reset",
        3 => Status "status",
    }
    /// State of a hart.
    HartStatus {
        0 => Halted "halted",
        1 => Running "running",
        2 => Exception "exception",
        3 => Error "error",
    }
    /// Privilege levels, as a mask.
    Privilege {
        0 => None "none",
        1 => User "user",
        2 => Supervisor "supervisor",
        8 => Machine "machine",
        11 => All "all",
    }
    /// What became of a breakpoint. Spec: §17.4.
    BreakpointEvent {
        0 => Nothing "nothing",
        1 => Halted "halted at a breakpoint",
        2 => Failed "could not be halted",
    }
    /// How memory is accessed.
    MemAccess {
        0 => GlobalAtomic "global atomic",
        1 => LocalAtomic "local atomic",
        2 => Normal "normal",
    }
    /// Kind of an event. Spec: §17.4.
    EventId {
        256 => PcieCorrected "PCIe, corrected",
        257 => PcieUncorrected "PCIe, uncorrectable",
        258 => DramCorrected "DRAM, corrected",
        259 => DramUncorrected "DRAM, uncorrectable",
        260 => SramCorrected "SRAM, corrected",
        261 => SramUncorrected "SRAM, uncorrectable",
        262 => ThermalLow "temperature above the threshold",
        263 => PmicError "power controller error",
        264 => FirmwareBoot "firmware boot",
        265 => MinionExceptions "minion exceptions above the threshold",
        266 => MinionHangs "minion hangs above the threshold",
        267 => ThrottleTime "throttled",
        268 => SpException "service processor exception",
        269 => SpHang "service processor hang",
        270 => SpError "service processor error",
        271 => SpWatchdog "service processor watchdog reset",
        272 => SpTraceFull "service processor trace buffer full",
        512 => TraceBufferFull "trace buffer full",
    }
    /// How bad an event is.
    EventClass {
        0 => Info "info",
        1 => Warning "warning",
        2 => Critical "critical",
        3 => Fatal "fatal",
    }
}

/// Bits that control a trace; what is not set is off.
#[derive(Clone, Copy, Debug)]
pub struct TraceControl;

impl TraceControl {
    /// On.
    pub const ENABLE: u32 = 1;
    /// To the UART.
    pub const UART: u32 = 2;
    /// The buffer begins anew.
    pub const RESET: u32 = 4;
}

/// Bits of kinds of trace entries.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvents;

impl TraceEvents {
    /// Text.
    pub const STRING: u32 = 1;
    /// Counters.
    pub const PMC: u32 = 2;
    /// Markers.
    pub const MARKER: u32 = 4;
    /// Everything.
    pub const ALL: u32 = u32::MAX;
}

/// Levels of text in a trace: the greatest that is kept.
#[derive(Clone, Copy, Debug)]
pub struct TraceFilter;

impl TraceFilter {
    /// Critical.
    pub const CRITICAL: u32 = 0;
    /// Errors.
    pub const ERROR: u32 = 1;
    /// Warnings.
    pub const WARNING: u32 = 2;
    /// Information.
    pub const INFO: u32 = 3;
    /// Everything.
    pub const DEBUG: u32 = 4;
}

/// Bits that control statistics; what is not set is off.
#[derive(Clone, Copy, Debug)]
pub struct StatsControl;

impl StatsControl {
    /// They are traced.
    pub const ENABLE: u32 = 1;
    /// The counters begin anew.
    pub const RESET_COUNTER: u32 = 2;
    /// The buffer begins anew.
    pub const RESET_BUFFER: u32 = 4;
}
