//! The report of a failed launch.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use et_devapi::msg::ops::{LaunchError, LaunchStatus};
use et_isa::Race;

use super::exception::{Cause, ExceptionKind, decode_near};
use super::{CodeLine, HartContext, Location, Program};
use crate::core_dump::{CoreSummary, Scene};
use crate::memory::DeviceMemory;
use crate::trace::{Text, Trace};

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
    pub(crate) fn with_contexts(mut self, buffer: &[u8], memory: &DeviceMemory) -> Self {
        self.contexts = decode_near(buffer, memory);
        self
    }

    pub(crate) fn without_contexts(mut self, why: &dyn fmt::Display) -> Self {
        self.contexts_error = Some(why.to_string().into());
        self
    }

    pub(crate) fn with_firmware(mut self, messages: Trace) -> Self {
        Arc::make_mut(&mut self.scene).firmware = messages;
        self
    }

    pub(crate) fn without_firmware(mut self, why: &dyn fmt::Display) -> Self {
        Arc::make_mut(&mut self.scene).firmware_error = Some(why.to_string().into());
        self
    }

    /// Notes what the core file has, and lets go of memory that was kept for it alone.
    pub(crate) fn core_written(&mut self, summary: Option<CoreSummary>) {
        let scene = Arc::make_mut(&mut self.scene);
        scene.core = summary.map(Arc::new);
        if !scene.is_dumpable {
            scene.kept = None;
        }
    }

    /// Returns what is in the core file that the launch [asked for](super::Launch::core_dump);
    /// `None` if it asked for none, or it could not be written.
    #[must_use]
    pub fn core_file(&self) -> Option<&CoreSummary> {
        self.scene.core.as_deref()
    }

    /// Returns what firmware has traced since the launch began, by the device's clock, in the
    /// order of time: of the master minion and of the compute harts the first 64 entries and the
    /// last 64 each. Entries of other commands of that time are among them. Empty for a launch that
    /// did not run, and without [`Config::failure_messages`](crate::Config::failure_messages).
    #[must_use]
    pub fn firmware(&self) -> &Trace {
        &self.scene.firmware
    }

    /// Returns why there is nothing of the firmware, if it could not be fetched.
    #[must_use]
    pub fn firmware_error(&self) -> Option<&str> {
        self.scene.firmware_error.as_deref()
    }

    /// Returns the name of the kernel.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.program.name
    }

    /// Returns the failed harts by kind of failure and place. Those that were only aborted, because
    /// of the others or by the host, come last.
    #[must_use]
    pub fn groups(&self) -> Vec<HartGroup<'_>> {
        let mut groups: Vec<HartGroup<'_>> = Vec::new();
        let mut places = HashMap::new();
        for context in &self.contexts {
            // The same instruction may touch another address on each hart, that another one uses.
            let kind = match context.kind {
                ExceptionKind::Trap { cause: Cause::Race(race), .. } => {
                    let race = Race { other_hart: 0, ..race };
                    ExceptionKind::Trap { cause: Cause::Race(race), tval: 0 }
                }
                ExceptionKind::Trap { cause, .. } => ExceptionKind::Trap { cause, tval: 0 },
                kind => kind,
            };
            let place = *places.entry((kind, context.pc)).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.harts.push(context.hart_id),
                None => groups.push(HartGroup { first: context, harts: vec![context.hart_id] }),
            }
        }
        groups.sort_by_key(|group| group.first.kind == ExceptionKind::SystemAbort);
        groups
    }

    /// Finds the function and source line where a hart was; `None` if that is not in the kernel.
    #[must_use]
    pub fn location(&self, context: &HartContext) -> Option<Location> {
        self.program.locate(context.pc?)
    }

    /// Finds where the other hart of a [race](HartContext::race) was; `None` if that is not in the
    /// kernel, or it is no race.
    #[must_use]
    pub fn other_location(&self, context: &HartContext) -> Option<Location> {
        self.program.locate(context.other_pc()?)
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
        write_location(f, self.location(context))?;
        if let (Some((race, _)), Some(pc)) = (context.race(), context.other_pc()) {
            write!(f, "; the {} at pc {pc:#x}", race.other)?;
            write_location(f, self.other_location(context))?;
        }
        Ok(())
    }

    fn write_firmware(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.firmware_error() {
            write!(f, "\nmessages of the firmware not available: {why}")?;
        }
        let count = self.firmware().entries().count();
        if count != 0 {
            f.write_str("\nmessages of the firmware:")?;
        }
        for (source, entry) in self.firmware().entries().take(SHOWN) {
            write!(f, "\n  {source} hart {}: {}", entry.hart_id, Text(&entry))?;
        }
        if let Some(more @ 1..) = count.checked_sub(SHOWN) {
            write!(f, "\n  and {more} more")?;
        }
        Ok(())
    }
}

fn write_location(f: &mut fmt::Formatter<'_>, location: Option<Location>) -> fmt::Result {
    let Location { symbol, source, .. } = location.unwrap_or_default();
    if let Some((symbol, offset)) = symbol {
        write!(f, " in {symbol}+{offset:#x}")?;
    }
    if let Some((file, line)) = source {
        write!(f, " at {file}:{line}")?;
    }
    Ok(())
}

/// Groups of harts, and messages of firmware, that the long form of a report has at most.
const SHOWN: usize = 32;

/// Harts that failed in the same way at the same place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HartGroup<'a> {
    /// The one with the lowest id.
    pub first: &'a HartContext,
    /// All of them, in the order of their ids.
    pub harts: Vec<u32>,
}

impl HartGroup<'_> {
    /// Returns their ids as text: `hart 3`, `harts 0-63, 70`.
    #[must_use]
    pub fn ranges(&self) -> String {
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for &hart in &self.harts {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == hart => *last = hart,
                _ => parts.push((hart, hart)),
            }
        }
        let text = |(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let parts: Vec<_> = parts.iter().map(text).collect();
        format!("hart{} {}", if self.harts.len() == 1 { "" } else { "s" }, parts.join(", "))
    }
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "launch of {} failed: {}", self.program.name, self.status)?;
        let groups = self.groups();
        if let Some((group, rest)) = groups.split_first() {
            f.write_str("; ")?;
            self.write_hart(f, group.first)?;
            let more = self.contexts.len() - 1;
            if more != 0 {
                write!(f, "; {more} more harts")?;
            }
            if f.alternate() {
                for line in self.code(group.first) {
                    write!(f, "\n    {line}")?;
                }
                if group.harts.len() > 1 {
                    write!(f, "\n  the same: {}", group.ranges())?;
                }
                for other in rest.iter().take(SHOWN - 1) {
                    f.write_str("\n  ")?;
                    self.write_hart(f, other.first)?;
                    if other.harts.len() > 1 {
                        write!(f, "; the same: {}", other.ranges())?;
                    }
                }
                if let Some(more @ 1..) = groups.len().checked_sub(SHOWN) {
                    write!(f, "\n  and {more} other failures")?;
                }
            }
        } else if let Some(why) = &self.contexts_error {
            write!(f, " (state of the harts not available: {why})")?;
        }
        if f.alternate() { self.write_firmware(f) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Cause;

    #[test]
    fn harts_are_grouped_by_kind_and_place_and_aborted_ones_come_last() {
        let hart = |hart_id, kind, pc| HartContext {
            hart_id,
            kind,
            pc: Some(pc),
            cycles: 0,
            sstatus: 0,
            gpr: None,
            nearest: None,
        };
        let load = |tval| ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval };
        let contexts = vec![
            hart(0, ExceptionKind::SystemAbort, 0x10),
            hart(1, load(0), 0x20),
            hart(2, load(8), 0x20),
            hart(3, load(8), 0x24),
            hart(5, load(16), 0x20),
        ];
        let program = Arc::new(Program::new("k".into(), 0..0, 0, Arc::new([])));
        let mut failure = LaunchFailure::new(&program, LaunchStatus::Exception, None);
        failure.contexts = contexts;
        let ranges: Vec<_> = failure.groups().iter().map(HartGroup::ranges).collect();
        assert_eq!(ranges, ["harts 1-2, 5", "hart 3", "hart 0"]);
        let text = format!("{failure:#}");
        assert!(text.contains("; hart 1 (") && text.contains("; 4 more harts"), "{text}");
        assert!(text.contains("the same: harts 1-2, 5"), "{text}");
    }
}
