//! The runs that have started, by slot.

use std::sync::Arc;

use super::exec::Exec;
use crate::executor::ids::{RunId, count};
use crate::executor::run::{Board, RunShared};

/// Nothing here depends on how many runs there are, but for what looks at all of them: a flow may
/// have thousands that wait for one another.
#[derive(Default)]
pub(super) struct Started {
    slots: Vec<Option<Exec>>,
    free: Vec<u32>,
    groups: Vec<Group>,
}

/// The runs of a flow, or those of none.
struct Group {
    flow: Option<Arc<Board>>,
    slots: Vec<u32>,
}

fn is_same(a: Option<&Arc<Board>>, b: Option<&Arc<Board>>) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}

impl Started {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// How many slots there are, in use or not.
    pub(super) fn len(&self) -> u32 {
        count(self.slots.len())
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Exec> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Exec> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Returns what is in a slot if it is this run.
    #[inline]
    pub(super) fn get_run(&mut self, slot: u32, run: RunId) -> Option<&mut Exec> {
        self.get_mut(slot).filter(|exec| exec.run.number == run)
    }

    pub(super) fn slot_of(&self, run: RunId) -> Option<u32> {
        let is_it = |exec: &Option<Exec>| exec.as_ref().is_some_and(|exec| exec.run.number == run);
        self.slots.iter().position(is_it).map(count)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Exec> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Exec> {
        self.slots.iter_mut().flatten()
    }

    /// Returns the runs that another one may have to wait for as a whole.
    pub(super) fn before<'a>(&'a self, run: &'a RunShared) -> impl Iterator<Item = &'a Exec> {
        let flow = run.flow.as_ref().filter(|_| !run.route.is_whole());
        let groups = self
            .groups
            .iter()
            .filter(move |group| flow.is_none() || !is_same(flow, group.flow.as_ref()));
        groups.flat_map(|group| &group.slots).filter_map(|&slot| self.get(slot))
    }

    pub(super) fn insert(&mut self, mut exec: Exec) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            count(self.slots.len() - 1)
        });
        let flow = exec.run.flow.as_ref();
        let at = self.groups.iter().position(|group| is_same(flow, group.flow.as_ref()));
        let at = at.unwrap_or_else(|| {
            self.groups.push(Group { flow: flow.cloned(), slots: Vec::new() });
            self.groups.len() - 1
        });
        exec.in_group = self.groups[at].slots.len();
        self.groups[at].slots.push(slot);
        self.slots[slot as usize] = Some(exec);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Exec> {
        let exec = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        let flow = exec.run.flow.as_ref();
        let at = self.groups.iter().position(|group| is_same(flow, group.flow.as_ref()))?;
        let slots = &mut self.groups[at].slots;
        slots.swap_remove(exec.in_group);
        match slots.get(exec.in_group) {
            Some(&moved) => {
                if let Some(moved) = self.get_mut(moved) {
                    moved.in_group = exec.in_group;
                }
            }
            None if slots.is_empty() => drop(self.groups.swap_remove(at)),
            None => {}
        }
        Some(exec)
    }

    /// The slots, for those who offer what is ready.
    #[inline]
    pub(super) fn slots(&mut self) -> &mut [Option<Exec>] {
        &mut self.slots
    }
}
