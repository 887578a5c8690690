//! Drives a board by its registers and rings, without a runtime.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::field_reassign_with_default,
    reason = "each test file uses another part"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::dir::BarSizes;
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{
    self, Command, Completion, DmaReadNode, DmaWriteNode, Launch, LaunchPayload, StackConfig,
    TraceConfig,
};
use et_devapi::msg::{CommandFlags, Tag, completion_bytes};
use et_devapi::ring::{Consumer, Producer, Ring};
use et_hal::{BarOffset, BusAddr, DeviceAccess, DeviceAddr, Endpoint, Pop, Push, RingSet, Width};
use et_sim_device::{Board, BoardConfig, ComputeKind, RegisterPage};
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

/// Long enough for a loaded machine; no test waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// First byte of host-managed memory.
pub const HOST_BASE: u64 = 0x80_0580_1000;

pub fn null_config() -> BoardConfig {
    // `BoardConfig` is not exhaustive for its users, so no literal of it.
    let mut config = cores_config();
    config.compute = ComputeKind::Null;
    config
}

pub fn cores_config() -> BoardConfig {
    let mut config = BoardConfig::default();
    config.dram_bytes = 256 << 20;
    config
}

/// Polls until `done`, and fails after the deadline.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < DEADLINE, "{what} did not happen");
        std::thread::yield_now();
    }
}

pub struct Rig {
    pub board: Arc<Board>,
    pub layout: Layout,
    pub sq: [Producer; 2],
    pub hp: [Producer; 2],
    pub cq: Consumer,
}

pub fn ring(set: &RingSet, index: u64) -> Ring {
    let at = set.at.as_u64() + index * u64::from(set.size_bytes);
    Ring::new::<et_hal::AccessError>(BarOffset::new(at), set.size_bytes).unwrap()
}

pub fn discover(board: &Board) -> Layout {
    let page = board.page();
    until("boot", || {
        i16::from(discovery::mgmt_status(page).unwrap()) == 12
            && i16::from(discovery::ops_status(page).unwrap()) == 8
    });
    let bars = BarSizes::ET_SOC_1;
    let mgmt = discovery::read_mgmt(page, &bars).unwrap();
    let ops = discovery::read_ops(page, &bars).unwrap();
    Layout::new(mgmt, ops).unwrap()
}

impl Rig {
    pub fn new(config: BoardConfig) -> Self {
        Self::attach(Board::power_on(config).unwrap())
    }

    pub fn attach(board: Arc<Board>) -> Self {
        let layout = discover(&board);
        let page = board.page();
        let mailbox = &layout.ops_mailbox;
        let sq = [0, 1].map(|i| Producer::attach(ring(&mailbox.submission, i), page).unwrap());
        let hp = [0, 1].map(|i| Producer::attach(ring(&mailbox.high_priority, i), page).unwrap());
        let cq = Consumer::attach(ring(&mailbox.completion, 0), page).unwrap();
        Self { board, layout, sq, hp, cq }
    }

    pub fn page(&self) -> &RegisterPage {
        self.board.page()
    }

    /// Pushes without ringing; returns `true` if there was room.
    pub fn try_push(&mut self, queue: usize, message: &[u8]) -> bool {
        self.sq[queue].push(self.board.page(), message).unwrap() == Push::Accepted
    }

    pub fn push(&mut self, queue: usize, message: &[u8]) {
        assert!(self.try_push(queue, message), "submission queue is full");
    }

    pub fn kick(&self) {
        self.board.ring(BarOffset::new(4), Width::W32, 1);
    }

    pub fn send(&mut self, queue: usize, message: &[u8]) {
        self.push(queue, message);
        self.kick();
    }

    pub fn send_high(&mut self, queue: usize, message: &[u8]) {
        let board = Arc::clone(&self.board);
        until("room in the high-priority queue", || {
            self.hp[queue].push(board.page(), message).unwrap() == Push::Accepted
        });
        self.kick();
    }

    /// Takes the next message if there is one.
    pub fn try_bytes(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 512];
        let board = Arc::clone(&self.board);
        let frame = |header: &_| completion_bytes(Endpoint::Operations, header);
        match self.cq.pop_message(board.page(), frame, &mut buffer).unwrap() {
            Pop::Message(len) => Some(buffer[..len].to_vec()),
            Pop::Empty => None,
        }
    }

    /// Takes the next message without looking at it; returns `true` if there was one.
    pub fn try_bytes_fast(&mut self) -> bool {
        let mut buffer = [0; 512];
        let frame = |header: &_| completion_bytes(Endpoint::Operations, header);
        let popped = self.cq.pop_message(self.board.page(), frame, &mut buffer);
        matches!(popped, Ok(Pop::Message(_)))
    }

    /// Waits for the next message.
    pub fn bytes(&mut self) -> Vec<u8> {
        let mut found = None;
        until("a message", || {
            found = self.try_bytes();
            found.is_some()
        });
        found.unwrap()
    }

    pub fn next(&mut self) -> Completion {
        Completion::parse(&self.bytes()).unwrap()
    }

    /// Asserts that everything sent has been answered: the next answer is that of an echo.
    pub fn assert_quiet(&mut self) {
        self.assert_quiet_on(0);
    }

    /// The same by an echo on another queue.
    pub fn assert_quiet_on(&mut self, queue: usize) {
        let echo = echo(0x7e57);
        self.send(queue, &echo);
        let next = self.next();
        assert_eq!(next.tag, Tag::new(0x7e57), "{next:?}");
    }
}

pub fn encode(tag: u16, flags: CommandFlags, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = [0; ops::MAX_COMMAND_BYTES];
    let len = command.encode(Tag::new(tag), flags, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

pub fn echo(tag: u16) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::Echo)
}

pub fn echo_with_barrier(tag: u16) -> Vec<u8> {
    encode(tag, CommandFlags::BARRIER, &Command::Echo)
}

pub fn abort(tag: u16) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::Abort)
}

pub fn cm_reset(tag: u16) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::CmReset { shire_mask: 1 })
}

pub fn kernel_abort(tag: u16, launch: u16) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::KernelAbort { launch: Tag::new(launch) })
}

pub fn dma_write(tag: u16, nodes: &[DmaWriteNode]) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::DmaWriteList { nodes })
}

pub fn dma_read(tag: u16, nodes: &[DmaReadNode]) -> Vec<u8> {
    encode(tag, CommandFlags::EMPTY, &Command::DmaReadList { nodes })
}

pub fn write_node(host: u64, device: u64, size: u32) -> DmaWriteNode {
    DmaWriteNode::new(BusAddr::new(host), DeviceAddr::new(device), size)
}

pub fn read_node(host: u64, device: u64, size: u32) -> DmaReadNode {
    DmaReadNode::new(BusAddr::new(host), DeviceAddr::new(device), size)
}

/// What a test wants to launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchParams<'a> {
    pub entry: DeviceAddr,
    pub args: Option<DeviceAddr>,
    pub exception_buffer: Option<DeviceAddr>,
    pub shire_mask: u64,
    pub trace: Option<TraceConfig>,
    pub stack: Option<StackConfig>,
    pub embedded_args: &'a [u8],
}

/// A launch at the start of host-managed memory on shire 0.
pub fn params() -> LaunchParams<'static> {
    LaunchParams {
        entry: DeviceAddr::new(HOST_BASE),
        args: None,
        exception_buffer: None,
        shire_mask: 1,
        trace: None,
        stack: None,
        embedded_args: &[],
    }
}

pub fn launch(tag: u16, params: &LaunchParams<'_>) -> Vec<u8> {
    let &LaunchParams { entry, args, exception_buffer, shire_mask, ref trace, ref stack, .. } =
        params;
    let payload = LaunchPayload::new(trace.as_ref(), stack.as_ref(), params.embedded_args).unwrap();
    let launch = Launch { entry, args, exception_buffer, shire_mask, payload: payload.as_bytes() };
    encode(tag, payload.flags(), &Command::KernelLaunch(launch))
}

/// Host memory that the board can reach.
pub struct HostBuffer {
    pub bus: u64,
    memory: Arc<MmapRegion>,
}

impl HostBuffer {
    pub fn map(board: &Board, bus: u64, len: usize, access: DeviceAccess) -> Self {
        let memory = Arc::new(MmapRegion::new(len).unwrap());
        board.host_memory().map(BusAddr::new(bus), Arc::clone(&memory), access).unwrap();
        Self { bus, memory }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.get_slice(offset, bytes.len()).unwrap().write_slice(bytes, 0).unwrap();
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.get_slice(offset, len).unwrap().read_slice(&mut bytes, 0).unwrap();
        bytes
    }
}
