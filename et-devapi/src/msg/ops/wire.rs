//! The structures of the operations interface, byte for byte.

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

use et_hal::{BusAddr, DeviceAddr};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::msg::Header;

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// Asks for the version of the operations interface. Spec: §7.2.
    CompatibilityCmd = 16 {
        /// Header, id 513.
        header: Header,
        /// Unused.
        dummy: U64,
    }
    /// The version of the operations interface. Spec: §7.2.
    CompatibilityRsp = 24 {
        /// Header, id 514.
        header: Header,
        /// Result code.
        status: U32,
        /// Major version.
        major: U16,
        /// Minor version.
        minor: U16,
        /// Patch version.
        patch: U16,
        /// Padding.
        pad: [u8; 6],
    }
    /// Asks for a firmware version. Spec: §7.3.
    FirmwareVersionCmd = 16 {
        /// Header, id 515.
        header: Header,
        /// Which firmware.
        firmware_type: u8,
        /// Padding.
        pad: [u8; 7],
    }
    /// A firmware version. Spec: §7.3.
    FirmwareVersionRsp = 24 {
        /// Header, id 516.
        header: Header,
        /// Result code.
        status: U32,
        /// Major version.
        major: U16,
        /// Minor version.
        minor: U16,
        /// Patch version.
        patch: U16,
        /// Firmware type of the command.
        r#type: u8,
        /// Padding.
        pad: [u8; 5],
    }
    /// Does nothing but get answered. Spec: §7.4.
    EchoCmd = 16 {
        /// Header, id 517.
        header: Header,
        /// Unused.
        dummy: U64,
    }
    /// Answer to an echo. Spec: §7.4.
    EchoRsp = 24 {
        /// Header, id 518.
        header: Header,
        /// Cycles. Spec: §11.
        device_cmd_start_ts: U64,
        /// Result code.
        status: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// Aborts everything of the paired submission queue. Spec: §7.5.
    AbortCmd = 16 {
        /// Header, id 519.
        header: Header,
        /// Ignored by firmware.
        tag_id: U16,
        /// Padding.
        pad: [u8; 6],
    }
    /// An answer that has nothing but a status. Spec: §7.5, §7.7, §7.10 to §7.12.
    StatusRsp = 16 {
        /// Header, id 520, 524, 530, 532 or 534.
        header: Header,
        /// Result code.
        status: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// Starts a kernel; an optional payload follows. Spec: §7.6, §9.1.
    KernelLaunchCmd = 40 {
        /// Header, id 521.
        header: Header,
        /// Device address of the first instruction.
        code_start_address: U64,
        /// Device address given to the kernel in `a0`, or 0.
        pointer_to_args: U64,
        /// Device address of the exception buffer, or 0.
        exception_buffer: U64,
        /// Shires to run on.
        shire_mask: U64,
    }
    /// The error block of a failed launch. Spec: §7.6.
    KernelErrorBlock = 24 {
        /// Exception buffer of the launch, or 0.
        umode_exception_buffer_ptr: U64,
        /// Trace buffer of the launch, or 0.
        umode_trace_buffer_ptr: U64,
        /// Shires with an exception or a system abort.
        cm_shire_mask: U64,
    }
    /// Trace configuration in the payload of a launch. Spec: §9.1.
    TraceConfig = 40 {
        /// Device address of the buffer, a multiple of 64.
        buffer: U64,
        /// Its size in bytes, a multiple of 64.
        buffer_size: U32,
        /// Bytes of each hart's part at which an event would be sent.
        threshold: U32,
        /// Shires to trace.
        shire_mask: U64,
        /// Harts of each shire.
        thread_mask: U64,
        /// Spec: §16.2.
        event_mask: U32,
        /// Spec: §16.2.
        filter_mask: U32,
    }
    /// Stack configuration in the payload of a launch. Spec: §9.1.
    StackConfig = 8 {
        /// Start, in 4096-byte units from the start of host-managed memory.
        stack_base_offset: U32,
        /// Size of all stacks together, in 4096-byte units.
        stack_size: U32,
    }
    /// Aborts one launch. Spec: §7.7.
    KernelAbortCmd = 16 {
        /// Header, id 523.
        header: Header,
        /// Tag of the launch.
        kernel_launch_tag_id: U16,
        /// Padding.
        pad: [u8; 6],
    }
    /// Node of a read list, device to host. Spec: §7.8.
    DmaReadNode = 32 {
        /// Host virtual address, used by a kernel driver only.
        dst_host_virt_addr: U64,
        /// Bus address to write to.
        dst_host_phy_addr: U64,
        /// Device address to read from.
        src_device_phy_addr: U64,
        /// Bytes.
        size: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// Node of a write list, host to device. Spec: §7.8.
    DmaWriteNode = 32 {
        /// Host virtual address, used by a kernel driver only.
        src_host_virt_addr: U64,
        /// Bus address to read from.
        src_host_phy_addr: U64,
        /// Device address to write to.
        dst_device_phy_addr: U64,
        /// Bytes.
        size: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// Result of a launch, which an error block may follow, or of a DMA list.
    /// Spec: §7.6, §7.8, §9.4.
    TimedRsp = 40 {
        /// Header, id 522, 526, 528, 538 or 540.
        header: Header,
        /// Cycles. Spec: §11.
        device_cmd_start_ts: U64,
        /// Cycles. Spec: §11.
        device_cmd_execute_dur: U64,
        /// Cycles. Spec: §11.
        device_cmd_wait_dur: U64,
        /// Result code.
        status: U32,
        /// Padding.
        pad: U32,
    }
    /// Node of a peer-to-peer read list: this device's memory to the peer's. Spec: §7.9.
    P2pReadNode = 32 {
        /// Device address in the peer, used by a kernel driver only.
        dst_device_phy_addr: U64,
        /// Bus address in the peer's BAR 0.
        dst_device_bus_addr: U64,
        /// Device address in this device.
        src_device_phy_addr: U64,
        /// Bytes.
        size: U32,
        /// A kernel driver's number of the peer.
        peer_devnum: U16,
        /// Padding.
        pad: U16,
    }
    /// Node of a peer-to-peer write list: the peer's memory to this device's. Spec: §7.9.
    P2pWriteNode = 32 {
        /// Device address in the peer, used by a kernel driver only.
        src_device_phy_addr: U64,
        /// Bus address in the peer's BAR 0.
        src_device_bus_addr: U64,
        /// Device address in this device.
        dst_device_phy_addr: U64,
        /// Bytes.
        size: U32,
        /// A kernel driver's number of the peer.
        peer_devnum: U16,
        /// Padding.
        pad: U16,
    }
    /// Configures firmware traces. Spec: §7.10.
    TraceRtConfigCmd = 40 {
        /// Header, id 529.
        header: Header,
        /// Shires to trace, bit 32 is the master shire.
        shire_mask: U64,
        /// Harts of each shire.
        thread_mask: U64,
        /// Spec: §16.2.
        event_mask: U32,
        /// Spec: §16.2.
        filter_mask: U32,
        /// Bytes at which an event is sent, 0 for a full part.
        threshold: U32,
        /// Padding.
        pad: U32,
    }
    /// Switches firmware traces. Spec: §7.11.
    TraceRtControlCmd = 16 {
        /// Header, id 531.
        header: Header,
        /// Bit 0 master minions, bit 1 compute minions.
        rt_type: U32,
        /// Bit 0 enable, bit 1 to the UART, bit 2 reset the buffer.
        control: U32,
    }
    /// Resets the compute minions. Spec: §7.12.
    CmResetCmd = 16 {
        /// Header, id 533.
        header: Header,
        /// Ignored by firmware.
        cm_shire_mask: U64,
    }
    /// Firmware error event. Spec: §7.13, §10.4.
    FwErrorEvent = 24 {
        /// Header, id 535.
        header: Header,
        /// Depends on the type.
        payload: U64,
        /// Type.
        error_type: U32,
        /// Padding.
        pad: [u8; 4],
    }
    /// A firmware trace buffer reached its threshold. Spec: §7.13.
    TraceBufferFullEvent = 16 {
        /// Header, id 536.
        header: Header,
        /// The threshold.
        data_size: U32,
        /// Spec: §16.1.
        buffer_type: u8,
        /// Padding.
        pad: [u8; 3],
    }
}

impl DmaWriteNode {
    /// Makes a node that copies `size` bytes from the host to the device.
    #[must_use]
    pub fn new(host: BusAddr, device: DeviceAddr, size: u32) -> Self {
        Self {
            src_host_virt_addr: host.as_u64().into(),
            src_host_phy_addr: host.as_u64().into(),
            dst_device_phy_addr: device.as_u64().into(),
            size: size.into(),
            pad: [0; 4],
        }
    }
}

impl DmaReadNode {
    /// Makes a node that copies `size` bytes from the device to the host.
    #[must_use]
    pub fn new(host: BusAddr, device: DeviceAddr, size: u32) -> Self {
        Self {
            dst_host_virt_addr: host.as_u64().into(),
            dst_host_phy_addr: host.as_u64().into(),
            src_device_phy_addr: device.as_u64().into(),
            size: size.into(),
            pad: [0; 4],
        }
    }
}
