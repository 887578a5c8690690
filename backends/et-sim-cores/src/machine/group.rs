//! Turns of whole shires, for private caches: the harts of a shire share a cache, so one host
//! thread runs them, one after the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::machine::hart::Hart;
use crate::machine::launch::HartExit;
use crate::machine::turn::{After, Run, Worker, lock};
use crate::memory::map::HARTS_PER_SHIRE;
use crate::near;

/// Longest turn of a hart, in instructions.
pub(crate) const LONGEST_TURN: u32 = 50;
/// Turns of each hart in a turn of its shire.
const ROUNDS: usize = 64;

/// The harts of a shire in a launch. Sets of harts are bit masks.
#[derive(Debug, Default)]
pub(crate) struct Group {
    state: Mutex<State>,
    /// Harts whose wait has ended.
    woken: AtomicU64,
    /// The shire is in a queue or has its turn.
    queued: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Harts that can go on.
    active: u64,
    /// Harts that have started and not left.
    harts: Vec<Option<Box<Hart>>>,
}

impl Group {
    /// Makes `harts` ready to start.
    pub(crate) fn new(harts: impl Iterator<Item = u32>) -> Self {
        let active = harts.fold(0, |active, hart| active | 1 << (hart % HARTS_PER_SHIRE));
        let harts = (0..HARTS_PER_SHIRE).map(|_| None).collect();
        Self {
            state: Mutex::new(State { active, harts }),
            woken: AtomicU64::new(0),
            queued: AtomicBool::new(active != 0),
        }
    }

    /// Takes note that a hart can go on; returns `true` if the shire is to be put in a queue.
    pub(crate) fn wake(&self, hart: u32) -> bool {
        // Sequentially consistent, as in `rest`: one of the two sees the other.
        self.woken.fetch_or(1 << (hart % HARTS_PER_SHIRE), Ordering::SeqCst);
        !self.queued.swap(true, Ordering::SeqCst)
    }

    /// Ends the turn of a shire in which no hart can go on; returns `true` if one can by now.
    fn rest(&self) -> bool {
        self.queued.store(false, Ordering::SeqCst);
        self.woken.load(Ordering::SeqCst) != 0 && !self.queued.swap(true, Ordering::SeqCst)
    }
}

impl Worker<'_> {
    /// Gives a shire a turn: some rounds, in each of which every hart that can has a turn.
    pub(crate) fn shire_turn(&self, run: &Run, shire: u32) {
        let group = run.group(shire);
        let wake = |hart| self.inner.wake(run, hart);
        let core = self.core(run, &wake);
        let mut state = lock(&group.state);
        let mut cache = core.chip.take_cache(shire);
        let mut gone: Vec<(Option<Box<Hart>>, Option<HartExit>)> = Vec::new();
        for _ in 0..ROUNDS {
            state.active |= group.woken.swap(0, Ordering::SeqCst);
            let mut waiting = state.active;
            if waiting == 0 {
                break;
            }
            while waiting != 0 {
                let index = waiting.trailing_zeros();
                waiting &= waiting - 1;
                // All harts together are more than the nearest cache holds.
                if let Some(Some(next)) = state.harts.get(waiting.trailing_zeros() as usize) {
                    near::bring::<Hart, { Hart::NEEDED }>(next);
                }
                let slot = &mut state.harts[index as usize];
                let id = shire * HARTS_PER_SHIRE + index;
                let hart = slot.get_or_insert_with(|| self.start(run, &core, id, &mut cache));
                std::mem::swap(&mut hart.cache, &mut cache);
                let before = hart.retired;
                let after = self.execute(run, &core, hart);
                core.chip.clock.add_retired(hart.retired - before);
                std::mem::swap(&mut hart.cache, &mut cache);
                match after {
                    After::Again => continue,
                    After::Parked => {}
                    After::Left(exit) => gone.push((slot.take(), exit)),
                }
                state.active &= !(1 << index);
            }
        }
        core.chip.return_cache(shire, cache);
        let goes_on = state.active != 0;
        drop(state);
        if goes_on {
            self.inner.scheduler.requeue(self.number, shire);
        } else if group.rest() {
            self.inner.scheduler.wake(shire);
        }
        // The last of a launch ends it, which needs the caches of all shires.
        for (hart, exit) in gone {
            self.leave(run, hart, exit);
        }
    }
}
