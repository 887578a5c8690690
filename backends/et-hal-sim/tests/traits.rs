//! The rules of the et-hal traits, one test for each.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "the traits of embedded-dma are unsafe to call")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_devapi::dir::BarSizes;
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{self, Completion, DmaStatus, DmaWriteNode};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::{
    Bar, BarOffset, BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer, Error, ErrorKind,
    Generation, Hal, Loss, Mailbox, Mmio, Pop, Push, QueueId, Reset, ResetScope, ResetState,
    Ticket, Wake, Width,
};
use et_hal_sim::{
    BoardConfig, SimBuffer, SimDma, SimError, SimHal, SimMailbox, SimReset, SimWindow,
};

const DEADLINE: Duration = Duration::from_secs(20);
const BAR2: Bar = Bar::new(2).unwrap();
const BAR0: Bar = Bar::new(0).unwrap();
const HOST_BASE: u64 = 0x80_0580_1000;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < DEADLINE, "{what} did not happen");
        thread::yield_now();
    }
}

fn open(text: &str) -> SimHal {
    let text = format!("dram=256MiB,compute=null,{text}");
    SimHal::open(text.parse::<BoardConfig>().unwrap()).unwrap()
}

fn discover(hal: &SimHal) -> Layout {
    let window = hal.window(BAR2).unwrap();
    until("boot", || {
        i16::from(discovery::mgmt_status(&window).unwrap()) == 12
            && i16::from(discovery::ops_status(&window).unwrap()) == 8
    });
    let bars = BarSizes { bar0: hal.window(BAR0).unwrap().len_bytes(), bar2: window.len_bytes() };
    let mgmt = discovery::read_mgmt(&window, &bars).unwrap();
    let ops = discovery::read_ops(&window, &bars).unwrap();
    assert_eq!(mgmt.warnings().iter().count() + ops.warnings().iter().count(), 0);
    Layout::new(mgmt, ops).unwrap()
}

fn ready(text: &str) -> (SimHal, Layout, SimMailbox) {
    let hal = open(text);
    let layout = discover(&hal);
    let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
    (hal, layout, mailbox)
}

fn kind<T: std::fmt::Debug>(result: Result<T, SimError>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn echo(tag: u16) -> Vec<u8> {
    let mut out = [0; 16];
    ops::encode_echo(Tag::new(tag), CommandFlags::EMPTY, &mut out).unwrap();
    out.to_vec()
}

fn send(mailbox: &SimMailbox, message: &[u8]) {
    assert_eq!(mailbox.push(QueueId::Submission(0), message).unwrap(), Push::Accepted);
    mailbox.kick().unwrap();
}

/// Receives as a driver does: ticket, look, wait.
fn receive(mailbox: &SimMailbox) -> Completion {
    let started = Instant::now();
    let mut buffer = [0; 512];
    loop {
        let ticket = mailbox.ticket();
        if let Pop::Message(len) = mailbox.pop(&mut buffer).unwrap() {
            return Completion::parse(&buffer[..len]).unwrap();
        }
        assert!(started.elapsed() < DEADLINE, "no message");
        let (Wake::Notified | Wake::TimedOut) = mailbox.wait(ticket, DEADLINE).unwrap();
    }
}

#[test]
fn everything_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<SimHal>();
    shared::<SimWindow>();
    shared::<SimDma>();
    shared::<SimBuffer>();
    shared::<SimMailbox>();
    shared::<SimError>();
    sent::<SimReset>();
}

#[test]
fn accesses_outside_a_window_are_refused() {
    let hal = open("");
    discover(&hal);
    for (bar, len) in [(BAR2, 0x4000), (BAR0, 0x8_0000_0000)] {
        let window = hal.window(bar).unwrap();
        assert_eq!(window.len_bytes(), len);
        let mut bytes = [0x55; 16];
        for at in [len, len - 7, u64::MAX - 7, u64::MAX] {
            let at = BarOffset::new(at);
            assert_eq!(kind(window.read(at, Width::W64)), ErrorKind::OutOfBounds);
            assert_eq!(kind(window.write(at, Width::W64, 0)), ErrorKind::OutOfBounds);
            assert_eq!(kind(window.read_bytes(at, &mut bytes)), ErrorKind::OutOfBounds);
            assert_eq!(kind(window.write_bytes(at, &bytes)), ErrorKind::OutOfBounds);
            assert_eq!(kind(window.load_acquire_u64(at)), ErrorKind::OutOfBounds);
            assert_eq!(kind(window.store_release_u64(at, 0)), ErrorKind::OutOfBounds);
        }
        assert_eq!(bytes, [0x55; 16], "unchanged");
    }
    assert_eq!(kind(hal.window(Bar::new(4).unwrap())), ErrorKind::Unsupported);
}

#[test]
fn misaligned_registers_and_large_values_are_refused() {
    let hal = open("");
    discover(&hal);
    for bar in [BAR0, BAR2] {
        let window = hal.window(bar).unwrap();
        for width in [Width::W16, Width::W32, Width::W64] {
            let at = BarOffset::new(0x801);
            assert_eq!(kind(window.read(at, width)), ErrorKind::Misaligned);
            assert_eq!(kind(window.write(at, width, 0)), ErrorKind::Misaligned);
        }
        let at = BarOffset::new(0x804);
        assert_eq!(kind(window.load_acquire_u64(at)), ErrorKind::Misaligned);
        assert_eq!(kind(window.store_release_u64(at, 0)), ErrorKind::Misaligned);
        for width in [Width::W8, Width::W16, Width::W32] {
            let value = width.max_value() + 1;
            let at = BarOffset::new(0x800);
            assert_eq!(kind(window.write(at, width, value)), ErrorKind::TooLarge);
        }
    }
}

#[test]
fn all_widths_and_copies_see_the_same_bytes() {
    let hal = open("");
    discover(&hal);
    // Unused parts of the mailbox page, and device memory.
    for (bar, base) in [(BAR2, 0x1c00_u64), (BAR0, 0x10_0000)] {
        let window = hal.window(bar).unwrap();
        let at = |offset| BarOffset::new(base + offset);
        window.write_bytes(at(0), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(window.read(at(0), Width::W64).unwrap(), 0x0807_0605_0403_0201);
        assert_eq!(window.read(at(4), Width::W32).unwrap(), 0x0807_0605);
        assert_eq!(window.read(at(2), Width::W16).unwrap(), 0x0403);
        assert_eq!(window.read(at(7), Width::W8).unwrap(), 8);
        window.write(at(2), Width::W16, 0xaabb).unwrap();
        assert_eq!(window.load_acquire_u64(at(0)).unwrap(), 0x0807_0605_aabb_0201);
        window.store_release_u64(at(0), u64::MAX - 1).unwrap();
        let mut bytes = [0; 8];
        window.read_bytes(at(0), &mut bytes).unwrap();
        assert_eq!(bytes, [0xfe, 255, 255, 255, 255, 255, 255, 255]);
        window.flush().unwrap();
    }
}

#[test]
fn doorbells_are_write_only_registers() {
    let hal = open("");
    discover(&hal);
    let window = hal.window(BAR2).unwrap();
    let bell = BarOffset::new(0x2004);
    assert_eq!(kind(window.read(bell, Width::W32)), ErrorKind::Unsupported);
    assert_eq!(
        kind(window.read_bytes(BarOffset::new(0x1ff8), &mut [0; 16])),
        ErrorKind::Unsupported
    );
    assert_eq!(kind(window.write_bytes(bell, &[1, 0, 0, 0])), ErrorKind::Unsupported);
    assert_eq!(kind(window.load_acquire_u64(BarOffset::new(0x2000))), ErrorKind::Unsupported);
    let before = hal.board().counters().ops_doorbells;
    window.write(bell, Width::W32, 1).unwrap();
    assert_eq!(hal.board().counters().ops_doorbells, before + 1);
}

#[test]
fn memory_behind_bar0_is_device_memory() {
    let hal = open("");
    discover(&hal);
    let window = hal.window(BAR0).unwrap();
    window.write_bytes(BarOffset::new(0x180_0000), &[0x42; 100]).unwrap();
    let mut bytes = [0; 100];
    hal.board().dram().read(HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [0x42; 100]);
    // Beyond the installed memory nobody answers.
    let beyond = BarOffset::new(0x7_0000_0000);
    assert_eq!(window.read(beyond, Width::W32).unwrap(), 0xffff_ffff);
    window.write(beyond, Width::W32, 0).unwrap();
    assert_eq!(window.read(beyond, Width::W32).unwrap(), 0xffff_ffff);
}

#[test]
fn an_unreachable_device_reads_as_ones() {
    let hal = open("fault=never-boots");
    let window = hal.window(BAR2).unwrap();
    assert_eq!(window.read(BarOffset::new(8), Width::W16).unwrap(), 0xffff);
    assert_eq!(window.load_acquire_u64(BarOffset::new(0x100)).unwrap(), u64::MAX);
    let mut bytes = [0; 32];
    window.read_bytes(BarOffset::new(0), &mut bytes).unwrap();
    assert_eq!(bytes, [0xff; 32]);
    window.write(BarOffset::new(0), Width::W32, 0).unwrap();
    assert_eq!(i16::from(discovery::mgmt_status(&window).unwrap()), -1);
}

#[test]
fn buffers_are_zeroed_aligned_and_bounded() {
    let hal = open("");
    let dma = hal.dma();
    let limits = dma.limits();
    for len in [1, 100, 4096, 4097, 3 << 20] {
        let mut buffer = dma.alloc(len, DeviceAccess::ReadWrite).unwrap();
        assert_eq!(buffer.len_bytes(), len);
        assert!(buffer.bus_addr().is_aligned_to(limits.alignment_bytes as u64));
        let mut bytes = vec![1; len];
        buffer.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        buffer.copy_in(len - 1, &[9]).unwrap();
        buffer.copy_out(len - 1, &mut bytes[..1]).unwrap();
        assert_eq!(bytes[0], 9);
        buffer.fill(0, len, 7).unwrap();
        buffer.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert!(buffer.copy_in(len, &[1]).is_err() && buffer.copy_in(usize::MAX, &[1]).is_err());
        assert!(buffer.copy_out(1, &mut vec![0; len]).is_err());
        assert!(buffer.fill(len, 1, 0).is_err());
        dma.sync_for_device(&buffer, 0..len).unwrap();
        dma.sync_for_cpu(&buffer, len..len).unwrap();
        assert_eq!(kind(dma.sync_for_cpu(&buffer, 0..len + 1)), ErrorKind::OutOfBounds);
        assert_eq!(kind(dma.sync_for_device(&buffer, Range::backwards())), ErrorKind::OutOfBounds);
    }
    assert_eq!(kind(dma.alloc(0, DeviceAccess::Read)), ErrorKind::TooLarge);
    let too_large = limits.max_buffer_bytes + 1;
    assert_eq!(kind(dma.alloc(too_large, DeviceAccess::Read)), ErrorKind::TooLarge);
}

struct Range;

impl Range {
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    fn backwards() -> std::ops::Range<usize> {
        1..0
    }
}

#[test]
fn a_buffer_keeps_its_place() {
    let hal = open("");
    let mut buffer = hal.dma().alloc(5000, DeviceAccess::ReadWrite).unwrap();
    // SAFETY: the pointers are compared, not used.
    let (read, len) = unsafe { buffer.read_buffer() };
    // SAFETY: as above.
    let (write, write_len) = unsafe { buffer.write_buffer() };
    assert_eq!((read, len), (write.cast_const(), write_len));
    assert_eq!(len, 5000);
    let mut moved = Box::new(buffer);
    // SAFETY: as above.
    assert_eq!(unsafe { moved.write_buffer() }, (write, len));
}

#[test]
fn the_device_reaches_a_buffer_until_it_is_dropped() {
    let (hal, _, mailbox) = ready("");
    let mut buffer = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
    let bus = buffer.bus_addr();
    buffer.copy_in(0, &[0x99; 64]).unwrap();
    let copy = |bus: BusAddr, size| {
        let node = DmaWriteNode::new(bus, DeviceAddr::new(HOST_BASE), size);
        let mut out = [0; 64];
        let len = ops::encode_dma_write(Tag::new(1), CommandFlags::EMPTY, &[node], &mut out);
        send(&mailbox, &out[..len.unwrap()]);
        let Completion::DmaWrite { status, .. } = receive(&mailbox) else { panic!("no copy") };
        status
    };
    assert_eq!(copy(bus, 64), DmaStatus::Complete);
    assert_eq!(copy(bus, 4097), DmaStatus::ErrorAborted);
    let mut bytes = [0; 64];
    hal.board().dram().read(HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [0x99; 64]);
    assert_eq!(hal.board().host_memory().mappings(), 1);
    drop(buffer);
    assert_eq!(hal.board().host_memory().mappings(), 0);
    assert_eq!(copy(bus, 64), DmaStatus::ErrorAborted);
    // The address is not given out again.
    let next = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
    assert_ne!(next.bus_addr(), bus);
}

#[test]
fn a_mailbox_takes_messages_or_nothing() {
    let (_hal, layout, mailbox) = ready("");
    let submission = QueueId::Submission(0);
    assert_eq!(mailbox.max_message_bytes(submission).unwrap(), 1055);
    assert_eq!(mailbox.max_message_bytes(QueueId::HighPriority(1)).unwrap(), 31);
    assert_eq!(kind(mailbox.max_message_bytes(QueueId::Submission(2))), ErrorKind::OutOfBounds);
    assert_eq!(kind(mailbox.push(QueueId::HighPriority(2), &[0; 16])), ErrorKind::OutOfBounds);
    assert_eq!(kind(mailbox.push(submission, &[0; 1056])), ErrorKind::TooLarge);
    assert_eq!(layout.ops_mailbox.completion.count, 1);
    let mut pushed = 0;
    while mailbox.push(submission, &echo(pushed)).unwrap() == Push::Accepted {
        pushed += 1;
    }
    assert_eq!(pushed, 65);
    mailbox.kick().unwrap();
    for tag in 0..pushed {
        assert_eq!(receive(&mailbox).tag(), Some(Tag::new(tag)));
    }
    let mut buffer = [0; 512];
    assert_eq!(mailbox.pop(&mut buffer).unwrap(), Pop::Empty);
    // A message that does not fit stays.
    send(&mailbox, &echo(1));
    until("the answer", || kind_of_pop(&mailbox, &mut [0; 23]) == Some(ErrorKind::TooLarge));
    assert_eq!(receive(&mailbox).tag(), Some(Tag::new(1)));
}

fn kind_of_pop(mailbox: &SimMailbox, buffer: &mut [u8]) -> Option<ErrorKind> {
    mailbox.pop(buffer).err().map(|error| error.kind())
}

#[test]
fn a_reopened_mailbox_continues_where_the_device_is() {
    let (hal, layout, mailbox) = ready("");
    for tag in 0..100 {
        send(&mailbox, &echo(tag));
        receive(&mailbox);
    }
    send(&mailbox, &echo(200));
    drop(mailbox);
    let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
    send(&mailbox, &echo(201));
    assert_eq!(receive(&mailbox).tag(), Some(Tag::new(200)));
    assert_eq!(receive(&mailbox).tag(), Some(Tag::new(201)));
}

#[test]
fn a_wait_for_the_past_returns_and_one_for_the_future_times_out() {
    let (_hal, _, mailbox) = ready("");
    let before = mailbox.ticket();
    send(&mailbox, &echo(1));
    receive(&mailbox);
    assert_eq!(mailbox.wait(before, Duration::from_secs(3600)).unwrap(), Wake::Notified);
    let quiet = loop {
        let ticket = mailbox.ticket();
        if mailbox.wait(ticket, Duration::from_millis(2)).unwrap() == Wake::TimedOut {
            break ticket;
        }
    };
    assert_eq!(mailbox.wait(quiet, Duration::ZERO).unwrap(), Wake::TimedOut);
    // A ticket nobody gave out is no reason to sleep.
    assert_eq!(mailbox.wait(Ticket(u64::MAX), Duration::MAX).unwrap(), Wake::Notified);
}

#[test]
fn wake_ends_a_wait() {
    let (_hal, _, mailbox) = ready("");
    let mailbox = Arc::new(mailbox);
    let ticket = mailbox.ticket();
    let waiter = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || mailbox.wait(ticket, Duration::from_secs(3600)).unwrap())
    };
    mailbox.wake();
    assert_eq!(waiter.join().unwrap(), Wake::Notified);
}

#[test]
fn lost_interrupts_do_not_become_a_hang() {
    let (hal, _, mailbox) = ready("fault=lost-interrupts:1");
    for tag in 0..20 {
        send(&mailbox, &echo(tag));
        assert_eq!(receive(&mailbox).tag(), Some(Tag::new(tag)));
    }
    let lost = et_devapi::pci::Vector::OpsCompletion;
    assert_eq!(hal.board().interrupts().raised(lost), 0);
    // Without any message, a waiter for room gets its chance to look.
    let ticket = mailbox.ticket();
    assert_eq!(mailbox.wait(ticket, Duration::from_secs(3600)).unwrap(), Wake::Notified);
}

#[test]
fn a_corrupt_queue_is_a_protocol_error_for_good() {
    let (_hal, _, mailbox) = ready("fault=bad-index:1:9999");
    send(&mailbox, &echo(1));
    let mut buffer = [0; 512];
    until("the corruption", || kind_of_pop(&mailbox, &mut buffer) == Some(ErrorKind::Protocol));
    assert_eq!(kind(mailbox.pop(&mut buffer)), ErrorKind::Protocol);
}

#[test]
fn a_lost_link_is_seen_as_corruption_not_as_silence() {
    let (_hal, _, mailbox) = ready("fault=link-loss:500000");
    let mut buffer = [0; 512];
    until("the loss", || kind_of_pop(&mailbox, &mut buffer) == Some(ErrorKind::Protocol));
}

#[test]
fn a_reset_makes_every_handle_stale() {
    let (hal, layout, mailbox) = ready("");
    let window = hal.window(BAR2).unwrap();
    let memory = hal.window(BAR0).unwrap();
    memory.write_bytes(BarOffset::new(0x180_0000), &[3; 8]).unwrap();
    let buffer = hal.dma().alloc(4096, DeviceAccess::ReadWrite).unwrap();
    let mut reset = hal.reset().unwrap();
    assert_eq!(kind(hal.reset()), ErrorKind::Busy);
    let everything_but_memory = Loss { queues: true, compute: true, memory: false };
    assert_eq!(reset.loss(ResetScope::Function), Some(everything_but_memory));
    assert_eq!(reset.loss(ResetScope::Compute), None);
    assert_eq!(kind(reset.begin(ResetScope::Operations)), ErrorKind::Unsupported);

    let old = hal.generation();
    reset.begin(ResetScope::Function).unwrap();
    assert_eq!(kind(window.read(BarOffset::new(8), Width::W16)), ErrorKind::Stale);
    assert_eq!(kind(memory.read(BarOffset::new(8), Width::W16)), ErrorKind::Stale);
    assert_eq!(kind(window.write_bytes(BarOffset::new(0x100), &[0])), ErrorKind::Stale);
    assert_eq!(kind(window.flush()), ErrorKind::Stale);
    assert_eq!(kind(mailbox.kick()), ErrorKind::Stale);
    assert_eq!(kind(mailbox.push(QueueId::Submission(0), &echo(1))), ErrorKind::Stale);
    assert_eq!(kind(mailbox.pop(&mut [0; 512])), ErrorKind::Stale);
    assert_eq!(kind(mailbox.wait(mailbox.ticket(), DEADLINE)), ErrorKind::Stale);
    let mut done = None;
    until("the reset", || {
        if let ResetState::Done(generation) = reset.poll().unwrap() {
            done = Some(generation);
        }
        done.is_some()
    });
    assert_eq!(done, Some(Generation(old.0 + 1)));
    assert_eq!(hal.generation(), Generation(old.0 + 1));
    drop(reset);
    drop(hal.reset().unwrap());

    assert_eq!(kind(window.read(BarOffset::new(8), Width::W16)), ErrorKind::Stale);
    assert_eq!(discover(&hal), layout);
    let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
    send(&mailbox, &echo(5));
    assert_eq!(receive(&mailbox).tag(), Some(Tag::new(5)));
    let memory = hal.window(BAR0).unwrap();
    assert_eq!(memory.read(BarOffset::new(0x180_0000), Width::W8).unwrap(), 3);
    // Buffers stay mapped.
    assert_eq!(hal.board().host_memory().mappings(), 1);
    drop(buffer);
}

#[test]
fn a_reset_wakes_who_waits() {
    let (hal, _, mailbox) = ready("");
    let ticket = mailbox.ticket();
    let waiter = thread::spawn(move || mailbox.wait(ticket, Duration::from_secs(3600)));
    let mut reset = hal.reset().unwrap();
    reset.begin(ResetScope::Slot).unwrap();
    assert_eq!(kind(waiter.join().unwrap()), ErrorKind::Stale);
    until("the reset", || reset.poll().unwrap() != ResetState::InProgress);
}

#[test]
fn a_board_lives_as_long_as_any_handle() {
    let (hal, _, mailbox) = ready("");
    let buffer = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
    drop(hal);
    send(&mailbox, &echo(1));
    assert_eq!(receive(&mailbox).tag(), Some(Tag::new(1)));
    drop(mailbox);
    drop(buffer);
}
