#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod driver;
mod expression;
mod place;
mod scan;
mod statement;
mod translate;

pub use driver::{REAL_ASSEMBLER, assembler, run};
pub use translate::{Diagnostic, Translation, Translator};
