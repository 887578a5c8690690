//! Copies: limits, addresses, permissions, aborts.

#![expect(clippy::cast_possible_truncation, reason = "small numbers, and patterns that may wrap")]

mod common;

use common::{
    HOST_BASE, HostBuffer, Rig, abort, dma_read, dma_write, echo, echo_with_barrier, null_config,
    read_node, write_node,
};
use et_devapi::msg::ops::{
    self, AbortStatus, Body, Command, Completion, DmaReadNode, DmaStatus, MsgId, P2pReadNode,
    P2pWriteNode,
};
use et_devapi::msg::{CommandFlags, Header, Tag};
use et_devapi::trace::{MAGIC, TraceHeader};
use et_hal::{BusAddr, DeviceAccess};
use zerocopy::{FromBytes, IntoBytes};

const BUS: u64 = 0x4000_0000;
const MIB: u32 = 1 << 20;

fn end_of_host(rig: &Rig) -> u64 {
    HOST_BASE + rig.layout.host_managed.len
}

fn status(completion: Completion) -> DmaStatus {
    match completion {
        Completion { body: Body::DmaRead { status, .. }, .. }
        | Completion { body: Body::DmaWrite { status, .. }, .. }
        | Completion { body: Body::P2pRead { status, .. }, .. }
        | Completion { body: Body::P2pWrite { status, .. }, .. } => status,
        other => panic!("{other:?}"),
    }
}

fn write(rig: &mut Rig, host: u64, device: u64, size: u32) -> DmaStatus {
    rig.send(0, &dma_write(1, &[write_node(host, device, size)]));
    status(rig.next())
}

fn read(rig: &mut Rig, host: u64, device: u64, size: u32) -> DmaStatus {
    rig.send(0, &dma_read(1, &[read_node(host, device, size)]));
    status(rig.next())
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u64).wrapping_mul(0x9e37_79b9) as u8 ^ seed).collect()
}

#[test]
fn lists_of_all_lengths_arrive() {
    let mut rig = Rig::new(null_config());
    let host = HostBuffer::map(&rig.board, BUS, 1 << 20, DeviceAccess::ReadWrite);
    for nodes in 1..=8_usize {
        let data = pattern(nodes * 1000, nodes as u8);
        host.write(0, &data);
        let place = |i: u64| (BUS + 1000 * i, HOST_BASE + 0x1_0003 * i);
        let list: Vec<_> =
            (0..nodes as u64).map(|i| write_node(place(i).0, place(i).1, 1000)).collect();
        rig.send(1, &dma_write(1, &list));
        assert_eq!(status(rig.next()), DmaStatus::Complete);
        let list: Vec<_> =
            (0..nodes as u64).map(|i| read_node(place(i).0 + 0x8_0000, place(i).1, 1000)).collect();
        rig.send(0, &dma_read(2, &list));
        assert_eq!(status(rig.next()), DmaStatus::Complete);
        assert_eq!(host.read(0x8_0000, data.len()), data);
    }
}

#[test]
fn large_copies_arrive_whole() {
    let mut rig = Rig::new(null_config());
    let len = 64 * MIB;
    let host = HostBuffer::map(&rig.board, BUS, 2 * len as usize, DeviceAccess::ReadWrite);
    let data = pattern(len as usize, 3);
    host.write(0, &data);
    assert_eq!(write(&mut rig, BUS, HOST_BASE + 5, len), DmaStatus::Complete);
    assert_eq!(read(&mut rig, BUS + u64::from(len), HOST_BASE + 5, len), DmaStatus::Complete);
    assert!(host.read(len as usize, len as usize) == data);
}

#[test]
fn times_add_up() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 4 << 20, DeviceAccess::Read);
    rig.push(0, &echo(1));
    rig.push(0, &dma_write(2, &[write_node(BUS, HOST_BASE, 4 * MIB)]));
    rig.kick();
    let Body::Echo { start, .. } = rig.next().body else { panic!("no echo") };
    let Body::DmaWrite { times, .. } = rig.next().body else { panic!("no copy") };
    assert_eq!(times.start, start);
    assert!(times.execute > 0);
}

#[test]
fn wrong_node_counts_are_invalid_sizes() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 4096, DeviceAccess::ReadWrite);
    let node = write_node(BUS, HOST_BASE, 8);
    let list = |count: usize, spare: usize| {
        let len = 8 + 32 * count + spare;
        let id = MsgId::DmaWriteListCmd.as_u16();
        let header = Header::new(len as u16, Tag::new(1), id, CommandFlags::EMPTY);
        let mut bytes = header.as_bytes().to_vec();
        (0..count).for_each(|_| bytes.extend(node.as_bytes()));
        bytes.resize(len, 0);
        bytes
    };
    for count in [0, 9, 10, 31] {
        rig.send(0, &list(count, 0));
        assert_eq!(status(rig.next()), DmaStatus::InvalidSize, "{count}");
    }
    for spare in [0, 8, 31] {
        rig.send(0, &list(8, spare));
        assert_eq!(status(rig.next()), DmaStatus::Complete, "{spare}");
    }
}

#[test]
fn node_sizes_are_from_one_byte_to_128_mib() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 128 << 20, DeviceAccess::Read);
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 0), DmaStatus::InvalidSize);
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 1), DmaStatus::Complete);
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 128 * MIB), DmaStatus::Complete);
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 128 * MIB + 1), DmaStatus::InvalidSize);
    // Sizes are checked before addresses, over the whole list.
    let list = [write_node(BUS, 0, 8), write_node(BUS, HOST_BASE, 0)];
    rig.send(0, &dma_write(1, &list));
    assert_eq!(status(rig.next()), DmaStatus::InvalidSize);
}

#[test]
fn device_addresses_must_lie_in_host_managed_memory() {
    let mut rig = Rig::new(null_config());
    let host = HostBuffer::map(&rig.board, BUS, 1 << 20, DeviceAccess::ReadWrite);
    let end = end_of_host(&rig);
    for (device, size, expected) in [
        (HOST_BASE - 1, 1, DmaStatus::InvalidAddress),
        (HOST_BASE - 1, 2, DmaStatus::InvalidAddress),
        (HOST_BASE, 1, DmaStatus::Complete),
        (end - 1, 1, DmaStatus::Complete),
        (end - 1, 2, DmaStatus::InvalidAddress),
        (end, 1, DmaStatus::InvalidAddress),
        (u64::MAX, 1, DmaStatus::InvalidAddress),
        (u64::MAX - 3, 8, DmaStatus::InvalidAddress),
        (0, 8, DmaStatus::InvalidAddress),
        (0x7fff_ffff, 2, DmaStatus::InvalidAddress),
        (0x883f_ffff, 2, DmaStatus::InvalidAddress),
    ] {
        assert_eq!(write(&mut rig, BUS, device, size), expected, "{device:#x} {size}");
        assert_eq!(read(&mut rig, BUS, device, size), expected, "{device:#x} {size}");
    }
    // One bad node spoils the list before anything is copied.
    host.write(0, &[0xaa; 8]);
    let list = [write_node(BUS, HOST_BASE + 64, 8), write_node(BUS, 0, 8)];
    rig.send(0, &dma_write(1, &list));
    assert_eq!(status(rig.next()), DmaStatus::InvalidAddress);
    let mut bytes = [0; 8];
    rig.board.dram().read(HOST_BASE + 64, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
}

#[test]
fn unmapped_and_forbidden_host_memory_is_an_engine_error() {
    let mut rig = Rig::new(null_config());
    let failed = DmaStatus::ErrorAborted;
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 8), failed);
    assert_eq!(read(&mut rig, 0, HOST_BASE, 8), failed);
    assert_eq!(write(&mut rig, u64::MAX - 2, HOST_BASE, 8), failed);
    let _readable = HostBuffer::map(&rig.board, BUS, 4096, DeviceAccess::Read);
    let _writable = HostBuffer::map(&rig.board, BUS + 4096, 4096, DeviceAccess::Write);
    assert_eq!(write(&mut rig, BUS, HOST_BASE, 4096), DmaStatus::Complete);
    assert_eq!(read(&mut rig, BUS, HOST_BASE, 8), failed);
    assert_eq!(read(&mut rig, BUS + 4096, HOST_BASE, 4096), DmaStatus::Complete);
    assert_eq!(write(&mut rig, BUS + 4096, HOST_BASE, 8), failed);
    assert_eq!(write(&mut rig, BUS + 1, HOST_BASE, 4096), failed);
    assert_eq!(read(&mut rig, BUS + 4097, HOST_BASE, 4096), failed);
}

#[test]
fn neighbouring_mappings_make_one_range() {
    let mut rig = Rig::new(null_config());
    let first = HostBuffer::map(&rig.board, BUS, 4096, DeviceAccess::Read);
    let second = HostBuffer::map(&rig.board, BUS + 4096, 4096, DeviceAccess::ReadWrite);
    first.write(4000, &[1; 96]);
    second.write(0, &[2; 100]);
    assert_eq!(write(&mut rig, BUS + 4000, HOST_BASE, 196), DmaStatus::Complete);
    let mut bytes = [0; 196];
    rig.board.dram().read(HOST_BASE, &mut bytes).unwrap();
    assert_eq!((&bytes[..96], &bytes[96..]), (&[1; 96][..], &[2; 100][..]));
}

#[test]
fn taking_memory_away_faults_a_copy_without_harm() {
    let mut rig = Rig::new(null_config());
    for _ in 0..10 {
        let host = HostBuffer::map(&rig.board, BUS, 64 << 20, DeviceAccess::Read);
        let list: Vec<_> = (0..4)
            .map(|i| write_node(BUS + i * (16 << 20), HOST_BASE + i * (16 << 20), 16 * MIB))
            .collect();
        rig.send(0, &dma_write(1, &list));
        rig.board.host_memory().unmap(BusAddr::new(BUS)).unwrap();
        drop(host);
        let status = status(rig.next());
        assert!(matches!(status, DmaStatus::Complete | DmaStatus::ErrorAborted), "{status}");
    }
}

#[test]
fn a_barrier_waits_for_copies_of_its_own_queue() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 128 << 20, DeviceAccess::Read);
    rig.push(0, &dma_write(1, &[write_node(BUS, HOST_BASE, 64 * MIB)]));
    rig.push(0, &dma_write(2, &[write_node(BUS, HOST_BASE, 64 * MIB)]));
    rig.push(0, &echo_with_barrier(3));
    rig.push(0, &echo(4));
    rig.kick();
    let order: Vec<_> = (0..4).map(|_| rig.next().tag.as_u16()).collect();
    assert_eq!(order[2..], [3, 4], "{order:?}");
}

#[test]
fn without_a_barrier_small_commands_overtake_large_copies() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 128 << 20, DeviceAccess::Read);
    rig.push(0, &dma_write(1, &[write_node(BUS, HOST_BASE, 64 * MIB)]));
    rig.push(0, &echo(2));
    rig.kick();
    assert_eq!(rig.next().tag, Tag::new(2));
    assert_eq!(rig.next().tag, Tag::new(1));
}

#[test]
fn a_fifth_copy_waits_for_a_channel_and_blocks_its_queue() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 64 << 20, DeviceAccess::ReadWrite);
    for tag in 1..=5 {
        rig.push(0, &dma_write(tag, &[write_node(BUS, HOST_BASE, 16 * MIB)]));
    }
    rig.push(0, &echo(6));
    rig.kick();
    let order: Vec<_> = (0..6).map(|_| rig.next().tag.as_u16()).collect();
    let place = |tag| order.iter().position(|other| *other == tag).unwrap();
    // The echo had to wait until the fifth copy had a channel, so until one of the first four was
    // over.
    assert!((1..=4).any(|tag| place(tag) < place(6)), "{order:?}");
    // The other direction has channels of its own.
    for tag in 1..=4 {
        rig.push(0, &dma_write(tag, &[write_node(BUS, HOST_BASE, 16 * MIB)]));
    }
    rig.push(0, &dma_read(5, &[read_node(BUS, HOST_BASE, 8)]));
    rig.kick();
    assert_eq!(rig.next().tag, Tag::new(5));
    (0..4).for_each(|_| assert_eq!(status(rig.next()), DmaStatus::Complete));
}

#[test]
fn an_abort_stops_copies_of_its_queue_and_answers_what_waits() {
    let mut rig = Rig::new(null_config());
    let _host = HostBuffer::map(&rig.board, BUS, 512 << 20, DeviceAccess::Read);
    let long: Vec<_> = (0..8).map(|_| write_node(BUS, HOST_BASE, 128 * MIB)).collect();
    rig.send(1, &dma_write(0x100, &long[..1]));
    for tag in 1..=4 {
        rig.push(0, &dma_write(tag, &long[..7]));
        rig.kick();
    }
    rig.push(0, &echo_with_barrier(5));
    rig.push(0, &dma_read(6, &[read_node(BUS, HOST_BASE, 8)]));
    rig.kick();
    rig.send_high(0, &abort(7));
    let mut answers = std::collections::BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..8 {
        let answer = rig.next();
        let tag = answer.tag.as_u16();
        order.push(tag);
        answers.insert(tag, answer);
    }
    for tag in (1..=4).chain([6]) {
        assert_eq!(status(answers[&tag]), DmaStatus::HostAborted, "{order:?}");
    }
    assert!(matches!(
        answers[&5],
        Completion { body: Body::Echo { status: ops::EchoStatus::HostAborted, .. }, .. }
    ));
    assert!(matches!(
        answers[&7],
        Completion { body: Body::Abort { status: AbortStatus::Success, .. }, .. }
    ));
    // The other queue is untouched, and the abort is answered last of its own.
    assert_eq!(status(answers[&0x100]), DmaStatus::Complete);
    order.retain(|tag| *tag != 0x100);
    assert_eq!(order.last(), Some(&7));
    rig.assert_quiet();
}

#[test]
fn trace_buffers_are_fetched_by_flag() {
    let mut rig = Rig::new(null_config());
    let host = HostBuffer::map(&rig.board, BUS, 16 << 20, DeviceAccess::Write);
    let fetch = |rig: &mut Rig, flags, size| {
        // The device address is ignored in this mode, and so is everything after the first node.
        let nodes: [DmaReadNode; 2] = [read_node(BUS, 0, size), read_node(0, 0, 0)];
        let mut out = [0; 128];
        let len =
            Command::DmaReadList { nodes: &nodes }.encode(Tag::new(1), flags, &mut out).unwrap();
        rig.send(0, &out[..len]);
        status(rig.next())
    };
    let (mm, cm) = (CommandFlags::MMFW_TRACEBUF, CommandFlags::CMFW_TRACEBUF);
    let header = |at| TraceHeader::read_from_bytes(&host.read(at, 64)).unwrap();

    assert_eq!(fetch(&mut rig, mm, 0x10_0000), DmaStatus::Complete);
    let found = header(0);
    assert_eq!(found.magic_header.get(), MAGIC);
    let parts = (found.sub_buffer_size.get(), found.sub_buffer_count.get());
    assert_eq!((found.r#type.get(), found.data_size.get(), parts), (0, 64, (0x10_0000, 1)));
    assert_eq!(fetch(&mut rig, mm, 0x10_0001), DmaStatus::InvalidSize);

    assert_eq!(fetch(&mut rig, cm, 0x82_0000), DmaStatus::Complete);
    let found = header(0);
    let parts = (found.sub_buffer_size.get(), found.sub_buffer_count.get());
    assert_eq!((found.r#type.get(), found.data_size.get(), parts), (1, 64, (4096, 2080)));
    for part in [1, 1000, 2079] {
        assert_eq!(host.read(4096 * part, 4), [4, 0, 0, 0]);
    }
    assert_eq!(fetch(&mut rig, cm, 0x82_0001), DmaStatus::InvalidSize);

    assert_eq!(fetch(&mut rig, mm.with(cm), 0x92_0000), DmaStatus::Complete);
    assert_eq!((header(0).r#type.get(), header(0x10_0000).r#type.get()), (0, 1));
    assert_eq!(fetch(&mut rig, mm.with(cm), 0x92_0001), DmaStatus::InvalidSize);
}

#[test]
fn peer_lists_use_bus_addresses_too() {
    let mut rig = Rig::new(null_config());
    let peer = HostBuffer::map(&rig.board, BUS, 4096, DeviceAccess::ReadWrite);
    peer.write(0, &[9; 64]);
    let mut out = [0; 64];
    let node = P2pWriteNode {
        src_device_phy_addr: 0.into(),
        src_device_bus_addr: BUS.into(),
        dst_device_phy_addr: HOST_BASE.into(),
        size: 64.into(),
        peer_devnum: 1.into(),
        pad: 0.into(),
    };
    let len = Command::P2pDmaWriteList { nodes: &[node] }.encode(
        Tag::new(1),
        CommandFlags::EMPTY,
        &mut out,
    );
    rig.send(0, &out[..len.unwrap()]);
    assert!(matches!(rig.next().body, Body::P2pWrite { status: DmaStatus::Complete, .. }));
    let node = P2pReadNode {
        dst_device_phy_addr: 0.into(),
        dst_device_bus_addr: (BUS + 100).into(),
        src_device_phy_addr: HOST_BASE.into(),
        size: 64.into(),
        peer_devnum: 1.into(),
        pad: 0.into(),
    };
    let len = Command::P2pDmaReadList { nodes: &[node] }.encode(
        Tag::new(2),
        CommandFlags::EMPTY,
        &mut out,
    );
    rig.send(0, &out[..len.unwrap()]);
    assert!(matches!(rig.next().body, Body::P2pRead { status: DmaStatus::Complete, .. }));
    assert_eq!(peer.read(100, 64), [9; 64]);
}
