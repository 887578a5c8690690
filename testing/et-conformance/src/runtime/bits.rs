//! Kernels, against what the host computes itself, to the bit.

#![expect(clippy::cast_possible_truncation, reason = "test data is cut to size")]

use et_hal::Hal;
use et_runtime::{Kernel, Launch};

use super::bench::{Bench, bits, floats};
use crate::check::{check_eq, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::kernels":
    elementwise_kernels_give_the_bits_the_host_gives [Need::Compute],
    saxpy_rounds_twice_and_its_fused_form_once [Need::Compute],
    matmul_uses_all_harts_and_is_exact [Need::Compute],
    memset_writes_what_it_should_and_nothing_else [Need::Compute],
    crc32_of_blocks_is_that_of_zlib [Need::Compute],
    reduce_adds_over_all_harts_and_every_hart_sees_the_sum [Need::Compute],
    barriers_hold_every_round [Need::Compute],
    atomics_of_all_harts_lose_nothing [Need::Compute],
    loads_and_stores_reach_every_word_in_every_pass [Need::Compute],
    spinning_kernels_count_every_iteration [Need::Compute],
}

fn elementwise_kernels_give_the_bits_the_host_gives<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (add, add_scalar, mul) =
        (bench.load("add")?, bench.load("add_scalar")?, bench.load("mul")?);
    for (mask, n) in bench.masks().into_iter().zip([1u32, 1000, 16_384]) {
        let (x, y) = (floats(1, n), floats(2, n));
        let (dx, dy) = (bench.upload(&x)?, bench.upload(&y)?);
        let z = bench.device.alloc(4 * u64::from(n))?;
        let binary = |kernel: &Kernel| {
            Launch::new(kernel).buffer(&dx).buffer(&dy).buffer(&z).u64(n.into()).shires(mask)
        };
        let host = |f: &dyn Fn(f32, f32) -> f32| {
            x.iter().zip(&y).map(|(x, y)| f(*x, *y).to_bits()).collect::<Vec<_>>()
        };
        bench.run(&binary(&add))?;
        same("sums", &bits(&bench.download(&z)?), &host(&|x, y| x + y))?;
        bench.run(&binary(&mul))?;
        same("products", &bits(&bench.download(&z)?), &host(&|x, y| x * y))?;
        let launch = Launch::new(&add_scalar).buffer(&dx).buffer(&z).f32(2.5).u64(n.into());
        bench.run(&launch.shires(mask))?;
        same("sums with a scalar", &bits(&bench.download(&z)?), &host(&|x, _| x + 2.5))?;
        same("the input", &bits(&bench.download(&dx)?), &bits(&x))?;
    }
    Ok(())
}

fn saxpy_rounds_twice_and_its_fused_form_once<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    type Form = fn(f32, f32, f32) -> f32;
    let forms: [(&str, Form); 2] =
        [("saxpy", |a, x, y| a * x + y), ("saxpy_fused", |a, x, y| a.mul_add(x, y))];
    let bench = Bench::open(rig)?;
    let (x, y) = (floats(3, 5000), floats(4, 5000));
    let a = 1.000_123_4_f32;
    let mut results = Vec::new();
    for (name, host) in forms {
        let kernel = bench.load(name)?;
        let (dx, dy) = (bench.upload(&x)?, bench.upload(&y)?);
        bench.run(&Launch::new(&kernel).buffer(&dx).buffer(&dy).f32(a).u64(5000))?;
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| host(a, *x, *y)).collect();
        let result = bits(&bench.download(&dy)?);
        same(name, &result, &bits(&expected))?;
        results.push(result);
    }
    crate::check::check!(results[0] != results[1], "the inputs do not tell the forms apart");
    Ok(())
}

fn matmul_uses_all_harts_and_is_exact<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (m, n, k) = (37usize, 29usize, 41usize);
    let (a, b) = (floats(5, (m * k) as u32), floats(6, (k * n) as u32));
    let (da, db) = (bench.upload(&a)?, bench.upload(&b)?);
    let dc = bench.zeroed((4 * m * n) as u64)?;
    let kernel = bench.load("matmul")?;
    let launch = Launch::new(&kernel).buffer(&da).buffer(&db).buffer(&dc);
    bench.run(&launch.u64(m as u64).u64(n as u64).u64(k as u64))?;
    let mut expected = Vec::new();
    for i in 0..m {
        for j in 0..n {
            expected.push((0..k).fold(0.0f32, |sum, l| sum + a[i * k + l] * b[l * n + j]));
        }
    }
    same("the product", &bits(&bench.download(&dc)?), &bits(&expected))
}

fn memset_writes_what_it_should_and_nothing_else<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("memset")?;
    for range in [3..9001, 0..1, 9999..10_000, 64..128, 1..65] {
        let buffer = bench.zeroed(10_000)?;
        let target = buffer.slice(range.clone())?;
        let len = target.len_bytes();
        bench.run(&Launch::new(&kernel).buffer(target).u64(0xab).u64(len))?;
        let mut expected = vec![0u8; 10_000];
        expected[range.start as usize..range.end as usize].fill(0xab);
        same(&format!("bytes {range:?}"), &bench.download(&buffer)?, &expected)?;
    }
    Ok(())
}

fn crc32_of_blocks_is_that_of_zlib<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let len = rig.times(100_000, 10_000);
    let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
    let buffer = bench.upload(&data)?;
    let block = 777usize;
    let results = bench.zeroed(4 * len.div_ceil(block) as u64)?;
    let kernel = bench.load("crc32")?;
    let launch = Launch::new(&kernel).buffer(&buffer).u64(len as u64);
    bench.run(&launch.u64(block as u64).buffer(&results))?;
    let expected: Vec<u32> = data.chunks(block).map(crc_of).collect();
    same("checksums", &bench.download(&results)?, &expected)
}

/// The definition, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

fn reduce_adds_over_all_harts_and_every_hart_sees_the_sum<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let data: Vec<u64> = (0..10_000).collect();
    let buffer = bench.upload(&data)?;
    let kernel = bench.load("reduce")?;
    let shires = bench.shires();
    // Also a mask of the two shires that are farthest apart.
    let ends = 1u64 << shires[0] | 1 << shires[shires.len() - 1];
    for mask in bench.masks().into_iter().chain([ends]) {
        let harts = 64 * u64::from(mask.count_ones());
        let out = bench.zeroed(32)?;
        let launch = Launch::new(&kernel).buffer(&buffer).u64(10_000).buffer(&out);
        bench.run(&launch.shires(mask))?;
        let out = bench.download::<u64>(&out)?;
        check_eq!(out[0], 49_995_000, "the sum on {mask:#x}");
        check_eq!(out[1], harts, "the harts that saw it on {mask:#x}");
        check_eq!(out[3], harts, "the harts on {mask:#x}");
    }
    Ok(())
}

fn barriers_hold_every_round<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("barrier")?;
    let rounds = rig.times(20, 3) as u64;
    for mask in bench.masks() {
        let out = bench.zeroed(24)?;
        bench.run(&Launch::new(&kernel).u64(rounds).buffer(&out).shires(mask))?;
        let harts = 64 * u64::from(mask.count_ones());
        check_eq!(bench.download::<u64>(&out)?, [rounds * harts, 0, 0], "barriers on {mask:#x}");
    }
    Ok(())
}

fn atomics_of_all_harts_lose_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("atomics")?;
    for mask in bench.masks() {
        let out = bench.device.alloc_aligned(128, 64)?;
        bench.done(&bench.stream().fill(&out, 0xee)?)?;
        bench.run(&Launch::new(&kernel).buffer(&out).shires(mask))?;
        let h = 64 * u64::from(mask.count_ones());
        let sum = h * (h + 1) / 2;
        let golden = 0x9e37_79b9_7f4a_7c15_u64;
        let xor = (1..=h).fold(0, |all, i| all ^ i.wrapping_mul(golden));
        // 64 harts at least, so every bit is set once.
        let (or, and) = (u64::MAX, 0);
        let expected = [
            sum,
            or,
            and,
            xor,
            h - 1,
            (h - 1).wrapping_neg(),
            u64::MAX,
            0,
            h,
            0,
            sum,
            0xffff_ffff_0000_0000 | h,
            0x0000_beef_0000_00a5,
            0,
            0x1234,
            h,
        ];
        same(&format!("results on {mask:#x}"), &bench.download::<u64>(&out)?, &expected)?;
    }
    Ok(())
}

fn loads_and_stores_reach_every_word_in_every_pass<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("loads")?;
    let words: Vec<u64> = (0..10_003u64).map(|i| i.wrapping_mul(0x0123_4567_89ab_cdef)).collect();
    let buffer = bench.upload(&words)?;
    let launch = Launch::new(&kernel).buffer(&buffer).u64(words.len() as u64).u64(3);
    bench.run(&launch)?;
    let expected: Vec<u64> = words.iter().map(|word| word.wrapping_add(3)).collect();
    same("the words", &bench.download(&buffer)?, &expected)
}

fn spinning_kernels_count_every_iteration<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let harts = 64 * bench.shires().len();
    for name in ["spin_int", "spin_fp"] {
        let kernel = bench.load(name)?;
        for iterations in [0, 1, 1000] {
            let out = bench.zeroed(8 * harts as u64)?;
            bench.run(&Launch::new(&kernel).u64(iterations).buffer(&out))?;
            same(name, &bench.download::<u64>(&out)?, &vec![iterations; harts])?;
        }
    }
    // Floats, and weights behind them.
    let data = bench.upload(&[0x3F3F_3F3F_u32; 40])?;
    for has_data in [false, true] {
        let kernel = bench.load("spin_packed")?;
        let out = bench.zeroed(8 * harts as u64)?;
        let launch = Launch::new(&kernel).u64(1000).buffer(&out);
        bench.run(&if has_data { launch.buffer(&data) } else { launch.u64(0) })?;
        same("spin_packed", &bench.download::<u64>(&out)?, &vec![1000; harts])?;
    }
    Ok(())
}
