//! What stands in for the translator on processors that it has no code for.

use crate::config::MemoryModel;
use crate::decode::code::CodeCache;
use crate::exec::Env;
use crate::machine::hart::Hart;
use crate::memory::Dram;
use crate::memory::guards::Guards;

/// Instructions that would be interpreted in a page before it is translated.
pub(crate) const HOT: u32 = 0;

/// What a page would know of its translation.
#[derive(Debug)]
pub(crate) struct Native;

impl Native {
    pub(crate) fn new() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as where there is a translator")]
    pub(crate) fn forget(&self) {}
}

/// Where a hart would go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resume;

/// What translated code would need.
#[derive(Debug)]
pub(crate) struct Context;

impl Context {
    pub(crate) fn new(_: &Dram, _: &Guards, _: &CodeCache) -> Self {
        Self
    }
}

/// Translations, of which there are none.
#[derive(Debug)]
pub(crate) enum Store {}

/// What becomes of an attempt to execute translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "as where there is a translator")]
pub(crate) enum Outcome {
    /// So many instructions were executed, and so many more ahead of their turn.
    Executed(u64, u32),
    /// The interpreter is to execute so many.
    Interpret(u64),
    /// The same, and they count for a translation.
    Missing(u64),
}

impl Store {
    pub(crate) fn new(_: MemoryModel, _: u32) -> Option<Self> {
        None
    }

    pub(crate) fn run(&self, _: &mut Hart, _: &Env<'_>, _: usize, _: u64, _: Resume) -> Outcome {
        match *self {}
    }

    pub(crate) fn run_ahead(&self, _: &mut Hart, _: &Env<'_>, _: usize, _: u32) -> u32 {
        match *self {}
    }

    pub(crate) fn warm(&self, _: &Env<'_>, _: u64) {
        match *self {}
    }
}
