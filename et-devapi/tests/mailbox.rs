//! The mailbox over a window in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::cast_possible_truncation, reason = "lengths of messages are small")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use et_devapi::mailbox::{MAX_QUEUES, MailboxError, RingMailbox, Signal};
use et_devapi::msg::ops::{Body, Command, Completion};
use et_devapi::msg::{CommandFlags, Header, Tag, command_bytes};
use et_devapi::ring::{Consumer, Producer, Ring, RingError};
use et_hal::{
    AccessPath, BarOffset, Doorbell, Endpoint, Error, ErrorKind, ErrorType, LossReason, Mailbox,
    MailboxLayout, Mmio, Pop, Push, QueueId, RingSet, Ticket, Wake, Width, Widths,
};
use et_testkit::{RegisterWrite, TestWindow};
use zerocopy::IntoBytes;

const LAYOUT: MailboxLayout = MailboxLayout {
    endpoint: Endpoint::Operations,
    submission: RingSet { at: BarOffset::new(0x100), size_bytes: 0x440, count: 2 },
    high_priority: RingSet { at: BarOffset::new(0x980), size_bytes: 0x40, count: 2 },
    completion: RingSet { at: BarOffset::new(0xa00), size_bytes: 0x600, count: 1 },
    doorbell: Doorbell { at: BarOffset::new(0x2004), width: Width::W32, value: 1 },
};

const SQ0: QueueId = QueueId::Submission(0);
const HPSQ1: QueueId = QueueId::HighPriority(1);

/// Counts the wakes; waiting returns at once.
#[derive(Debug, Default)]
struct TestSignal(AtomicU64);

impl ErrorType for TestSignal {
    type Error = ErrorKind;
}

impl Signal for TestSignal {
    fn ticket(&self) -> Ticket {
        Ticket(self.0.load(Ordering::Relaxed))
    }
    fn wait(&self, seen: Ticket, _: Duration) -> Result<Wake, ErrorKind> {
        Ok(if self.ticket() > seen { Wake::Notified } else { Wake::TimedOut })
    }
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn verify(&self) -> Result<(), ErrorKind> {
        if self.ticket() == GONE { Err(ErrorKind::Lost(LossReason::Removed)) } else { Ok(()) }
    }
    fn glance(&self) -> Result<(), ErrorKind> {
        self.verify()
    }
}

/// Ticket of a device that is not there any more.
const GONE: Ticket = Ticket(u64::MAX);

/// The error of a backend whose bundle has one of its own.
#[derive(Debug)]
struct BackendError(MailboxError<ErrorKind>);

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
impl std::error::Error for BackendError {}
impl Error for BackendError {
    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}
impl From<MailboxError<ErrorKind>> for BackendError {
    fn from(error: MailboxError<ErrorKind>) -> Self {
        Self(error)
    }
}

type Box<'w, M = TestWindow> = RingMailbox<&'w M, TestSignal, BackendError>;

fn sets(layout: &MailboxLayout) -> [RingSet; 3] {
    [layout.submission, layout.high_priority, layout.completion]
}

fn ring(set: RingSet, index: u16) -> Ring {
    let at = set.at.as_u64() + u64::from(index) * u64::from(set.size_bytes);
    Ring::new::<()>(BarOffset::new(at), set.size_bytes).unwrap()
}

fn window() -> TestWindow {
    let window = TestWindow::new(0x4000);
    for set in sets(&LAYOUT) {
        (0..set.count).for_each(|index| ring(set, index).format(&window).unwrap());
    }
    window
}

fn attach<M: Mmio<Error = ErrorKind>>(window: &M) -> Box<'_, M> {
    RingMailbox::attach(window, TestSignal::default(), LAYOUT).unwrap()
}

fn echo(tag: u16) -> Vec<u8> {
    let mut out = [0; 16];
    let len = Command::Echo.encode(Tag::new(tag), CommandFlags::EMPTY, &mut out).unwrap();
    out[..len].to_vec()
}

fn answer(tag: u16) -> Vec<u8> {
    let mut out = [0; 24];
    let tag = Tag::new(tag);
    Completion::new(tag, Body::Echo { start: 1, status: 0.into() }).encode(&mut out).unwrap();
    out.to_vec()
}

fn kind<T: std::fmt::Debug>(result: Result<T, BackendError>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn messages_reach_the_queue_they_are_for() {
    let window = window();
    let mailbox = attach(&window);
    let queues = [
        (QueueId::Submission(0), LAYOUT.submission, 0),
        (QueueId::Submission(1), LAYOUT.submission, 1),
        (QueueId::HighPriority(0), LAYOUT.high_priority, 0),
        (QueueId::HighPriority(1), LAYOUT.high_priority, 1),
    ];
    for (tag, (queue, ..)) in queues.iter().enumerate() {
        assert_eq!(mailbox.push(*queue, &echo(tag as u16)).unwrap(), Push::Accepted);
    }
    for (tag, (_, set, index)) in queues.into_iter().enumerate() {
        let mut device = Consumer::attach(ring(set, index), &window).unwrap();
        let mut out = [0; 64];
        let popped = device.pop_message(&window, command_bytes, &mut out);
        assert_eq!(popped, Ok(Pop::Message(16)));
        assert_eq!(out[..16], echo(tag as u16));
        assert_eq!(device.used(&window), Ok(0));
    }
}

#[test]
fn a_queue_takes_one_byte_less_than_it_has() {
    let window = window();
    let mailbox = attach(&window);
    assert_eq!(mailbox.max_message_bytes(SQ0).unwrap(), 1055);
    assert_eq!(mailbox.max_message_bytes(HPSQ1).unwrap(), 31);
    assert_eq!(kind(mailbox.push(HPSQ1, &[0; 32])), ErrorKind::TooLarge);
    // The caller's mistake harms no one.
    assert_eq!(mailbox.push(HPSQ1, &[0; 31]).unwrap(), Push::Accepted);
    let none = QueueId::Submission(2);
    assert_eq!(kind(mailbox.max_message_bytes(none)), ErrorKind::OutOfBounds);
    assert_eq!(kind(mailbox.push(none, &echo(1))), ErrorKind::OutOfBounds);
}

#[test]
fn full_is_no_error_and_ends_when_the_device_reads() {
    let window = window();
    let mailbox = attach(&window);
    let mut abort = [0; 16];
    Command::Abort.encode(Tag::new(1), CommandFlags::BARRIER, &mut abort).unwrap();
    assert_eq!(mailbox.push(HPSQ1, &abort).unwrap(), Push::Accepted);
    assert_eq!(mailbox.push(HPSQ1, &abort).unwrap(), Push::Full);
    let mut device = Consumer::attach(ring(LAYOUT.high_priority, 1), &window).unwrap();
    assert_eq!(device.pop_message(&window, command_bytes, &mut [0; 16]), Ok(Pop::Message(16)));
    assert_eq!(mailbox.push(HPSQ1, &abort).unwrap(), Push::Accepted);
}

#[test]
fn empty_partial_and_whole() {
    let window = window();
    let mailbox = attach(&window);
    let mut into = [0; 64];
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Empty);
    let mut device = Producer::attach(ring(LAYOUT.completion, 0), &window).unwrap();
    let message = answer(7);
    let tail = BarOffset::new(LAYOUT.completion.at.as_u64() + 8);
    for part in [&message[..5], &message[5..12], &message[12..23]] {
        assert_eq!(device.push(&window, part), Ok(Push::Accepted));
        assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Empty);
        assert_eq!(window.load_acquire_u64(tail), Ok(0));
    }
    assert_eq!(device.push(&window, &message[23..]), Ok(Push::Accepted));
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Message(24));
    assert_eq!(into[..24], message);
    assert_eq!(window.load_acquire_u64(tail), Ok(24));
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Empty);
}

#[test]
fn a_message_that_does_not_fit_stays() {
    let window = window();
    let mailbox = attach(&window);
    let mut device = Producer::attach(ring(LAYOUT.completion, 0), &window).unwrap();
    assert_eq!(device.push(&window, &answer(7)), Ok(Push::Accepted));
    assert_eq!(kind(mailbox.pop(&mut [0; 23])), ErrorKind::TooLarge);
    let mut into = [0; 24];
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Message(24));
    assert_eq!(into[..], answer(7));
}

#[test]
fn kick_is_one_write_of_the_doorbell() {
    let window = window();
    let mailbox = attach(&window);
    assert_eq!(mailbox.push(SQ0, &echo(1)).unwrap(), Push::Accepted);
    assert_eq!(window.register_writes(), []);
    mailbox.kick().unwrap();
    let Doorbell { at, width, value } = LAYOUT.doorbell;
    let write = RegisterWrite { at, width, value: value.into() };
    assert_eq!(window.register_writes(), [write]);
    mailbox.kick().unwrap();
    assert_eq!(window.register_writes(), [write, write]);
    window.lose();
    assert_eq!(kind(mailbox.kick()), ErrorKind::Stale);
}

#[test]
fn the_signal_is_the_backends() {
    let window = window();
    let mailbox = attach(&window);
    let ticket = mailbox.ticket();
    assert_eq!(mailbox.wait(ticket, Duration::ZERO).unwrap(), Wake::TimedOut);
    mailbox.wake();
    assert_eq!(mailbox.wait(ticket, Duration::ZERO).unwrap(), Wake::Notified);
    assert_eq!(mailbox.endpoint(), Endpoint::Operations);
}

#[test]
fn indices_continue_where_the_device_has_them() {
    let window = window();
    let at = LAYOUT.completion.at.as_u64();
    for offset in [0, 8] {
        window.store_release_u64(BarOffset::new(at + offset), 1500).unwrap();
    }
    let mailbox = attach(&window);
    let mut device = Producer::attach(ring(LAYOUT.completion, 0), &window).unwrap();
    // The message goes round the end of the ring.
    assert_eq!(device.push(&window, &answer(3)), Ok(Push::Accepted));
    let mut into = [0; 64];
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Message(24));
    assert_eq!(into[..24], answer(3));
}

/// Corrupts a queue, then shows that only this queue is unusable, and until the mailbox is
/// reopened.
fn poisons(first: ErrorKind, corrupt: impl Fn(&TestWindow), mend: impl Fn(&TestWindow)) {
    let window = window();
    let mailbox = attach(&window);
    corrupt(&window);
    assert_eq!(kind(mailbox.pop(&mut [0; 64])), first);
    mend(&window);
    let error = mailbox.pop(&mut [0; 64]).unwrap_err();
    assert!(matches!(error.0, MailboxError::Poisoned), "{error}");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(mailbox.push(SQ0, &echo(1)).unwrap(), Push::Accepted);
    let reopened = attach(&window);
    assert_eq!(reopened.pop(&mut [0; 64]).unwrap(), Pop::Empty);
}

fn head(window: &TestWindow, head: u64) {
    window.store_release_u64(LAYOUT.completion.at, head).unwrap();
}

fn write(window: &TestWindow, size: u16) {
    let header = Header::new(size, Tag::new(1), 518, CommandFlags::EMPTY);
    let data = BarOffset::new(LAYOUT.completion.at.as_u64() + 32);
    window.write_bytes(data, header.as_bytes()).unwrap();
    head(window, 8);
}

#[test]
fn a_corrupt_index_poisons_the_queue() {
    for index in [1504, 5000, u64::MAX] {
        poisons(ErrorKind::Protocol, |window| head(window, index), |window| head(window, 0));
    }
}

#[test]
fn a_queue_of_a_device_that_is_gone_is_not_called_corrupt() {
    let window = window();
    let signal = TestSignal(AtomicU64::new(GONE.0));
    let mailbox: Box<'_, _> = RingMailbox::attach(&window, signal, LAYOUT).unwrap();
    head(&window, u64::MAX);
    assert_eq!(kind(mailbox.pop(&mut [0; 64])), ErrorKind::Lost(LossReason::Removed));
}

#[test]
fn a_caller_who_never_waits_learns_of_a_loss_and_loses_no_message() {
    let window = window();
    let signal = TestSignal(AtomicU64::new(GONE.0));
    let mailbox: Box<'_, _> = RingMailbox::attach(&window, signal, LAYOUT).unwrap();
    let mut device = Producer::attach(ring(LAYOUT.completion, 0), &window).unwrap();
    assert_eq!(device.push(&window, &answer(7)), Ok(Push::Accepted));
    let mut into = [0; 24];
    assert_eq!(mailbox.pop(&mut into).unwrap(), Pop::Message(24));
    assert_eq!(into[..], answer(7));
    assert_eq!(kind(mailbox.pop(&mut into)), ErrorKind::Lost(LossReason::Removed));
    assert_eq!(kind(mailbox.kick()), ErrorKind::Lost(LossReason::Removed));
    assert_eq!(window.register_writes(), []);
}

#[test]
fn room_is_given_back_after_a_quarter_of_the_completion_queue() {
    let window = window();
    let at = LAYOUT.completion.at.as_u64();
    let indices = [BarOffset::new(at), BarOffset::new(at + 8)];
    for index in indices {
        window.store_release_u64(index, 1200).unwrap();
    }
    let mailbox = attach(&window);
    let mut device = Producer::attach(ring(LAYOUT.completion, 0), &window).unwrap();
    for tag in 0..40 {
        assert_eq!(device.push(&window, &answer(tag)), Ok(Push::Accepted));
    }
    // A quarter of 1504 bytes is less than 16 messages of 24 bytes.
    let given_back = [(15, 1200), (16, 80), (31, 80), (32, 464), (39, 464), (40, 656)];
    let mut popped = 0;
    for (count, tail) in given_back {
        while popped < count {
            assert_eq!(mailbox.pop(&mut [0; 24]).unwrap(), Pop::Message(24));
            popped += 1;
        }
        assert_eq!(window.load_acquire_u64(indices[1]), Ok(tail), "after {count} messages");
    }
}

#[test]
fn a_message_of_size_0_poisons_the_queue() {
    poisons(ErrorKind::Protocol, |window| write(window, 0), |window| head(window, 0));
}

#[test]
fn a_message_that_can_never_be_whole_poisons_the_queue() {
    for size in [1496, 4000, u16::MAX] {
        // Should be Protocol, see the next test.
        poisons(ErrorKind::Protocol, |window| write(window, size), |window| head(window, 0));
    }
}

#[test]
fn a_corrupt_tail_poisons_a_submission_queue() {
    let window = window();
    let mailbox = attach(&window);
    while mailbox.push(SQ0, &echo(1)).unwrap() == Push::Accepted {}
    let tail = BarOffset::new(LAYOUT.submission.at.as_u64() + 8);
    window.store_release_u64(tail, 1056).unwrap();
    assert_eq!(kind(mailbox.push(SQ0, &echo(1))), ErrorKind::Protocol);
    window.store_release_u64(tail, 16).unwrap();
    assert_eq!(kind(mailbox.push(SQ0, &echo(1))), ErrorKind::Protocol);
    assert_eq!(mailbox.push(QueueId::Submission(1), &echo(1)).unwrap(), Push::Accepted);
}

#[test]
fn a_stale_window_poisons_nothing() {
    let window = window();
    let mailbox = attach(&window);
    window.lose();
    assert_eq!(kind(mailbox.push(SQ0, &echo(1))), ErrorKind::Stale);
    assert_eq!(kind(mailbox.pop(&mut [0; 64])), ErrorKind::Stale);
    window.restore();
    assert_eq!(mailbox.push(SQ0, &echo(1)).unwrap(), Push::Accepted);
    assert_eq!(mailbox.pop(&mut [0; 64]).unwrap(), Pop::Empty);
}

#[test]
fn there_may_be_as_many_queues_as_the_mailbox_has_places() {
    let window = TestWindow::new(0x4000);
    let places = MAX_QUEUES as u8;
    let count = places.into();
    let mut layout = LAYOUT;
    layout.submission = RingSet { at: BarOffset::new(0x1000), size_bytes: 0x40, count };
    layout.high_priority = RingSet { at: BarOffset::new(0x1400), size_bytes: 0x40, count };
    for set in sets(&layout) {
        (0..set.count).for_each(|index| ring(set, index).format(&window).unwrap());
    }
    let mailbox: Box<'_> = RingMailbox::attach(&window, TestSignal::default(), layout).unwrap();
    for last in [QueueId::Submission(places - 1), QueueId::HighPriority(places - 1)] {
        assert_eq!(mailbox.push(last, &echo(1)).unwrap(), Push::Accepted);
    }
    assert_eq!(kind(mailbox.push(QueueId::Submission(places), &echo(1))), ErrorKind::OutOfBounds);
}

#[test]
fn layouts_that_cannot_be_used_are_refused() {
    let window = window();
    let attach = |layout: MailboxLayout| {
        let attached: Result<Box<'_>, _> =
            RingMailbox::attach(&window, TestSignal::default(), layout);
        attached.map(drop)
    };
    assert!(attach(LAYOUT).is_ok());
    let mut layout = LAYOUT;
    layout.completion.count = 0;
    assert!(matches!(attach(layout), Err(MailboxError::QueueCount { count: 0, .. })));
    let mut layout = LAYOUT;
    layout.submission.count = u16::try_from(MAX_QUEUES).unwrap() + 1;
    assert!(matches!(attach(layout), Err(MailboxError::QueueCount { count: 9, .. })));
    let mut layout = LAYOUT;
    layout.submission.at = BarOffset::new(0x104);
    let error = attach(layout).unwrap_err();
    assert!(matches!(error, MailboxError::Ring(RingError::Place { .. })), "{error}");
    let mut layout = LAYOUT;
    layout.completion.at = BarOffset::new(0x4000);
    assert_eq!(attach(layout).unwrap_err().kind(), ErrorKind::OutOfBounds);
    let mut layout = LAYOUT;
    layout.completion.size_bytes = 0x640;
    assert_eq!(attach(layout).unwrap_err().kind(), ErrorKind::Protocol);
}

/// A window that calls back into the mailbox while a message is being written: as a second thread
/// would find it.
struct Reentrant<'w> {
    inner: &'w TestWindow,
    mailbox: std::cell::OnceCell<&'w dyn Mailbox<Error = BackendError>>,
    found: std::cell::RefCell<Vec<ErrorKind>>,
}

impl ErrorType for Reentrant<'_> {
    type Error = ErrorKind;
}

impl Mmio for Reentrant<'_> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn widths(&self) -> Widths {
        self.inner.widths()
    }
    fn path(&self, at: BarOffset, len: u64) -> AccessPath {
        self.inner.path(at, len)
    }
    fn read(&self, at: BarOffset, width: Width) -> Result<u64, ErrorKind> {
        self.inner.read(at, width)
    }
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), ErrorKind> {
        self.inner.write(at, width, value)
    }
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), ErrorKind> {
        self.inner.read_bytes(at, into)
    }
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), ErrorKind> {
        if let Some(mailbox) = self.mailbox.get() {
            self.found.borrow_mut().push(kind(mailbox.push(SQ0, &echo(2))));
            // Another queue is free.
            assert_eq!(mailbox.pop(&mut [0; 64]).unwrap(), Pop::Empty);
        }
        self.inner.write_bytes(at, from)
    }
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, ErrorKind> {
        self.inner.load_acquire_u64(at)
    }
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), ErrorKind> {
        self.inner.store_release_u64(at, value)
    }
    fn flush(&self) -> Result<(), ErrorKind> {
        self.inner.flush()
    }
}

#[test]
fn a_queue_in_use_is_busy_and_the_others_are_not() {
    let inner = window();
    let (mailbox_cell, found) = (std::cell::OnceCell::new(), std::cell::RefCell::default());
    let reentrant = Reentrant { inner: &inner, mailbox: mailbox_cell, found };
    let mailbox = attach(&reentrant);
    assert!(reentrant.mailbox.set(&mailbox).is_ok());
    assert_eq!(mailbox.push(SQ0, &echo(1)).unwrap(), Push::Accepted);
    assert_eq!(*reentrant.found.borrow(), [ErrorKind::Busy]);
    let mut device = Consumer::attach(ring(LAYOUT.submission, 0), &inner).unwrap();
    assert_eq!(device.used(&inner), Ok(16), "the second message was refused whole");
}

#[test]
fn threads_share_a_mailbox() {
    const EACH: u16 = 2_000;
    let window = window();
    let mailbox = attach(&window);
    std::thread::scope(|scope| {
        for thread in 0..3_u16 {
            let mailbox = &mailbox;
            scope.spawn(move || {
                for index in 0..EACH {
                    let message = echo(thread * EACH + index);
                    loop {
                        match mailbox.push(SQ0, &message) {
                            Ok(Push::Accepted) => break,
                            Ok(Push::Full) => {}
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy),
                        }
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut device = Consumer::attach(ring(LAYOUT.submission, 0), &window).unwrap();
        let mut next = [0, EACH, 2 * EACH];
        let mut out = [0; 64];
        let mut left = 3 * usize::from(EACH);
        while left > 0 {
            match device.pop_message(&window, command_bytes, &mut out).unwrap() {
                Pop::Message(len) => {
                    let tag = u16::from_le_bytes([out[2], out[3]]);
                    assert_eq!(out[..len], echo(tag));
                    let next = &mut next[usize::from(tag / EACH)];
                    assert_eq!(tag, *next, "each thread's messages stay in order");
                    *next += 1;
                    left -= 1;
                }
                Pop::Empty => std::thread::yield_now(),
            }
        }
    });
}
