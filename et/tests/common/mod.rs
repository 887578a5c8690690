//! What the tests share.

#![allow(dead_code, reason = "not every test program uses everything")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::time::Duration;

use et::{AnyHal, Config, Device, Kernel};

/// Long enough for a busy machine; only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn open(parameters: &str) -> Device<AnyHal> {
    open_with(parameters, Config::new())
}

pub(crate) fn open_with(parameters: &str, config: Config) -> Device<AnyHal> {
    et::open_with(format!("sim:{parameters}").parse().unwrap(), config).unwrap()
}

/// Reads a committed kernel.
pub(crate) fn elf(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf");
    std::fs::read(folder.join(format!("{name}.elf"))).unwrap()
}

pub(crate) fn load(device: &Device<AnyHal>, name: &str) -> Kernel {
    device.load_kernel(name, &elf(name)).unwrap()
}
