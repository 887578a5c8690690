//! Compiling kernels for the ET-SoC-1 with a stock RISC-V compiler and the device SDK.

mod compile;
mod toolchain;

pub use compile::{Call, Compiler, Library, Options, driver, has_extension, links, result};
pub use toolchain::language;
