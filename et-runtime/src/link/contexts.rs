//! Launch contexts: device memory of which each launch in flight has some of its own.

use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL};
use et_hal::{DeviceAccess, Hal};

use super::core::StreamKey;
use super::load::Pattern;
use super::{Keep, Link, Load, Nodes, Then, Wire};
use crate::Result;
use crate::kernel::LaunchContext;
use crate::memory::Lease;
use crate::sync::{Arc, Ordering, lock};

/// A command that puts the pattern into a context, and the context.
pub(crate) type Fresh<'a, H> = (Box<Load<H>>, FreshContext<'a, H>);

/// A launch context that the state machine counts and does not have yet.
pub(crate) struct FreshContext<'a, H: Hal> {
    link: &'a Link<H>,
    context: Option<LaunchContext>,
}

impl<H: Hal> FreshContext<'_, H> {
    fn with(mut self, context: LaunchContext) -> Self {
        self.context = Some(context);
        self
    }

    pub(crate) fn take(mut self) -> Option<LaunchContext> {
        let context = self.context.take();
        std::mem::forget(self);
        context
    }
}

impl<H: Hal> Drop for FreshContext<'_, H> {
    fn drop(&mut self) {
        lock(&self.link.core).context_gone();
    }
}

impl<H: Hal> Link<H> {
    /// Returns `true` if launches may need one more context.
    pub(crate) fn wants_context(&self) -> bool {
        // Relaxed: who acts upon it looks again with the lock.
        self.wants_context.load(Ordering::Relaxed)
    }

    /// Makes one more, if launches [need it](Self::wants_context).
    ///
    /// A stream that has nothing else to wait for gets it together with the command that puts the
    /// pattern into it. Others must not hold one while they wait, so it is made ready for whoever
    /// is next.
    ///
    /// # Errors
    /// Why nothing can be launched; why none can be made, if there is none at all.
    pub(crate) fn fresh_context(&self, stream: StreamKey) -> Result<Option<Fresh<'_, H>>> {
        let (wants_more, is_clear) = {
            let mut core = lock(&self.core);
            if let Some(error) = core.health().compute_refusal() {
                return Err(error.clone());
            }
            let wants_more = core.wants_more_contexts();
            if wants_more {
                core.context_made();
            }
            (wants_more, core.is_clear(stream))
        };
        if !wants_more {
            return Ok(None);
        }
        let Some((fresh, context)) = self.make_context()? else { return Ok(None) };
        if is_clear {
            let (wire, pattern) = self.pattern_into(&context)?;
            let keep = Keep::Lease { _host: pattern, _device: (&context.exception_slice()).into() };
            return Ok(Some((Load::copy(wire, keep), fresh.with(context))));
        }
        self.add_context(fresh, context)?;
        Ok(None)
    }

    /// Makes contexts in place of those that a compute reset has lost: commands that wait for one
    /// may have been accepted without.
    ///
    /// # Errors
    /// Why none can be made, if there is none at all.
    pub(super) fn replace_contexts(&self) -> Result<()> {
        while lock(&self.core).replace_context() {
            match self.make_context() {
                Ok(Some((fresh, context))) => self.add_context(fresh, context)?,
                Ok(None) => break,
                Err(error) => {
                    lock(&self.core).context_lost();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Makes more contexts, at most `count`, while launches that were accepted wait
    /// for one.
    ///
    /// # Errors
    /// Why none can be made, if there is none at all.
    pub(crate) fn more_contexts(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            // Relaxed: this thread has set them itself if they concern its own launches.
            let is_short = [&self.has_backlog, &self.wants_context];
            if !is_short.into_iter().all(|hint| hint.load(Ordering::Relaxed)) {
                break;
            }
            {
                let mut core = lock(&self.core);
                if !core.wants_more_contexts() {
                    break;
                }
                core.context_made();
            }
            let Some((fresh, context)) = self.make_context()? else { break };
            self.add_context(fresh, context)?;
        }
        Ok(())
    }

    /// Takes the memory of a context that is counted already; `None` if there is no memory for it,
    /// and others are there.
    fn make_context(&self) -> Result<Option<(FreshContext<'_, H>, LaunchContext)>> {
        let fresh = FreshContext { link: self, context: None };
        match LaunchContext::new(&self.memory) {
            Ok(context) => Ok(Some((fresh, context))),
            // With at least one the launch only has to wait.
            Err(_) if lock(&self.core).contexts() > 1 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the pattern put into a context, for the launch that has waited longest.
    fn add_context(&self, fresh: FreshContext<'_, H>, context: LaunchContext) -> Result<()> {
        let (wire, pattern) = self.pattern_into(&context)?;
        let pattern = Pattern::Shared { _buffer: pattern };
        self.post(Load::new(wire, Then::Refill { context, pattern }));
        std::mem::forget(fresh);
        Ok(())
    }

    fn pattern_into(&self, context: &LaunchContext) -> Result<(Wire, Arc<Lease<H>>)> {
        let pattern = self.pattern()?;
        let node = pattern.with(|buffer| context.write_node(buffer));
        let Some(node) = node else { unreachable!("the pattern is never given away") };
        Ok((Wire::DmaWrite(Nodes::One(node)), pattern))
    }

    fn pattern(&self) -> Result<Arc<Lease<H>>> {
        let mut place = lock(&self.pattern);
        if let Some(pattern) = &*place {
            return Ok(Arc::clone(pattern));
        }
        let mut buffer = self.host_buffer(EXCEPTION_BUFFER_BYTES, DeviceAccess::Read)?;
        buffer.fill(0, EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL)?;
        buffer.sync_for_device(self.hal.dma(), 0..EXCEPTION_BUFFER_BYTES)?;
        let pattern = Lease::new(buffer);
        *place = Some(Arc::clone(&pattern));
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use et_devapi::msg::ops::Command;
    use et_hal_mock::{MockHal, MockMailbox, presets};

    use super::*;
    use crate::{Config, Device, DeviceBuffer, DeviceError, Drain, Error};

    fn device(mailbox: MockMailbox) -> Device<MockHal> {
        let hal = MockHal::new(presets::booted_registers(), mailbox);
        let device = Device::open_with(hal, Config::new().drain(Drain::Caller));
        device.expect("it is healthy")
    }

    fn all_memory(device: &Device<MockHal>) -> Vec<DeviceBuffer> {
        let largest = || device.memory_stats().largest_free_bytes;
        std::iter::from_fn(|| device.alloc(largest()).ok()).collect()
    }

    #[test]
    fn as_many_contexts_are_made_anew_as_were_lost() {
        let device = device(presets::answering_mailbox(presets::success));
        let link = device.link();
        assert_eq!(lock(&link.core).contexts(), 0);
        (0..2).for_each(|_| lock(&link.core).context_lost());
        // One that cannot be replaced is replaced after the next reset.
        let all = all_memory(&device);
        link.replace_contexts().expect_err("there is no memory");
        assert_eq!(lock(&link.core).contexts(), 0);
        drop(all);
        link.replace_contexts().expect("there is memory");
        // They have their pattern when the device has answered.
        assert!(lock(&link.core).wants_more_contexts());
        link.poll();
        assert_eq!(lock(&link.core).contexts(), 2);
        assert!(!lock(&link.core).wants_more_contexts());
    }

    #[test]
    fn whoever_is_there_hears_that_contexts_cannot_be_replaced() {
        for is_given_up in [false, true] {
            let mut withheld = None;
            // The answer to a reset that is given up comes with the next one.
            let device = device(presets::answering_mailbox(move |header, command| {
                let answers = presets::success(header, command);
                match command {
                    Command::CmReset { .. } if is_given_up => {
                        withheld = Some(answers);
                        Vec::new()
                    }
                    _ => answers.into_iter().chain(withheld.take().into_iter().flatten()).collect(),
                }
            }));
            let link = device.link();
            lock(&link.core).context_lost();
            let _all = all_memory(&device);
            let reset = link.reset_compute(link.deadline(Duration::ZERO));
            let patience = link.deadline(Duration::from_secs(20));
            link.call(Wire::ECHO, "echo", patience).expect("it answers");
            link.poll();
            let listed = device.take_errors().errors;
            let of_device = matches!(&listed[..], [DeviceError::Device(Error::Memory(_))]);
            match reset {
                Err(Error::Timeout { .. }) => assert!(is_given_up && of_device, "{listed:?}"),
                Err(Error::Memory(_)) => assert!(!is_given_up && listed.is_empty(), "{listed:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
