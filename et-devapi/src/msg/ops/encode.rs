//! Building commands.

use et_hal::DeviceAddr;
use zerocopy::{Immutable, IntoBytes};

use super::{
    AbortCmd, CmResetCmd, CompatibilityCmd, DmaReadNode, DmaWriteNode, EchoCmd, EncodeError,
    FirmwareType, FirmwareVersionCmd, KernelAbortCmd, KernelLaunchCmd, MsgId, P2pReadNode,
    P2pWriteNode, StackConfig, TraceConfig, TraceRtConfigCmd, TraceRtControlCmd,
};
use crate::msg::{CommandFlags, HEADER_BYTES, Header, Tag};

/// Most bytes after the fixed part of a launch. Spec: §9.1.
pub const MAX_LAUNCH_PAYLOAD: usize = 128;
/// Most nodes a list can have by the width of the DIR's field. Spec: §3.5.
pub const MAX_LIST_NODES: usize = 15;
/// Length of the largest command in bytes: a list with [`MAX_LIST_NODES`] nodes.
pub const MAX_COMMAND_BYTES: usize = HEADER_BYTES + 32 * MAX_LIST_NODES;

/// What a launch says. Spec: §9.1.
#[derive(Clone, Copy, Debug)]
pub struct LaunchParams<'a> {
    /// First instruction.
    pub entry: DeviceAddr,
    /// What the kernel finds in `a0`.
    pub args: Option<DeviceAddr>,
    /// Where failed harts leave their state.
    pub exception_buffer: Option<DeviceAddr>,
    /// Shires to run on.
    pub shire_mask: u64,
    /// Tracing by the kernel.
    pub trace: Option<TraceConfig>,
    /// A stack other than the default.
    pub stack: Option<StackConfig>,
    /// Bytes that firmware copies to `args`; padded with zeros to a multiple of 8.
    pub embedded_args: &'a [u8],
}

/// Whose trace a command switches. Spec: §7.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TraceRuntimes(u32);

impl TraceRuntimes {
    /// Makes the set from its bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Master minions.
    pub const MM: Self = Self(1);
    /// Compute minions.
    pub const CM: Self = Self(2);

    /// Returns both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// How a trace is switched: what is not set is off. Spec: §7.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TraceControl(u32);

impl TraceControl {
    /// Makes the set from its bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Off, into the buffer.
    pub const OFF: Self = Self(0);
    /// On.
    pub const ENABLE: Self = Self(1);
    /// To the UART instead of the buffer.
    pub const TO_UART: Self = Self(2);
    /// The buffer begins anew.
    pub const RESET: Self = Self(4);

    /// Returns both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// What firmware traces. Spec: §7.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRtConfig {
    /// Shires to trace, bit 32 is the master shire.
    pub shire_mask: u64,
    /// Harts of each shire.
    pub thread_mask: u64,
    /// Kinds of entries. Spec: §16.2.
    pub event_mask: u32,
    /// Levels. Spec: §16.2.
    pub filter_mask: u32,
    /// Bytes at which an event is sent, 0 for a full part.
    pub threshold: u32,
}

fn place(out: &mut [u8], len: usize) -> Result<&mut [u8], EncodeError> {
    let available = out.len();
    out.get_mut(..len).ok_or(EncodeError::BufferTooSmall { needed: len, available })
}

fn put<T: IntoBytes + Immutable>(message: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
    let bytes = message.as_bytes();
    place(out, bytes.len())?.copy_from_slice(bytes);
    Ok(bytes.len())
}

fn header<T>(id: MsgId, tag: Tag, flags: CommandFlags) -> Header {
    let size = u16::try_from(size_of::<T>()).unwrap_or(u16::MAX);
    Header::new(size, tag, id.as_u16(), flags)
}

/// Builds a launch; returns its length in bytes.
///
/// The flags of the optional parts are set here; the caller gives barrier and L3 flush.
///
/// # Errors
/// [`EncodeError::PayloadTooLarge`]; [`EncodeError::BufferTooSmall`].
///
/// Spec: §7.6, §9.1
pub fn encode_launch(
    tag: Tag,
    flags: CommandFlags,
    params: &LaunchParams<'_>,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    let trace = params.trace.as_ref().map(IntoBytes::as_bytes).unwrap_or_default();
    let stack = params.stack.as_ref().map(IntoBytes::as_bytes).unwrap_or_default();
    let args = params.embedded_args;
    // Firmware parses later messages at any alignment, but is spared it (Spec: §6, message sizes).
    let args_len = args.len().saturating_add(7) & !7;
    let payload = trace.len().saturating_add(stack.len()).saturating_add(args_len);
    if payload > MAX_LAUNCH_PAYLOAD {
        return Err(EncodeError::PayloadTooLarge { len: payload, max: MAX_LAUNCH_PAYLOAD });
    }
    let mut flags = flags;
    for (part, flag) in [
        (trace, CommandFlags::KERNEL_TRACE),
        (stack, CommandFlags::USER_STACK),
        (args, CommandFlags::ARGS_EMBEDDED),
    ] {
        if !part.is_empty() {
            flags = flags.with(flag);
        }
    }
    let len = size_of::<KernelLaunchCmd>().saturating_add(payload);
    let size = u16::try_from(len).unwrap_or(u16::MAX);
    let fixed = KernelLaunchCmd {
        header: Header::new(size, tag, MsgId::KernelLaunchCmd.as_u16(), flags),
        code_start_address: params.entry.as_u64().into(),
        pointer_to_args: params.args.map_or(0, DeviceAddr::as_u64).into(),
        exception_buffer: params.exception_buffer.map_or(0, DeviceAddr::as_u64).into(),
        shire_mask: params.shire_mask.into(),
    };
    let mut rest = place(out, len)?;
    for part in [fixed.as_bytes(), trace, stack, args] {
        let (here, after) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = after;
    }
    rest.fill(0);
    Ok(len)
}

fn list<T: IntoBytes + Immutable>(
    id: MsgId,
    tag: Tag,
    flags: CommandFlags,
    nodes: &[T],
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    if !(1..=MAX_LIST_NODES).contains(&nodes.len()) {
        return Err(EncodeError::NodeCount { count: nodes.len(), max: MAX_LIST_NODES });
    }
    let bytes = nodes.as_bytes();
    let len = HEADER_BYTES.saturating_add(bytes.len());
    let header = Header::new(u16::try_from(len).unwrap_or(u16::MAX), tag, id.as_u16(), flags);
    let (head, tail) = place(out, len)?.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(header.as_bytes());
    tail.copy_from_slice(bytes);
    Ok(len)
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident($node:ty) = $id:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Returns the length in bytes.
        ///
        /// # Errors
        /// [`EncodeError::NodeCount`]; [`EncodeError::BufferTooSmall`].
        ///
        /// Spec: §7.8, §8
        pub fn $name(
            tag: Tag,
            flags: CommandFlags,
            nodes: &[$node],
            out: &mut [u8],
        ) -> Result<usize, EncodeError> {
            list(MsgId::$id, tag, flags, nodes, out)
        }
    )*};
}

lists! {
    /// Builds a write list: host to device.
    encode_dma_write(DmaWriteNode) = DmaWriteListCmd;
    /// Builds a read list: device to host.
    encode_dma_read(DmaReadNode) = DmaReadListCmd;
    /// Builds a peer-to-peer write list: the peer's memory to this device's.
    encode_p2p_write(P2pWriteNode) = P2pDmaWriteListCmd;
    /// Builds a peer-to-peer read list: this device's memory to the peer's.
    encode_p2p_read(P2pReadNode) = P2pDmaReadListCmd;
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $id:ident $struct:ident { $($field:ident: $value:expr),* };)*) => {$(
        $(#[$doc])*
        ///
        /// Returns the length in bytes.
        ///
        /// # Errors
        /// [`EncodeError::BufferTooSmall`].
        pub fn $name(
            tag: Tag,
            flags: CommandFlags,
            $($arg: $type,)*
            out: &mut [u8],
        ) -> Result<usize, EncodeError> {
            let header = header::<$struct>(MsgId::$id, tag, flags);
            put(&$struct { header, $($field: $value),* }, out)
        }
    )*};
}

fixed! {
    /// Builds a compatibility check. Spec: §7.2.
    encode_compatibility() = CheckCompatibilityCmd CompatibilityCmd { dummy: 0.into() };
    /// Builds a firmware version query. Spec: §7.3.
    encode_firmware_version(firmware: FirmwareType) = FirmwareVersionCmd FirmwareVersionCmd {
        firmware_type: u8::try_from(u32::from(firmware)).unwrap_or(u8::MAX),
        pad: [0; 7]
    };
    /// Builds an echo. Spec: §7.4.
    encode_echo() = EchoCmd EchoCmd { dummy: 0.into() };
    /// Builds an abort, for a high-priority queue. Spec: §7.5, §10.1.
    encode_abort() = AbortCmd AbortCmd { tag_id: 0.into(), pad: [0; 6] };
    /// Builds a compute reset, for a high-priority queue. Spec: §7.12, §10.3.
    encode_cm_reset(shire_mask: u64) = CmResetCmd CmResetCmd { cm_shire_mask: shire_mask.into() };
    /// Builds a trace configuration. Spec: §7.10.
    encode_trace_config(config: &TraceRtConfig) = TraceRtConfigCmd TraceRtConfigCmd {
        shire_mask: config.shire_mask.into(),
        thread_mask: config.thread_mask.into(),
        event_mask: config.event_mask.into(),
        filter_mask: config.filter_mask.into(),
        threshold: config.threshold.into(),
        pad: 0.into()
    };
    /// Builds a trace control. Spec: §7.11.
    encode_trace_control(
        runtimes: TraceRuntimes, control: TraceControl
    ) = TraceRtControlCmd TraceRtControlCmd {
        rt_type: runtimes.bits().into(),
        control: control.bits().into()
    };
}

/// Builds a kernel abort; returns the length in bytes.
///
/// It never carries a barrier: it would wait for the kernel it should abort.
///
/// # Errors
/// [`EncodeError::BufferTooSmall`].
///
/// Spec: §7.7, §10.2
pub fn encode_kernel_abort(tag: Tag, launch: Tag, out: &mut [u8]) -> Result<usize, EncodeError> {
    let header = header::<KernelAbortCmd>(MsgId::KernelAbortCmd, tag, CommandFlags::EMPTY);
    put(&KernelAbortCmd { header, kernel_launch_tag_id: launch.as_u16().into(), pad: [0; 6] }, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_arguments_are_padded_to_eight_bytes() {
        let params = LaunchParams {
            entry: DeviceAddr::new(0x10),
            args: Some(DeviceAddr::new(0x20)),
            exception_buffer: None,
            shire_mask: 1,
            trace: None,
            stack: Some(StackConfig { stack_base_offset: 1.into(), stack_size: 2.into() }),
            embedded_args: &[1, 2, 3],
        };
        let mut out = [0xff; 64];
        let len = encode_launch(Tag::new(3), CommandFlags::BARRIER, &params, &mut out);
        assert_eq!(len, Ok(56));
        assert_eq!(out[..2], [56, 0]);
        assert_eq!(out[6], 0x61);
        assert_eq!(out[40..56], [1, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0]);
        assert_eq!(out[56], 0xff);
    }

    #[test]
    fn too_much_payload_is_refused() {
        let params = LaunchParams {
            entry: DeviceAddr::new(0),
            args: None,
            exception_buffer: None,
            shire_mask: 1,
            trace: None,
            stack: None,
            embedded_args: &[0; 129],
        };
        assert_eq!(
            encode_launch(Tag::new(0), CommandFlags::EMPTY, &params, &mut [0; 512]),
            Err(EncodeError::PayloadTooLarge { len: 136, max: 128 })
        );
    }

    #[test]
    fn lists_have_one_to_fifteen_nodes() {
        let node = DmaWriteNode::new(1.into(), 2.into(), 3);
        let mut out = [0; MAX_COMMAND_BYTES];
        let mut encode =
            |n| encode_dma_write(Tag::new(0), CommandFlags::EMPTY, &[node; 16][..n], &mut out);
        assert_eq!(encode(0), Err(EncodeError::NodeCount { count: 0, max: 15 }));
        assert_eq!(encode(15), Ok(488));
        assert_eq!(encode(16), Err(EncodeError::NodeCount { count: 16, max: 15 }));
    }

    #[test]
    fn a_small_buffer_is_refused() {
        assert_eq!(
            encode_echo(Tag::new(0), CommandFlags::EMPTY, &mut [0; 15]),
            Err(EncodeError::BufferTooSmall { needed: 16, available: 15 })
        );
    }
}
