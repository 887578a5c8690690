//! Boot, registers, reset: what the host sees before the first command.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Rig, discover, echo, null_config, until};
use et_devapi::dir::{BarSizes, DirError};
use et_devapi::discovery::{self, DiscoveryError};
use et_devapi::msg::ops::Body;
use et_devapi::pci::{MGMT_DIR, OPS_DIR};
use et_devapi::trace::Buffer;
use et_hal::{BarOffset, Endpoint, Generation, Mmio, Width};
use et_sim_device::{Board, BoardConfig, Fault, Link, MemoryAfterReset, ResetBusy};

fn golden(name: &str) -> Vec<u8> {
    let path = "../../testing/et-testkit/golden/dir.json";
    let file = std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&file).unwrap();
    let images = json["images"].as_array().unwrap();
    let image = images.iter().find(|image| image["name"] == name).unwrap();
    let hex = image["bytes"].as_str().unwrap();
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn the_registers_of_a_full_card_are_the_golden_images() {
    let mut config = null_config();
    config.dram_bytes = BoardConfig::MAX_DRAM_BYTES;
    let board = Board::power_on(config).unwrap();
    discover(&board);
    for (name, at) in [("ops_dir_ready", OPS_DIR), ("mgmt_dir_ready", MGMT_DIR)] {
        let image = golden(name);
        let mut bytes = vec![0; image.len()];
        board.page().read_bytes(at, &mut bytes).unwrap();
        assert_eq!(bytes, image, "{name}");
    }
}

#[test]
fn a_partial_card_publishes_its_shires_without_the_master() {
    let mut config = null_config();
    config.shires = 1 << 32 | 0b1011;
    config.frequency_mhz = 750;
    let layout = discover(&Board::power_on(config).unwrap());
    assert_eq!(layout.mgmt.header.cm_shires_mask.get(), 0b1011);
    assert_eq!(layout.mgmt.header.minion_boot_freq.get(), 750);
    assert_eq!(layout.host_managed.len, 0xa60_0000);
}

#[test]
fn statuses_come_in_the_order_of_firmware() {
    let mut config = null_config();
    config.boot_step = Duration::from_millis(20);
    let board = Board::power_on(config).unwrap();
    let page = board.page();
    let (mut mgmt, mut ops) = (vec![0_i16], vec![0_i16]);
    until("boot", || {
        let now = i16::from(discovery::mgmt_status(page).unwrap());
        if mgmt.last() != Some(&now) {
            mgmt.push(now);
        }
        let now = i16::from(discovery::ops_status(page).unwrap());
        if ops.last() != Some(&now) {
            ops.push(now);
        }
        (mgmt.last(), ops.last()) == (Some(&12), Some(&8))
    });
    // A slow observer may miss a status, but sees those it sees in order.
    assert!(is_subsequence(&mgmt, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12]), "{mgmt:?}");
    assert!(is_subsequence(&ops, &[0, 2, 3, 1, 4, 5, 6, 7, 8]), "{ops:?}");
}

#[test]
fn the_service_processor_has_logged_its_boot_when_it_is_ready() {
    /// Spec: §12.1
    const LOG: u64 = 0x80_0440_1000;
    let mut config = null_config();
    // The operations endpoint gets ready some steps later.
    config.boot_step = Duration::from_millis(20);
    let board = Board::power_on(config).unwrap();
    until("boot", || i16::from(discovery::mgmt_status(board.page()).unwrap()) == 12);
    let mut log = vec![0; 0x2000];
    board.dram().read(LOG, &mut log).unwrap();
    let log = Buffer::parse(&log).unwrap();
    assert_eq!(log.parts().next().unwrap().entries().count(), 1);
}

fn is_subsequence(seen: &[i16], all: &[i16]) -> bool {
    let mut all = all.iter();
    seen.iter().all(|status| all.any(|other| other == status))
}

#[test]
fn the_link_is_down_until_the_address_translation_is_programmed() {
    let mut config = null_config();
    config.faults = vec![Fault::NeverBoots];
    let board = Board::power_on(config).unwrap();
    assert_eq!(board.link(board.generation()), Link::Down);

    let mut config = null_config();
    config.faults = vec![Fault::BootStops { endpoint: Endpoint::Management, status: 8 }];
    let board = Board::power_on(config).unwrap();
    until("translation", || board.link(board.generation()) == Link::Up);
    assert_eq!(i16::from(discovery::mgmt_status(board.page()).unwrap()), 8);
}

#[test]
fn boot_can_fail_on_either_endpoint() {
    for (endpoint, mgmt, ops) in [(Endpoint::Management, -1, 8), (Endpoint::Operations, 12, -1)] {
        let mut config = null_config();
        config.faults = vec![Fault::BootError { endpoint }];
        let board = Board::power_on(config).unwrap();
        until("the error", || {
            i16::from(discovery::mgmt_status(board.page()).unwrap()) == mgmt
                && i16::from(discovery::ops_status(board.page()).unwrap()) == ops
        });
    }
}

#[test]
fn wrong_registers_are_wrong_in_the_way_asked_for() {
    let ready = |faults| {
        let mut config = null_config();
        config.faults = faults;
        let board = Board::power_on(config).unwrap();
        until("boot", || {
            i16::from(discovery::mgmt_status(board.page()).unwrap()) == 12
                && i16::from(discovery::ops_status(board.page()).unwrap()) == 8
        });
        board
    };
    let bars = BarSizes::ET_SOC_1;
    let board = ready(vec![Fault::BadCrc { endpoint: Endpoint::Management }]);
    let read = discovery::read_mgmt(board.page(), &bars);
    assert!(matches!(read, Err(DiscoveryError::Registers(DirError::Crc { .. }))), "{read:?}");
    assert!(discovery::read_ops(board.page(), &bars).is_ok());

    let board = ready(vec![Fault::BadSize { endpoint: Endpoint::Operations, total_size: 9999 }]);
    let read = discovery::read_ops(board.page(), &bars);
    assert!(matches!(read, Err(DiscoveryError::Registers(_))), "{read:?}");
    assert!(discovery::read_mgmt(board.page(), &bars).is_ok());
}

#[test]
fn a_reset_starts_everything_over() {
    let mut rig = Rig::new(null_config());
    rig.send(0, &echo(1));
    rig.next();
    let dram = std::sync::Arc::clone(rig.board.dram());
    dram.write(common::HOST_BASE, &[7; 16]).unwrap();
    let board = std::sync::Arc::clone(&rig.board);
    let old = board.generation();

    let new = board.begin_reset(MemoryAfterReset::Kept).unwrap();
    assert_eq!(new, Generation(old.0 + 1));
    assert_eq!(board.link(old), Link::Stale);
    until("the reset", || !board.resetting());
    until("the link", || board.link(new) == Link::Up);

    let mut rig = Rig::attach(std::sync::Arc::clone(&board));
    assert_eq!(rig.cq.indices(), (0, 0));
    assert_eq!(rig.sq[0].indices(), (0, 0));
    rig.send(0, &echo(2));
    assert!(matches!(rig.next().body, Body::Echo { .. }));
    let mut bytes = [0; 16];
    dram.read(common::HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16]);

    board.begin_reset(MemoryAfterReset::Cleared).unwrap();
    until("the reset", || !board.resetting());
    dram.read(common::HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16]);
    Rig::attach(board).assert_quiet();
}

#[test]
fn one_reset_at_a_time() {
    let board = Board::power_on(null_config()).unwrap();
    let mut refused = 0;
    for _ in 0..50 {
        refused += u32::from(board.begin_reset(MemoryAfterReset::Kept) == Err(ResetBusy));
        refused += u32::from(board.begin_reset(MemoryAfterReset::Kept) == Err(ResetBusy));
    }
    until("the last reset", || !board.resetting());
    // Refused or not, generations and accepted resets agree.
    assert_eq!(board.generation(), Generation(100 - refused));
    Rig::attach(board).assert_quiet();
}

#[test]
fn only_the_published_doorbell_writes_ring() {
    let rig = Rig::new(null_config());
    let before = rig.board.counters();
    for (at, width, value) in [
        (4, Width::W32, 2),
        (4, Width::W16, 1),
        (4, Width::W64, 1),
        (8, Width::W32, 1),
        (0x1ffc, Width::W32, 1),
    ] {
        rig.board.ring(BarOffset::new(at), width, value);
    }
    let after = rig.board.counters();
    assert_eq!(after.ops_doorbells, before.ops_doorbells);
    assert_eq!(after.mgmt_doorbells, before.mgmt_doorbells);
    rig.board.ring(BarOffset::new(0), Width::W32, 1);
    assert_eq!(rig.board.counters().mgmt_doorbells, before.mgmt_doorbells + 1);
}
