//! Every instruction vector, executed on a single hart.
//!
//! The recordings were made one after the other without clearing the L2 scratchpad: each global
//! atomic on it finds what the one before left. So the cases run in their order and it is kept.

#![allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: constants of their making, counts for the reader, and a panic is a failure"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{A0, A1, Asm, HARTID, SP, T0, T1, T2, ZERO};
use et_sim_cores::{
    Dram, FloatProfile, Launch, Machine, MachineConfig, MemoryModel, SingleHart, Stack, Step,
};
use serde_json::Value;

const MEM: u64 = 0x80_0500_0000;
/// Bytes from [`MEM`] that are cleared before, and compared after, each case.
const MEM_BYTES: usize = 16 << 10;
/// Stores plainly, adds by a global atomic and loads plainly, all to one word and without eviction:
/// the result depends on coherence, which the hardware does not have (ISA §3.1).
const NEEDS_COHERENCE: u64 = 750;
/// Reads up to the start of the memory that is closed to kernels, on a machine without firmware:
/// the firmware closes more (ISA §4.3), so here the case is moved up to where its memory ends.
const AT_CLOSED_MEMORY: u64 = 1669;

fn with_firmware(case: &Value) -> Value {
    let moved = case.to_string();
    let moved = moved.replace("0x8000800000", "0x8004000000").replace("0x80007ff", "0x8003fff");
    serde_json::from_str(&moved).unwrap()
}

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/et-testkit/golden/isa.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| {
        let text = value.as_str().unwrap();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn lanes(value: &Value) -> [u32; 8] {
    let lanes: Vec<u32> = value
        .as_str()
        .unwrap()
        .split_whitespace()
        .map(|lane| u32::from_str_radix(lane, 16).unwrap())
        .collect();
    lanes.try_into().unwrap()
}

/// All state that a case can set or change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    pc: u64,
    x: [u64; 32],
    f: [[u32; 8]; 32],
    masks: u64,
    fcsr: u32,
    credits: u32,
    tensor_error: u16,
    gsc_progress: u8,
    memory: Vec<u8>,
}

impl State {
    fn before(case: &Value) -> Self {
        let pc = number(&case["pc"]);
        let mut state = Self {
            pc,
            x: [0; 32],
            f: [[0; 8]; 32],
            masks: 0xFF,
            fcsr: 0,
            credits: 0,
            tensor_error: 0,
            gsc_progress: 0,
            memory: vec![0; MEM_BYTES],
        };
        for poisoned in 12..18_u64 {
            state.x[poisoned as usize] = 0xDEAD_0000_0000_0000 | poisoned;
        }
        for (lane, bits) in (0..).zip(&mut state.f[4]) {
            *bits = 0xDEAD_BE00 | lane;
        }
        state.x[1] = pc;
        state.change(&case["in"]);
        if let Some(hex) = case["in"]["mem"].as_str() {
            let bytes = bytes(hex);
            state.memory[..bytes.len()].copy_from_slice(&bytes);
        }
        state
    }

    /// Applies the registers that `values` lists.
    fn change(&mut self, values: &Value) {
        for (register, value) in values["x"].as_object().into_iter().flatten() {
            self.x[register.parse::<usize>().unwrap()] = number(value);
        }
        for (register, value) in values["f"].as_object().into_iter().flatten() {
            self.f[register.parse::<usize>().unwrap()] = lanes(value);
        }
        let field = |name: &str| values.get(name).map(number);
        self.pc = field("pc").unwrap_or(self.pc);
        self.masks = field("m").unwrap_or(self.masks);
        self.fcsr = field("fcsr").map_or(self.fcsr, |value| value as u32);
        self.credits = field("fccnb").map_or(self.credits, |value| value as u32);
        self.tensor_error = field("tensor_error").map_or(self.tensor_error, |value| value as u16);
        self.gsc_progress = field("gsc_progress").map_or(self.gsc_progress, |value| value as u8);
    }

    fn after(case: &Value) -> Self {
        let mut state = Self::before(case);
        state.change(&case["out"]);
        for change in case["out"]["mem"].as_array().into_iter().flatten() {
            let offset = number(&change[0]) as usize;
            let bytes = bytes(change[1].as_str().unwrap());
            state.memory[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        if let Some(trap) = case.get("trap") {
            state.pc = number(&trap["epc"]);
        }
        state
    }

    fn apply(&self, hart: &mut SingleHart, dram: &Dram) {
        hart.restart();
        hart.set_pc(self.pc);
        for register in 0..32 {
            hart.set_x(register, self.x[register]);
            hart.set_f(register, self.f[register]);
        }
        hart.set_masks(self.masks);
        hart.set_fcsr(self.fcsr);
        dram.write(MEM, &self.memory).unwrap();
    }

    fn of(hart: &SingleHart, dram: &Dram) -> Self {
        let mut memory = vec![0; MEM_BYTES];
        dram.read(MEM, &mut memory).unwrap();
        Self {
            pc: hart.pc(),
            x: std::array::from_fn(|register| hart.x(register)),
            f: std::array::from_fn(|register| hart.f(register)),
            masks: hart.masks(),
            fcsr: hart.fcsr(),
            credits: hart.credits(),
            tensor_error: hart.tensor_error(),
            gsc_progress: hart.gsc_progress(),
            memory,
        }
    }

    /// Takes over lanes that differ by no more than the case's tolerance.
    fn tolerate(&mut self, actual: &Self, ulp: u64) {
        for (expected, actual) in self.f.iter_mut().flatten().zip(actual.f.iter().flatten()) {
            let finite = *expected & 0x7F80_0000 != 0x7F80_0000 && *expected << 1 != 0;
            if finite && u64::from(expected.abs_diff(*actual)) <= ulp {
                *expected = *actual;
            }
        }
    }

    fn differences(&self, actual: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for register in 0..32 {
            // x4 is unspecified.
            if register != 4 && self.x[register] != actual.x[register] {
                let (want, got) = (self.x[register], actual.x[register]);
                found.push(format!("x{register}: {got:#x} instead of {want:#x}"));
            }
            if self.f[register] != actual.f[register] {
                let (want, got) = (self.f[register], actual.f[register]);
                found.push(format!("f{register}: {got:x?} instead of {want:x?}"));
            }
        }
        let mut compare = |name: &str, want: u64, got: u64| {
            if want != got {
                found.push(format!("{name}: {got:#x} instead of {want:#x}"));
            }
        };
        compare("pc", self.pc, actual.pc);
        compare("masks", self.masks, actual.masks);
        compare("fcsr", self.fcsr.into(), actual.fcsr.into());
        compare("credits", self.credits.into(), actual.credits.into());
        compare("tensor_error", self.tensor_error.into(), actual.tensor_error.into());
        compare("gsc_progress", self.gsc_progress.into(), actual.gsc_progress.into());
        for (at, (want, got)) in self.memory.iter().zip(&actual.memory).enumerate() {
            compare(&format!("memory +{at:#x}"), u64::from(*want), u64::from(*got));
        }
        found
    }
}

struct Bench {
    dram: Arc<Dram>,
    hart: SingleHart,
}

impl Bench {
    fn new(float: FloatProfile, memory: MemoryModel) -> Self {
        let dram = Arc::new(Dram::new(256 << 20).unwrap());
        let hart = SingleHart::with_memory(float, memory, Arc::clone(&dram)).unwrap();
        Self { dram, hart }
    }

    fn run(&mut self, case: &Value) -> Result<(), String> {
        let code: Vec<&str> = case["code"].as_str().unwrap().split_whitespace().collect();
        let mut at = number(&case["pc"]);
        for instruction in &code {
            let bits = u32::from_str_radix(instruction, 16).unwrap().to_le_bytes();
            let bytes = &bits[..instruction.len() / 2];
            self.dram.write(at, bytes).unwrap();
            at += bytes.len() as u64;
        }
        State::before(case).apply(&mut self.hart, &self.dram);
        let mut trap = None;
        for _ in &code {
            match self.hart.step() {
                Step::Retired => {}
                Step::Trap { cause, tval } => {
                    trap = Some((cause, tval));
                    break;
                }
                other => return Err(format!("{other:?}")),
            }
        }
        self.hart.write_back();
        let wanted = case.get("trap").map(|trap| (number(&trap["cause"]), number(&trap["tval"])));
        let actual = State::of(&self.hart, &self.dram);
        let mut expected = State::after(case);
        if let Some(ulp) = case["tol_ulp"].as_u64() {
            expected.tolerate(&actual, ulp);
        }
        let differences = expected.differences(&actual);
        if trap == wanted && differences.is_empty() {
            return Ok(());
        }
        Err(format!("trap {trap:x?} instead of {wanted:x?}; {differences:?}"))
    }
}

#[test]
fn vectors_give_the_recorded_results() {
    check(MemoryModel::Flat);
}

/// A hart that is alone sees its own writes in order, and in the end so does everybody.
#[test]
fn vectors_give_the_recorded_results_on_weak_memory() {
    for seed in 0..3 {
        check(MemoryModel::Weak { seed });
    }
}

#[test]
fn vectors_give_the_recorded_results_with_private_caches() {
    check(MemoryModel::Private);
}

fn check(memory: MemoryModel) {
    let golden = golden();
    let mut standard = Bench::new(FloatProfile::IeeeStandard, memory);
    let mut hardware = Bench::new(FloatProfile::Hardware, memory);
    // By priority and group: how many cases.
    let mut groups: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        if matches!(memory, MemoryModel::Weak { .. }) && number(&case["id"]) == NEEDS_COHERENCE {
            continue;
        }
        let (group, priority) = (case["grp"].as_str().unwrap(), case["pri"].as_str().unwrap());
        let is_standard = case["profile"] == "ieee-standard";
        let moved = (number(&case["id"]) == AT_CLOSED_MEMORY).then(|| with_firmware(case));
        let bench = if is_standard { &mut standard } else { &mut hardware };
        *groups.entry((priority.to_owned(), group.to_owned())).or_default() += 1;
        if let Err(complaint) = bench.run(moved.as_ref().unwrap_or(case)) {
            wrong.push(format!("{} {} {}: {complaint}", case["id"], case["op"], case["code"]));
        }
    }
    for ((priority, group), cases) in &groups {
        println!("{priority} {group}: {cases}");
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let skipped = usize::from(matches!(memory, MemoryModel::Weak { .. }));
    assert_eq!(groups.values().sum::<usize>(), 1991 - skipped);
}

/// The recorded program of four minions: atomics from several harts, barriers by fast local barrier
/// and credits, and reductions by tree, broadcast and pairs.
fn minions_agree(memory: MemoryModel) {
    let golden = golden();
    let scenario = &golden["scenarios"][0];
    let code_addr = number(&scenario["code_addr"]);
    let dram = Arc::new(Dram::new(256 << 20).unwrap());
    dram.write(code_addr, &bytes(scenario["code"].as_str().unwrap())).unwrap();
    // All harts of the shire start: those that are not listed return at once, the others clear the
    // registers that the launch has set.
    let mut start = Asm::new();
    start.csrr(T0, HARTID).li(T1, 8).blt(T0, T1, "low").exit(0, 0);
    start.label("low").andi(T2, T0, 1).beq(T2, ZERO, "even").exit(0, 0);
    start.label("even").li(T0, code_addr).li(T1, 0).li(SP, 0).li(A0, 0).li(A1, 0).jr(T0);
    let entry = code_addr + 0x10_0000;
    dram.write(entry, &start.bytes()).unwrap();
    let config = MachineConfig { memory, ..MachineConfig::default() };
    let machine = Machine::new(config, Arc::clone(&dram)).unwrap();
    let (sender, receiver) = mpsc::channel();
    let stack = Stack { top: Dram::BASE + 0x600_0000, bytes_per_hart: 64, guard_bytes: 0 };
    let launch = Launch { entry, args: 0, env: 0, shire_mask: 1, stack };
    machine.launch(launch, Box::new(move |report| drop(sender.send(report)))).unwrap();
    let report = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    for expected in scenario["expect_mem"].as_array().unwrap() {
        let addr = number(&expected[0]);
        let want = bytes(expected[1].as_str().unwrap());
        let mut got = vec![0; want.len()];
        dram.read(addr, &mut got).unwrap();
        assert_eq!(got, want, "at {addr:#x}");
    }
}

#[test]
fn minions_of_the_recorded_program_agree() {
    minions_agree(MemoryModel::Flat);
    minions_agree(MemoryModel::Private);
}
