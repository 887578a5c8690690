//! The service processor, on cards whose sensors the locator sets.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use common::{LONG, kernel, last_error, made, mem, ok, open, stream, text};
use et_capi::et_status::{
    ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_BUFFER_TOO_SMALL, ET_CLOSED, ET_INVALID, ET_NULL_POINTER,
    ET_OK, ET_OUT_OF_BOUNDS, ET_REFUSED, ET_STALE, ET_TIMEOUT,
};
use et_capi::*;

const CARD: &str =
    "sim:shires=1,dram=1GiB,serial=A-7,part=42,temperature=55,power=12000,tdp=30,mhz=700";

fn management(device: et_device) -> et_management {
    made(|out| et_device_management(device, 0, out))
}

/// Asks for a struct, whose size is set.
macro_rules! values {
    ($type:ident: $call:ident($($args:expr),*)) => {{
        // SAFETY: numbers only.
        let mut value: $type = unsafe { MaybeUninit::zeroed().assume_init() };
        value.size = size_of::<$type>();
        // SAFETY: a place of that size.
        ok(unsafe { $call($($args,)* &raw mut value) });
        assert_eq!(value.size, size_of::<$type>());
        value
    }};
}

fn asset(management: et_management, asset: et_asset) -> String {
    let mut buffer: [c_char; 100] = [1; 100];
    // SAFETY: a place of that length.
    ok(unsafe {
        et_management_asset(management, asset as u32, buffer.as_mut_ptr(), buffer.len(), None)
    });
    // SAFETY: a call that went well has put a 0 there.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn sensors_are_those_of_the_card() {
    let device = open(CARD);
    let card = management(device);
    assert_eq!(asset(card, et_asset::ET_ASSET_SERIAL_NUMBER), "A-7");
    assert_ne!(asset(card, et_asset::ET_ASSET_MANUFACTURER), "");
    assert_ne!(asset(card, et_asset::ET_ASSET_MEMORY_TYPE), "");
    let temperatures = values!(et_temperatures: et_management_temperatures(card));
    assert_eq!(temperatures.minion_average_c, 55);
    assert!(temperatures.minion_lowest_c <= 55 && temperatures.minion_highest_c >= 55);
    assert!(made(|out| et_management_highest_temperature_c(card, out)) >= 55);
    assert_eq!(made(|out| et_management_power_mw(card, out)), 12000);
    assert_eq!(made(|out| et_management_tdp_watts(card, out)), 30);
    let state = made(|out| et_management_power_state(card, out));
    assert!(state <= et_power_state::ET_POWER_LOW as u32, "{state}");
    assert_eq!(values!(et_frequencies: et_management_frequencies(card)).minion_mhz, 700);
    assert!(values!(et_asic_voltages: et_management_asic_voltages(card)).minion_mv > 0);
    assert!(values!(et_module_voltages: et_management_module_voltages(card)).pcie_mv >= 600.0);
    let caches = values!(et_cache_config: et_management_cache_config(card));
    assert_eq!(caches.scratchpad_kib + caches.l2_kib + caches.l3_kib, 4096);
    assert!(made(|out| et_management_memory_used_percent(card, out)) <= 100);
    values!(et_memory_rate: et_management_memory_rate(card));
    assert_eq!(made(|out| et_management_uptime(card, out)) % 60_000_000_000, 0);
    let versions = values!(et_firmware_versions: et_management_firmware_versions(card));
    assert_ne!((versions.release.major, versions.release.minor, versions.release.patch), (0, 0, 0));
    for source in [
        et_error_source::ET_ERRORS_DRAM,
        et_error_source::ET_ERRORS_SRAM,
        et_error_source::ET_ERRORS_PCIE,
    ] {
        let counts = values!(et_error_counts: et_management_error_counts(card, source as u32));
        assert_eq!((counts.corrected, counts.uncorrectable), (0, 0), "{source:?}");
    }
    assert_eq!(values!(et_minion_errors: et_management_minion_errors(card)).hangs, 0);
    let down = et_throttle_state::ET_THROTTLE_DOWN as u32;
    let residency = values!(et_residency: et_management_throttle_residency(card, down));
    assert!(residency.total_ns >= residency.shortest_ns);
    let managed = et_power_state::ET_POWER_MANAGED as u32;
    let residency = values!(et_residency: et_management_power_residency(card, managed));
    assert!(residency.longest_ns >= residency.shortest_ns);

    ok(et_management_set_temperature_threshold_c(card, 71));
    ok(et_management_set_tdp_watts(card, 25));
    assert_eq!(made(|out| et_management_temperature_threshold_c(card, out)), 71);
    assert_eq!(made(|out| et_management_tdp_watts(card, out)), 25);
    ok(et_management_set_power_management(card, true));
    let clocks = |card| {
        let is = values!(et_frequencies: et_management_frequencies(card));
        (is.minion_mhz, is.noc_mhz)
    };
    for (clock, mhz, by_steps) in
        [(et_clock::ET_CLOCK_MINIONS, 500, true), (et_clock::ET_CLOCK_NETWORK, 400, false)]
    {
        ok(et_management_set_frequency_mhz(card, clock as u32, mhz, by_steps));
    }
    assert_eq!(clocks(card), (500, 400));
    assert_eq!(et_management_set_frequency_mhz(card, 3, 500, false), et_status::ET_INVALID);
    ok(et_management_set_error_threshold(card, et_error_source::ET_ERRORS_SRAM as u32, 7));
    assert_eq!(et_management_set_error_threshold(card, 0, 7), et_status::ET_INVALID);
    ok(et_management_free(card));
    ok(et_device_close(device));
}

#[test]
fn statistics_have_names_and_units() {
    let device = open(CARD);
    let card = management(device);
    let service = et_processor::ET_SERVICE_PROCESSOR as u32;
    let list = made(|out| et_management_statistics(card, service, out));
    let count = made(|out| et_statistics_count(list, out));
    let mut found = Vec::new();
    for index in 0..count {
        // SAFETY: numbers only.
        let mut value: et_statistic = unsafe { MaybeUninit::zeroed().assume_init() };
        value.size = size_of::<et_statistic>();
        let mut name: [c_char; 64] = [1; 64];
        // SAFETY: places of those sizes.
        ok(unsafe { et_statistics_get(list, index, &raw mut value, name.as_mut_ptr(), 64, None) });
        // SAFETY: a call that went well has put a 0 there.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        assert!(value.least <= value.greatest, "{name}");
        found.push((name, value.unit));
    }
    let milliwatts = et_unit::ET_MILLIWATTS as u32;
    assert!(found.contains(&("minion_power".to_owned(), milliwatts)), "{found:?}");
    // SAFETY: no place.
    let asked = unsafe { et_statistics_get(list, count, null_mut(), null_mut(), 0, None) };
    assert_eq!(asked, ET_OUT_OF_BOUNDS);
    ok(et_statistics_free(list));
    assert_eq!(et_statistics_count(list, None), ET_NULL_POINTER);
    assert_eq!(et_statistics_free(list), ET_BAD_HANDLE);
    let master = et_processor::ET_MASTER_MINION as u32;
    ok(et_statistics_free(made(|out| et_management_statistics(card, master, out))));
    ok(et_device_close(device));
}

#[test]
fn questions_that_are_none() {
    let device = open(CARD);
    let card = management(device);
    let mut number = MaybeUninit::new(0);
    assert_eq!(et_management_power_mw(card, None), ET_NULL_POINTER);
    assert_eq!(et_management_power_mw(et_management { id: 0 }, Some(&mut number)), ET_BAD_HANDLE);
    assert_eq!(et_device_management(device, 0, None), ET_NULL_POINTER);
    assert_eq!(et_management_statistics(card, 3, Some(&mut MaybeUninit::uninit())), ET_INVALID);
    // SAFETY: no places, places without a size, or what is refused before it is looked at.
    unsafe {
        assert_eq!(et_management_asset(card, 0, null_mut(), 0, None), ET_INVALID);
        assert_eq!(et_management_asset(card, 3, null_mut(), 0, None), ET_BUFFER_TOO_SMALL);
    }
    let mut residency = MaybeUninit::<et_residency>::zeroed();
    let place = residency.as_mut_ptr();
    // SAFETY: as above.
    unsafe {
        assert_eq!(et_management_throttle_residency(card, 4, place), ET_INVALID);
        assert_eq!(et_management_power_residency(card, 4, place), ET_INVALID);
        assert_eq!(et_management_power_residency(card, 1, place), ET_BAD_STRUCT_SIZE);
        assert_eq!(et_management_power_residency(card, 1, null_mut()), ET_NULL_POINTER);
        assert_eq!(et_management_error_counts(card, 0, null_mut()), ET_INVALID);
    }
    let image = [7u8; 64];
    // SAFETY: as many bytes, and a text.
    unsafe {
        let (data, name) = (image.as_ptr().cast(), c"image".as_ptr());
        assert_eq!(et_management_update_firmware(card, data, 64, name), ET_REFUSED);
        assert_eq!(et_management_update_firmware(card, data, 64, null()), ET_NULL_POINTER);
        assert_eq!(et_management_update_firmware(card, null(), 64, name), ET_NULL_POINTER);
    }
    ok(et_device_close(device));
    assert_eq!(et_management_power_mw(card, Some(&mut number)), ET_CLOSED);
    ok(et_management_free(card));
    assert_eq!(et_management_free(card), ET_BAD_HANDLE);
}

#[test]
fn events_come_once_and_the_card_answers_while_kernels_hang() {
    let device = open(CARD);
    let card = made(|out| et_device_management(device, LONG, out));
    let launch = made(|out| et_launch_create(kernel(device, "hang"), out));
    let never = made(|out| et_launch_submit(stream(device), launch, out));
    // The kernel heats the card over a threshold that it is above anyway.
    ok(et_management_set_temperature_threshold_c(card, 20));
    // SAFETY: numbers only.
    let mut event: et_card_event = unsafe { MaybeUninit::zeroed().assume_init() };
    event.size = size_of::<et_card_event>();
    let mut name: [c_char; 100] = [1; 100];
    let mut next = |timeout| {
        // SAFETY: places of those sizes.
        unsafe {
            let (event, name) = (&raw mut event, name.as_mut_ptr());
            et_management_event(card, timeout, event, name, 100, None)
        }
    };
    ok(next(LONG));
    // The library keeps 1024 of them.
    assert!((0..=1024).any(|_| next(0) != ET_OK));
    assert_eq!(next(1_000_000), ET_TIMEOUT);
    // SAFETY: a call that went well has put a 0 there.
    assert!(!unsafe { CStr::from_ptr(name.as_ptr()) }.is_empty());
    assert!(event.count >= 1 && event.kind >= 256 && event.seen_ns > 0);
    assert!(event.severity <= et_severity::ET_SEVERITY_FATAL as u32, "{}", event.severity);
    let counters = values!(et_management_counters: et_management_counters_get(card));
    assert!(counters.events >= 1 && counters.events_lost == 0);
    ok(et_device_abort(device, never, LONG));
    ok(et_management_free(card));
    ok(et_device_close(device));
}

fn made_error(card: et_management) -> et_status {
    et_management_power_mw(card, Some(&mut MaybeUninit::new(0)))
}

#[test]
fn the_service_processor_resets_what_hangs() {
    let device = open(CARD);
    let card = management(device);
    let (queue, buffer) = (stream(device), mem(device, 64));
    ok(et_fill(queue, buffer, 0, 64, 7, None));
    ok(et_stream_synchronize(queue, LONG));
    let contents = || {
        let (mut bytes, queue, same) = ([1u8; 64], stream(device), mem(device, 64));
        // SAFETY: as many bytes.
        ok(unsafe { et_copy_to_host(queue, same, 0, bytes.as_mut_ptr().cast(), 64, LONG) });
        bytes
    };
    ok(et_device_reset_operations(device, LONG));
    assert_eq!(et_fill(queue, buffer, 0, 64, 1, None), ET_STALE);
    // Memory and the endpoint of before are as they were.
    assert_eq!(contents(), [7; 64]);
    assert_eq!(asset(card, et_asset::ET_ASSET_SERIAL_NUMBER), "A-7");
    ok(et_device_reset_chip(device, LONG));
    assert_eq!(contents(), [0; 64]);
    assert_eq!(made_error(card), ET_STALE);
    assert_eq!(asset(management(device), et_asset::ET_ASSET_SERIAL_NUMBER), "A-7");
    ok(et_device_close(device));
    assert_eq!(et_device_reset_chip(device, LONG), ET_BAD_HANDLE);
}

#[test]
fn the_endpoint_is_opened_alone() {
    ok(et_init(ET_ABI_VERSION));
    let locator = text(CARD);
    // SAFETY: texts and no options.
    let card = made(|out| unsafe { et_management_open(locator.as_ptr(), null(), out) });
    assert_eq!(made(|out| et_management_power_mw(card, out)), 12000);
    ok(et_management_free(card));
    // SAFETY: as above.
    unsafe {
        let mut place = MaybeUninit::uninit();
        let wrong = et_management_open(c"nothing".as_ptr(), null(), Some(&mut place));
        assert_eq!(wrong, ET_INVALID, "{}", last_error());
        assert_eq!(et_management_open(null(), null(), Some(&mut place)), ET_NULL_POINTER);
    }
}
