//! How often each instruction was executed.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use et_isa::csr::{CSRS, Csr};
use et_isa::{Id, Instruction, operand};

/// Instructions that access a control and status register: each register counts by itself.
const ACCESSES: [Id; 6] = [Id::Csrrw, Id::Csrrs, Id::Csrrc, Id::Csrrwi, Id::Csrrsi, Id::Csrrci];
const INSTRUCTIONS: usize = Id::ALL.len();
/// Numbers of [`Counted`]s: first those of instructions, then those of accesses by register.
const NUMBERS: usize = INSTRUCTIONS + ACCESSES.len() * CSRS_LEN;
const CSRS_LEN: usize = CSRS.len();

/// What a [`Histogram`] counts: a mnemonic, with the register if it accesses one, since `csrrw`
/// alone says nothing of a tensor unit that is started by such accesses.
///
/// An instruction of 16 bits counts as the one of 32 bits that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    instruction: &'static Instruction,
    csr: Option<&'static Csr>,
}

impl Counted {
    /// Returns the instruction.
    #[must_use]
    pub const fn instruction(&self) -> &'static Instruction {
        self.instruction
    }

    /// Returns the register that it accesses, if it accesses one.
    #[must_use]
    pub const fn csr(&self) -> Option<&'static Csr> {
        self.csr
    }

    fn of_number(number: usize) -> Option<Self> {
        let Some(access) = number.checked_sub(INSTRUCTIONS) else {
            return Id::from_number(number)
                .map(|id| Self { instruction: id.instruction(), csr: None });
        };
        let id = ACCESSES.get(access / CSRS_LEN)?;
        let csr = CSRS.get(access % CSRS_LEN)?;
        Some(Self { instruction: id.instruction(), csr: Some(csr) })
    }
}

/// As in a listing, without operands: `fmadd.ps`, or `csrrw tensor_fma`.
impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instruction, csr } = self;
        match csr {
            Some(csr) => f.pad(&format!("{} {}", instruction.mnemonic(), csr.name)),
            None => f.pad(instruction.mnemonic()),
        }
    }
}

/// The number under which an instruction counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u16);

impl Number {
    /// Returns the number of the instruction in the low bits of a word; none if there is none.
    pub(crate) fn of(raw: u32) -> Option<Self> {
        let found = et_isa::decode(raw)?.expand();
        let mut number = found.id() as usize;
        if let Some(access) = ACCESSES.iter().position(|&access| access == found.id()) {
            let register = u32::try_from(operand::CSR.value(found.word())).ok()?;
            let index = CSRS.binary_search_by_key(&register, |csr| csr.number).ok()?;
            number = INSTRUCTIONS + access * CSRS_LEN + index;
        }
        u16::try_from(number).ok().map(Self)
    }

    /// Returns the number of the instruction for which the firmware did something, after a trap
    /// with this value.
    pub(crate) fn of_trap(tval: u64) -> Option<Self> {
        match u32::try_from(tval).ok()? {
            // An environment call, which has no value.
            0 => Some(Self(Id::Ecall as u16)),
            raw => Self::of(raw),
        }
    }

    /// The number as bits; 0 is none.
    pub(crate) fn bits(this: Option<Self>) -> u16 {
        this.map_or(0, |Self(number)| number + 1)
    }

    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        bits.checked_sub(1).map(Self)
    }
}

/// Counters of one host thread. Others read them when it is done.
#[derive(Debug)]
pub(crate) struct Counters(Box<[AtomicU64]>);

impl Counters {
    pub(crate) fn new() -> Self {
        Self((0..NUMBERS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts an instruction that is about to be executed.
    #[inline]
    pub(crate) fn add(&self, Number(number): Number) {
        self.change(number, 1);
    }

    /// Takes back that an instruction was counted, because it had no effect.
    pub(crate) fn take_back(&self, Number(number): Number) {
        self.change(number, u64::MAX);
    }

    #[inline]
    fn change(&self, number: u16, by: u64) {
        if let Some(counter) = self.0.get(usize::from(number)) {
            // Only one thread writes, so nothing comes between.
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }
}

/// How often each instruction was executed, by all harts together.
///
/// An instruction that trapped, or waits, was not executed. The sum is
/// [`LaunchReport::instructions`](crate::LaunchReport::instructions), which is also the simulated
/// time of [`Timing::Deterministic`](crate::Timing::Deterministic): so the shares are those of
/// simulated time.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By [`Number`]; empty if nothing was counted.
    counts: Vec<u64>,
}

impl Histogram {
    pub(crate) fn of(counters: &[Counters]) -> Self {
        let count = |number: usize| {
            let counts = counters.iter().filter_map(|Counters(counters)| counters.get(number));
            counts.map(|counter| counter.load(Ordering::Relaxed)).sum()
        };
        Self { counts: (0..NUMBERS).map(count).collect() }
    }

    /// Returns what was executed and how often, most frequent first.
    #[must_use]
    pub fn by_count(&self) -> Vec<(Counted, u64)> {
        let executed = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        let mut all: Vec<_> = executed
            .filter_map(|(number, &count)| Some((Counted::of_number(number)?, count)))
            .collect();
        // Stable: those of the same count stay in the order of the instruction set.
        all.sort_by_key(|&(_, count)| Reverse(count));
        all
    }

    /// Returns how many instructions were executed.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.by_count();
        f.debug_map().entries(counts.iter().map(|(what, count)| (what.to_string(), count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        let word = et_isa::assemble(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let Number(number) = Number::of(word).unwrap();
        Counted::of_number(number.into()).unwrap().to_string()
    }

    #[test]
    fn instructions_count_under_their_own_names() {
        for instruction in &et_isa::INSTRUCTIONS {
            let counted = Counted::of_number(instruction.id() as usize).unwrap();
            assert_eq!(counted.to_string(), instruction.mnemonic());
        }
        assert_eq!(name("fmadd.ps f1, f2, f3, f4"), "fmadd.ps");
        assert_eq!(name("c.addi a0, 1"), "addi");
    }

    #[test]
    fn accesses_count_by_register() {
        assert_eq!(name("csrrw zero, tensor_fma, a0"), "csrrw tensor_fma");
        assert_eq!(name("csrrwi zero, tensor_wait, 6"), "csrrwi tensor_wait");
        assert_eq!(name("csrrs a0, mhartid, zero"), "csrrs mhartid");
        assert_eq!(Number::of(0x7C00_2573), None, "a register that does not exist");
        assert_eq!(Number::of(0), None);
    }

    #[test]
    fn bits_keep_numbers_and_their_absence() {
        for number in [None, Some(Number(0)), Number::of_trap(0)] {
            assert_eq!(Number::from_bits(Number::bits(number)), number);
        }
    }

    #[test]
    fn histograms_add_up_and_are_sorted() {
        let (a, b) = (Counters::new(), Counters::new());
        let (addi, lw) = (Number(Id::Addi as u16), Number(Id::Lw as u16));
        a.add(addi);
        b.add(lw);
        b.add(lw);
        b.add(addi);
        b.take_back(addi);
        let mut all = Histogram::default();
        all.merge(&Histogram::of(&[a]));
        all.merge(&Histogram::of(&[b]));
        all.merge(&Histogram::default());
        assert_eq!(all.total(), 3);
        assert_eq!(format!("{all:?}"), r#"{"lw": 2, "addi": 1}"#);
    }
}
