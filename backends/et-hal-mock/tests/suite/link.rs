//! How the runtime moves commands, over devices that no simulator gives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Body, Command, Completion, FirmwareType, LaunchStatus, Times};
use et_hal::{ErrorKind, Pop, Push, QueueId};
use et_hal_mock::{MockHal, MockMailbox, presets};
use et_runtime::{
    Clock, Config, Device, DeviceError, Drain, Error, EventState, KernelArgs, Launch, ListedCopy,
};

const LONG: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config::new()
        .drain(Drain::Caller)
        .command_timeout(Duration::from_millis(500))
        .shutdown_timeout(Duration::from_millis(100))
        .spin(Duration::ZERO)
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// Registers of a device with a single high-priority queue. Spec: §3.2, §3.7
fn one_high_priority_queue() -> Vec<u8> {
    let mut bar2 = presets::registers();
    bar2[16 + 28..16 + 30].copy_from_slice(&1u16.to_le_bytes());
    let total = usize::from(u16::from_le_bytes([bar2[4], bar2[5]]));
    let crc = crc32(&bar2[16..total]);
    bar2[10..14].copy_from_slice(&crc.to_le_bytes());
    bar2
}

/// Copies are never answered.
fn deaf_to_copies() -> MockMailbox {
    presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } => Vec::new(),
        _ => presets::success(header, command),
    })
}

#[test]
fn a_device_with_fewer_high_priority_queues_is_reset_and_closed() {
    let mmio = presets::readable(one_high_priority_queue());
    let device = Device::open_with(MockHal::new(mmio, deaf_to_copies()), config()).unwrap();
    assert_eq!(device.properties().queues, 2);
    device.reset_compute(LONG).unwrap();
    let buffer = device.alloc(64).unwrap();
    let (first, second) = (device.stream(), device.stream());
    let events = [&first, &second].map(|s| s.copy_to_device(&[1u8; 64], &buffer).unwrap());
    // What cannot be aborted says so; the other can.
    let outcomes = events.each_ref().map(|event| device.request_abort(event));
    assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
    assert!(outcomes.iter().any(|it| matches!(it, Err(Error::Unsupported { .. }))), "{outcomes:?}");
    drop(device);
    for event in events {
        assert!(event.outcome().is_some_and(|outcome| outcome.is_err()), "{event:?}");
    }
}

/// Answers what it is asked for later, and has room for `room` commands beside.
struct Slow {
    answers: Mutex<VecDeque<Vec<u8>>>,
    held: Mutex<Vec<Vec<u8>>>,
    room: Mutex<usize>,
}

impl Slow {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::default(), held: Mutex::default(), room: Mutex::new(room) })
    }

    fn mailbox(self: &Arc<Self>) -> MockMailbox {
        let mut mailbox = MockMailbox::new();
        let its = Arc::clone(self);
        mailbox.expect_push().returning(move |_: QueueId, message| {
            let (header, command) = Command::parse(message).map_err(|_| ErrorKind::Protocol)?;
            let is_copy = matches!(command, Command::DmaWriteList { .. });
            let mut room = its.room.lock().unwrap();
            if is_copy && *room == 0 {
                return Ok(Push::Full);
            }
            *room -= usize::from(is_copy);
            for completion in presets::success(header, &command) {
                let mut bytes = vec![0; 128];
                let len = completion.encode(&mut bytes).unwrap();
                bytes.truncate(len);
                if is_copy {
                    its.held.lock().unwrap().push(bytes);
                } else {
                    its.answers.lock().unwrap().push_back(bytes);
                }
            }
            Ok(Push::Accepted)
        });
        let its = Arc::clone(self);
        mailbox.expect_pop().returning(move |into| {
            let Some(bytes) = its.answers.lock().unwrap().pop_front() else {
                return Ok(Pop::Empty);
            };
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(Pop::Message(bytes.len()))
        });
        presets::idle(&mut mailbox);
        mailbox
    }

    /// Answers all copies it has, and has room again.
    fn answer_all(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        *self.room.lock().unwrap() += held.len();
        self.answers.lock().unwrap().extend(held);
    }
}

#[test]
fn a_deferred_command_without_room_goes_when_there_is_room() {
    let slow = Slow::new(2);
    let hal = MockHal::new(presets::booted_registers(), slow.mailbox());
    let device = Device::open_with(hal, config()).unwrap();
    let buffer = device.alloc(64).unwrap();
    let (one, other) = (device.stream(), device.stream());
    let first = one.copy_to_device(&[1u8; 64], &buffer).unwrap();
    let second = one.copy_to_device(&[1u8; 64], &buffer).unwrap();
    other.wait_for(&first);
    let deferred = other.copy_to_device(&[2u8; 64], &buffer).unwrap();
    // The event fires while the queue is full; nothing else is in flight when it has room again.
    slow.answers.lock().unwrap().push_back(slow.held.lock().unwrap().remove(0));
    device.poll();
    assert!(first.is_done() && !deferred.is_done());
    slow.answer_all();
    device.poll();
    assert!(second.is_done());
    slow.answer_all();
    *slow.room.lock().unwrap() = 1;
    device.poll();
    slow.answer_all();
    deferred.wait(LONG).unwrap();
}

#[test]
fn an_abort_keeps_its_time_while_another_thread_waits_for_room() {
    let mailbox = presets::pushes_after(3, || Ok(Push::Full));
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    let device = Device::open_with(hal, config().command_timeout(LONG)).unwrap();
    let buffer = device.alloc(64).unwrap();
    let stream = device.stream();
    let elsewhere = MockHal::new(presets::booted_registers(), deaf_to_copies());
    let elsewhere = Device::open_with(elsewhere, config()).unwrap();
    let its = elsewhere.alloc(64).unwrap();
    let pending = elsewhere.stream().copy_to_device(&[1u8; 64], &its).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            sender.send(()).unwrap();
            stream.copy_to_device(&[1u8; 64], &buffer)
        });
        receiver.recv().unwrap();
        let start = Instant::now();
        while stream.is_idle() && start.elapsed() < LONG {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let other = device.stream();
        other.wait_for(&pending);
        let behind = other.barrier().unwrap();
        other.abort(Duration::from_millis(200)).unwrap();
        assert!(matches!(behind.outcome(), Some(Err(Error::Aborted { .. }))), "{behind:?}");
        stream.abort(Duration::from_millis(200)).unwrap();
        assert!(start.elapsed() < LONG / 2);
        let outcome = copy.join().unwrap().and_then(|event| event.wait(LONG));
        assert!(matches!(outcome, Err(Error::Aborted { op: "copy to device" })), "{outcome:?}");
    });
}

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn futures_that_are_dropped_leave_nothing_behind() {
    let hal = MockHal::new(presets::booted_registers(), deaf_to_copies());
    let device = Device::open_with(hal, config()).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    let kept: Vec<_> = (0..1000)
        .map(|_| {
            let wake = Arc::new(Nothing);
            let weak = Arc::downgrade(&wake);
            let waker = Waker::from(wake);
            let mut future = Box::pin(event.clone().into_future());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            weak
        })
        .collect();
    assert_eq!(kept.iter().filter(|weak| weak.strong_count() != 0).count(), 0);
}

/// A clock that goes on when the device answers.
#[derive(Debug, Default)]
struct Stepped(AtomicU64);

impl Clock for Stepped {
    fn now(&self) -> Duration {
        // A little time passes with every look, so that waits end.
        Duration::from_micros(self.0.fetch_add(10, Ordering::Relaxed))
    }
}

#[test]
fn a_copy_that_moves_may_take_longer_than_the_command_timeout() {
    let clock = Arc::new(Stepped::default());
    let its = Arc::clone(&clock);
    let mailbox = presets::answering_mailbox(move |header, command| {
        if let Command::DmaWriteList { .. } = command {
            its.0.fetch_add(300_000, Ordering::Relaxed);
        }
        presets::success(header, command)
    });
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    let config = config().clock(clock.clone()).staging_bytes(256 << 10);
    let device = Device::open_with(hal, config).unwrap();
    let buffer = device.alloc(4 << 20).unwrap();
    let before = clock.now();
    let event = device.default_stream().copy_to_device(&vec![1u8; 4 << 20], &buffer).unwrap();
    event.wait(LONG).unwrap();
    assert!(clock.now() - before > 8 * Duration::from_millis(500), "16 pieces of 0.3 s each");
}

#[test]
fn firmware_that_stops_is_noticed_without_a_caller() {
    let clock = Arc::new(Stepped::default());
    let mailbox = deaf_to_copies_and_pings();
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    let config = config().drain(Drain::Thread).clock(clock.clone()).watchdog(LONG);
    let device = Device::open_with(hal, config).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    let start = Instant::now();
    while event.outcome().is_none() && start.elapsed() < LONG {
        clock.0.fetch_add(1_000_000, Ordering::Relaxed);
        std::thread::yield_now();
    }
    let outcome = event.outcome();
    assert!(matches!(outcome, Some(Err(Error::Lost { .. }))), "{outcome:?}");
}

#[test]
fn the_loss_of_a_device_is_listed_and_told() {
    let mailbox = presets::raw_mailbox(|message| match Command::parse(message) {
        // Too short for a header.
        Ok((_, Command::FirmwareVersion { .. })) => vec![vec![0; 3]],
        Ok((header, command)) => encoded(&presets::success(header, &command)),
        Err(_) => Vec::new(),
    });
    let device = Device::open_with(MockHal::new(presets::booted_registers(), mailbox), config());
    let device = device.unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    device.on_error(move |error| {
        let is_lost = matches!(error, DeviceError::Device(Error::Lost { .. }));
        sender.send(is_lost).unwrap();
    });
    device.firmware_version(FirmwareType::MasterMinion).unwrap_err();
    device.poll();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [true]);
    let listed = device.take_errors();
    assert!(matches!(listed.errors[..], [DeviceError::Device(Error::Lost { .. })]), "{listed:?}");
    assert!(device.take_errors().is_empty());
}

fn encoded(completions: &[Completion]) -> Vec<Vec<u8>> {
    let encode = |completion: &Completion| {
        let mut bytes = vec![0; 128];
        let len = completion.encode(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    completions.iter().map(encode).collect()
}

/// A barrier does not order it: the next stream has another queue.
#[test]
fn a_launch_stays_on_the_host_until_its_kernel_is_there() {
    let launches = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&launches);
    let mailbox = presets::answering_mailbox(move |header, command| match command {
        Command::DmaWriteList { .. } => Vec::new(),
        Command::KernelLaunch(_) => {
            its.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        }
        _ => presets::success(header, command),
    });
    let device = Device::open_with(MockHal::new(presets::booted_registers(), mailbox), config());
    let device = device.unwrap();
    let elf = include_bytes!("../../../../testing/kernels/elf/entries.elf");
    let (module, copy) = device.load_module("entries", elf).unwrap();
    let kernel = module.function("second").unwrap();
    let launch = device.stream().launch(&Launch::new(&kernel)).unwrap();
    device.poll();
    assert_eq!(copy.state(), EventState::Ready);
    assert_eq!(launch.state(), EventState::Queued);
    assert_eq!(launches.load(Ordering::Relaxed), 0);
}

#[test]
fn a_failed_launch_is_executed_while_its_report_is_fetched() {
    let withheld = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&withheld);
    let mailbox = presets::answering_mailbox(move |header, command| match command {
        Command::KernelLaunch(_) => {
            let (times, status) =
                (Times { start: 1, wait: 2, execute: 3 }, LaunchStatus::Exception);
            vec![Completion::new(header.tag(), Body::Launch { times, status, error: None })]
        }
        Command::DmaReadList { .. } => {
            its.lock().unwrap().extend(presets::success(header, command));
            Vec::new()
        }
        // The next barrier brings what was withheld.
        Command::Echo => {
            let mut all = std::mem::take(&mut *its.lock().unwrap());
            all.extend(presets::success(header, command));
            all
        }
        _ => presets::success(header, command),
    });
    let device = Device::open_with(
        MockHal::new(presets::booted_registers(), mailbox),
        config().failure_messages(false),
    );
    let device = device.unwrap();
    let elf = include_bytes!("../../../../testing/kernels/elf/entries.elf");
    let (module, copy) = device.load_module("entries", elf).unwrap();
    copy.wait(LONG).unwrap();
    let kernel = module.function("second").unwrap();
    let launch = device.stream().launch(&Launch::new(&kernel)).unwrap();
    let (sender, told) = mpsc::channel();
    for state in [EventState::Executed, EventState::Failed] {
        let sender = sender.clone();
        launch.on_state(state, move |is| sender.send((state, is)).unwrap());
    }
    device.poll();
    assert_eq!(launch.state(), EventState::Executed);
    assert_eq!(told.try_recv(), Ok((EventState::Executed, EventState::Executed)));
    assert!(told.try_recv().is_err() && !launch.is_done());
    device.stream().barrier().unwrap().wait(LONG).unwrap();
    assert!(matches!(launch.wait(LONG), Err(Error::Launch { .. })));
    assert_eq!(told.try_recv(), Ok((EventState::Failed, EventState::Failed)));
    assert_eq!(launch.state(), EventState::Failed);
}

#[test]
fn a_launch_asks_for_the_eviction_of_the_l3_only_if_it_is_told_to() {
    let launches = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&launches);
    let mailbox = presets::answering_mailbox(move |header, command| {
        if let Command::KernelLaunch(_) = command {
            its.lock().unwrap().push(header.flags().contains(CommandFlags::FLUSH_L3));
        }
        presets::success(header, command)
    });
    let device = Device::open_with(MockHal::new(presets::booted_registers(), mailbox), config());
    let device = device.unwrap();
    let elf = include_bytes!("../../../../testing/kernels/elf/entries.elf");
    let (module, copy) = device.load_module("entries", elf).unwrap();
    copy.wait(LONG).unwrap();
    let kernel = module.function("second").unwrap();
    let stream = device.stream();
    // Small and large arguments, and the first launch of a context, take different ways.
    let large = vec![0; 4096];
    for args in [KernelArgs::new(), KernelArgs::new().bytes(&large, 1), KernelArgs::new()] {
        for launch in [Launch::new(&kernel), Launch::new(&kernel).flush_l3()] {
            stream.launch(&launch.args(args.clone())).unwrap().wait(LONG).unwrap();
        }
    }
    assert_eq!(*launches.lock().unwrap(), [false, true].repeat(3));
}

/// Nothing is answered: all of it is with the device, in its order.
#[test]
fn a_staged_launch_is_sent_at_once_with_a_barrier_before_each_step() {
    let sent = Arc::new(Mutex::new(None::<Vec<(&str, bool)>>));
    let its = Arc::clone(&sent);
    let mailbox = presets::answering_mailbox(move |header, command| {
        let what = match command {
            Command::DmaWriteList { .. } => "write",
            Command::KernelLaunch(_) => "launch",
            Command::DmaReadList { .. } => "read",
            _ => "other",
        };
        match &mut *its.lock().unwrap() {
            Some(sent) => {
                sent.push((what, header.flags().contains(CommandFlags::BARRIER)));
                Vec::new()
            }
            None => presets::success(header, command),
        }
    });
    let device = Device::open_with(MockHal::new(presets::booted_registers(), mailbox), config());
    let device = device.unwrap();
    let elf = include_bytes!("../../../../testing/kernels/elf/entries.elf");
    let (module, copy) = device.load_module("entries", elf).unwrap();
    copy.wait(LONG).unwrap();
    let kernel = module.function("second").unwrap();
    let buffer = device.alloc(64).unwrap();
    let into = device.host_buffer(64).unwrap();
    *sent.lock().unwrap() = Some(Vec::new());
    let (inputs, outputs) = ([(&[1u8; 64][..], buffer.whole())], [(0, buffer.whole())]);
    let stream = device.stream();
    let staged = stream.launch_staged(&inputs, &Launch::new(&kernel), &outputs, into).unwrap();
    assert_eq!(staged.event().state(), EventState::Ready);
    let sent = sent.lock().unwrap().take().unwrap();
    let [writes @ .., launch, read] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((*launch, *read), (("launch", true), ("read", true)));
    assert!(
        !writes.is_empty() && writes.iter().all(|write| *write == ("write", false)),
        "{sent:?}"
    );
}

/// As many copies to a command as the registers allow.
#[test]
fn small_copies_of_a_list_share_commands() {
    const COPIES: usize = 100;
    let lists = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let its = Arc::clone(&lists);
    let mailbox = presets::answering_mailbox(move |header, command| {
        let [writes, reads] = &mut *its.lock().unwrap();
        match command {
            Command::DmaWriteList { nodes } => writes.push(nodes.len()),
            Command::DmaReadList { nodes } => reads.push(nodes.len()),
            _ => {}
        }
        presets::success(header, command)
    });
    let device = Device::open_with(MockHal::new(presets::booted_registers(), mailbox), config());
    let device = device.unwrap();
    let buffer = device.alloc(COPIES as u64 * 64).unwrap();
    let parts: Vec<_> =
        (0..COPIES as u64).map(|part| buffer.slice(part * 64..part * 64 + 64).unwrap()).collect();
    let stream = device.default_stream();
    let list: Vec<_> =
        parts.iter().map(|part| ListedCopy::ToDevice(&[1; 64], part.clone())).collect();
    stream.copy_list(&list).unwrap().wait(LONG).unwrap();
    let mut data = vec![0; COPIES * 64];
    let mut list: Vec<_> = parts.iter().cloned().zip(data.chunks_mut(64)).collect();
    stream.read_list(&mut list, LONG).unwrap();
    let most = usize::from(device.properties().dma_max_nodes);
    let mut expected = vec![most; COPIES / most];
    expected.extend((!COPIES.is_multiple_of(most)).then_some(COPIES % most));
    assert_eq!(*lists.lock().unwrap(), [expected.clone(), expected]);
}

fn deaf_to_copies_and_pings() -> MockMailbox {
    presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } | Command::Echo => Vec::new(),
        _ => presets::success(header, command),
    })
}

#[test]
fn a_call_in_flight_ends_with_the_loss_of_the_device() {
    let count = Arc::new(AtomicU64::new(0));
    let mailbox = presets::raw_mailbox(move |message| {
        let Ok((header, command)) = Command::parse(message) else { return Vec::new() };
        if let Command::FirmwareVersion { .. } = command {
            count.fetch_add(1, Ordering::Relaxed);
            // Too short for a header.
            return vec![vec![0; 3]];
        }
        encoded(&presets::success(header, &command))
    });
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    let device = Device::open_with(hal, config().command_timeout(LONG)).unwrap();
    let start = Instant::now();
    let outcome = device.firmware_version(et_runtime::FirmwareType::MasterMinion);
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert!(start.elapsed() < LONG / 2, "it was waited for");
}
