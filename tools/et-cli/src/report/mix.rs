//! What kinds of instructions a kernel's code consists of, and which were executed.

use et_isa::csr::{self, Csr};
use et_isa::{Class, Decoded, Instruction};

use crate::elf;

/// Kinds, in the order of the page.
const KINDS: [&str; 9] = [
    "integer",
    "load and store",
    "branch and jump",
    "scalar float",
    "packed vector",
    "tensor unit",
    "atomic",
    "registers and fences",
    NOT_DECODED,
];
const NOT_DECODED: &str = "not decoded";

/// Instructions by kind, of a kernel.
pub(super) type Mix = (String, Counts);
/// Instructions of each kind, without kinds of which there are none.
pub(super) type Counts = Vec<(&'static str, u64)>;

/// What the code in a file consists of.
pub(super) fn of_file(bytes: &[u8]) -> anyhow::Result<Counts> {
    let (sections, _) = elf::sections(bytes)?;
    let lines = sections.iter().flat_map(|code| code.lines().collect::<Vec<_>>());
    Ok(sums(lines.filter_map(|line| match line.decode() {
        Some(decoded) => Some((of_code(&decoded.expand()), 1)),
        None if line.is_data => None,
        None => Some((NOT_DECODED, 1)),
    })))
}

/// What was executed, by kind: names are mnemonics, followed by a register if it is accessed.
pub(super) fn of_counts(executed: &[(String, u64)]) -> Counts {
    sums(executed.iter().map(|(name, count)| {
        let mut words = name.split(' ');
        let instruction = words.next().and_then(Instruction::find);
        let csr = words.next().and_then(csr::by_name);
        (instruction.map_or(NOT_DECODED, |instruction| kind(instruction, csr)), *count)
    }))
}

fn sums(kinds: impl Iterator<Item = (&'static str, u64)>) -> Counts {
    let mut sums = KINDS.map(|kind| (kind, 0));
    for (kind, count) in kinds {
        if let Some((_, sum)) = sums.iter_mut().find(|(other, _)| *other == kind) {
            *sum += count;
        }
    }
    sums.into_iter().filter(|(_, sum)| *sum != 0).collect()
}

fn of_code(decoded: &Decoded) -> &'static str {
    let operands = decoded.instruction().operands();
    let operand = operands.iter().find(|operand| operand.class() == Class::Csr);
    let number = operand.and_then(|operand| u32::try_from(operand.value(decoded.word())).ok());
    kind(decoded.instruction(), number.and_then(csr::by_number))
}

fn kind(instruction: &Instruction, csr: Option<&Csr>) -> &'static str {
    let name = instruction.mnemonic();
    let base = name.split('.').next().unwrap_or(name);
    if instruction.operands().iter().any(|operand| operand.class() == Class::Csr) {
        let is_tensor = csr.is_some_and(|csr| csr.name.starts_with("tensor_"));
        return if is_tensor { "tensor unit" } else { "registers and fences" };
    }
    let is_packed = [".ps", ".pi", ".m.x", ".x.m"].iter().any(|end| name.contains(end))
        || name.starts_with("mask");
    match base {
        _ if base.starts_with("amo") || base.starts_with("famo") => "atomic",
        "lb" | "lbu" | "lh" | "lhu" | "lw" | "lwu" | "ld" | "sb" | "sh" | "sw" | "sd" | "flw"
        | "fsw" | "flq2" | "fsq2" | "sbg" | "sbl" | "shg" | "shl" => "load and store",
        "beq" | "bne" | "blt" | "bltu" | "bge" | "bgeu" | "jal" | "jalr" => "branch and jump",
        "fence" | "ecall" | "ebreak" | "wfi" | "mret" | "sret" | "sfence" | "pause" => {
            "registers and fences"
        }
        _ if is_packed => "packed vector",
        _ if base.starts_with('f') => "scalar float",
        _ => "integer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_kind_that_readers_expect() {
        for (text, expected) in [
            ("add a0, a1, a2", "integer"),
            ("ld a0, 8(sp)", "load and store"),
            ("fence", "registers and fences"),
            ("jalr zero, 0(ra)", "branch and jump"),
            ("fadd.s ft0, ft1, ft2", "scalar float"),
            ("fmul.ps ft0, ft1, ft2", "packed vector"),
            ("amoaddg.d a0, a1, (a2)", "atomic"),
            ("csrrw zero, tensor_fma, a0", "tensor unit"),
            ("csrrs a0, hartid, zero", "registers and fences"),
        ] {
            let word = et_isa::assemble(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let decoded = et_isa::decode(word).unwrap();
            assert_eq!(of_code(&decoded), expected, "{text}");
            // Counted by name it is of the same kind.
            let csr = text.split([' ', ',']).find(|word| csr::by_name(word).is_some());
            let mnemonic = decoded.instruction().mnemonic();
            let name = csr.map_or(mnemonic.to_owned(), |csr| format!("{mnemonic} {csr}"));
            assert_eq!(of_counts(&[(name, 7)]), [(expected, 7)], "{text}");
        }
        assert_eq!(of_counts(&[("of a later table".to_owned(), 1)]), [(NOT_DECODED, 1)]);
    }
}
