//! What is refused of a task, whatever the graph is.

use super::condition::{Condition, WordPlace};
use super::task::{Declared, Extra, Stage};
use super::{Access, CoreSet, GraphError, HostData, Region, TaskId};
use crate::memory::{DeviceSlice, User};

pub(super) fn check_extra(
    task: TaskId,
    extra: &Extra,
    declared: &[Declared],
) -> Result<(), GraphError> {
    if extra.cores.as_ref().is_some_and(CoreSet::is_empty) {
        return Err(GraphError::EmptyCoreSet { task });
    }
    if extra.shires == Some(0) {
        return Err(GraphError::EmptyShireMask { task });
    }
    if extra.parts == Some(0) {
        return Err(GraphError::NoParts { task });
    }
    let Some(Condition { place: WordPlace::Device(word), .. }) = &extra.condition else {
        return Ok(());
    };
    check_condition(task, word)?;
    // On a resident graph each part looks, and all must see the same.
    let mut written = declared.iter().filter(|declared| declared.access.writes());
    let word = Region::from(word);
    if extra.parts.is_some_and(|parts| parts > 1) && written.any(|d| d.region.overlaps(&word)) {
        return Err(GraphError::PartsWriteCondition { task });
    }
    Ok(())
}

pub(super) fn check_copy(
    task: TaskId,
    data: &HostData,
    slice: &DeviceSlice,
) -> Result<(), GraphError> {
    let (host, device) = (data.len() as u64, slice.len_bytes());
    if host == device { Ok(()) } else { Err(GraphError::CopyLength { task, host, device }) }
}

/// The same, and that the host may use the device's side.
pub(super) fn check_stage(task: TaskId, stage: &Stage) -> Result<(), GraphError> {
    check_copy(task, &stage.data, &stage.slice)?;
    let access = if stage.is_in { Access::Write } else { Access::Read };
    check_usage(task, User::Host, &stage.slice, access)
}

/// Checks that `user` may use a region as a task does.
pub(super) fn check_usage(
    task: TaskId,
    user: User,
    slice: &DeviceSlice,
    access: Access,
) -> Result<(), GraphError> {
    let op = match user {
        User::Kernels => "a kernel",
        User::Host => "a copy",
    };
    slice
        .check_usage(user, access, op)
        .map_err(|error| GraphError::Usage { task, error: Box::new(error) })
}

/// Checks that whoever schedules may read the word of a condition.
pub(super) fn check_condition(task: TaskId, word: &DeviceSlice) -> Result<(), GraphError> {
    check_usage(task, User::Host, word, Access::Read)?;
    check_usage(task, User::Kernels, word, Access::Read)
}

pub(super) fn check_regions(task: TaskId, declared: &[Declared]) -> Result<(), GraphError> {
    for Declared { region, .. } in declared {
        if let Some(len) = region.outside_of() {
            return Err(GraphError::OutsideResource { task, range: region.bounds(), len });
        }
    }
    let writes = || declared.iter().filter(|declared| declared.access.writes());
    if writes().nth(1).is_none() {
        return Ok(());
    }
    let mut writes: Vec<_> = writes()
        .map(|declared| (declared.region.space_id(), declared.region.bounds()))
        .filter(|(_, bounds)| !bounds.is_empty())
        .collect();
    writes.sort_unstable_by_key(|(space, bounds)| (*space, bounds.start));
    for pair in writes.windows(2) {
        let [(space, first), (other, second)] = pair else { continue };
        if space == other && second.start < first.end {
            let (first, second) = (first.clone(), second.clone());
            return Err(GraphError::OverlappingWrites { task, first, second });
        }
    }
    Ok(())
}
