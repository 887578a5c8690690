//! A command on its way: what to send, and what belongs to it until the answer.

use std::path::Path;

use et_devapi::msg::ops::{
    self, Body, DmaReadNode, DmaStatus, DmaWriteNode, LaunchError, LaunchPayload, LaunchStatus,
};
use et_devapi::msg::{CommandFlags, EncodeError, Tag};
use et_hal::{DeviceAddr, Hal};

use super::core::{self, Verdict, Work};
use super::{OneShot, Parker};
use crate::core_dump::{Kept, Scene, StackArea};
use crate::kernel::{KernelInner, LaunchContext, LaunchFailure};
use crate::memory::{Chunk, DeviceSlice, HostBuffer, Lease};
use crate::sync::{Arc, Mutex, lock};
use crate::{Error, Result};

/// A message, before it has a tag.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    /// The usual list has one node, which needs no memory of its own.
    DmaWrite(Nodes<DmaWriteNode>),
    DmaRead(Nodes<DmaReadNode>),
    Launch(LaunchWire),
    /// One that borrows nothing.
    Plain(ops::Command<'static>),
}

/// A list of one or more nodes.
#[derive(Clone, Debug)]
pub(crate) enum Nodes<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Nodes<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(node) => std::slice::from_ref(node),
            Self::Many(nodes) => nodes,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LaunchWire {
    /// Its arguments are `None` while they are those of the context, and its payload is empty.
    pub(crate) launch: ops::Launch<'static>,
    pub(crate) payload: LaunchPayload,
}

impl<T> Nodes<T> {
    /// All bytes of the list.
    #[inline]
    fn bytes(&self, of: impl Fn(&T) -> u32) -> u64 {
        self.as_slice().iter().map(|node| u64::from(of(node))).sum()
    }
}

impl Wire {
    pub(crate) const ECHO: Self = Self::Plain(ops::Command::Echo);
    pub(crate) const ABORT: Self = Self::Plain(ops::Command::Abort);
    pub(crate) const COMPATIBILITY: Self = Self::Plain(ops::Command::CheckCompatibility);
    /// Firmware ignores which shires. Spec: §7.12.
    pub(crate) const CM_RESET: Self = Self::Plain(ops::Command::CmReset { shire_mask: u64::MAX });

    /// Returns `true` if its length depends on how many copies it has.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::DmaWrite(Nodes::Many(_)) | Self::DmaRead(Nodes::Many(_)))
    }

    #[inline]
    pub(crate) fn encode(
        &self,
        tag: Tag,
        flags: CommandFlags,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let (command, flags) = match self {
            Self::DmaWrite(nodes) => {
                (ops::Command::DmaWriteList { nodes: nodes.as_slice() }, flags)
            }
            Self::DmaRead(nodes) => (ops::Command::DmaReadList { nodes: nodes.as_slice() }, flags),
            Self::Launch(wire) => {
                let launch = ops::Launch { payload: wire.payload.as_bytes(), ..wire.launch };
                (ops::Command::KernelLaunch(launch), flags.with(wire.payload.flags()))
            }
            Self::Plain(command) => (*command, flags),
        };
        command.encode(tag, flags, out)
    }
}

/// What happens with the answer, and what the device may touch until then.
pub(crate) enum Then<H: Hal> {
    /// The status decides; these stay alive meanwhile.
    Check(Keep<H>),
    /// A launch: on failure its exception buffer is fetched first.
    Launch(Launched),
    /// A launch that someone else has made, who wants the answer as it is; its memory stays alive
    /// meanwhile.
    Forward { answer: Arc<Mutex<Option<Body>>>, _uses: Vec<DeviceSlice> },
    /// The exception buffer of a failed launch arrives.
    Diagnose(Box<Diagnosis<H>>),
    /// What firmware traced arrives, for the report of a failed launch.
    Testify(Box<Testimony<H>>),
    /// An exception buffer has its pattern, for the first time or again.
    Refill { context: LaunchContext, pattern: Pattern<H> },
    /// The runtime itself wants the answer.
    Reply(Arc<OneShot<Result<Body>>>),
}

/// Where the pattern of exception buffers comes from.
pub(crate) enum Pattern<H: Hal> {
    /// A buffer for reports, which is used again.
    Own(HostBuffer<H>),
    Shared {
        _buffer: Arc<Lease<H>>,
    },
}

/// Memory that one command uses.
pub(crate) enum Keep<H: Hal> {
    Nothing,
    Chunk {
        _chunk: Chunk<H>,
        _device: Devices,
    },
    /// A chunk several commands use.
    Shared {
        _chunk: Arc<Chunk<H>>,
        _device: DeviceSlice,
    },
    Lease {
        _host: Arc<Lease<H>>,
        _device: Devices,
    },
    /// A host buffer for memory that is the firmware's own.
    Host {
        _host: Arc<Lease<H>>,
    },
    /// The chunk of a blocking read; the reader takes it from here.
    Reader {
        chunk: Chunk<H>,
        place: Arc<OneShot<Arrival<H>>>,
        _device: Devices,
    },
    /// A reader whose chunk stays with a device that is lost.
    Gone {
        place: Arc<OneShot<Arrival<H>>>,
    },
}

/// Device memory that a command uses; a list has many parts.
#[derive(Clone, Debug)]
pub(crate) enum Devices {
    One { _slice: DeviceSlice },
    Many { _slices: Arc<[DeviceSlice]> },
}

impl From<&DeviceSlice> for Devices {
    fn from(slice: &DeviceSlice) -> Self {
        Self::One { _slice: slice.clone() }
    }
}

impl<'a> FromIterator<&'a DeviceSlice> for Devices {
    fn from_iter<I: IntoIterator<Item = &'a DeviceSlice>>(slices: I) -> Self {
        Self::Many { _slices: slices.into_iter().cloned().collect() }
    }
}

/// A piece of a read, or why there is none. Taken once.
pub(crate) type Arrival<H> = Arc<Mutex<Option<Result<Chunk<H>>>>>;

#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) context: Option<LaunchContext>,
    /// A command before it in the same operation puts the pattern into the context.
    pub(crate) is_fresh: bool,
    pub(crate) kernel: Arc<KernelInner>,
    pub(crate) uses: Vec<DeviceSlice>,
    pub(crate) stack: Option<StackArea>,
    /// If it fails, its memory is kept for a core dump.
    pub(crate) is_dumpable: bool,
    /// If it fails, a core file is written here.
    pub(crate) core_path: Option<Arc<Path>>,
}

impl Launched {
    /// The report of its failure, without the state of the harts.
    pub(crate) fn failure(
        &self,
        wire: &Wire,
        status: LaunchStatus,
        error: Option<&LaunchError>,
    ) -> LaunchFailure {
        let failure = LaunchFailure::new(&self.kernel.program, status, error);
        let Wire::Launch(wire) = wire else { return failure };
        let LaunchWire { launch, payload } = wire;
        let keeps = self.is_dumpable || self.core_path.is_some();
        let kept = keeps.then(|| Kept {
            code: self.kernel.code.clone(),
            uses: self.uses.clone(),
            stack: self.stack.clone(),
        });
        failure.with_scene(Scene {
            shires: launch.shire_mask,
            entry: launch.entry.as_u64(),
            args: launch.args.map_or(0, DeviceAddr::as_u64),
            args_bytes: payload.arguments().to_vec(),
            kept,
            is_dumpable: self.is_dumpable,
            core_path: self.core_path.clone(),
            ..Scene::default()
        })
    }

    /// Lets go of all but the context.
    pub(crate) fn into_context(mut self) -> Option<LaunchContext> {
        self.context.take()
    }
}

pub(crate) struct Diagnosis<H: Hal> {
    pub(crate) launched: Launched,
    pub(crate) buffer: HostBuffer<H>,
    pub(crate) failure: LaunchFailure,
    /// What to report instead, if the launch was aborted for another's sake.
    pub(crate) instead: Option<Error>,
    /// When the launch began, in cycles of the device.
    pub(crate) since: u64,
}

pub(crate) struct Testimony<H: Hal> {
    /// Shared with the link, which knows by that whether it is in use.
    pub(crate) buffer: Arc<Lease<H>>,
    pub(crate) failure: LaunchFailure,
    pub(crate) since: u64,
}

/// A command: what goes to the device, and what belongs to it.
pub(crate) struct Load<H: Hal> {
    pub(crate) wire: Wire,
    pub(crate) then: Then<H>,
}

impl<H: Hal> Load<H> {
    /// In a box, because it is handed on many times on its way.
    pub(crate) fn new(wire: Wire, then: Then<H>) -> Box<Self> {
        Box::new(Self { wire, then })
    }

    /// A copy whose memory is kept until it has ended.
    pub(crate) fn copy(wire: Wire, keep: Keep<H>) -> Box<Self> {
        Self::new(wire, Then::Check(keep))
    }

    /// Gives it a context that gets its pattern only now.
    pub(crate) fn give_fresh_context(&mut self, context: LaunchContext) {
        self.use_context(context);
        if let Then::Launch(launched) = &mut self.then {
            launched.is_fresh = true;
        }
    }

    fn use_context(&mut self, context: LaunchContext) {
        let (Wire::Launch(wire), Then::Launch(launched)) = (&mut self.wire, &mut self.then) else {
            return;
        };
        // Without arguments the kernel gets null, not those of an earlier launch.
        if !wire.payload.arguments().is_empty() {
            wire.launch.args.get_or_insert(context.args());
        }
        wire.launch.exception_buffer = Some(context.exceptions());
        launched.context = Some(context);
    }

    /// Where the device leaves the contexts of harts that trap, for a launch.
    pub(crate) fn exceptions(&self) -> Option<DeviceSlice> {
        match &self.then {
            Then::Launch(launched) => launched.context.as_ref().map(LaunchContext::exception_slice),
            _ => None,
        }
    }

    /// Lets go of the memory, once the device is done with it.
    #[expect(clippy::boxed_local, reason = "it is in a box, and large to be moved out")]
    pub(crate) fn finish(self: Box<Self>, error: Option<Error>, tell: &mut dyn FnMut(&Parker)) {
        match self.then {
            Then::Check(Keep::Gone { place }) => {
                let arrival = Err(error.unwrap_or(Error::all_closed()));
                if let Some(told) = place.set(Arc::new(Mutex::new(Some(arrival))), &mut *tell) {
                    told.run();
                }
            }
            Then::Check(Keep::Reader { chunk, place, .. }) => {
                let arrival = error.map_or(Ok(chunk), Err);
                if let Some(told) = place.set(Arc::new(Mutex::new(Some(arrival))), &mut *tell) {
                    told.run();
                }
            }
            Then::Reply(reply) => {
                let error = error.unwrap_or(Error::all_closed());
                if let Some(told) = reply.set(Err(error), &mut *tell) {
                    told.run();
                }
            }
            _ => {}
        }
    }
}

impl<H: Hal> core::Load for Box<Load<H>> {
    type Context = LaunchContext;

    fn abort() -> Self {
        Load::copy(Wire::ABORT, Keep::Nothing)
    }

    fn ping() -> Self {
        Load::copy(Wire::ECHO, Keep::Nothing)
    }

    fn is_launch(&self) -> bool {
        matches!(self.then, Then::Launch(_) | Then::Forward { .. })
    }

    fn has_context(&self) -> bool {
        matches!(self.then, Then::Launch(_))
    }

    fn wants_context(&self) -> bool {
        matches!(&self.then, Then::Launch(launched) if launched.context.is_none())
    }

    fn give_context(&mut self, context: LaunchContext) {
        self.use_context(context);
    }

    fn take_context(&mut self) -> Option<LaunchContext> {
        match (&mut self.wire, &mut self.then) {
            (Wire::Launch(wire), Then::Launch(launched)) => {
                let context = launched.context.take()?;
                if wire.launch.args == Some(context.args()) {
                    wire.launch.args = None;
                }
                Some(context)
            }
            _ => None,
        }
    }

    fn has_clean_context(&self) -> bool {
        matches!(&self.then, Then::Launch(launched) if !launched.is_fresh)
    }

    fn take_listener(&mut self) -> Option<Self> {
        let then = match std::mem::replace(&mut self.then, Then::Check(Keep::Nothing)) {
            Then::Check(Keep::Reader { chunk, place, _device }) => {
                self.then = Then::Check(Keep::Chunk { _chunk: chunk, _device });
                Then::Check(Keep::Gone { place })
            }
            reply @ Then::Reply(_) => reply,
            other => {
                self.then = other;
                return None;
            }
        };
        Some(Load::new(Wire::ECHO, then))
    }

    fn work(&self) -> Work {
        match &self.wire {
            Wire::Launch(wire) => Work::Launch(wire.launch.shire_mask),
            Wire::DmaWrite(nodes) => Work::ToDevice(nodes.bytes(|node| node.size.get())),
            Wire::DmaRead(nodes) => Work::ToHost(nodes.bytes(|node| node.size.get())),
            Wire::Plain(_) => Work::Other,
        }
    }

    fn verdict(&self, answer: &Body) -> Verdict {
        match (&self.then, answer) {
            _ if !self.is_its(answer) => Verdict::Nonsense,
            (Then::Reply(_), answer) => Verdict::of_reply(answer),
            (Then::Check(_), Body::Echo { status, .. }) => Verdict::of_echo(*status),
            (Then::Check(_), Body::Abort { status }) => Verdict::of_abort(*status),
            (
                Then::Check(_) | Then::Diagnose(_) | Then::Testify(_) | Then::Refill { .. },
                Body::DmaRead { times, status } | Body::DmaWrite { times, status },
            ) => match (status, &self.then) {
                (DmaStatus::HostAborted, _) => {
                    Verdict::Aborted { is_repeatable: true, has_begun: times.execute != 0 }
                }
                (_, Then::Diagnose(_) | Then::Testify(_) | Then::Refill { .. }) => {
                    Verdict::Hold(Some(*times))
                }
                (DmaStatus::Complete, _) => Verdict::Done(Some(*times)),
                (status, _) => {
                    let op = match answer {
                        Body::DmaRead { .. } => "copy from the device",
                        _ => "copy to the device",
                    };
                    Verdict::Failed(Error::Copy { op, status: *status }, Some(*times))
                }
            },
            (Then::Launch(launched), Body::Launch { times, status, error, .. }) => {
                let may_have_run = times.execute != 0 || error.is_some_and(|e| e.shire_mask != 0);
                match status {
                    LaunchStatus::KernelCompleted => Verdict::Done(Some(*times)),
                    LaunchStatus::HostAborted => Verdict::of_launch_aborted(may_have_run),
                    _ if may_have_run => Verdict::Hold(Some(*times)),
                    status => {
                        let failure = launched.failure(&self.wire, *status, error.as_ref());
                        Verdict::Failed(Error::Launch(Arc::new(failure)), Some(*times))
                    }
                }
            }
            (Then::Forward { .. }, Body::Launch { times, status, error, .. }) => {
                let may_have_run = times.execute != 0 || error.is_some_and(|e| e.shire_mask != 0);
                match status {
                    LaunchStatus::HostAborted => Verdict::of_launch_aborted(may_have_run),
                    _ => Verdict::Hold(Some(*times)),
                }
            }
            _ => Verdict::Nonsense,
        }
    }
}

impl<H: Hal> Load<H> {
    /// Returns `true` if an answer is one to such a command.
    fn is_its(&self, answer: &Body) -> bool {
        match (&self.wire, answer) {
            (Wire::DmaWrite(_), Body::DmaWrite { .. })
            | (Wire::DmaRead(_), Body::DmaRead { .. })
            | (Wire::Launch(_), Body::Launch { .. })
            | (Wire::Plain(ops::Command::Echo), Body::Echo { .. })
            | (Wire::Plain(ops::Command::Abort), Body::Abort { .. })
            | (Wire::Plain(ops::Command::CmReset { .. }), Body::CmReset { .. }) => true,
            (Wire::Plain(ops::Command::CmReset { .. }), _) => false,
            // Who asks for others looks at the answer.
            (Wire::Plain(_), _) => matches!(self.then, Then::Reply(_)),
            _ => false,
        }
    }
}

/// Takes what has arrived for a reader.
pub(crate) fn take_arrival<H: Hal>(arrival: &Arrival<H>) -> Result<Chunk<H>> {
    lock(arrival).take().unwrap_or(Err(Error::all_closed()))
}
