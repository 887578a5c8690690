//! Random programs, interpreted and translated: everything that can be seen has to be equal.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Context, is_available};
use crate::config::{MachineConfig, MemoryModel};
use crate::decode::code::CodeCache;
use crate::exec;
use crate::exec::event::Event;
use crate::machine::chip::{Chip, Core};
use crate::machine::hart::{Hart, Vector};
use crate::machine::launch::Stack;
use crate::memory::Dram;
use crate::memory::guards::Guards;

/// Near the end of a page, so that programs lie on two.
const CODE: u64 = 0x80_0600_0F60;
const DATA: u64 = 0x80_0700_0000;
/// The first memory that is open to kernels.
const FIRST: u64 = 0x80_0400_0000;
const DATA_BYTES: usize = 1 << 14;
/// The stacks of all harts are below, and nothing else: they are not cached.
const STACK_TOP: u64 = 0x80_0580_0000;

/// Instructions: `D`, `A` and `B` are integer registers, `d`, `a`, `b` and `c` floating-point ones,
/// `L` one with lines of the cache, `M` an address in memory, `N` one of packed ones, `I` an
/// immediate, `S` and `W` shift counts, `R` a rounding mode, `T` a distance to an instruction.
const TEXTS: [&str; 154] = [
    "add D, A, B",
    "sub D, A, B",
    "sll D, A, B",
    "slt D, A, B",
    "sltu D, A, B",
    "xor D, A, B",
    "srl D, A, B",
    "sra D, A, B",
    "or D, A, B",
    "and D, A, B",
    "addw D, A, B",
    "subw D, A, B",
    "sllw D, A, B",
    "srlw D, A, B",
    "sraw D, A, B",
    "mul D, A, B",
    "mulh D, A, B",
    "mulhsu D, A, B",
    "mulhu D, A, B",
    "div D, A, B",
    "divu D, A, B",
    "rem D, A, B",
    "remu D, A, B",
    "mulw D, A, B",
    "divw D, A, B",
    "divuw D, A, B",
    "remw D, A, B",
    "remuw D, A, B",
    "packb D, A, B",
    "addi D, A, I",
    "slti D, A, I",
    "sltiu D, A, I",
    "xori D, A, I",
    "ori D, A, I",
    "andi D, A, I",
    "addiw D, A, I",
    "slli D, A, S",
    "srli D, A, S",
    "srai D, A, S",
    "slliw D, A, W",
    "srliw D, A, W",
    "sraiw D, A, W",
    "lui D, W",
    "auipc D, W",
    "beq A, B, T",
    "bne A, B, T",
    "blt A, B, T",
    "bge A, B, T",
    "bltu A, B, T",
    "bgeu A, B, T",
    "beq A, x0, T",
    "jal D, T",
    "jalr D, 12(x4)",
    "jalr x0, 0(x1)",
    "lb D, M",
    "lh D, M",
    "lw D, M",
    "ld D, M",
    "lbu D, M",
    "lhu D, M",
    "lwu D, M",
    "sb A, M",
    "sh A, M",
    "sw A, M",
    "sd A, M",
    "ld D, M",
    "sd A, M",
    "flw d, M",
    "fsw a, M",
    "fadd.s d, a, bR",
    "fsub.s d, a, bR",
    "fmul.s d, a, bR",
    "fmadd.s d, a, b, cR",
    "fmsub.s d, a, b, cR",
    "fnmsub.s d, a, b, cR",
    "fnmadd.s d, a, b, cR",
    "fsgnj.s d, a, b",
    "fsgnjn.s d, a, b",
    "fsgnjx.s d, a, b",
    "fmin.s d, a, b",
    "fmax.s d, a, b",
    "feq.s D, a, b",
    "flt.s D, a, b",
    "fle.s D, a, b",
    "fmv.x.w D, a",
    "fmv.w.x d, A",
    "fcvt.w.s D, aR",
    "fcvt.s.w d, AR",
    "fclass.s D, a",
    "fdiv.s d, a, b",
    "fmadd.ps d, a, b, cR",
    "fmsub.ps d, a, b, cR",
    "fnmsub.ps d, a, b, cR",
    "fnmadd.ps d, a, b, cR",
    "fmadd.ps d, a, b, d",
    "fadd.ps d, a, bR",
    "fsub.ps d, a, bR",
    "fmul.ps d, a, bR",
    "fmax.ps d, a, b",
    "fmin.ps d, a, b",
    "flw.ps d, N",
    "flw.ps d, N",
    "fsw.ps a, N",
    "fsw.ps a, N",
    "fbc.ps d, M",
    "fgb.ps d, f9(x10)",
    "fgb.ps d, a(x10)",
    "fgh.ps d, f11(x10)",
    "fgh.ps d, f11(x11)",
    "fgh.ps d, f11(x2)",
    "fgh.ps d, f11(x3)",
    "fgh.ps d, a(x10)",
    "fg32b.ps d, x8(x10)",
    "fg32b.ps d, A(x10)",
    "fcvt.ps.pw d, aR",
    "fcvt.ps.pw d, f9",
    "fcvt.ps.f16 d, a",
    "fcvt.ps.f16 d, f10",
    "fswizz.ps d, a, S",
    "fbcx.ps d, A",
    "fbci.ps d, S",
    "fbci.pi d, S",
    "fandi.pi d, a, S",
    "faddi.pi d, a, S",
    "fsrli.pi d, a, W",
    "fslli.pi d, a, W",
    "fsrai.pi d, a, W",
    "fadd.pi d, a, b",
    "fsub.pi d, a, b",
    "fmul.pi d, a, b",
    "fand.pi d, a, b",
    "for.pi d, a, b",
    "fxor.pi d, a, b",
    "fexp.ps d, a",
    "mov.m.x m0, x0, 255",
    "mov.m.x m0, A, 0",
    "mova.x.m D",
    "mova.m.x A",
    "fltm.pi m1, a, b",
    "amoaddl.w D, A, (x10)",
    "csrrw D, 0x3, x0",
    "csrrwi x0, 0x2, 1",
    "csrrwi x0, 0x2, 0",
    "csrrw D, 0x1, A",
    "csrrw x0, 0x81F, x10",
    "csrrw x0, 0x81F, A",
    "csrrw x0, 0x81F, L",
    "csrrw x0, 0x89F, L",
    "csrrw x0, 0x89F, L",
    "csrrw D, 0x89F, L",
    "csrrw x0, 2239, L",
    "csrrw x0, 2239, A",
    "amoaddg.w D, A, (x10)",
    "fence",
];

/// Registers, immediates and so on that an instruction takes out of random numbers.
fn fill(text: &str, mut random: u64, at: usize, length: usize) -> String {
    const WRITABLE: [u32; 14] = [0, 1, 5, 6, 7, 9, 12, 13, 14, 15, 16, 17, 28, 31];
    const READABLE: [u32; 16] = [0, 1, 2, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 28];
    let mut draw = |most: usize| {
        let most = most as u64;
        let drawn = random % most;
        random = (random / most) ^ random.rotate_left(23).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        usize::try_from(drawn).unwrap()
    };
    let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
    let is_wide = name.ends_with(".ps");
    let mut filled = format!("{name} ");
    for letter in operands.chars() {
        let part = match letter {
            'D' => format!("x{}", WRITABLE[draw(14)]),
            'A' | 'B' => format!("x{}", READABLE[draw(16)]),
            'L' => format!("x{}", 18 + draw(6)),
            'd' => format!("f{}", draw(8)),
            'a' | 'b' | 'c' => format!("f{}", draw(8)),
            'I' => format!("{}", draw(4096).cast_signed() - 2048),
            'S' => format!("{}", draw(64)),
            'W' => format!("{}", draw(32)),
            'M' | 'N' => {
                let align = if letter == 'N' || is_wide { 32 } else { 8 };
                // Mostly aligned.
                let shift = if draw(16) == 0 { draw(align) } else { draw(2) * align / 2 };
                let base = ["x10", "x10", "x10", "x11", "x2", "x3"][draw(6)];
                format!("{}({base})", (draw(1024 / align) * align + shift).cast_signed() - 64)
            }
            'R' => ["", "", "", "", ", rne", ", rtz", ", rup"][draw(7)].to_owned(),
            'T' => {
                // Forward, or a little back: loops have few instructions and do not nest deeply.
                let to = if draw(3) == 0 { at.saturating_sub(draw(6)) } else { at + 1 + draw(6) };
                let distance = 4 * (to.min(length).cast_signed() - at.cast_signed());
                if distance < 0 { format!(".{distance}") } else { format!(".+{distance}") }
            }
            other => other.to_string(),
        };
        filled.push_str(&part);
    }
    filled
}

fn assemble(program: &[(usize, u64)]) -> Vec<u8> {
    let mut code = Vec::new();
    for (at, &(choice, random)) in program.iter().enumerate() {
        let text = fill(TEXTS[choice % TEXTS.len()], random, at, program.len());
        let word = et_isa::assemble(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        code.extend(word.to_le_bytes());
    }
    code.extend(0x0000_0073_u32.to_le_bytes());
    code
}

/// A value with which something special happens, or not.
fn special(random: u64) -> u32 {
    const VALUES: [u32; 16] = [
        0,
        1 << 31,
        1,
        0x8000_0001,
        0x007F_FFFF,
        0x0080_0000,
        0x8080_0001,
        0x3F80_0000,
        0x7F7F_FFFF,
        0x7F80_0000,
        0xFF80_0000,
        0x7FC0_0000,
        0x7F80_0001,
        0xFFC1_2345,
        0x0100_0000,
        0x4B80_0000,
    ];
    let [a, b, c, ..] = random.to_le_bytes();
    let fraction = u32::from(a) << 15 | u32::from(b);
    match c % 16 {
        0 => VALUES[usize::from(a % 16)],
        1 => u32::from_le_bytes([a, b, c, a ^ b]),
        // Products near the smallest normal number.
        2 => 0x1F80_0000 + (u32::from(a) << 20) % (1 << 26) + fraction % (1 << 20),
        _ => (0x3E80_0000 + (u32::from(b & 3) << 23) + fraction) | u32::from(a & 1) << 31,
    }
}

/// Lines of the cache, as operations on them take them.
fn lines(random: u64) -> u64 {
    // Memory and what it ends at, then scratchpads: the own one in two forms, and others, of which
    // some are too large or not there.
    const LINES: [u64; 16] = [
        DATA - 0x800,
        DATA + 0xFC0,
        DATA + 0x400,
        DATA + 0x400,
        DATA + 0x600,
        DATA + 0xFC0,
        DATA + 0x3000,
        STACK_TOP - 4160,
        FIRST - 64,
        FIRST,
        0xBF80_0040,
        0xFFC0_0840,
        0x8000_1000,
        0x8027_FFC0,
        0x8028_0000,
        0x9080_0000,
    ];
    let [line, level, count, masked, ..] = random.to_le_bytes();
    let count = if count & 1 == 0 { 0 } else { u64::from(count >> 4) };
    let masked = u64::from(masked.is_multiple_of(16)) << 63;
    LINES[usize::from(line) % LINES.len()] | u64::from(level & 3) << 58 | count | masked
}

/// Everything that can be seen of a hart, and the memory it can write.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    x: [u64; 32],
    f: [[u32; 8]; 32],
    fcsr: u32,
    masks: u64,
    gsc_progress: u8,
    pc: u64,
    retired: u64,
    /// How each turn ended, after how many instructions, and where, unless instructions were
    /// executed ahead.
    turns: Vec<(Event, u64, Option<u64>)>,
    memory: Vec<u8>,
}

impl Seen {
    /// The same without the places that `other` does not have.
    fn like(mut self, other: &Self) -> Self {
        for (turn, other) in self.turns.iter_mut().zip(&other.turns) {
            turn.2 = turn.2.filter(|_| other.2.is_some());
        }
        self
    }
}

#[derive(Clone, Debug)]
struct Case {
    code: Vec<u8>,
    memory: MemoryModel,
    seed: u64,
    fcsr: u32,
    masks: u64,
    guard_bytes: u64,
    turns: Vec<u32>,
}

fn mix(seed: u64, number: u64) -> u64 {
    let mixed =
        (seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ mixed >> 32
}

/// What became of a case that was executed.
struct Ran {
    seen: Seen,
    /// Turns in which instructions were executed ahead, and how many of them there were at the end.
    ahead: u32,
    left_ahead: u32,
    /// How often translated code was entered.
    entered: u32,
}

/// Executes a case translated and interpreted, in the same turns.
fn compare(case: &Case, dram: &Arc<Dram>) -> (Ran, Seen) {
    let translated = run(case, dram, true, 0);
    let interpreted = run(case, dram, false, translated.left_ahead).seen;
    let interpreted = interpreted.like(&translated.seen);
    (translated, interpreted)
}

/// Executes a case, and in the end so many more instructions, or those that were executed ahead.
fn run(case: &Case, dram: &Arc<Dram>, translated: bool, more: u32) -> Ran {
    let lanes: Vec<u8> = (0..DATA_BYTES as u64 / 4)
        .flat_map(|at| special(mix(case.seed, at)).to_le_bytes())
        .collect();
    dram.write(DATA, &lanes).unwrap();
    dram.fill(STACK_TOP - (1 << 20), 1 << 20, 0x3F).unwrap();
    dram.fill(CODE & !0xFFF, 0x2000, 0).unwrap();
    dram.fill(FIRST, 0x1000, 0).unwrap();
    dram.write(CODE, &case.code).unwrap();
    let config = MachineConfig {
        shires: 1,
        host_threads: NonZeroUsize::MIN,
        memory: case.memory,
        ..MachineConfig::default()
    };
    let chip = Chip::new(&config, Arc::clone(dram)).unwrap();
    let code = CodeCache::new(dram, case.memory, false);
    let code = if translated { code.translating(8) } else { code };
    let stack = Stack { top: STACK_TOP, bytes_per_hart: 4160, guard_bytes: case.guard_bytes };
    let guards = Guards::new(&stack);
    let core = Core {
        chip: &chip,
        code: &code,
        guards,
        stacks: guards,
        check: None,
        wake: &|_| {},
        recent: Cell::new(None),
        counters: None,
        context: Context::new(dram, &guards, &code),
    };
    let mut hart = Hart::new(0);
    hart.cache = chip.take_cache(0);
    hart.pc = CODE;
    for x in 1..32 {
        let random = mix(case.seed, 0x1_0000 + x as u64);
        hart.x[x] = if random & 3 == 0 { random >> 3 & 7 } else { random };
    }
    // Memory, the end of a page, a stack with a guard, nothing at all, indices, and code.
    hart.x[10] = DATA + 0x400;
    hart.x[11] = DATA + 0xFC0;
    hart.x[2] = STACK_TOP - 4160 + 96;
    hart.x[3] = if case.seed & 1 == 0 { FIRST + 16 } else { CODE };
    hart.x[8] = 0x39_8A41_8820;
    hart.x[4] = CODE + 4 * (case.seed >> 8 & 7);
    for x in 18..24 {
        hart.x[x] = lines(mix(case.seed, 0x3_0000 + x as u64));
    }
    if case.seed & 2 == 0 {
        hart.x[31] = [64, 64, 0x800, 0x7C0][usize::try_from(case.seed >> 2 & 3).unwrap()];
    }
    for f in 0..32 {
        hart.f[f] = Vector(std::array::from_fn(|lane| {
            special(mix(case.seed, 0x2_0000 + (8 * f + lane) as u64))
        }));
    }
    hart.f[9] = Vector(std::array::from_fn(|lane| u32::try_from(lane).unwrap() + 3));
    hart.f[10] = Vector(std::array::from_fn(|lane| 0x3C00 + u32::try_from(lane).unwrap() * 99));
    let first = [0, 8, 0x32, 0x28, 1, 0x7FFF_FFF4][(case.seed >> 4) as usize % 6];
    hart.f[11] = Vector(std::array::from_fn(|lane| first + 2 * u32::try_from(lane).unwrap()));
    (hart.fcsr, hart.masks) = (case.fcsr, case.masks);
    // The processor's own flags, which Rust leaves as they are, are none of the hart's.
    std::hint::black_box(std::hint::black_box(1.0_f32) / std::hint::black_box(0.0));
    std::hint::black_box(std::hint::black_box(1.0_f32) / std::hint::black_box(3.0));
    let (mut turns, mut ahead) = (Vec::new(), 0);
    for &fuel in &case.turns {
        let event = exec::run(&mut hart, &core, fuel);
        turns.push((event, hart.retired, (hart.ahead == 0).then_some(hart.pc)));
        // As another shire does: the cache is to hide it until lines are evicted. It is no code,
        // which would be executed ahead as it was before.
        const NO_CODE: [u8; 7] = [0, 0x57, 0x6B, 0x77, 0xD7, 0xEB, 0xF7];
        dram.fill(DATA, 0x1400, NO_CODE[turns.len() % NO_CODE.len()]).unwrap();
        code.start_epoch();
        match event {
            Event::Trap { .. } => hart.pc = hart.pc.wrapping_add(4),
            Event::OutOfFuel => {}
            _ => break,
        }
        ahead += u32::from(hart.ahead != 0);
        if hart.ahead == 0 && !(CODE..CODE + case.code.len() as u64).contains(&hart.pc) {
            hart.pc = CODE;
        }
    }
    let left_ahead = hart.ahead.max(more);
    if left_ahead != 0 {
        let end = exec::run(&mut hart, &core, left_ahead);
        turns.push((end, hart.retired, Some(hart.pc)));
    }
    if let Some(cache) = &mut hart.cache {
        cache.release_all(&core);
    }
    let mut memory = vec![0; DATA_BYTES];
    dram.read(DATA, &mut memory).unwrap();
    let mut stacks = vec![0; 3 * 4160];
    dram.read(STACK_TOP - 3 * 4160, &mut stacks).unwrap();
    memory.extend(stacks);
    let mut bytes = vec![0; 0x2000];
    dram.read(CODE & !0xFFF, &mut bytes).unwrap();
    memory.extend(bytes);
    let mut bytes = vec![0; 0x1000];
    dram.read(FIRST, &mut bytes).unwrap();
    memory.extend(bytes);
    let mut x = [0; 32];
    x.copy_from_slice(&hart.x[..32]);
    let seen = Seen {
        x,
        f: std::array::from_fn(|f| hart.f[f].0),
        fcsr: hart.fcsr,
        masks: hart.masks,
        gsc_progress: hart.gsc_progress,
        pc: hart.pc,
        retired: hart.retired,
        turns,
        memory,
    };
    Ran { seen, ahead, left_ahead, entered: code.native().map_or(0, super::Store::entered) }
}

fn case() -> impl Strategy<Value = Case> {
    (
        prop::collection::vec((0_usize..TEXTS.len(), any::<u64>()), 2..60),
        prop::sample::select(vec![MemoryModel::Flat, MemoryModel::Private]),
        any::<u64>(),
        prop_oneof![4 => Just(0_u32), 2 => Just(1), 1 => 0_u32..0x100],
        prop_oneof![4 => Just(0xFF_u64), 1 => any::<u64>()],
        prop::sample::select(vec![0_u64, 16, 64]),
        prop::collection::vec(prop_oneof![3 => 1_u32..60, 1 => 1_u32..2000], 1..40),
    )
        .prop_map(|(program, memory, seed, fcsr, masks, guard_bytes, turns)| {
            let code = assemble(&program);
            Case { code, memory, seed, fcsr, masks, guard_bytes, turns }
        })
}

/// How many programs are tried: more if the environment says so.
fn cases() -> u32 {
    std::env::var("ET_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

fn can_translate() -> bool {
    let can = is_available();
    if !can {
        eprintln!("skipped, because the processor has no AVX2, FMA and BMI2");
    }
    can
}

#[test]
fn translated_programs_do_what_interpreted_ones_do() {
    if !can_translate() {
        return;
    }
    let dram = Arc::new(Dram::new(128 << 20).unwrap());
    let (entered, ahead) = (Cell::new(0), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases()));
    runner
        .run(&case(), |case| {
            let (ran, expected) = compare(&case, &dram);
            let actual = ran.seen;
            entered.set(entered.get() + u64::from(ran.entered));
            ahead.set(ahead.get() + u64::from(ran.ahead));
            let difference = expected.turns.iter().zip(&actual.turns).position(|(a, b)| a != b);
            prop_assert_eq!(&actual.turns, &expected.turns, "{:?}", difference);
            prop_assert_eq!(actual.x, expected.x);
            for f in 0..32 {
                prop_assert_eq!(actual.f[f], expected.f[f], "f{}", f);
            }
            prop_assert_eq!(actual.fcsr, expected.fcsr);
            prop_assert!(actual == expected, "memory or masks");
            Ok(())
        })
        .unwrap();
    assert!(entered.get() > u64::from(cases()), "translated code was executed");
    assert!(ahead.get() > u64::from(cases()) / 4, "it was executed ahead {} times", ahead.get());
}

/// Random programs seldom load what they have evicted.
#[test]
fn lines_leave_the_cache_as_they_do_interpreted() {
    if !can_translate() {
        return;
    }
    let dram = Arc::new(Dram::new(128 << 20).unwrap());
    // On one page, on the next one, or on both.
    const PLACES: [[&str; 4]; 3] = [
        ["ld x5, 0(x11)", "ld x6, -1024(x10)", "add x14, x5, x14", "sd x14, 640(x10)"],
        ["ld x5, 64(x11)", "ld x6, 512(x11)", "add x14, x5, x14", "sd x14, 640(x11)"],
        ["ld x5, 64(x11)", "ld x6, 0(x10)", "add x14, x5, x14", "sd x14, 640(x10)"],
    ];
    let mut survived = 0;
    for (register, seed) in
        [0x81F, 0x89F, 0x8BF].into_iter().flat_map(|r| (0..2000).map(move |s| (r, s)))
    {
        let mut texts = vec![format!("csrrw x0, {register}, x18")];
        texts.extend(PLACES[seed % 3].iter().map(|text| (*text).to_owned()));
        texts.push(format!("jal x0, .-{}", 4 * texts.len()));
        let words = texts.iter().flat_map(|text| et_isa::assemble(text).unwrap().to_le_bytes());
        let case = Case {
            code: words.collect(),
            memory: MemoryModel::Private,
            seed: seed as u64,
            fcsr: 0,
            masks: 0xFF,
            guard_bytes: 0,
            turns: (1..120).map(|turn| turn % 13 + 1).collect(),
        };
        let (ran, expected) = compare(&case, &dram);
        assert!(ran.seen == expected, "{register:#x}, {case:?}");
        survived += u32::from(ran.entered > 50);
    }
    assert!(survived > 2000, "translated code was executed in {survived}");
}

/// Where only a part is there: in the cache, or at all.
#[test]
fn halves_are_gathered_where_all_of_them_are() {
    if !can_translate() {
        return;
    }
    let dram = Arc::new(Dram::new(128 << 20).unwrap());
    let mut entered = 0;
    for seed in 0_u64..1200 {
        let before = seed % 5 * 8;
        let mut texts = if seed % 4 == 0 {
            // On to the end of memory.
            [
                "addi x5, x0, 1",
                "slli x5, x5, 39",
                "lui x6, 0x8000",
                "add x5, x5, x6",
                &format!("addi x5, x5, -{}", 512 + before),
                "addi x5, x5, 8",
            ]
            .map(str::to_owned)
            .to_vec()
        } else {
            // The line at x11 may leave the cache, and that before it is there.
            ["csrrw x0, 0x89F, x18", "lh x7, -16(x11)", &format!("addi x5, x11, -{before}")]
                .map(str::to_owned)
                .to_vec()
        };
        let again = if seed % 4 == 0 { 3 } else { texts.len() + 2 };
        texts.extend(["fgh.ps f1, f11(x5)", "fxor.pi f2, f2, f1"].map(str::to_owned));
        texts.push(format!("jal x0, .-{}", 4 * again));
        let words = texts.iter().flat_map(|text| et_isa::assemble(text).unwrap().to_le_bytes());
        let case = Case {
            code: words.collect(),
            memory: [MemoryModel::Flat, MemoryModel::Private][usize::from(seed % 7 < 3)],
            seed: seed << 4,
            fcsr: 0,
            masks: 0xFF,
            guard_bytes: 0,
            turns: (1..120).map(|turn| turn % 13 + 1).collect(),
        };
        let (ran, expected) = compare(&case, &dram);
        assert!(ran.seen == expected, "{before}, {case:?}");
        entered += u32::from(ran.entered > 50);
    }
    assert!(entered > 600, "translated code was executed in {entered}");
}
