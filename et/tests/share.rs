//! A device that a process has, and others who look at it by the sockets of its name.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::os::fd::OwnedFd;

use et::management::{ErrorSource, command_info};
use et::share::{MOST_CLIENTS, ShareError, Shared, connect, shared};
use et::{Config, Device, Error, Launch, Management, OpenError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, recv,
    send, shutdown, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use self::common::LONG;

/// A simulated card of a serial number of its own, and what it is shared as.
fn open(serial: &str) -> (Device, Shared) {
    let device = common::open(&format!("shires=1,dram=256MiB,serial={serial}"));
    (device, named(serial).unwrap())
}

fn named(serial: &str) -> Option<Shared> {
    let own = std::process::id();
    shared().into_iter().find(|it| it.pid == own && it.locator.ends_with(serial))
}

fn look(at: &Shared) -> Management {
    et::open_management(at.to_string().parse().unwrap(), Config::new()).unwrap()
}

/// A connection that speaks as it likes; the greeting is taken.
fn raw(at: &Shared) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    let Shared { pid, index, locator, .. } = at;
    let name = format!("et-soc1/{pid}/{index}/{locator}");
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &name).unwrap();
    assert!(receive(&socket).starts_with(b"ET-share"));
    socket
}

/// Another test may start a process, which has a copy of the descriptor until it runs its program.
fn leave(socket: &OwnedFd) {
    shutdown(socket, Shutdown::Both).unwrap();
}

fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut message = [0; 8192];
    let (_, len) = recv(socket, &mut message[..], RecvFlags::empty()).unwrap();
    message[..len].to_vec()
}

#[test]
fn others_read_what_the_owner_reads() {
    let (device, name) = open("look");
    let (own, other) = (device.management().unwrap(), look(&name));
    assert_eq!(other.serial_number().unwrap(), "look");
    assert_eq!(other.firmware_versions().unwrap(), own.firmware_versions().unwrap());
    assert_eq!(other.temperature_threshold_c().unwrap(), own.temperature_threshold_c().unwrap());
    own.set_temperature_threshold_c(61).unwrap();
    assert_eq!(other.temperature_threshold_c().unwrap(), 61);
    let errors = |of: &Management| of.error_counts(ErrorSource::Dram).unwrap();
    assert_eq!(errors(&other), errors(&own));
    // Counts of the owner's queue come with each answer.
    other.uptime().unwrap();
    assert_eq!(other.counters(), own.counters());
}

#[test]
fn others_see_what_the_owner_has_the_device_do() {
    let (mut device, name) = open("busy");
    let other = look(&name);
    let activity = || other.activity().unwrap().unwrap();
    assert_eq!(device.management().unwrap().activity().unwrap(), None, "its own");
    let before = activity();
    assert_eq!((before, before.pending, before.in_flight), (device.activity(), 0, 0));
    let buffer = device.alloc(3 << 20).unwrap();
    let stream = device.stream();
    let hang = common::load(&device, "hang");
    let running = stream.launch(&Launch::new(&hang)).unwrap();
    let behind = device.stream();
    behind.wait_for(&running);
    let waiting = behind.barrier().unwrap();
    // The runtime has commands of its own on their way, which end meanwhile.
    let start = std::time::Instant::now();
    let now = loop {
        let (own, seen) = (device.activity(), activity());
        if own == device.activity() {
            assert_eq!(seen, own);
            break seen;
        }
        assert!(start.elapsed() < LONG, "it is never quiet: {own:?}");
    };
    assert_eq!((now.streams, now.pending), (before.streams + 2, 2));
    assert!(now.in_flight >= 1, "the launch, and what the runtime prepares for the next");
    assert!(now.accepted >= before.accepted + 2 && now.buffers > before.buffers);
    assert!(now.memory_used_bytes >= before.memory_used_bytes + (3 << 20));
    assert_eq!(now.memory_bytes, device.memory_stats().total_bytes);
    device.abort(&running, LONG).unwrap();
    waiting.wait(LONG).unwrap();
    device.default_stream().synchronize(LONG).unwrap();
    assert_eq!(activity().pending, 0);
    drop((buffer, stream, behind, hang));
    assert!(activity().memory_used_bytes < now.memory_used_bytes);
    assert_eq!(activity().streams, before.streams);
    device.reset(LONG).unwrap();
    assert_eq!(activity(), device.activity());
    device.close();
    assert!(matches!(other.activity(), Err(Error::Closed { .. })));
}

#[test]
fn others_change_nothing() {
    let (device, name) = open("keep");
    let (own, other) = (device.management().unwrap(), look(&name));
    let before = own.temperature_threshold_c().unwrap();
    let refused = [
        other.set_temperature_threshold_c(before + 1),
        other.set_part_number(0x1234),
        other.reset_operations().map(drop),
        other.reset_chip(),
        other.update_firmware(&[1; 64], "image"),
        other.event(LONG).map(drop),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("left to the process that has the card"), "{error}");
    }
    assert_eq!(own.temperature_threshold_c().unwrap(), before);
    // Nor do they read memory or registers, whatever program they use.
    let socket = raw(&name);
    for command in et_devapi::msg::mgmt::calls::COMMANDS.iter().filter(|c| c.id >= 128) {
        assert!(!command.is_query(), "{}", command.name);
        let request = [&command.id.to_le_bytes()[..], &1000_u32.to_le_bytes(), &[0; 24]].concat();
        send(&socket, &request, SendFlags::empty()).unwrap();
        assert_eq!(receive(&socket)[..2], [3, 0], "{}", command.name);
    }
    device.default_stream().synchronize(LONG).unwrap();
}

#[test]
fn a_reset_of_the_device_is_no_end_and_its_close_is() {
    let (mut device, name) = open("reset");
    let other = look(&name);
    other.uptime().unwrap();
    device.reset(LONG).unwrap();
    assert_eq!(other.serial_number().unwrap(), "reset");
    device.reset_operations(LONG).unwrap();
    assert_eq!(other.serial_number().unwrap(), "reset");
    assert_eq!(named("reset"), Some(name.clone()));
    device.close();
    assert!(matches!(other.serial_number(), Err(Error::Closed { .. })));
    assert_eq!(named("reset"), None);
    let error = connect(name.pid, Some(name.index)).unwrap_err();
    assert!(matches!(error, ShareError::Missing { .. }), "{error:?}");
}

#[test]
fn strangers_on_the_socket_do_no_harm() {
    let (device, name) = open("strange");
    // What makes no sense ends the connection, and nothing else.
    let long = [7; 5000];
    for nonsense in [&[][..], &[1, 2, 3], &long] {
        let socket = raw(&name);
        send(&socket, nonsense, SendFlags::empty()).unwrap();
        assert!(receive(&socket).is_empty(), "{nonsense:?}");
    }
    // A payload larger than any command's, and a command that there is none of.
    let socket = raw(&name);
    for (id, len) in [(27_u16, 2000), (9999, 8)] {
        let request = [&id.to_le_bytes()[..], &1000_u32.to_le_bytes(), &vec![0; len]].concat();
        send(&socket, &request, SendFlags::empty()).unwrap();
        assert_eq!(receive(&socket)[..2], [3, 0], "{id}");
    }
    // Who asks and never reads is let go of when there is no more room for answers.
    let request = [&27_u16.to_le_bytes()[..], &1000_u32.to_le_bytes(), &[0; 8]].concat();
    while send(&socket, &request, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok() {}
    let other = look(&name);
    assert_eq!(other.serial_number().unwrap(), "strange");
    // As many as may look; the next one is told so, and gets in when one has left.
    // It may have been let go of already.
    let (Ok(()) | Err(_)) = shutdown(&socket, Shutdown::Both);
    let mut crowd: Vec<_> = (1..MOST_CLIENTS).map(|_| raw(&name)).collect();
    assert_eq!(other.serial_number().unwrap(), "strange");
    let error = connect(name.pid, Some(name.index)).unwrap_err();
    assert!(matches!(error, ShareError::Crowded { .. }), "{error:?}");
    leave(&crowd.pop().unwrap());
    assert_eq!(other.serial_number().unwrap(), "strange");
    assert_eq!(look(&name).serial_number().unwrap(), "strange");
    device.close();
}

/// A child of a fork that has copies of all descriptors, until it is told to end or for [`LONG`].
struct Child {
    pid: Pid,
    alive: OwnedFd,
}

impl Child {
    /// `work` is done in the child.
    #[expect(unsafe_code, reason = "forks")]
    fn new(work: impl FnOnce()) -> Self {
        let (end, alive) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // SAFETY: the child uses memory and system calls only, and does not return.
        match unsafe { libc::fork() } {
            0 => {
                drop(alive);
                let seconds = LONG.as_secs().try_into().unwrap_or(libc::c_uint::MAX);
                // SAFETY: the signal ends the child, whatever it does.
                unsafe { libc::alarm(seconds) };
                work();
                let mut fds = [PollFd::new(&end, PollFlags::IN)];
                let (Ok(_) | Err(_)) = poll(&mut fds, None);
                // SAFETY: ends the child without the parent's handlers.
                unsafe { libc::_exit(0) }
            }
            pid => Self { pid: Pid::from_raw(pid).unwrap(), alive },
        }
    }

    /// Returns `true` if it ended because it was told to.
    fn end(self) -> bool {
        drop(self.alive);
        let (_, status) = waitpid(Some(self.pid), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status() == Some(0)
    }
}

#[test]
fn the_child_of_a_fork_keeps_no_connection_open() {
    let (device, name) = open("forked");
    let crowd: Vec<_> = (0..MOST_CLIENTS).map(|_| look(&name)).collect();
    let child = Child::new(|| {});
    drop(crowd);
    let other = look(&name);
    assert_eq!(other.serial_number().unwrap(), "forked");
    device.close();
    let error = other.serial_number().unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    let error = connect(name.pid, Some(name.index)).unwrap_err();
    assert!(matches!(error, ShareError::Missing { .. }), "{error:?}");
    assert!(child.end(), "all of this has waited for the child");
}

#[test]
fn what_the_child_of_a_fork_drops_stays_with_the_parent() {
    let (device, _) = open("dropped");
    let share = et::share::share(&device, "sim:dropped too").unwrap();
    let other = look(share.name());
    let mut copies = Some((share, other));
    assert!(Child::new(|| drop(copies.take())).end(), "dropping in the child does not end");
    let (share, other) = copies.unwrap();
    assert_eq!(other.serial_number().unwrap(), "dropped");
    assert_eq!(look(share.name()).serial_number().unwrap(), "dropped");
}

#[test]
fn another_user_is_not_answered() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped, because only root can be another user");
        return;
    }
    let (_device, name) = open("private");
    let Shared { pid, index, .. } = name;
    // The credentials of a thread are its own.
    let other = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        connect(pid, Some(index)).map(drop).unwrap_err()
    });
    let error = other.join().unwrap();
    assert!(matches!(error, ShareError::ForeignUser { .. }), "{error:?}");
    assert_eq!(look(&name).serial_number().unwrap(), "private");
}

#[test]
fn it_can_be_looked_at_and_not_opened() {
    let (_device, name) = open("not-opened");
    let locator: et::Locator = name.to_string().parse().unwrap();
    assert_eq!(locator.to_string(), name.to_string());
    let error = et::open_with(locator, Config::new()).unwrap_err();
    assert!(matches!(error, OpenError::OfProcess { pid } if pid == name.pid), "{error:?}");
    for bad in ["process:", "process:x", "process:1/", "process:1/x", "process:-1"] {
        let error = bad.parse::<et::Locator>().unwrap_err();
        assert!(matches!(error, et::LocatorError::Process(_)), "{bad}: {error:?}");
    }
    // Process 0 is none.
    let error = et::open_management("process:0".parse().unwrap(), Config::new()).unwrap_err();
    let missing = matches!(error, OpenError::Share(ShareError::Missing { pid: 0, index: None }));
    assert!(missing, "{error:?}");
}

#[test]
fn the_environment_keeps_a_process_from_sharing() {
    // A process of its own: this same test, with the variable set.
    if std::env::var_os(et::share::VARIABLE).is_some() {
        let device = common::open("shires=1,dram=256MiB,serial=alone");
        assert_eq!(device.management().unwrap().serial_number().unwrap(), "alone");
        assert_eq!(named("alone"), None);
        let share = et::share::share(&device, "sim:alone").unwrap();
        assert_eq!(named("alone").as_ref(), Some(share.name()));
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "the_environment_keeps_a_process_from_sharing"]);
    let output = again.env(et::share::VARIABLE, "no").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn the_queries_are_those_that_only_ask() {
    let is_query = |id| command_info(id).unwrap().is_query();
    // The first and the last text, sensors, counters; setters, resets, events, not handled.
    assert!([0, 14, 23, 27, 30, 45, 61, 73].into_iter().all(is_query));
    assert!(![12, 15, 22, 28, 37, 52, 62, 64, 65, 68, 133, 143].into_iter().any(is_query));
}
