//! What the firmware traced while a launch failed.

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{DmaReadNode, LaunchStatus};
use et_hal::{DeviceAccess, DeviceAddr, Hal};

use super::core::Command;
use super::load::Testimony;
use super::{Link, Load, Nodes, Then, Wire};
use crate::kernel::LaunchFailure;
use crate::memory::Lease;
use crate::sync::{Arc, lock};
use crate::trace::{FIRMWARE_BYTES, Trace};
use crate::{Error, Result};

impl<H: Hal> Link<H> {
    /// The command that fetches both traces of firmware for a report; the report itself, if that
    /// is not wanted, or cannot be.
    ///
    /// Spec: §8
    pub(super) fn testimony(
        &self,
        failure: LaunchFailure,
        since: u64,
    ) -> Result<Command<Box<Load<H>>>, LaunchFailure> {
        // An abort needs no explanation, and is not to wait for kernels that go on instead.
        if !self.config.failure_messages || failure.status == LaunchStatus::HostAborted {
            return Err(failure);
        }
        let buffer = match self.buffer_for_messages() {
            Ok(Some(buffer)) => buffer,
            // One for all: many launches may fail at a time, and each would need 9 MiB.
            Ok(None) => return Err(failure.without_firmware(&"those of another launch were read")),
            Err(error) => return Err(failure.without_firmware(&error)),
        };
        let size = u32::try_from(FIRMWARE_BYTES).unwrap_or(u32::MAX);
        let Some(bus) = buffer.with(|buffer| buffer.bus_addr()) else {
            unreachable!("this buffer is never given away")
        };
        // Firmware knows the place.
        let node = DmaReadNode::new(bus, DeviceAddr::new(0), size);
        let then = Then::Testify(Box::new(Testimony { buffer, failure, since }));
        let flags = CommandFlags::MMFW_TRACEBUF.with(CommandFlags::CMFW_TRACEBUF);
        Ok(Command::new(Load::new(Wire::DmaRead(Nodes::One(node)), then)).flags(flags))
    }

    /// `None` while a command has it.
    fn buffer_for_messages(&self) -> Result<Option<Arc<Lease<H>>>> {
        let mut place = lock(&self.messages);
        let buffer = if let Some(buffer) = &*place {
            if Arc::strong_count(buffer) > 1 {
                return Ok(None);
            }
            Arc::clone(buffer)
        } else {
            let buffer = Lease::new(self.host_buffer(FIRMWARE_BYTES, DeviceAccess::ReadWrite)?);
            Arc::clone(place.insert(buffer))
        };
        let synced = buffer.with(|b| b.sync_for_device(self.hal.dma(), 0..FIRMWARE_BYTES));
        synced.unwrap_or(Ok(())).map(|()| Some(buffer))
    }

    /// The report with what has arrived.
    pub(super) fn heard(&self, testimony: Testimony<H>, is_good: bool) -> LaunchFailure {
        let Testimony { buffer, failure, since } = testimony;
        if !is_good {
            return failure.without_firmware(&"the copy failed");
        }
        let mut bytes = vec![0u8; FIRMWARE_BYTES];
        let read = buffer.with(|buffer| {
            buffer.sync_for_cpu(self.hal.dma(), 0..FIRMWARE_BYTES)?;
            buffer.copy_out(0, &mut bytes)
        });
        match read.unwrap_or(Err(Error::all_closed())) {
            Ok(()) => {
                let frequency = self.layout.mgmt.header.minion_boot_freq.get();
                let frequency = (frequency != 0).then_some(frequency);
                failure.with_firmware(Trace::of_firmware(&bytes, frequency, since))
            }
            Err(error) => failure.without_firmware(&error),
        }
    }
}
