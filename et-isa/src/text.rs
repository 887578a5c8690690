//! From instructions to text.

use core::fmt;

use crate::operand::Place;
use crate::{Class, Decoded, Operand, csr, names};

/// The assembly text of an instruction.
///
/// What is printed can be read back by [`assemble`](crate::assemble). Jumps are printed as
/// distances from the instruction, or as addresses if its own is known. A word in which bits are
/// set that the device ignores is printed as data, with the instruction behind it as a comment.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    decoded: Decoded,
    pc: Option<u64>,
}

impl Text {
    pub(crate) const fn new(decoded: Decoded) -> Self {
        Self { decoded, pc: None }
    }

    /// The same for an instruction at an address: jumps are printed as addresses.
    #[must_use]
    pub const fn at(self, pc: u64) -> Self {
        Self { pc: Some(pc), ..self }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instruction = self.decoded.instruction();
        f.write_str(instruction.mnemonic())?;
        let operands = instruction.operands();
        let mut before = " ";
        for (operand, value) in operands.iter().zip(self.decoded.values()) {
            let is_address = operand.place == Place::Base;
            f.write_str(match (is_address, before) {
                (true, "") => "(",
                (true, " ") => " (",
                (true, _) => ", (",
                (false, before) => before,
            })?;
            self.write_operand(f, *operand, value)?;
            if is_address {
                f.write_str(")")?;
            }
            before = if operand.place == Place::BeforeBase { "" } else { ", " };
        }
        Ok(())
    }

    fn write_operand(
        &self,
        f: &mut fmt::Formatter<'_>,
        operand: Operand,
        value: i64,
    ) -> fmt::Result {
        let named = match operand.class() {
            Class::Integer | Class::IntegerNear | Class::StackPointer => {
                names::integer_register(value)
            }
            Class::Float => names::float_register(value),
            Class::Mask => names::mask_register(value),
            Class::Rounding => names::rounding(value),
            Class::Csr => u32::try_from(value).ok().and_then(csr::by_number).map(|csr| csr.name),
            Class::Accesses => return write_accesses(f, value),
            Class::Target => {
                return match (self.pc, value) {
                    (Some(pc), _) => write!(f, "{:#x}", pc.wrapping_add_signed(value)),
                    (None, 0) => f.write_str("."),
                    (None, _) => write!(f, ".{value:+}"),
                };
            }
            Class::Upper => return write!(f, "{:#x}", value & 0xF_FFFF),
            Class::Bits => return write!(f, "{value:#x}"),
            Class::Signed | Class::Unsigned => return write!(f, "{value}"),
        };
        match named {
            Some(name) => f.write_str(name),
            None => write!(f, "{value:#x}"),
        }
    }
}

fn write_accesses(f: &mut fmt::Formatter<'_>, set: i64) -> fmt::Result {
    if set == 0 {
        return f.write_str("0");
    }
    for (letter, bit) in [("i", 8), ("o", 4), ("r", 2), ("w", 1)] {
        if set & bit != 0 {
            f.write_str(letter)?;
        }
    }
    Ok(())
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.decoded.is_canonical() {
            let word = self.decoded.word();
            match self.decoded.instruction().len_bytes() {
                2 => write!(f, ".2byte {word:#06x} # ")?,
                _ => write!(f, ".4byte {word:#010x} # ")?,
            }
        }
        self.write(f)
    }
}
