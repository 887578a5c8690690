//! Copies that devices are not documented to make.

#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use crate::common::LONG;
use et::{Config, Device};

#[test]
fn copies_start_and_end_anywhere_if_that_is_asked_for() {
    let device = et::open_with(
        "sim:shires=1,dram=1GiB".parse().unwrap(),
        et::Config::new().byte_copies(true),
    )
    .unwrap();
    assert_eq!(device.properties().dma_align_bytes, 1);
    let stream = device.default_stream();
    let buffer = device.alloc(200_000).unwrap();
    let mut expected = vec![7_u8; 200_000];
    stream.fill(&buffer, 7).unwrap().wait(LONG).unwrap();
    let source: Vec<u8> = (0..=250).cycle().take(150_000).collect();
    for (at, len) in [(1_usize, 1_usize), (13, 5), (77, 131_072), (49_999, 150_000), (199_999, 1)] {
        let part = buffer.slice(at as u64..(at + len) as u64).unwrap();
        stream.copy_to_device(&source[..len], &part).unwrap().wait(LONG).unwrap();
        expected[at..at + len].copy_from_slice(&source[..len]);
        let mut back = vec![0; len];
        stream.read(&part, &mut back, LONG).unwrap();
        assert_eq!(back, source[..len]);
    }
    let (from, to) = (buffer.slice(3..1004).unwrap(), buffer.slice(2001..3002).unwrap());
    stream.copy_on_device(&from, &to).unwrap().wait(LONG).unwrap();
    expected.copy_within(3..1004, 2001);
    stream.fill(buffer.slice(5..8).unwrap(), 9).unwrap().wait(LONG).unwrap();
    expected[5..8].fill(9);
    let mut all = vec![0; expected.len()];
    stream.read(&buffer, &mut all, LONG).unwrap();
    assert_eq!(all, expected);
}

#[test]
fn the_way_between_two_devices_is_that_of_the_pair() {
    use et::{NoPeer, PeerPath};
    let [one, other] = [(); 2].map(|()| et::open("sim:shires=1,dram=1GiB").unwrap());
    assert_eq!(one.peer_path(&one), PeerPath::SameDevice);
    assert_eq!(one.properties().sharing, et::hal::Sharing::OneEach);
    // The registers of both would let the other in.
    assert!(one.properties().peer_to_peer && other.properties().peer_to_peer);
    assert_eq!(one.peer_path(&other), PeerPath::Host(NoPeer::NotMapped));
    assert_eq!(other.peer_path(&one), PeerPath::Host(NoPeer::NotMapped));
}

/// Bytes of a copy that one number of 32 bits does not hold.
const LARGE: u64 = (4 << 30) + 0x5_4328;

fn large() -> Option<Device> {
    if std::env::var_os("ET_LARGE_MEMORY").is_none() {
        eprintln!("skipped, because ET_LARGE_MEMORY does not ask for tests that use 14 GiB");
        return None;
    }
    let config = Config::new().command_timeout(LONG);
    Some(et::open_with("sim:shires=4,dram=16GiB".parse().unwrap(), config).unwrap())
}

/// Words that differ, at both ends and around the places where a number of 31 or 32 bits ends.
fn marks() -> impl Iterator<Item = (u64, u64)> {
    let places = [0, (1 << 31) - 8, 1 << 31, (1 << 32) - 8, 1 << 32, LARGE - 8];
    places.into_iter().zip(0x1122_3344_5566_7701..)
}

fn mark(device: &Device, buffer: &et::DeviceBuffer) {
    for (at, word) in marks() {
        let part = buffer.slice(at..at + 8).unwrap();
        device.default_stream().copy_to_device(&[word], part).unwrap().wait(LONG).unwrap();
    }
}

#[track_caller]
fn check(device: &Device, buffer: &et::DeviceBuffer) {
    for (at, word) in marks() {
        let mut found = [0_u64; 2];
        // A mark, and what is beside it.
        let start = at.min(LARGE - 16);
        let part = buffer.slice(start..start + 16).unwrap();
        device.default_stream().read(part, &mut found, LONG).unwrap();
        assert_eq!(found[usize::from(start != at)], word, "{at:#x}");
    }
}

/// Truncated lengths would leave the upper marks out.
#[test]
fn the_device_copies_more_than_4_gib() {
    let Some(device) = large() else { return };
    let stream = device.default_stream();
    let (from, to) = (device.alloc(LARGE).unwrap(), device.alloc(LARGE).unwrap());
    mark(&device, &from);
    stream.copy_on_device(&from, &to).unwrap().wait(LONG).unwrap();
    check(&device, &to);
    for (at, _) in marks() {
        stream.fill(to.slice(at..at + 8).unwrap(), 0).unwrap().wait(LONG).unwrap();
    }
    let launch = device.builtins().unwrap().copy(&from, &to).unwrap();
    stream.launch(&launch).unwrap().wait(LONG).unwrap();
    check(&device, &to);
}

#[test]
fn host_memory_of_more_than_4_gib_goes_there_and_back() {
    let Some(device) = large() else { return };
    let stream = device.default_stream();
    let there = device.alloc(LARGE).unwrap();
    let mut host = device.host_buffer(usize::try_from(LARGE).unwrap()).unwrap();
    for (at, word) in marks() {
        host.copy_in(usize::try_from(at).unwrap(), &[word]).unwrap();
    }
    let mut host = stream.upload(host, &there).unwrap().wait(LONG).unwrap();
    check(&device, &there);
    for (at, _) in marks() {
        host.copy_in(usize::try_from(at).unwrap(), &[0_u64]).unwrap();
    }
    let host = stream.download(&there, host).unwrap().wait(LONG).unwrap();
    let mut bytes = vec![0_u8; usize::try_from(LARGE).unwrap()];
    stream.read(&there, &mut bytes, LONG).unwrap();
    for (at, word) in marks() {
        let mut found = [0_u64];
        let at = usize::try_from(at).unwrap();
        host.copy_out(at, &mut found).unwrap();
        assert_eq!(found[0], word, "{at:#x}");
        assert_eq!(bytes[at..at + 8], word.to_le_bytes(), "{at:#x}");
    }
}
