//! Rings: every step of every case.

use et_devapi::ring::{CONTROL_BYTES, Consumer, Producer, Ring, RingError};
use et_hal::{BarOffset, Mmio, Push};
use et_testkit::TestWindow;
use et_testkit::golden::{File, array, hex, int, json, object, text};
use serde_json::Value as Json;

#[test]
fn the_control_block_is_the_vendors() {
    let json = json(File::Ring);
    let block = &json["control_block"];
    assert_eq!(int(block, "size"), u64::from(CONTROL_BYTES));
    assert_eq!(int(block, "data_offset"), u64::from(CONTROL_BYTES));
    let window = TestWindow::new(64);
    let ring = Ring::new::<()>(BarOffset::new(0), 64).unwrap();
    window.write_bytes(BarOffset::new(0), &[0xff; 64]).unwrap();
    ring.format(&window).unwrap();
    for field in array(&block["fields"]) {
        let at = BarOffset::new(int(field, "offset"));
        assert_eq!(int(field, "size"), 8);
        let found = window.load_acquire_u64(at).unwrap();
        match text(field, "name") {
            "head_offset" | "tail_offset" => assert_eq!(found, 0),
            "length" => assert_eq!(found, 32),
            "pad" => {}
            other => panic!("{other} has no place"),
        }
    }
}

#[test]
fn every_case_gives_the_vendors_bytes() {
    let json = json(File::Ring);
    let statuses = object(&json["device_status"]);
    assert_eq!(statuses.len(), 8);
    let mut steps = 0;
    for case in array(&json["cases"]) {
        steps += Case::new(case).run();
    }
    assert_eq!(array(&json["cases"]).len(), 10);
    assert_eq!(steps, 43);
}

/// What the vendor's code answers to an operation.
mod status {
    pub(super) const SUCCESS: i64 = 0;
    pub(super) const BAD_LENGTH: i64 = -1;
    pub(super) const FULL: i64 = -4;
    pub(super) const EMPTY: i64 = -5;
}

struct Case<'j> {
    json: &'j Json,
    window: TestWindow,
    producer: Producer,
    consumer: Consumer,
    length: usize,
}

impl<'j> Case<'j> {
    fn new(json: &'j Json) -> Self {
        let length = usize::try_from(int(json, "length")).unwrap();
        let size = u32::try_from(length).unwrap() + CONTROL_BYTES;
        let window = TestWindow::new(size as usize);
        let ring = Ring::new::<()>(BarOffset::new(0), size).unwrap();
        ring.format(&window).unwrap();
        let initial = &json["initial"];
        window.store_release_u64(BarOffset::new(0), int(initial, "head")).unwrap();
        window.store_release_u64(BarOffset::new(8), int(initial, "tail")).unwrap();
        let fill = hex(text(initial, "fill"));
        window.write_bytes(BarOffset::new(32), &vec![fill[0]; length]).unwrap();
        // Each end continues where the control block says.
        let producer = Producer::attach(ring, &window).unwrap();
        let consumer = Consumer::attach(ring, &window).unwrap();
        Self { json, window, producer, consumer, length }
    }

    fn run(mut self) -> usize {
        let steps = array(&self.json["steps"]);
        for (index, step) in steps.iter().enumerate() {
            let what = format!("{} step {index}", text(self.json, "name"));
            let status = match text(step, "op") {
                "push" => self.push(step),
                "pop" => self.pop(step, &what),
                "peek" => self.peek(step, &what),
                other => panic!("{what}: operation {other}"),
            };
            assert_eq!(Some(status), step["device_status"].as_i64(), "{what}");
            assert_eq!(Some(status == status::SUCCESS), step["ok"].as_bool(), "{what}");
            self.check(step, &what);
        }
        steps.len()
    }

    fn push(&mut self, step: &Json) -> i64 {
        let data = hex(text(step, "data"));
        assert_eq!(data.len() as u64, int(step, "len"));
        match self.producer.push(&self.window, &data) {
            Ok(Push::Accepted) => status::SUCCESS,
            // The vendor's code does not tell "never" from "not now".
            Ok(Push::Full) | Err(RingError::TooLarge { .. }) => status::FULL,
            Err(error) => panic!("{error}"),
        }
    }

    fn peek(&mut self, step: &Json, what: &str) -> i64 {
        let len = usize::try_from(int(step, "len")).unwrap();
        let used = self.consumer.used(&self.window).unwrap() as usize;
        match used {
            0 => return status::EMPTY,
            used if used < len => return status::BAD_LENGTH,
            _ => {}
        }
        let mut data = vec![0; len];
        self.consumer.peek(&self.window, 0, &mut data).unwrap();
        assert_eq!(data, hex(text(step, "data")), "{what}");
        // In two parts it must be the same: a message is read after its header.
        for split in 0..=len {
            let mut parts = vec![0; len];
            let (first, second) = parts.split_at_mut(split);
            self.consumer.peek(&self.window, 0, first).unwrap();
            self.consumer.peek(&self.window, u32::try_from(split).unwrap(), second).unwrap();
            assert_eq!(parts, data, "{what} split at {split}");
        }
        status::SUCCESS
    }

    fn pop(&mut self, step: &Json, what: &str) -> i64 {
        let status = self.peek(step, what);
        if status == status::SUCCESS {
            self.consumer.advance(&self.window, u32::try_from(int(step, "len")).unwrap()).unwrap();
        }
        status
    }

    fn check(&mut self, step: &Json, what: &str) {
        let mut control = [0; CONTROL_BYTES as usize];
        self.window.read_bytes(BarOffset::new(0), &mut control).unwrap();
        assert_eq!(control.to_vec(), hex(text(step, "control_block")), "{what}");
        let mut buffer = vec![0; self.length];
        self.window.read_bytes(BarOffset::new(32), &mut buffer).unwrap();
        assert_eq!(buffer, hex(text(step, "buffer")), "{what}");
        let (head, tail) = (self.producer.indices().0, self.consumer.indices().0);
        assert_eq!(u64::from(head), int(step, "head"), "{what}");
        assert_eq!(u64::from(tail), int(step, "tail"), "{what}");
        let free = self.producer.free(&self.window).unwrap();
        let used = self.consumer.used(&self.window).unwrap();
        assert_eq!(u64::from(free), int(step, "free"), "{what}");
        assert_eq!(u64::from(used), int(step, "used"), "{what}");
    }
}
