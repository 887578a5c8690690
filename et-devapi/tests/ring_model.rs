//! Rings against a `VecDeque<u8>`, with hostile neighbours, and between two threads.
//!
//! Spec: §5.2

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::cast_possible_truncation, reason = "patterns and sizes of small rings")]

use std::collections::VecDeque;

use et_devapi::msg::{CommandFlags, FramingError, Header, Tag, command_bytes, completion_bytes};
use et_devapi::ring::{CONTROL_BYTES, Consumer, Producer, Ring, RingError};
use et_hal::{BarOffset, Endpoint, ErrorKind, Mmio, Pop, Push};
use et_testkit::TestWindow;
use proptest::prelude::*;
use zerocopy::IntoBytes;

const AT: u64 = 64;
const HEAD: BarOffset = BarOffset::new(AT);
const TAIL: BarOffset = BarOffset::new(AT + 8);
const LENGTH: BarOffset = BarOffset::new(AT + 16);

/// A ring between two guard areas.
fn setup(length: u32, start: u32) -> (TestWindow, Ring) {
    let size = length + CONTROL_BYTES;
    let window = TestWindow::new(size as usize + 2 * AT as usize);
    window.write_bytes(BarOffset::new(0), &vec![0xa5; window.len_bytes() as usize]).unwrap();
    let ring = Ring::new::<()>(BarOffset::new(AT), size).unwrap();
    ring.format(&window).unwrap();
    window.store_release_u64(HEAD, start.into()).unwrap();
    window.store_release_u64(TAIL, start.into()).unwrap();
    (window, ring)
}

fn ends(window: &TestWindow, ring: Ring) -> (Producer, Consumer) {
    (Producer::attach(ring, window).unwrap(), Consumer::attach(ring, window).unwrap())
}

fn guards_are_whole(window: &TestWindow, length: u32) -> bool {
    let mut bytes = vec![0; window.len_bytes() as usize];
    window.read_bytes(BarOffset::new(0), &mut bytes).unwrap();
    let end = (AT as u32 + CONTROL_BYTES + length) as usize;
    bytes[..AT as usize].iter().chain(&bytes[end..]).all(|byte| *byte == 0xa5)
}

/// A command of `len` bytes whose payload counts up from `seed`.
fn command(len: usize, seed: u8) -> Vec<u8> {
    let size = u16::try_from(len).unwrap();
    let header = Header::new(size, Tag::new(seed.into()), 517, CommandFlags::EMPTY);
    let mut message = header.as_bytes().to_vec();
    message.extend((8..len).map(|index| (index as u8).wrapping_add(seed)));
    message
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop(u32),
    Peek(u32, usize),
    /// Both ends forget everything and take over from the control block.
    Reattach,
}

fn step(length: u32) -> impl Strategy<Value = Step> {
    let most = length + 2;
    prop_oneof![
        4 => (0..most as usize).prop_map(Step::Push),
        4 => (0..most).prop_map(Step::Pop),
        2 => (0..most, 0..most as usize).prop_map(|(skip, len)| Step::Peek(skip, len)),
        1 => Just(Step::Reattach),
    ]
}

fn sequences() -> impl Strategy<Value = (u32, u32, Vec<Step>)> {
    (9_u32..80).prop_flat_map(|length| {
        (Just(length), 0..length, prop::collection::vec(step(length), 0..120))
    })
}

proptest! {
    #[test]
    fn bytes_come_out_as_they_went_in((length, start, steps) in sequences()) {
        let (window, ring) = setup(length, start);
        let (mut producer, mut consumer) = ends(&window, ring);
        let mut model = VecDeque::new();
        let mut counter = 0_u8;
        for step in steps {
            let free = (length as usize - 1) - model.len();
            match step {
                Step::Push(len) => {
                    let data: Vec<_> = (0..len).map(|i| counter.wrapping_add(i as u8)).collect();
                    match producer.push(&window, &data) {
                        Err(RingError::TooLarge { len: reported, max }) => {
                            prop_assert_eq!((reported, max), (len, length - 1));
                            prop_assert!(len >= length as usize);
                        }
                        Ok(Push::Full) => prop_assert!(len > free && len < length as usize),
                        Ok(Push::Accepted) => {
                            prop_assert!(len <= free);
                            counter = counter.wrapping_add(len as u8);
                            model.extend(data);
                        }
                        Err(error) => return Err(TestCaseError::fail(format!("{error}"))),
                    }
                }
                Step::Pop(len) => {
                    let used = consumer.used(&window).unwrap();
                    prop_assert_eq!(used as usize, model.len());
                    if len <= used {
                        let mut data = vec![0; len as usize];
                        consumer.peek(&window, 0, &mut data).unwrap();
                        consumer.advance(&window, len).unwrap();
                        prop_assert_eq!(data, model.drain(..len as usize).collect::<Vec<_>>());
                    }
                }
                Step::Peek(skip, len) => {
                    let used = consumer.used(&window).unwrap() as usize;
                    let end = skip as usize + len;
                    if end <= used {
                        let mut data = vec![0; len];
                        consumer.peek(&window, skip, &mut data).unwrap();
                        let expected: Vec<_> = model.range(skip as usize..end).copied().collect();
                        prop_assert_eq!(data, expected);
                    }
                }
                Step::Reattach => (producer, consumer) = ends(&window, ring),
            }
            prop_assert_eq!(producer.free(&window).unwrap() as usize, length as usize - 1 - model.len());
            prop_assert!(guards_are_whole(&window, length));
        }
    }

    #[test]
    fn messages_come_out_whole_or_not_at_all(
        start in 0_u32..96,
        lens in prop::collection::vec(8_usize..48, 1..60),
    ) {
        let (window, ring) = setup(96, start);
        let (mut producer, mut consumer) = ends(&window, ring);
        let mut model = VecDeque::new();
        let mut out = [0; 96];
        for (index, len) in lens.into_iter().enumerate() {
            let message = command(len, index as u8);
            while producer.push(&window, &message).unwrap() == Push::Full {
                let expected: Vec<u8> = model.pop_front().expect("a full ring has messages");
                let popped = consumer.pop_message(&window, command_bytes, &mut out);
                prop_assert_eq!(popped, Ok(Pop::Message(expected.len())));
                prop_assert_eq!(&out[..expected.len()], &expected[..]);
            }
            model.push_back(message);
        }
        for expected in model {
            let popped = consumer.pop_message(&window, command_bytes, &mut out);
            prop_assert_eq!(popped, Ok(Pop::Message(expected.len())));
            prop_assert_eq!(&out[..expected.len()], &expected[..]);
        }
        prop_assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Empty));
    }

    #[test]
    fn an_index_outside_the_ring_is_reported_and_nothing_is_touched(
        length in 9_u32..80,
        index in prop_oneof![
            any::<u64>(), 9_u64..200, Just(u64::MAX), Just(1 << 32), Just((1 << 32) + 3),
        ],
    ) {
        prop_assume!(index >= u64::from(length));
        let (window, ring) = setup(length, 0);
        let (mut producer, mut consumer) = ends(&window, ring);
        let corrupt = RingError::CorruptIndex { index, length };
        window.store_release_u64(TAIL, index).unwrap();
        prop_assert_eq!(producer.free(&window), Err(corrupt));
        prop_assert_eq!(Producer::attach(ring, &window), Err(corrupt));
        prop_assert_eq!(Consumer::attach(ring, &window), Err(corrupt));
        window.store_release_u64(TAIL, 0).unwrap();
        window.store_release_u64(HEAD, index).unwrap();
        prop_assert_eq!(consumer.used(&window), Err(corrupt));
        let popped = consumer.pop_message(&window, command_bytes, &mut [0; 80]);
        prop_assert_eq!(popped, Err(corrupt));
        prop_assert_eq!(window.load_acquire_u64(TAIL), Ok(0));
        prop_assert!(guards_are_whole(&window, length));
    }

    #[test]
    fn whatever_the_device_wrote_nothing_panics(
        length in 9_u32..80,
        head in any::<u64>(),
        tail in any::<u64>(),
        narrow in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 80),
        management in any::<bool>(),
    ) {
        let (window, ring) = setup(length, 0);
        let bound = |index| if narrow { index % u64::from(length) } else { index };
        let (mut producer, mut consumer) = ends(&window, ring);
        window.store_release_u64(HEAD, bound(head)).unwrap();
        window.store_release_u64(TAIL, bound(tail)).unwrap();
        window.write_bytes(BarOffset::new(AT + 32), &bytes[..length as usize]).unwrap();
        let endpoint = if management { Endpoint::Management } else { Endpoint::Operations };
        let frame = |header: &Header| completion_bytes(endpoint, header);
        for _ in 0..4 {
            let before = window.load_acquire_u64(TAIL).unwrap();
            let popped = consumer.pop_message(&window, frame, &mut [0; 64]);
            if !matches!(popped, Ok(Pop::Message(_))) {
                prop_assert_eq!(window.load_acquire_u64(TAIL), Ok(before));
            }
            let _ = producer.push(&window, &bytes[..16]);
        }
        prop_assert!(guards_are_whole(&window, length));
    }
}

#[test]
fn the_place_of_a_ring_is_checked() {
    let new = |at, size| Ring::new::<ErrorKind>(BarOffset::new(at), size).is_ok();
    assert!(new(0, 0x40) && new(0x980, 0x40));
    assert!(!new(0, 0) && !new(0, 31) && !new(0, 32) && !new(0, 33));
    assert!(!new(4, 0x40));
    assert!(!new(u64::MAX - 7, 0x40));
    let ring = Ring::new::<()>(BarOffset::new(0), 0x440).unwrap();
    assert_eq!((ring.length(), ring.max_message()), (1056, 1055));
}

#[test]
fn the_length_must_be_that_of_the_registers() {
    let (window, ring) = setup(32, 0);
    for found in [0, 31, 33, u64::MAX, (1 << 32) + 32] {
        window.store_release_u64(LENGTH, found).unwrap();
        let mismatch = RingError::LengthMismatch { found, expected: 32 };
        assert_eq!(Producer::attach(ring, &window), Err(mismatch));
        assert_eq!(Consumer::attach(ring, &window), Err(mismatch));
    }
}

#[test]
fn full_ring_rejects_without_writing() {
    let (window, ring) = setup(32, 0);
    let (mut producer, _) = ends(&window, ring);
    assert_eq!(producer.push(&window, &[1; 16]), Ok(Push::Accepted));
    let mut before = [0; 64];
    window.read_bytes(BarOffset::new(AT), &mut before).unwrap();
    assert_eq!(producer.push(&window, &[2; 16]), Ok(Push::Full));
    let mut after = [0; 64];
    window.read_bytes(BarOffset::new(AT), &mut after).unwrap();
    assert_eq!(before, after);
}

#[test]
fn a_message_takes_the_last_byte_that_was_given_back() {
    let (window, ring) = setup(32, 20);
    let (mut producer, mut consumer) = ends(&window, ring);
    let largest = ring.max_message();
    for seed in 0..3 {
        let message = command(largest as usize, seed);
        assert_eq!(producer.push(&window, &message), Ok(Push::Accepted));
        assert_eq!(producer.push(&window, &[1]), Ok(Push::Full));
        let mut out = [0; 32];
        let popped = consumer.pop_message(&window, command_bytes, &mut out);
        assert_eq!(popped, Ok(Pop::Message(message.len())));
        assert_eq!(out[..message.len()], message);
    }
}

#[test]
fn a_partial_message_leaves_the_tail_alone() {
    let (window, ring) = setup(64, 60);
    let (_, mut consumer) = ends(&window, ring);
    let message = command(24, 7);
    let mut out = [0; 64];
    for (index, byte) in message.iter().enumerate() {
        assert_eq!(
            consumer.pop_message(&window, command_bytes, &mut out),
            Ok(Pop::Empty),
            "{index}"
        );
        assert_eq!(window.load_acquire_u64(TAIL), Ok(60));
        let at = (60 + index as u64) % 64;
        window.write_bytes(BarOffset::new(AT + 32 + at), &[*byte]).unwrap();
        window.store_release_u64(HEAD, (at + 1) % 64).unwrap();
    }
    assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(24)));
    assert_eq!(out[..24], message);
    assert_eq!(window.load_acquire_u64(TAIL), Ok(20));
}

#[test]
fn a_size_that_cannot_be_right_is_reported() {
    for size in [0, 1, 7, u16::MAX] {
        let (window, ring) = setup(64, 0);
        let (mut producer, mut consumer) = ends(&window, ring);
        let header = Header::new(size, Tag::new(1), 517, CommandFlags::EMPTY);
        assert_eq!(producer.push(&window, header.as_bytes()), Ok(Push::Accepted));
        let popped = consumer.pop_message(&window, command_bytes, &mut [0; 64]);
        let expected = match size {
            u16::MAX => RingError::Oversized { len: 65_535, max: 63 },
            size => RingError::Framing(FramingError { size, msg_id: 517 }),
        };
        assert_eq!(popped, Err(expected), "{size}");
        assert_eq!(window.load_acquire_u64(TAIL), Ok(0));
    }
}

#[test]
fn a_message_that_does_not_fit_the_buffer_stays() {
    let (window, ring) = setup(64, 50);
    let (mut producer, mut consumer) = ends(&window, ring);
    let message = command(32, 3);
    assert_eq!(producer.push(&window, &message), Ok(Push::Accepted));
    let popped = consumer.pop_message(&window, command_bytes, &mut [0; 31]);
    assert_eq!(popped, Err(RingError::BufferTooSmall { len: 32, buffer: 31 }));
    let mut out = [0; 32];
    assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(32)));
    assert_eq!(out[..], message);
}

#[test]
fn the_peers_index_is_loaded_only_when_the_known_one_does_not_suffice() {
    let (window, ring) = setup(256, 0);
    let (mut producer, mut consumer) = ends(&window, ring);
    let message = command(40, 1);
    let before = window.index_loads();
    for _ in 0..6 {
        assert_eq!(producer.push(&window, &message), Ok(Push::Accepted));
    }
    assert_eq!(window.index_loads(), before, "six messages fit, so the tail is of no interest");
    let mut out = [0; 64];
    for _ in 0..6 {
        assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(40)));
    }
    assert_eq!(window.index_loads(), before + 1, "one load of the head shows all six");
}

#[test]
fn each_byte_of_a_message_is_read_once() {
    let (window, ring) = setup(64, 40);
    let (mut producer, mut consumer) = ends(&window, ring);
    let mut out = [0; 64];
    for len in [8, 16, 40] {
        assert_eq!(producer.push(&window, &command(len, 1)), Ok(Push::Accepted));
        let before = window.bytes_read();
        assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(len)));
        assert_eq!(window.bytes_read() - before, len);
    }
}

#[test]
fn what_is_known_of_suffices_to_the_last_byte() {
    let (window, ring) = setup(33, 0);
    let (mut producer, mut consumer) = ends(&window, ring);
    let before = window.index_loads();
    // Each is a header and nothing else.
    let messages = [0, 1, 2, 3].map(|seed| command(8, seed));
    for message in &messages {
        assert_eq!(producer.push(&window, message), Ok(Push::Accepted));
    }
    assert_eq!(window.index_loads(), before, "four messages fill the ring");
    let mut out = [0; 8];
    for message in &messages {
        assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(8)));
        assert_eq!(out[..], *message);
    }
    assert_eq!(window.index_loads(), before + 1, "one load of the head shows all four");
}

/// The index as the producer would see it.
fn tail(window: &TestWindow) -> u64 {
    window.load_acquire_u64(TAIL).unwrap()
}

#[test]
fn room_is_given_back_when_no_more_is_known_of() {
    let (window, ring) = setup(1000, 990);
    let (mut producer, mut consumer) = ends(&window, ring);
    for seed in 0..4 {
        assert_eq!(producer.push(&window, &command(40, seed)), Ok(Push::Accepted));
    }
    let mut out = [0; 64];
    let mut pop = || consumer.pop_message(&window, command_bytes, &mut out);
    for _ in 0..3 {
        assert_eq!(pop(), Ok(Pop::Message(40)));
        assert_eq!(tail(&window), 990);
    }
    assert_eq!(pop(), Ok(Pop::Message(40)));
    assert_eq!(tail(&window), 150, "all four at once, over the end of the ring");
    assert_eq!(pop(), Ok(Pop::Empty));
    assert_eq!(Consumer::attach(ring, &window).unwrap().indices().0, 150);
}

#[test]
fn room_is_given_back_after_a_quarter_of_the_ring_and_before_a_message_in_parts() {
    let (window, ring) = setup(200, 0);
    let (mut producer, mut consumer) = ends(&window, ring);
    for seed in 0..4 {
        assert_eq!(producer.push(&window, &command(24, seed)), Ok(Push::Accepted));
    }
    assert_eq!(producer.push(&window, &command(24, 4)[..8]), Ok(Push::Accepted));
    let mut out = [0; 64];
    let mut pops = [0; 5].map(|_| {
        let popped = consumer.pop_message(&window, command_bytes, &mut out).unwrap();
        (popped, tail(&window))
    });
    let last = pops[4];
    assert_eq!(last, (Pop::Empty, 96), "what comes next is not there yet");
    pops[4] = (Pop::Message(24), 0);
    let tails = pops.map(|(popped, tail)| {
        assert_eq!(popped, Pop::Message(24));
        tail
    });
    assert_eq!(tails[..4], [0, 0, 72, 72], "50 bytes are a quarter");
}

#[test]
fn a_failing_window_changes_no_state() {
    let (window, ring) = setup(64, 0);
    let (mut producer, mut consumer) = ends(&window, ring);
    window.lose();
    let stale = RingError::Access(ErrorKind::Stale);
    assert_eq!(producer.push(&window, &[1; 8]), Err(stale));
    assert_eq!(consumer.pop_message(&window, command_bytes, &mut [0; 64]), Err(stale));
    assert_eq!(consumer.advance(&window, 0), Err(stale));
    window.restore();
    let message = command(16, 9);
    assert_eq!(producer.push(&window, &message), Ok(Push::Accepted));
    let mut out = [0; 16];
    assert_eq!(consumer.pop_message(&window, command_bytes, &mut out), Ok(Pop::Message(16)));
    assert_eq!(out[..], message);
}

#[test]
fn two_threads_pass_messages_in_order() {
    const COUNT: usize = 20_000;
    let (window, ring) = setup(200, 0);
    let (mut producer, mut consumer) = ends(&window, ring);
    let len = |index: usize| 8 + index * 7 % 60;
    std::thread::scope(|scope| {
        let window = &window;
        scope.spawn(move || {
            for index in 0..COUNT {
                let message = command(len(index), index as u8);
                while producer.push(window, &message).unwrap() == Push::Full {
                    std::thread::yield_now();
                }
            }
        });
        let mut out = [0; 128];
        for index in 0..COUNT {
            let popped = loop {
                match consumer.pop_message(window, command_bytes, &mut out).unwrap() {
                    Pop::Message(len) => break len,
                    Pop::Empty => std::thread::yield_now(),
                }
            };
            assert_eq!(out[..popped], command(len(index), index as u8), "message {index}");
        }
    });
}
