//! Whatever comes, both sides answer or close, and go on.

mod support;

use std::cell::RefCell;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use et_vfio_user::wire::{Header, flag};
use et_vfio_user::{Access, Client, ClientError, Command, IrqAction, IrqSet, NoHostMemory};
use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};
use proptest::test_runner::{Config, TestRunner};
use support::{LONG, Raw, Served, event};
use zerocopy::IntoBytes;

/// Words that mean something more often than random ones.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..40_u32,
        prop::sample::select(&[0x24_u32, 0x21, 0x22, 0x1000, 1 << 20, u32::MAX, 1 << 31][..]),
        any::<u32>(),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(word(), 0..16).prop_map(|words| words.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..100),
    ]
}

#[test]
fn every_request_is_answered_and_the_next_one_too() {
    let served = Served::new();
    let given = event();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let raw = RefCell::new(served.raw());
    let requests = (0..20_u16, body(), 0..4_usize);
    runner
        .run(&requests, |(command, body, fds)| {
            let mut raw = raw.borrow_mut();
            let mut header = Header::request(9, Command::Version, body.len(), 0);
            header.command = command.into();
            let fds = vec![given.as_fd(); fds];
            raw.send_with(&[header.as_bytes(), &body].concat(), &fds);
            let (reply, payload) = raw.receive();
            assert_eq!((reply.id.get(), reply.command.get()), (9, command));
            if reply.has(flag::ERROR) {
                assert!(reply.errno.get() != 0 && payload.is_empty());
            }
            raw.works();
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_stream_is_survived() {
    let served = Served::new();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let streams = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..400));
    runner
        .run(&streams, |(agreed, bytes)| {
            let mut raw = if agreed {
                served.raw()
            } else {
                let raw = Raw(UnixStream::connect(&served.path).unwrap());
                raw.0.set_read_timeout(Some(LONG)).unwrap();
                raw
            };
            raw.send(&bytes);
            // The server may have closed already.
            let _ = raw.0.shutdown(Shutdown::Write);
            assert!(raw.is_closed());
            Ok(())
        })
        .unwrap();
    served.client().device_info().unwrap();
}

#[test]
fn any_reply_is_survived() {
    proptest!(Config { failure_persistence: None, ..Config::default() }, |(
        flags in prop_oneof![4 => 1..2_u32, 1 => any::<u32>()],
        errno in word(),
        bodies in prop::collection::vec(body(), 9),
    )| {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(LONG)).unwrap();
        // A request of the server that wants no reply leaves both sides waiting.
        let patience = if flags & 0xf == 1 { LONG } else { Duration::from_millis(50) };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut raw = Raw(far);
                let (header, _) = raw.receive();
                raw.send(&[header.reply(4).as_bytes(), &[0; 4]].concat());
                raw.0.set_read_timeout(Some(patience)).unwrap();
                for body in bodies {
                    let mut header = [0; 16];
                    // The client closes when it cannot follow, and then the rest is not read.
                    if std::io::Read::read_exact(&mut raw.0, &mut header).is_err() {
                        return;
                    }
                    let header: Header = zerocopy::transmute!(header);
                    let mut rest = vec![0; header.size.get() as usize - 16];
                    let _ = std::io::Read::read_exact(&mut raw.0, &mut rest);
                    let reply = Header { flags: flags.into(), errno: errno.into(), ..header.reply(body.len()) };
                    let _ = std::io::Write::write_all(&mut raw.0, &[reply.as_bytes(), &body].concat());
                }
            });
            let client = Client::from_stream(near, Arc::new(NoHostMemory), LONG).unwrap();
            let results = [
                client.device_info().map(drop),
                client.region_info(3).map(drop),
                client.io_fds(3).map(drop),
                client.irq_info(3).map(drop),
                client.read(3, 0, &mut [0; 8]),
                client.dma_map(0, 4096, Access::READ, None),
                client.dma_unmap(0, 4096).map(drop),
                client.set_irqs(0, 0, IrqAction::Trigger, IrqSet::All(0)),
                client.write(3, 0, &[0; 8]),
            ];
            for result in results {
                let timed_out = matches!(result, Err(ClientError::Timeout { .. }));
                // Requests from a server are not replies: then the client may wait in vain.
                assert!(!timed_out || flags & 0xf != 1);
            }
        });
    });
}
