//! A command on its way: what to send, and what belongs to it until the response.

use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::{
    self, Completion, DmaReadNode, DmaWriteNode, FirmwareType, LaunchParams, StackConfig,
    TraceConfig,
};
use et_devapi::msg::{CommandFlags, EncodeError, Tag};
use et_hal::{DeviceAddr, Hal};

use crate::handshake::Cell;
use crate::kernel::{KernelInner, LaunchContext};
use crate::memory::{Chunk, DeviceSlice, HostBuffer, Lease};
use crate::operation::Operation;

/// A message, before it has a tag.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    DmaWrite(Vec<DmaWriteNode>),
    DmaRead(Vec<DmaReadNode>),
    Launch(LaunchWire),
    Echo,
    Abort,
    KernelAbort(Tag),
    CmReset,
    Compatibility,
    FirmwareVersion(FirmwareType),
}

#[derive(Clone, Debug)]
pub(crate) struct LaunchWire {
    pub(crate) entry: DeviceAddr,
    pub(crate) args: DeviceAddr,
    pub(crate) exception_buffer: DeviceAddr,
    pub(crate) shire_mask: u64,
    pub(crate) trace: Option<TraceConfig>,
    pub(crate) stack: Option<StackConfig>,
    pub(crate) embedded: [u8; ops::MAX_LAUNCH_PAYLOAD],
    pub(crate) embedded_len: usize,
}

impl Wire {
    pub(crate) fn encode(
        &self,
        tag: Tag,
        flags: CommandFlags,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        match self {
            Self::DmaWrite(nodes) => ops::encode_dma_write(tag, flags, nodes, out),
            Self::DmaRead(nodes) => ops::encode_dma_read(tag, flags, nodes, out),
            Self::Launch(launch) => {
                let params = LaunchParams {
                    entry: launch.entry,
                    args: Some(launch.args),
                    exception_buffer: Some(launch.exception_buffer),
                    shire_mask: launch.shire_mask,
                    trace: launch.trace,
                    stack: launch.stack,
                    embedded_args: launch.embedded.get(..launch.embedded_len).unwrap_or_default(),
                };
                ops::encode_launch(tag, flags, &params, out)
            }
            Self::Echo => ops::encode_echo(tag, flags, out),
            Self::Abort => ops::encode_abort(tag, flags, out),
            Self::KernelAbort(launch) => ops::encode_kernel_abort(tag, *launch, out),
            Self::CmReset => ops::encode_cm_reset(tag, flags, u64::MAX, out),
            Self::Compatibility => ops::encode_compatibility(tag, flags, out),
            Self::FirmwareVersion(kind) => ops::encode_firmware_version(tag, flags, *kind, out),
        }
    }
}

/// What happens with the response, and what the device may touch until then.
pub(crate) enum Then<H: Hal> {
    /// The status decides; these stay alive meanwhile.
    Check(Keep<H>),
    /// A launch: on failure its exception buffer is fetched first.
    Launch(Box<Launched>),
    /// The exception buffer of a failed launch arrives.
    Diagnose(Box<Diagnosis<H>>),
    /// The exception buffer has its pattern back.
    Refill { context: LaunchContext, buffer: HostBuffer<H> },
    /// The runtime itself wants the response.
    Reply(Arc<Cell<Completion>>),
}

/// Memory that one command uses.
pub(crate) enum Keep<H: Hal> {
    Nothing,
    Chunk {
        _chunk: Chunk<H>,
        _device: DeviceSlice,
    },
    /// A chunk several commands read.
    Shared {
        _chunk: Arc<Chunk<H>>,
        _device: DeviceSlice,
    },
    Lease {
        _host: Arc<Lease<H>>,
        _device: DeviceSlice,
    },
    /// The chunk of a blocking read; the reader takes it from here.
    Reader {
        chunk: Chunk<H>,
        place: Arc<std::sync::Mutex<Option<Chunk<H>>>>,
        _device: DeviceSlice,
    },
}

#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) context: LaunchContext,
    pub(crate) kernel: Arc<KernelInner>,
    pub(crate) _uses: Vec<DeviceSlice>,
}

pub(crate) struct Diagnosis<H: Hal> {
    pub(crate) launched: Launched,
    pub(crate) buffer: HostBuffer<H>,
    pub(crate) failure: crate::kernel::LaunchFailure,
}

/// The payload of a slot in the in-flight table.
pub(crate) struct InFlight<H: Hal> {
    /// `None` for the runtime's own commands.
    pub(crate) operation: Option<Arc<Operation>>,
    pub(crate) queue: usize,
    pub(crate) then: Then<H>,
    pub(crate) sent: Duration,
}

/// A command that could not be sent yet.
pub(crate) struct Pending<H: Hal> {
    pub(crate) flags: CommandFlags,
    pub(crate) wire: Wire,
    pub(crate) payload: InFlight<H>,
}
