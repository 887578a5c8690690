//! Kernels: loading, arguments, launching, and what went wrong.

mod args;
mod builtins;
mod code;
mod context;
mod elf;
mod exception;
mod failure;
mod image;
mod inner;
mod launch;
mod loaded;
mod module;
mod program;
mod signature;
mod symbols;

pub use args::KernelArgs;
pub use builtins::{Builtin, Builtins};
pub use code::CodeLine;
pub use elf::{ElfError, KernelImage};
pub use et_hal::WatchedBuffer;
pub use et_isa::{Access, MemoryFault, Race, RaceKind, Violation};
pub use exception::{Cause, ExceptionKind, HartContext};
pub use failure::{HartGroup, LaunchFailure};
pub use launch::{Launch, MAX_ARGS, UserTrace};
pub use loaded::Kernel;
pub use module::Module;
pub use signature::{ArrayAccess, Parameter, ParameterKind, ScalarType, Signature, SignatureError};
pub use symbols::{Location, Symbols};

pub(crate) use builtins::{FILE as BUILTIN_FILE, check_pattern};
pub(crate) use context::LaunchContext;
pub(crate) use exception::decode_near;
pub(crate) use image::{Image, Images};
pub(crate) use inner::KernelInner;
pub(crate) use launch::{Checked, StackPlan};
pub(crate) use module::{failed, refused};
pub(crate) use program::Program;
