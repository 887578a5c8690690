//! A simulated card that is shared, and its clients.

use std::path::Path;
use std::time::{Duration, Instant};

use et::{AnyHal, Config, Device, Event, Kernel, Launch};
use et_broker::{Broker, BrokerOptions, MemberStatus};

/// Long enough for a busy machine; only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// Size of the partitions.
pub(crate) const PARTITION: u64 = 64 << 20;

/// What is shared.
pub(crate) const CARD: &str = "shires=2,dram=512MiB";

pub(crate) struct Rig {
    pub(crate) broker: Broker<AnyHal>,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(clients: usize) -> Self {
        Self::with(CARD, BrokerOptions::new(clients).memory_bytes(PARTITION))
    }

    pub(crate) fn with(card: &str, options: BrokerOptions) -> Self {
        let config = Config::new().byte_copies(true);
        let device = et::open_with(format!("sim:{card}").parse().unwrap(), config).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let broker = Broker::start(device, folder.path(), &options).unwrap();
        Self { broker, _folder: folder }
    }

    pub(crate) fn locator(&self, slot: usize) -> String {
        format!("vfio-user:{}", self.broker.sockets()[slot].display())
    }

    pub(crate) fn client(&self, slot: usize) -> Device<AnyHal> {
        let opened = et::open(&self.locator(slot));
        opened.unwrap_or_else(|error| panic!("{}", et::Report(&error)))
    }

    pub(crate) fn status(&self, slot: usize) -> MemberStatus {
        self.broker.status().members[slot].clone()
    }

    /// Waits until what is true of a slot.
    pub(crate) fn wait(&self, slot: usize, what: impl Fn(&MemberStatus) -> bool) -> MemberStatus {
        let deadline = Instant::now() + LONG;
        loop {
            let status = self.status(slot);
            if what(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

pub(crate) fn load(device: &Device<AnyHal>, name: &str) -> Kernel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    device.load_kernel(name, &std::fs::read(folder.join(format!("{name}.elf"))).unwrap()).unwrap()
}

/// Launches a kernel that never ends.
pub(crate) fn hang(device: &Device<AnyHal>) -> Event {
    device.default_stream().launch(&Launch::new(&load(device, "hang"))).unwrap()
}

/// Launches a kernel that ends at once, if it gets the cores.
pub(crate) fn start(device: &Device<AnyHal>) -> Event {
    let kernel = load(device, "memset");
    let buffer = device.alloc(64).unwrap();
    let launch = Launch::new(&kernel).buffer(&buffer).u64(1).u64(64);
    device.default_stream().launch(&launch).unwrap()
}
