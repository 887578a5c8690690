//! Prints how many million instructions per second the cores execute, for loops of integers, of
//! floats, of loads and stores, and of products of what all harts load, on one and on two host
//! threads, on flat memory and with private caches.

#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};

use et_sim_cores::{Dram, Launch, Machine, MachineConfig, MemoryModel, Stack};

const ENTRY: u64 = Dram::BASE + 0x600_0000;

/// Iterations of a loop per hart, loaded into x5 by the first instruction (`lui x5, 16`).
const SETUP: [u32; 1] = [0x0001_02B7];
/// `li a0, 8; li a1, 0; li a2, 0; ecall`.
const EXIT: [u32; 4] = [0x0080_0513, 0x0000_0593, 0x0000_0613, 0x0000_0073];

/// add x6,x6,x7; xor x7,x7,x6; slli x28,x6,3; sub x29,x28,x7; addi x30,x29,1; or x31,x30,x6;
/// addi x5,x5,-1; bnez x5, loop
const INTEGER: [u32; 8] = [
    0x0073_0333,
    0x0063_C3B3,
    0x0033_1E13,
    0x407E_0EB3,
    0x001E_8F13,
    0x006F_6FB3,
    0xFFF2_8293,
    0xFE02_92E3,
];

/// fmadd.s f1,f2,f3,f1; fadd.s f4,f4,f5; fmul.s f6,f2,f3; fmadd.s f7,f6,f3,f7; fadd.s f8,f8,f2;
/// fmul.s f9,f5,f3; addi x5,x5,-1; bnez x5, loop
const FLOAT: [u32; 8] = [
    0x0831_70C3,
    0x0052_7253,
    0x1031_7353,
    0x3833_73C3,
    0x0024_7453,
    0x1032_F4D3,
    0xFFF2_8293,
    0xFE02_92E3,
];

/// ld x6,0(x28); ld x7,64(x28); add x6,x6,x7; sd x6,128(x28); lw x29,8(x28); sw x29,192(x28);
/// addi x5,x5,-1; bnez x5, loop
const MEMORY: [u32; 8] = [
    0x000E_3303,
    0x040E_3383,
    0x0073_0333,
    0x086E_3023,
    0x008E_2E83,
    0x0DDE_2023,
    0xFFF2_8293,
    0xFE02_92E3,
];

/// Puts the address of 256 bytes of the stack into x28: addi x28, x2, -288.
const MEMORY_SETUP: [u32; 1] = [0xEE01_0E13];

/// flw f2,0(x28); flw f3,4(x29); fmadd.s f1,f2,f3,f1; addi x28,x28,4; addi x29,x29,4;
/// addi x5,x5,-1; bnez x5, loop
const PRODUCT: [u32; 7] =
    [0x000E_2107, 0x004E_A187, 0x0831_70C3, 0x004E_0E13, 0x004E_8E93, 0xFFF2_8293, 0xFE02_94E3];

/// Puts an address 128 MiB into memory into x28 and x29: lui x28; slli; addi x29; slli; add; mv.
const PRODUCT_SETUP: [u32; 6] =
    [0x0000_4E37, 0x00DE_1E13, 0x0010_0E93, 0x027E_9E93, 0x01DE_0E33, 0x000E_0E93];

/// Loads f2, f3 and f5 with values whose sums and products are inexact: lui x6; addi; fmv.w.x.
const FLOAT_SETUP: [u32; 9] = [
    0x3DCC_D337,
    0xCCD3_0313,
    0xF003_0153,
    0x3F80_1337,
    0x0013_0313,
    0xF003_01D3,
    0x3E4C_D337,
    0xCCD3_0313,
    0xF003_02D3,
];

fn measure(code: &[u32], threads: usize, memory: MemoryModel) -> Result<f64, Box<dyn Error>> {
    let dram = Arc::new(Dram::new(256 << 20)?);
    for (at, word) in (ENTRY..).step_by(4).zip(code) {
        dram.write(at, &word.to_le_bytes())?;
    }
    let host_threads = NonZeroUsize::new(threads).ok_or("no threads")?;
    let machine =
        Machine::new(MachineConfig { host_threads, memory, ..MachineConfig::default() }, dram)?;
    let stack = Stack { top: Dram::BASE + 0x580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    let launch = Launch { entry: ENTRY, args: 0, env: 0, shire_mask: u64::MAX >> 32, stack };
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let (sender, receiver) = mpsc::channel();
        machine.launch(launch, Box::new(move |report| drop(sender.send(report))))?;
        let report = receiver.recv()?;
        if !report.failures.is_empty() {
            return Err(format!("{:?}", report.failures[0]).into());
        }
        #[expect(clippy::cast_precision_loss, reason = "a rounded figure is printed")]
        let mips = report.instructions as f64 / report.wall.as_secs_f64() / 1e6;
        best = best.max(mips);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    let integer: Vec<u32> = [&SETUP[..], &INTEGER, &EXIT].concat();
    let float: Vec<u32> = [&FLOAT_SETUP[..], &SETUP, &FLOAT, &EXIT].concat();
    let memory: Vec<u32> = [&MEMORY_SETUP[..], &SETUP, &MEMORY, &EXIT].concat();
    let product: Vec<u32> = [&PRODUCT_SETUP[..], &SETUP, &PRODUCT, &EXIT].concat();
    let codes = [("integer", integer), ("float", float), ("memory", memory), ("product", product)];
    for (name, code) in codes {
        for model in [MemoryModel::Flat, MemoryModel::Private] {
            let one = measure(&code, 1, model)?;
            let two = measure(&code, 2, model)?;
            println!(
                "{name}, {model:?}: {one:.0} MIPS on one host thread, {two:.0} on two ({:.2})",
                two / one
            );
        }
    }
    Ok(())
}
