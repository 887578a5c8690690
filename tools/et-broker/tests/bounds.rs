//! Nothing that a client asks for leaves its partition, whatever it says.

#![expect(clippy::unwrap_used, reason = "tests: a panic is a failure")]

#[path = "../../../backends/et-sim-device/tests/common/mod.rs"]
mod common;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use common::{HostBuffer, LaunchParams, Rig, dma_read, dma_write, encode, launch, params};
use common::{read_node, write_node};
use et_devapi::abi::EXCEPTION_BUFFER_BYTES;
use et_devapi::msg::ops::{
    Body, Command, DmaStatus, LaunchStatus, P2pReadNode, P2pWriteNode, StackConfig, TraceConfig,
};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::{DeviceAccess, DeviceAddr};
use et_sim_device::{
    Board, BoardConfig, ForwardedCopy, ForwardedEnd, ForwardedLaunch, MemoryAfterReset, Parent,
    Wake,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use zerocopy::FromZeros;

const BASE: u64 = common::HOST_BASE + (16 << 20);
const LEN: u64 = 16 << 20;
const PARTITION: Range<u64> = BASE..BASE + LEN;
const HOST: u64 = 0x1_0000;
const HOST_BYTES: usize = 1 << 20;

/// A card that notes what it is asked for, and does nothing.
#[derive(Debug, Default)]
struct Card(Mutex<Vec<(&'static str, Range<u64>)>>);

impl Card {
    fn note(&self, what: &'static str, at: u64, len: u64) {
        self.0.lock().unwrap().push((what, at..at.saturating_add(len)));
    }

    fn take(&self) -> Vec<(&'static str, Range<u64>)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Parent for Card {
    fn partition(&self) -> Range<u64> {
        PARTITION
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn reset(&self, _: MemoryAfterReset, _: Wake) {}

    fn launch(&self, launch: ForwardedLaunch) {
        let fixed = launch.launch();
        let optional = |address: Option<DeviceAddr>| address.map_or(BASE, DeviceAddr::as_u64);
        self.note("entry", fixed.entry.as_u64(), 1);
        let flags = launch.payload().flags();
        let embedded = launch.payload().arguments().len() as u64;
        self.note("arguments", optional(fixed.args), embedded);
        let exceptions = fixed.exception_buffer.map_or(0, |_| EXCEPTION_BUFFER_BYTES as u64);
        self.note("exceptions", optional(fixed.exception_buffer), exceptions);
        let mut bytes = launch.payload().as_bytes();
        let number = |bytes: &[u8], at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        if flags.contains(CommandFlags::KERNEL_TRACE) {
            self.note("trace", number(bytes, 0, 8), number(bytes, 8, 4));
            bytes = &bytes[size_of::<TraceConfig>()..];
        }
        if flags.contains(CommandFlags::USER_STACK) {
            // As the firmware of the card will count: from the start of all its memory.
            let at = common::HOST_BASE + number(bytes, 0, 4) * 4096;
            self.note("stack", at, number(bytes, 4, 4) * 4096);
        }
        let status = LaunchStatus::KernelCompleted;
        launch.answer(ForwardedEnd { status, error: None, execute: 7 });
    }

    fn abort_launch(&self) {}

    fn copy(&self, copy: ForwardedCopy) {
        for part in copy.parts() {
            self.note("copy", part.device, part.len as u64);
        }
        copy.done();
    }

    fn query(&self, _: u16, _: &[u8]) -> Option<(i32, Vec<u8>)> {
        None
    }
}

struct Client {
    rig: Rig,
    card: Arc<Card>,
    _host: HostBuffer,
}

impl Client {
    fn new() -> Self {
        let card = Arc::<Card>::default();
        let board = Board::mediate(BoardConfig::default(), Arc::clone(&card) as _).unwrap();
        let host = HostBuffer::map(&board, HOST, HOST_BYTES, DeviceAccess::ReadWrite);
        Self { rig: Rig::attach(board), card, _host: host }
    }

    /// Sends a command, and returns what was answered and what the card was asked for.
    fn ask(&mut self, message: &[u8]) -> (Vec<Body>, Vec<(&'static str, Range<u64>)>) {
        const LAST: u16 = 0x7ff0;
        self.rig.send(0, message);
        let last = encode(LAST, CommandFlags::BARRIER, &Command::Echo);
        self.rig.send(0, &last);
        let mut bodies = Vec::new();
        loop {
            let next = self.rig.next();
            if next.tag == Tag::new(LAST) && matches!(next.body, Body::Echo { .. }) {
                return (bodies, self.card.take());
            }
            bodies.push(next.body);
        }
    }

    fn assert_refused(&mut self, what: &str, message: &[u8]) {
        let (bodies, asked) = self.ask(message);
        let is_refused = |body: &Body| match body {
            Body::Launch { status, .. } => {
                matches!(status, LaunchStatus::InvalidAddress | LaunchStatus::InvalidStackConfig)
            }
            Body::DmaRead { status, .. }
            | Body::DmaWrite { status, .. }
            | Body::P2pRead { status, .. }
            | Body::P2pWrite { status, .. } => *status == DmaStatus::InvalidAddress,
            _ => false,
        };
        assert!(matches!(&bodies[..], [body] if is_refused(body)), "{what}: {bodies:?}");
        assert_eq!(asked, [], "{what}");
    }

    fn assert_done(&mut self, what: &str, message: &[u8]) {
        let (bodies, asked) = self.ask(message);
        let is_done = |body: &Body| match body {
            Body::Launch { status, .. } => *status == LaunchStatus::KernelCompleted,
            Body::DmaRead { status, .. }
            | Body::DmaWrite { status, .. }
            | Body::P2pRead { status, .. }
            | Body::P2pWrite { status, .. } => *status == DmaStatus::Complete,
            _ => false,
        };
        assert!(matches!(&bodies[..], [body] if is_done(body)), "{what}: {bodies:?}");
        assert!(!asked.is_empty(), "{what}");
        check(&asked);
    }
}

fn check(asked: &[(&'static str, Range<u64>)]) {
    for (what, range) in asked {
        let inside = PARTITION.start <= range.start && range.end <= PARTITION.end;
        assert!(inside, "{what} at {range:#x?}");
    }
}

fn start(change: impl FnOnce(&mut LaunchParams<'_>)) -> Vec<u8> {
    let mut params = params();
    params.entry = DeviceAddr::new(BASE);
    change(&mut params);
    launch(1, &params)
}

fn trace(buffer: u64, len: u32) -> Option<TraceConfig> {
    Some(TraceConfig {
        buffer: buffer.into(),
        buffer_size: len.into(),
        threshold: 0.into(),
        shire_mask: 1.into(),
        thread_mask: 1.into(),
        event_mask: u32::MAX.into(),
        filter_mask: u32::MAX.into(),
    })
}

fn stack(offset: u32, size: u32) -> Option<StackConfig> {
    Some(StackConfig { stack_base_offset: offset.into(), stack_size: size.into() })
}

/// Every command that names device memory, with each address that it names, outside by as little
/// as can be; and inside by as little.
#[test]
fn an_address_of_another_partition_is_refused_in_every_command() {
    let mut client = Client::new();
    let end = PARTITION.end;
    let addr = |at| Some(DeviceAddr::new(at));
    let exceptions = EXCEPTION_BUFFER_BYTES as u64;
    let pages = u32::try_from(LEN / 4096).unwrap();
    let p2p = |at: u64, len: u32| {
        let read = P2pReadNode {
            dst_device_bus_addr: HOST.into(),
            src_device_phy_addr: at.into(),
            size: len.into(),
            ..P2pReadNode::new_zeroed()
        };
        let write = P2pWriteNode {
            src_device_bus_addr: HOST.into(),
            dst_device_phy_addr: at.into(),
            size: len.into(),
            ..P2pWriteNode::new_zeroed()
        };
        (read, write)
    };
    let inside = [
        ("entry", start(|p| p.entry = DeviceAddr::new(end - 8))),
        ("arguments", start(|p| p.args = addr(end - 8))),
        ("embedded arguments", start(|p| (p.args, p.embedded_args) = (addr(end - 8), &[1; 8]))),
        ("exception buffer", start(|p| p.exception_buffer = addr(end - exceptions))),
        ("trace", start(|p| p.trace = trace(end - 4096, 4096))),
        ("stack", start(|p| p.stack = stack(0, 64))),
        ("write list", dma_write(1, &[write_node(HOST, end - 64, 64)])),
        ("read list", dma_read(1, &[read_node(HOST, BASE, 64)])),
        ("second node", dma_write(1, &[write_node(HOST, BASE, 64), write_node(HOST, BASE, 64)])),
        (
            "from a device to this one",
            encode(1, CommandFlags::EMPTY, &Command::P2pDmaWriteList { nodes: &[p2p(BASE, 64).1] }),
        ),
    ];
    for (what, message) in &inside {
        client.assert_done(what, message);
    }
    let outside = [
        ("entry below", start(|p| p.entry = DeviceAddr::new(BASE - 8))),
        ("entry above", start(|p| p.entry = DeviceAddr::new(end))),
        ("arguments below", start(|p| p.args = addr(BASE - 8))),
        ("arguments above", start(|p| p.args = addr(end))),
        (
            "embedded arguments that leave",
            start(|p| (p.args, p.embedded_args) = (addr(end - 8), &[1; 16])),
        ),
        ("exception buffer below", start(|p| p.exception_buffer = addr(BASE - exceptions))),
        (
            "exception buffer that leaves",
            start(|p| p.exception_buffer = addr(end - exceptions + 64)),
        ),
        ("trace below", start(|p| p.trace = trace(BASE - 4096, 4096))),
        ("trace that leaves", start(|p| p.trace = trace(end - 4096, 8192))),
        ("trace of everything", start(|p| p.trace = trace(BASE, u32::MAX - 63))),
        ("stack above", start(|p| p.stack = stack(pages, 64))),
        ("stack that leaves", start(|p| p.stack = stack(pages - 63, 64))),
        // In 32 bits, 4 GiB are nothing.
        ("stack that wraps", start(|p| p.stack = stack(0, (1 << 20) + 64))),
        ("stack that begins beyond 4 GiB", start(|p| p.stack = stack(1 << 20, 64))),
        ("write below", dma_write(1, &[write_node(HOST, BASE - 64, 64)])),
        ("write that enters", dma_write(1, &[write_node(HOST, BASE - 8, 64)])),
        ("write that leaves", dma_write(1, &[write_node(HOST, end - 8, 64)])),
        ("write that wraps", dma_write(1, &[write_node(HOST, u64::MAX - 7, 64)])),
        ("read below", dma_read(1, &[read_node(HOST, BASE - 64, 64)])),
        ("read that leaves", dma_read(1, &[read_node(HOST, end - 8, 64)])),
        (
            "second node of a write",
            dma_write(1, &[write_node(HOST, BASE, 64), write_node(HOST, end, 64)]),
        ),
        (
            "second node of a read",
            dma_read(1, &[read_node(HOST, BASE, 64), read_node(HOST, end, 64)]),
        ),
        ("firmware's memory", dma_read(1, &[read_node(HOST, 0x80_0000_0000, 64)])),
        ("scratchpads", dma_read(1, &[read_node(HOST, 0x80_0000, 64)])),
        (
            "to another device",
            encode(1, CommandFlags::EMPTY, &Command::P2pDmaReadList { nodes: &[p2p(end, 64).0] }),
        ),
        (
            "from another device",
            encode(1, CommandFlags::EMPTY, &Command::P2pDmaWriteList { nodes: &[p2p(end, 64).1] }),
        ),
    ];
    for (what, message) in &outside {
        client.assert_refused(what, message);
    }
}

/// Addresses where something may go wrong.
fn address() -> impl Strategy<Value = u64> {
    let near = |at: u64| (0_u64..0x2_0000).prop_map(move |by| at.wrapping_add(by) - 0x1_0000);
    prop_oneof![
        near(PARTITION.start),
        near(PARTITION.end),
        near(PARTITION.end - EXCEPTION_BUFFER_BYTES as u64),
        near(common::HOST_BASE),
        PARTITION,
        Just(0),
        any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..0x2_0000, any::<u32>()]
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let nodes = || proptest::collection::vec((address(), length()), 1..10);
    let a_launch = (address(), address(), address(), any::<bool>(), any::<bool>());
    let parts = (address(), length(), any::<u32>(), length(), 0_usize..40);
    prop_oneof![
        nodes().prop_map(|nodes| {
            let nodes: Vec<_> = nodes.iter().map(|(at, len)| write_node(HOST, *at, *len)).collect();
            dma_write(1, &nodes)
        }),
        nodes().prop_map(|nodes| {
            let nodes: Vec<_> = nodes.iter().map(|(at, len)| read_node(HOST, *at, *len)).collect();
            dma_read(1, &nodes)
        }),
        (a_launch, parts).prop_map(|((entry, args, exceptions, has_trace, has_stack), parts)| {
            let (buffer, len, offset, units, embedded) = parts;
            start(|p| {
                p.entry = DeviceAddr::new(entry);
                p.args = Some(DeviceAddr::new(args));
                p.exception_buffer = Some(DeviceAddr::new(exceptions));
                p.trace = trace(buffer, len).filter(|_| has_trace);
                p.stack = stack(offset % 0x2000, units).filter(|_| has_stack);
                p.embedded_args = &[0x5a; 40][..embedded];
            })
        }),
        // Nothing that was meant.
        proptest::collection::vec(any::<u8>(), 8..200).prop_map(|mut bytes| {
            let len = u16::try_from(bytes.len() / 8 * 8).unwrap();
            bytes.truncate(len.into());
            bytes[..2].copy_from_slice(&len.to_le_bytes());
            // Not the tag that ends the case.
            bytes[3] &= 0x0f;
            bytes
        }),
    ]
}

/// The fields of a real command, over which random bytes are written.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (command(), proptest::collection::vec((8_usize..160, any::<u8>()), 0..6)).prop_map(
        |(mut bytes, damage)| {
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes
        },
    )
}

#[test]
fn no_command_whatever_it_is_reaches_beyond_the_partition() {
    let client = Mutex::new(Client::new());
    proptest!(|(message in prop_oneof![command(), damaged()])| {
        let (_, asked) = client.lock().unwrap().ask(&message);
        check(&asked);
    });
}
