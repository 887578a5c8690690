//! Kernel environment, exception buffer, traces.

use et_devapi::abi::{
    EXCEPTION_BUFFER_BYTES, EXCEPTION_ENTRIES, ExceptionEntry, ExceptionType, KernelEnvironment,
    compute_hart_index, hart_of_index,
};
use et_devapi::msg::ops::TraceConfig;
use et_devapi::trace::{
    self, CmdStatus, CustomEvent, EntryHeader, EntryType, ExecutionStack, MemoryEntry, PmcCounter,
    PmcCountersCompute, PmcCountersMs, PmcCountersSc, PowerStatus, TraceHeader, TraceSizeHeader,
    UserProfileEvent, ValueU8, ValueU16, ValueU32, ValueU64,
};
use et_testkit::golden::{File, Value, int, json, object, text, vectors};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::layout::{Field, Layout, check, layouts};

/// An entry: the four fields of its header, then its own.
macro_rules! entries {
    ($($vector:literal => $type:ty { $($fields:tt)* })*) => {
        layouts! {$(
            $vector => $type {
                header.cycle, header.payload_size, header.hart_id, header.r#type, $($fields)*
            }
        )*}
    };
}

fn all_layouts() -> Vec<Layout> {
    let mut all = layouts! {
        "kernel_environment_t" => KernelEnvironment {
            version_major = "version.major", version_minor = "version.minor",
            version_patch = "version.patch", version_reserved = "version.reserved",
            shire_mask, frequency
        }
        "execution_context_t" => ExceptionEntry {
            r#type, cycles, hart_id, sepc, sstatus, stval, scause, user_error, gpr
        }
        "trace_init_info_t" => TraceConfig {
            buffer, buffer_size, threshold, shire_mask, thread_mask, event_mask, filter_mask
        }
        "trace_buffer_std_header_t" => TraceHeader {
            magic_header, version_major = "version.major", version_minor = "version.minor",
            version_patch = "version.patch", r#type, data_size, sub_buffer_size, sub_buffer_count
        }
        "trace_buffer_size_header_t" => TraceSizeHeader { data_size }
        "trace_entry_header_t" => EntryHeader { cycle, payload_size, hart_id, r#type }
        // Nothing of a text entry but its header has a fixed length.
        "trace_string_t" => EntryHeader {
            cycle = "header.cycle", payload_size = "header.payload_size",
            hart_id = "header.hart_id", r#type = "header.type"
        }
    };
    all.extend(entries! {
        "trace_pmc_counter_t" => PmcCounter { value, counter, pad }
        "trace_pmc_counters_compute_t" => PmcCountersCompute {
            hpmcounter[0] = "hpmcounter3", hpmcounter[1] = "hpmcounter4",
            hpmcounter[2] = "hpmcounter5", hpmcounter[3] = "hpmcounter6",
            hpmcounter[4] = "hpmcounter7", hpmcounter[5] = "hpmcounter8"
        }
        "trace_pmc_counters_sc_t" => PmcCountersSc { sc_pmc0, sc_pmc1 }
        "trace_pmc_counters_ms_t" => PmcCountersMs { ms_pmc0, ms_pmc1, ms_id, pad }
        "trace_value_u64_t" => ValueU64 { tag, value, pad }
        "trace_value_u32_t" => ValueU32 { tag, value }
        "trace_value_u16_t" => ValueU16 { tag, value, pad }
        "trace_value_u8_t" => ValueU8 { tag, value, pad }
        "trace_memory_t" => MemoryEntry { src_addr, size }
        "trace_execution_stack_t" => ExecutionStack {
            epc = "registers.epc", tval = "registers.tval", status = "registers.status",
            cause = "registers.cause", gpr = "registers.gpr"
        }
        "trace_cmd_status_t" => CmdStatus {
            mesg_id = "cmd.mesg_id", cmd_status = "cmd.cmd_status",
            queue_slot_id = "cmd.queue_slot_id", trans_id = "cmd.trans_id",
            reserved = "cmd.reserved"
        }
        "trace_power_status_t" => PowerStatus {
            current_power = "power.current_power", throttle_state = "power.throttle_state",
            power_state = "power.power_state", current_temp = "power.current_temp",
            pad_1 = "power.pad_1", tgt_freq = "power.tgt_freq",
            tgt_voltage = "power.tgt_voltage", pad_2 = "power.pad_2"
        }
        "trace_custom_event_t" => CustomEvent { custom_type, payload_size }
        "trace_user_profile_event_t" => UserProfileEvent {
            func, retired_insts = "retiredInsts", line_region_status,
            region_name = "regionName"
        }
    });
    all
}

#[test]
fn structures_have_the_vendors_layout() {
    let vectors = vectors(File::Abi);
    assert_eq!(vectors.len(), 21);
    assert_eq!(check(&vectors, &all_layouts()), 22);
}

#[test]
fn the_length_of_an_entry_is_told_by_its_header() {
    for vector in vectors(File::Abi).iter().filter(|v| v.name.starts_with("trace_")) {
        let Some(first) = vector.fields.first() else { continue };
        if first.name != "header.cycle" {
            continue;
        }
        for example in &vector.examples {
            let (header, _) = EntryHeader::read_from_prefix(&example.bytes).unwrap();
            let len = size_of::<EntryHeader>() + header.payload_size.get() as usize;
            assert_eq!(len, example.bytes.len(), "{}", vector.name);
            assert!(EntryType::from_number(header.r#type.get()).is_some(), "{}", vector.name);
        }
    }
}

#[test]
fn exceptions_are_of_a_known_kind() {
    for vector in vectors(File::Abi) {
        if vector.name != "execution_context_t" {
            continue;
        }
        let kinds: Vec<_> =
            vector.examples.iter().map(|e| ExceptionType::from_u64(e.number("type"))).collect();
        let expected = [ExceptionType::UmodeException, ExceptionType::UserKernelError];
        assert_eq!(kinds, expected.map(Some));
    }
}

#[test]
fn the_environment_is_made_as_firmware_makes_it() {
    let vectors = vectors(File::Abi);
    let example = &vectors.iter().find(|v| v.name == "kernel_environment_t").unwrap().examples[0];
    let made = KernelEnvironment::new(example.number("shire_mask"), example.int("frequency"));
    assert_eq!(made.as_bytes(), example.bytes);
}

#[test]
fn constants_are_the_vendors() {
    let json = json(File::Abi);
    let constants = &json["constants"];
    for name in object(constants).keys() {
        match name.as_str() {
            "TRACE_MAGIC_HEADER" => {
                assert_eq!(format!("{:#x}", trace::MAGIC), text(constants, name));
            }
            "trace_version" => {
                let (major, minor, patch) = trace::VERSION;
                assert_eq!(format!("{major}.{minor}.{patch}"), text(constants, name));
            }
            "abi_version" => {
                let abi = KernelEnvironment::new(0, 0);
                let version = [abi.version_major, abi.version_minor, abi.version_patch];
                let version = version.map(|number| number.get().to_string()).join(".");
                assert_eq!(version, text(constants, name));
            }
            "exception_buffer_entries" => {
                assert_eq!(EXCEPTION_ENTRIES as u64, int(constants, name));
            }
            "exception_buffer_index" => {
                assert_eq!(text(constants, name), "hart_id if hart_id < 2048 else hart_id - 32");
                for hart in (0..2048).chain(2080..2112) {
                    let index = if hart < 2048 { hart } else { hart - 32 };
                    assert_eq!(compute_hart_index(hart), Some(index as usize));
                    assert_eq!(hart_of_index(index), Some(hart));
                }
            }
            other => panic!("{other} has no Rust constant"),
        }
    }
    assert_eq!(object(constants).len(), 5);
    assert_eq!(EXCEPTION_BUFFER_BYTES, 665_600);
}
