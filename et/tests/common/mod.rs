//! What the tests share.

#![allow(dead_code, reason = "not every test program uses everything")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
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

/// What was written to any of its clones.
#[derive(Clone, Default)]
pub(crate) struct Lines(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
