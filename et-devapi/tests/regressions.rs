//! Defects that were found once.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use et_devapi::abi::{MAX_DRAM_BYTES, host_managed_len};
use et_devapi::dir::{BarSizes, DirError, MgmtDir, OpsDir};
use et_devapi::discovery::Layout;
use et_devapi::msg::ops::{Command, MsgId};
use et_devapi::msg::{CommandFlags, Header, Tag};
use et_devapi::pci::DIR_BYTES;
use et_devapi::ring::{Consumer, Producer, Ring};
use et_hal::{BarOffset, Mmio, Push};
use et_testkit::TestWindow;
use zerocopy::IntoBytes;

const BARS: BarSizes = BarSizes::ET_SOC_1;

/// The operations registers of current firmware after a change, with a CRC that fits.
fn ops_with(change: impl FnOnce(&mut Vec<u8>)) -> Result<OpsDir, DirError> {
    let mut bytes = vec![0; DIR_BYTES];
    let len = OpsDir::firmware(host_managed_len(MAX_DRAM_BYTES)).encode(&mut bytes).unwrap();
    bytes.truncate(len);
    change(&mut bytes);
    let header = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let total = u16::try_from(bytes.len()).unwrap();
    bytes[4..6].copy_from_slice(&total.to_le_bytes());
    let crc = crc32fast::hash(&bytes[header..]);
    bytes[10..14].copy_from_slice(&crc.to_le_bytes());
    OpsDir::parse(&bytes, &BARS)
}

fn mgmt() -> MgmtDir {
    let mut bytes = [0; DIR_BYTES];
    let dir = MgmtDir::firmware(u32::MAX, 600, 25, (81_920, 16_384, 32_768));
    let len = dir.encode(&mut bytes).unwrap();
    MgmtDir::parse(&bytes[..len], &BARS).unwrap()
}

#[test]
fn nodes_are_counted_as_the_device_counts_them() {
    let count = |len: usize| {
        let size = u16::try_from(len).unwrap();
        let id = MsgId::DmaReadListCmd.as_u16();
        let mut bytes = vec![0; len];
        let header = Header::new(size, Tag::new(1), id, CommandFlags::EMPTY);
        bytes[..8].copy_from_slice(header.as_bytes());
        match Command::parse(&bytes).unwrap().1 {
            Command::DmaReadList { nodes } => nodes.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(count(8 + 255 * 32), 255);
    assert_eq!(count(8 + 256 * 32), 0);
    assert_eq!(count(8 + 259 * 32), 3);
}

#[test]
fn queues_are_in_the_mailbox_bar() {
    // Past the last region of the management registers, so nothing overlaps.
    let ops = ops_with(|bytes| {
        bytes[48 + 3] = 0;
        bytes[48 + 8..48 + 16].copy_from_slice(&0x100_0000_u64.to_le_bytes());
    });
    assert!(Layout::new(mgmt(), ops.unwrap()).is_err());
}

#[test]
fn host_managed_memory_has_an_end() {
    let ops = ops_with(|bytes| bytes[80 + 24..80 + 32].fill(0xff));
    assert!(Layout::new(mgmt(), ops.unwrap()).is_err());
}

#[test]
fn registers_of_newer_firmware_can_be_written_again() {
    let ops = ops_with(|bytes| {
        bytes.splice(48..48, [0xee; 8]);
        bytes[16..18].copy_from_slice(&40_u16.to_le_bytes());
    });
    let ops = ops.unwrap();
    let mut out = [0; DIR_BYTES];
    let len = ops.encode(&mut out).unwrap();
    let again = OpsDir::parse(&out[..len], &BARS).unwrap();
    assert!(again.regions().eq(ops.regions()));
}

#[test]
fn two_regions_of_a_type_are_fatal_even_if_one_is_bad() {
    let parsed = ops_with(|bytes| {
        let mut bad = bytes[48..80].to_vec();
        bad[16..24].fill(0);
        bytes.splice(48..48, bad);
        bytes[6] = 3;
    });
    assert_eq!(parsed.map(drop), Err(DirError::DuplicateRegion { kind: 0 }));
}

#[test]
fn no_more_is_read_than_there_is() {
    let window = TestWindow::new(64);
    let ring = Ring::new::<()>(BarOffset::new(0), 64).unwrap();
    ring.format(&window).unwrap();
    let mut producer = Producer::attach(ring, &window).unwrap();
    let mut consumer = Consumer::attach(ring, &window).unwrap();
    assert_eq!(producer.push(&window, &[1; 8]), Ok(Push::Accepted));
    assert_eq!(consumer.used(&window), Ok(8));
    assert!(consumer.peek(&window, 0, &mut [0; 9]).is_err());
    assert!(consumer.advance(&window, 9).is_err());
    assert_eq!(window.load_acquire_u64(BarOffset::new(8)), Ok(0));
}
