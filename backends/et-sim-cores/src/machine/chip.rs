//! What harts share: memories, counters of the shires, and the mail slots of other harts.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use et_isa::Access;

use crate::config::{FloatProfile, MachineConfig, MemoryModel};
use crate::decode::code::{CodeCache, Page};
use crate::error::CoresError;
use crate::exec::event::Event;
use crate::exec::tensor::SCRATCHPAD_ON;
use crate::exec::tensor::reduce::Message;
use crate::histogram::Counters;
use crate::machine::clock::Clock;
use crate::machine::hart::{UCACHE_CONTROL_AT_START, hart_of};
use crate::memory::check::Check;
use crate::memory::guards::Guards;
use crate::memory::map::{DRAM_BASE, HART_SLOTS, HARTS_PER_SHIRE, SHIRES};
use crate::memory::private::Private;
use crate::memory::weak::{Races, Sync, Weak};
use crate::memory::{Dram, Scratchpads};
use crate::native::Context;

/// `tensor_error` bit: a credit counter wrapped around.
const CREDIT_OVERFLOW: u16 = 1 << 3;
const NEIGHBOURHOODS: usize = 4;

/// What other harts, or the other hart of the minion, can change in a hart.
#[derive(Debug)]
pub(crate) struct Port {
    credits: [AtomicU16; 2],
    pub(crate) tensor_error: AtomicU16,
    /// Only that of thread 0 is used: the register belongs to the minion.
    pub(crate) ucache_control: AtomicU16,
    /// How often the L1 scratchpad was turned on. As the register, that of thread 0.
    pub(crate) turned_on: AtomicU32,
    /// What the hart sent for a reduction has not been taken yet.
    pub(crate) is_sending: AtomicBool,
    /// What others sent to the hart for reductions.
    inbox: Mutex<Vec<Message>>,
    parked: Mutex<Option<Wait>>,
    /// Something was put into these since the start of the kernel.
    has_met: AtomicBool,
}

/// What a parked hart waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A credit of this counter.
    Credit(usize),
    /// What this hart sends for a reduction.
    Message(u32),
    /// The receiver of what the hart sent.
    Sent,
    /// Nothing but an abort.
    Abort,
}

/// Counters and registers of a shire.
#[derive(Debug)]
pub(crate) struct Shire {
    pub(crate) barriers: [AtomicU8; 32],
    pub(crate) broadcast_data: AtomicU64,
    pub(crate) dummy: [AtomicU64; NEIGHBOURHOODS],
    pub(crate) redirect_pc: [AtomicU64; NEIGHBOURHOODS],
}

type Caches = Box<[Mutex<Option<Box<Private>>>]>;

/// Everything that harts share.
#[derive(Debug)]
pub(crate) struct Chip {
    pub(crate) dram: Arc<Dram>,
    pub(crate) scratchpads: Scratchpads,
    pub(crate) float: FloatProfile,
    pub(crate) clock: Clock,
    /// Caches and posted operations, if memory is weak. Only the one host thread that runs harts
    /// takes the lock while a kernel runs.
    pub(crate) weak: Option<Mutex<Weak>>,
    /// Weak memory looks for races.
    pub(crate) finds_races: bool,
    /// By shire its cache, if caches are private; absent while the shire has its turn.
    pub(crate) private: Option<Caches>,
    /// Shires that exist.
    shire_mask: u64,
    shires: Box<[Shire]>,
    ports: Box<[Port]>,
}

impl Port {
    fn new() -> Self {
        Self {
            credits: [AtomicU16::new(0), AtomicU16::new(0)],
            tensor_error: AtomicU16::new(0),
            ucache_control: AtomicU16::new(UCACHE_CONTROL_AT_START),
            turned_on: AtomicU32::new(0),
            is_sending: AtomicBool::new(false),
            inbox: Mutex::default(),
            parked: Mutex::new(None),
            has_met: AtomicBool::new(false),
        }
    }

    /// Returns `true` if nothing has happened since the start of the kernel.
    fn is_fresh(&self) -> bool {
        let Self { credits, tensor_error, ucache_control, turned_on, is_sending, has_met, .. } =
            self;
        credits.iter().chain([tensor_error]).all(|field| field.load(Ordering::Relaxed) == 0)
            && ucache_control.load(Ordering::Relaxed) == UCACHE_CONTROL_AT_START
            && turned_on.load(Ordering::Relaxed) == 0
            && !(is_sending.load(Ordering::Relaxed) || has_met.load(Ordering::Relaxed))
    }

    fn reset(&self) {
        // There are thousands, most kernels need none, and what is written the other threads have
        // to fetch.
        if self.is_fresh() {
            return;
        }
        self.has_met.store(false, Ordering::Relaxed);
        for credits in &self.credits {
            credits.store(0, Ordering::Relaxed);
        }
        self.tensor_error.store(0, Ordering::Relaxed);
        self.ucache_control.store(UCACHE_CONTROL_AT_START, Ordering::Relaxed);
        self.turned_on.store(0, Ordering::Relaxed);
        self.is_sending.store(false, Ordering::Relaxed);
        self.inbox().clear();
        *self.parked() = None;
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Message>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, message: Message) {
        self.inbox().push(message);
        self.has_met.store(true, Ordering::Relaxed);
    }

    fn has_message(&self, from: u32) -> bool {
        self.inbox().iter().any(|message| message.from == from)
    }

    /// Writes `ucache_control`. Turning the scratchpad on clears it: its owner does so when it sees
    /// that it was.
    pub(crate) fn set_cache_control(&self, control: u16) {
        let old = self.ucache_control.swap(control, Ordering::AcqRel);
        if control & !old & SCRATCHPAD_ON != 0 {
            self.turned_on.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn parked(&self) -> MutexGuard<'_, Option<Wait>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the credits of a counter.
    pub(crate) fn credits(&self, counter: usize) -> u16 {
        self.credits[counter & 1].load(Ordering::Acquire)
    }

    /// Takes one credit; false if there is none.
    pub(crate) fn take_credit(&self, counter: usize) -> bool {
        // Acquire: pairs with the release of `add_credit`, for what the giver stored before.
        self.credits[counter & 1]
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |credits| credits.checked_sub(1))
            .is_ok()
    }

    /// Adds one credit; true if that ends the hart's wait, which the caller must then make known.
    fn add_credit(&self, counter: usize) -> bool {
        if self.credits[counter & 1].fetch_add(1, Ordering::AcqRel) == u16::MAX {
            self.tensor_error.fetch_or(CREDIT_OVERFLOW, Ordering::Relaxed);
        }
        // The credit is counted before the lock is taken, and `park` looks for credits while it
        // holds the lock: one of the two sees the other.
        let mut parked = self.parked();
        let ends = *parked == Some(Wait::Credit(counter));
        if ends {
            *parked = None;
        }
        ends
    }

    /// Puts the hart aside; false if what it waits for is already there, or `cancelled` says so.
    pub(crate) fn park(&self, wait: Wait, cancelled: impl FnOnce() -> bool) -> bool {
        let mut parked = self.parked();
        let ready = match wait {
            Wait::Credit(counter) => self.credits(counter) != 0,
            Wait::Message(from) => self.has_message(from),
            Wait::Sent => !self.is_sending.load(Ordering::Acquire),
            Wait::Abort => false,
        };
        if ready || cancelled() {
            return false;
        }
        *parked = Some(wait);
        self.has_met.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the wait if `ends` says so; true if there was one.
    pub(crate) fn unpark(&self, ends: impl FnOnce(Wait) -> bool) -> bool {
        self.parked().take_if(|wait| ends(*wait)).is_some()
    }

    /// Returns `true` if the hart waits.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked().is_some()
    }
}

impl Shire {
    fn new() -> Self {
        Self {
            barriers: [const { AtomicU8::new(0) }; 32],
            broadcast_data: AtomicU64::new(0),
            dummy: [const { AtomicU64::new(0) }; NEIGHBOURHOODS],
            redirect_pc: [const { AtomicU64::new(0) }; NEIGHBOURHOODS],
        }
    }

    /// Joins barrier `value[4:0]` of `value[12:5]` + 1 participants; true for the last one.
    #[expect(clippy::cast_possible_truncation, reason = "fields of five and eight bits")]
    pub(crate) fn join_barrier(&self, value: u64) -> bool {
        let limit = (value >> 5) as u8;
        let step = |count: u8| Some(if count == limit { 0 } else { count.wrapping_add(1) });
        // Acquire and release: the last to join sees what the others stored before they joined.
        self.barriers[(value & 31) as usize]
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, step)
            .is_ok_and(|count| count == limit)
    }
}

impl Chip {
    pub(crate) fn new(config: &MachineConfig, dram: Arc<Dram>) -> Result<Self, CoresError> {
        Ok(Self {
            dram,
            scratchpads: Scratchpads::new()?,
            float: config.float,
            clock: Clock::new(config),
            finds_races: config.finds_races && matches!(config.memory, MemoryModel::Weak { .. }),
            weak: match config.memory {
                MemoryModel::Weak { seed } => Some(Mutex::new(Weak::new(seed, config.finds_races))),
                _ => None,
            },
            private: (config.memory == MemoryModel::Private)
                .then(|| (0..SHIRES).map(|_| Mutex::new(None)).collect()),
            shire_mask: config.shires,
            shires: (0..SHIRES).map(|_| Shire::new()).collect(),
            ports: (0..HART_SLOTS).map(|_| Port::new()).collect(),
        })
    }

    /// Takes the cache of a shire, if caches are private. It must be given back.
    pub(crate) fn take_cache(&self, shire: u32) -> Option<Box<Private>> {
        let slot = &self.private.as_ref()?[shire as usize];
        let cache = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(cache.unwrap_or_else(|| Private::new(self.dram.size())))
    }

    /// Gives the cache of a shire back.
    pub(crate) fn return_cache(&self, shire: u32, cache: Option<Box<Private>>) {
        if let Some(slots) = &self.private {
            let slot = &slots[shire as usize];
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = cache;
        }
    }

    /// Returns the state of weak memory, if memory is weak.
    pub(crate) fn weak(&self) -> Option<MutexGuard<'_, Weak>> {
        self.weak.as_ref().map(|weak| weak.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells what looks for races, if something does.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Races)) {
        if self.finds_races
            && let Some(mut weak) = self.weak()
            && let Some(races) = weak.races()
        {
            note(races);
        }
    }

    pub(crate) fn port(&self, hart: u32) -> &Port {
        &self.ports[hart as usize]
    }

    pub(crate) fn shire(&self, shire: u32) -> &Shire {
        &self.shires[shire as usize]
    }

    /// Sets the counters to what every kernel finds at its start.
    pub(crate) fn start_kernel(&self) {
        for port in &self.ports {
            port.reset();
        }
        for barrier in self.shires.iter().flat_map(|shire| &shire.barriers) {
            barrier.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets everything except DRAM.
    pub(crate) fn reset(&self) {
        self.start_kernel();
        self.scratchpads.region().discard();
        for shire in &self.shires {
            shire.broadcast_data.store(0, Ordering::Relaxed);
            for register in shire.dummy.iter().chain(&shire.redirect_pc) {
                register.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// What a hart can reach while it runs.
pub(crate) struct Core<'a> {
    pub(crate) chip: &'a Chip,
    pub(crate) code: &'a CodeCache,
    /// Where accesses must take the long way: the same as `stacks`, or everywhere if accesses are
    /// checked.
    pub(crate) guards: Guards,
    /// The stacks, and memory between them that traps.
    pub(crate) stacks: Guards,
    /// What checks accesses to DRAM, if something does.
    pub(crate) check: Option<Check<'a>>,
    /// Makes a hart whose wait has ended runnable.
    pub(crate) wake: &'a dyn Fn(u32),
    /// The page of code that was found last: harts of a shire are mostly in the same.
    pub(crate) recent: Cell<Option<&'a Page>>,
    /// Where executed instructions are counted, if they are.
    pub(crate) counters: Option<&'a Counters>,
    /// What translated code needs.
    pub(crate) context: Context,
}

impl<'a> Core<'a> {
    /// Finds the page of code with `physical`; none if code cannot be executed there.
    #[inline(always)]
    pub(crate) fn page(&self, physical: u64) -> Option<&'a Page> {
        match self.recent.get() {
            Some(page) if self.code.is_current(page, physical) => Some(page),
            _ => {
                self.recent.set(self.code.page(&self.chip.dram, physical));
                self.recent.get()
            }
        }
    }
}

impl Core<'_> {
    /// Returns `true` if the hart traps when it makes an access to DRAM.
    #[inline(always)]
    pub(crate) fn is_closed(&self, offset: u64, size: u64, access: Access) -> bool {
        self.stacks.touch(DRAM_BASE + offset, size)
            || self.check.is_some() && self.refusal(offset, size, access).is_some()
    }

    /// Returns the trap of an access that works, and is refused by what checks accesses.
    #[cold]
    pub(crate) fn refusal(&self, offset: u64, size: u64, access: Access) -> Option<Event> {
        let tval = DRAM_BASE + offset;
        let cause = self.check.as_ref()?.refuses(offset, size, access)?;
        Some(Event::Trap { cause, tval })
    }

    /// Returns `true` if there is nothing between harts and memory.
    pub(crate) fn is_flat(&self) -> bool {
        self.chip.weak.is_none() && self.chip.private.is_none()
    }

    /// Leaves a message with the hart `to`.
    pub(crate) fn deliver(&self, to: u32, message: Message) {
        let from = message.from;
        let port = self.chip.port(to);
        self.chip.note(|races| races.gives(Sync::Message(from, to)));
        // As with credits: it is there before the lock of the wait is taken.
        port.put(message);
        if port.unpark(|wait| wait == Wait::Message(from)) {
            (self.wake)(to);
        }
    }

    /// Takes what `from` sent to the hart `to`, and lets the sender know.
    pub(crate) fn take_message(&self, to: u32, from: u32) -> Option<Message> {
        let mut inbox = self.chip.port(to).inbox();
        let at = inbox.iter().position(|message| message.from == from)?;
        let message = inbox.remove(at);
        drop(inbox);
        self.chip.note(|races| races.takes(Sync::Message(from, to)));
        let sender = self.chip.port(from);
        sender.is_sending.store(false, Ordering::Release);
        if sender.unpark(|wait| wait == Wait::Sent) {
            (self.wake)(from);
        }
        Some(message)
    }

    /// Gives a credit to one thread of the minions of a shire that are named in `minions`.
    pub(crate) fn give_credits(&self, shire: u32, thread: u32, counter: usize, minions: u64) {
        if self.chip.shire_mask >> shire & 1 == 0 {
            return;
        }
        for minion in (0..HARTS_PER_SHIRE / 2).filter(|minion| minions >> minion & 1 != 0) {
            let Some(hart) = hart_of(shire, minion, thread) else { continue };
            self.chip.note(|races| races.gives(Sync::credit(hart, counter)));
            if self.chip.port(hart).add_credit(counter) {
                (self.wake)(hart);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_wrap_with_an_error() {
        let port = Port::new();
        for _ in 0..0xFFFF {
            port.add_credit(1);
        }
        assert_eq!((port.credits(1), port.tensor_error.load(Ordering::Relaxed)), (0xFFFF, 0));
        port.add_credit(1);
        assert_eq!((port.credits(1), port.tensor_error.load(Ordering::Relaxed)), (0, 8));
    }

    #[test]
    fn parking_with_a_credit_there_is_refused() {
        let port = Port::new();
        assert!(!port.add_credit(0));
        assert!(!port.park(Wait::Credit(0), || false));
        assert!(port.park(Wait::Credit(1), || false));
        assert!(!port.add_credit(0), "another counter");
        assert!(port.add_credit(1));
        assert!(!port.unpark(|_| true));
        assert!(!port.park(Wait::Abort, || true));
        assert!(port.park(Wait::Abort, || false) && port.is_parked());
        assert!(!port.unpark(|wait| wait != Wait::Abort) && port.unpark(|_| true));
        assert!(!port.is_parked());
    }

    #[test]
    fn a_kernel_finds_nothing_of_the_one_before() {
        let changes: [fn(&Port); 7] = [
            |port| assert!(!port.add_credit(0)),
            |port| assert!(!port.add_credit(1)),
            |port| port.tensor_error.store(1, Ordering::Relaxed),
            |port| port.set_cache_control(0),
            |port| port.is_sending.store(true, Ordering::Relaxed),
            |port| port.put(Message::of_zeros(3)),
            |port| assert!(port.park(Wait::Abort, || false)),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let port = Port::new();
            change(&port);
            port.reset();
            assert_eq!(format!("{port:?}"), format!("{:?}", Port::new()), "change {number}");
        }
    }

    #[test]
    fn the_last_to_join_a_barrier_resets_it() {
        let shire = Shire::new();
        let joined: Vec<_> = (0..6).map(|_| shire.join_barrier(2 << 5 | 7)).collect();
        assert_eq!(joined, [false, false, true, false, false, true]);
    }
}
