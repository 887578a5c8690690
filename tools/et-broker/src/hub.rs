//! What the threads of a broker share.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use et_hal::Hal;
use et_runtime::{
    Device, DeviceBuffer, DeviceSlice, Error, Event, Management, RecoveryPolicy, Stream,
};
use et_sim_device::{ForwardedCopy, ForwardedLaunch, Wake};
use et_vfio_user::Peer;

use crate::function::Function;
use crate::turns::Turns;

/// Partitions begin, and end, at multiples of a page: stacks of kernels are counted in these.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// How long to wait before a card that could not be recovered is tried again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What the copying threads do.
#[derive(Debug)]
pub(crate) enum CopyJob {
    /// A piece of a client's copy.
    Piece(Box<ForwardedCopy>),
    /// A piece of the partition, from this byte on, is set to zero.
    Clear(u64),
}

/// The launch that the card has.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) member: usize,
    /// Not there before the launch is sent.
    pub(crate) event: Option<Event>,
    /// The client wants it to end.
    pub(crate) is_aborted: bool,
}

/// What depends on how often the card was opened.
pub(crate) struct Opened<H: Hal> {
    pub(crate) management: Option<Management<H>>,
    /// One for each partition.
    pub(crate) buffers: Vec<DeviceBuffer>,
}

/// A client's slot.
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(crate) partition: Range<u64>,
    /// Copies, or pieces that are cleared, that the card has.
    pub(crate) copying: usize,
    /// The client may use the partition.
    pub(crate) is_ready: bool,
    /// The partition is cleared before that.
    pub(crate) is_to_clear: bool,
    /// Something was written into the partition since it was cleared.
    pub(crate) is_dirty: bool,
    /// Its function has been reset, and waits for what is still under way.
    pub(crate) is_ending: bool,
    pub(crate) wake: Option<Wake>,
    pub(crate) function: Weak<Function>,
    pub(crate) counts: Counts,
}

/// Sums since the broker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) launches: u64,
    pub(crate) kernel_time: Duration,
    pub(crate) copied_bytes: u64,
    pub(crate) overdue: u64,
}

pub(crate) struct State<H: Hal> {
    pub(crate) kernels: Turns<ForwardedLaunch>,
    pub(crate) copies: Turns<CopyJob>,
    pub(crate) running: Option<Running>,
    pub(crate) members: Vec<Member>,
    /// `None` while the card does not work.
    pub(crate) opened: Option<Arc<Opened<H>>>,
    pub(crate) is_stopped: bool,
    pub(crate) failures: u64,
    pub(crate) recoveries: u64,
}

/// See the [module](self).
pub(crate) struct Hub<H: Hal> {
    state: Mutex<State<H>>,
    /// There may be a launch, or the card has failed.
    pub(crate) launches: Condvar,
    /// There may be a copy.
    pub(crate) copies: Condvar,
    /// Written by recoveries only. Never taken under the lock of the state.
    device: RwLock<Device<H>>,
    pub(crate) frequency_mhz: u64,
    pub(crate) kernel_limit: Option<Duration>,
    pub(crate) keeps_memory: bool,
}

/// Whether the card can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardState {
    /// It works.
    Up,
    /// It has failed, and is being recovered.
    Down,
}

/// What a broker is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether the card can be used.
    pub card: CardState,
    /// How often it has failed.
    pub failures: u64,
    /// How often it was recovered.
    pub recoveries: u64,
    /// Bytes of device memory that are in no partition.
    pub free_bytes: u64,
    /// One for each slot.
    pub members: Vec<MemberStatus>,
}

/// What a slot is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Who uses it.
    pub client: Option<Peer>,
    /// Clients so far.
    pub clients: u64,
    /// The partition: first address, first address behind.
    pub partition: Range<u64>,
    /// The partition can be used: it has been cleared since the client before.
    pub is_ready: bool,
    /// A kernel of it runs.
    pub is_running: bool,
    /// Launches and pieces of copies that wait for their turn.
    pub waiting: usize,
    /// Launches so far.
    pub launches: u64,
    /// For how long they had the cores.
    pub kernel_time: Duration,
    /// Bytes copied so far, both ways.
    pub copied_bytes: u64,
    /// Kernels that were ended because they ran too long.
    pub overdue: u64,
}

impl<H: Hal> State<H> {
    /// Has the kernel of a member end, if it is the one that runs; returns what to abort.
    pub(crate) fn end_running(&mut self, member: usize) -> Option<Event> {
        let running = self.running.as_mut().filter(|running| running.member == member)?;
        running.is_aborted = true;
        running.event.clone()
    }
}

impl<H: Hal> Hub<H> {
    pub(crate) fn new(
        device: Device<H>,
        opened: Opened<H>,
        partitions: Vec<Range<u64>>,
        kernel_limit: Option<Duration>,
        keeps_memory: bool,
    ) -> Self {
        let count = partitions.len();
        let member = |partition| Member { partition, is_dirty: true, ..Member::default() };
        let frequency = device.properties().boot_frequency_mhz.unwrap_or(1);
        Self {
            state: Mutex::new(State {
                kernels: Turns::new(count),
                copies: Turns::new(count),
                running: None,
                members: partitions.into_iter().map(member).collect(),
                opened: Some(Arc::new(opened)),
                is_stopped: false,
                failures: 0,
                recoveries: 0,
            }),
            launches: Condvar::new(),
            copies: Condvar::new(),
            device: RwLock::new(device),
            frequency_mhz: frequency.into(),
            kernel_limit,
            keeps_memory,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn device(&self) -> RwLockReadGuard<'_, Device<H>> {
        self.device.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stream(&self) -> Stream<H> {
        self.device().stream()
    }

    /// Asks the card to end an operation; that it has ended already is as good.
    pub(crate) fn request_abort(&self, event: &Event) {
        // Not while it is recovered, which ends everything, and which no client waits for.
        let Ok(device) = self.device.try_read() else { return };
        if let Err(error) = device.request_abort(event) {
            tracing::debug!(%error, "abort of a client's kernel");
        }
    }

    /// Has a reset function go on when nothing of its client is under way any more.
    pub(crate) fn settle(&self, state: &mut State<H>, index: usize) {
        let is_running = state.running.as_ref().is_some_and(|running| running.member == index);
        let is_open = state.opened.is_some();
        let Some(member) = state.members.get_mut(index) else { return };
        if !member.is_ending || is_running || member.copying != 0 || !is_open {
            return;
        }
        member.is_ending = false;
        if member.is_to_clear {
            state.copies.push(index, CopyJob::Clear(0));
            self.copies.notify_all();
            return;
        }
        member.is_ready = true;
        if let Some(wake) = member.wake.take() {
            wake.raise();
        }
    }

    /// The card has failed: so have all functions, until they are reset and the card is back.
    pub(crate) fn fail(&self, why: &Error) {
        let mut state = self.state();
        if state.opened.take().is_none() {
            return;
        }
        tracing::warn!(error = why as &dyn std::error::Error, "the card has failed");
        state.failures += 1;
        let mut lost = (Vec::new(), Vec::new());
        let mut functions = Vec::new();
        for index in 0..state.members.len() {
            lost.0.extend(state.kernels.drain(index));
            lost.1.extend(state.copies.drain(index));
            let member = &mut state.members[index];
            member.is_ready = false;
            member.is_ending = true;
            // What a reset leaves in memory is nothing a client can build on.
            member.is_to_clear = !self.keeps_memory;
            functions.extend(member.function.upgrade());
        }
        drop(state);
        functions.iter().for_each(|function| function.lose());
        drop(lost);
        self.launches.notify_all();
    }

    /// Makes the card work again, if that can be done. Called by one thread only.
    pub(crate) fn recover(&self) {
        let is_idle = |state: &State<H>| state.members.iter().all(|member| member.copying == 0);
        {
            let state = self.state();
            let busy = |state: &mut State<H>| !state.is_stopped && !is_idle(state);
            let waited = self.launches.wait_timeout_while(state, PAUSE, busy);
            if !is_idle(&waited.unwrap_or_else(PoisonError::into_inner).0) {
                return;
            }
        }
        let mut device = self.device.write().unwrap_or_else(PoisonError::into_inner);
        // Handles of before are stale, even if the card did without a wide reset.
        let outcome = device.recover(&RecoveryPolicy::new()).map_err(|error| error.ill);
        let outcome = outcome.and_then(|recovery| {
            let has_kept = !recovery.lost.queues;
            if has_kept { device.reset(RecoveryPolicy::new().timeout) } else { Ok(()) }
        });
        let mut state = self.state();
        let lens: Vec<_> =
            state.members.iter().map(|m| m.partition.end - m.partition.start).collect();
        let opened = outcome.and_then(|()| open(&device, &lens));
        drop(device);
        match opened {
            Ok(opened) => {
                tracing::info!("the card works again");
                for (member, buffer) in state.members.iter_mut().zip(&opened.buffers) {
                    let start = buffer.addr().as_u64();
                    member.partition = start..start + buffer.len_bytes();
                }
                state.opened = Some(Arc::new(opened));
                state.recoveries += 1;
                (0..lens.len()).for_each(|index| self.settle(&mut state, index));
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no recovery");
                let busy = |state: &mut State<H>| !state.is_stopped;
                drop(self.launches.wait_timeout_while(state, PAUSE, busy));
            }
        }
    }

    pub(crate) fn status(&self) -> Status {
        let free_bytes = self.device().memory_stats().free_bytes;
        let state = self.state();
        let running = state.running.as_ref().map(|running| running.member);
        let status = |(index, member): (usize, &Member)| {
            let function = member.function.upgrade();
            let (client, clients) = function.map_or((None, 0), |function| function.client());
            MemberStatus {
                client,
                clients,
                partition: member.partition.clone(),
                is_ready: member.is_ready,
                is_running: running == Some(index),
                waiting: state.kernels.waiting(index) + state.copies.waiting(index),
                launches: member.counts.launches,
                kernel_time: member.counts.kernel_time,
                copied_bytes: member.counts.copied_bytes,
                overdue: member.counts.overdue,
            }
        };
        Status {
            card: if state.opened.is_some() { CardState::Up } else { CardState::Down },
            failures: state.failures,
            recoveries: state.recoveries,
            free_bytes,
            members: state.members.iter().enumerate().map(status).collect(),
        }
    }
}

impl<H: Hal> Opened<H> {
    /// Returns a part of a partition.
    pub(crate) fn slice(&self, index: usize, at: u64, len: u64) -> Result<DeviceSlice, Error> {
        let buffer = self.buffers.get(index).ok_or(Error::ForeignBuffer)?;
        let start = at.checked_sub(buffer.addr().as_u64()).ok_or(Error::ForeignBuffer)?;
        buffer.slice(start..start.checked_add(len).ok_or(Error::ForeignBuffer)?)
    }
}

/// Takes the partitions out of the card's memory.
pub(crate) fn open<H: Hal>(device: &Device<H>, lens: &[u64]) -> Result<Opened<H>, Error> {
    let buffers = lens.iter().map(|len| device.alloc_aligned(*len, PAGE_BYTES));
    let buffers = buffers.collect::<Result<_, _>>()?;
    // A card may do without: then no query is answered.
    let management = device.management().inspect_err(|error| {
        tracing::warn!(error = error as &dyn std::error::Error, "no management endpoint");
    });
    Ok(Opened { management: management.ok(), buffers })
}

/// Returns `true` if an error concerns the card, and not one operation.
pub(crate) fn is_fatal(error: &Error) -> bool {
    !matches!(
        error,
        Error::Copy { .. }
            | Error::Aborted { .. }
            | Error::AbortedWith { .. }
            | Error::NeedsReset { .. }
            | Error::ShireMask { .. }
            | Error::Misaligned { .. }
            | Error::OutOfRange { .. }
            | Error::ForeignBuffer
    )
}

/// Returns how long it is since then, in cycles of the card, at least one.
pub(crate) fn cycles_since(start: Instant, frequency_mhz: u64) -> u64 {
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    micros.saturating_mul(frequency_mhz).max(1)
}
