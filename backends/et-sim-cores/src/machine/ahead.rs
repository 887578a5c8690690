//! Harts of a shire that read ahead of their turns.
//!
//! Turns of shires with private caches are short, and to change them takes as long as dozens of
//! instructions. As long as harts only load, and what they load stays as it is, when they do that
//! cannot be seen. So a hart at the end of a turn goes on until it would do something else, as far
//! as the present turn of its shire lasts, and then rests. The cache watches the pages that were
//! read. Before an instruction of another hart changes one of them, all that are ahead go back to
//! where they began, and execute again what belongs to the turns that are over.

use crate::exec;
use crate::machine::chip::Core;
use crate::machine::group::LONGEST_TURN;
use crate::machine::hart::{Hart, Registers};
use crate::memory::map::HARTS_PER_SHIRE;
use crate::memory::private::Private;

/// Attempts that come to fewer turns were not worth it.
const WORTH: u32 = 2;
/// Turns of a shire before the first attempt of a launch: most kernels are over by then, and an
/// attempt of each hart takes longer than some of them.
const FIRST_PAUSE: u8 = 2;
/// Turns without an attempt after those that were not, at most.
const LONGEST_PAUSE: u8 = 63;

/// The harts of a shire that are ahead; for one turn of the shire. Sets of harts are bit masks.
#[derive(Debug)]
pub(crate) struct Readers {
    ahead: u64,
    /// By hart: what it was before.
    before: Box<[Registers]>,
    /// By hart: how many turns it is ahead when it begins to rest.
    turns: [u32; HARTS_PER_SHIRE as usize],
}

impl Readers {
    pub(crate) fn new() -> Self {
        let before = (0..HARTS_PER_SHIRE).map(|_| Registers::new()).collect();
        Self { ahead: 0, before, turns: [0; HARTS_PER_SHIRE as usize] }
    }

    /// Has a hart read ahead, at most so many turns of the shire; returns how many whole turns it
    /// is ahead, or 0 if it was brought back because they are too few to be worth watching for.
    #[inline(never)]
    pub(crate) fn read<'c>(
        &mut self,
        core: &'c Core<'c>,
        index: u32,
        hart: &mut Hart,
        turns: u32,
    ) -> u32 {
        let most = (turns * LONGEST_TURN).saturating_sub(hart.ahead);
        let at = index as usize;
        self.before[at].save(hart);
        let executed = exec::run_ahead(hart, core, most);
        hart.ahead += executed;
        let turns = hart.ahead / LONGEST_TURN;
        if turns >= WORTH {
            self.ahead |= 1 << index;
            self.turns[at] = turns;
            return turns;
        }
        self.before[at].restore(hart);
        if self.ahead == 0
            && let Some(cache) = &mut hart.cache
        {
            cache.unwatch();
        }
        0
    }

    /// Takes note that a hart has a turn.
    pub(crate) fn catch_up(&mut self, index: u32, cache: &mut Option<Box<Private>>) {
        if self.ahead >> index & 1 != 0 {
            self.ahead &= !(1 << index);
            if self.ahead == 0 {
                self.forget(cache);
            }
        }
    }

    /// Takes note that the turn of the shire is over, so no hart has read ahead of it.
    pub(crate) fn forget(&mut self, cache: &mut Option<Box<Private>>) {
        self.ahead = 0;
        if let Some(cache) = cache {
            cache.unwatch();
        }
    }

    /// The harts that are ahead.
    pub(crate) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Brings a hart that is ahead, and has so many turns left, back to the turn that it has.
    #[cold]
    #[inline(never)]
    pub(crate) fn bring_back<'c>(
        &self,
        core: &'c Core<'c>,
        index: u32,
        hart: &mut Hart,
        turns_left: u32,
    ) {
        let at = index as usize;
        self.before[at].restore(hart);
        let over = self.turns[at].saturating_sub(turns_left);
        if over != 0 {
            // As before it only loads, so nothing but the end of these turns ends it.
            let event = exec::run(hart, core, over * LONGEST_TURN);
            debug_assert_eq!(event, exec::event::Event::OutOfFuel);
        }
    }
}

/// Which harts of a shire it is worth while for.
#[derive(Debug)]
pub(crate) struct Patience {
    /// By hart: turns until the next attempt, and those after the next one that fails.
    pauses: [(u8, u8); HARTS_PER_SHIRE as usize],
    /// The same for all harts, in turns of the shire.
    pause: (u8, u8),
}

/// Makes a pause longer.
fn lengthen((left, next): &mut (u8, u8)) {
    *next = (*next * 2 + 1).min(LONGEST_PAUSE);
    *left = *next;
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { pauses: [(0, 0); HARTS_PER_SHIRE as usize], pause: (FIRST_PAUSE, 0) }
    }

    /// Begins a turn of the shire; returns `true` if harts may try.
    pub(crate) fn begin(&mut self) -> bool {
        let (left, _) = &mut self.pause;
        let may_try = *left == 0;
        *left = left.saturating_sub(1);
        may_try
    }

    /// Returns `true` if a hart should try.
    pub(crate) fn tries(&mut self, index: u32) -> bool {
        let (left, _) = &mut self.pauses[index as usize];
        let tries = *left == 0;
        *left = left.saturating_sub(1);
        tries
    }

    /// Takes note of how many turns that was good for.
    pub(crate) fn note(&mut self, index: u32, turns: u32) {
        let pause = &mut self.pauses[index as usize];
        if turns == 0 {
            lengthen(pause);
        } else {
            *pause = (0, 0);
        }
    }

    /// Takes note that harts had to be brought back.
    pub(crate) fn note_disturbance(&mut self) {
        lengthen(&mut self.pause);
    }

    /// Takes note of a turn of the shire without that.
    pub(crate) fn note_peace(&mut self) {
        self.pause.1 /= 2;
    }
}
