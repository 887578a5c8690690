//! From text to instructions.

use core::fmt;

use crate::operand::{Place, number};
use crate::{Instruction, MAX_OPERANDS, ValueError};

/// Why a line cannot be assembled. Operands count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No instruction has this mnemonic.
    Unknown,
    /// The number of operands is wrong.
    Operands {
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// An operand is not of the kind that the instruction takes.
    Operand {
        /// Which one.
        index: usize,
    },
    /// An operand has a value that cannot be encoded.
    Value {
        /// Which one.
        index: usize,
        /// Why not.
        error: ValueError,
    },
    /// The operands make it a reserved encoding, or that of another instruction.
    Reserved,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown instruction"),
            Self::Operands { expected, found } => {
                write!(f, "{found} operands instead of {expected}")
            }
            Self::Operand { index } => write!(f, "operand {} is of the wrong kind", index + 1),
            Self::Value { index, error } => write!(f, "operand {} {error}", index + 1),
            Self::Reserved => f.write_str("reserved encoding"),
        }
    }
}

impl core::error::Error for Error {}

/// Assembles one instruction without labels and expressions, or `.2byte` and `.4byte` with one
/// number. A comment starts at `#`.
///
/// # Errors
/// An [`Error`] if it is not an instruction of the device.
pub fn assemble(line: &str) -> Result<u32, Error> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let (mnemonic, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    if matches!(mnemonic, ".2byte" | ".4byte") {
        let word = number(rest.trim()).and_then(|word| u32::try_from(word).ok());
        return word.ok_or(Error::Operand { index: 0 });
    }
    let instruction = Instruction::find(mnemonic).ok_or(Error::Unknown)?;
    let texts = split(instruction, rest)?;
    let mut values = [0; MAX_OPERANDS];
    for (index, (operand, text)) in instruction.operands.iter().zip(texts).enumerate() {
        let value = match text {
            None => operand.default_value(),
            Some(text) => operand.parse(text),
        };
        values[index] = value.ok_or(Error::Operand { index })?;
    }
    instruction.encode(&values[..instruction.operands.len()])
}

/// Splits the operands of an instruction; `None` for those left out.
///
/// # Errors
/// [`Error::Operands`] if there are too few or too many, [`Error::Operand`] if one should be an
/// address in parentheses and is not.
pub fn split<'a>(
    instruction: &Instruction,
    text: &'a str,
) -> Result<[Option<&'a str>; MAX_OPERANDS], Error> {
    let mut texts = [None; MAX_OPERANDS];
    let mut pieces = Pieces { rest: Some(text.trim()).filter(|text| !text.is_empty()) };
    let operands = instruction.operands;
    let total = pieces.count_all();
    let written = operands.iter().filter(|operand| operand.place != Place::BeforeBase).count();
    let wrong = Error::Operands { expected: written, found: total };
    let mut index = 0;
    while index < operands.len() {
        let operand = operands[index];
        let Some(piece) = pieces.next() else {
            // Only the last ones can be left out.
            if operands[index..].iter().all(|operand| operand.is_optional()) {
                break;
            }
            return Err(wrong);
        };
        match operand.place {
            Place::Plain => texts[index] = Some(piece),
            Place::Base => {
                let (before, base) = address(piece).ok_or(Error::Operand { index })?;
                // Without an offset in the encoding, the offset can be 0 only.
                if !before.is_empty() && number(before) != Some(0) {
                    return Err(Error::Operand { index });
                }
                texts[index] = Some(base);
            }
            Place::BeforeBase => {
                let (before, base) = address(piece).ok_or(Error::Operand { index })?;
                texts[index] = Some(before).filter(|before| !before.is_empty());
                index += 1;
                texts[index] = Some(base);
            }
        }
        index += 1;
    }
    if pieces.next().is_some() { Err(wrong) } else { Ok(texts) }
}

/// Splits `offset(base)`.
fn address(piece: &str) -> Option<(&str, &str)> {
    let inner = piece.strip_suffix(')')?;
    // The base is a register: the last parenthesis that opens is its own.
    let open = inner.rfind('(')?;
    Some((inner[..open].trim(), inner[open + 1..].trim()))
}

/// The parts of a text between commas that are not in parentheses.
#[derive(Clone, Copy)]
struct Pieces<'a> {
    rest: Option<&'a str>,
}

impl<'a> Pieces<'a> {
    fn count_all(self) -> usize {
        let mut all = self;
        let mut count = 0;
        while all.next().is_some() {
            count += 1;
        }
        count
    }

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        let mut depth = 0_u32;
        let end = rest.bytes().position(|byte| {
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            byte == b',' && depth == 0
        });
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(rest[..end.unwrap_or(rest.len())].trim())
    }
}
