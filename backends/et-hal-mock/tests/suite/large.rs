//! Copies of more than 4 GiB, and the way that copies take, by the commands that they become.
//!
//! Only addresses are looked at: the memory is never touched, so it is never there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_devapi::abi::host_managed_len;
use et_devapi::dir::OpsDir;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Command, DmaReadNode, DmaWriteNode};
use et_hal::DeviceAccess;
use et_hal_mock::{MockHal, VecDma, presets};
use et_runtime::{Config, CopyPath, CopyPaths, Device, DeviceSlice, Drain, HostBuffer, ListedCopy};

const LONG: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;
/// Neither a multiple of a node nor of a chunk of staging memory.
const LEN: u64 = 4 * GIB + 0x5_4328;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// One node, as it was on the wire.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: Kind,
    host: u64,
    device: u64,
    size: u64,
}

impl From<&DmaReadNode> for Node {
    fn from(node: &DmaReadNode) -> Self {
        let (host, device) = (node.dst_host_phy_addr.get(), node.src_device_phy_addr.get());
        Self { kind: Kind::Read, host, device, size: node.size.get().into() }
    }
}

impl From<&DmaWriteNode> for Node {
    fn from(node: &DmaWriteNode) -> Self {
        let (host, device) = (node.src_host_phy_addr.get(), node.dst_device_phy_addr.get());
        Self { kind: Kind::Write, host, device, size: node.size.get().into() }
    }
}

/// What a device was told.
#[derive(Debug, Default)]
struct Heard {
    nodes: Vec<Node>,
    /// Nodes of each command.
    lists: Vec<usize>,
    /// Arguments of each launch.
    launches: Vec<Vec<u8>>,
}

/// A card that keeps what it is told.
struct Card {
    device: Device<MockHal>,
    heard: Arc<Mutex<Heard>>,
}

impl Card {
    fn new(max_node_bytes: u64) -> Self {
        Self::with(max_node_bytes, Config::new())
    }

    fn with(max_node_bytes: u64, config: Config) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let its = Arc::clone(&heard);
        let mailbox = presets::answering_mailbox(move |header, command| {
            let mut heard = its.lock().unwrap();
            let nodes: Vec<Node> = match command {
                Command::DmaReadList { nodes } => nodes.iter().map(Node::from).collect(),
                Command::DmaWriteList { nodes } => nodes.iter().map(Node::from).collect(),
                _ => Vec::new(),
            };
            if let Command::KernelLaunch(launch) = command {
                assert!(header.flags().contains(CommandFlags::ARGS_EMBEDDED));
                heard.launches.push(launch.payload.to_vec());
            }
            heard.lists.extend((!nodes.is_empty()).then_some(nodes.len()));
            heard.nodes.extend(nodes);
            presets::success(header, command)
        });
        let dir = OpsDir::firmware(host_managed_len(16 * GIB)).with_max_node_bytes(max_node_bytes);
        let mmio = presets::readable(presets::registers_of(&dir));
        let dma = VecDma::default().largest(usize::MAX);
        let config = config.drain(Drain::Caller).shutdown_timeout(Duration::ZERO);
        let hal = MockHal::new(mmio, mailbox).with_dma(dma);
        let device = Device::open_with(hal, config).unwrap();
        assert_eq!(device.properties().dma_max_node_bytes, max_node_bytes);
        Self { device, heard }
    }

    fn host(&self, len: u64, access: DeviceAccess) -> HostBuffer<MockHal> {
        self.device.host_buffer_for(access, usize::try_from(len).unwrap(), 8).unwrap()
    }

    fn take(&self) -> Heard {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }

    /// Takes what was said, which has to keep to what the registers state.
    fn within_limits(&self) -> Vec<Node> {
        let heard = self.take();
        let limits = self.device.properties();
        let most = usize::from(limits.dma_max_nodes);
        assert!(heard.lists.iter().all(|&nodes| nodes <= most), "{most}: {:?}", heard.lists);
        for node in &heard.nodes {
            assert!((1..=limits.dma_max_node_bytes).contains(&node.size), "{node:x?}");
            assert!(node.device.is_multiple_of(limits.dma_align_bytes), "{node:x?}");
            assert!(node.size.is_multiple_of(limits.dma_align_bytes), "{node:x?}");
        }
        heard.nodes
    }
}

/// Checks that nodes of one direction have every byte of a part of device memory once, in order.
#[track_caller]
fn cover(nodes: &[Node], kind: Kind, part: &DeviceSlice) {
    let mut at = part.addr().as_u64();
    for node in nodes.iter().filter(|node| node.kind == kind) {
        assert_eq!(node.device, at, "{kind:?} after {at:#x}");
        at += node.size;
    }
    assert_eq!(at, part.addr().as_u64() + part.len_bytes(), "the end of what was {kind:?}");
}

/// Checks that the side of the host is `bus` and what follows it.
#[track_caller]
fn follow(nodes: &[Node], mut bus: u64) {
    for node in nodes {
        assert_eq!(node.host, bus, "{node:x?}");
        bus += node.size;
    }
}

#[test]
fn host_buffers_of_more_than_4_gib_are_copied_to_the_last_byte() {
    // Of current firmware; the most that a node's length on the wire may say, and more than that.
    for limit in [128 << 20, 4 * GIB, 255 << 25] {
        let card = Card::new(limit);
        let stream = card.device.default_stream();
        let there = card.device.alloc(LEN).unwrap();
        card.take();
        let buffer = card.host(LEN, DeviceAccess::ReadWrite);
        let bus = buffer.bus_addr().as_u64();
        let buffer = stream.upload(buffer, &there).unwrap().wait(LONG).unwrap();
        let nodes = card.within_limits();
        cover(&nodes, Kind::Write, &there.whole());
        follow(&nodes, bus);
        assert!(nodes.iter().all(|node| node.kind == Kind::Write));
        let buffer = stream.download(&there, buffer).unwrap().wait(LONG).unwrap();
        let nodes = card.within_limits();
        cover(&nodes, Kind::Read, &there.whole());
        follow(&nodes, bus);
        // Two parts, the second of which is beyond 4 GiB on both sides.
        let behind = LEN - 0x328;
        let parts = [
            (0, there.slice(0..8).unwrap()),
            (usize::try_from(behind).unwrap(), there.slice(behind..LEN).unwrap()),
        ];
        stream.upload_list(buffer, &parts).unwrap().wait(LONG).unwrap();
        let nodes = card.within_limits();
        assert_eq!(nodes.iter().map(|node| node.host).collect::<Vec<_>>(), [bus, bus + behind]);
        cover(&nodes[1..], Kind::Write, &parts[1].1);
    }
}

#[test]
fn more_than_4_gib_are_copied_and_filled_on_the_device() {
    for limit in [128 << 20, 255 << 25] {
        let card = Card::new(limit);
        let stream = card.device.default_stream();
        let (from, to) = (card.device.alloc(LEN).unwrap(), card.device.alloc(LEN).unwrap());
        card.take();
        stream.copy_on_device(&from, &to).unwrap().wait(LONG).unwrap();
        let nodes = card.within_limits();
        cover(&nodes, Kind::Read, &from.whole());
        cover(&nodes, Kind::Write, &to.whole());
        // What is written is what was read there: through the same memory, with the same length.
        let side = |kind| nodes.iter().filter(move |node| node.kind == kind);
        for (read, write) in side(Kind::Read).zip(side(Kind::Write)) {
            assert_eq!((read.host, read.size), (write.host, write.size));
            assert_eq!(read.device - from.addr().as_u64(), write.device - to.addr().as_u64());
        }
        stream.fill(&to, 3).unwrap().wait(LONG).unwrap();
        let nodes = card.within_limits();
        cover(&nodes, Kind::Write, &to.whole());
        assert!(nodes.iter().all(|node| node.kind == Kind::Write));
    }
}

/// Cards are documented to copy at multiples of 8 bytes: what can keep to that does, also if other
/// copies are allowed.
#[test]
fn copies_that_may_end_anywhere_are_padded_where_nothing_is_behind() {
    let card = Card::with(128 << 20, Config::new().byte_copies(true));
    let stream = card.device.default_stream();
    let (whole, other) = (card.device.alloc(12).unwrap(), card.device.alloc(12).unwrap());
    let (start, at) = (whole.addr().as_u64(), other.addr().as_u64());
    let sizes = |expected: &[(Kind, u64, u64)]| {
        let nodes = card.take().nodes;
        let found = nodes.iter().map(|node| (node.kind, node.device, node.size));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let host = |node: &Node| node.host.is_multiple_of(8);
        assert!(nodes.iter().all(host), "{nodes:x?}");
    };
    card.take();
    let (head, tail) = (whole.slice(0..4).unwrap(), whole.slice(4..12).unwrap());
    stream.copy_to_device(&[1_u8; 12], &whole).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Write, start, 16)]);
    stream.copy_to_device(&[1_u8; 4], &head).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Write, start, 4)]);
    let mut bytes = [0_u8; 12];
    stream.read(&whole, &mut bytes, LONG).unwrap();
    sizes(&[(Kind::Read, start, 16)]);
    stream.read(&head, &mut bytes[..4], LONG).unwrap();
    sizes(&[(Kind::Read, start, 4)]);
    stream.read(&tail, &mut bytes[..8], LONG).unwrap();
    sizes(&[(Kind::Read, start + 4, 8)]);
    stream.copy_on_device(&whole, &other).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Read, start, 16), (Kind::Write, at, 16)]);
    // The source ends with its buffer, and the target does not.
    let (from, to) = (other.slice(8..12).unwrap(), head.clone());
    stream.copy_on_device(&from, &to).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Read, at + 8, 4), (Kind::Write, start, 4)]);
    stream.fill(&whole, 3).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Write, start, 16)]);
    let lists =
        [ListedCopy::ToDevice(&[1; 4], head), ListedCopy::ToDevice(&[2; 12], other.whole())];
    stream.copy_list(&lists).unwrap().wait(LONG).unwrap();
    sizes(&[(Kind::Write, start, 4), (Kind::Write, at, 16)]);
}

/// The kernel divides what it is told here, by 64-bit numbers as well.
#[test]
fn the_cores_are_told_of_more_than_4_gib() {
    let card = Card::new(128 << 20);
    let (from, to) = (card.device.alloc(LEN).unwrap(), card.device.alloc(LEN).unwrap());
    let builtins = card.device.builtins().unwrap();
    let stream = card.device.default_stream();
    let launches = [builtins.copy(&from, &to).unwrap(), builtins.fill(&to, &[7]).unwrap()];
    for launch in launches {
        stream.launch(&launch).unwrap().wait(LONG).unwrap();
        let heard = card.take();
        let args = heard.launches[0].chunks(8).map(|word| word.try_into().unwrap());
        let args: Vec<u64> = args.map(u64::from_le_bytes).collect();
        assert_eq!(args[..2], [to.addr().as_u64(), LEN]);
    }
}

/// Bytes of ordinary memory, which is only read.
#[test]
fn more_than_4_gib_of_ordinary_memory_arrive() {
    let card = Card::new(128 << 20);
    let stream = card.device.default_stream();
    let there = card.device.alloc(LEN).unwrap();
    card.take();
    let bytes = vec![0_u8; usize::try_from(LEN).unwrap()];
    stream.copy_to_device(&bytes, &there).unwrap().wait(LONG).unwrap();
    cover(&card.within_limits(), Kind::Write, &there.whole());
    let list = [ListedCopy::ToDevice(&bytes, there.whole())];
    stream.copy_list(&list).unwrap().wait(LONG).unwrap();
    cover(&card.within_limits(), Kind::Write, &there.whole());
}

#[test]
fn more_than_4_gib_come_to_ordinary_memory() {
    if std::env::var_os("ET_LARGE_MEMORY").is_none() {
        eprintln!("skipped, because ET_LARGE_MEMORY does not ask for tests that use 5 GiB");
        return;
    }
    let card = Card::new(128 << 20);
    let there = card.device.alloc(LEN).unwrap();
    card.take();
    let mut bytes = vec![1_u8; usize::try_from(LEN).unwrap()];
    card.device.default_stream().read(&there, &mut bytes, LONG).unwrap();
    cover(&card.within_limits(), Kind::Read, &there.whole());
    // The card answers without writing, and new memory has zeros.
    assert!(bytes.iter().all(|&byte| byte == 0));
}

/// The way that a copy took, by what its device was told. `own` are the bus addresses of the host
/// buffer that the caller gave, if it did.
fn path(heard: &Heard, own: std::ops::Range<u64>) -> CopyPath {
    match (&heard.nodes[..], &heard.launches[..]) {
        ([], [_]) => CopyPath::Cores,
        ([_, ..], []) if heard.nodes.iter().all(|node| own.contains(&node.host)) => {
            CopyPath::Direct
        }
        ([_, ..], []) => CopyPath::Staged,
        other => panic!("neither a copy nor a kernel: {other:?}"),
    }
}

#[test]
fn copies_take_the_way_that_the_properties_say() {
    const SMALL: u64 = 1 << 20;
    let card = Card::new(128 << 20);
    let CopyPaths { ordinary, host_buffer, on_device, builtin, .. } =
        card.device.properties().copies;
    let stream = card.device.default_stream();
    let (from, to) = (card.device.alloc(SMALL).unwrap(), card.device.alloc(SMALL).unwrap());
    let builtins = card.device.builtins().unwrap();
    // A kernel is there before its first launch.
    stream.launch(&builtins.copy(&from, &to).unwrap()).unwrap().wait(LONG).unwrap();
    card.take();
    let mut bytes = vec![0_u8; usize::try_from(SMALL).unwrap()];

    stream.copy_to_device(&bytes, &to).unwrap().wait(LONG).unwrap();
    assert_eq!(path(&card.take(), 0..0), ordinary);
    stream.read(&from, &mut bytes, LONG).unwrap();
    assert_eq!(path(&card.take(), 0..0), ordinary);

    let buffer = card.host(SMALL, DeviceAccess::ReadWrite);
    let own = buffer.bus_addr().as_u64()..buffer.bus_addr().as_u64() + SMALL;
    let buffer = stream.upload(buffer, &to).unwrap().wait(LONG).unwrap();
    assert_eq!(path(&card.take(), own.clone()), host_buffer);
    stream.download(&from, buffer).unwrap().wait(LONG).unwrap();
    assert_eq!(path(&card.take(), own), host_buffer);

    stream.copy_on_device(&from, &to).unwrap().wait(LONG).unwrap();
    assert_eq!(path(&card.take(), 0..0), on_device);
    stream.launch(&builtins.copy(&from, &to).unwrap()).unwrap().wait(LONG).unwrap();
    assert_eq!(path(&card.take(), 0..0), builtin);
}
