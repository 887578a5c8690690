//! Turns of whole shires, for private caches: the harts of a shire share a cache, so one host
//! thread runs them, one after the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::machine::ahead::{Patience, Readers};
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::machine::launch::HartExit;
use crate::machine::turn::{After, Run, Worker, lock};
use crate::memory::map::HARTS_PER_SHIRE;
use crate::memory::private::Private;
use crate::near;

/// Longest turn of a hart, in instructions.
pub(crate) const LONGEST_TURN: u32 = 50;
/// Turns of each hart in a turn of its shire.
const ROUNDS: u32 = 64;

/// The harts of a shire in a launch. Sets of harts are bit masks.
#[derive(Debug)]
pub(crate) struct Group {
    state: Mutex<State>,
    /// Harts whose wait has ended.
    woken: AtomicU64,
    /// The shire is in a queue or has its turn.
    queued: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Harts that can go on.
    active: u64,
    /// Those of them that have executed their next turns ahead.
    rests: u64,
    /// By hart how many turns these are.
    turns_ahead: [u32; HARTS_PER_SHIRE as usize],
    patience: Patience,
    /// Harts that have started and not left.
    harts: Vec<Option<Box<Hart>>>,
}

impl Group {
    /// Makes `harts` ready to start.
    pub(crate) fn new(harts: impl Iterator<Item = u32>) -> Self {
        let active = harts.fold(0, |active, hart| active | 1 << (hart % HARTS_PER_SHIRE));
        let harts = (0..HARTS_PER_SHIRE).map(|_| None).collect();
        let turns_ahead = [0; HARTS_PER_SHIRE as usize];
        Self {
            state: Mutex::new(State {
                active,
                rests: 0,
                turns_ahead,
                patience: Patience::new(),
                harts,
            }),
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

impl State {
    /// Takes note of the whole turns that a hart has executed ahead.
    fn note_ahead(&mut self, index: u32) {
        let Some(Some(hart)) = self.harts.get_mut(index as usize) else { return };
        let turns = hart.ahead / LONGEST_TURN;
        if turns != 0 {
            hart.ahead -= turns * LONGEST_TURN;
            hart.retired += u64::from(turns * LONGEST_TURN);
            self.turns_ahead[index as usize] = turns;
            self.rests |= 1 << index;
        }
    }

    /// Brings all harts that have read ahead back to their turns.
    #[cold]
    #[inline(never)]
    fn bring_back<'c>(
        &mut self,
        core: &'c Core<'c>,
        readers: &mut Readers,
        cache: &mut Option<Box<Private>>,
    ) {
        let ahead = readers.ahead();
        readers.forget(cache);
        for index in harts(ahead) {
            let turns = std::mem::take(&mut self.turns_ahead[index as usize]);
            self.rests &= !(1 << index);
            let Some(Some(hart)) = self.harts.get_mut(index as usize) else { continue };
            std::mem::swap(&mut hart.cache, cache);
            readers.bring_back(core, index, hart, turns);
            std::mem::swap(&mut hart.cache, cache);
            self.note_ahead(index);
        }
        self.patience.note_disturbance();
    }

    /// Uses up turns of a hart that is ahead.
    fn rest(&mut self, index: u32, turns: u32) {
        let left = &mut self.turns_ahead[index as usize];
        *left -= turns;
        if *left == 0 {
            self.rests &= !(1 << index);
        }
    }

    /// The turns that no hart needs, at most so many.
    fn idle_turns(&self, most: u32) -> u32 {
        if self.active & !self.rests != 0 {
            return 0;
        }
        harts(self.rests).map(|index| self.turns_ahead[index as usize]).fold(most, u32::min)
    }
}

/// The numbers of the harts in a set.
fn harts(set: u64) -> impl Iterator<Item = u32> {
    let rest = |set: &u64| Some(set & (set - 1)).filter(|&rest| rest != 0);
    std::iter::successors(Some(set).filter(|&set| set != 0), rest).map(u64::trailing_zeros)
}

impl Worker<'_> {
    /// Gives a shire a turn: some rounds, in each of which every hart that can has a turn.
    pub(crate) fn shire_turn(&self, run: &Run, shire: u32) {
        let group = run.group(shire);
        let wake = |hart| self.inner.wake(run, hart);
        let core = self.core(run, &wake);
        let mut guard = lock(&group.state);
        let state = &mut *guard;
        let mut cache = core.chip.take_cache(shire);
        let mut gone: Vec<(Option<Box<Hart>>, Option<HartExit>)> = Vec::new();
        let mut readers = self.readers.borrow_mut();
        let mut may_read = state.patience.begin();
        let tried = may_read;
        let mut rounds = ROUNDS;
        while rounds != 0 {
            state.active |= group.woken.swap(0, Ordering::SeqCst);
            if state.active == 0 {
                break;
            }
            let idle = state.idle_turns(rounds);
            rounds -= idle.max(1);
            for index in harts(state.active) {
                if state.rests >> index & 1 != 0 {
                    let turns = idle.max(1);
                    state.rest(index, turns);
                    core.chip.clock.add_retired(u64::from(turns * LONGEST_TURN));
                    continue;
                }
                // All harts together are more than the nearest cache holds.
                let waiting = state.active & !state.rests & (u64::MAX << index << 1);
                if let Some(Some(next)) = state.harts.get(waiting.trailing_zeros() as usize) {
                    near::bring::<Hart, { Hart::NEEDED }>(next);
                }
                let id = shire * HARTS_PER_SHIRE + index;
                let hart = state.harts[index as usize].take();
                let mut hart = hart.unwrap_or_else(|| self.start(run, &core, id, &mut cache));
                readers.catch_up(index, &mut cache);
                std::mem::swap(&mut hart.cache, &mut cache);
                let before = hart.retired;
                let mut after = self.execute(run, &core, &mut hart);
                if let After::Disturbs(turn) = after {
                    state.bring_back(&core, &mut readers, &mut hart.cache);
                    may_read = false;
                    after = self.go_on_disturbed(run, &core, &mut hart, turn);
                }
                core.chip.clock.add_retired(hart.retired - before);
                if matches!(after, After::Again)
                    && may_read
                    && hart.ahead < LONGEST_TURN
                    && rounds != 0
                    && state.patience.tries(index)
                {
                    let turns = readers.read(&core, index, &mut hart, rounds);
                    state.patience.note(index, turns);
                }
                std::mem::swap(&mut hart.cache, &mut cache);
                match after {
                    After::Again => {
                        state.harts[index as usize] = Some(hart);
                        state.note_ahead(index);
                        continue;
                    }
                    After::Disturbs(_) => unreachable!("no hart is ahead"),
                    After::Parked => state.harts[index as usize] = Some(hart),
                    After::Left(exit) => gone.push((Some(hart), exit)),
                }
                state.active &= !(1 << index);
            }
        }
        if tried && may_read {
            state.patience.note_peace();
        }
        readers.forget(&mut cache);
        drop(readers);
        core.chip.return_cache(shire, cache);
        let goes_on = state.active != 0;
        drop(guard);
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
