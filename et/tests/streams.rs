//! Copies, order, events.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use common::{LONG, load, open};
use et::{Config, Copy, Drain, Launch, Remains};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 4096) % 253).unwrap()).collect()
}

#[test]
fn copies_of_all_sizes_arrive() {
    let device = open("compute=null,dram=1GiB");
    let stream = device.default_stream();
    for len in [1usize, 7, 8, 4095, 4096, 4097, 262_143, 262_144, 262_145, 3_000_001] {
        let data = pattern(len);
        let buffer = device.alloc(len as u64).unwrap();
        let _ = stream.copy_to_device(&data, &buffer).unwrap();
        let mut back = vec![0; len];
        stream.read(&buffer, &mut back, LONG).unwrap();
        assert!(back == data, "{len}");
    }
}

#[test]
fn the_tail_of_a_buffer_does_not_touch_its_neighbour() {
    let device = open("compute=null,dram=1GiB");
    let stream = device.default_stream();
    let (a, b) = (device.alloc(61).unwrap(), device.alloc(64).unwrap());
    let _ = stream.fill(&b, 0xbb).unwrap();
    let _ = stream.copy_to_device(&[0xaau8; 61], &a).unwrap();
    let _ = stream.fill(&a, 0xcc).unwrap();
    let mut back = [0u8; 64];
    stream.read(&b, &mut back, LONG).unwrap();
    assert_eq!(back, [0xbb; 64]);
    let mut back = [0u8; 61];
    stream.read(&a, &mut back, LONG).unwrap();
    assert_eq!(back, [0xcc; 61]);
}

#[test]
fn a_tiny_staging_pool_slows_down_and_does_not_block() {
    let config = Config::new().staging_bytes(1);
    let device = et::open_with("sim:compute=null,dram=1GiB".parse().unwrap(), config).unwrap();
    let data = pattern(5 << 20);
    let (a, b) = (device.alloc(5 << 20).unwrap(), device.alloc(5 << 20).unwrap());
    let stream = device.default_stream();
    let _ = stream.copy_to_device(&data, &a).unwrap();
    let _ = stream.copy_on_device(&a, &b).unwrap();
    let mut back = vec![0; 5 << 20];
    stream.read(&b, &mut back, LONG).unwrap();
    assert!(back == data);
}

#[test]
fn copies_on_the_device_and_lists_keep_their_data_apart() {
    let device = open("compute=null,dram=1GiB");
    let stream = device.default_stream();
    let (x, y) = (pattern(1 << 20), vec![9u8; 4096]);
    let [a, b, c] = [1 << 20, 1 << 20, 4096].map(|len| device.alloc(len).unwrap());
    let _ = stream.copy_to_device(&x, &a).unwrap();
    let list = [Copy::OnDevice(a.whole(), b.whole()), Copy::ToDevice(&y, c.whole())];
    stream.copy_list(&list).unwrap().wait(LONG).unwrap();
    let (mut bx, mut by) = (vec![0; 1 << 20], vec![0; 4096]);
    stream.read(&b, &mut bx, LONG).unwrap();
    stream.read(&c, &mut by, LONG).unwrap();
    assert!(bx == x && by == y);
}

#[test]
fn a_host_buffer_is_copied_directly_and_comes_back() {
    let device = open("compute=null,dram=1GiB");
    let stream = device.default_stream();
    let data = pattern(1 << 20);
    let mut host = device.host_buffer(1 << 20).unwrap();
    host.copy_in(0, &data).unwrap();
    let target = device.alloc(1 << 20).unwrap();
    let host = stream.copy_from_host_buffer(host, &target).unwrap().wait(LONG).unwrap();
    let mut other = device.host_buffer(1 << 20).unwrap();
    other.fill(0, 1 << 20, 0).unwrap();
    let other = stream.copy_to_host_buffer(&target, other).unwrap().wait(LONG).unwrap();
    let mut back = vec![0u8; 1 << 20];
    other.copy_out(0, &mut back).unwrap();
    assert!(back == data);
    drop(host);
}

#[test]
fn a_transfer_that_runs_out_of_time_can_be_waited_for_again() {
    let device = open("shires=1,dram=1GiB");
    let stream = device.stream();
    let hang = load(&device, "hang");
    let event = stream.launch(&Launch::new(&hang)).unwrap();
    let target = device.alloc(4096).unwrap();
    let host = device.host_buffer(4096).unwrap();
    let transfer = stream.copy_from_host_buffer(host, &target).unwrap();
    let late = transfer.wait(std::time::Duration::from_millis(5)).unwrap_err();
    let Remains::Transfer(transfer) = late.remains else { panic!("{late:?}") };
    device.abort_launch(&event, LONG).unwrap();
    transfer.wait(LONG).unwrap();
    assert!(event.wait(LONG).is_err());
}

#[test]
fn streams_are_in_order_also_across_queues() {
    let device = open("shires=2,dram=1GiB");
    let kernel = load(&device, "add_scalar");
    let streams: Vec<_> = (0..3).map(|_| device.stream()).collect();
    let buffer = device.alloc(4096).unwrap();
    let _ = streams[0].fill(&buffer, 0).unwrap();
    let mut last = streams[0].barrier().unwrap();
    // Every step adds 1 to what the step before has left, each on the next stream.
    for step in 0..60 {
        let stream = &streams[step % 3];
        stream.wait_for(&last);
        let launch = Launch::new(&kernel).buffer(&buffer).buffer(&buffer).f32(1.0).u64(1024);
        last = stream.launch(&launch).unwrap();
    }
    last.wait(LONG).unwrap();
    let mut result = vec![0.0f32; 1024];
    streams[0].read(&buffer, &mut result, LONG).unwrap();
    assert_eq!(result, vec![60.0; 1024]);
}

#[test]
fn arguments_of_all_sizes_arrive_while_launches_are_in_flight() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "memset");
    let out = device.alloc(64 * 64).unwrap();
    let stream = device.default_stream();
    // The first three words are what the kernel reads; the rest only makes the block longer.
    for (slot, extra) in (0u64..).zip([0usize, 96, 104, 112, 1000, 4072, 4080, 5000, 100_000]) {
        let part = out.slice(slot * 64..slot * 64 + 64).unwrap();
        let args = et::KernelArgs::new()
            .addr(part.addr())
            .u64(slot + 1)
            .u64(64)
            .bytes(&vec![0xee; extra], 1);
        let _ = stream.launch(&Launch::new(&kernel).args(args).keep(part)).unwrap();
    }
    let mut bytes = vec![0u8; 64 * 9];
    stream.read(out.slice(..64 * 9).unwrap(), &mut bytes, LONG).unwrap();
    for (slot, part) in (1u8..).zip(bytes.chunks(64)) {
        assert_eq!(part, [slot; 64]);
    }
}

#[test]
fn many_threads_may_use_one_stream_and_one_event() {
    let device = open("compute=null,dram=1GiB");
    let kernel = load(&device, "add");
    let stream = device.stream();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let launch = Launch::new(&kernel).u64(1);
                for _ in 0..200 {
                    stream.launch(&launch).unwrap().wait(LONG).unwrap();
                }
            });
        }
    });
    let event = stream.launch(&Launch::new(&kernel)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| event.wait(LONG).unwrap());
        }
    });
    assert_eq!(device.counters().stray_responses, 0);
}

#[test]
fn ten_thousand_streams_come_and_go() {
    let device = open("compute=null,dram=1GiB");
    for _ in 0..10_000 {
        let stream = device.stream();
        let _ = stream.barrier().unwrap();
    }
    device.default_stream().synchronize(LONG).unwrap();
}

#[test]
fn callbacks_come_without_anybody_waiting() {
    let device = open("compute=null,dram=1GiB");
    let (sender, receiver) = mpsc::channel();
    for _ in 0..100 {
        let sender = sender.clone();
        let event = device.default_stream().barrier().unwrap();
        event.on_done(move |outcome| sender.send(outcome.is_ok()).unwrap());
    }
    for _ in 0..100 {
        assert!(receiver.recv_timeout(LONG).unwrap());
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn events_are_futures() {
    let device = open("compute=null,dram=1GiB");
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    for _ in 0..50 {
        let mut future = pin!(device.default_stream().barrier().unwrap().into_future());
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => {
                    outcome.unwrap();
                    break;
                }
                Poll::Pending => std::thread::park_timeout(LONG),
            }
        }
    }
}

#[test]
fn a_device_can_be_used_without_a_thread_of_its_own() {
    let config = Config::new().drain(Drain::Caller);
    let device = et::open_with("sim:compute=null,dram=1GiB".parse().unwrap(), config).unwrap();
    let event = device.default_stream().barrier().unwrap();
    while !event.is_done() {
        device.poll();
    }
    event.wait(LONG).unwrap();
}

#[test]
fn times_of_host_and_device_are_in_order() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "spin_int");
    let out = device.alloc(512).unwrap();
    let launch = Launch::new(&kernel).u64(1000).buffer(&out);
    let timeline = device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    assert!(timeline.queued <= timeline.sent && timeline.sent <= timeline.completed);
    assert!(timeline.device.unwrap().execute > 0);
}

#[test]
fn memory_is_freed_when_the_last_command_is_done_and_not_before() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "hang");
    let before = device.memory_stats().used_bytes;
    let buffer = device.alloc(1 << 20).unwrap();
    let event = device.default_stream().launch(&Launch::new(&kernel).buffer(&buffer)).unwrap();
    drop(buffer);
    assert!(device.memory_stats().used_bytes >= before + (1 << 20));
    device.abort_launch(&event, LONG).unwrap();
    assert!(event.wait(LONG).is_err());
    device.default_stream().synchronize(LONG).unwrap();
    let context = device.memory_stats().used_bytes - before;
    assert!(context < 1 << 20, "{context}");
    let (clone, error) = kernel.clone().unload().unwrap_err();
    assert!(matches!(error, et::Error::KernelInUse { .. }));
    drop(clone);
    kernel.unload().unwrap();
}

#[test]
fn profiles_have_every_operation() {
    let device = open("compute=null,dram=1GiB");
    device.profiler().start();
    let stream = device.stream();
    for _ in 0..10 {
        stream.barrier().unwrap().wait(LONG).unwrap();
    }
    let profile = device.profiler().stop();
    assert_eq!(profile.records.len(), 10);
    let mut json = Vec::new();
    profile.write_chrome_json(&mut json, Some(600)).unwrap();
    let text = String::from_utf8(json).unwrap();
    assert!(text.contains("\"traceEvents\"") && text.contains("\"barrier\""));
}
