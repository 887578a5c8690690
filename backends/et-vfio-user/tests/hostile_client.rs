//! The server against clients that do not keep to the protocol, or die.
#![expect(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod support;

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use et_vfio_user::wire::{
    DmaMap, DmaUnmap, Header, RegionAccess, RegionInfo, SetIrqs, SmallWrite, flag,
};
use et_vfio_user::{Command, Errno};
use support::{LONG, MEMORY, REGS, Raw, Served, event, memfd};
use zerocopy::{FromBytes, IntoBytes};

const INVAL: u32 = Errno::INVAL.raw_os_error().unsigned_abs();
const OPNOTSUPP: u32 = Errno::OPNOTSUPP.raw_os_error().unsigned_abs();

fn access(offset: u64, region: u32, count: u32) -> Vec<u8> {
    let (offset, region, count) = (offset.into(), region.into(), count.into());
    RegionAccess { offset, region, count }.as_bytes().to_vec()
}

#[test]
fn pieces_make_a_message() {
    let served = Served::new();
    let mut raw = served.raw();
    let write = [access(0x20, REGS, 4), vec![1, 2, 3, 4]].concat();
    let message = Raw::message(Command::RegionWrite, &write);
    // Cut at each place, within the header too, and byte by byte.
    for cut in 1..message.len() {
        raw.send(&message[..cut]);
        raw.send(&message[cut..]);
        assert_eq!(raw.receive().1, access(0x20, REGS, 4));
    }
    for byte in &message {
        raw.send(&[*byte]);
    }
    assert_eq!(raw.receive().1, access(0x20, REGS, 4));
    // Several in one piece.
    raw.send(&message.repeat(10));
    for _ in 0..10 {
        assert_eq!(raw.receive().1, access(0x20, REGS, 4));
    }
    assert_eq!(served.toy.regs.lock().unwrap()[0x20..0x24], [1, 2, 3, 4]);
}

#[test]
fn descriptors_stay_with_their_message() {
    let served = Served::new();
    let mut raw = served.raw();
    let (first, second) = (event(), event());
    let set = |start: u32| {
        let (argsz, flags, index) = (20.into(), 0x24.into(), 1.into());
        let set = SetIrqs { argsz, flags, index, start: start.into(), count: 1.into() };
        Raw::message(Command::SetIrqs, set.as_bytes())
    };
    // The second message is on its way before the first is read; its descriptor comes with the
    // second half.
    let message = set(1);
    raw.send_with(&set(0), &[first.as_fd()]);
    raw.send(&message[..8]);
    raw.send_with(&message[8..], &[second.as_fd()]);
    assert_eq!(raw.receive().0.flags.get(), flag::REPLY);
    assert_eq!(raw.receive().0.flags.get(), flag::REPLY);
    for (vector, mine) in [(0, &first), (1, &second)] {
        let seen = served.toy.seen.lock().unwrap();
        (0..5).for_each(|_| seen.vectors[&vector].signal());
        assert_eq!(support::count(mine), 5);
    }
}

/// A pipe that is full, a socket or a file behind a dead server would block whoever signals it.
#[test]
fn only_eventfds_become_interrupts() {
    let served = Served::new();
    let mut raw = served.raw();
    let (argsz, flags, index) = (20.into(), 0x24.into(), 1.into());
    let set = SetIrqs { argsz, flags, index, start: 0.into(), count: 1.into() };
    let set = Raw::message(Command::SetIrqs, set.as_bytes());
    let (reader, writer) = std::io::pipe().unwrap();
    let (file, (socket, _other)) = (memfd(8), UnixStream::pair().unwrap());
    for fd in [reader.as_fd(), writer.as_fd(), file.as_fd(), socket.as_fd()] {
        raw.send_with(&set, &[fd]);
        assert_eq!(raw.receive().0.errno.get(), INVAL);
    }
    assert!(served.toy.seen.lock().unwrap().vectors.is_empty());
    raw.send_with(&set, &[event().as_fd()]);
    assert_eq!(raw.receive().0.errno.get(), 0);
}

#[test]
fn lying_lengths_are_refused_and_the_stream_goes_on() {
    let served = Served::new();
    let mut raw = served.raw();
    let mut map = DmaMap {
        argsz: 32.into(),
        flags: 3.into(),
        address: 0x1000.into(),
        len: 0x1000.into(),
        ..Default::default()
    };
    let short = map.as_bytes()[..31].to_vec();
    let long = [map.as_bytes(), &[0]].concat();
    map.flags = 7.into();
    let flags = map.as_bytes().to_vec();
    let info = |argsz: u32| {
        let (argsz, index) = (argsz.into(), MEMORY.into());
        RegionInfo { argsz, index, ..Default::default() }.as_bytes().to_vec()
    };
    let multi = |count: u64, writes: &[SmallWrite]| {
        [count.to_le_bytes().as_slice(), writes.as_bytes()].concat()
    };
    let small = SmallWrite { region: REGS.into(), count: 9.into(), ..Default::default() };
    let unmap = DmaUnmap { flags: 1.into(), len: 0x1000.into(), ..Default::default() };
    let over = (1 << 20) + 1;
    for (command, body) in [
        (Command::DmaMap, short),
        (Command::DmaMap, long),
        (Command::DmaMap, flags),
        (Command::DmaUnmap, vec![0; 23]),
        (Command::DmaUnmap, unmap.as_bytes().to_vec()),
        (Command::DeviceInfo, vec![]),
        (Command::DeviceInfo, vec![0; 16]),
        (Command::RegionInfo, vec![0; 31]),
        (Command::RegionInfo, info(31)),
        (Command::RegionIoFds, vec![0; 15]),
        (Command::RegionIoFds, vec![0; 16]),
        (Command::IrqInfo, vec![0; 15]),
        (Command::IrqInfo, vec![0; 16]),
        (Command::SetIrqs, vec![0; 19]),
        (Command::SetIrqs, vec![0; 20]),
        (Command::RegionRead, vec![0; 15]),
        (Command::RegionRead, [access(0, REGS, 4), vec![0]].concat()),
        (Command::RegionRead, access(0, REGS, over)),
        (Command::RegionRead, access(0, REGS, u32::MAX)),
        (Command::RegionWrite, access(0, REGS, 4)),
        (Command::RegionWrite, [access(0, REGS, 4), vec![0; 5]].concat()),
        (Command::RegionWrite, [access(0, REGS, u32::MAX), vec![0; 5]].concat()),
        (Command::RegionWriteMulti, vec![0; 7]),
        (Command::RegionWriteMulti, multi(2, &[SmallWrite::default()])),
        (Command::RegionWriteMulti, multi(u64::MAX, &[])),
        (Command::RegionWriteMulti, multi(1, &[small])),
        (Command::DeviceReset, vec![0]),
        (Command::Version, b"\0\0\0\0{}\0".to_vec()),
        // Too long for any message; skipped whole.
        (Command::RegionWrite, [access(0, REGS, over), vec![0; over as usize]].concat()),
    ] {
        let message = Raw::message(command, &body);
        let mut sending = raw.0.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || sending.write_all(&message).unwrap());
            assert_eq!(raw.refusal(), INVAL, "{command:?} with {} bytes", body.len());
        });
        raw.works();
    }
    let seen = served.toy.seen.lock().unwrap();
    assert!(seen.writes.is_empty() && seen.irqs.is_empty() && seen.windows.is_empty());
    assert_eq!(seen.resets, 0);
}

#[test]
fn unknown_commands_are_refused() {
    let served = Served::new();
    let mut raw = served.raw();
    for code in [0_u16, 11, 12, 14, 16, 17, 18, 999, u16::MAX] {
        let mut header = Header::request(3, Command::Version, 5, 0);
        header.command = code.into();
        raw.send(&[header.as_bytes(), &[9; 5]].concat());
        let (reply, body) = raw.receive();
        assert_eq!((reply.id.get(), reply.command.get()), (3, code));
        assert_eq!((reply.errno.get(), body.len()), (OPNOTSUPP, 0));
    }
    raw.works();
}

#[test]
fn several_writes_in_one_message() {
    let served = Served::new();
    let mut raw = served.raw();
    let one = |offset: u64, data: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..data.len()].copy_from_slice(data);
        let count = (data.len() as u32).into();
        SmallWrite { offset: offset.into(), region: REGS.into(), count, data: bytes }
    };
    let writes = [one(0x10, &[1]), one(0x18, &[2, 3]), one(0x20, &[4; 8])];
    let body = [3_u64.to_le_bytes().as_slice(), writes.as_bytes()].concat();
    let (header, reply) = raw.ask(Command::RegionWriteMulti, &body);
    assert_eq!((header.flags.get(), reply), (flag::REPLY, 3_u64.to_le_bytes().to_vec()));
    // As QEMU sends them: posted.
    let mut posted = Raw::message(Command::RegionWriteMulti, &body);
    posted[8] = 0x10;
    raw.send(&posted);
    raw.works();
    let regs = served.toy.regs.lock().unwrap();
    assert_eq!(regs[0x10..0x12], [1, 0]);
    assert_eq!(regs[0x18..0x1b], [2, 3, 0]);
    assert_eq!(regs[0x20..0x29], [4, 4, 4, 4, 4, 4, 4, 4, 0]);
    assert_eq!(served.toy.seen.lock().unwrap().writes.len(), 6);
}

#[test]
fn no_reply_is_honoured_even_for_failures() {
    let served = Served::new();
    let mut raw = served.raw();
    for command in [Command::RegionWrite, Command::DeviceInfo, Command::DmaMap] {
        let mut message = Raw::message(command, &[0; 3]);
        message[8] = 0x10;
        raw.send(&message);
    }
    // The next reply is to the next question.
    raw.works();
}

#[test]
fn wrong_descriptors_are_refused_and_closed() {
    let served = Served::new();
    let mut raw = served.raw();
    // Counted by the end that stays: it sees the end of file when all copies are closed.
    let (mut kept, given) = UnixStream::pair().unwrap();
    kept.set_read_timeout(Some(LONG)).unwrap();
    let map = DmaMap { argsz: 32.into(), flags: 3.into(), len: 4096.into(), ..Default::default() };
    let set = |count: u32, flags: u32| {
        let (argsz, flags, index) = (20.into(), flags.into(), 1.into());
        let set = SetIrqs { argsz, flags, index, start: 0.into(), count: count.into() };
        set.as_bytes().to_vec()
    };
    for (command, body, fds) in [
        (Command::DmaMap, map.as_bytes().to_vec(), 2),
        (Command::SetIrqs, set(3, 0x24), 2),
        (Command::SetIrqs, set(1, 0x24), 2),
        (Command::SetIrqs, set(1, 0x21), 1),
        (Command::SetIrqs, set(16, 0x24), 17),
        (Command::SetIrqs, set(253, 0x24), 253),
        (Command::RegionRead, access(0, REGS, 4), 1),
        (Command::DeviceReset, vec![], 1),
    ] {
        let fds: Vec<BorrowedFd<'_>> = (0..fds).map(|_| given.as_fd()).collect();
        raw.send_with(&Raw::message(command, &body), &fds);
        assert_eq!(raw.refusal(), INVAL, "{command:?} with {} descriptors", fds.len());
        raw.works();
    }
    drop(given);
    assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    assert_eq!(served.toy.seen.lock().unwrap().resets, 0);
}

#[test]
fn streams_that_cannot_be_followed_are_closed() {
    let served = Served::new();
    let mut header = Header::request(1, Command::DeviceReset, 0, 0);
    let mut bad = Vec::new();
    for size in [0_u32, 15, 64 << 20, u32::MAX] {
        header.size = size.into();
        bad.push(header);
    }
    header.size = 16.into();
    for flags in [flag::REPLY, 2, 0xf] {
        header.flags = flags.into();
        bad.push(header);
    }
    for header in bad {
        let mut raw = served.raw();
        raw.send(header.as_bytes());
        assert!(raw.is_closed(), "{header:?}");
    }
    served.raw().works();
    assert_eq!(served.toy.seen.lock().unwrap().resets, 0);
}

#[test]
fn clients_may_die_anywhere() {
    let served = Served::new();
    let file = memfd(4096);
    let map = DmaMap { argsz: 32.into(), flags: 3.into(), len: 4096.into(), ..Default::default() };
    let message = Raw::message(Command::DmaMap, map.as_bytes());
    for cut in 0..message.len() {
        let raw = served.raw();
        raw.send(&Raw::message(Command::DeviceReset, &[]));
        raw.send_with(&message, &[file.as_fd()]);
        if cut > 0 {
            raw.send_with(&message[..cut], &[file.as_fd()]);
        }
        drop(raw);
    }
    let rounds = message.len() as u32;
    // What was sent whole was carried out, and all is dropped at the end.
    served.toy.until(|seen| {
        seen.disconnected == rounds && seen.resets == rounds && seen.windows.is_empty()
    });
    // Before and during the version message, too.
    for cut in 0..20 {
        let raw = Raw(UnixStream::connect(&served.path).unwrap());
        raw.send(&Raw::message(Command::Version, &[0; 4])[..cut]);
    }
    served.client().device_info().unwrap();
}

#[test]
fn clients_that_stop_are_dropped() {
    let served = Served::with_patience(Duration::from_millis(400));
    let mut silent = Raw(UnixStream::connect(&served.path).unwrap());
    silent.0.set_read_timeout(Some(LONG)).unwrap();
    assert!(silent.is_closed());
    // In the middle of a message.
    let mut raw = served.raw();
    raw.send(&Raw::message(Command::DeviceReset, &[])[..7]);
    assert!(raw.is_closed());
    // Without reading replies, until the socket is full.
    let raw = served.raw();
    let read = Raw::message(Command::RegionRead, &access(0, REGS, 1 << 20));
    let mut sending = &raw.0;
    while sending.write_all(&read).is_ok() {}
    served.toy.until(|seen| seen.disconnected == 2);
    served.raw().works();
}

#[test]
fn versions_have_to_fit() {
    let served = Served::new();
    let try_with = |command, body: &[u8]| {
        let mut raw = Raw(UnixStream::connect(&served.path).unwrap());
        raw.0.set_read_timeout(Some(LONG)).unwrap();
        let answer = raw.ask(command, body);
        (raw, answer)
    };
    for (command, body) in [
        (Command::DeviceInfo, &b"\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..]),
        (Command::Version, b"\x01\0\0\0{}\0"),
        (Command::Version, b"\0\0\0"),
        (Command::Version, b"\0\0\0\0{}"),
        (Command::Version, b"\0\0\0\0not json\0"),
        (Command::Version, b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":0}}\0"),
    ] {
        let (mut raw, (header, _)) = try_with(command, body);
        assert!(header.has(flag::ERROR | flag::REPLY));
        assert_eq!(header.errno.get(), INVAL);
        assert!(raw.is_closed());
    }
    for (minor, spoken) in [(0, 0), (1, 1), (7, 1)] {
        let (mut raw, (header, body)) = try_with(Command::Version, &[0, 0, minor, 0]);
        assert_eq!(header.flags.get(), flag::REPLY);
        assert_eq!(body[..4], [0, 0, spoken, 0]);
        raw.works();
    }
    // Only those who came through were told of.
    served.toy.until(|seen| seen.disconnected == 3 && seen.connected == 3);
}

#[test]
fn small_reply_room_gets_the_fixed_part_first() {
    let served = Served::new();
    let mut raw = served.raw();
    let ask = |argsz: u32| {
        let (argsz, index) = (argsz.into(), MEMORY.into());
        RegionInfo { argsz, index, ..Default::default() }
    };
    let (_, body) = raw.ask(Command::RegionInfo, ask(32).as_bytes());
    let info = RegionInfo::read_from_bytes(&body).unwrap();
    assert_eq!((info.argsz.get(), info.cap_offset.get()), (80, 32));
    let (_, body) = raw.ask(Command::RegionInfo, ask(80).as_bytes());
    let text = "50000000 0f000000 00000000 20000000 0000010000000000 0040000000000000 \
                0100 0100 00000000 02000000 00000000 \
                0000000000000000 0010000000000000 0080000000000000 0080000000000000";
    let digits: String = text.split_whitespace().collect();
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, digits);
}
