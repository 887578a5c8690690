//! Handles that several threads use and free, and what a launch costs.

#![expect(unsafe_code, reason = "calls the C interface")]

mod common;

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use common::{LONG, kernel, made, mem, ok, open, stream};
use et_capi::et_status::{ET_BAD_HANDLE, ET_BUSY, ET_CLOSED, ET_OK};
use et_capi::{
    et_device_close, et_event_free, et_event_status, et_event_wait, et_fill, et_launch_create,
    et_launch_submit, et_mem_alloc, et_mem_free, et_stream_free, et_stream_synchronize,
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

/// What the interface adds to a call, which no other thread has a part in, is bounded; what a whole
/// launch takes in C and in Rust is only reported, since it depends on who else uses the machine.
#[test]
#[expect(clippy::print_stderr, reason = "says what was measured")]
fn a_call_adds_little() {
    const TURNS: u32 = 200;
    const ROUNDS: u32 = 15;
    let locator = "sim:compute=null,dram=1GiB";
    let device = open(locator);
    let queue = stream(device);
    let launch = made(|out| et_launch_create(kernel(device, "task_nop"), out));
    let direct = et::open(locator).unwrap();
    let elf = std::fs::read(common::kernels().join("task_nop.elf")).unwrap();
    let description = et::Launch::new(&direct.load_kernel("task_nop", &elf).unwrap());
    let rust_stream = direct.stream();

    let c = || {
        let event = made(|out| et_launch_submit(queue, launch, out));
        // SAFETY: no times wanted.
        ok(unsafe { et_event_wait(event, LONG, null_mut()) });
        ok(et_event_free(event));
    };
    let rust = || {
        let event = rust_stream.launch(&description).unwrap();
        event.wait(Duration::from_nanos(LONG)).unwrap();
    };
    // The best of several rounds.
    let time = |call: &dyn Fn()| {
        let rounds = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            (0..TURNS).for_each(|_| call());
            start.elapsed() / TURNS
        });
        rounds.min().unwrap_or_default()
    };
    let done = made(|out| et_launch_submit(queue, launch, out));
    // SAFETY: no times wanted.
    ok(unsafe { et_event_wait(done, LONG, null_mut()) });
    let rust_done = rust_stream.launch(&description).unwrap();
    rust_done.wait(Duration::from_nanos(LONG)).unwrap();
    let call = time(&|| ok(et_event_status(done)));
    let rust_call = time(&|| assert!(rust_done.is_done() && rust_done.outcome().is_some()));
    eprintln!("status of an event: C {call:?}, Rust {rust_call:?}");
    eprintln!("launch and wait: C {:?}, Rust {:?}", time(&c), time(&rust));
    assert!(call < rust_call + Duration::from_micros(2), "C {call:?}, Rust {rust_call:?}");
    ok(et_device_close(device));
}
