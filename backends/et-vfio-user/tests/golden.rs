//! Every structure against bytes written out by hand from the protocol's tables.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use et_vfio_user::wire::{
    Capability, Command, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess,
    RegionInfo, RegionIoFds, SetIrqs, SmallWrite, SparseArea, SparseMmap, SubRegion, Version,
    WriteMulti, flag, take,
};
use zerocopy::IntoBytes;

/// Compares with hexadecimal text; spaces are for the reader.
fn same(structure: &impl IntoBytesRef, text: &str) {
    let digits: String = text.split_whitespace().collect();
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    assert_eq!(structure.wire(), bytes);
}

trait IntoBytesRef {
    fn wire(&self) -> &[u8];
}

impl<T: IntoBytes + zerocopy::Immutable> IntoBytesRef for T {
    fn wire(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[test]
fn headers() {
    let request = Header::request(0x1234, Command::RegionWrite, 24, flag::NO_REPLY);
    same(&request, "3412 0a00 28000000 10000000 00000000");
    same(&request.reply(16), "3412 0a00 20000000 01000000 00000000");
    same(&request.refusal(22), "3412 0a00 10000000 21000000 16000000");
}

#[test]
fn command_numbers() {
    let known: Vec<(u16, Command)> =
        (0..=u16::MAX).filter_map(|code| Some((code, Command::from_code(code)?))).collect();
    assert_eq!(
        known,
        [
            (1, Command::Version),
            (2, Command::DmaMap),
            (3, Command::DmaUnmap),
            (4, Command::DeviceInfo),
            (5, Command::RegionInfo),
            (6, Command::RegionIoFds),
            (7, Command::IrqInfo),
            (8, Command::SetIrqs),
            (9, Command::RegionRead),
            (10, Command::RegionWrite),
            (11, Command::DmaRead),
            (12, Command::DmaWrite),
            (13, Command::DeviceReset),
            (15, Command::RegionWriteMulti),
        ]
    );
    assert!(known.iter().all(|(code, command)| command.code() == *code));
}

#[test]
fn bodies() {
    same(&Version { major: 0.into(), minor: 1.into() }, "0000 0100");
    same(
        &DmaMap {
            argsz: 32.into(),
            flags: 3.into(),
            offset: 0x1000.into(),
            address: 0x10_0000_2000.into(),
            len: 0x3000.into(),
        },
        "20000000 03000000 0010000000000000 0020000010000000 0030000000000000",
    );
    same(
        &DmaUnmap { argsz: 24.into(), flags: 2.into(), address: 0x2000.into(), len: 0x3000.into() },
        "18000000 02000000 0020000000000000 0030000000000000",
    );
    same(
        &DeviceInfo { argsz: 16.into(), flags: 3.into(), regions: 9.into(), irqs: 5.into() },
        "10000000 03000000 09000000 05000000",
    );
    same(
        &RegionInfo {
            argsz: 64.into(),
            flags: 0xf.into(),
            index: 2.into(),
            cap_offset: 32.into(),
            size: 0x8_0000_0000.into(),
            offset: 0x4000.into(),
        },
        "40000000 0f000000 02000000 20000000 0000000008000000 0040000000000000",
    );
    same(&Capability { id: 1.into(), version: 1.into(), next: 0x40.into() }, "0100 0100 40000000");
    same(&SparseMmap { areas: 2.into(), reserved: 0.into() }, "02000000 00000000");
    same(
        &SparseArea { offset: 0x1000.into(), len: 0x2000.into() },
        "0010000000000000 0020000000000000",
    );
    same(
        &RegionIoFds { argsz: 56.into(), flags: 0.into(), index: 2.into(), count: 1.into() },
        "38000000 00000000 02000000 01000000",
    );
    same(
        &SubRegion {
            offset: 0x2000.into(),
            len: 4.into(),
            fd_index: 3.into(),
            kind: 1.into(),
            flags: 5.into(),
            padding: 0.into(),
            data: 0x77.into(),
        },
        "0020000000000000 0400000000000000 03000000 01000000 05000000 00000000 7700000000000000",
    );
    same(
        &IrqInfo { argsz: 16.into(), flags: 9.into(), index: 1.into(), count: 4.into() },
        "10000000 09000000 01000000 04000000",
    );
    same(
        &SetIrqs {
            argsz: 20.into(),
            flags: 0x24.into(),
            index: 1.into(),
            start: 2.into(),
            count: 3.into(),
        },
        "14000000 24000000 01000000 02000000 03000000",
    );
    same(
        &RegionAccess { offset: 0x1_0000_0008.into(), region: 2.into(), count: 4.into() },
        "0800000001000000 02000000 04000000",
    );
    same(
        &DmaAccess { address: 0x10_0000_0000.into(), count: 0x10_0000.into() },
        "0000000010000000 0000100000000000",
    );
    same(&WriteMulti { count: 2.into() }, "0200000000000000");
    same(
        &SmallWrite {
            offset: 0x10.into(),
            region: 2.into(),
            count: 4.into(),
            data: [1, 2, 3, 4, 0, 0, 0, 0],
        },
        "1000000000000000 02000000 04000000 0102030400000000",
    );
}

#[test]
fn short_bodies_are_not_taken() {
    let bytes = [0; 32];
    for len in 0..32 {
        assert!(take::<DmaMap>(&bytes[..len]).is_none());
    }
    assert!(take::<DmaMap>(&bytes).is_some());
}
