//! The simulated card as a process of its own, as its users meet it.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "process/simd.rs"]
mod simd;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use et::executor::{ExecutorConfig, Place as Executes, TaskState};
use et::graph::{GraphBuilder, Task};
use et::hal::{AccessPath, Bar, BarOffset, ErrorKind, Hal, LossReason, Mmio};
use et::{AnyHal, Device, DeviceBuffer, Error, Event, Kernel, Launch};
use et_vfio_user::{Client, NoHostMemory};
use rustix::process::Signal;
use simd::{LONG, Place, chain, lines, possessions, program, text, until};

const LARGE: usize = 64 << 20;

fn load(device: &Device<AnyHal>, name: &str) -> Kernel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    let elf = std::fs::read(folder.join(format!("{name}.elf"))).unwrap();
    device.load_kernel(name, &elf).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 41 + i / 4096) % 249).unwrap()).collect()
}

/// Copies and a kernel.
fn works(device: &Device<AnyHal>) {
    let stream = device.default_stream();
    let data = pattern((1 << 20) + 5);
    let buffer = device.alloc(data.len() as u64).unwrap();
    let _ = stream.copy_to_device(&data, &buffer).unwrap();
    let mut back = vec![0; data.len()];
    stream.read(&buffer, &mut back, LONG).unwrap();
    assert!(back == data);
    let add = load(device, "add");
    let x = device.alloc(64).unwrap();
    let _ = stream.copy_to_device(&[1.5_f32; 16], &x).unwrap();
    let launch = Launch::new(&add).buffer(&x).buffer(&x).buffer(&x).u64(16);
    stream.launch(&launch).unwrap().wait(LONG).unwrap();
    let mut sum = [0.0_f32; 16];
    stream.read(&x, &mut sum, LONG).unwrap();
    assert_eq!(sum, [3.0; 16]);
}

/// Starts a kernel that never ends, and returns when the firmware has it.
fn hang(device: &Device<AnyHal>) -> Event {
    let event = device.stream().launch(&Launch::new(&load(device, "hang"))).unwrap();
    let word = device.alloc(64).unwrap();
    // Queues are in order, and streams take turns on them: one of these is behind the launch.
    for _ in 0..8 {
        device.stream().fill(&word, 1).unwrap().wait(LONG).unwrap();
    }
    assert!(!event.is_done());
    event
}

/// The error says that the process has gone and what to do, and is no deadline.
#[track_caller]
fn check_gone(error: &Error) {
    let text = chain(error);
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{text}");
    assert!(text.contains("start it and open the device again"), "{text}");
}

#[test]
fn it_says_where_it_listens_and_tidies_up_at_the_end() {
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let simd = place.start();
        works(&place.open());
        simd.signal(signal);
        assert!(simd.end().success());
        assert!(!place.socket().exists(), "the socket is removed");
    }
}

#[test]
fn help_names_every_option() {
    let output = program().arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = text(&output.stdout);
    for option in ["--socket", "--board", "--trap", "--open-at-once", "--once", "SIGTERM"] {
        assert!(help.contains(option), "{option} in {help}");
    }
    let version = program().arg("--version").output().unwrap();
    assert!(text(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_arguments_are_named_and_the_exit_code_is_2() {
    for (args, said) in [
        (&[][..], "--socket"),
        (&["--socket", "x", "--sockets", "y"], "--sockets"),
        (&["--socket", "x", "--board", "shire=2"], "unknown key"),
        (&["--socket", "x", "--board", "dram=1"], "from 128 MiB to 32 GiB"),
        (&["--socket", "x", "--board", "fault=none"], "never-boots"),
    ] {
        let output = program().args(args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let place = Place::new();
    let socket = place.socket().join("card").display().to_string();
    let output = program().args(["--socket", &socket]).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&socket) && stderr.contains("check that its folder exists"),
        "{stderr}"
    );
}

#[test]
fn a_socket_that_a_killed_process_has_left_is_replaced() {
    let place = Place::new();
    place.start().kill();
    assert!(place.socket().exists());
    let error = place.try_open().map(drop).unwrap_err();
    assert!(chain(&error).contains("is the device process running?"), "{}", chain(&error));
    let _simd = place.start();
    works(&place.open());
}

#[test]
fn a_socket_that_is_in_use_is_left_alone() {
    let place = Place::new();
    let mut simd = place.start();
    let device = place.open();
    // One while a client is served, one while none is.
    let refused = || {
        let output = place.run(&["--board", "dram=128MiB"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("another process already listens on"), "{stderr}");
    };
    refused();
    works(&device);
    drop(device);
    refused();
    assert!(simd.is_running());
    works(&place.open());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new();
    std::fs::write(place.socket(), "precious").unwrap();
    let mut child =
        program().arg("--socket").arg(place.socket()).stdout(Stdio::piped()).spawn().unwrap();
    // It ends without having listened.
    let said = lines(child.stdout.take().unwrap()).recv_timeout(LONG);
    child.kill().unwrap();
    child.wait().unwrap();
    let left = std::fs::read_to_string(place.socket());
    assert_eq!(left.ok().as_deref(), Some("precious"), "it said {said:?}");
}

#[test]
fn a_client_hears_that_the_process_is_told_to_stop() {
    let place = Place::new();
    let simd = place.start();
    let device = place.open();
    let event = hang(&device);
    simd.signal(Signal::TERM);
    let error = event.wait(LONG).unwrap_err();
    // The request came first: the process was still there.
    assert_eq!(error.kind(), ErrorKind::Lost(LossReason::Removed), "{}", chain(&error));
    assert!(chain(&error).contains("drop all handles so that it can go on"), "{}", chain(&error));
    drop((device, event));
    assert!(simd.end().success());
    assert!(!place.socket().exists());
}

#[test]
fn a_client_that_does_not_let_go_is_left_behind() {
    let place = Place::new();
    let simd = place.start();
    let device = place.open();
    let buffer = device.alloc(4096).unwrap();
    simd.signal(Signal::TERM);
    assert!(simd.end().success());
    assert!(!place.socket().exists());
    let copy = device.default_stream().copy_to_device(&[1_u8; 4096], &buffer);
    let error = copy.and_then(|event| event.wait(LONG)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{}", chain(&error));
}

#[test]
fn a_bus_error_can_be_reported_from_outside() {
    let place = Place::new();
    let simd = place.start();
    let mut device = place.open();
    let event = hang(&device);
    simd.signal(Signal::USR1);
    let error = event.wait(LONG).unwrap_err();
    assert!(chain(&error).contains("reset the device or the slot"), "{}", chain(&error));
    device.reset(LONG).unwrap();
    works(&device);
}

type Step = fn(&Device<AnyHal>, &DeviceBuffer, &[u8]) -> et::Result<()>;

/// 64 MiB, in pieces or in one command.
const COPIES: [(&str, Step); 3] = [
    ("through staging to the device", |device, buffer, data| {
        device.default_stream().copy_to_device(data, buffer)?.wait(LONG).map(drop)
    }),
    ("through staging to the host", |device, buffer, data| {
        device.default_stream().read(buffer, &mut data.to_vec(), LONG)
    }),
    ("directly", |device, buffer, _| {
        let host = device.host_buffer(LARGE)?;
        let transfer = device.default_stream().download(buffer, host)?;
        transfer.wait(LONG).map(drop).map_err(|failed| failed.error)
    }),
];

#[test]
fn a_process_that_is_killed_in_a_copy_is_a_clear_error_and_can_be_started_again() {
    let place = Place::new();
    let data = pattern(LARGE);
    let before = possessions();
    for (name, step) in COPIES {
        let simd = place.start();
        let device = place.open();
        let buffer = device.alloc(LARGE as u64).unwrap();
        let copies = AtomicUsize::new(0);
        let error = std::thread::scope(|scope| {
            let copier = scope.spawn(|| {
                loop {
                    if let Err(error) = step(&device, &buffer, &data) {
                        break error;
                    }
                    copies.fetch_add(1, Ordering::Relaxed);
                }
            });
            // There is nothing but copies, so one is being made.
            until("copies", || copies.load(Ordering::Relaxed) > 1 || copier.is_finished());
            simd.kill();
            copier.join().unwrap()
        });
        assert!(copies.load(Ordering::Relaxed) > 1, "{name}: {}", chain(&error));
        check_gone(&error);
        // The same path, the same process.
        let _simd = place.start();
        let again = place.open();
        works(&again);
        let later = device.default_stream().copy_to_device(&data, &buffer).map(drop);
        check_gone(&later.unwrap_err());
        drop((device, buffer));
        works(&again);
    }
    until("the end of all handles", || possessions() == before);
}

#[test]
fn a_process_that_is_killed_in_a_kernel_is_a_clear_error_and_can_be_started_again() {
    let place = Place::new();
    let before = possessions();
    for _ in 0..3 {
        let simd = place.start();
        let device = place.open();
        let event = hang(&device);
        simd.kill();
        check_gone(&event.wait(LONG).unwrap_err());
        // Whatever is called now, says so too.
        check_gone(&device.alloc(64).map(drop).unwrap_err());
        check_gone(&device.reset_compute(LONG).unwrap_err());
        let _simd = place.start();
        works(&place.open());
        drop((device, event));
    }
    until("the end of all handles", || possessions() == before);
}

#[test]
fn a_process_that_is_killed_in_a_graph_ends_the_run() {
    let place = Place::new();
    let before = possessions();
    for part in [Executes::Streams, Executes::Resident] {
        let simd = place.start();
        let device = place.open();
        let executor = device.executor(&ExecutorConfig::new().place(part).cores(8)).unwrap();
        let [word, x] = [(); 2].map(|()| device.alloc(64).unwrap());
        for buffer in [&word, &x] {
            device.default_stream().fill(buffer, 0).unwrap().wait(LONG).unwrap();
        }
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&load(&device, "add_scalar"));
        let hang = builder.kernel(&load(&device, "task_hang"));
        let first = Task::new(add).input(x.whole()).output(x.whole()).f32(1.0).u64(16);
        let first = builder.add(first).unwrap();
        let second = Task::new(hang).u64(1).in_out(word.whole()).after(first);
        let second = builder.add(second).unwrap();
        let run = executor.launch(&builder.build().unwrap()).unwrap();
        until("the first task", || {
            let mut found = [0.0_f32; 16];
            device.default_stream().read(&x, &mut found, LONG).unwrap();
            found == [1.0; 16] || run.wait(Duration::from_millis(1)).is_ok()
        });
        assert!(!run.is_done(), "{part}: {:?}", run.outcome());
        simd.kill();
        let text = match run.wait(LONG) {
            Ok(outcome) => {
                assert_ne!(outcome.state(second), TaskState::Complete, "{part}");
                chain(&outcome.check().unwrap_err())
            }
            Err(error) => chain(&error),
        };
        assert!(text.contains("start it and open the device again"), "{part}: {text}");
    }
    until("the end of all handles", || possessions() == before);
}

/// As under a debugger, or on a machine that sleeps.
#[test]
fn a_process_that_is_stopped_for_a_while_is_waited_for() {
    let place = Place::new();
    let simd = place.start();
    let device = place.open();
    let buffer = device.alloc(4096).unwrap();
    let copy = || device.default_stream().copy_to_device(&[7_u8; 4096], &buffer).unwrap();
    copy().wait(LONG).unwrap();
    simd.signal(Signal::STOP);
    until("the stop", || simd.is_stopped());
    let event = copy();
    let error = event.wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{}", chain(&error));
    simd.signal(Signal::CONT);
    event.wait(LONG).unwrap();
    works(&device);
}

#[test]
fn a_reset_cannot_bring_a_killed_process_back() {
    let place = Place::new();
    let simd = place.start();
    let mut device = place.open();
    simd.kill();
    check_gone(&device.reset(LONG).unwrap_err());
}

/// Where the client of the next test finds its socket, and what it does.
const SOCKET: &str = "ET_SIMD_TEST_SOCKET";
const WORK: &str = "ET_SIMD_TEST_WORK";

/// Uses the card until it is killed.
#[expect(clippy::print_stdout, reason = "the test that started this process waits for the line")]
fn be_a_client(socket: &str, work: &str) -> ! {
    let device = et::open(&format!("vfio-user:{socket}")).unwrap();
    let buffer = device.alloc(LARGE as u64).unwrap();
    let data = pattern(LARGE);
    let event = (work == "kernel").then(|| hang(&device));
    // The harness has left its line open.
    println!("\nbusy");
    if let Some(event) = event {
        panic!("{:?}", event.wait(Duration::MAX));
    }
    for (_, step) in COPIES.iter().cycle() {
        step(&device, &buffer, &data).unwrap();
    }
    unreachable!("a cycle does not end")
}

#[test]
fn a_client_that_is_killed_leaves_nothing_on_the_card() {
    if let (Ok(socket), Ok(work)) = (std::env::var(SOCKET), std::env::var(WORK)) {
        be_a_client(&socket, &work);
    }
    let place = Place::new();
    let mut simd = place.start();
    // The eventfds for doorbells are made for the first client, and stay.
    let descriptors = simd.descriptors() + 3;
    works(&place.open());
    until("the end of the first client", || {
        simd.windows() == 0 && simd.descriptors() == descriptors
    });
    for work in ["copy", "kernel", "copy"] {
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_client_that_is_killed_leaves_nothing_on_the_card", "--nocapture"])
            .env(SOCKET, place.socket())
            .env(WORK, work)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = lines(client.stdout.take().unwrap());
        while said.recv_timeout(LONG).expect("the client gets to work") != "busy" {}
        until("memory of the client", || simd.windows() != 0 || work == "kernel");
        client.kill().unwrap();
        client.wait().unwrap();
        until("the end of its memory", || simd.windows() == 0);
        until("the end of its descriptors", || simd.descriptors() == descriptors);
        assert!(simd.is_running());
        works(&place.open());
    }
}

#[test]
fn once_means_one_client() {
    let place = Place::new();
    let simd = place.start_with(&["--once"]);
    works(&place.open());
    assert!(simd.end().success());
    assert!(!place.socket().exists());
}

/// As health checks do, and a second server that looks whether the socket is in use.
#[test]
fn who_only_looks_is_no_client() {
    let place = Place::new();
    let simd = place.start_with(&["--once"]);
    drop(UnixStream::connect(place.socket()).unwrap());
    works(&place.open());
    assert!(simd.end().success());
}

#[test]
fn trapped_bars_work_too() {
    let place = Place::new();
    for (args, direct) in [(&[][..], true), (&["--trap"], false)] {
        let _simd = place.start_with(args);
        let client = connect(&place);
        for bar in [0, 2] {
            assert_eq!(client.region_info(bar).unwrap().areas.is_empty(), !direct);
        }
        drop(client);
        let device = place.open();
        if !direct {
            let window = device.hal().window(Bar::new(0).unwrap()).unwrap();
            assert_eq!(window.path(BarOffset::new(0), 8), AccessPath::Trapped);
        }
        works(&device);
    }
}

fn connect(place: &Place) -> Client {
    Client::connect(place.socket(), Arc::new(NoHostMemory), LONG).unwrap()
}

/// Status of the management endpoint, as reads of its BAR tell.
fn status(client: &Client) -> u16 {
    let mut bytes = [0; 2];
    client.read(2, 0x1000 + 44, &mut bytes).unwrap();
    u16::from_le_bytes(bytes)
}

#[test]
fn the_card_waits_for_its_host_unless_told_not_to() {
    const READY: u16 = 12;
    let enable_memory = |client: &Client| client.write(7, 4, &[0x06, 0x00]).unwrap();
    let place = Place::new();
    {
        let _simd = place.start_with(&["--trap", "--open-at-once"]);
        let client = connect(&place);
        enable_memory(&client);
        until("boot", || status(&client) == READY);
        drop(client);
        works(&place.open());
    }
    let _simd = place.start_with(&["--trap"]);
    let client = connect(&place);
    enable_memory(&client);
    assert_eq!(status(&client), 0xffff, "MSIs are not enabled");
    drop(client);
    works(&place.open());
}
