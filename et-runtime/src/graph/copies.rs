//! The copies that come with a task: its stages, and what records it.

use super::record::{Recorded, RecordedRegion};
use super::task::{Declared, Stage};
use super::{Access, HostData};
use crate::memory::DeviceSlice;

/// Copies before and after a task, in their order.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) before: Vec<Stage>,
    pub(super) after: Vec<Stage>,
    /// Number of copies before the task that do not record it.
    staged: usize,
    /// What is recorded: one copy before the task for each access that reads, one after it for each
    /// that writes.
    recorded: Vec<Access>,
}

impl Copies {
    /// Adds to what the task declares what its stages do.
    pub(super) fn new(stages: Vec<Stage>, is_recorded: bool, declared: &mut Vec<Declared>) -> Self {
        let (mut before, mut after): (Vec<_>, Vec<_>) =
            stages.into_iter().partition(|stage| stage.is_in);
        let staged = before.len();
        for Stage { slice, .. } in &before {
            declared.push(Declared::new(slice, Access::Read));
        }
        for Stage { slice, .. } in &after {
            let is_write = |declared: &Declared| {
                declared.access.writes()
                    && declared.region.device().is_some_and(|other| other.overlaps(slice))
            };
            if !declared.iter().any(is_write) {
                declared.push(Declared::new(slice, Access::Write));
            }
        }
        let regions = if is_recorded { regions(declared) } else { Vec::new() };
        let copy = |slice: &DeviceSlice| {
            let len = usize::try_from(slice.len_bytes()).unwrap_or(usize::MAX);
            Stage { is_in: false, data: HostData::zeroed(len), slice: slice.clone() }
        };
        let of = |uses: fn(Access) -> bool| {
            regions.iter().filter(move |(_, access)| uses(*access)).map(|(slice, _)| copy(slice))
        };
        before.extend(of(Access::reads));
        after.splice(0..0, of(Access::writes));
        let recorded = regions.iter().map(|(_, access)| *access).collect();
        Self { before, after, staged, recorded }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Stage> {
        self.before.iter().chain(&self.after)
    }

    /// Which copies record a task of this number.
    pub(super) fn recorded(&self, task: u32) -> Recorded {
        let first = task.saturating_sub((self.before.len() - self.staged).try_into().unwrap_or(0));
        let (mut before, mut after) = (first.., task + 1..);
        let region = |&access: &Access| RecordedRegion {
            access,
            before: if access.reads() { before.next() } else { None },
            after: if access.writes() { after.next() } else { None },
        };
        Recorded { task, regions: self.recorded.iter().map(region).collect() }
    }
}

/// The different regions of device memory that a task declares.
fn regions(declared: &[Declared]) -> Vec<(DeviceSlice, Access)> {
    let mut regions: Vec<(DeviceSlice, Access)> = Vec::new();
    for Declared { region, access, .. } in declared {
        let Some(slice) = region.device().filter(|slice| slice.len_bytes() != 0) else { continue };
        let place = (slice.addr(), slice.len_bytes());
        match regions.iter_mut().find(|(known, _)| (known.addr(), known.len_bytes()) == place) {
            Some((_, known)) if known != access => *known = Access::Update,
            Some(_) => {}
            None => regions.push((slice.clone(), *access)),
        }
    }
    regions
}
