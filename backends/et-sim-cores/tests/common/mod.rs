//! A tiny assembler and a launcher for tests of whole kernels.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "part of tests: constants of their making, and a panic is a failure"
)]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_sim_cores::{Dram, Launch, LaunchReport, Machine, MachineConfig, Stack};

/// Where the tests put code.
pub(crate) const CODE: u64 = 0x80_0600_0000;
/// Where stacks end.
pub(crate) const STACKS_TOP: u64 = 0x80_0580_0000;
/// Where the tests put data.
pub(crate) const DATA: u64 = 0x80_0700_0000;
/// Longer than any test takes unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const ZERO: u32 = 0;
pub(crate) const RA: u32 = 1;
pub(crate) const SP: u32 = 2;
pub(crate) const T0: u32 = 5;
pub(crate) const T1: u32 = 6;
pub(crate) const T2: u32 = 7;
pub(crate) const A0: u32 = 10;
pub(crate) const A1: u32 = 11;
pub(crate) const A2: u32 = 12;
pub(crate) const A3: u32 = 13;
pub(crate) const A4: u32 = 14;
pub(crate) const A5: u32 = 15;

pub(crate) const HARTID: u32 = 0xCD0;
pub(crate) const FLB: u32 = 0x820;
pub(crate) const FCC: u32 = 0x821;
pub(crate) const STALL: u32 = 0x822;

/// Own shire's credit increment for thread 0, counter 0.
pub(crate) const CREDITS: u64 = 0x1_3FF4_00C0;

/// Code under construction: one word per instruction, labels filled in at the end.
#[derive(Clone, Default)]
pub(crate) struct Asm {
    words: Vec<u32>,
    labels: HashMap<&'static str, usize>,
    uses: Vec<(usize, &'static str)>,
}

impl Asm {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn raw(&mut self, word: u32) -> &mut Self {
        self.words.push(word);
        self
    }

    pub(crate) fn label(&mut self, name: &'static str) -> &mut Self {
        self.labels.insert(name, self.words.len());
        self
    }

    fn i(&mut self, opcode: u32, f3: u32, rd: u32, rs1: u32, imm: i32) -> &mut Self {
        assert!((-2048..4096).contains(&imm), "{imm}");
        self.raw((imm as u32) << 20 | rs1 << 15 | f3 << 12 | rd << 7 | opcode)
    }

    pub(crate) fn r(
        &mut self,
        opcode: u32,
        f7: u32,
        f3: u32,
        rd: u32,
        rs1: u32,
        rs2: u32,
    ) -> &mut Self {
        self.raw(f7 << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | rd << 7 | opcode)
    }

    fn s(&mut self, opcode: u32, f3: u32, rs2: u32, rs1: u32, imm: i32) -> &mut Self {
        assert!((-2048..2048).contains(&imm), "{imm}");
        let imm = imm as u32;
        let split = (imm >> 5 & 0x7F) << 25 | (imm & 31) << 7;
        self.raw(split | rs2 << 20 | rs1 << 15 | f3 << 12 | opcode)
    }

    pub(crate) fn addi(&mut self, rd: u32, rs1: u32, imm: i32) -> &mut Self {
        assert!(imm < 2048);
        self.i(0x13, 0, rd, rs1, imm)
    }

    pub(crate) fn andi(&mut self, rd: u32, rs1: u32, imm: i32) -> &mut Self {
        self.i(0x13, 7, rd, rs1, imm)
    }

    pub(crate) fn slli(&mut self, rd: u32, rs1: u32, shift: i32) -> &mut Self {
        self.i(0x13, 1, rd, rs1, shift)
    }

    pub(crate) fn srli(&mut self, rd: u32, rs1: u32, shift: i32) -> &mut Self {
        self.i(0x13, 5, rd, rs1, shift)
    }

    pub(crate) fn add(&mut self, rd: u32, rs1: u32, rs2: u32) -> &mut Self {
        self.r(0x33, 0, 0, rd, rs1, rs2)
    }

    pub(crate) fn xor(&mut self, rd: u32, rs1: u32, rs2: u32) -> &mut Self {
        self.r(0x33, 0, 4, rd, rs1, rs2)
    }

    pub(crate) fn ld(&mut self, rd: u32, rs1: u32, imm: i32) -> &mut Self {
        self.i(0x03, 3, rd, rs1, imm)
    }

    pub(crate) fn sd(&mut self, rs2: u32, rs1: u32, imm: i32) -> &mut Self {
        self.s(0x23, 3, rs2, rs1, imm)
    }

    pub(crate) fn sw(&mut self, rs2: u32, rs1: u32, imm: i32) -> &mut Self {
        self.s(0x23, 2, rs2, rs1, imm)
    }

    pub(crate) fn csrrw(&mut self, rd: u32, csr: u32, rs1: u32) -> &mut Self {
        self.i(0x73, 1, rd, rs1, csr as i32)
    }

    pub(crate) fn csrr(&mut self, rd: u32, csr: u32) -> &mut Self {
        self.i(0x73, 2, rd, ZERO, csr as i32)
    }

    pub(crate) fn csrwi(&mut self, csr: u32, value: u32) -> &mut Self {
        self.i(0x73, 5, ZERO, value, csr as i32)
    }

    pub(crate) fn amoadd_d(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 1, 3, rd, rs1, rs2)
    }

    pub(crate) fn fence(&mut self) -> &mut Self {
        self.raw(0x0FF0_000F)
    }

    pub(crate) fn jr(&mut self, rs1: u32) -> &mut Self {
        self.i(0x67, 0, ZERO, rs1, 0)
    }

    fn to(&mut self, label: &'static str, word: u32) -> &mut Self {
        self.uses.push((self.words.len(), label));
        self.raw(word)
    }

    pub(crate) fn beq(&mut self, rs1: u32, rs2: u32, label: &'static str) -> &mut Self {
        self.to(label, rs2 << 20 | rs1 << 15 | 0x63)
    }

    pub(crate) fn bne(&mut self, rs1: u32, rs2: u32, label: &'static str) -> &mut Self {
        self.to(label, rs2 << 20 | rs1 << 15 | 1 << 12 | 0x63)
    }

    pub(crate) fn blt(&mut self, rs1: u32, rs2: u32, label: &'static str) -> &mut Self {
        self.to(label, rs2 << 20 | rs1 << 15 | 4 << 12 | 0x63)
    }

    pub(crate) fn j(&mut self, label: &'static str) -> &mut Self {
        self.to(label, 0x6F)
    }

    /// Loads any constant, in up to eight instructions.
    pub(crate) fn li(&mut self, rd: u32, value: u64) -> &mut Self {
        let signed = value as i64;
        if (-2048..2048).contains(&signed) {
            return self.addi(rd, ZERO, signed as i32);
        }
        let low = (signed << 52) >> 52;
        self.li(rd, ((signed - low) >> 12) as u64);
        self.slli(rd, rd, 12);
        if low != 0 {
            self.addi(rd, rd, low as i32);
        }
        self
    }

    /// Ends the kernel with a value and a type.
    pub(crate) fn exit(&mut self, value: u64, kind: u64) -> &mut Self {
        self.li(A0, 8).li(A1, value).li(A2, kind).raw(0x73)
    }

    /// Returns how far the code goes.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// Fills in the labels and returns the bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut words = self.words.clone();
        for &(at, label) in &self.uses {
            let target = self.labels[label];
            let offset = ((target as i32) - (at as i32)) * 4;
            let imm = offset as u32;
            words[at] |= if words[at] & 0x7F == 0x63 {
                assert!((-4096..4096).contains(&offset));
                (imm >> 12 & 1) << 31
                    | (imm >> 5 & 0x3F) << 25
                    | (imm >> 1 & 0xF) << 8
                    | (imm >> 11 & 1) << 7
            } else {
                (imm >> 20 & 1) << 31
                    | (imm >> 1 & 0x3FF) << 21
                    | (imm >> 11 & 1) << 20
                    | imm & 0xF_F000
            };
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// A machine with memory.
pub(crate) struct Board {
    pub(crate) dram: Arc<Dram>,
    pub(crate) machine: Arc<Machine>,
    reports: Mutex<Option<Receiver<LaunchReport>>>,
}

impl Board {
    pub(crate) fn new(threads: usize) -> Self {
        let host_threads = NonZeroUsize::new(threads).unwrap();
        Self::with(MachineConfig { host_threads, ..MachineConfig::default() })
    }

    pub(crate) fn with(config: MachineConfig) -> Self {
        let dram = Arc::new(Dram::new(1 << 30).unwrap());
        let machine = Arc::new(Machine::new(config, Arc::clone(&dram)).unwrap());
        Self { dram, machine, reports: Mutex::new(None) }
    }

    /// Puts code at [`CODE`].
    pub(crate) fn load(&self, code: &Asm) -> &Self {
        self.dram.write(CODE, &code.bytes()).unwrap();
        self
    }

    pub(crate) fn launch(&self, shire_mask: u64) -> &Self {
        let stack = Stack { top: STACKS_TOP, bytes_per_hart: 4160, guard_bytes: 0 };
        self.launch_with(shire_mask, stack)
    }

    pub(crate) fn launch_with(&self, shire_mask: u64, stack: Stack) -> &Self {
        let (sender, receiver) = mpsc::channel();
        let launch = Launch { entry: CODE, args: DATA, env: DATA - 64, shire_mask, stack };
        let done = Box::new(move |report| drop(sender.send(report)));
        self.machine.launch(launch, done).unwrap();
        *self.reports.lock().unwrap() = Some(receiver);
        self
    }

    pub(crate) fn wait(&self) -> LaunchReport {
        let receiver = self.reports.lock().unwrap().take().unwrap();
        receiver.recv_timeout(LONG).expect("the kernel ends")
    }

    pub(crate) fn run(&self, code: &Asm, shire_mask: u64) -> LaunchReport {
        self.load(code).launch(shire_mask).wait()
    }

    /// Polls until `done`, and fails after [`LONG`].
    pub(crate) fn until(&self, what: &str, done: impl Fn() -> bool) {
        let started = std::time::Instant::now();
        while !done() {
            assert!(started.elapsed() < LONG, "waited in vain for {what}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn u64(&self, addr: u64) -> u64 {
        let mut bytes = [0; 8];
        self.dram.read(addr, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }
}
