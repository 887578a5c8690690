//! From assembly with vendor instructions to assembly without.

use std::collections::{HashMap, HashSet};
use std::fmt;

use et_isa::{Class, Error, INSTRUCTIONS, Instruction, csr, split};

use crate::expression::evaluate;
use crate::place::Places;
use crate::scan::{Piece, Scanner, labels_end, plain};
use crate::statement::{self, Operand};

/// A mistake in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File and line of the statement.
    pub place: (String, u64),
    /// File and line of the compiler's source that it is for, if the statement is not in it.
    pub from: Option<(String, u64)>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = &self.place;
        write!(f, "{file}:{line}: Error: {}", self.message)?;
        if let Some((file, line)) = &self.from {
            write!(f, "\n{file}:{line}: note: the code is for this line")?;
        }
        Ok(())
    }
}

/// Translates files one after the other, as parts of one source.
pub struct Translator {
    vendor: HashMap<&'static str, &'static Instruction>,
    symbols: HashMap<String, i64>,
    /// Names that the source has given to macros.
    macros: HashSet<String>,
    output: Vec<u8>,
    diagnostics: Vec<Diagnostic>,
    changed: bool,
}

impl fmt::Debug for Translator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translator").field("changed", &self.changed).finish_non_exhaustive()
    }
}

/// What became of a source.
#[derive(Debug)]
pub struct Translation {
    /// The source for a stock assembler, line by line at the same numbers.
    pub source: Vec<u8>,
    /// Mistakes; the source is of no use if there are any.
    pub diagnostics: Vec<Diagnostic>,
    /// `false` if nothing had to be translated.
    pub changed: bool,
}

impl Translator {
    /// Creates one; symbols are those defined on the command line.
    #[must_use]
    pub fn new(symbols: HashMap<String, i64>) -> Self {
        let vendor = INSTRUCTIONS.iter().filter(|instruction| instruction.is_vendor());
        Self {
            vendor: vendor.map(|instruction| (instruction.mnemonic(), instruction)).collect(),
            symbols,
            macros: HashSet::new(),
            output: Vec::new(),
            diagnostics: Vec::new(),
            changed: false,
        }
    }

    /// Adds a file.
    pub fn add(&mut self, name: &str, source: &[u8]) {
        let mut places = Places::new(name);
        // Preprocessed sources say themselves where their lines are from.
        if !source.starts_with(b"# ") {
            self.output.extend_from_slice(format!("# 1 \"{name}\"\n").as_bytes());
        }
        let mut scanner = Scanner::default();
        for line in source.split_inclusive(|&byte| byte == b'\n') {
            let (text, end) = match line.split_last() {
                Some((b'\n', text)) => (text, &b"\n"[..]),
                _ => (line, &b""[..]),
            };
            places.start_line(text);
            for piece in scanner.split(text) {
                match piece {
                    Piece::Other(bytes) => self.output.extend_from_slice(bytes),
                    Piece::Statement(bytes) => self.statement(bytes, &mut places),
                }
            }
            self.output.extend_from_slice(end);
        }
        if !source.ends_with(b"\n") {
            self.output.push(b'\n');
        }
    }

    /// Ends the source.
    #[must_use]
    pub fn finish(self) -> Translation {
        Translation { source: self.output, diagnostics: self.diagnostics, changed: self.changed }
    }

    fn statement(&mut self, bytes: &[u8], places: &mut Places) {
        let start = labels_end(bytes);
        let (labels, rest) = bytes.split_at(start);
        let Some(text) = plain(rest) else {
            self.output.extend_from_slice(bytes);
            return;
        };
        let text = text.trim();
        let (word, operands) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let operands = operands.trim();
        let replaced = match self.vendor.get(word) {
            Some(instruction) if !self.macros.contains(word) => {
                Some(self.instruction(instruction, operands).unwrap_or_else(|message| {
                    let message = format!("{message} in `{}'", text.trim_end());
                    self.diagnostics.push(places.diagnostic(message));
                    String::new()
                }))
            }
            _ => {
                self.note(word, operands, text, places);
                with_csr_number(word, operands)
            }
        };
        match replaced {
            Some(text) => {
                self.changed = true;
                self.output.extend_from_slice(labels);
                self.output.extend_from_slice(text.as_bytes());
                self.output.extend_from_slice(&rest[rest.trim_ascii_end().len()..]);
            }
            None => self.output.extend_from_slice(bytes),
        }
    }

    /// Keeps what later statements depend on.
    fn note(&mut self, word: &str, operands: &str, text: &str, places: &mut Places) {
        match word {
            ".set" | ".equ" | ".equiv" => {
                if let Some((name, value)) = operands.split_once(',') {
                    self.define(name.trim(), value);
                }
            }
            ".macro" => {
                let name = operands.split([' ', '\t', ',']).next().unwrap_or_default();
                self.macros.insert(name.to_owned());
            }
            ".file" | ".loc" => places.directive(word, operands),
            _ => {
                if let Some((name, value)) = text.split_once('=')
                    && name.trim().bytes().all(crate::expression::is_symbol_byte)
                {
                    self.define(name.trim(), value.trim_start_matches('='));
                }
            }
        }
    }

    fn define(&mut self, name: &str, value: &str) {
        match evaluate(value.trim(), &|name| self.symbols.get(name).copied()) {
            Some(value) => drop(self.symbols.insert(name.to_owned(), value)),
            None => drop(self.symbols.remove(name)),
        }
    }

    fn instruction(&self, instruction: &Instruction, text: &str) -> Result<String, String> {
        let texts = split(instruction, text).map_err(|error| match error {
            Error::Operand { index } => {
                format!("operand {} is not an address in parentheses", index + 1)
            }
            other => other.to_string(),
        })?;
        let mut operands = Vec::new();
        for (operand, text) in instruction.operands().iter().zip(texts) {
            let index = operands.len() + 1;
            operands.push(match text {
                None => match operand.default_value() {
                    Some(value) => Operand::Known(value),
                    None => return Err(format!("operand {index} is missing")),
                },
                Some(text) => self.operand(operand, text, index)?,
            });
        }
        statement::write(instruction, &operands)
    }

    fn operand<'a>(
        &self,
        operand: &et_isa::Operand,
        text: &'a str,
        index: usize,
    ) -> Result<Operand<'a>, String> {
        if let Some(value) = operand.parse(text) {
            return Ok(Operand::Known(value));
        }
        let is_number =
            matches!(operand.class(), Class::Signed | Class::Unsigned | Class::Bits | Class::Upper);
        if is_number {
            let value = evaluate(text, &|name| self.symbols.get(name).copied());
            return Ok(value.map_or(Operand::Later(text), Operand::Known));
        }
        // A register that a macro is called with.
        if text.contains('\\') {
            return Ok(Operand::Later(text));
        }
        let wanted = match operand.class() {
            Class::Integer => "an integer register",
            Class::Float => "a float register",
            Class::Mask => "a mask register, m0 to m7",
            _ => "a rounding mode (rne, rtz, rdn, rup, rmm or dyn)",
        };
        Err(format!("operand {index}, `{text}', is not {wanted}"))
    }
}

/// Replaces the name of a vendor's register by its number.
fn with_csr_number(word: &str, operands: &str) -> Option<String> {
    let index = match word {
        "csrr" | "csrrw" | "csrrs" | "csrrc" | "csrrwi" | "csrrsi" | "csrrci" => 1,
        "csrw" | "csrs" | "csrc" | "csrwi" | "csrsi" | "csrci" => 0,
        _ => return None,
    };
    let mut parts: Vec<_> = operands.split(',').map(|part| part.trim().to_owned()).collect();
    let part = parts.get_mut(index)?;
    let register = csr::by_name(part).filter(|csr| csr.is_vendor())?;
    *part = format!("{:#x}", register.number);
    Some(format!("{word} {}", parts.join(", ")))
}
