//! Mapped memory and callbacks for states: what they do, and what is refused.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use common::{LONG, last_error, made, mem, ok, open, stream};
use et_capi::et_status::{
    ET_BAD_HANDLE, ET_BUSY, ET_IN_CALLBACK, ET_INVALID, ET_NULL_POINTER, ET_OUT_OF_BOUNDS,
    ET_STALE, ET_UNSUPPORTED, ET_WRONG_KIND,
};
use et_capi::*;

const CARD: &str = "sim:compute=null,dram=1GiB";
const READS: u32 = et_access::ET_READS as u32;
const WRITES: u32 = et_access::ET_WRITES as u32;
const UPDATES: u32 = et_access::ET_UPDATES as u32;

fn map(queue: et_stream, buffer: et_mem, access: u32) -> et_mapping {
    made(|out| et_stream_map(queue, buffer, 64, 128, access, LONG, out))
}

fn write(mapping: et_mapping, offset: usize, bytes: &[u8]) -> et_status {
    // SAFETY: as many bytes as are there.
    unsafe { et_mapping_write(mapping, offset, bytes.as_ptr().cast(), bytes.len()) }
}

fn read(mapping: et_mapping, offset: usize) -> [u8; 4] {
    let mut bytes = [0xEE_u8; 4];
    // SAFETY: as many bytes as are there.
    ok(unsafe { et_mapping_read(mapping, offset, bytes.as_mut_ptr().cast(), bytes.len()) });
    bytes
}

/// The device's eight bytes from `offset` on.
fn there(queue: et_stream, buffer: et_mem, offset: u64) -> [u8; 8] {
    let mut bytes = [0_u8; 8];
    // SAFETY: as many bytes as are there.
    ok(unsafe { et_copy_to_host(queue, buffer, offset, bytes.as_mut_ptr().cast(), 8, LONG) });
    bytes
}

#[test]
fn mapped_memory_is_that_of_the_device_on_both_ways() {
    for (card, path) in [
        (CARD.to_owned(), et_map_path::ET_MAP_COPY),
        (format!("{CARD},cpu-access=yes"), et_map_path::ET_MAP_WINDOW),
    ] {
        let device = open(&card);
        let (queue, buffer) = (stream(device), mem(device, 256));
        ok(et_fill(queue, buffer, 0, 256, 1, None));
        let mapping = map(queue, buffer, UPDATES);
        assert_eq!(made(|out| et_mapping_path(mapping, out)), path);
        assert_eq!(read(mapping, 0), [1; 4]);
        ok(write(mapping, 4, &[7, 8]));
        assert_eq!(read(mapping, 2), [1, 1, 7, 8]);
        ok(et_mapping_flush(mapping, LONG));
        assert_eq!(there(queue, buffer, 64), [1, 1, 1, 1, 7, 8, 1, 1]);
        // The whole of a part that is only written.
        ok(et_mapping_unmap(mapping, LONG));
        let mapping = map(queue, buffer, WRITES);
        ok(write(mapping, 0, &[5; 128]));
        ok(et_mapping_unmap(mapping, LONG));
        for (offset, byte) in [(56, 1), (64, 5), (184, 5), (192, 1)] {
            assert_eq!(there(queue, buffer, offset), [byte; 8], "at {offset}");
        }
        // What is only freed is written back too.
        let mapping = map(queue, buffer, UPDATES);
        ok(write(mapping, 0, &[9; 4]));
        ok(et_mapping_free(mapping));
        assert_eq!(there(queue, buffer, 64), [9, 9, 9, 9, 5, 5, 5, 5]);
        ok(et_device_close(device));
    }
}

#[test]
fn mappings_of_no_one_and_what_they_are_not_for() {
    let device = open(CARD);
    let (queue, buffer) = (stream(device), mem(device, 256));
    ok(et_fill(queue, buffer, 0, 256, 0, None));
    let mut place = MaybeUninit::uninit();
    let mut try_map = |queue, buffer, offset, access| {
        et_stream_map(queue, buffer, offset, 128, access, LONG, Some(&mut place))
    };
    assert_eq!(try_map(queue, buffer, 129, READS), ET_OUT_OF_BOUNDS);
    assert_eq!(try_map(queue, buffer, u64::MAX, READS), ET_OUT_OF_BOUNDS);
    assert_eq!(try_map(queue, buffer, 0, 0), ET_INVALID);
    assert_eq!(try_map(et_stream { id: 0 }, buffer, 0, READS), ET_BAD_HANDLE);
    assert_eq!(try_map(queue, et_mem { id: queue.id }, 0, READS), ET_WRONG_KIND);
    assert_eq!(et_stream_map(queue, buffer, 0, 128, READS, LONG, None), ET_NULL_POINTER);
    let other = open(CARD);
    assert_eq!(try_map(stream(other), buffer, 0, READS), ET_INVALID);
    assert!(last_error().contains("another device"), "{}", last_error());

    let writer = map(queue, buffer, WRITES);
    assert_eq!(try_map(queue, buffer, 0, READS), ET_BUSY);
    let mut bytes = [3_u8; 4];
    let data = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: four bytes, or null.
    unsafe {
        assert_eq!(et_mapping_read(writer, 0, data, 4), ET_UNSUPPORTED);
        assert_eq!(et_mapping_read(writer, 0, null_mut(), 4), ET_NULL_POINTER);
        assert_eq!(et_mapping_write(writer, 0, null(), 4), ET_NULL_POINTER);
        assert_eq!(et_mapping_write(writer, 125, data, 4), ET_OUT_OF_BOUNDS);
        assert_eq!(et_mapping_write(writer, usize::MAX, data, 4), ET_OUT_OF_BOUNDS);
    }
    assert_eq!(bytes, [3; 4]);
    ok(write(writer, 0, &[0; 128]));
    ok(et_mapping_unmap(writer, LONG));
    for ended in [writer, et_mapping { id: 0 }, et_mapping { id: u64::MAX }] {
        assert_eq!(et_mapping_unmap(ended, LONG), ET_BAD_HANDLE);
        assert_eq!(et_mapping_flush(ended, LONG), ET_BAD_HANDLE);
        assert_eq!(et_mapping_free(ended), ET_BAD_HANDLE);
        assert_eq!(write(ended, 0, &[1]), ET_BAD_HANDLE);
        assert_eq!(et_mapping_path(ended, Some(&mut MaybeUninit::uninit())), ET_BAD_HANDLE);
    }
    let reader = map(queue, buffer, READS);
    assert_eq!(write(reader, 0, &[1]), ET_UNSUPPORTED);
    assert_eq!(et_mapping_path(reader, None), ET_NULL_POINTER);
    ok(et_mapping_unmap(reader, LONG));

    // One that cannot be written back any more is there still, and can be freed.
    let lost = map(queue, buffer, UPDATES);
    ok(write(lost, 0, &[1; 4]));
    ok(et_device_reset(device, LONG));
    for _ in 0..2 {
        assert_eq!(et_mapping_unmap(lost, LONG), ET_STALE);
    }
    ok(et_mapping_free(lost));
    ok(et_device_close(device));
    ok(et_device_close(other));
}

#[derive(Default)]
struct Heard {
    states: Vec<et_event_state>,
    refused: Vec<et_status>,
    event: Option<et_event>,
}

extern "C" fn hear(user: *mut c_void, state: et_event_state) {
    // SAFETY: the test keeps it until all have been called.
    let heard = unsafe { &*user.cast::<Mutex<Heard>>() };
    let mut heard = heard.lock().unwrap();
    heard.states.push(state);
    if let Some(event) = heard.event {
        // SAFETY: no times wanted.
        heard.refused.push(unsafe { et_event_wait(event, LONG, null_mut()) });
    }
}

#[test]
fn states_are_heard_of_once_each() {
    let device = open(CARD);
    let (queue, buffer) = (stream(device), mem(device, 4096));
    let heard = Mutex::new(Heard::default());
    let user = (&raw const heard).cast_mut().cast::<c_void>();
    let event = made(|out| et_fill(queue, buffer, 0, 4096, 1, out));
    heard.lock().unwrap().event = Some(event);
    for state in [et_event_state::ET_EVENT_QUEUED, et_event_state::ET_EVENT_READY] {
        ok(et_event_on_state(event, state as u32, Some(hear), user));
    }
    ok(et_event_on_state(event, et_event_state::ET_EVENT_COMPLETE as u32, Some(hear), user));
    // SAFETY: no times wanted.
    ok(unsafe { et_event_wait(event, LONG, null_mut()) });
    ok(et_stream_synchronize(queue, LONG));
    let state = made(|out| et_event_state_get(event, out));
    assert_eq!(state, et_event_state::ET_EVENT_COMPLETE);
    // Late ones hear the end; a state that there is none of, and no function, are refused.
    ok(et_event_on_state(event, et_event_state::ET_EVENT_READY as u32, Some(hear), user));
    assert_eq!(et_event_on_state(event, 5, Some(hear), user), ET_INVALID);
    assert_eq!(et_event_on_state(event, 1, None, user), ET_NULL_POINTER);
    assert_eq!(et_event_state_get(event, None), ET_NULL_POINTER);
    ok(et_event_free(event));
    assert_eq!(et_event_on_state(event, 1, Some(hear), user), ET_BAD_HANDLE);
    assert_eq!(et_event_state_get(event, Some(&mut MaybeUninit::uninit())), ET_BAD_HANDLE);
    ok(et_device_close(device));
    let heard = heard.into_inner().unwrap();
    assert_eq!(heard.states.len(), 4, "{:?}", heard.states);
    assert_eq!(heard.states[2..], [et_event_state::ET_EVENT_COMPLETE; 2]);
    assert_eq!(heard.refused, [ET_IN_CALLBACK; 4]);
}
