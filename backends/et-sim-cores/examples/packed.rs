//! Prints how many nanoseconds packed instructions take on one host thread, each by itself and the
//! mean over a mix as real kernels have it, and how many floating-point operations per second
//! `fmadd.ps` and the tensor unit make.

#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};

use et_sim_cores::{Dram, Launch, Machine, MachineConfig, MemoryModel, Stack};

const ENTRY: u64 = Dram::BASE + 0x600_0000;
const DATA: u64 = Dram::BASE + 0x700_0000;
/// Copies of an instruction in a loop.
const COPIES: u32 = 32;
/// `li a0, 8; li a1, 0; li a2, 0; ecall`.
const EXIT: [u32; 4] = [0x0080_0513, 0x0000_0593, 0x0000_0613, 0x0000_0073];
const LANES: f64 = 8.0;

/// Instructions, and how often each is in a mix of 100. x10 points to floats, x11 is an index; f1
/// to f3 are inexact floats, f4 small indices, f5 integers, f8 halves.
const MIX: [(&str, f64); 14] = [
    ("fmadd.ps f6, f1, f2, f6", 18.0),
    ("fadd.ps f6, f6, f1", 8.0),
    ("fmul.ps f7, f1, f2", 5.0),
    ("flw.ps f7, 0(x10)", 25.0),
    ("fsw.ps f7, 512(x10)", 4.0),
    ("fgb.ps f7, f4(x10)", 8.0),
    ("fg32b.ps f7, x11(x10)", 4.0),
    ("fcvt.ps.pw f7, f5", 9.0),
    ("fswizz.ps f7, f1, 177", 3.0),
    ("fbcx.ps f7, x10", 4.0),
    ("fbc.ps f7, 0(x10)", 4.0),
    ("fandi.pi f7, f5, 15", 3.0),
    ("fsrli.pi f7, f5, 4", 2.0),
    ("fcvt.ps.f16 f7, f8", 3.0),
];

/// Loads of memory that is met for the first time.
const STREAMS: [&str; 3] = ["flw.ps f7, 0(x16)", "fg32b.ps f7, x11(x16)", "ld x15, 0(x16)"];

/// The last one prefetches a line.
const OTHERS: [&str; 5] = [
    "fmax.ps f7, f1, f2",
    "frcp.ps f7, f1",
    "fexp.ps f7, f3",
    "mov.m.x m0, x0, 255",
    "csrrw x0, 0x81F, x10",
];

/// Loads the registers. The addition at the end sets the flag for inexact results.
const SETUP: [&str; 16] = [
    "lui x10, 0x8007",
    "slli x10, x10, 12",
    "flw.ps f1, 64(x10)",
    "flw.ps f2, 96(x10)",
    "flw.ps f3, 128(x10)",
    "flw.ps f4, 160(x10)",
    "flw.ps f5, 192(x10)",
    "flw.ps f8, 224(x10)",
    "fadd.ps f6, f1, f2",
    // A is loaded to line 0, 16 rows; x12 is a multiplication of 16 by 16 by 16, fp32.
    "addi x31, x0, 64",
    "addi x13, x10, 1039",
    "csrrw x0, 0x83F, x13",
    "ld x12, 1016(x10)",
    // Each hart goes through memory of its own, of 4 MiB.
    "csrrs x14, 0xCD0, x0",
    "slli x14, x14, 21",
    "add x16, x10, x14",
];

fn assemble(text: &str) -> Result<u32, Box<dyn Error>> {
    et_isa::assemble(text).map_err(|error| format!("{text}: {error:?}").into())
}

/// Time that the threads of this process have run, in nanoseconds: others on the machine do not
/// count.
fn cpu_time() -> Result<f64, Box<dyn Error>> {
    let mut total = 0.0;
    for task in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        total += text.split(' ').next().unwrap_or("0").parse::<f64>()?;
    }
    Ok(total)
}

/// Time of one round of `code` in nanoseconds.
fn measure(code: &[u32], rounds: u32, memory: MemoryModel) -> Result<f64, Box<dyn Error>> {
    let mut words = Vec::new();
    // Only the first hart of a minion has a tensor unit: the others end.
    for line in ["csrrs x14, 0xCD0, x0", "andi x14, x14, 1", "beq x14, x0, .+20"] {
        words.push(assemble(line)?);
    }
    words.extend(EXIT);
    for line in SETUP {
        words.push(assemble(line)?);
    }
    // lui x5, rounds
    words.push(rounds << 12 | 0x2B7);
    words.extend(code);
    let back = i32::try_from(4 * code.len())?;
    words.push(assemble("addi x5, x5, -1")?);
    words.push(assemble(&format!("bne x5, x0, .{}", -back - 4))?);
    words.extend(EXIT);
    let dram = Arc::new(Dram::new(256 << 20)?);
    for (at, word) in (ENTRY..).step_by(4).zip(&words) {
        dram.write(at, &word.to_le_bytes())?;
    }
    for word in 0..512_u32 {
        #[expect(clippy::cast_precision_loss, reason = "any value does")]
        let float = 0.001 * (word % 100) as f32;
        let bits = match word {
            40..48 => word % 7,
            48..56 => word * 77,
            56..64 => 0x3C55,
            _ => float.to_bits(),
        };
        dram.write(DATA + 4 * u64::from(word), &bits.to_le_bytes())?;
    }
    // Rows and columns of 16, the second operand from line 0 too.
    let multiplication = 3_u64 << 55 | 15 << 51 | 15 << 47;
    dram.write(DATA + 1016, &multiplication.to_le_bytes())?;
    let host_threads = NonZeroUsize::MIN;
    let config = MachineConfig { shires: 1, host_threads, memory, ..MachineConfig::default() };
    let machine = Machine::new(config, dram)?;
    let stack = Stack { top: Dram::BASE + 0x580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    let launch = Launch { entry: ENTRY, args: 0, env: 0, shire_mask: 1, stack };
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        let (sender, receiver) = mpsc::channel();
        let started = cpu_time()?;
        machine.launch(launch, Box::new(move |report| drop(sender.send(report))))?;
        let report = receiver.recv()?;
        if !report.failures.is_empty() {
            return Err(format!("{:?}", report.failures[0]).into());
        }
        let total = 32.0 * 4096.0 * f64::from(rounds);
        best = best.min((cpu_time()? - started) / total);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    // An argument chooses instructions that include it.
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for memory in [MemoryModel::Flat, MemoryModel::Private] {
        println!("{memory:?}");
        let one = |text: &str| -> Result<f64, Box<dyn Error>> {
            let code = vec![assemble(text)?; COPIES as usize];
            let nanoseconds = measure(&code, 1, memory)? / f64::from(COPIES);
            println!("  {text}: {nanoseconds:.1} ns");
            Ok(nanoseconds)
        };
        let mut mean = 0.0;
        for (text, share) in MIX.into_iter().filter(|(text, _)| text.contains(&wanted)) {
            mean += one(text)? * share / 100.0;
        }
        for text in OTHERS.into_iter().filter(|text| text.contains(&wanted)) {
            one(text)?;
        }
        if !wanted.is_empty() {
            continue;
        }
        println!("  mix: {mean:.1} ns");
        for load in STREAMS {
            let code = [assemble(load)?, assemble("addi x16, x16, 32")?].repeat(COPIES as usize);
            println!(
                "  {load}, on and on: {:.1} ns",
                measure(&code, 1, memory)? / f64::from(COPIES)
            );
        }
        let tile = measure(&[assemble("csrrw x0, 0x801, x12")?], 1, memory)?;
        let flops = 2.0 * 16.0 * 16.0 * 16.0;
        println!("  tensor_fma: {tile:.0} ns, {:.1} GFLOPS in fp32", flops / tile);
        // Eight sums that do not depend on each other.
        let sums: Result<Vec<_>, _> =
            (16..24).map(|f| assemble(&format!("fmadd.ps f{f}, f1, f2, f{f}"))).collect();
        let nanoseconds = measure(&sums?.repeat(4), 1, memory)? / 32.0;
        println!("  fmadd.ps: {nanoseconds:.1} ns, {:.1} GFLOPS", 2.0 * LANES / nanoseconds);
    }
    Ok(())
}
