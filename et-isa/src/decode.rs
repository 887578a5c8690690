//! From words to instructions.

use crate::table::{INSTRUCTIONS, Id};
use crate::{Instruction, Source, Support, Text};

/// Bits 6:2 of 32-bit instructions, then the quadrants of 16-bit ones.
const GROUPS: usize = 32 + 3;
const COUNT: usize = INSTRUCTIONS.len();

/// Which group of instructions a word belongs to.
const fn group(word: u32) -> usize {
    match word & 3 {
        3 => (word >> 2 & 31) as usize,
        quadrant => 32 + quadrant as usize,
    }
}

/// The instructions by group, in the order of the table.
struct Index {
    numbers: [u16; COUNT],
    /// Where each group starts in the numbers.
    starts: [usize; GROUPS + 1],
}

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 65536")]
const fn index() -> Index {
    let mut index = Index { numbers: [0; COUNT], starts: [0; GROUPS + 1] };
    let (mut group_number, mut next) = (0, 0);
    while group_number < GROUPS {
        index.starts[group_number] = next;
        let mut row = 0;
        while row < COUNT {
            if group(INSTRUCTIONS[row].value) == group_number {
                index.numbers[next] = row as u16;
                next += 1;
            }
            row += 1;
        }
        group_number += 1;
    }
    index.starts[GROUPS] = next;
    index
}

static INDEX: Index = index();

/// An instruction with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    instruction: &'static Instruction,
    word: u32,
}

/// Decodes the instruction in the low bits of a word; `None` if there is none.
///
/// It is as strict as the device: what is not decoded is an illegal instruction there. The upper
/// half of the word does not matter if the instruction has 16 bits.
#[must_use]
pub fn decode(word: u32) -> Option<Decoded> {
    let word = if word & 3 == 3 { word } else { word & 0xFFFF };
    let group = group(word);
    INDEX.numbers[INDEX.starts[group]..INDEX.starts[group + 1]]
        .iter()
        .map(|&number| &INSTRUCTIONS[usize::from(number)])
        .find(|instruction| instruction.matches(word))
        .map(|instruction| Decoded { instruction, word })
}

impl Instruction {
    /// Returns `true` if a word is this instruction.
    #[must_use]
    fn matches(&self, word: u32) -> bool {
        // Instructions that trap do so whatever their operands are.
        let mut operands = self.operands.iter();
        word & self.mask == self.value
            && (self.support == Support::Microcoded
                || operands.all(|operand| operand.is_legal(word)))
    }
}

impl Id {
    /// Returns the row of the table.
    #[must_use]
    pub fn instruction(self) -> &'static Instruction {
        &INSTRUCTIONS[self as usize]
    }

    /// Returns the instruction with a number; `None` if there is none.
    #[inline(always)]
    #[must_use]
    pub fn from_number(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }
}

impl Decoded {
    /// Returns the row of the table.
    #[must_use]
    pub const fn instruction(&self) -> &'static Instruction {
        self.instruction
    }

    /// Returns which instruction it is.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.instruction.id
    }

    /// Returns its bits; the upper half of 16-bit instructions is 0.
    #[must_use]
    pub const fn word(&self) -> u32 {
        self.word
    }

    /// Returns the values of its operands, in the order of the assembler.
    pub fn values(&self) -> impl Iterator<Item = i64> + use<> {
        let word = self.word;
        self.instruction.operands.iter().map(move |operand| operand.value(word).into())
    }

    /// Returns `true` if the assembler gives this word for the instruction's text.
    ///
    /// Others have bits set that the device ignores.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        let mut word = self.instruction.value;
        for (operand, value) in self.instruction.operands.iter().zip(self.values()) {
            match operand.encode(value) {
                Ok(bits) => word |= bits,
                Err(_) => return false,
            }
        }
        word == self.word
    }

    /// Returns the address that it jumps to if it is at `pc`; `None` if it does not jump, or to an
    /// address in a register.
    #[must_use]
    pub fn target(&self, pc: u64) -> Option<u64> {
        let operands = self.instruction.operands;
        let index = operands.iter().position(|operand| operand.class() == crate::Class::Target)?;
        Some(pc.wrapping_add_signed(operands[index].value(self.word).into()))
    }

    /// Returns the 32-bit instruction with the same effect; itself if it has 32 bits.
    #[must_use]
    pub fn expand(&self) -> Self {
        let Some(expansion) = self.instruction.expansion else { return *self };
        let to = expansion.to.instruction();
        let operands = self.instruction.operands;
        let mut word = to.value;
        for (operand, source) in to.operands.iter().zip(expansion.sources) {
            let value = match *source {
                Source::Of(index) => operands[index].value(self.word).into(),
                Source::Always(value) => value,
            };
            // A 32-bit instruction takes whatever a 16-bit one can name.
            word |= operand.encode(value).unwrap_or_default();
        }
        Self { instruction: to, word }
    }

    /// Returns its assembly text.
    #[must_use]
    pub const fn text(&self) -> Text {
        Text::new(*self)
    }
}

/// Takes code apart: offset in bytes, and the word there, whose upper half is 0 for 16-bit
/// instructions. A first half without its second at the end of the code counts as 16 bits.
pub fn words(code: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    let half =
        |at: usize| Some(u32::from(u16::from_le_bytes([*code.get(at)?, *code.get(at + 1)?])));
    let mut next = 0;
    core::iter::from_fn(move || {
        let at = next;
        let low = half(at)?;
        let high = if low & 3 == 3 { half(at + 2) } else { None };
        next = at + if high.is_some() { 4 } else { 2 };
        Some((at, low | high.unwrap_or_default() << 16))
    })
}
