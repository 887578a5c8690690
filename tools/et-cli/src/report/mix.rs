//! What kinds of instructions a kernel's code consists of.

use et_isa::{Class, Decoded, csr};

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
    "not decoded",
];

/// Instructions of each kind, without kinds of which there are none.
pub(super) fn of_file(bytes: &[u8]) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let (sections, _) = elf::sections(bytes)?;
    let mut counts = KINDS.map(|kind| (kind, 0));
    for line in sections.iter().flat_map(|code| code.lines().collect::<Vec<_>>()) {
        let kind = match line.decode() {
            Some(decoded) => kind(&decoded.expand()),
            None if line.is_data => continue,
            None => "not decoded",
        };
        if let Some((_, count)) = counts.iter_mut().find(|(other, _)| *other == kind) {
            *count += 1;
        }
    }
    Ok(counts.into_iter().filter(|(_, count)| *count != 0).collect())
}

fn kind(decoded: &Decoded) -> &'static str {
    let instruction = decoded.instruction();
    let name = instruction.mnemonic();
    let base = name.split('.').next().unwrap_or(name);
    let operand = instruction.operands().iter().find(|operand| operand.class() == Class::Csr);
    if let Some(operand) = operand {
        let number = u32::try_from(operand.value(decoded.word())).ok();
        let register = number.and_then(csr::by_number);
        let is_tensor = register.is_some_and(|register| register.name.starts_with("tensor_"));
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
            assert_eq!(kind(&et_isa::decode(word).unwrap()), expected, "{text}");
        }
    }
}
