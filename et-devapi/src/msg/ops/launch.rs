//! What a launch says.

use et_hal::DeviceAddr;
use zerocopy::IntoBytes;

use super::{EncodeError, StackConfig, TraceConfig};
use crate::msg::CommandFlags;

/// Most bytes after the fixed part of a launch. Spec: §9.1.
pub const MAX_LAUNCH_PAYLOAD: usize = 128;

/// A launch. Spec: §7.6, §9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// First instruction.
    pub entry: DeviceAddr,
    /// What the kernel finds in `a0`; 0 on the wire if there is none.
    pub args: Option<DeviceAddr>,
    /// Where failed harts leave their state; 0 on the wire if there is none.
    pub exception_buffer: Option<DeviceAddr>,
    /// Shires to run on.
    pub shire_mask: u64,
    /// The optional parts, as the flags of the command say; see [`LaunchPayload`].
    pub payload: &'a [u8],
}

/// The optional parts of a launch, in the order of the wire, and the flags that say so.
/// Spec: §9.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPayload {
    flags: CommandFlags,
    len: usize,
    bytes: [u8; MAX_LAUNCH_PAYLOAD],
}

impl LaunchPayload {
    /// No part at all.
    pub const EMPTY: Self =
        Self { flags: CommandFlags::EMPTY, len: 0, bytes: [0; MAX_LAUNCH_PAYLOAD] };

    /// Puts the parts together: tracing by the kernel, a stack other than the default, and bytes
    /// that firmware copies to the arguments' address, padded with zeros to a multiple of 8.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`] beyond [`MAX_LAUNCH_PAYLOAD`].
    pub fn new(
        trace: Option<&TraceConfig>,
        stack: Option<&StackConfig>,
        args: &[u8],
    ) -> Result<Self, EncodeError> {
        let mut this = Self::EMPTY;
        this.put(trace, stack, args)?;
        Ok(this)
    }

    /// The same, into one that is [`EMPTY`](Self::EMPTY) and has its place already.
    ///
    /// # Errors
    /// As [`new`](Self::new); nothing is changed then.
    pub fn put(
        &mut self,
        trace: Option<&TraceConfig>,
        stack: Option<&StackConfig>,
        args: &[u8],
    ) -> Result<(), EncodeError> {
        let trace = trace.map(IntoBytes::as_bytes).unwrap_or_default();
        let stack = stack.map(IntoBytes::as_bytes).unwrap_or_default();
        // Firmware parses later messages at any alignment, but is spared it (Spec: §6).
        let args_len = args.len().saturating_add(7) & !7;
        let len = trace.len().saturating_add(stack.len()).saturating_add(args_len);
        let too_large = EncodeError::PayloadTooLarge { len, max: MAX_LAUNCH_PAYLOAD };
        let mut rest = self.bytes.get_mut(..len).ok_or(too_large)?;
        for (part, flag) in [
            (trace, CommandFlags::KERNEL_TRACE),
            (stack, CommandFlags::USER_STACK),
            (args, CommandFlags::ARGS_EMBEDDED),
        ] {
            if !part.is_empty() {
                self.flags = self.flags.with(flag);
            }
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        self.len = len;
        Ok(())
    }

    /// Takes the parts as they were received, with the flags that say which there are.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`] beyond [`MAX_LAUNCH_PAYLOAD`].
    pub fn received(flags: CommandFlags, payload: &[u8]) -> Result<Self, EncodeError> {
        let mut this = Self::EMPTY;
        let too_large =
            EncodeError::PayloadTooLarge { len: payload.len(), max: MAX_LAUNCH_PAYLOAD };
        this.bytes.get_mut(..payload.len()).ok_or(too_large)?.copy_from_slice(payload);
        this.len = payload.len();
        for flag in
            [CommandFlags::KERNEL_TRACE, CommandFlags::USER_STACK, CommandFlags::ARGS_EMBEDDED]
        {
            if flags.contains(flag) {
                this.flags = this.flags.with(flag);
            }
        }
        Ok(this)
    }

    /// Returns the flags of the parts there are, to be sent with the launch.
    #[must_use]
    pub fn flags(&self) -> CommandFlags {
        self.flags
    }

    /// Returns the bytes on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the bytes that firmware copies to the arguments' address.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        let mut start = 0_usize;
        if self.flags.contains(CommandFlags::KERNEL_TRACE) {
            start = start.saturating_add(size_of::<TraceConfig>());
        }
        if self.flags.contains(CommandFlags::USER_STACK) {
            start = start.saturating_add(size_of::<StackConfig>());
        }
        self.as_bytes().get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_padded_to_eight_bytes() {
        let stack = StackConfig { stack_base_offset: 1.into(), stack_size: 2.into() };
        let payload = LaunchPayload::new(None, Some(&stack), &[1, 2, 3]).unwrap();
        assert_eq!(payload.flags().bits(), 0x60);
        assert_eq!(payload.as_bytes(), [1, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0]);
        assert_eq!(payload.arguments(), [1, 2, 3, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_received_is_what_was_sent() {
        let stack = StackConfig { stack_base_offset: 1.into(), stack_size: 2.into() };
        let sent = LaunchPayload::new(None, Some(&stack), &[1, 2, 3]).unwrap();
        let flags = sent.flags().with(CommandFlags::BARRIER);
        let received = LaunchPayload::received(flags, sent.as_bytes()).unwrap();
        assert_eq!(received, sent, "other flags belong to the command");
        assert!(LaunchPayload::received(flags, &[0; 129]).is_err());
    }

    #[test]
    fn too_much_payload_is_refused() {
        let refused = Err(EncodeError::PayloadTooLarge { len: 136, max: 128 });
        assert_eq!(LaunchPayload::new(None, None, &[0; 129]), refused);
    }
}
