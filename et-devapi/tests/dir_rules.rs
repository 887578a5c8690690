//! Every validation rule of the device interface registers, one broken image each.
//!
//! Spec: §3.8

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use et_devapi::abi::{MAX_DRAM_BYTES, host_managed_len};
use et_devapi::dir::{
    BarSizes, DirError, DirWarning, MgmtDir, MgmtRegion, MgmtStatus, OpsDir, OpsRegion, OpsStatus,
};
use et_devapi::discovery::{self, DiscoveryError, Layout};
use et_devapi::pci::{DIR_BYTES, MGMT_DIR, OPS_DIR};
use et_hal::{BarOffset, ErrorKind, Mmio};
use et_testkit::TestWindow;
use proptest::prelude::*;

const BARS: BarSizes = BarSizes::ET_SOC_1;

/// Offsets in the images of current firmware: header, queue block, first region.
const OPS: [usize; 3] = [0, 16, 48];
const MGMT: [usize; 3] = [0, 72, 96];
const REGION: usize = 32;

fn ops() -> Vec<u8> {
    let mut bytes = [0; DIR_BYTES];
    let len = OpsDir::firmware(host_managed_len(MAX_DRAM_BYTES)).encode(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn mgmt() -> Vec<u8> {
    let mut bytes = [0; DIR_BYTES];
    let dir = MgmtDir::firmware(u32::MAX, 600, 25, (81_920, 16_384, 32_768));
    let len = dir.encode(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn set(bytes: &mut [u8], at: usize, value: impl AsRef<[u8]>) {
    bytes[at..at + value.as_ref().len()].copy_from_slice(value.as_ref());
}

/// Writes the CRC that belongs to the bytes, by their own header size and total size.
fn seal(bytes: &mut [u8], crc_at: usize) {
    let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let crc = crc32fast::hash(&bytes[word(0)..word(4)]);
    set(bytes, crc_at, crc.to_le_bytes());
}

fn ops_with(change: impl FnOnce(&mut Vec<u8>)) -> Result<OpsDir, DirError> {
    let mut bytes = ops();
    change(&mut bytes);
    seal(&mut bytes, 10);
    OpsDir::parse(&bytes, &BARS)
}

fn mgmt_with(change: impl FnOnce(&mut Vec<u8>)) -> Result<MgmtDir, DirError> {
    let mut bytes = mgmt();
    change(&mut bytes);
    seal(&mut bytes, 16);
    MgmtDir::parse(&bytes, &BARS)
}

fn ops_region(index: usize) -> usize {
    OPS[2] + index * REGION
}

fn mgmt_region(index: usize) -> usize {
    MGMT[2] + index * REGION
}

fn warnings(dir: &OpsDir) -> Vec<DirWarning> {
    dir.warnings().iter().collect()
}

/// Appends bytes and counts them in the total size.
fn grow(bytes: &mut Vec<u8>, at: usize, extra: &[u8]) {
    bytes.splice(at..at, extra.iter().copied());
    let total = u16::try_from(bytes.len()).unwrap();
    set(bytes, 4, total.to_le_bytes());
}

#[test]
fn the_total_size_is_between_the_header_and_the_space() {
    for total in [0_u16, 8, 15, 113, 0x201, u16::MAX] {
        let mut bytes = ops();
        set(&mut bytes, 4, total.to_le_bytes());
        let parsed = OpsDir::parse(&bytes, &BARS);
        assert!(matches!(parsed, Err(DirError::TotalSize { .. })), "{total}: {parsed:?}");
    }
    let mut large = ops();
    large.resize(0x210, 0);
    set(&mut large, 4, 0x201_u16.to_le_bytes());
    let parsed = OpsDir::parse(&large, &BARS);
    assert!(matches!(parsed, Err(DirError::TotalSize { max: DIR_BYTES, .. })), "{parsed:?}");
    set(&mut large, 4, 0x200_u16.to_le_bytes());
    seal(&mut large, 10);
    let dir = OpsDir::parse(&large, &BARS).unwrap();
    assert_eq!(warnings(&dir), [DirWarning::SizeSum { sum: 112 }]);
}

#[test]
fn no_bytes_are_no_registers() {
    for len in 0..6 {
        assert!(OpsDir::parse(&ops()[..len], &BARS).is_err());
        assert!(MgmtDir::parse(&mgmt()[..len], &BARS).is_err());
    }
    assert!(OpsDir::parse(&[0xff; DIR_BYTES], &BARS).is_err());
    assert!(MgmtDir::parse(&[0xff; DIR_BYTES], &BARS).is_err());
}

#[test]
fn another_version_is_a_warning() {
    let dir = ops_with(|bytes| set(bytes, 2, [9, 0])).unwrap();
    assert_eq!(warnings(&dir), [DirWarning::Version { found: 9 }]);
    assert_eq!(dir.version(), 9);
    let dir = mgmt_with(|bytes| set(bytes, 2, [1, 0])).unwrap();
    assert!(dir.warnings().iter().eq([DirWarning::Version { found: 1 }]));
}

#[test]
fn another_bar_length_is_a_warning() {
    let dir = mgmt_with(|bytes| {
        set(bytes, 56, 1_u64.to_le_bytes());
        set(bytes, 64, 2_u64.to_le_bytes());
    });
    let expected =
        [DirWarning::BarLength { bar: 0, found: 1 }, DirWarning::BarLength { bar: 2, found: 2 }];
    assert!(dir.unwrap().warnings().iter().eq(expected));
}

#[test]
fn a_block_past_the_end_is_fatal() {
    let parsed = ops_with(|bytes| set(bytes, 6, [3, 0]));
    assert!(matches!(parsed, Err(DirError::BlockPastEnd { at: 112, .. })), "{parsed:?}");
    let parsed = ops_with(|bytes| set(bytes, 6, u16::MAX.to_le_bytes()));
    assert!(matches!(parsed, Err(DirError::BlockPastEnd { .. })), "{parsed:?}");
    for at in [OPS[1], ops_region(0), ops_region(1)] {
        let parsed = ops_with(|bytes| set(bytes, at, 0x1ff_u16.to_le_bytes()));
        assert!(matches!(parsed, Err(DirError::BlockPastEnd { .. })), "{at}: {parsed:?}");
    }
}

#[test]
fn a_block_smaller_than_known_is_fatal() {
    for (at, known) in OPS.iter().zip([16_u16, 32, 32]) {
        for size in [0, 1, known - 1] {
            let mut bytes = ops();
            set(&mut bytes, *at, size.to_le_bytes());
            seal(&mut bytes, 10);
            let parsed = OpsDir::parse(&bytes, &BARS);
            assert!(
                matches!(parsed, Err(DirError::BlockTooSmall { size: found, .. }) if found == size),
                "{at} {size}: {parsed:?}"
            );
        }
    }
    for (at, known) in MGMT.iter().zip([72_u16, 24, 32]) {
        let parsed = mgmt_with(|bytes| set(bytes, *at, (known - 1).to_le_bytes()));
        assert!(matches!(parsed, Err(DirError::BlockTooSmall { .. })), "{at}: {parsed:?}");
    }
}

#[test]
fn a_larger_block_is_a_warning_and_the_rest_is_found_behind_it() {
    let plain = OpsDir::parse(&ops(), &BARS).unwrap();
    for (block, at) in OPS.into_iter().enumerate() {
        let known = [16_u16, 32, 32][block];
        let dir = ops_with(|bytes| {
            grow(bytes, at + usize::from(known), &[0xee; 8]);
            set(bytes, at, (known + 8).to_le_bytes());
        });
        let dir = dir.unwrap();
        assert_eq!(warnings(&dir), [DirWarning::LargerBlock { at }]);
        assert!(dir.regions().eq(plain.regions()), "{at}");
    }
}

#[test]
fn a_wrong_crc_is_fatal_and_the_header_is_not_covered() {
    for at in 16..112 {
        let mut bytes = ops();
        bytes[at] ^= 0x10;
        let parsed = OpsDir::parse(&bytes, &BARS);
        assert!(parsed.is_err(), "{at}: {parsed:?}");
    }
    for at in 96..352 {
        let mut bytes = mgmt();
        bytes[at] ^= 1;
        let parsed = MgmtDir::parse(&bytes, &BARS);
        assert!(parsed.is_err(), "{at}: {parsed:?}");
    }
    let mut bytes = ops();
    set(&mut bytes, 8, 3_i16.to_le_bytes());
    let dir = OpsDir::parse(&bytes, &BARS).unwrap();
    assert_eq!(dir.status(), OpsStatus::CmInterfaceReady);
    let mut bytes = mgmt();
    set(&mut bytes, 44, (-1_i16).to_le_bytes());
    assert_eq!(MgmtDir::parse(&bytes, &BARS).unwrap().status(), MgmtStatus::BootError);
}

#[test]
fn no_number_of_the_queue_block_is_0() {
    let fields = [
        (2, 1, "int_trg_size"),
        (12, 2, "sq_count"),
        (14, 2, "per_sq_size"),
        (20, 2, "cq_count"),
        (22, 2, "per_cq_size"),
        (28, 2, "sq_hp_count"),
        (30, 2, "per_sq_hp_size"),
    ];
    for (at, len, name) in fields {
        let zeros = vec![0; len];
        let parsed = ops_with(|bytes| set(bytes, OPS[1] + at, &zeros));
        assert_eq!(parsed, Err(DirError::QueueZero { field: name }));
        if at < 24 {
            let parsed = mgmt_with(|bytes| set(bytes, MGMT[1] + at, &zeros));
            assert_eq!(parsed, Err(DirError::QueueZero { field: name }));
        }
    }
}

#[test]
fn a_region_of_unknown_type_is_skipped() {
    let mut record = ops()[ops_region(0)..ops_region(1)].to_vec();
    record[2] = 0x7f;
    let dir = ops_with(|bytes| {
        grow(bytes, 112, &record);
        set(bytes, 6, [3, 0]);
    });
    let dir = dir.unwrap();
    assert_eq!(warnings(&dir), [DirWarning::UnknownRegion { kind: 0x7f }]);
    assert_eq!(dir.regions().count(), 2);
}

#[test]
fn a_bad_region_is_skipped_and_missed_if_compulsory() {
    // Optional: the trace of the service processor.
    for (at, value) in [(16, &[0; 8][..]), (4, &[0; 4]), (4, &[0b01_011, 0, 0, 0])] {
        let dir = mgmt_with(|bytes| set(bytes, mgmt_region(3) + at, value)).unwrap();
        assert_eq!(dir.region(MgmtRegion::SpTrace), None);
        assert!(dir.warnings().iter().eq([DirWarning::BadRegion { kind: 3 }]), "{at} {value:?}");
        assert_eq!(dir.regions().count(), 7);
    }
    // Compulsory: those of the operations registers, and the first three of the others.
    let broken: [(usize, usize, &[u8]); 5] = [
        (0, 16, &[0; 8]),
        (0, 4, &[0; 4]),
        (0, 4, &[0b011, 0, 0, 0]),
        (1, 4, &[0x1e, 0x09, 0x02, 0]),
        (1, 24, &[0; 8]),
    ];
    for (region, at, value) in broken {
        let parsed = ops_with(|bytes| set(bytes, ops_region(region) + at, value));
        let kind = u8::try_from(region).unwrap();
        assert_eq!(parsed, Err(DirError::RegionMissing { kind }), "{at} {value:?}");
    }
    for kind in 0..3_u8 {
        let at = mgmt_region(kind.into());
        let parsed = mgmt_with(|bytes| set(bytes, at + 4, [0; 4]));
        assert_eq!(parsed, Err(DirError::RegionMissing { kind }));
        let parsed = mgmt_with(|bytes| set(bytes, at + 2, [0xff]));
        assert_eq!(parsed, Err(DirError::RegionMissing { kind }));
    }
}

#[test]
fn device_memory_may_be_granted_to_the_host() {
    let access = |dir: OpsDir| dir.region(OpsRegion::HostManaged).unwrap().access;
    let plain = access(ops_with(|_| {}).unwrap());
    assert!(!plain.is_io());
    let granted = ops_with(|bytes| set(bytes, ops_region(1) + 4, [0x1d])).unwrap();
    assert!(access(granted).is_io());
    assert_eq!(access(granted).bits(), plain.bits() | 1);
    assert_eq!(access(OpsDir::firmware(1 << 30).with_cpu_access()), access(granted));
}

#[test]
fn two_regions_of_a_type_are_fatal() {
    let parsed = mgmt_with(|bytes| set(bytes, mgmt_region(7) + 2, [6]));
    assert_eq!(parsed, Err(DirError::DuplicateRegion { kind: 6 }));
}

#[test]
fn a_region_outside_its_bar_is_fatal() {
    for (at, value) in [
        (3, &[1][..]),
        (3, &[6]),
        (8, &0x3f01_u64.to_le_bytes()),
        (8, &u64::MAX.to_le_bytes()),
        (16, &u64::MAX.to_le_bytes()),
    ] {
        let parsed = ops_with(|bytes| set(bytes, ops_region(0) + at, value));
        let is_outside = matches!(parsed, Err(DirError::RegionOutsideBar { kind: 0, .. }));
        assert!(is_outside, "{at} {value:?}: {parsed:?}");
    }
}

#[test]
fn the_length_of_a_peer_region_is_a_multiple_of_2_mib() {
    let len = host_managed_len(MAX_DRAM_BYTES) - 0x1000;
    let parsed = ops_with(|bytes| set(bytes, ops_region(1) + 16, len.to_le_bytes()));
    assert_eq!(parsed, Err(DirError::PeerRegionLength { kind: 1, len }));
    // Without the access bit any length will do.
    let dir = ops_with(|bytes| {
        set(bytes, ops_region(1) + 16, len.to_le_bytes());
        set(bytes, ops_region(1) + 4, 0x0000_091c_u32.to_le_bytes());
    });
    assert_eq!(dir.unwrap().region(OpsRegion::HostManaged).unwrap().len_bytes, len);
}

#[test]
fn overlap_is_fatal_in_one_dir_and_across_both() {
    let parsed = mgmt_with(|bytes| set(bytes, mgmt_region(4) + 8, 0x40_1000_u64.to_le_bytes()));
    assert!(matches!(parsed, Err(DirError::RegionOverlap { bar: 0, .. })), "{parsed:?}");
    let layout = |ops_at: u64, bits: u32| {
        let mgmt = MgmtDir::parse(&mgmt(), &BARS).unwrap();
        let ops = ops_with(|bytes| {
            set(bytes, ops_region(1) + 4, bits.to_le_bytes());
            set(bytes, ops_region(1) + 8, ops_at.to_le_bytes());
            set(bytes, ops_region(1) + 16, 0x20_0000_u64.to_le_bytes());
        });
        Layout::new(mgmt, ops.unwrap()).map(drop)
    };
    assert_eq!(layout(0x180_0000, 0x0002_091c), Ok(()));
    // The end of the last region of the management registers is 0xf2_2000.
    assert_eq!(layout(0xf2_2000, 0x0002_091c), Ok(()));
    let overlap = layout(0xf2_1000, 0x0002_091c);
    assert!(matches!(overlap, Err(DirError::RegionOverlap { bar: 0, .. })), "{overlap:?}");
    // A region that no one maps is not checked.
    assert_eq!(layout(0xf2_1000, 0x0000_091c), Ok(()));
}

#[test]
fn queues_and_doorbells_are_inside_their_regions() {
    let layout = |ops: Result<OpsDir, _>, mgmt: Result<MgmtDir, _>| {
        Layout::new(mgmt.unwrap(), ops.unwrap()).map(drop)
    };
    let plain = || (ops_with(|_| {}), mgmt_with(|_| {}));
    assert_eq!(layout(plain().0, plain().1), Ok(()));
    for (at, value) in [
        (8, &0xf00_u32.to_le_bytes()[..]),
        (8, &u32::MAX.to_le_bytes()),
        (12, &u16::MAX.to_le_bytes()),
        (14, &u16::MAX.to_le_bytes()),
        (16, &0xa00_u32.to_le_bytes()),
        (24, &0xf00_u32.to_le_bytes()),
        (4, &0x1ffd_u32.to_le_bytes()),
        (4, &u32::MAX.to_le_bytes()),
    ] {
        let ops = ops_with(|bytes| set(bytes, OPS[1] + at, value));
        let outside = layout(ops, plain().1);
        assert!(matches!(outside, Err(DirError::OutsideRegion { .. })), "{at}: {outside:?}");
    }
    let ops = ops_with(|bytes| set(bytes, OPS[1] + 2, [3]));
    assert_eq!(layout(ops, plain().1), Err(DirError::DoorbellSize { bytes: 3 }));
}

#[test]
fn discovery_reads_what_is_there() {
    let window = TestWindow::new(0x4000);
    window.write_bytes(OPS_DIR, &ops()).unwrap();
    window.write_bytes(MGMT_DIR, &mgmt()).unwrap();
    assert_eq!(discovery::mgmt_status(&window), Ok(MgmtStatus::DevReady));
    assert_eq!(discovery::ops_status(&window), Ok(OpsStatus::Ready));
    let mgmt = discovery::read_mgmt(&window, &BARS).unwrap();
    let ops = discovery::read_ops(&window, &BARS).unwrap();
    let layout = Layout::new(mgmt, ops).unwrap();
    assert_eq!(layout.host_managed.base.as_u64(), 0x80_0580_1000);
    assert_eq!(layout.host_managed.len, 0x7_fa60_0000);
    window.lose();
    assert_eq!(discovery::ops_status(&window), Err(ErrorKind::Stale));
    let read = discovery::read_ops(&window, &BARS);
    assert!(matches!(read, Err(DiscoveryError::Access(ErrorKind::Stale))), "{read:?}");
}

#[test]
fn an_untranslated_window_is_not_ready() {
    let window = TestWindow::new(0x4000);
    window.write_bytes(BarOffset::new(0), &[0xff; 0x4000]).unwrap();
    assert_eq!(discovery::mgmt_status(&window), Ok(MgmtStatus::BootError));
    assert_eq!(discovery::ops_status(&window), Ok(OpsStatus::FwError));
    let read = discovery::read_mgmt(&window, &BARS);
    assert!(matches!(read, Err(DiscoveryError::Registers(DirError::TotalSize { .. }))), "{read:?}");
}

proptest! {
    /// A valid image with a few bytes changed and a CRC that fits gets past the first checks.
    #[test]
    fn changed_registers_never_panic(
        changes in prop::collection::vec((0_usize..352, any::<u8>()), 1..6),
        seal_it in any::<bool>(),
    ) {
        for (mut bytes, crc_at) in [(ops(), 10), (mgmt(), 16)] {
            for &(at, value) in &changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
            if seal_it && word(0) <= word(4) && word(4) <= bytes.len() {
                seal(&mut bytes, crc_at);
            }
            if crc_at == 10 {
                if let Ok(ops) = OpsDir::parse(&bytes, &BARS) {
                    let _ = Layout::new(MgmtDir::parse(&mgmt(), &BARS).unwrap(), ops);
                    let _ = ops.encode(&mut [0; DIR_BYTES]);
                }
            } else if let Ok(mgmt) = MgmtDir::parse(&bytes, &BARS) {
                let _ = Layout::new(mgmt, OpsDir::parse(&ops(), &BARS).unwrap());
                let _ = mgmt.encode(&mut [0; DIR_BYTES]);
            }
        }
    }
}
