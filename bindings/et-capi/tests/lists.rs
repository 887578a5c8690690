//! Signatures, priorities, lists, imports, peers and builtins: what they do, and what is refused.

#![expect(unsafe_code, reason = "calls the C interface")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row promise the same")]

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, kernel, last_error, made, mem, ok, open, stream, text};
use et_capi::et_status::{
    ET_ABORTED, ET_BAD_HANDLE, ET_BAD_STRUCT_SIZE, ET_BUFFER_TOO_SMALL, ET_BUSY, ET_CLOSED,
    ET_IN_CALLBACK, ET_INVALID, ET_LAUNCH_FAILED, ET_MISALIGNED, ET_NULL_POINTER, ET_OUT_OF_BOUNDS,
    ET_PERMISSION, ET_UNSUPPORTED, ET_WRONG_KIND,
};
use et_capi::*;

const SMALL: &str = "sim:shires=1,dram=1GiB";
const NULL: &str = "sim:compute=null,dram=1GiB";

/// Reads a text of less than 200 bytes.
fn said(
    call: impl FnOnce(*mut c_char, usize, Option<&mut MaybeUninit<usize>>) -> et_status,
) -> String {
    let mut buffer: [c_char; 200] = [1; 200];
    ok(call(buffer.as_mut_ptr(), buffer.len(), None));
    // SAFETY: a call that went well has put a 0 there.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

fn wait(event: et_event) -> et_status {
    // SAFETY: no times wanted.
    let status = unsafe { et_event_wait(event, LONG, null_mut()) };
    ok(et_event_free(event));
    status
}

/// Waits for something that a thread of the library does.
fn until(is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_nanos(LONG), "it never came");
        std::thread::yield_now();
    }
}

fn bytes_of(queue: et_stream, from: et_mem, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    // SAFETY: as many bytes as are there.
    ok(unsafe { et_copy_to_host(queue, from, offset, bytes.as_mut_ptr().cast(), len, LONG) });
    bytes
}

fn put(queue: et_stream, bytes: &[u8], to: et_mem) {
    // SAFETY: as many bytes as are there.
    ok(unsafe { et_copy_to_device(queue, bytes.as_ptr().cast(), bytes.len(), to, 0, None) });
}

#[test]
fn kernels_say_what_they_take() {
    let device = open(NULL);
    let saxpy = kernel(device, "saxpy");
    let mut stated = MaybeUninit::new(9);
    assert_eq!(made(|out| et_kernel_parameter_count(saxpy, out, Some(&mut stated))), 4);
    // SAFETY: numbers.
    assert_eq!(unsafe { stated.assume_init() }, 1);
    let whole = said(|buffer, capacity, needed| {
        // SAFETY: a place of that length.
        unsafe { et_kernel_signature(saxpy, buffer, capacity, needed) }
    });
    assert_eq!(whole, "x: in f32[], y: inout f32[], a: f32, n: u64");
    let f32_ = et_scalar::ET_F32 as u32;
    let expected = [
        ("x", 0, f32_, et_access::ET_READS as u32),
        ("y", 8, f32_, et_access::ET_UPDATES as u32),
        ("a", 16, f32_, 0),
        ("n", 24, et_scalar::ET_U64 as u32, 0),
    ];
    for (index, (name, offset, scalar, access)) in expected.into_iter().enumerate() {
        // SAFETY: numbers only.
        let mut parameter: et_parameter = unsafe { MaybeUninit::zeroed().assume_init() };
        parameter.size = size_of::<et_parameter>();
        let found = said(|buffer, capacity, needed| {
            // SAFETY: places of those lengths.
            unsafe {
                et_kernel_parameter(saxpy, index, &raw mut parameter, buffer, capacity, needed)
            }
        });
        assert_eq!(found, name);
        let found = (parameter.offset, parameter.scalar, parameter.access);
        assert_eq!(found, (offset, scalar, access), "{name}");
    }
    // SAFETY: null, or a struct whose size is wrong.
    unsafe {
        let mut parameter: et_parameter = MaybeUninit::zeroed().assume_init();
        let of =
            |index, parameter| et_kernel_parameter(saxpy, index, parameter, null_mut(), 0, None);
        assert_eq!(of(4, null_mut()), ET_OUT_OF_BOUNDS);
        assert_eq!(of(0, &raw mut parameter), ET_BAD_STRUCT_SIZE);
        assert_eq!(of(0, null_mut()), ET_BUFFER_TOO_SMALL);
    }
    assert_eq!(et_kernel_parameter_count(saxpy, None, None), ET_NULL_POINTER);

    // One that says nothing takes anything.
    let memset = kernel(device, "memset");
    let mut stated = MaybeUninit::new(9);
    assert_eq!(made(|out| et_kernel_parameter_count(memset, out, Some(&mut stated))), 0);
    // SAFETY: numbers.
    assert_eq!(unsafe { stated.assume_init() }, 0);
    let launch = made(|out| et_launch_create(saxpy, out));
    ok(et_launch_arg_u64(launch, 1));
    assert_eq!(et_launch_submit(stream(device), launch, None), ET_INVALID);
    assert!(last_error().contains("x: in f32[]"), "{}", last_error());
    ok(et_device_close(device));
}

#[test]
fn streams_have_priorities() {
    let device = open(NULL);
    for (priority, status) in [
        (et_priority::ET_PRIORITY_NORMAL as u32, et_status::ET_OK),
        (et_priority::ET_PRIORITY_LOW as u32, et_status::ET_OK),
        (et_priority::ET_PRIORITY_HIGH as u32, et_status::ET_OK),
        (3, ET_INVALID),
    ] {
        let size = size_of::<et_stream_options>();
        let options = et_stream_options { size, priority, reserved: 0 };
        let mut queue = MaybeUninit::uninit();
        // SAFETY: live options.
        let made = unsafe { et_stream_create_with(device, &raw const options, Some(&mut queue)) };
        assert_eq!(made, status, "{priority}: {}", last_error());
        if status == et_status::ET_OK {
            // SAFETY: written by the call.
            let queue = unsafe { queue.assume_init() };
            assert_eq!(wait(made_barrier(queue)), et_status::ET_OK);
        }
    }
    let options = et_stream_options { size: 4, priority: 0, reserved: 0 };
    // SAFETY: live options, or none.
    unsafe {
        let wrong =
            et_stream_create_with(device, &raw const options, Some(&mut MaybeUninit::uninit()));
        assert_eq!(wrong, ET_BAD_STRUCT_SIZE);
        assert_eq!(et_stream_create_with(device, null(), None), ET_NULL_POINTER);
    }
    ok(et_device_close(device));
}

/// What operations have ended, by their numbers in `ENDED`.
unsafe extern "C" fn ended(user: *mut c_void, _: et_status) {
    ENDED.lock().unwrap().push(user.addr());
}

static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

#[test]
fn commands_go_by_priority() {
    const ORDER: [et_priority; 3] = [
        et_priority::ET_PRIORITY_HIGH,
        et_priority::ET_PRIORITY_NORMAL,
        et_priority::ET_PRIORITY_LOW,
    ];
    let device = open(SMALL);
    let launch = made(|out| et_launch_create(kernel(device, "hang"), out));
    let running = made(|out| et_launch_submit(stream(device), launch, out));
    // Low ones first.
    let events: Vec<_> = (0..12)
        .map(|number: usize| {
            let priority = ORDER[2 - number % 3] as u32;
            let size = size_of::<et_stream_options>();
            let options = et_stream_options { size, priority, reserved: 0 };
            // SAFETY: live options.
            let queue =
                made(|out| unsafe { et_stream_create_with(device, &raw const options, out) });
            ok(et_stream_wait_for(queue, running));
            let event = made_barrier(queue);
            ok(et_event_on_done(event, Some(ended), std::ptr::without_provenance_mut(number)));
            event
        })
        .collect();
    // Not waited for, so that one thread alone takes the answers.
    ok(et_device_abort(device, running, 0));
    until(|| ENDED.lock().unwrap().len() == 12);
    let sent: Vec<_> = events
        .iter()
        .map(|event| {
            // SAFETY: numbers only.
            let mut times: et_timeline = unsafe { MaybeUninit::zeroed().assume_init() };
            times.size = size_of::<et_timeline>();
            // SAFETY: a place of that size.
            ok(unsafe { et_event_wait(*event, LONG, &raw mut times) });
            times.sent_ns
        })
        .collect();
    let last = *sent.iter().max().unwrap();
    // Those that were ready at the same time, in the order of the answers.
    let ended = ENDED.lock().unwrap();
    let together: Vec<_> =
        ended.iter().filter(|number| sent[**number] == last).map(|number| 2 - number % 3).collect();
    assert!(together.len() > 3 && together.is_sorted(), "{together:?}");
    ok(et_device_close(device));
}

fn made_barrier(queue: et_stream) -> et_event {
    made(|out| et_stream_barrier(queue, out))
}

#[test]
fn lists_of_copies() {
    let device = open(NULL);
    let (queue, one, two) = (stream(device), mem(device, 4096), mem(device, 4096));
    ok(et_fill(queue, one, 0, 4096, 0, None));
    // SAFETY: 4 bytes.
    ok(unsafe { et_fill_pattern(queue, two, 0, 4096, [1u8, 2, 3, 4].as_ptr().cast(), 4, None) });
    let bytes: Vec<u8> = (0..64).collect();
    let copy = |from: Option<&[u8]>, from_mem, from_offset, to, to_offset, bytes| et_copy {
        from: from.map_or(null(), |from| from.as_ptr().cast()),
        from_mem,
        from_offset,
        to,
        to_offset,
        bytes,
    };
    let none = et_mem { id: 0 };
    let copies = [
        copy(Some(&bytes), none, 0, one, 8, 64),
        copy(None, two, 0, one, 1024, 16),
        copy(Some(&bytes[32..]), none, 0, two, 4064, 32),
    ];
    // SAFETY: memory of those lengths.
    let event = made(|out| unsafe { et_copy_list(queue, copies.as_ptr(), 3, out) });
    assert_eq!(wait(event), et_status::ET_OK);
    assert_eq!(bytes_of(queue, one, 8, 64), bytes);
    assert_eq!(bytes_of(queue, one, 1024, 24), [[1, 2, 3, 4].repeat(4), vec![0; 8]].concat());

    let mut places = [[0u8; 32], [0u8; 32]];
    let [first, second] = &mut places;
    let reads = [
        et_read { from: one, from_offset: 8, to: first.as_mut_ptr().cast(), bytes: 32 },
        et_read { from: two, from_offset: 4064, to: second.as_mut_ptr().cast(), bytes: 32 },
    ];
    // SAFETY: places of those lengths.
    ok(unsafe { et_read_list(queue, reads.as_ptr(), 2, LONG) });
    assert_eq!((&places[0][..], &places[1][..]), (&bytes[..32], &bytes[32..]));

    // SAFETY: memory of those lengths, or what is refused before it is looked at.
    unsafe {
        assert_eq!(et_copy_list(queue, null(), 1, None), ET_NULL_POINTER);
        ok(et_copy_list(queue, null(), 0, None));
        let wrong = [copies[0], copy(Some(&bytes), none, 0, one, 4090, 64)];
        assert_eq!(et_copy_list(queue, wrong.as_ptr(), 2, None), ET_OUT_OF_BOUNDS);
        let wrong = [copies[0], copy(None, none, 0, one, 0, 64)];
        assert_eq!(et_copy_list(queue, wrong.as_ptr(), 2, None), ET_BAD_HANDLE);
        let wrong = [copies[0], copy(Some(&bytes), none, 0, one, 1, 63)];
        assert_eq!(et_copy_list(queue, wrong.as_ptr(), 2, None), ET_MISALIGNED);
        let wrong = [reads[0], et_read { to: reads[0].to.wrapping_byte_add(31), ..reads[1] }];
        assert_eq!(et_read_list(queue, wrong.as_ptr(), 2, LONG), ET_INVALID);
        assert!(last_error().contains("overlap"), "{}", last_error());
        let wrong = [reads[0], et_read { to: null_mut(), ..reads[1] }];
        assert_eq!(et_read_list(queue, wrong.as_ptr(), 2, LONG), ET_NULL_POINTER);
        let pattern = [0u8; 3];
        let filled = et_fill_pattern(queue, one, 0, 8, pattern.as_ptr().cast(), 3, None);
        assert_eq!(filled, ET_UNSUPPORTED);
    }

    let pinned = made(|out| et_host_buffer_alloc(device, 256, out));
    let parts = [
        et_part { host_offset: 64, mem: one, offset: 8, bytes: 64 },
        et_part { host_offset: 0, mem: two, offset: 0, bytes: 8 },
    ];
    // SAFETY: so many parts.
    let event = made(|out| unsafe { et_download_list(queue, parts.as_ptr(), 2, pinned, out) });
    assert_eq!(wait(event), et_status::ET_OK);
    let mut host = [9u8; 256];
    // SAFETY: as many bytes.
    ok(unsafe { et_host_buffer_read(pinned, 0, host.as_mut_ptr().cast(), 256) });
    assert_eq!((&host[64..128], &host[..8]), (&bytes[..], &[1, 2, 3, 4, 1, 2, 3, 4][..]));
    assert!(host[8..64].iter().all(|byte| *byte == 0));
    let back = [et_part { host_offset: 64, mem: two, offset: 128, bytes: 64 }];
    // SAFETY: so many parts.
    let event = made(|out| unsafe { et_upload_list(queue, pinned, back.as_ptr(), 1, out) });
    assert_eq!(wait(event), et_status::ET_OK);
    assert_eq!(bytes_of(queue, two, 128, 64), bytes);
    let far = [et_part { host_offset: 200, mem: two, offset: 0, bytes: 64 }];
    // SAFETY: so many parts.
    let asked = unsafe { et_upload_list(queue, pinned, far.as_ptr(), 1, None) };
    assert_eq!(asked, ET_INVALID);
    assert!(last_error().contains("64"), "{}", last_error());
    ok(et_host_buffer_free(pinned));
    ok(et_device_close(device));
}

#[test]
fn a_launch_with_its_copies_is_one_operation() {
    let device = open(SMALL);
    let (queue, saxpy) = (stream(device), kernel(device, "saxpy"));
    let (x, y) = (mem(device, 256), mem(device, 256));
    let launch = made(|out| et_launch_create(saxpy, out));
    ok(et_launch_arg_mem(launch, x, 0));
    ok(et_launch_arg_mem(launch, y, 0));
    ok(et_launch_arg_f32(launch, 3.0));
    ok(et_launch_arg_u64(launch, 64));
    let values: Vec<u8> = (0..64u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let ones = 1.0f32.to_le_bytes().repeat(64);
    let none = et_mem { id: 0 };
    let input = |from: &[u8], to| et_copy {
        from: from.as_ptr().cast(),
        from_mem: none,
        from_offset: 0,
        to,
        to_offset: 0,
        bytes: 256,
    };
    let inputs = [input(&values, x), input(&ones, y)];
    let outputs = [et_part { host_offset: 0, mem: y, offset: 0, bytes: 256 }];
    let into = made(|out| et_host_buffer_alloc(device, 256, out));
    let staged = |outputs: &[et_part], out: Option<&mut MaybeUninit<et_event>>| {
        // SAFETY: memory of those lengths.
        unsafe {
            let (inputs, outputs, count) = (inputs.as_ptr(), outputs.as_ptr(), outputs.len());
            et_launch_staged(queue, inputs, 2, launch, outputs, count, into, out)
        }
    };
    let before = made(|out| et_event_operation(made_barrier(queue), out));
    let event = made(|out| staged(&outputs, out));
    assert_eq!(made(|out| et_event_operation(event, out)), before + 1);
    assert_eq!(wait(event), et_status::ET_OK);
    let mut result = [0u8; 256];
    // SAFETY: as many bytes.
    ok(unsafe { et_host_buffer_read(into, 0, result.as_mut_ptr().cast(), 256) });
    let expected: Vec<u8> =
        (0..64u8).flat_map(|i| 3.0f32.mul_add(f32::from(i), 1.0).to_le_bytes()).collect();
    assert_eq!(result[..], expected[..]);

    // SAFETY: null where memory is needed.
    let asked = unsafe {
        let wrong = [et_copy { from: null(), ..inputs[0] }];
        et_launch_staged(queue, wrong.as_ptr(), 1, launch, outputs.as_ptr(), 1, into, None)
    };
    assert_eq!(asked, ET_NULL_POINTER);
    assert_eq!(staged(&[et_part { offset: 8, ..outputs[0] }], None), ET_OUT_OF_BOUNDS);
    ok(et_launch_arg_u64(launch, 0));
    assert_eq!(staged(&outputs, None), ET_INVALID);
    assert!(last_error().contains("a: f32"), "{}", last_error());
    ok(et_host_buffer_free(into));
    ok(et_device_close(device));
}

#[test]
fn copies_between_devices() {
    let (device, other) = (open(NULL), open(NULL));
    let (queue, peer) = (stream(device), stream(other));
    let (from, to) = (mem(device, 1 << 20), mem(other, 1 << 20));
    let bytes: Vec<u8> =
        (0..1 << 20).map(|i: u32| i.to_le_bytes()[1] ^ i.to_le_bytes()[0]).collect();
    put(queue, &bytes, from);
    let copy = |offset, len, out: Option<&mut MaybeUninit<et_event>>| {
        et_copy_to_peer(queue, from, offset, peer, to, 0, len, out)
    };
    assert_eq!(wait(made(|out| copy(0, 1 << 20, out))), et_status::ET_OK);
    assert_eq!(bytes_of(peer, to, 0, 1 << 20), bytes);
    ok(copy(64, 64, None));
    ok(et_stream_synchronize(peer, LONG));
    assert_eq!(bytes_of(peer, to, 0, 64), bytes[64..128]);
    assert_eq!(copy(1 << 19, 1 << 20, None), ET_OUT_OF_BOUNDS);
    assert_eq!(et_copy_to_peer(queue, to, 0, peer, to, 0, 64, None), ET_INVALID);
    assert_eq!(
        et_copy_to_peer(queue, from, 0, et_stream { id: to.id }, to, 0, 64, None),
        ET_WRONG_KIND
    );
    let path = made(|out| et_device_peer_path(device, other, out));
    let through_host =
        [et_peer_path::ET_PEER_HOST_REFUSED as u32, et_peer_path::ET_PEER_HOST_NOT_MAPPED as u32];
    assert!(through_host.contains(&path), "{path}");
    assert_eq!(made(|out| et_device_peer_path(other, device, out)), path);
    let same = made(|out| et_device_peer_path(device, device, out));
    assert_eq!(same, et_peer_path::ET_PEER_SAME_DEVICE as u32);
    ok(et_device_close(other));
    assert_eq!(et_device_peer_path(device, other, Some(&mut MaybeUninit::new(0))), ET_BAD_HANDLE);
    assert_eq!(copy(0, 64, None), ET_CLOSED);
    ok(et_device_close(device));
}

#[test]
fn the_cores_copy_and_fill() {
    let device = open(SMALL);
    let (queue, one, two) = (stream(device), mem(device, 256), mem(device, 256));
    let bytes: Vec<u8> = (0..=255).collect();
    put(queue, &bytes, one);
    ok(et_fill(queue, two, 0, 256, 0, None));
    let copy = made(|out| et_builtin_copy(device, one, 3, two, 50, 100, out));
    ok(et_launch_submit(queue, copy, None));
    // SAFETY: 2 bytes.
    let fill = made(|out| unsafe {
        et_builtin_fill(device, two, 151, 5, [7u8, 8].as_ptr().cast(), 2, out)
    });
    assert_eq!(wait(made(|out| et_launch_submit(queue, fill, out))), et_status::ET_OK);
    let result = bytes_of(queue, two, 0, 256);
    assert_eq!(result[50..150], bytes[3..103]);
    assert_eq!(result[149..157], [102, 0, 7, 8, 7, 8, 7, 0]);
    let mut place = MaybeUninit::uninit();
    assert_eq!(et_builtin_copy(device, one, 0, one, 8, 16, Some(&mut place)), ET_INVALID);
    assert_eq!(et_builtin_copy(device, one, 0, two, 250, 16, Some(&mut place)), ET_OUT_OF_BOUNDS);
    // SAFETY: 3 bytes; texts.
    unsafe {
        let three = [0u8; 3].as_ptr().cast();
        let filled = et_builtin_fill(device, two, 0, 8, three, 3, Some(&mut place));
        assert_eq!(filled, ET_UNSUPPORTED);
        let unknown = et_builtin_kernel(device, c"sort".as_ptr(), Some(&mut MaybeUninit::uninit()));
        assert_eq!(unknown, ET_UNSUPPORTED);
    }
    let count = made(|out| et_builtin_count(out));
    let names: Vec<_> = (0..count)
        .map(|index| {
            let name = said(|buffer, capacity, needed| {
                // SAFETY: a place of that length.
                unsafe { et_builtin_name(index, buffer, capacity, needed) }
            });
            let arguments = said(|buffer, capacity, needed| {
                // SAFETY: a place of that length.
                unsafe { et_builtin_arguments(index, buffer, capacity, needed) }
            });
            assert!(arguments.starts_with("uint8_t *dst, uint64_t n, "), "{arguments}");
            let name_of_c = text(&name);
            // SAFETY: a text.
            let kernel = made(|out| unsafe { et_builtin_kernel(device, name_of_c.as_ptr(), out) });
            ok(et_kernel_free(kernel));
            name
        })
        .collect();
    assert!(names.contains(&"copy".to_owned()) && names.contains(&"fill".to_owned()), "{names:?}");
    // SAFETY: no place.
    assert_eq!(unsafe { et_builtin_name(count, null_mut(), 0, None) }, ET_OUT_OF_BOUNDS);
    ok(et_device_close(device));
}

/// Whole pages.
#[repr(C, align(65536))]
struct Pages([u8; 65536]);

/// Counts that memory has come back.
unsafe extern "C" fn released(user: *mut c_void) {
    // SAFETY: the test gives its counter, and waits for the call.
    unsafe { &*user.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
}

/// Calls the library, which it must not.
unsafe extern "C" fn naughty(user: *mut c_void) {
    let mut count = MaybeUninit::uninit();
    let refused = et_builtin_count(Some(&mut count)) == ET_IN_CALLBACK
        && et_stream_free(et_stream { id: 1 }) == ET_IN_CALLBACK;
    // SAFETY: the test gives its counter, and waits for the call.
    unsafe { &*user.cast::<AtomicU32>() }.store(1 + u32::from(refused), Ordering::Release);
}

struct Import {
    device: et_device,
    memory: *mut c_void,
    bytes: usize,
    calls: Box<AtomicU32>,
}

impl Import {
    fn new(device: et_device, memory: &mut [u8]) -> Self {
        let (memory, bytes) = (memory.as_mut_ptr().cast(), memory.len());
        Self { device, memory, bytes, calls: Box::default() }
    }

    fn begin(&self, access: et_access, out: Option<&mut MaybeUninit<et_host_buffer>>) -> et_status {
        let user = (&raw const *self.calls).cast_mut().cast();
        // SAFETY: memory of that length, which outlives its use here.
        unsafe {
            let (device, memory, bytes) = (self.device, self.memory, self.bytes);
            et_host_buffer_import(device, memory, bytes, access as u32, Some(released), user, out)
        }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }
}

fn why_copied(buffer: et_host_buffer) -> String {
    said(|text, capacity, needed| {
        // SAFETY: a place of that length.
        unsafe { et_host_buffer_why_copied(buffer, text, capacity, needed) }
    })
}

#[test]
fn memory_of_the_caller_is_lent_and_comes_back() {
    let device = open(NULL);
    let (queue, buffer) = (stream(device), mem(device, 65536));
    let granule = made(|out| et_device_import_granule(device, out));
    assert!(granule != 0 && 65536 % granule == 0);
    let mut pages = Box::new(Pages([1; 65536]));
    let import = Import::new(device, &mut pages.0);
    let lent = made(|out| import.begin(et_access::ET_UPDATES, out));
    assert_eq!(why_copied(lent), "");
    // Changed after it was lent: what a copy of it would not have seen.
    pages.0[100] = 42;
    assert_eq!(wait(made(|out| et_upload(queue, lent, buffer, 0, 65536, out))), et_status::ET_OK);
    assert_eq!(bytes_of(queue, buffer, 96, 8), [1, 1, 1, 1, 42, 1, 1, 1]);
    ok(et_fill(queue, buffer, 0, 65536, 5, None));
    assert_eq!(wait(made(|out| et_download(queue, buffer, 0, 65536, lent, out))), et_status::ET_OK);
    assert_eq!((pages.0[0], pages.0[65535], import.calls()), (5, 5, 0));
    ok(et_host_buffer_free(lent));
    assert_eq!(import.calls(), 1);
    assert_eq!(et_host_buffer_free(lent), ET_BAD_HANDLE);

    // For one direction.
    let source = made(|out| import.begin(et_access::ET_READS, out));
    assert_eq!(et_download(queue, buffer, 0, 64, source, None), ET_PERMISSION);
    ok(et_host_buffer_free(source));
    ok(et_device_close(device));
    assert_eq!(import.calls(), 2);
}

#[test]
fn memory_that_the_device_does_not_reach_is_copied_there_and_back() {
    let device = open(NULL);
    let (queue, buffer) = (stream(device), mem(device, 64));
    ok(et_fill(queue, buffer, 0, 64, 9, None));
    let mut bytes = vec![3u8; 64];
    let import = Import::new(device, &mut bytes);
    let lent = made(|out| import.begin(et_access::ET_UPDATES, out));
    assert!(why_copied(lent).contains("whole pieces"), "{}", why_copied(lent));
    assert_eq!(wait(made(|out| et_download(queue, buffer, 0, 32, lent, out))), et_status::ET_OK);
    ok(et_host_buffer_free(lent));
    assert_eq!(import.calls(), 1);
    assert_eq!(bytes, [[9; 32], [3; 32]].concat());
    ok(et_device_close(device));
}

#[test]
fn memory_stays_lent_while_a_copy_uses_it() {
    let device = open(SMALL);
    let (queue, buffer) = (stream(device), mem(device, 65536));
    let launch = made(|out| et_launch_create(kernel(device, "hang"), out));
    let never = made(|out| et_launch_submit(queue, launch, out));
    let mut pages = Box::new(Pages([1; 65536]));
    let import = Import::new(device, &mut pages.0);
    let lent = made(|out| import.begin(et_access::ET_UPDATES, out));
    let event = made(|out| et_download(queue, buffer, 0, 65536, lent, out));
    // SAFETY: no place.
    assert_eq!(unsafe { et_host_buffer_why_copied(lent, null_mut(), 0, None) }, ET_BUSY);
    ok(et_host_buffer_free(lent));
    assert_eq!(import.calls(), 0);
    ok(et_device_abort(device, never, LONG));
    // It may not have begun.
    assert!(matches!(wait(never), ET_LAUNCH_FAILED | ET_ABORTED));
    assert_eq!(wait(event), et_status::ET_OK);
    until(|| import.calls() != 0);
    ok(et_device_close(device));
    assert_eq!(import.calls(), 1);
}

#[test]
fn imports_of_no_one_and_of_nothing() {
    let device = open(NULL);
    let mut pages = Box::new(Pages([1; 65536]));
    let import = Import::new(device, &mut pages.0);
    let mut place = MaybeUninit::uninit();
    assert_eq!(import.begin(et_access::ET_READS, None), ET_NULL_POINTER);
    // SAFETY: what is refused before it is looked at.
    unsafe {
        let access = et_access::ET_READS as u32;
        let mut of = |memory, bytes, access| {
            et_host_buffer_import(device, memory, bytes, access, None, null_mut(), Some(&mut place))
        };
        assert_eq!(of(null_mut(), 4096, access), ET_NULL_POINTER);
        assert_eq!(of(import.memory, 0, access), ET_NULL_POINTER);
        assert_eq!(of(import.memory, 4096, 0), ET_INVALID);
    }
    let called = AtomicU32::new(0);
    let user = (&raw const called).cast_mut().cast();
    // SAFETY: memory of that length, which outlives its use here.
    let lent = made(|out| unsafe {
        let access = et_access::ET_READS as u32;
        et_host_buffer_import(device, import.memory, 65536, access, Some(naughty), user, out)
    });
    ok(et_host_buffer_free(lent));
    assert_eq!(called.load(Ordering::Acquire), 2);

    // Memory of the host outlives a reset.
    let lent = made(|out| import.begin(et_access::ET_READS, out));
    ok(et_device_reset(device, LONG));
    let (queue, buffer) = (stream(device), mem(device, 64));
    assert_eq!(wait(made(|out| et_upload(queue, lent, buffer, 0, 64, out))), et_status::ET_OK);
    assert_eq!(bytes_of(queue, buffer, 0, 64), [1; 64]);
    ok(et_device_close(device));
    assert_eq!(import.calls(), 0);
    ok(et_host_buffer_free(lent));
    assert_eq!(import.begin(et_access::ET_READS, Some(&mut place)), ET_BAD_HANDLE);
    assert_eq!(import.calls(), 1, "of the call that went well");
}
