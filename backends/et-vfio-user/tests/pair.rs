//! Own client and own server.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]
#![expect(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_vfio_user::{
    Access, Area, BusError, Client, ClientError, Closed, Command, Device, Ended, Errno, HostMemory,
    IoFdKind, IrqAction, IrqSet, Limits, NoHostMemory, Server, ServerError,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use support::{
    BROKEN, BUS_DATA, BUS_READ, BUS_WRITE, GATE, LONG, MEMORY, MEMORY_AT, MEMORY_BYTES, REGS,
    REGS_BYTES, ROM, Served, Toy, VECTORS, count, event, memfd, readable,
};

fn errno(error: &ClientError) -> Errno {
    match error {
        ClientError::Refused { errno, .. } => *errno,
        other => panic!("{other:?}"),
    }
}

/// 16 MiB from 1 MiB on; writable in the second half only.
struct Memory(Mutex<Vec<u8>>);

const BASE: u64 = 1 << 20;
const HALF: u64 = 8 << 20;

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((0..2 * HALF).map(|at| (at % 251) as u8).collect())))
    }

    fn range(address: u64, len: usize, from: u64) -> Result<std::ops::Range<usize>, Errno> {
        let start = address.checked_sub(BASE).ok_or(Errno::FAULT)?;
        if start < from {
            return Err(Errno::PERM);
        }
        let range = start as usize..start as usize + len;
        if range.end as u64 > 2 * HALF { Err(Errno::FAULT) } else { Ok(range) }
    }
}

impl HostMemory for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.0.lock().unwrap()[Self::range(address, into.len(), 0)?]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        self.0.lock().unwrap()[Self::range(address, from.len(), HALF)?].copy_from_slice(from);
        Ok(())
    }
}

#[test]
fn device_and_regions_are_described() {
    let served = Served::new();
    let client = served.client();
    assert_eq!(client.device_info().unwrap(), served.toy.info());
    assert_eq!(client.limits(), Limits::OURS);

    let memory = client.region_info(MEMORY).unwrap();
    assert_eq!((memory.size, memory.access), (MEMORY_BYTES, Access::READ_WRITE));
    let areas = [Area { offset: 0, len: 0x1000 }, Area { offset: 0x8000, len: 0x8000 }];
    assert_eq!(memory.areas, areas);
    let file = memory.memory.unwrap();
    assert_eq!(file.offset, MEMORY_AT);
    rustix::io::pwrite(&file.fd, b"through the file", MEMORY_AT + 0x8000).unwrap();
    let mut bytes = [0; 16];
    client.read(MEMORY, 0x8000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"through the file");

    let regs = client.region_info(REGS).unwrap();
    assert_eq!((regs.size, regs.areas.len(), regs.memory.is_none()), (REGS_BYTES, 0, true));
    let absent = client.region_info(8).unwrap();
    assert_eq!((absent.size, absent.access), (0, Access::NONE));
    assert_eq!(errno(&client.region_info(9).unwrap_err()), Errno::INVAL);
}

#[test]
fn long_accesses_are_split_and_byte_exact() {
    let served = Served::new();
    let client = served.client();
    let data: Vec<u8> = (0..(5 << 19) + 3).map(|at: u32| (at % 253) as u8).collect();
    client.write(REGS, 0x1001, &data).unwrap();
    let mut back = vec![0; data.len()];
    client.read(REGS, 0x1001, &mut back).unwrap();
    assert!(back == data);
    let lens: Vec<usize> =
        served.toy.seen.lock().unwrap().writes.iter().map(|write| write.2).collect();
    assert_eq!(lens, [1 << 20, 1 << 20, (1 << 19) + 3]);

    client.posted_write(REGS, 0x1002, &data).unwrap();
    client.read(REGS, 0x1002, &mut back).unwrap();
    assert!(back == data);
    client.read(REGS, 0, &mut []).unwrap();
}

#[test]
fn posted_writes_come_before_what_follows() {
    let served = Served::new();
    let client = served.client();
    for value in 0..1000_u32 {
        client.posted_write(REGS, 0x2000, &value.to_le_bytes()).unwrap();
        let mut bytes = [0; 4];
        client.read(REGS, 0x2000, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), value);
    }
    // Refused without an answer; the connection goes on.
    client.posted_write(REGS, BROKEN, &[0; 4]).unwrap();
    client.posted_write(ROM, 0, &[0; 4]).unwrap();
    client.posted_write(REGS, REGS_BYTES, &[0; 4]).unwrap();
    client.read(REGS, 0x2000, &mut [0; 4]).unwrap();
    assert_eq!(served.toy.seen.lock().unwrap().writes.len(), 1001);
}

#[test]
fn refusals_carry_the_errno() {
    let served = Served::new();
    let client = served.client();
    let mut byte = [0];
    for (error, wanted) in [
        (client.read(REGS, BROKEN, &mut byte), Errno::IO),
        (client.write(REGS, BROKEN, &[1]), Errno::IO),
        (client.write(ROM, 0, &[1]), Errno::PERM),
        (client.read(REGS, REGS_BYTES, &mut byte), Errno::INVAL),
        (client.read(REGS, u64::MAX - 1, &mut byte), Errno::INVAL),
        (client.read(99, 0, &mut byte), Errno::INVAL),
        (client.read(1, 0, &mut byte), Errno::INVAL),
    ] {
        assert_eq!(errno(&error.unwrap_err()), wanted);
    }
    assert!(matches!(
        client.read(REGS, u64::MAX, &mut [0; 2]),
        Err(ClientError::Argument { command: Command::RegionRead, .. })
    ));
}

#[test]
fn interrupts_are_connected_triggered_and_disconnected() {
    let served = Served::new();
    let client = served.client();
    assert_eq!(client.irq_info(1).unwrap(), served.toy.irq(1));
    assert_eq!(client.irq_info(0).unwrap(), served.toy.irq(0));
    assert_eq!(errno(&client.irq_info(5).unwrap_err()), Errno::INVAL);

    let events: Vec<OwnedFd> = (0..VECTORS).map(|_| event()).collect();
    let mut set: Vec<_> = events.iter().map(|event| Some(event.as_fd())).collect();
    set[3] = None;
    set[4] = None;
    client.set_irqs(1, 0, IrqAction::Trigger, IrqSet::Eventfds(&set)).unwrap();
    let connected: Vec<u32> = served.toy.seen.lock().unwrap().vectors.keys().copied().collect();
    assert_eq!(connected, (0..VECTORS).filter(|v| *v != 3 && *v != 4).collect::<Vec<_>>());
    // Sixteen descriptors to a message, runs of none in one.
    let starts: Vec<(u32, u32)> =
        served.toy.seen.lock().unwrap().irqs.iter().map(|irq| (irq.1, irq.2)).collect();
    assert_eq!(starts, [(0, 3), (3, 2), (5, 16), (21, 16), (37, 3)]);

    client.set_irqs(1, 5, IrqAction::Trigger, IrqSet::All(2)).unwrap();
    assert_eq!((count(&events[5]), count(&events[6])), (1, 1));

    client.set_irqs(1, 6, IrqAction::Trigger, IrqSet::Eventfds(&[None])).unwrap();
    assert!(!served.toy.seen.lock().unwrap().vectors.contains_key(&6));
    client.set_irqs(0, 0, IrqAction::Mask, IrqSet::Bool(&[true])).unwrap();
    client.set_irqs(0, 0, IrqAction::Unmask, IrqSet::All(1)).unwrap();
    let seen: Vec<String> = served.toy.seen.lock().unwrap().irqs[7..]
        .iter()
        .map(|(index, _, _, action, data)| format!("{index} {action:?} {data}"))
        .collect();
    assert_eq!(seen, ["0 Mask Bool([true])", "0 Unmask None"]);
    client.set_irqs(1, 0, IrqAction::Trigger, IrqSet::All(0)).unwrap();
    assert!(served.toy.seen.lock().unwrap().vectors.is_empty());

    for (index, start, set) in [
        (1, VECTORS, IrqSet::All(1)),
        (1, u32::MAX, IrqSet::All(2)),
        (2, 0, IrqSet::All(1)),
        (5, 0, IrqSet::All(0)),
        (1, 0, IrqSet::Bool(&[])),
    ] {
        let error = client.set_irqs(index, start, IrqAction::Trigger, set).unwrap_err();
        assert_eq!(errno(&error), Errno::INVAL);
    }
}

#[test]
fn write_descriptors_are_passed_and_shared() {
    let served = Served::new();
    let client = served.client();
    let fds = client.io_fds(REGS).unwrap();
    assert_eq!(fds.len(), 2);
    assert!(Arc::ptr_eq(&fds[0].fd, &fds[1].fd));
    let plain: Vec<_> =
        fds.iter().map(|io| (io.offset, io.len, io.kind, io.flags, io.data)).collect();
    assert_eq!(
        plain,
        [(0x2000, 4, IoFdKind::Ioeventfd, 1, 1), (0x2004, 4, IoFdKind::Ioeventfd, 1, 2)]
    );
    rustix::io::write(&fds[0].fd, &3_u64.to_le_bytes()).unwrap();
    assert_eq!(count(&served.toy.doorbell), 3);
    assert!(client.io_fds(MEMORY).unwrap().is_empty());
    assert_eq!(errno(&client.io_fds(9).unwrap_err()), Errno::INVAL);
}

#[test]
fn windows_come_and_go() {
    let served = Served::new();
    let client = served.client();
    let file = memfd(0x10000);
    rustix::io::pwrite(&file, b"host", 0x3000).unwrap();
    let map = |address, len, access| client.dma_map(address, len, access, None);
    client.dma_map(0x10_0000, 0x4000, Access::READ_WRITE, Some((file.as_fd(), 0x3000))).unwrap();
    map(0x20_0000, 0x1000, Access::READ).unwrap();
    map(0x20_1000, 0x1000, Access::WRITE).unwrap();
    map(u64::MAX - 0xfff, 0x1000, Access::READ_WRITE).unwrap();
    {
        let seen = served.toy.seen.lock().unwrap();
        let (len, access, received) = &seen.windows[&0x10_0000];
        assert_eq!((*len, *access), (0x4000, Access::READ_WRITE));
        let (fd, offset) = received.as_ref().unwrap();
        let mut bytes = [0; 4];
        rustix::io::pread(fd, &mut bytes, *offset).unwrap();
        assert_eq!(&bytes, b"host");
        assert_eq!(seen.windows[&0x20_0000].1, Access::READ);
        assert_eq!(seen.windows[&0x20_1000].1, Access::WRITE);
        assert!(seen.windows[&0x20_0000].2.is_none());
    }
    for (address, len, access, wanted) in [
        (0x10_3fff, 1, Access::READ, Errno::EXIST),
        (0xf_f000, 0x1001, Access::READ, Errno::EXIST),
        (0, u64::MAX, Access::READ, Errno::EXIST),
        (0x10_0000, 0x4000, Access::READ, Errno::EXIST),
        (0x50_0000, 0, Access::READ, Errno::INVAL),
        (u64::MAX, 2, Access::READ, Errno::INVAL),
        (0x50_0000, 0x1000, Access::NONE, Errno::INVAL),
        (served.toy.refuse_at, 0x1000, Access::READ, Errno::NOMEM),
    ] {
        assert_eq!(errno(&map(address, len, access).unwrap_err()), wanted, "{address:#x}");
    }
    // A window that the device refused does not exist.
    assert_eq!(client.dma_unmap(served.toy.refuse_at, 0x1000).unwrap(), 0);

    for (address, len) in
        [(0x10_0000, 0x1000), (0x10_1000, 0x3000), (0xf_f000, 0x2000), (0x50_0000, 0), (1, 0)]
    {
        assert_eq!(errno(&client.dma_unmap(address, len).unwrap_err()), Errno::INVAL);
    }
    assert_eq!(client.dma_unmap(0x10_0000, 0x4000).unwrap(), 0x4000);
    map(0x10_0000, 0x1000, Access::READ).unwrap();
    // As a guest's IOMMU driver does: more than was mapped.
    assert_eq!(client.dma_unmap(0x20_0000, 0x10_0000).unwrap(), 0x2000);
    assert_eq!(client.dma_unmap_all().unwrap(), 0x2000);
    assert!(served.toy.seen.lock().unwrap().windows.is_empty());
    assert_eq!(client.dma_unmap_all().unwrap(), 0);
}

#[test]
fn device_reaches_memory_by_message() {
    let served = Served::new();
    let memory = Memory::new();
    let client = served.client_with(Arc::clone(&memory) as _);
    client.dma_map(BASE, 2 * HALF, Access::READ_WRITE, None).unwrap();
    let bus = served.toy.bus();

    // Split into messages of 1 MiB, while this thread waits for nothing.
    let mut data = vec![0; (5 << 19) + 7];
    bus.read(BASE + 5, &mut data, LONG).unwrap();
    assert!(data[..] == memory.0.lock().unwrap()[5..][..data.len()]);
    data.reverse();
    bus.write(BASE + HALF + 1, &data, LONG).unwrap();
    assert!(data[..] == memory.0.lock().unwrap()[HALF as usize + 1..][..data.len()]);

    // Within a call of the client.
    client.write(REGS, BUS_READ, &(BASE + 9).to_le_bytes()).unwrap();
    let mut bytes = [0; 16];
    client.read(REGS, BUS_DATA, &mut bytes).unwrap();
    assert_eq!(bytes[..], memory.0.lock().unwrap()[9..25]);
    client.write(REGS, BUS_WRITE, &(BASE + HALF).to_le_bytes()).unwrap();
    assert_eq!(bytes[..], memory.0.lock().unwrap()[HALF as usize..][..16]);

    // Refused by the memory: seen by the device, and by the client through it.
    let refused = |address, errno| Err(BusError::Refused { address, errno });
    assert_eq!(bus.write(BASE, &[0; 4], LONG), refused(BASE, Errno::PERM));
    assert_eq!(bus.read(0, &mut [0; 4], LONG), refused(0, Errno::FAULT));
    let end = BASE + 2 * HALF;
    assert_eq!(bus.read(end - 4, &mut [0; 8], LONG), refused(end - 4, Errno::FAULT));
    let error = client.write(REGS, BUS_WRITE, &BASE.to_le_bytes()).unwrap_err();
    assert_eq!(errno(&error), Errno::PERM);
    assert!(matches!(bus.read(u64::MAX, &mut [0; 2], LONG), Err(BusError::Wraps { .. })));
    bus.read(BASE, &mut [], LONG).unwrap();

    drop(client);
    served.toy.until(|seen| seen.disconnected == 1);
    assert!(matches!(bus.read(BASE, &mut [0], LONG), Err(BusError::Disconnected(_))));
    assert!(bus.closed().is_some());
}

#[test]
fn threads_on_both_sides_do_not_mix_up() {
    let served = Served::new();
    let memory = Memory::new();
    let client = served.client_with(Arc::clone(&memory) as _);
    client.dma_map(BASE, 2 * HALF, Access::READ_WRITE, None).unwrap();
    let bus = served.toy.bus();
    std::thread::scope(|scope| {
        for lane in 0..4_u64 {
            let (client, bus) = (&client, &bus);
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let at = 0x1000 + lane * 64;
                    client.posted_write(REGS, at, &(lane << 32 | round).to_le_bytes()).unwrap();
                    let mut bytes = [0; 8];
                    client.read(REGS, at, &mut bytes).unwrap();
                    assert_eq!(u64::from_le_bytes(bytes), lane << 32 | round);
                }
            });
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let at = BASE + HALF + lane * 64;
                    bus.write(at, &(lane << 32 | round).to_le_bytes(), LONG).unwrap();
                    let mut bytes = [0; 8];
                    bus.read(at, &mut bytes, LONG).unwrap();
                    assert_eq!(u64::from_le_bytes(bytes), lane << 32 | round);
                }
            });
        }
        // And in the middle of calls.
        scope.spawn(|| {
            for round in 0..200_u64 {
                client.write(REGS, BUS_READ, &(BASE + round).to_le_bytes()).unwrap();
                let mut bytes = [0; 16];
                client.read(REGS, BUS_DATA, &mut bytes).unwrap();
                assert_eq!(bytes[0], (round % 251) as u8);
            }
        });
    });
}

#[test]
fn a_flood_of_posted_writes_is_held_back_and_not_lost() {
    let served = Served::new();
    let memory = Memory::new();
    let client = served.client_with(Arc::clone(&memory) as _);
    client.dma_map(BASE, 2 * HALF, Access::READ_WRITE, None).unwrap();
    let bus = served.toy.bus();
    client.posted_write(REGS, GATE, &[1]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..10_000_u64 {
                client.posted_write(REGS, 0x1000 + value * 8, &value.to_le_bytes()).unwrap();
            }
        });
        served.toy.until(|seen| seen.writes.len() == 1);
        // The device is busy; what reads meanwhile is this, and it may find no end of writes.
        let within = Duration::from_millis(50);
        let read = bus.read(BASE, &mut [0; 8], within);
        assert!(matches!(read, Ok(()) | Err(BusError::Timeout { .. })), "{read:?}");
        served.toy.open_gate();
    });
    served.toy.until(|seen| seen.writes.len() == 10_001);
    let writes = &served.toy.seen.lock().unwrap().writes;
    assert!((0..).zip(&writes[1..]).all(|(value, write)| write.1 == 0x1000 + value * 8));
    bus.read(BASE, &mut [0; 8], LONG).unwrap();
    client.device_info().unwrap();
}

#[test]
fn reset_reaches_the_device() {
    let served = Served::new();
    let client = served.client();
    client.reset(LONG).unwrap();
    assert_eq!(served.toy.seen.lock().unwrap().resets, 1);
}

#[test]
fn clients_follow_one_another() {
    let served = Served::new();
    for round in 1..=20 {
        let client = served.client();
        served.toy.until(|seen| seen.connected == round);
        client.dma_map(0, 0x1000, Access::READ, None).unwrap();
        drop(client);
    }
    served.toy.until(|seen| seen.disconnected == 20 && seen.windows.is_empty());
}

#[test]
fn second_client_waits_its_turn_and_gives_up_by_its_deadline() {
    let served = Served::new();
    let first = served.client();
    let short = Duration::from_millis(50);
    let error = Client::connect(&served.path, Arc::new(NoHostMemory), short).unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer(after) if after == short), "{error:?}");
    let (path, memory) = (served.path.clone(), Arc::new(NoHostMemory));
    let waiting = std::thread::spawn(move || Client::connect(path, memory, LONG));
    first.device_info().unwrap();
    drop(first);
    waiting.join().unwrap().unwrap().device_info().unwrap();
}

#[test]
fn loss_of_the_server_ends_all_calls() {
    let mut served = Served::new();
    let client = served.client();
    assert!(client.closed().is_none());
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| {
            loop {
                if let Err(error) = client.read(REGS, 0, &mut [0; 4]) {
                    return error;
                }
            }
        });
        served.stop();
        assert!(matches!(lost.join().unwrap(), ClientError::Disconnected(_)));
    });
    assert!(readable(client.closed_fd()));
    assert!(client.closed().is_some());
    let gone = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::Disconnected(_))), "{result:?}");
    };
    gone(client.posted_write(REGS, 0, &[0; 4]));
    gone(client.write(REGS, 0, &[0; 4]));
    gone(client.device_info().map(drop));
    gone(client.region_info(0).map(drop));
    gone(client.io_fds(0).map(drop));
    gone(client.irq_info(0).map(drop));
    gone(client.set_irqs(1, 0, IrqAction::Trigger, IrqSet::All(0)));
    gone(client.dma_map(0, 1, Access::READ, None));
    gone(client.dma_unmap(0, 1).map(drop));
    gone(client.dma_unmap_all().map(drop));
    gone(client.reset(LONG));
}

#[test]
fn a_missing_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing");
    let error = Client::connect(&path, Arc::new(NoHostMemory), LONG).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let kept = UnixListener::bind(&path).unwrap();
    let error = Server::bind(&path).unwrap_err();
    assert!(matches!(error, ServerError::Bind { .. }));
    drop(kept);
    let error = Client::connect("x".repeat(200), Arc::new(NoHostMemory), LONG).unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }));
}

#[test]
fn a_full_backlog_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let listener = rustix::net::socket(family, kind, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let short = Duration::from_millis(50);
    let error = Client::connect(&path, Arc::new(NoHostMemory), short).unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer(after) if after == short), "{error:?}");
}

#[test]
fn serving_one_says_why_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let server = Server::bind(&path).unwrap();
    let device: Arc<dyn Device> = Toy::new();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.serve_one(&device).unwrap());
        drop(Client::connect(&path, Arc::new(NoHostMemory), LONG).unwrap());
        assert_eq!(served.join().unwrap(), Ended::Client(Closed::ByPeer));
        let served = scope.spawn(|| server.serve_one(&device).unwrap());
        server.stop_handle().stop();
        assert_eq!(served.join().unwrap(), Ended::Stopped);
    });
    drop(server);
    assert!(!path.exists());
}
