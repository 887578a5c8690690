//! The enumerations of the management interface.

use std::collections::{BTreeMap, BTreeSet};

use et_devapi::msg::mgmt::calls::COMMANDS;
use et_devapi::msg::mgmt::{
    ActivePowerManagement, BreakpointEvent, DmStatus, EventId, FirmwareStatus, HartFlag,
    HartStatus, LaneWidth, LinkSpeed, MemAccess, Module, PcieReset, Pll, PowerState, Privilege,
    StatsControl, StatsKind, StepClock, ThrottleState, TraceControl, TraceEvents, TraceFilter,
};
use et_testkit::golden::{File, enums};

type Table = BTreeMap<&'static str, BTreeMap<String, i64>>;

/// Checks that each code survives the way there and back and is a known one, then adds it.
macro_rules! codes {
    ($table:ident, $($enumeration:literal, $start:literal: $type:ident { $($constant:literal => $variant:ident,)* })*) => {$(
        let mut list = BTreeMap::new();
        $(
            let code = u32::from($type::$variant);
            assert_eq!($type::from(code), $type::$variant);
            assert!(!format!("{}", $type::$variant).starts_with("unknown code"));
            list.insert(concat!($start, $constant).to_owned(), i64::from(code));
        )*
        assert_eq!($type::from(u32::MAX), $type::Unknown(u32::MAX));
        $table.insert($enumeration, list);
    )*};
}

fn table() -> Table {
    let mut table = Table::new();
    codes! { table,
        "POWER_STATE", "POWER_STATE_": PowerState {
            "MAX_POWER" => MaxPower, "MANAGED_POWER" => ManagedPower, "SAFE_POWER" => SafePower,
            "LOW_POWER" => LowPower, "INVALID" => Invalid,
        }
        "MODULE", "MODULE_": Module {
            "DDR" => Ddr, "L2CACHE" => L2Cache, "MAXION" => Maxion, "MINION" => Minion,
            "PCIE" => Pcie, "NOC" => Noc, "PCIE_LOGIC" => PcieLogic, "VDDQLP" => Vddqlp,
            "VDDQ" => Vddq, "INVALID" => Invalid,
        }
        "DM_STATUS", "DM_STATUS_": DmStatus { "SUCCESS" => Success, "ERROR" => Error, }
        "FIRMWARE_STATUS", "FIRMWARE_STATUS_": FirmwareStatus {
            "PASS" => Pass, "FAILED" => Failed,
        }
        "PCIE_RESET", "PCIE_RESET_": PcieReset { "FLR" => Flr, "HOT" => Hot, "WARM" => Warm, }
        "PCIE_LINK_SPEED", "PCIE_LINK_SPEED_": LinkSpeed { "GEN3" => Gen3, "GEN4" => Gen4, }
        "PCIE_LANE_W_SPLIT", "PCIE_LANE_W_SPLIT_": LaneWidth { "x4" => X4, "x8" => X8, }
        "POWER_THROTTLE_STATE", "POWER_THROTTLE_STATE_": ThrottleState {
            "POWER_IDLE" => Idle, "POWER_UP" => Up, "POWER_DOWN" => Down, "POWER_SAFE" => Safe,
            "UNKNOWN" => Undefined,
        }
        "ACTIVE_POWER_MANAGEMENT", "ACTIVE_POWER_MANAGEMENT_": ActivePowerManagement {
            "TURN_OFF" => Off, "TURN_ON" => On, "INVALID" => Invalid,
        }
        "MDI_HART_SELECTION_FLAG", "MDI_HART_SELECTION_FLAG_": HartFlag {
            "SELECT_HART" => First, "UNSELECT_HART" => Second,
        }
        "MDI_HART_CTRL_FLAG", "MDI_HART_CTRL_FLAG_": HartFlag {
            "HALT_HART" => First, "RESUME_HART" => Second, "RESET_HART" => Reset,
            "HART_STATUS" => Status,
        }
        "MDI_BP_CTRL_FLAG", "MDI_BP_CTRL_FLAG_": HartFlag {
            "SET_BREAKPOINT" => First, "UNSET_BREAKPOINT" => Second,
        }
        "MDI_SS_CTRL_FLAG", "MDI_SS_CTRL_FLAG_": HartFlag {
            "ENABLE_SS" => First, "DISABLE_SS" => Second,
        }
        "MDI_HART_STATUS", "MDI_HART_STATUS_": HartStatus {
            "HALTED" => Halted, "RUNNING" => Running, "EXCEPTION" => Exception, "ERROR" => Error,
        }
        "PRIV_MASK", "PRIV_MASK_PRIV_": Privilege {
            "NONE" => None, "UMODE" => User, "SMODE" => Supervisor, "MMODE" => Machine,
            "ALL" => All,
        }
        "MDI_EVENT_TYPE", "MDI_EVENT_TYPE_": BreakpointEvent {
            "NONE" => Nothing, "BP_HALT_SUCCESS" => Halted, "BP_HALT_FAILED" => Failed,
        }
        "PLL_ID", "PLL_ID_": Pll { "NOC_PLL" => Noc, "MINION_PLL" => Minion, }
        "USE_STEP", "USE_STEP_CLOCK_": StepClock { "FALSE" => Off, "TRUE" => On, }
        "MEM_ACCESS_TYPE", "MEM_ACCESS_TYPE_": MemAccess {
            "GLOBAL_ATOMIC" => GlobalAtomic, "LOCAL_ATOMIC" => LocalAtomic, "NORMAL" => Normal,
        }
        "STATS_TYPE", "STATS_TYPE_": StatsKind { "SP" => Sp, "MM" => Mm, }
        "sp_event_ids", "": EventId {
            "PCIE_CE" => PcieCorrected, "PCIE_UCE" => PcieUncorrected,
            "DRAM_CE" => DramCorrected, "DRAM_UCE" => DramUncorrected,
            "SRAM_CE" => SramCorrected, "SRAM_UCE" => SramUncorrected,
            "THERMAL_LOW" => ThermalLow, "PMIC_ERROR" => PmicError, "FW_BOOT" => FirmwareBoot,
            "MINION_EXCEPT_TH" => MinionExceptions, "MINION_HANG_TH" => MinionHangs,
            "THROTTLE_TIME" => ThrottleTime, "SP_RUNTIME_EXCEPT" => SpException,
            "SP_RUNTIME_HANG" => SpHang, "SP_RUNTIME_ERROR" => SpError,
            "SP_WATCHDOG_RESET" => SpWatchdog, "SP_TRACE_BUFFER_FULL" => SpTraceFull,
        }
    }
    for (enumeration, constants) in [
        (
            "TRACE_CONTROL",
            &[
                ("TRACE_ENABLE", TraceControl::ENABLE),
                ("TRACE_DISABLE", 0),
                ("TRACE_UART_ENABLE", TraceControl::UART),
                ("TRACE_UART_DISABLE", 0),
                ("RESET_TRACEBUF", TraceControl::RESET),
            ][..],
        ),
        (
            "TRACE_CONFIGURE",
            &[
                ("EVENT_STRING", TraceEvents::STRING),
                ("EVENT_PMC", TraceEvents::PMC),
                ("EVENT_MARKER", TraceEvents::MARKER),
                ("TRACE_EVENT_ENABLE_ALL", TraceEvents::ALL),
            ],
        ),
        (
            "TRACE_CONFIGURE_FILTER_MASK",
            &[
                ("EVENT_STRING_CRITICAL", TraceFilter::CRITICAL),
                ("EVENT_STRING_ERROR", TraceFilter::ERROR),
                ("EVENT_STRING_WARNING", TraceFilter::WARNING),
                ("EVENT_STRING_INFO", TraceFilter::INFO),
                ("EVENT_STRING_DEBUG", TraceFilter::DEBUG),
            ],
        ),
        (
            "STATS_CONTROL",
            &[
                ("TRACE_DISABLE", 0),
                ("TRACE_ENABLE", StatsControl::ENABLE),
                ("RESET_COUNTER", StatsControl::RESET_COUNTER),
                ("RESET_TRACEBUF", StatsControl::RESET_BUFFER),
            ],
        ),
    ] {
        let name = |constant: &&str| format!("{enumeration}_{constant}");
        let list = constants.iter().map(|(constant, value)| (name(constant), (*value).into()));
        table.insert(enumeration, list.collect());
    }
    table
}

#[test]
fn every_constant_has_the_vendors_value() {
    let mut vendor = enums(File::Mgmt);
    let commands = vendor.remove("DM_CMD").unwrap();
    // The end of the range of events is no event.
    assert_eq!(vendor.get_mut("sp_event_ids").unwrap().remove("MAX_ERROR_EVENT"), Some(511));
    let table = table();
    let names: BTreeSet<_> = vendor.keys().map(String::as_str).collect();
    assert_eq!(names, table.keys().copied().collect());
    for (name, list) in &vendor {
        assert_eq!(list, &table[name.as_str()], "{name}");
    }
    let mut others = Vec::new();
    for (name, id) in &commands {
        match COMMANDS.iter().find(|c| c.name == name.trim_start_matches("DM_CMD_")) {
            Some(command) => assert_eq!(i64::from(command.id), *id, "{name}"),
            None => others.push((name.as_str(), *id)),
        }
    }
    assert_eq!(commands.len() - others.len(), COMMANDS.len());
    // Events, and the ends of ranges.
    let events = [
        ("DM_CMD_MDI_BEGIN", 128),
        ("DM_CMD_MDI_END", 255),
        ("DM_CMD_MDI_SET_BREAKPOINT_EVENT", 192),
        ("DM_EVENT_BEGIN", 512),
        ("DM_EVENT_END", 639),
        ("DM_EVENT_SP_TRACE_BUFFER_FULL", 512),
    ];
    assert_eq!(others, events);
}
