//! Who has the compute harts of the device.
//!
//! A kernel has all harts of its shires, and there is one kernel at a time. Places that keep a
//! kernel running for many tasks would make all others wait for ever. So they hold the harts by
//! turns:
//!
//! ```text
//! Away ──claim──▶ Coming ──came──▶ Working ──leave──▶ Leaving ──gone──▶ Away
//!                    └──────────────leave──────────────▲   │
//!                    └─────────────────────gone────────────┘
//! ```
//!
//! Who wants them claims them, again and again as tasks are offered to it; the holder sees that
//! another place wants them, takes no tasks any more, and leaves when those it has have ended. Then
//! whoever has waited longest gets them.

use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// Who can hold the harts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Cores,
    Resident,
    Launches,
}

/// What the harts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No place holds them.
    Away,
    /// A kernel is on its way to them.
    Coming,
    /// They work on tasks of their holder.
    Working,
    /// They are told to leave the kernel.
    Leaving,
}

#[derive(Debug)]
struct Book {
    state: State,
    holder: Option<Holder>,
    /// In the order in which they asked.
    wanted: Vec<Holder>,
}

impl Book {
    fn claim(&mut self, holder: Holder) -> bool {
        let is_first = self.wanted.first().is_none_or(|first| *first == holder);
        match (self.state, self.holder) {
            (State::Away, _) if is_first => {
                self.wanted.retain(|other| *other != holder);
                (self.state, self.holder) = (State::Coming, Some(holder));
                true
            }
            (State::Coming | State::Working, Some(own)) if own == holder && is_first => {
                self.wanted.retain(|other| *other != holder);
                true
            }
            _ => {
                if !self.wanted.contains(&holder) {
                    self.wanted.push(holder);
                }
                false
            }
        }
    }

    fn step(&mut self, holder: Holder, from: &[State], to: State) {
        if self.holder == Some(holder) && from.contains(&self.state) {
            self.state = to;
        } else {
            debug_assert!(false, "{holder:?} cannot go to {to:?} in {self:?}");
        }
    }
}

/// A place's part in the arbitration.
#[derive(Debug)]
pub(super) struct Tenant {
    book: Arc<Mutex<Book>>,
    holder: Holder,
    /// Since the last [`refresh`](Tenant::refresh).
    has_asked: bool,
}

/// Makes the tenants of one device.
pub(super) fn tenants<const N: usize>(holders: [Holder; N]) -> [Tenant; N] {
    let book = Book { state: State::Away, holder: None, wanted: Vec::new() };
    let book = Arc::new(Mutex::new(book));
    holders.map(|holder| Tenant { book: Arc::clone(&book), holder, has_asked: false })
}

impl Tenant {
    /// Asks for the harts. `true` if they are this place's, which is for it to bring them in then
    /// if they are not there.
    pub(super) fn claim(&mut self) -> bool {
        self.has_asked = true;
        lock(&self.book).claim(self.holder)
    }

    /// To be called once a turn, before anything is offered: who was offered nothing since wants
    /// nothing.
    pub(super) fn refresh(&mut self) {
        if !std::mem::take(&mut self.has_asked) {
            lock(&self.book).wanted.retain(|other| *other != self.holder);
        }
    }

    /// Returns `true` if another place waits for the harts.
    pub(super) fn is_wanted_by_others(&self) -> bool {
        lock(&self.book).wanted.iter().any(|other| *other != self.holder)
    }

    /// Returns what the harts do, if they are this place's.
    pub(super) fn state(&self) -> State {
        let book = lock(&self.book);
        if book.holder == Some(self.holder) { book.state } else { State::Away }
    }

    /// The harts have come.
    pub(super) fn came(&self) {
        lock(&self.book).step(self.holder, &[State::Coming], State::Working);
    }

    /// The harts are told to leave.
    pub(super) fn leave(&self) {
        lock(&self.book).step(self.holder, &[State::Coming, State::Working], State::Leaving);
    }

    /// The harts have left, told or not.
    pub(super) fn gone(&self) {
        let mut book = lock(&self.book);
        if book.holder == Some(self.holder) {
            (book.state, book.holder) = (State::Away, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_leaves_and_whoever_has_waited_longest_is_next() {
        use Holder::{Cores, Launches, Resident};
        let [mut cores, mut resident, mut launches] = tenants([Cores, Resident, Launches]);
        assert!(cores.claim() && cores.claim());
        cores.came();
        assert!(!cores.is_wanted_by_others());
        assert!(!resident.claim() && !launches.claim());
        assert!(cores.is_wanted_by_others());
        assert!(!cores.claim(), "it takes no more tasks, but is in the queue now");
        cores.leave();
        assert!(!resident.claim());
        cores.gone();
        assert!(!launches.claim() && !cores.claim(), "not first");
        assert!(resident.claim());
        assert_eq!((resident.state(), cores.state()), (State::Coming, State::Away));
        assert!(resident.is_wanted_by_others());
        // A launch that never comes to work.
        resident.gone();
        assert!(!cores.claim());
        assert!(launches.claim());
    }

    #[test]
    fn a_place_that_is_offered_nothing_stands_in_no_way() {
        let [mut cores, mut resident] = tenants([Holder::Cores, Holder::Resident]);
        assert!(cores.claim());
        cores.came();
        assert!(!resident.claim());
        resident.refresh();
        assert!(cores.is_wanted_by_others(), "it asked in the last turn");
        resident.refresh();
        assert!(!cores.is_wanted_by_others(), "its run was cancelled");
        assert!(cores.claim());
    }
}
