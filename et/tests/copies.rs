//! Copies that devices are not documented to make.

#![cfg(feature = "sim")]

mod common;

use common::LONG;

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
