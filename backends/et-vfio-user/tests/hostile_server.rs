//! The client against servers that do not keep to the protocol, or die.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod support;

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use et_vfio_user::wire::{DmaAccess, Header, RegionAccess, flag};
use et_vfio_user::{
    Access, Client, ClientError, Closed, Command, Errno, HostMemory, IrqAction, IrqSet,
    NoHostMemory,
};
use support::{LONG, Raw, event, readable};
use zerocopy::IntoBytes;

/// Agrees on a version with these words, then behaves as `act` says; returns what `drive` returns.
fn with_server<T>(
    text: &'static [u8],
    timeout: Duration,
    act: impl FnOnce(&mut Raw) + Send,
    drive: impl FnOnce(Result<Client, ClientError>) -> T,
) -> T {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut raw = Raw(far);
            let (header, _) = raw.receive();
            let body = [&[0, 0, 1, 0], text].concat();
            raw.send(&[header.reply(body.len()).as_bytes(), &body].concat());
            act(&mut raw);
        });
        drive(Client::from_stream(near, Arc::new(NoHostMemory), timeout))
    })
}

/// A server whose next answer is made by `reply`; the connection then has to be as `drive` says.
fn answering<T>(reply: impl Fn(&Header) -> Vec<u8> + Sync, drive: impl FnOnce(Client) -> T) -> T {
    with_server(
        b"",
        LONG,
        |raw| {
            let (header, _) = raw.receive();
            raw.send(&reply(&header));
            // Until the client goes.
            raw.is_closed();
        },
        |client| drive(client.unwrap()),
    )
}

#[test]
fn refusal_without_errno_is_still_one() {
    let error = answering(
        |header| header.refusal(0).as_bytes().to_vec(),
        |client| client.read(0, 0, &mut [0; 4]).unwrap_err(),
    );
    assert!(matches!(error, ClientError::Refused { errno: Errno::IO, .. }), "{error:?}");
    for errno in [4096, u32::MAX] {
        let error = answering(
            |header| header.refusal(errno).as_bytes().to_vec(),
            |client| client.set_irqs(0, 0, IrqAction::Mask, IrqSet::All(1)).unwrap_err(),
        );
        assert!(matches!(error, ClientError::Refused { errno: Errno::IO, .. }), "{error:?}");
    }
}

#[test]
fn replies_to_nothing_close_the_connection() {
    let other_id = |header: &Header| {
        let mut reply = header.reply(0);
        reply.id = (header.id.get() + 1).into();
        reply.as_bytes().to_vec()
    };
    let other_command = |header: &Header| {
        let mut reply = header.reply(0);
        reply.command = Command::DmaMap.code().into();
        reply.as_bytes().to_vec()
    };
    for reply in [&other_id as &(dyn Fn(&Header) -> Vec<u8> + Sync), &other_command] {
        answering(reply, |client| {
            let error = client.reset(LONG).unwrap_err();
            let ClientError::Disconnected(Closed::UnexpectedReply { .. }) = error else {
                panic!("{error:?}")
            };
            assert!(readable(client.closed_fd()));
        });
    }
}

#[test]
fn wrong_replies_are_told() {
    let access = |offset: u64, count: u32, data: &[u8]| {
        let (offset, region, count) = (offset.into(), 0.into(), count.into());
        [RegionAccess { offset, region, count }.as_bytes(), data].concat()
    };
    for body in [
        vec![],
        vec![0; 15],
        access(0, 4, &[]),
        access(0, 4, &[0; 3]),
        access(0, 4, &[0; 5]),
        access(0, 3, &[0; 3]),
        access(8, 4, &[0; 4]),
    ] {
        let error = answering(
            |header| [header.reply(body.len()).as_bytes(), &body].concat(),
            |client| client.read(0, 0, &mut [0; 4]).unwrap_err(),
        );
        assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
    }
    // Longer than anything asked for: skipped.
    let error = answering(
        |header| [header.reply(2 << 20).as_bytes(), &vec![0; 2 << 20]].concat(),
        |client| client.device_info().unwrap_err(),
    );
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
    // A region that would need a reply of 4 GiB.
    let error = answering(
        |header| [header.reply(32).as_bytes(), &[255; 32]].concat(),
        |client| client.region_info(0).unwrap_err(),
    );
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
}

#[test]
fn descriptors_that_are_missing_or_too_many_are_told() {
    let error = answering(
        |header| {
            let body = [[56_u32, 0, 0, 1].as_bytes(), &[0; 40]].concat();
            [header.reply(body.len()).as_bytes(), &body].concat()
        },
        |client| client.io_fds(0).unwrap_err(),
    );
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
    let event = event();
    let error = with_server(
        b"",
        LONG,
        |raw| {
            let (header, _) = raw.receive();
            let reply = [header.reply(16).as_bytes(), &[0; 16]].concat();
            raw.send_with(&reply, &[event.as_fd(); 17]);
            raw.is_closed();
        },
        |client| client.unwrap().device_info().unwrap_err(),
    );
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
}

#[test]
fn late_replies_are_dropped() {
    let (timed_out, wait) = mpsc::channel();
    with_server(
        b"",
        Duration::from_millis(400),
        move |raw| {
            let (late, _) = raw.receive();
            wait.recv_timeout(LONG).unwrap();
            raw.send(&[late.reply(16).as_bytes(), &[1; 16]].concat());
            let (header, _) = raw.receive();
            assert_ne!(header.id, late.id);
            raw.send(&[header.reply(16).as_bytes(), &[2; 16]].concat());
            raw.is_closed();
        },
        |client| {
            let client = client.unwrap();
            let error = client.device_info().unwrap_err();
            assert!(matches!(error, ClientError::Timeout { command: Command::DeviceInfo, .. }));
            timed_out.send(()).unwrap();
            assert_eq!(client.device_info().unwrap().irqs, 0x0202_0202);
        },
    );
}

#[test]
fn reply_to_a_posted_write_is_dropped() {
    answering(
        |header| {
            assert!(header.has(flag::NO_REPLY));
            header.refusal(5).as_bytes().to_vec()
        },
        |client| {
            client.posted_write(0, 0, &[0; 4]).unwrap();
            // Reads the reply, then nothing more.
            let within = Duration::from_millis(100);
            assert!(matches!(client.reset(within), Err(ClientError::Timeout { .. })));
            assert!(client.closed().is_none());
        },
    );
}

#[test]
fn servers_may_die_in_a_reply() {
    for cut in 0..20 {
        with_server(
            b"",
            LONG,
            |raw| {
                let (header, _) = raw.receive();
                raw.send(&[header.reply(4).as_bytes(), &[0; 4]].concat()[..cut]);
                // Goes by dropping the socket.
            },
            |client| {
                let error = client.unwrap().reset(LONG).unwrap_err();
                assert!(matches!(error, ClientError::Disconnected(_)), "{error:?}");
            },
        );
    }
}

#[test]
fn a_server_that_does_not_read_is_not_waited_for() {
    let (done, wait) = mpsc::channel();
    with_server(
        b"",
        Duration::from_millis(400),
        move |raw| {
            // Keeps the socket open and does not read.
            wait.recv_timeout(LONG).unwrap();
            raw.0.flush().unwrap();
        },
        |client| {
            let client = client.unwrap();
            let error = loop {
                if let Err(error) = client.posted_write(0, 0, &[0; 4]) {
                    break error;
                }
            };
            assert!(matches!(error, ClientError::Timeout { command: Command::RegionWrite, .. }));
            done.send(()).unwrap();
        },
    );
}

#[test]
fn other_versions_are_named() {
    for (text, said) in [
        (&b"{}"[..], "NUL"),
        (b"[]\0", "object"),
        (b"{\"capabilities\":{\"max_msg_fds\":\"many\"}}\0", "max_msg_fds"),
    ] {
        let error = with_server(text, LONG, |_| {}, Result::unwrap_err);
        assert!(matches!(&error, ClientError::Version(what) if what.contains(said)), "{error:?}");
    }
}

#[test]
fn servers_without_descriptors_get_none() {
    with_server(
        b"{\"capabilities\":{\"max_msg_fds\":0}}\0",
        LONG,
        |_| {},
        |client| {
            let client = client.unwrap();
            let event = event();
            let set = [Some(event.as_fd())];
            let set = client.set_irqs(1, 0, IrqAction::Trigger, IrqSet::Eventfds(&set));
            assert!(matches!(set, Err(ClientError::Argument { .. })), "{set:?}");
            let file = Some((event.as_fd(), 0));
            let map = client.dma_map(0, 4096, Access::READ, file);
            assert!(matches!(map, Err(ClientError::Argument { .. })), "{map:?}");
        },
    );
}

/// Fails on purpose where a wrong length would come through.
struct Page;

impl HostMemory for Page {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        assert!(into.len() <= 1 << 20);
        if address != 0x1000 {
            return Err(Errno::FAULT);
        }
        into.fill(7);
        Ok(())
    }

    fn write(&self, _address: u64, from: &[u8]) -> Result<(), Errno> {
        assert_eq!(from, [1, 2, 3, 4]);
        Ok(())
    }
}

#[test]
fn requests_of_the_device_are_checked() {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    let connecting =
        std::thread::spawn(move || Client::from_stream(near, Arc::new(Page), LONG).unwrap());
    let mut raw = Raw(far);
    let (header, _) = raw.receive();
    raw.send(&[header.reply(4).as_bytes(), &[0; 4]].concat());
    let client = connecting.join().unwrap();
    let dma = |address: u64, count: u64, data: &[u8]| {
        let access = DmaAccess { address: address.into(), count: count.into() };
        [access.as_bytes(), data].concat()
    };
    let (read, write) = (Command::DmaRead, Command::DmaWrite);
    let fault = Errno::FAULT.raw_os_error().unsigned_abs();
    let invalid = Errno::INVAL.raw_os_error().unsigned_abs();
    for (command, body, errno) in [
        (read, vec![0; 15], invalid),
        (read, dma(0x1000, 4, &[0]), invalid),
        (read, dma(0x1000, (1 << 20) + 1, &[]), invalid),
        (read, dma(0x1000, u64::MAX, &[]), invalid),
        (read, dma(0x2000, 4, &[]), fault),
        (read, dma(u64::MAX, 2, &[]), fault),
        (write, dma(0x1000, 4, &[1, 2, 3]), invalid),
        (write, dma(0x1000, 4, &[1, 2, 3, 4, 5]), invalid),
        (Command::RegionRead, vec![], Errno::OPNOTSUPP.raw_os_error().unsigned_abs()),
    ] {
        let message = Raw::message(command, &body);
        raw.send(&message);
        assert_eq!(raw.refusal(), errno, "{command:?} {}", body.len());
    }
    assert_eq!(raw.ask(read, &dma(0x1000, 3, &[])).1, dma(0x1000, 3, &[7, 7, 7]));
    assert_eq!(raw.ask(write, &dma(0, 4, &[1, 2, 3, 4])).1, dma(0, 4, &[]));
    raw.send_with(&Raw::message(read, &dma(0x1000, 3, &[])), &[event().as_fd()]);
    assert_eq!(raw.refusal(), invalid);
    drop(client);
    assert!(raw.is_closed());
}
