//! The ring: what the consumer sees is what the producer wrote, in order and whole.
#![cfg(loom)]

use et_devapi::ring::{Consumer, Producer, Ring, RingError};
use et_hal::ErrorKind;
use et_hal::{BarOffset, Push};
use et_loom::{LoomWindow, check};
use loom::sync::Arc;
use loom::thread;

/// Small messages keep the model small; three of them wrap around in seven bytes.
const MESSAGES: [[u8; 3]; 3] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];

#[test]
fn messages_arrive_whole_and_in_order() {
    check("ring", Some(3), || {
        let window = Arc::new(LoomWindow::new(7));
        let ring = Ring::new::<()>(BarOffset::new(0), 39).unwrap();
        ring.format(&*window).unwrap();
        let mut consumer = Consumer::attach(ring, &*window).unwrap();
        let producer = {
            let window = Arc::clone(&window);
            let mut producer = Producer::attach(ring, &*window).unwrap();
            thread::spawn(move || {
                for message in MESSAGES {
                    while producer.push(&*window, &message).unwrap() == Push::Full {
                        thread::yield_now();
                    }
                }
            })
        };
        for expected in MESSAGES {
            while consumer.used(&*window).unwrap() < 3 {
                thread::yield_now();
            }
            let mut message = [0; 3];
            consumer.peek(&*window, 0, &mut message).unwrap();
            assert_eq!(message, expected);
            consumer.advance(&*window, 3).unwrap();
        }
        assert_eq!(consumer.used(&*window).unwrap(), 0);
        producer.join().unwrap();
    });
}

/// The length is the first byte; a message may come in pieces of which the header is the first.
#[test]
fn popped_messages_are_whole() {
    check("pop-message", Some(3), || {
        let window = Arc::new(LoomWindow::new(23));
        let ring = Ring::new::<()>(BarOffset::new(0), 55).unwrap();
        ring.format(&*window).unwrap();
        let mut consumer = Consumer::attach(ring, &*window).unwrap();
        let producer = {
            let window = Arc::clone(&window);
            let mut producer = Producer::attach(ring, &*window).unwrap();
            thread::spawn(move || {
                for number in 1..=2u8 {
                    // Header of 8 bytes, and two behind it. Spec: §6
                    let message = [2, 0, number, 0, 0, 0, 0, 0, number, number];
                    while producer.push(&*window, &message).unwrap() == Push::Full {
                        thread::yield_now();
                    }
                }
            })
        };
        for number in 1..=2u8 {
            let mut into = [0; 16];
            let len = loop {
                let frame =
                    |header: &et_devapi::msg::Header| Ok(usize::from(header.size.get()) + 8);
                let popped: Result<_, RingError<ErrorKind>> =
                    consumer.pop_message(&*window, frame, &mut into);
                match popped.unwrap() {
                    et_hal::Pop::Message(len) => break len,
                    et_hal::Pop::Empty => thread::yield_now(),
                }
            };
            assert_eq!(into[..len], [2, 0, number, 0, 0, 0, 0, 0, number, number]);
        }
        producer.join().unwrap();
    });
}
