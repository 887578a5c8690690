//! Vendor instructions in the notation of a stock assembler.

use std::fmt::Write;

use et_isa::{Class, Instruction, operand};

/// An operand as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand<'a> {
    /// Its value.
    Known(i64),
    /// Something that only the assembler can tell: a symbol, or a macro's argument.
    Later(&'a str),
}

/// Opcodes from which a stock assembler takes the length to be more than 32 bits.
fn is_long(word: u32) -> bool {
    word & 0x1F == 0x1F
}

/// Writes the statement.
///
/// `.insn` and not a data directive wherever possible, because only an instruction gets a line in
/// the debug information, and only the oldest form of it, which all assemblers have.
pub(crate) fn write(instruction: &Instruction, operands: &[Operand<'_>]) -> Result<String, String> {
    let known: Option<Vec<_>> = operands
        .iter()
        .map(|operand| match operand {
            Operand::Known(value) => Some(*value),
            Operand::Later(_) => None,
        })
        .collect();
    if let Some(values) = known {
        let word = instruction.encode(&values).map_err(|error| error.to_string())?;
        return Ok(if is_long(word) { format!(".4byte {word:#010x}") } else { fields(word, &[]) });
    }
    // The bits of all operands that are known.
    let mut word = instruction.value();
    for (index, (operand, value)) in instruction.operands().iter().zip(operands).enumerate() {
        if let Operand::Known(value) = value {
            let bits = operand.encode(*value);
            word |= bits.map_err(|error| format!("operand {} {error}", index + 1))?;
        }
    }
    let later: Vec<_> = instruction
        .operands()
        .iter()
        .zip(operands)
        .enumerate()
        .filter_map(|(index, (operand, value))| match value {
            Operand::Later(text) => Some((index, *operand, *text)),
            Operand::Known(_) => None,
        })
        .collect();
    if let Some(text) = with_offset(instruction, operands, word) {
        return Ok(text);
    }
    let is_register = |class| matches!(class, Class::Integer | Class::Float);
    if later.iter().all(|(_, operand, _)| is_register(operand.class())) && !is_long(word) {
        let texts: Vec<_> =
            later.iter().map(|(_, operand, text)| (operand.mask(), *text)).collect();
        return Ok(fields(word, &texts));
    }
    if let Some((index, ..)) = later
        .iter()
        .find(|(_, operand, _)| is_register(operand.class()) || operand.class() == Class::Mask)
    {
        return Err(format!("operand {} cannot be a macro's argument", index + 1));
    }
    Ok(computed(word, &later))
}

/// An instruction by its fields; some of them are text.
fn fields(word: u32, texts: &[(u32, &str)]) -> String {
    let register = |operand: operand::Operand| {
        let text = texts.iter().find(|(mask, _)| *mask == operand.mask());
        text.map_or_else(|| format!("x{}", operand.value(word)), |(_, text)| (*text).to_owned())
    };
    let (opcode, funct3) = (word & 0x7F, word >> 12 & 7);
    let (rd, rs1, rs2) = (register(operand::RD), register(operand::RS1), register(operand::RS2));
    if texts.iter().any(|(mask, _)| *mask == operand::FS3.mask()) {
        let (format, rs3) = (word >> 25 & 3, register(operand::FS3));
        return format!(".insn r4 {opcode:#04x}, {funct3}, {format}, {rd}, {rs1}, {rs2}, {rs3}");
    }
    let funct7 = word >> 25;
    format!(".insn r {opcode:#04x}, {funct3}, {funct7:#04x}, {rd}, {rs1}, {rs2}")
}

/// A load or store whose offset the assembler or the linker fills in.
fn with_offset(instruction: &Instruction, operands: &[Operand<'_>], word: u32) -> Option<String> {
    let form = match instruction.operands() {
        [_, offset, _] if *offset == operand::OFFSET => "i",
        [_, offset, _] if *offset == operand::OFFSET_S => "s",
        _ => return None,
    };
    let text = |operand: Operand<'_>, letter: &str| match operand {
        Operand::Known(value) => format!("{letter}{value}"),
        Operand::Later(text) => text.to_owned(),
    };
    let data = text(operands[0], "f");
    let (offset, base) = (text(operands[1], ""), text(operands[2], "x"));
    let (opcode, funct3) = (word & 0x7F, word >> 12 & 7);
    Some(format!(".insn {form} {opcode:#04x}, {funct3}, {data}, {offset}({base})"))
}

/// A word that the assembler computes, after it has checked the values.
fn computed(word: u32, later: &[(usize, operand::Operand, &str)]) -> String {
    let mut text = String::new();
    let mut sum = format!("{word:#010x}");
    for (index, operand, value) in later {
        let (min, max) = operand.range();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            ".if (({value}) < {min}) || (({value}) > {max}); \
             .error \"operand {} is not in {min}..={max}\"; .endif; ",
            index + 1
        );
        for part in operand.parts() {
            let (at, mask, to) = (part.at(), part.mask(), part.to());
            let _ = write!(sum, " | (((({value}) >> {to}) & {mask:#x}) << {at})");
        }
    }
    format!("{text}.4byte {sum}")
}
