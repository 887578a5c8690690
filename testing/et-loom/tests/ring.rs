//! The ring: what the consumer sees is what the producer wrote, in order and whole.
#![cfg(loom)]

use et_devapi::ring::{Consumer, Producer, Ring};
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
