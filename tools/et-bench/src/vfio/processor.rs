//! Which processor a process runs on.

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two processors for two processes that both spin; `None` if there are not so many.
pub(super) fn two() -> anyhow::Result<Option<[usize; 2]>> {
    let mut allowed = allowed()?;
    Ok(allowed.next().zip(allowed.next()).map(|(first, second)| [first, second]))
}

/// One processor for two processes that both sleep.
pub(super) fn first() -> anyhow::Result<usize> {
    allowed()?.next().context("this thread may run on no processor")
}

fn allowed() -> anyhow::Result<impl Iterator<Item = usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(move |&cpu| allowed.is_set(cpu)))
}

/// Keeps this thread, and those that it starts, on one processor until dropped.
#[derive(Debug)]
pub(super) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub(super) fn to(cpu: usize) -> anyhow::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            println!("the benchmark stays on one processor: {error}");
        }
    }
}
