//! The link to a device: everything between an accepted operation and its end.
//!
//! [`core`] decides, without threads, clock or input and output. The link drives it: it puts
//! commands into the mailbox, takes answers out, and tells whoever waits. There is one lock around
//! the state machine, held for the time of a few messages and never while anything is waited for.
//!
//! | File | What |
//! |---|---|
//! | `core/` | the state machine |
//! | `flight.rs` | wire tags |
//! | `health.rs` | whether the device can be used |
//! | `wait.rs`, `parker.rs` | the way to wait |
//! | `one_shot.rs` | results |
//! | `operation.rs` | what handles see of an operation |
//! | `load.rs` | a command: message, and memory that belongs to it |
//! | `errors.rs` | what failed without anyone hearing of it |
//! | `driver.rs` | hands operations to the state machine, and moves messages to and from it |
//! | `errands.rs` | callbacks of users |
//! | `answer.rs`, `testimony.rs` | firmware events, and what follows from a failed launch |
//! | `dumps.rs` | failed launches that wait for their core files |
//! | `contexts.rs` | launch contexts |
//! | `room.rs` | waiting for room and staging memory |
//! | `window.rs` | device memory, where the host may use it |
//! | `background.rs` | the thread that drains when nothing else does |

mod answer;
mod background;
mod contexts;
pub(crate) mod core;
mod driver;
mod dumps;
mod errands;
mod errors;
mod flight;
mod health;
mod load;
#[cfg(test)]
mod load_tests;
mod one_shot;
mod operation;
mod parker;
mod room;
mod testimony;
pub(crate) mod wait;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use et_devapi::discovery::Layout;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Body, CmResetStatus};
use et_hal::{DeviceAccess, Hal, Mailbox};

use self::core::{Command, Core, Shape};
use self::driver::Tools;
use self::errands::Errand;
use crate::clock::Deadline;
use crate::config::Config;
use crate::memory::{DeviceMemory, DeviceSlice, HostBuffer, Lease, Staging};
use crate::profile::Profiler;
use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::{Error, Refusal, Result};

pub use self::core::Priority;
pub(crate) use self::core::{Harm, StreamKey};
pub(crate) use contexts::Fresh;
pub(crate) use driver::Driver;
pub(crate) use dumps::Order;
pub(crate) use errors::ErrorLists;
pub use errors::{DeviceError, DeviceErrors, StreamError, StreamErrors};
pub(crate) use load::{
    Arrival, Devices, Keep, LaunchWire, Launched, Load, Nodes, Then, Wire, take_arrival,
};
pub use one_shot::{Continuations, OneShot, WakerKey};
pub use operation::EventState;
pub(crate) use operation::{OpKey, OpName, Operation, Outcome};
pub use parker::{Parker, Whereabouts};
pub(crate) use room::Submission;
pub use wait::Waiters;
#[cfg(feature = "unstable-handshake")]
pub use wait::{Lead, Source, Terms};
pub(crate) use window::Window;

/// Most launch contexts, and so most launches in flight.
const CONTEXTS: usize = 64;

/// Counts of what happened on a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Responses whose tag was not in flight; they are ignored.
    pub stray_responses: u64,
    /// Messages of a kind this runtime does not know; they are ignored.
    pub unknown_messages: u64,
    /// Events that a firmware trace buffer is full. Spec: §10.4.
    pub trace_buffer_events: u64,
    /// Callbacks and wakers that panicked.
    pub callback_panics: u64,
}

/// What a program has a device do at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Streams that have a handle, those of the runtime and of executors included.
    pub streams: u64,
    /// Operations that were accepted since the device was opened, or was reset.
    pub accepted: u64,
    /// Those of them that have not ended.
    pub pending: u64,
    /// Commands that the device has and has not answered, those of the runtime itself included.
    pub in_flight: u64,
    /// Bytes of device memory that are managed.
    pub memory_bytes: u64,
    /// Bytes of it in live buffers.
    pub memory_used_bytes: u64,
    /// Live buffers.
    pub buffers: u64,
    /// Kernels that have run, well or not, since the device was opened, or was reset.
    pub launches: u64,
    /// Bytes that commands have copied to the device, and that have arrived.
    pub to_device_bytes: u64,
    /// Bytes that commands have copied from the device.
    pub to_host_bytes: u64,
    /// Shires that kernels can run on, a bit for each.
    pub available_shires: u64,
    /// For how many cycles of the minion clock each shire has run kernels. The device says so when
    /// a kernel has ended.
    pub busy_cycles: [u64; 32],
    /// Shires that kernels have which the device was sent and which have not ended, a bit for each:
    /// it is busy, or will be when others have ended.
    pub launched_shires: u64,
}

#[derive(Debug, Default)]
struct Counts {
    stray: AtomicU64,
    unknown: AtomicU64,
    trace_full: AtomicU64,
    panics: AtomicU64,
}

/// See the [module](self).
pub(crate) struct Link<H: Hal> {
    // These two go first when all is dropped: the backend stops the device before its DMA memory
    // goes.
    mailbox: Arc<H::Mailbox>,
    pub(crate) hal: Arc<H>,
    pub(crate) layout: Layout,
    pub(crate) config: Config,
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) staging: Arc<Staging<H>>,
    pub(crate) profiler: Profiler,
    /// What errors call the device.
    pub(crate) name: Arc<str>,
    /// The highest level of texts that firmware traces; all of them from the start. Spec: §16.2
    pub(crate) firmware_level: Arc<AtomicU8>,
    core: Mutex<Core<Box<Load<H>>>>,
    waiters: Waiters<Tools<H>>,
    /// Callbacks of users, until a thread runs them that holds no lock.
    errands: Mutex<VecDeque<Errand>>,
    has_errands: AtomicBool,
    /// Commands wait on the host for room.
    has_backlog: AtomicBool,
    /// Launches may need one more context.
    wants_context: AtomicBool,
    /// How often the results of operations that have ended were set, modulo 2³².
    delivered: AtomicU32,
    /// Who waits until no other thread is about to.
    latecomers: Mutex<Vec<Arc<Parker>>>,
    has_latecomers: AtomicBool,
    background: Arc<Parker>,
    is_closed: AtomicBool,
    /// Commands submitted, modulo 2³².
    submitted: AtomicU32,
    counts: Counts,
    pub(crate) errors: ErrorLists,
    /// Held while a copy between devices takes its places in two streams.
    pub(crate) pairing: Mutex<()>,
    /// Holds the pattern that fresh exception buffers are filled with.
    pattern: Mutex<Option<Arc<Lease<H>>>>,
    /// Spare host buffers for exception buffers.
    reports: Mutex<Vec<HostBuffer<H>>>,
    /// Host buffer for traces of firmware.
    messages: Mutex<Option<Arc<Lease<H>>>>,
    dumps: dumps::Dumps,
}

impl<H: Hal> Link<H> {
    pub(crate) fn new(
        hal: Arc<H>,
        layout: Layout,
        mailbox: H::Mailbox,
        config: Config,
        errors: ErrorLists,
    ) -> Result<Self> {
        let (base, len) = (layout.host_managed.base, layout.host_managed.len);
        let mailbox = Arc::new(mailbox);
        let memory = DeviceMemory::new(base, len, hal.watch_memory(base, len))?;
        let shape = Shape {
            queues: layout.ops_mailbox.submission.count.into(),
            high_queues: layout.ops_mailbox.high_priority.count.into(),
            in_flight: config.in_flight,
            contexts: CONTEXTS,
        };
        let name = config.device_name();
        Ok(Self {
            staging: Staging::new(config.staging_bytes, Arc::downgrade(&mailbox)),
            mailbox,
            hal,
            layout,
            firmware_level: Arc::new(AtomicU8::new(crate::trace::DEBUG)),
            profiler: Profiler::new(Arc::clone(&memory), Arc::clone(&config.clock)),
            memory,
            core: Mutex::new(Core::new(shape)),
            name,
            waiters: Waiters::new(Tools::new()),
            errands: Mutex::default(),
            has_errands: AtomicBool::new(false),
            has_backlog: AtomicBool::new(false),
            wants_context: AtomicBool::new(true),
            delivered: AtomicU32::new(0),
            latecomers: Mutex::default(),
            has_latecomers: AtomicBool::new(false),
            background: Arc::new(Parker::new()),
            is_closed: AtomicBool::new(false),
            submitted: AtomicU32::new(0),
            counts: Counts::default(),
            errors,
            pairing: Mutex::new(()),
            pattern: Mutex::new(None),
            reports: Mutex::new(Vec::new()),
            messages: Mutex::new(None),
            dumps: dumps::Dumps::default(),
            config,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.config.clock.now()
    }

    pub(crate) fn deadline(&self, after: Duration) -> Deadline {
        Deadline::after(&*self.config.clock, after)
    }

    /// The same error, with what it is a failure of unless it knows.
    pub(crate) fn during(&self, op: &'static str, error: Error) -> Error {
        error.during(op).on(Arc::clone(&self.name))
    }

    /// What was waited for did not come in time.
    pub(crate) fn timeout(&self, op: &'static str, after: Duration) -> Error {
        Error::timeout(op, after).on(Arc::clone(&self.name))
    }

    /// Returns why nothing can be sent, if so.
    pub(crate) fn refusal(&self) -> Option<Error> {
        lock(&self.core).health().refusal().cloned()
    }

    /// Fails if nothing can be sent.
    pub(crate) fn check_open(&self, op: &'static str) -> Result<()> {
        self.refusal().map_or(Ok(()), |error| Err(error.during(op)))
    }

    /// Returns why nothing can be launched, if so.
    pub(crate) fn compute_refusal(&self) -> Option<Error> {
        lock(&self.core).health().compute_refusal().cloned()
    }

    /// Shires that kernels can run on. Spec: §9.3; the master shire cannot be expressed in the
    /// mask.
    pub(crate) fn available_shires(&self) -> u64 {
        self.layout.mgmt.header.cm_shires_mask.get().into()
    }

    pub(crate) fn host_buffer(
        &self,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<HostBuffer<H>> {
        HostBuffer::alloc(self.hal.dma(), len_bytes, 1, access)
    }

    pub(crate) fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            stray_responses: read(&self.counts.stray),
            unknown_messages: read(&self.counts.unknown),
            trace_buffer_events: read(&self.counts.trace_full),
            callback_panics: read(&self.counts.panics),
        }
    }

    pub(crate) fn activity(&self) -> Activity {
        let memory = self.memory.stats();
        Activity {
            memory_bytes: memory.total_bytes,
            memory_used_bytes: memory.used_bytes,
            buffers: memory.live_blocks,
            available_shires: self.available_shires(),
            ..lock(&self.core).activity()
        }
    }

    pub(crate) fn open_stream(&self, priority: Priority) -> (StreamKey, u32) {
        let (key, number) = lock(&self.core).open_stream(priority);
        self.errors.open(number);
        (key, number)
    }

    pub(crate) fn drop_stream(&self, stream: StreamKey, number: u32) {
        self.errors.close(number);
        lock(&self.core).drop_stream(stream);
    }

    /// Takes what went wrong in a stream without anyone hearing of it.
    pub(crate) fn take_errors(&self, stream: u32) -> StreamErrors {
        self.errors.take(stream)
    }

    pub(crate) fn listen_to(&self, stream: u32, listener: Arc<dyn Fn(&StreamError) + Send + Sync>) {
        self.errors.listen_to(stream, listener);
    }

    /// What the ends of copies have to be multiples of.
    pub(crate) fn copy_align(&self) -> u64 {
        if self.config.byte_copies { 1 } else { self.layout.dma.align_bytes }
    }

    pub(crate) fn queue_count(&self) -> usize {
        lock(&self.core).queue_count()
    }

    /// Makes later operations of a stream wait for one of this link.
    pub(crate) fn depend(&self, stream: StreamKey, on: OpKey) {
        self.enter(|core, _| core.depend(stream, on));
    }

    /// Makes later operations of a stream wait until [`fired`](Self::fired).
    pub(crate) fn add_wait(&self, stream: StreamKey) -> u64 {
        self.enter(|core, _| core.add_wait(stream))
    }

    pub(crate) fn fired(&self, stream: StreamKey, wait: u64) {
        self.enter_quietly(|core, now| core.fired(stream, wait, now));
    }

    /// Returns where the device leaves the contexts of harts that trap in a launch, while it has
    /// it.
    pub(crate) fn exceptions(&self, key: OpKey) -> Option<DeviceSlice> {
        lock(&self.core).in_flight_of(key).find_map(|load| load.exceptions())
    }

    /// Asks for the abort of an operation, without waiting for it; `false` if it has ended.
    pub(crate) fn abort(&self, key: OpKey, harm: Harm) -> Result<bool> {
        self.enter(|core, now| core.abort(key, harm, now))
    }

    /// Returns `true` while an abort that avoids harm waits for a kernel of another.
    pub(crate) fn waits_for_a_kernel(&self, key: OpKey) -> bool {
        lock(&self.core).waits_for_a_kernel(key)
    }

    pub(crate) fn abort_stream(&self, stream: StreamKey) -> Result<()> {
        self.enter(|core, now| core.abort_stream(stream, now))
    }

    pub(crate) fn abort_all(&self) -> Result<()> {
        self.enter(|core, now| core.abort_all(now))
    }

    /// Resets the compute cores; launches that were in flight are lost. Spec: §10.3
    ///
    /// One that takes longer than the deadline goes on, and launches wait for it.
    pub(crate) fn reset_compute(&self, deadline: Deadline) -> Result<()> {
        let op = "compute reset";
        let answer = self.call_with(Wire::CM_RESET, op, deadline, |core, command| {
            let is_posted = core.post_reset(command);
            posted(core, is_posted, op)
        });
        let Body::CmReset { status } = answer? else {
            unreachable!("only its own kind of answer is held for a reset")
        };
        if status != CmResetStatus::Success {
            return Err(Error::Refused { op, status: Refusal::ComputeReset(status) });
        }
        Ok(())
    }

    /// Sends one of the runtime's own commands and waits for the answer.
    pub(crate) fn call(&self, wire: Wire, op: &'static str, deadline: Deadline) -> Result<Body> {
        self.call_with(wire, op, deadline, |core, command| {
            let queue = core.quietest();
            core.post(queue, command);
            Ok(())
        })
    }

    /// The same, on a high-priority queue.
    pub(crate) fn call_high(
        &self,
        queue: usize,
        flags: CommandFlags,
        wire: Wire,
        op: &'static str,
        deadline: Deadline,
    ) -> Result<Body> {
        self.call_with(wire, op, deadline, |core, command| {
            let is_posted = core.post_high(queue, command.flags(flags));
            posted(core, is_posted, op)
        })
    }

    fn call_with(
        &self,
        wire: Wire,
        op: &'static str,
        deadline: Deadline,
        post: impl FnOnce(&mut Core<Box<Load<H>>>, Command<Box<Load<H>>>) -> Result<()>,
    ) -> Result<Body> {
        let reply = Arc::new(OneShot::new());
        let load = Load::new(wire, Then::Reply(Arc::clone(&reply)));
        self.enter(|core, _| post(core, Command::new(load)))?;
        self.wait_for(&reply, deadline)
            .unwrap_or_else(|| Err(Error::timeout(op, deadline.limit())))
            .map_err(|error| match error {
                // The state machine knows no names of commands that belong to no operation.
                Error::Refused { status, .. } => Error::Refused { op, status },
                error => self.during(op, error),
            })
    }

    /// Sends one of the runtime's own commands, for which no thread waits.
    fn post(&self, load: Box<Load<H>>) {
        self.enter_quietly(|core, _| {
            let queue = core.quietest();
            core.post(queue, Command::new(load));
        });
    }

    /// The device cannot be used any more: everything ends with `error`.
    pub(crate) fn lose(&self, error: &Error) {
        let error = &error.clone().on(Arc::clone(&self.name));
        if !self.enter_quietly(|core, now| core.lose(error, now)) {
            return;
        }
        match error {
            // The caller's own doing.
            Error::Closed { .. } | Error::Stale { .. } => {
                tracing::debug!(%error, "device given up")
            }
            error => {
                tracing::error!(%error, "device lost");
                self.report(DeviceError::Device(error.clone()));
                self.tell(&self.background);
            }
        }
        self.staging.close(error);
        self.mailbox.wake();
    }

    /// Frees what was kept from a device that could still reach it. To be called after a reset.
    pub(crate) fn end_quarantine(&self) {
        let kept = lock(&self.core).end_quarantine();
        // Without the lock: memory of the caller may be among it.
        drop(kept);
    }

    /// Returns `true` after [`close`](Self::close).
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends the background thread.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.tell(&self.background);
        self.mailbox.wake();
    }

    /// Gives a parker its token, and wakes its thread wherever it sleeps.
    fn tell(&self, parker: &Parker) {
        if parker.call() == Whereabouts::Abroad {
            self.mailbox.wake();
        }
    }
}

/// Says why a command of the runtime itself was not queued, if it was not.
fn posted<C: core::Load>(core: &Core<C>, is_posted: bool, op: &'static str) -> Result<()> {
    if is_posted {
        return Ok(());
    }
    let why = "the device has no high-priority queue for it";
    Err(core.health().refusal().cloned().unwrap_or(Error::Unsupported { op, why }))
}
