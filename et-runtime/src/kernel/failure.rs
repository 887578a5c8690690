//! The report of a failed launch.

use std::fmt;
use std::sync::Arc;

use et_devapi::msg::ops::{LaunchError, LaunchStatus};

use super::exception::decode;
use super::{CodeLine, HartContext, Location, Program};
use crate::core_dump::Scene;

/// A launch that did not complete: which harts, where and why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LaunchFailure {
    /// The device's answer.
    pub status: LaunchStatus,
    /// Shires with an exception or a system abort.
    pub shire_mask: u64,
    /// State of the failed harts, in the order of their ids. Empty if the device rejected the
    /// launch or the state could not be fetched.
    pub contexts: Vec<HartContext>,
    /// Why there are no contexts, if they could not be fetched.
    pub contexts_error: Option<Arc<str>>,
    pub(crate) program: Arc<Program>,
    pub(crate) scene: Arc<Scene>,
}

impl LaunchFailure {
    pub(crate) fn new(
        program: &Arc<Program>,
        status: LaunchStatus,
        error: Option<&LaunchError>,
    ) -> Self {
        Self {
            status,
            shire_mask: error.map_or(0, |error| error.shire_mask),
            contexts: Vec::new(),
            contexts_error: None,
            program: Arc::clone(program),
            scene: Arc::default(),
        }
    }

    /// Adds the circumstances.
    pub(crate) fn with_scene(mut self, scene: Scene) -> Self {
        self.scene = Arc::new(scene);
        self
    }

    /// Adds what an exception buffer says.
    pub(crate) fn with_contexts(mut self, buffer: &[u8]) -> Self {
        self.contexts = decode(buffer);
        self
    }

    pub(crate) fn without_contexts(mut self, why: &dyn fmt::Display) -> Self {
        self.contexts_error = Some(why.to_string().into());
        self
    }

    /// Returns the name of the kernel.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.program.name
    }

    /// Finds the function and source line where a hart was; `None` if that is not in the kernel.
    #[must_use]
    pub fn location(&self, context: &HartContext) -> Option<Location> {
        self.program.locate(context.pc?)
    }

    /// Returns the instruction that a hart was at and its neighbours, as the kernel's file has
    /// them; none if that is not in the kernel.
    #[must_use]
    pub fn code(&self, context: &HartContext) -> Vec<CodeLine> {
        context.pc.map(|pc| self.program.code(pc)).unwrap_or_default()
    }

    /// Writes one hart: what happened, and where in the source.
    fn write_hart(&self, f: &mut fmt::Formatter<'_>, context: &HartContext) -> fmt::Result {
        write!(f, "{context}")?;
        let Some(location) = self.location(context) else {
            return Ok(());
        };
        if let Some((symbol, offset)) = &location.symbol {
            write!(f, " in {symbol}+{offset:#x}")?;
        }
        if let Some((file, line)) = &location.source {
            write!(f, " at {file}:{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "launch of {} failed: {}", self.program.name, self.status)?;
        let Some((first, rest)) = self.contexts.split_first() else {
            if let Some(why) = &self.contexts_error {
                write!(f, " (state of the harts not available: {why})")?;
            }
            return Ok(());
        };
        f.write_str("; ")?;
        self.write_hart(f, first)?;
        if !rest.is_empty() {
            write!(f, "; {} more harts", rest.len())?;
        }
        if f.alternate() {
            for line in self.code(first) {
                write!(f, "\n    {line}")?;
            }
            for context in rest.iter().take(31) {
                f.write_str("\n  ")?;
                self.write_hart(f, context)?;
            }
            if rest.len() > 31 {
                write!(f, "\n  and {} more", rest.len() - 31)?;
            }
        }
        Ok(())
    }
}
