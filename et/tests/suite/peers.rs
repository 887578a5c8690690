//! Copies from one device to another.

#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, load, open, open_with};
use et::{AnyHal, Config, Device, Error, Launch};

const BOARD: &str = "shires=1,dram=256MiB";

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 37 + i / 4096) % 251).unwrap()).collect()
}

fn read(device: &Device<AnyHal>, buffer: &et::DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(buffer.len_bytes()).unwrap()];
    device.default_stream().read(buffer, &mut bytes, LONG).unwrap();
    bytes
}

#[test]
fn copies_of_all_sizes_arrive_on_the_other_device() {
    for staging in [32 << 20, 1] {
        let config = || Config::new().staging_bytes(staging);
        let (a, b) = (open_with(BOARD, config()), open_with(BOARD, config()));
        let (from, to) = (a.default_stream(), b.default_stream());
        for len in [1, 64, 4097, 262_144, 262_145, 3_000_001] {
            let source = a.alloc(len as u64).unwrap();
            let target = b.alloc(len as u64 + 64).unwrap();
            let data = pattern(len);
            let _ = from.copy_to_device(&data, &source).unwrap();
            let _ = to.fill(&target, 0xee).unwrap();
            let part = target.slice(64..).unwrap();
            from.copy_to_peer(&source, to, &part).unwrap().wait(LONG).unwrap();
            let there = read(&b, &target);
            assert!(there[64..] == data, "{len} bytes with {staging} of staging");
            assert_eq!(there[..64], [0xee; 64], "before {len} bytes");
            assert!(read(&a, &source) == data, "the source of {len} bytes");
        }
        assert!(from.take_errors().is_empty() && to.take_errors().is_empty());
    }
}

/// Nothing is waited for but the end.
#[test]
fn a_copy_has_its_place_in_both_streams() {
    const LEN: usize = 3 << 20;
    let (a, b) = (open(BOARD), open(BOARD));
    let (from, to) = (a.stream(), b.stream());
    let source = a.alloc(LEN as u64).unwrap();
    let [target, copy] = [(); 2].map(|()| b.alloc(LEN as u64).unwrap());
    for round in 0..4 {
        let byte = 0x10 + round;
        let _ = from.fill(&source, byte).unwrap();
        let _ = to.fill(&target, 0xbb).unwrap();
        let event = from.copy_to_peer(&source, &to, &target).unwrap();
        let _ = from.fill(&source, 0xaa).unwrap();
        let end = to.copy_on_device(&target, &copy).unwrap();
        let _ = to.fill(&target, 0xcc).unwrap();
        end.wait(LONG).unwrap();
        assert!(event.is_done(), "what follows it has ended");
        assert!(read(&b, &copy) == vec![byte; LEN], "round {round}");
    }
    from.synchronize(LONG).unwrap();
    assert!(read(&a, &source) == vec![0xaa; LEN]);
    // Of nothing, too.
    let nothing = from.copy_to_peer(source.slice(0..0).unwrap(), &to, target.slice(0..0).unwrap());
    nothing.unwrap().wait(LONG).unwrap();
    // Within a device, in two streams and in one.
    let other = a.stream();
    let half = |n: u64| source.slice(n * 4096..(n + 1) * 4096).unwrap();
    for stream in [&other, &from] {
        let _ = from.fill(half(0), 0x31).unwrap();
        let event = from.copy_to_peer(half(0), stream, half(1)).unwrap();
        let _ = from.fill(half(0), 0x32).unwrap();
        event.wait(LONG).unwrap();
        from.synchronize(LONG).unwrap();
        assert_eq!(read(&a, &source)[..8192], [[0x32; 4096], [0x31; 4096]].concat());
        let overlap = from.copy_to_peer(half(0), stream, half(0));
        assert!(matches!(overlap, Err(Error::Overlap { .. })), "{overlap:?}");
    }
}

/// With next to no staging memory, so that each wants what another has.
#[test]
fn copies_in_a_circle_do_not_wait_for_each_other() {
    const LEN: usize = 1 << 20;
    let devices: Vec<_> =
        (0..3).map(|_| Arc::new(open_with(BOARD, Config::new().staging_bytes(1)))).collect();
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let (a, b) = (number % 3, (number + 1 + number / 3) % 3);
            let (a, b) = (Arc::clone(&devices[a]), Arc::clone(&devices[b]));
            std::thread::spawn(move || {
                let data = vec![u8::try_from(number).unwrap(); LEN];
                let source = a.alloc(LEN as u64).unwrap();
                let target = b.alloc(LEN as u64).unwrap();
                a.default_stream().copy_to_device(&data, &source).unwrap().wait(LONG).unwrap();
                for _ in 0..5 {
                    let copy =
                        a.default_stream().copy_to_peer(&source, b.default_stream(), &target);
                    let _ = copy.unwrap();
                }
                assert!(read(&b, &target) == data, "copy {number}");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A kernel that never ends holds the source up; what is to be written goes on without it.
#[test]
fn an_aborted_copy_frees_both_streams() {
    let (a, b) = (open(BOARD), open(BOARD));
    let hang = load(&a, "hang");
    let (source, target) = (a.alloc(2 << 20).unwrap(), b.alloc(2 << 20).unwrap());
    for end in ["target", "source"] {
        let (from, to) = (a.stream(), b.stream());
        let kernel = from.launch(&Launch::new(&hang)).unwrap();
        let copy = from.copy_to_peer(&source, &to, &target).unwrap();
        let behind = to.fill(&target, 0x77).unwrap();
        let soon = copy.wait(Duration::from_millis(5));
        assert!(matches!(soon, Err(Error::Timeout { .. })), "{soon:?}");
        if end == "target" {
            to.abort(LONG).unwrap();
            let error = copy.wait(LONG).unwrap_err();
            assert!(matches!(error, Error::Aborted { .. }), "{error}");
            assert!(behind.wait(LONG).is_err(), "it was in the stream, too");
        }
        from.abort(LONG).unwrap();
        assert!(kernel.wait(LONG).is_err());
        if end == "source" {
            let error = copy.wait(LONG).unwrap_err();
            let Error::Source { source } = &error else { panic!("{error}") };
            assert!(matches!(**source, Error::Aborted { .. }), "{source}");
            behind.wait(LONG).unwrap();
            assert!(read(&b, &target) == vec![0x77; 2 << 20]);
        }
        // Both streams work on.
        let again = from.copy_to_peer(&source, &to, &target).unwrap();
        again.wait(LONG).unwrap();
        from.synchronize(LONG).unwrap();
    }
}

#[test]
fn a_device_that_goes_away_fails_the_copy_and_says_which_it_was() {
    let config = || Config::new().shutdown_timeout(Duration::from_millis(20));
    for end in ["source", "target"] {
        let (a, b) = (open_with(BOARD, config()), open_with(BOARD, config()));
        let hang = load(&a, "hang");
        let (source, target) = (a.alloc(2 << 20).unwrap(), b.alloc(2 << 20).unwrap());
        let (from, to) = (a.stream(), b.stream());
        let _kernel = from.launch(&Launch::new(&hang)).unwrap();
        let copy = from.copy_to_peer(&source, &to, &target).unwrap();
        if end == "source" {
            a.close();
            let error = copy.wait(LONG).unwrap_err();
            assert!(matches!(error, Error::Source { .. }), "{error}");
            to.fill(&target, 1).unwrap().wait(LONG).unwrap();
            let error = from.copy_to_peer(&source, &to, &target).unwrap_err();
            assert!(matches!(error, Error::Source { .. }), "{error}");
        } else {
            b.close();
            let error = copy.wait(LONG).unwrap_err();
            assert!(!matches!(error, Error::Source { .. } | Error::Timeout { .. }), "{error}");
            from.abort(LONG).unwrap();
            from.fill(&source, 1).unwrap().wait(LONG).unwrap();
        }
    }
}

#[test]
fn mistakes_are_refused_and_reserve_nothing() {
    let (a, b) = (open(BOARD), open(BOARD));
    let (from, to) = (a.default_stream(), b.default_stream());
    let (source, target) = (a.alloc(4096).unwrap(), b.alloc(8192).unwrap());
    let outcome = from.copy_to_peer(&source, to, &target);
    assert!(matches!(outcome, Err(Error::LengthMismatch { from: 4096, to: 8192 })), "{outcome:?}");
    for outcome in [
        from.copy_to_peer(&source, to, &source),
        from.copy_to_peer(target.slice(0..4096).unwrap(), to, target.slice(0..4096).unwrap()),
    ] {
        assert!(matches!(outcome, Err(Error::ForeignBuffer)), "{outcome:?}");
    }
    let outcome = from.copy_to_peer(source.slice(1..9).unwrap(), to, target.slice(0..8).unwrap());
    assert!(matches!(outcome, Err(Error::Misaligned { .. })), "{outcome:?}");
    assert!(from.is_idle() && to.is_idle());
}
