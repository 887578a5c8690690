#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(test)]
extern crate std;

mod assemble;
pub mod csr;
mod decode;
mod fault;
mod names;
pub mod operand;
mod race;
mod table;
mod text;

pub use assemble::{Error, assemble, split};
pub use decode::{Decoded, decode, words};
pub use fault::{Access, MemoryFault, Violation};
pub use names::{float_register, integer_register};
pub use operand::{Class, Operand, ValueError};
pub use race::{Race, RaceKind};
pub use table::{INSTRUCTIONS, Id};
pub use text::Text;

/// Most operands that an instruction has.
pub const MAX_OPERANDS: usize = 5;

/// What the device does with an instruction in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// Executes it.
    Hardware,
    /// Traps with cause 30: the hardware leaves it to microcode that does not exist. Spec: ISA §1.5
    Microcoded,
    /// Traps with cause 2: graphics is switched off. Spec: ISA §3.10
    Graphics,
    /// Traps with cause 2: of a higher mode.
    Privileged,
}

/// Where an operand of a 32-bit instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The operand with this number of the 16-bit instruction.
    Of(usize),
    /// This value.
    Always(i64),
}

/// The 32-bit instruction with the same effect as a 16-bit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expansion {
    to: Id,
    sources: &'static [Source],
}

/// An instruction of the device.
#[derive(Debug, PartialEq, Eq)]
pub struct Instruction {
    pub(crate) id: Id,
    pub(crate) mnemonic: &'static str,
    pub(crate) mask: u32,
    pub(crate) value: u32,
    pub(crate) operands: &'static [Operand],
    pub(crate) support: Support,
    pub(crate) expansion: Option<Expansion>,
}

impl Instruction {
    /// Returns which one it is.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.id
    }

    /// Returns its name in assembly.
    #[must_use]
    pub const fn mnemonic(&self) -> &'static str {
        self.mnemonic
    }

    /// Returns the bits by which it is known.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Returns what those bits are.
    #[must_use]
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// Returns its operands in the order of the assembler.
    #[must_use]
    pub const fn operands(&self) -> &'static [Operand] {
        self.operands
    }

    /// Returns what the device does with it.
    #[must_use]
    pub const fn support(&self) -> Support {
        self.support
    }

    /// Returns its length in bytes, 2 or 4.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        if self.value & 3 == 3 { 4 } else { 2 }
    }

    /// Returns `true` if a stock assembler does not know it.
    #[must_use]
    pub fn is_vendor(&self) -> bool {
        // Between the first and the last in the table there is nothing else.
        (Id::AmoaddlW..Id::CAddi4spn).contains(&self.id)
    }

    /// Finds an instruction by its mnemonic.
    #[must_use]
    pub fn find(mnemonic: &str) -> Option<&'static Self> {
        INSTRUCTIONS.iter().find(|instruction| instruction.mnemonic == mnemonic)
    }

    /// Encodes it with the given values of its operands.
    ///
    /// # Errors
    /// [`Error::Operands`] if their number is wrong, [`Error::Value`] if one cannot be encoded,
    /// [`Error::Reserved`] if together they mean another instruction.
    pub fn encode(&self, values: &[i64]) -> Result<u32, Error> {
        if values.len() != self.operands.len() {
            return Err(Error::Operands { expected: self.operands.len(), found: values.len() });
        }
        let mut word = self.value;
        for (index, (operand, &value)) in self.operands.iter().zip(values).enumerate() {
            word |= operand.encode(value).map_err(|error| Error::Value { index, error })?;
        }
        match decode(word) {
            Some(decoded) if decoded.instruction().id == self.id => Ok(word),
            _ => Err(Error::Reserved),
        }
    }
}
