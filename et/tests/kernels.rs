//! Every committed kernel, through the whole stack, against the host's own result.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::{LONG, load, open};
use et::{AnyHal, Device, DeviceBuffer, Launch};

fn upload(device: &Device<AnyHal>, data: &[f32]) -> DeviceBuffer {
    let buffer = device.alloc(4 * data.len() as u64).unwrap();
    let _ = device.default_stream().copy_to_device(data, &buffer).unwrap();
    buffer
}

fn download(device: &Device<AnyHal>, buffer: &DeviceBuffer) -> Vec<f32> {
    let mut data = vec![0.0; usize::try_from(buffer.len_bytes() / 4).unwrap()];
    device.default_stream().read(buffer, &mut data, LONG).unwrap();
    data
}

fn words(device: &Device<AnyHal>, buffer: &DeviceBuffer) -> Vec<u64> {
    let mut data = vec![0u64; usize::try_from(buffer.len_bytes() / 8).unwrap()];
    device.default_stream().read(buffer, &mut data, LONG).unwrap();
    data
}

fn zeroed(device: &Device<AnyHal>, len_bytes: u64) -> DeviceBuffer {
    let buffer = device.alloc(len_bytes).unwrap();
    let _ = device.default_stream().fill(&buffer, 0).unwrap();
    buffer
}

fn run(device: &Device<AnyHal>, launch: &Launch) {
    device.default_stream().launch(launch).unwrap().wait(LONG).unwrap();
}

/// Normal numbers of all signs and sizes, different for each seed.
fn floats(seed: u32, len: u32) -> Vec<f32> {
    (0..len)
        .map(|i| {
            let x = (i + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97));
            let sign = if x & 1 == 0 { 1.0 } else { -1.0 };
            sign * (1.0 + f32::from(u16::try_from(x >> 16).unwrap()) / 1024.0)
        })
        .collect()
}

/// Masks with one shire, with a hole, and all of them.
const MASKS: [u64; 3] = [0b1, 0b1010, 0b1111];

#[test]
fn elementwise_kernels_give_the_bits_the_host_gives() {
    let device = open("shires=4,dram=1GiB");
    let [add, add_scalar, mul] = ["add", "add_scalar", "mul"].map(|name| load(&device, name));
    for (mask, n) in MASKS.into_iter().zip([1u32, 1000, 16_384]) {
        let (x, y) = (floats(1, n), floats(2, n));
        let (dx, dy) = (upload(&device, &x), upload(&device, &y));
        let z = device.alloc(4 * u64::from(n)).unwrap();
        let binary = |kernel| {
            Launch::new(kernel).buffer(&dx).buffer(&dy).buffer(&z).u64(n.into()).shires(mask)
        };
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let expect = |f: &dyn Fn(f32, f32) -> f32| {
            x.iter().zip(&y).map(|(x, y)| f(*x, *y).to_bits()).collect::<Vec<_>>()
        };
        run(&device, &binary(&add));
        assert_eq!(bits(&download(&device, &z)), expect(&|x, y| x + y));
        run(&device, &binary(&mul));
        assert_eq!(bits(&download(&device, &z)), expect(&|x, y| x * y));
        let launch = Launch::new(&add_scalar).buffer(&dx).buffer(&z).f32(2.5).u64(n.into());
        run(&device, &launch.shires(mask));
        assert_eq!(bits(&download(&device, &z)), expect(&|x, _| x + 2.5));
    }
}

#[test]
fn saxpy_rounds_twice_and_its_fused_form_once() {
    let device = open("shires=2,dram=1GiB");
    let (x, y) = (floats(3, 5000), floats(4, 5000));
    let a = 1.000_123_4_f32;
    type Host = fn(f32, f32, f32) -> f32;
    let forms: [(&str, Host); 2] =
        [("saxpy", |a, x, y| a * x + y), ("saxpy_fused", |a, x, y| a.mul_add(x, y))];
    for (name, host) in forms {
        let kernel = load(&device, name);
        let (dx, dy) = (upload(&device, &x), upload(&device, &y));
        run(&device, &Launch::new(&kernel).buffer(&dx).buffer(&dy).f32(a).u64(5000));
        for ((result, x), y) in download(&device, &dy).iter().zip(&x).zip(&y) {
            assert_eq!(result.to_bits(), host(a, *x, *y).to_bits(), "{name}: {a} {x} {y}");
        }
    }
}

#[test]
fn matmul_uses_all_harts_and_is_exact() {
    let device = open("shires=3,dram=1GiB");
    let (m, n, k) = (37usize, 29usize, 41usize);
    let (a, b) = (floats(5, 37 * 41), floats(6, 41 * 29));
    let (da, db) = (upload(&device, &a), upload(&device, &b));
    let dc = device.alloc((4 * m * n) as u64).unwrap();
    let kernel = load(&device, "matmul");
    let launch = Launch::new(&kernel).buffer(&da).buffer(&db).buffer(&dc);
    run(&device, &launch.u64(m as u64).u64(n as u64).u64(k as u64));
    let c = download(&device, &dc);
    for i in 0..m {
        for j in 0..n {
            let expected = (0..k).fold(0.0f32, |sum, l| sum + a[i * k + l] * b[l * n + j]);
            assert_eq!(c[i * n + j].to_bits(), expected.to_bits(), "{i} {j}");
        }
    }
}

#[test]
fn memset_writes_what_it_should_and_nothing_else() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "memset");
    let buffer = zeroed(&device, 10_000);
    let target = buffer.slice(3..9_001).unwrap();
    run(&device, &Launch::new(&kernel).buffer(target).u64(0xab).u64(8_998));
    let mut bytes = vec![0u8; 10_000];
    device.default_stream().read(&buffer, &mut bytes, LONG).unwrap();
    for (at, byte) in bytes.into_iter().enumerate() {
        assert_eq!(byte, if (3..9_001).contains(&at) { 0xab } else { 0 }, "{at}");
    }
}

#[test]
fn crc32_of_blocks_is_zlibs() {
    let device = open("shires=1,dram=1GiB");
    let data: Vec<u8> = (0..100_000u32).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    let buffer = device.alloc(data.len() as u64).unwrap();
    let _ = device.default_stream().copy_to_device(&data, &buffer).unwrap();
    let block = 777usize;
    let results = device.alloc(4 * data.len().div_ceil(block) as u64).unwrap();
    let kernel = load(&device, "crc32");
    let launch = Launch::new(&kernel).buffer(&buffer).u64(data.len() as u64);
    run(&device, &launch.u64(block as u64).buffer(&results));
    let mut crcs = vec![0u32; data.len().div_ceil(block)];
    device.default_stream().read(&results, &mut crcs, LONG).unwrap();
    for (crc, bytes) in crcs.iter().zip(data.chunks(block)) {
        assert_eq!(*crc, crc_of(bytes));
    }
}

/// The definition, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

#[test]
fn reduce_adds_over_all_harts_and_every_hart_sees_the_sum_behind_the_barrier() {
    let device = open("dram=1GiB");
    let data: Vec<u64> = (0..10_000).collect();
    let buffer = device.alloc(80_000).unwrap();
    let _ = device.default_stream().copy_to_device(&data, &buffer).unwrap();
    let kernel = load(&device, "reduce");
    for (mask, harts) in [(1u64, 64u64), (0x8000_0002, 128), (0xffff_ffff, 2048)] {
        let out = zeroed(&device, 32);
        let launch = Launch::new(&kernel).buffer(&buffer).u64(10_000).buffer(&out);
        run(&device, &launch.shires(mask));
        let out = words(&device, &out);
        assert_eq!(out[0], 49_995_000, "sum on {mask:#x}");
        assert_eq!(out[1], harts, "harts that saw it on {mask:#x}");
        assert_eq!(out[3], harts);
    }
}

#[test]
fn barriers_hold_every_round() {
    let device = open("shires=3,dram=1GiB");
    let out = zeroed(&device, 24);
    let kernel = load(&device, "barrier");
    run(&device, &Launch::new(&kernel).u64(20).buffer(&out));
    assert_eq!(words(&device, &out), [20 * 192, 0, 0]);
}

#[test]
fn zero_fill_and_relocation_work_at_every_load_address() {
    let device = open("shires=1,dram=1GiB");
    let out = zeroed(&device, 8 * (8 + 64));
    // Each copy is loaded somewhere else.
    let copies: Vec<_> = (0..3).map(|_| load(&device, "bss")).collect();
    let mut results = Vec::new();
    for kernel in &copies {
        run(&device, &Launch::new(kernel).buffer(&out));
        results.push(words(&device, &out));
    }
    let [first, rest @ ..] = &results[..] else { panic!("no result") };
    assert!(first.iter().any(|word| *word != 0));
    assert!(rest.iter().all(|other| other[8..] == first[8..]));
}

#[test]
fn harts_start_as_the_specification_says() {
    let device = open("shires=2,dram=1GiB");
    let out = zeroed(&device, 64 * 129);
    let kernel = load(&device, "echo_env");
    run(&device, &Launch::new(&kernel).buffer(&out));
    let out = words(&device, &out);
    // The environment: version 0.1.0, mask, frequency.
    assert_eq!(out[0] & 0xffff_ffff_ffff, 0x1_0000);
    assert_eq!(out[1], 0b11);
    assert_eq!(out[2] & 0xffff_ffff, 600);
    for (rank, hart) in (0u64..).zip(out[8..].chunks(8)) {
        assert_eq!(hart[0], rank, "hart id");
        assert_eq!(hart[1], rank, "rank");
        assert_eq!(hart[2], 128, "harts");
        assert_eq!(hart[3], 0x80_0580_0000 - rank * 4160 - 32, "sp");
        assert_eq!(hart[6], 0, "ra");
        assert_eq!(hart[7], 0, "all other registers");
    }
}

#[test]
fn custom_stacks_are_as_large_as_asked_for_and_do_not_overlap() {
    let device = open("shires=4,dram=1GiB");
    let kernel = load(&device, "stack_probe");
    let out = zeroed(&device, 16 * 64);
    let probe = |bytes: u64| Launch::new(&kernel).u64(bytes).buffer(&out).shires(0b100);
    // Five pages do not fit the default stack, but the one asked for.
    run(&device, &probe(20_000).stack_bytes(24 << 10));
    let lowest: Vec<_> = words(&device, &out).chunks(2).map(|hart| (hart[0], hart[1])).collect();
    assert!(lowest.iter().all(|(_, lost)| *lost == 0), "words were lost");
    for pair in lowest.windows(2) {
        assert_eq!(pair[0].0 - pair[1].0, 24 << 10);
    }
}
