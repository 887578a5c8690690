//! Launching.

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::LaunchPayload;
use et_hal::Hal;

use super::Stream;
use crate::core_dump::{self, StackArea};
use crate::event::{Event, Transfer};
use crate::kernel::{Checked, Launch, StackPlan};
use crate::link::core::Command;
use crate::link::{Fresh, LaunchWire, Launched, Load, Submission, Then, Wire};
use crate::memory::{DeviceSlice, HostBuffer};
use crate::sync::Arc;
use crate::{Error, Result};

const NAME: &str = "launch";

/// A launch that is checked, with what has to be on the device before it.
struct Prepared<'a, H: Hal> {
    load: Box<Load<H>>,
    flags: CommandFlags,
    /// Arguments that do not fit into the message, and their place.
    args: Option<(&'a [u8], DeviceSlice)>,
    /// A context that needs its pattern.
    fresh: Option<Fresh<'a, H>>,
}

impl<'a, H: Hal> Prepared<'a, H> {
    /// Returns its command, if it needs no other.
    #[inline]
    fn into_command(self) -> Result<Command<Box<Load<H>>>, Self> {
        if self.fresh.is_some() || self.args.is_some() {
            return Err(self);
        }
        Ok(Command::new(self.load).flags(self.flags))
    }
}

impl<H: Hal> Stream<H> {
    pub(super) fn start(&self, launch: &Launch) -> Result<Event> {
        match self.prepare(launch)?.into_command() {
            Ok(command) => self.submit(NAME, Some(command)),
            Err(prepared) => self.start_prepared(prepared),
        }
    }

    /// Starts a launch of several commands.
    fn start_prepared(&self, prepared: Prepared<'_, H>) -> Result<Event> {
        let submission = self.begin(NAME)?;
        let sent = self.send_launch(&submission, prepared);
        submission.finish(sent).map(|operation| self.event(operation))
    }

    pub(super) fn start_all(&self, launches: &[Launch]) -> Result<Vec<Event>> {
        let prepared = launches.iter().map(|launch| self.prepare(launch));
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        let mut events = Vec::with_capacity(launches.len());
        let mut ready = Vec::with_capacity(launches.len());
        for prepared in prepared {
            match prepared.into_command() {
                Ok(command) => ready.push(command),
                Err(prepared) => {
                    self.start_ready(std::mem::take(&mut ready), &mut events)?;
                    events.push(self.start_prepared(prepared)?);
                }
            }
        }
        self.start_ready(ready, &mut events)?;
        Ok(events)
    }

    /// Starts launches of one command each.
    fn start_ready(
        &self,
        commands: Vec<Command<Box<Load<H>>>>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let operations = self.link().submit_all(self.inner.key, NAME, commands)?;
        let count = u32::try_from(operations.len()).unwrap_or(u32::MAX);
        if let Some(last) = operations.last() {
            // None of them has asked for one: there was one before the first was sent.
            self.link().more_contexts(operations.len())?;
            self.link().admit(last.key, count)?;
        }
        events.extend(operations.into_iter().map(|operation| self.event(operation)));
        Ok(())
    }

    /// Copies to the device, a launch behind them, and copies to the host behind that.
    pub(super) fn start_staged(
        &self,
        inputs: &[(&[u8], DeviceSlice)],
        launch: &Launch,
        outputs: &[(usize, DeviceSlice)],
        into: HostBuffer<H>,
    ) -> Result<Transfer<H>> {
        let link = self.link();
        for (from, to) in inputs {
            link.check_upload(from, to)?;
        }
        let (end, lease) = self.lend_for_writing(outputs, into)?;
        let prepared = self.prepare(launch)?;
        let submission = self.begin("staged launch")?;
        let inputs: Vec<_> = inputs.iter().map(|(from, to)| (*from, to)).collect();
        let sent = link
            .stage_list(&submission, &inputs)
            .and_then(|()| self.send_launch(&submission, prepared))
            .and_then(|()| self.read_direct(&submission, &lease, outputs));
        let event = submission.finish(sent).map(|operation| self.event(operation))?;
        Ok(Transfer::new(event, lease, Some((Arc::clone(&link.hal), end))))
    }

    // A copy for each caller: what it makes is large.
    #[inline]
    fn prepare<'a>(&'a self, launch: &'a Launch) -> Result<Prepared<'a, H>> {
        let link = self.link();
        let bytes = launch.args.as_bytes();
        self.check_memory(launch)?;
        let Checked { mut message, trace, embedded_room } =
            launch.check(link.available_shires())?;
        if let Some(copy) = launch.kernel.image.pending()? {
            self.wait_for(&copy);
        }
        let mut uses = launch.uses.clone();
        if let Some(trace) = &launch.trace {
            uses.push(trace.buffer.clone());
        }
        let (mut stack, mut stacks) = (None, None);
        if let Some(bytes) = launch.stack_bytes {
            let plan = StackPlan::new(bytes, message.shire_mask)?;
            let memory = link.memory.alloc(plan.total_bytes, 4096)?;
            stack = Some(plan.config(memory.addr(), link.layout.host_managed.base)?);
            stacks = Some(StackArea {
                memory: memory.slice(..plan.total_bytes)?,
                bytes_per_hart: plan.bytes_per_hart,
            });
        }
        let mut args = None;
        if bytes.len() > embedded_room {
            let place = self.place_for_args(bytes)?;
            message.args = Some(place.addr());
            uses.push(place.clone());
            args = Some(place);
        }
        let embedded = if args.is_none() { bytes } else { &[] };
        let mut wire = LaunchWire { launch: message, payload: LaunchPayload::EMPTY };
        wire.payload
            .put(trace.as_deref(), stack.as_ref(), embedded)
            .map_err(|error| Error::LaunchOption { option: "payload", why: error.to_string() })?;
        let flags = if launch.flush_l3 { CommandFlags::FLUSH_L3 } else { CommandFlags::EMPTY };
        let kernel = Arc::clone(&launch.kernel.inner);
        let launched = Launched {
            context: None,
            is_fresh: false,
            kernel,
            uses,
            stack: stacks,
            is_dumpable: launch.is_dumpable,
            core_path: launch.core_path.clone(),
        };
        if launch.core_path.is_some() {
            core_dump::start_writer(link)?;
        }
        let then = Then::Launch(launched);
        let load = Load::new(Wire::Launch(wire), then);
        let fresh = if link.wants_context() { link.fresh_context(self.inner.key)? } else { None };
        Ok(Prepared { load, flags, args: args.map(|place| (bytes, place)), fresh })
    }

    fn send_launch(&self, submission: &Submission<'_, H>, prepared: Prepared<'_, H>) -> Result<()> {
        let Prepared { load, flags, args, fresh } = prepared;
        let (pattern, fresh) = fresh.unzip();
        if let Some(pattern) = pattern {
            submission.send(Command::new(pattern))?;
        }
        if let Some((bytes, place)) = args {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(8), 0);
            self.link().stage(submission, &padded, &place)?;
        }
        submission.launch(Command::behind(load).flags(flags), fresh)
    }

    /// Checks that all memory of a launch is of this device.
    fn check_memory(&self, launch: &Launch) -> Result<()> {
        let traced = launch.trace.as_ref().map(|trace| &trace.buffer);
        let code = &launch.kernel.inner.code;
        let mut used = launch.uses.iter().chain([code]).chain(traced);
        used.try_for_each(|slice| self.link().check_own(slice))
    }

    /// Allocates device memory for arguments that do not fit into the message.
    fn place_for_args(&self, bytes: &[u8]) -> Result<DeviceSlice> {
        let len = bytes.len().next_multiple_of(8) as u64;
        Ok(self.link().memory.alloc(len, 64)?.whole())
    }
}
