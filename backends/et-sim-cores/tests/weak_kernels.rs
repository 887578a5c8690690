//! The compiled kernels of this project on weak memory: their results must not depend on luck.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: small numbers, exact results, and a panic is a failure"
)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use common::{Board, LONG};
use et_isa::{Access, Race};
use et_sim_cores::{Dram, HartExit, Launch, LaunchReport, MachineConfig, MemoryModel, Stack};

const SEEDS: u64 = 20;
/// With one shire, and with traffic between two.
const MASKS: [u64; 2] = [0b1, 0b11];
const ARGS: u64 = Dram::BASE + 0x700_0000;
const ENV: u64 = ARGS + 0x1000;
const X: u64 = Dram::BASE + 0x800_0000;
const Y: u64 = Dram::BASE + 0x900_0000;
const Z: u64 = Dram::BASE + 0xA00_0000;

fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().unwrap()
}

/// Copies the segments of an ELF file to where they are linked, and returns the entry. All pointers
/// are right there, so that no relocation is needed.
fn load(dram: &Dram, elf: &[u8]) -> u64 {
    let word = |offset| u64::from_le_bytes(at(elf, offset)) as usize;
    let half = |offset| usize::from(u16::from_le_bytes(at(elf, offset)));
    for header in (0..half(56)).map(|index| word(32) + index * half(54)) {
        if u32::from_le_bytes(at(elf, header)) == 1 {
            let (from, to) = (word(header + 8), word(header + 16) as u64);
            let (in_file, in_memory) = (word(header + 32), word(header + 40));
            dram.fill(to, in_memory as u64, 0).unwrap();
            dram.write(to, &elf[from..from + in_file]).unwrap();
        }
    }
    word(24) as u64
}

/// A machine with weak memory.
struct Rig {
    board: Board,
    seed: u64,
    shires: u64,
    harts: u64,
    finds_races: bool,
}

/// Arguments of a kernel, as bytes.
fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn elf(kernel: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/kernels/elf");
    std::fs::read(format!("{folder}/{kernel}.elf")).unwrap()
}

impl Rig {
    fn new(shires: u64, seed: u64, finds_races: bool) -> Self {
        let memory = MemoryModel::Weak { seed };
        let config = MachineConfig { memory, finds_races, ..MachineConfig::default() };
        let harts = 64 * u64::from(shires.count_ones());
        Self { board: Board::with(config), seed, shires, harts, finds_races }
    }

    fn launch(&self, elf: &[u8], args: &[u8]) -> mpsc::Receiver<LaunchReport> {
        let entry = load(&self.board.dram, elf);
        self.board.dram.write(ARGS, args).unwrap();
        let environment = words(&[3, self.shires, 600, 0, 0, 0, 0, 0]);
        self.board.dram.write(ENV, &environment).unwrap();
        let stack = Stack { top: Dram::BASE + 0x580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
        let launch = Launch { entry, args: ARGS, env: ENV, shire_mask: self.shires, stack };
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |report| drop(sender.send(report)));
        self.board.machine.launch(launch, done).unwrap();
        receiver
    }

    fn run(&self, kernel: &str, args: &[u8]) -> LaunchReport {
        self.launch(&elf(kernel), args).recv_timeout(LONG).unwrap()
    }

    /// Runs a kernel that must not fail.
    fn pass(&self, kernel: &str, args: &[u8]) {
        let report = self.run(kernel, args);
        let failure = report.failures.first();
        assert!(failure.is_none(), "{kernel}, seed {}: {:?}", self.seed, failure);
    }

    fn u64s(&self, from: u64, count: u64) -> Vec<u64> {
        let mut bytes = vec![0; 8 * count as usize];
        self.board.dram.read(from, &mut bytes).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn bits(&self, from: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.board.dram.read(from, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn put(&self, to: u64, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.board.dram.write(to, &bytes).unwrap();
    }
}

/// Calls `test` with a new machine for every seed and mask, and with one that looks for races.
fn for_all_seeds(test: impl Fn(&Rig)) {
    for shires in MASKS {
        for seed in 0..SEEDS {
            test(&Rig::new(shires, seed, false));
        }
        test(&Rig::new(shires, 0, true));
    }
}

fn floats(seed: u32, count: usize) -> Vec<f32> {
    let value = |i: u32| {
        let x = (i + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97));
        (1.0 + (x >> 16) as f32 / 1024.0) * if x & 1 == 0 { 1.0 } else { -1.0 }
    };
    (0..count as u32).map(value).collect()
}

#[test]
fn elementwise_kernels_are_right() {
    // Not a multiple of a line, so that harts share lines if anybody cuts wrongly.
    const N: usize = 1237;
    let (x, y, a) = (floats(1, N), floats(2, N), 1.000_123_4_f32);
    type Host = fn(f32, f32, f32) -> f32;
    let expected = |host: Host| -> Vec<u32> {
        x.iter().zip(&y).map(|(&x, &y)| host(a, x, y).to_bits()).collect()
    };
    for_all_seeds(|rig| {
        rig.put(X, &x);
        let binary: [(&str, Host); 2] = [("add", |_, x, y| x + y), ("mul", |_, x, y| x * y)];
        for (kernel, host) in binary {
            rig.put(Y, &y);
            rig.pass(kernel, &words(&[X, Y, Z + 4, N as u64]));
            assert_eq!(rig.bits(Z + 4, N), expected(host), "{kernel} {}", rig.seed);
        }
        rig.pass("add_scalar", &words(&[X, Z, u64::from(a.to_bits()), N as u64]));
        assert_eq!(rig.bits(Z, N), expected(|a, x, _| x + a), "add_scalar {}", rig.seed);
        let scaled: [(&str, Host); 2] =
            [("saxpy", |a, x, y| a * x + y), ("saxpy_fused", |a, x, y| a.mul_add(x, y))];
        for (kernel, host) in scaled {
            rig.put(Y, &y);
            rig.pass(kernel, &words(&[X, Y, u64::from(a.to_bits()), N as u64]));
            assert_eq!(rig.bits(Y, N), expected(host), "{kernel} {}", rig.seed);
        }
    });
}

#[test]
fn matmul_is_right() {
    let (m, n, k) = (19, 23, 17);
    let (a, b) = (floats(5, m * k), floats(6, k * n));
    let c: Vec<u32> = (0..m * n)
        .map(|at| (0..k).fold(0.0_f32, |sum, l| sum + a[at / n * k + l] * b[l * n + at % n]))
        .map(f32::to_bits)
        .collect();
    for_all_seeds(|rig| {
        rig.put(X, &a);
        rig.put(Y, &b);
        rig.pass("matmul", &words(&[X, Y, Z, m as u64, n as u64, k as u64]));
        assert_eq!(rig.bits(Z, m * n), c, "{}", rig.seed);
    });
}

#[test]
fn memset_is_right() {
    for_all_seeds(|rig| {
        rig.board.dram.fill(X, 10_000, 0).unwrap();
        rig.pass("memset", &words(&[X + 3, 0xAB, 8998]));
        let mut bytes = vec![0; 10_000];
        rig.board.dram.read(X, &mut bytes).unwrap();
        for (at, byte) in bytes.into_iter().enumerate() {
            assert_eq!(byte, if (3..9001).contains(&at) { 0xAB } else { 0 }, "{} {at}", rig.seed);
        }
    });
}

/// The definition, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    })
}

#[test]
fn crc32_is_right() {
    let data: Vec<u8> = (0..10_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    for_all_seeds(|rig| {
        rig.board.dram.write(X, &data).unwrap();
        rig.pass("crc32", &words(&[X, data.len() as u64, 77, Z]));
        let wanted: Vec<u32> = data.chunks(77).map(crc_of).collect();
        assert_eq!(rig.bits(Z, wanted.len()), wanted, "{}", rig.seed);
    });
}

#[test]
fn reduce_is_right() {
    let data: Vec<u64> = (0..1000).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let sum = data.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word));
    for_all_seeds(|rig| {
        rig.board.dram.write(X, &words(&data)).unwrap();
        rig.pass("reduce", &words(&[X, 1000, Z]));
        assert_eq!(rig.u64s(Z, 4), [sum, rig.harts, rig.harts, rig.harts], "{}", rig.seed);
    });
}

#[test]
fn barriers_are_right() {
    for_all_seeds(|rig| {
        rig.pass("barrier", &words(&[5, Z]));
        assert_eq!(rig.u64s(Z, 3), [5 * rig.harts, 0, 0], "{}", rig.seed);
    });
}

#[test]
fn atomics_are_right() {
    for_all_seeds(|rig| {
        rig.pass("atomics", &words(&[Z]));
        let harts = rig.harts;
        let sum = harts * (harts + 1) / 2;
        let xor = (1..=harts).fold(0, |xor, i| xor ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let minus = (1_i64 - harts as i64).cast_unsigned();
        let bytes = 0x0000_BEEF_0000_00A5;
        let low = 0xFFFF_FFFF_0000_0000 | harts;
        let wanted = [
            sum,
            u64::MAX,
            0,
            xor,
            harts - 1,
            minus,
            u64::MAX,
            0,
            harts,
            0,
            sum,
            low,
            bytes,
            0,
            0x1234,
            harts,
        ];
        assert_eq!(rig.u64s(Z, 16), wanted, "{}", rig.seed);
    });
}

#[test]
fn start_state_and_stacks_are_right() {
    for_all_seeds(|rig| {
        let harts = rig.harts;
        rig.pass("echo_env", &words(&[Z]));
        assert_eq!(rig.u64s(Z, 3)[..2], [3, rig.shires], "{}", rig.seed);
        for rank in 0..harts {
            let top = Dram::BASE + 0x580_0000 - 4160 * rank;
            let wanted = [rank, rank, harts, top - 32, ARGS, ENV, 0, 0];
            assert_eq!(rig.u64s(Z + 64 * (rank + 1), 8), wanted, "{}", rig.seed);
        }
        rig.pass("stack_probe", &words(&[1000, Z]));
        let probes = rig.u64s(Z, 2 * harts);
        assert!(probes.chunks(2).all(|probe| probe[0] != 0 && probe[1] == 0), "{}", rig.seed);
    });
}

#[test]
fn bss_is_right() {
    for_all_seeds(|rig| {
        let harts = rig.harts;
        rig.pass("bss", &words(&[Z]));
        let out = rig.u64s(Z, 8 + harts);
        assert_eq!(out[..2], [0, 0], "{}", rig.seed);
        assert_eq!(
            [out[4], out[5], out[6], out[7]],
            [out[3], out[3], 0x0123_4567_89AB_CDEF, harts]
        );
        for rank in 0..harts {
            let wanted = [rank + 1, rank * 2, rank ^ 0x55, !rank][rank as usize % 4];
            assert_eq!(out[8 + rank as usize], wanted, "{}", rig.seed);
        }
    });
}

#[test]
fn benchmark_kernels_are_right() {
    for_all_seeds(|rig| {
        rig.board.dram.write(X, &words(&(0..1000).collect::<Vec<_>>())).unwrap();
        rig.pass("loads", &words(&[X, 1000, 3]));
        assert_eq!(rig.u64s(X, 1000), (3..1003).collect::<Vec<_>>(), "{}", rig.seed);
        for kernel in ["spin_int", "spin_fp"] {
            rig.board.dram.fill(Z, 8 * rig.harts, 0).unwrap();
            rig.pass(kernel, &words(&[50, Z]));
            assert_eq!(rig.u64s(Z, rig.harts), vec![50; rig.harts as usize], "{kernel}");
        }
    });
}

#[test]
fn failing_kernels_fail_as_they_should() {
    for_all_seeds(|rig| {
        let load = HartExit::Exception { cause: 5, tval: 0 };
        let illegal = HartExit::Exception { cause: 2, tval: 0 };
        for (kernel, exit) in [
            ("trap_load", load),
            ("trap_illegal", illegal),
            ("negative_return", HartExit::NegativeReturn(-7)),
            ("self_abort", HartExit::SelfAbort(-1)),
        ] {
            let report = rig.run(kernel, &words(&[11]));
            let exits: Vec<_> = report.failures.iter().map(|f| (f.hart_id, f.exit)).collect();
            assert_eq!(exits, [(11, exit)], "{kernel} {}", rig.seed);
        }
        let report = rig.launch(&elf("hang"), &[]);
        rig.board.machine.abort();
        let report = report.recv_timeout(LONG).unwrap();
        assert_eq!(report.failures.len() as u64, rig.harts);
    });
}

/// Changes every instruction of an image that `change` changes; returns their number.
fn patch(elf: &mut [u8], change: impl Fn(u32) -> Option<u32>) -> usize {
    let mut changed = 0;
    for from in (0..elf.len() - 4).step_by(2) {
        if let Some(new) = change(u32::from_le_bytes(at(elf, from))) {
            elf[from..from + 4].copy_from_slice(&new.to_le_bytes());
            changed += 1;
        }
    }
    changed
}

/// The counterproof. The C library's atomics name a result register, so that none of them is
/// posted; here the swaps by which `reduce` clears its output have no result. Then its barriers
/// need their fences.
#[test]
fn a_kernel_without_its_fences_is_wrong_for_some_seed() {
    let mut fenced = elf("reduce");
    // amoswapg.d rd, rs2, (rs1)
    let swaps =
        patch(&mut fenced, |word| (word & 0xFE00_707F == 0x0A00_303B).then_some(word & !(31 << 7)));
    assert_eq!(swaps, 4);
    let mut unfenced = fenced.clone();
    let fences = patch(&mut unfenced, |word| (word == 0x0FF0_000F).then_some(0x0000_0013));
    assert!(fences > 0);
    let wrong = AtomicU64::new(0);
    for_all_seeds(|rig| {
        let reduces = |elf: &[u8]| {
            rig.pass("memset", &words(&[X, 1, 800]));
            let report = rig.launch(elf, &words(&[X, 100, Z])).recv_timeout(LONG).unwrap();
            let sums = [100 * 0x0101_0101_0101_0101, rig.harts, rig.harts, rig.harts];
            (rig.u64s(Z, 4) == sums, report.failures.len())
        };
        assert_eq!(reduces(&fenced), (true, 0), "{}", rig.seed);
        let (is_right, races) = reduces(&unfenced);
        // With what looks for races one launch is enough.
        assert_eq!(races != 0, rig.finds_races, "{races}");
        wrong.fetch_add(u64::from(!is_right && !rig.finds_races), Ordering::Relaxed);
    });
    let wrong = wrong.into_inner();
    println!("{wrong} of {} launches without fences are wrong", 2 * SEEDS);
    assert!(wrong > 0);
}

#[test]
fn a_race_of_the_tensor_unit_is_that_of_the_instruction_that_starts_it() {
    for seed in 0..3 {
        // No buffers are announced, as on a card behind a socket.
        let rig = Rig::new(0b11, seed, true);
        let report = rig.run("races", &words(&[17, X, Y]));
        let [failure] = &report.failures[..] else { panic!("seed {seed}: {report:?}") };
        let HartExit::Exception { cause, tval } = failure.exit else { panic!("{failure:?}") };
        let race = Race::from_cause(cause).unwrap();
        assert_eq!((failure.hart_id, race.other_hart, tval), (64, 0, X));
        assert_eq!((race.access, race.other), (Access::Line, Access::Store));
        let instruction = |pc: u64| {
            let mut bytes = [0; 4];
            rig.board.dram.read(pc, &mut bytes).unwrap();
            let word = u32::from_le_bytes(bytes);
            et_isa::decode(word).unwrap().text().to_string()
        };
        let (pc, other) = (failure.state.pc, i64::from(race.distance));
        assert!(instruction(pc).contains("tensor_load"), "{}", instruction(pc));
        let other = instruction(pc.wrapping_add_signed(other));
        assert!(other.contains("sd "), "{other}");
    }
}
