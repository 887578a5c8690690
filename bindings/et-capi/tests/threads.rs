//! Handles that several threads use and free.

#![expect(unsafe_code, reason = "calls the C interface")]

mod common;

use std::ptr::null_mut;

use common::{LONG, made, mem, ok, open, stream};
use et_capi::et_status::{ET_BAD_HANDLE, ET_BUSY, ET_CLOSED, ET_OK};
use et_capi::{
    et_device_close, et_event_free, et_event_wait, et_fill, et_mem_alloc, et_mem_free,
    et_stream_free, et_stream_synchronize,
};

const THREADS: u8 = 4;

#[test]
fn threads_share_a_stream_and_free_each_others_memory() {
    let device = open("sim:compute=null,dram=1GiB");
    let queue = stream(device);
    for _ in 0..50 {
        let shared = mem(device, 4096);
        let freed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|byte| {
                    scope.spawn(move || {
                        let own = mem(device, 64);
                        let event = made(|out| et_fill(queue, own, 0, 64, byte, out));
                        let status = et_fill(queue, shared, 0, 4096, byte, None);
                        assert!(matches!(status, ET_OK | ET_BAD_HANDLE), "{status:?}");
                        // SAFETY: no times wanted.
                        ok(unsafe { et_event_wait(event, LONG, null_mut()) });
                        ok(et_event_free(event));
                        ok(et_mem_free(own));
                        et_mem_free(shared) == ET_OK
                    })
                })
                .collect();
            threads.into_iter().map(|thread| u32::from(thread.join().unwrap())).sum::<u32>()
        });
        assert_eq!(freed, 1, "one of them frees it");
    }
    ok(et_stream_synchronize(queue, LONG));
    ok(et_stream_free(queue));
    ok(et_device_close(device));
}

#[test]
fn a_device_is_closed_while_others_use_it() {
    let device = open("sim:compute=null,dram=1GiB");
    let queue = stream(device);
    let buffer = mem(device, 4096);
    std::thread::scope(|scope| {
        for byte in 0..THREADS {
            scope.spawn(move || {
                loop {
                    match et_fill(queue, buffer, 0, 4096, byte, None) {
                        ET_OK => {}
                        ET_CLOSED => break,
                        other => panic!("{other:?}"),
                    }
                    let mut place = std::mem::MaybeUninit::uninit();
                    let status = et_mem_alloc(device, 64, 0, Some(&mut place));
                    assert!(matches!(status, ET_OK | ET_BUSY | ET_BAD_HANDLE | ET_CLOSED));
                }
            });
        }
        ok(et_device_close(device));
    });
}
