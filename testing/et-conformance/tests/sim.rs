//! The simulator passes everything, on a small board and on the one that is simulated by
//! default, both with device memory that the host may use, and all that a card can pass as one that
//! is like it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::process::ExitCode;
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use et_conformance::runner::Suite;
use et_conformance::{Rig, harness};
use et_hal_sim::{BoardConfig, SimHal};

/// A board that only one at a time can have, as it is with a card: cases must close it before they
/// open it again.
fn board(text: &str) -> Rig<SimHal> {
    let config: BoardConfig = text.parse().unwrap();
    let last = Mutex::new(Weak::new());
    let open = move || {
        let mut last = last.lock().unwrap();
        // Its threads may need a moment to leave it.
        let started = Instant::now();
        while last.strong_count() != 0 {
            if started.elapsed() > Duration::from_secs(60) {
                return Err(io::Error::other("someone still has the board"));
            }
            std::thread::yield_now();
        }
        let hal = SimHal::open(config.clone()).map_err(io::Error::other)?;
        *last = std::sync::Arc::downgrade(hal.board());
        Ok(hal)
    };
    Rig::new(open).counts_commands(|hal| hal.board().counters().commands)
}

fn suite(name: &'static str, text: &str) -> Suite<SimHal> {
    Suite::new(name, board(text)).complete()
}

fn main() -> ExitCode {
    let bus = suite("non-coherent", "cpu-access=yes,shires=4,dram=1GiB,coherent=no");
    let asleep =
        suite("asleep", "cpu-access=yes,shires=4,dram=1GiB,credit-abort=no,ack-timeout=100000");
    // Device memory is for the device alone, and each shire has caches.
    let card = Suite::new("card", board("shires=4,dram=1GiB,memory=private"));
    harness(vec![
        suite("small", "cpu-access=yes,shires=4,dram=1GiB"),
        suite("default", "cpu-access=yes"),
        bus,
        asleep,
        card,
        suite("checked", "cpu-access=yes,shires=4,dram=1GiB,check=memory"),
    ])
}
