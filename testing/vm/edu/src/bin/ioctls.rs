//! `et-vm-ioctls ADDRESS`: drives the card through the crate `vfio-ioctls` and nothing of our VFIO
//! backend, then hands the open device to the backend.
//!
//! A witness: what our calls of the kernel and our model of it both have wrong shows here.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::dir::BarSizes;
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{
    Body, Command, Completion, DmaReadNode, DmaStatus, DmaWriteNode, MAX_COMMAND_BYTES,
};
use et_devapi::msg::{CommandFlags, Tag, completion_bytes};
use et_devapi::pci::{DEVICE_ID, MAILBOX_BAR, VENDOR_ID};
use et_devapi::ring::{Consumer, Producer, Ring};
use et_hal::{
    AccessError, AccessPath, BarOffset, BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer,
    ErrorType, Hal, Mmio, Pop, Push, Width, Widths,
};
use et_hal_vfio::{Bdf, VfioHal, VfioOptions};
use et_vm_edu::{Checks, Memory, Pages};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioOps};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Limit of everything that the card does.
const LIMIT: Duration = Duration::from_secs(20);
/// `VFIO_PCI_CONFIG_REGION_INDEX`.
const CONFIG: u32 = 7;
const COMMAND: u64 = 4;
/// Memory space and bus mastering.
const ENABLED: [u8; 2] = [0x06, 0x00];
/// Boot states in which an endpoint serves. Spec: §4
const MGMT_READY: i16 = 12;
const OPS_READY: i16 = 8;
const PAGE: usize = 4096;
/// Where the program maps its own memory.
const SOURCE: u64 = 0x1000_0000;
const TARGET: u64 = 0x1001_0000;
/// What it leaves to the backend.
const FOR_THE_BACKEND: std::ops::RangeInclusive<u64> = 0x4000_0000..=0x7fff_ffff;
/// Vector of completions of the operations endpoint. Spec: §2.1
const COMPLETIONS: usize = 3;

fn main() -> ExitCode {
    let mut checks = Checks::new();
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: et-vm-ioctls ADDRESS");
        return ExitCode::FAILURE;
    };
    run(&mut checks, &address);
    checks.finish()
}

/// A region by the device's descriptor, as the crate reads and writes it.
struct Trapped {
    device: Arc<VfioDevice>,
    index: u32,
}

impl Trapped {
    fn load(&self, at: u64, into: &mut [u8]) {
        // The crate reports no failure; it leaves what was there.
        into.fill(0xff);
        self.device.region_read(self.index, into, at);
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 4];
        self.load(at, &mut bytes);
        u32::from_le_bytes(bytes).into()
    }
}

impl ErrorType for Trapped {
    type Error = AccessError;
}

impl Mmio for Trapped {
    fn len_bytes(&self) -> u64 {
        self.device.get_region_size(self.index)
    }

    fn widths(&self) -> Widths {
        Widths::only(Width::W8).with(Width::W16).with(Width::W32)
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Trapped
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, AccessError> {
        AccessError::check_register(at, width, self.len_bytes())?;
        let mut bytes = [0; 8];
        let len = usize::try_from(width.bytes()).unwrap_or(8);
        self.load(at.as_u64(), &mut bytes[..len]);
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), AccessError> {
        AccessError::check_write(at, width, value, self.len_bytes())?;
        let len = usize::try_from(width.bytes()).unwrap_or(8);
        self.device.region_write(self.index, &value.to_le_bytes()[..len], at.as_u64());
        Ok(())
    }

    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), AccessError> {
        AccessError::check(at, into.len() as u64, self.len_bytes())?;
        self.load(at.as_u64(), into);
        Ok(())
    }

    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), AccessError> {
        AccessError::check(at, from.len() as u64, self.len_bytes())?;
        self.device.region_write(self.index, from, at.as_u64());
        Ok(())
    }

    /// In halves, which are consistent: indices are far below 2³².
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, AccessError> {
        AccessError::check_register(at, Width::W64, self.len_bytes())?;
        Ok(self.word(at.as_u64()) | self.word(at.as_u64() + 4) << 32)
    }

    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), AccessError> {
        self.write_bytes(at, &value.to_le_bytes())
    }

    fn flush(&self) -> Result<(), AccessError> {
        self.word(0);
        Ok(())
    }
}

/// The queues of the operations endpoint.
struct Queues {
    window: Trapped,
    layout: Layout,
    producer: Producer,
    consumer: Consumer,
    completions: EventFd,
}

impl Queues {
    /// Waits for the interrupt; its count is taken, so that the next wait waits.
    fn is_signalled(&self, end: Instant) -> bool {
        while self.completions.read().is_err() {
            if Instant::now() > end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Sends a DMA command and returns what became of it.
    fn call(&mut self, message: &[u8]) -> Result<DmaStatus, String> {
        let said = |error: &dyn std::error::Error| error.to_string();
        let pushed = self.producer.push(&self.window, message).map_err(|error| said(&error))?;
        if pushed != Push::Accepted {
            return Err("the queue is full".into());
        }
        let bell = self.layout.ops_mailbox.doorbell;
        let rung = self.window.write(bell.at, bell.width, bell.value.into());
        rung.map_err(|error| said(&error))?;
        let end = Instant::now() + LIMIT;
        let mut bytes = [0; 512];
        loop {
            if !self.is_signalled(end) {
                return Err("no interrupt".into());
            }
            let frame = |header: &_| completion_bytes(self.layout.ops_mailbox.endpoint, header);
            let popped = self.consumer.pop_message(&self.window, frame, &mut bytes);
            let Pop::Message(len) = popped.map_err(|error| said(&error))? else { continue };
            return match Completion::parse(&bytes[..len]).map_err(|error| said(&error))? {
                Completion { body: Body::DmaRead { status, .. }, .. }
                | Completion { body: Body::DmaWrite { status, .. }, .. } => Ok(status),
                other => Err(format!("{other:?}")),
            };
        }
    }

    fn upload(&mut self, from: u64, to: DeviceAddr, len: u32) -> Result<DmaStatus, String> {
        let node = DmaWriteNode::new(BusAddr::new(from), to, len);
        let mut out = [0; MAX_COMMAND_BYTES];
        let len = Command::DmaWriteList { nodes: &[node] }.encode(
            Tag::new(1),
            CommandFlags::EMPTY,
            &mut out,
        );
        self.call(&out[..len.map_err(|error| error.to_string())?])
    }

    fn download(&mut self, from: DeviceAddr, to: u64, len: u32) -> Result<DmaStatus, String> {
        let node = DmaReadNode::new(BusAddr::new(to), from, len);
        let mut out = [0; MAX_COMMAND_BYTES];
        let len = Command::DmaReadList { nodes: &[node] }.encode(
            Tag::new(2),
            CommandFlags::EMPTY,
            &mut out,
        );
        self.call(&out[..len.map_err(|error| error.to_string())?])
    }
}

fn run(checks: &mut Checks, text: &str) -> Option<()> {
    let address: Bdf = checks.step("address", text.parse())?;
    let container = checks.works("container", VfioContainer::new(None))?;
    let container = Arc::new(container);
    let path = PathBuf::from(format!("/sys/bus/pci/devices/{address}"));
    let ops: Arc<dyn VfioOps> = Arc::clone(&container) as _;
    let device = Arc::new(checks.works("device", VfioDevice::new(&path, ops, false))?);
    let config = Trapped { device: Arc::clone(&device), index: CONFIG };
    checks.same("ids", config.word(0), u64::from(DEVICE_ID) << 16 | u64::from(VENDOR_ID));
    device.region_write(CONFIG, &ENABLED, COMMAND);
    checks.same("command_register", config.word(COMMAND) & 0x6, 0x6);
    let events: Result<Vec<_>, _> = (0..4).map(|_| EventFd::new(EFD_NONBLOCK)).collect();
    let events = checks.step("events", events)?;
    checks.works("four_vectors", device.enable_msi(events.iter().collect()))?;

    let completions = checks.step("event", events[COMPLETIONS].try_clone())?;
    let mut queues = boot(checks, &device, completions)?;
    transfers(checks, &container, &mut queues)?;
    drop(queues);
    checks.works("vectors_off", device.disable_msi())?;
    shared(checks, address, &device, &container)?;
    // The backend has let go, and the program still has the device.
    checks.same("ids_afterwards", config.word(0) & 0xffff, VENDOR_ID.into());
    drop((config, device));
    drop(container);
    // Nothing of either is left open: another opener gets the device.
    let name = format!("{text},mode=group").parse();
    let hal = VfioHal::open(&checks.step("name", name)?, &VfioOptions::new());
    checks.works("backend_alone", hal.and_then(VfioHal::close))
}

/// Waits for the firmware and finds its queues. Spec: §4, §5
fn boot(checks: &mut Checks, device: &Arc<VfioDevice>, completions: EventFd) -> Option<Queues> {
    let window = Trapped { device: Arc::clone(device), index: MAILBOX_BAR.index().into() };
    checks.same("length_of_the_mailboxes", window.len_bytes(), 0x4000);
    let end = Instant::now() + LIMIT;
    let is_up = loop {
        let mgmt = discovery::mgmt_status(&window).map(i16::from);
        let ops = discovery::ops_status(&window).map(i16::from);
        if mgmt == Ok(MGMT_READY) && ops == Ok(OPS_READY) {
            break true;
        }
        if Instant::now() > end {
            break false;
        }
        std::thread::yield_now();
    };
    checks.holds("firmware_boots", is_up, "another status");
    let bars = BarSizes::ET_SOC_1;
    let mgmt = checks.step("management", discovery::read_mgmt(&window, &bars))?;
    let ops = checks.step("operations", discovery::read_ops(&window, &bars))?;
    let layout = checks.works("layout", Layout::new(mgmt, ops))?;
    let ring = |set: et_hal::RingSet| Ring::new::<AccessError>(set.at, set.size_bytes);
    let submission = checks.step("submission", ring(layout.ops_mailbox.submission))?;
    let completion = checks.step("completion", ring(layout.ops_mailbox.completion))?;
    let producer = checks.works("producer", Producer::attach(submission, &window))?;
    let consumer = checks.works("consumer", Consumer::attach(completion, &window))?;
    Some(Queues { window, layout, producer, consumer, completions })
}

#[expect(unsafe_code, reason = "maps memory for a device")]
fn map(container: &VfioContainer, iova: u64, memory: &Memory) -> Result<(), String> {
    let address = std::ptr::with_exposed_provenance_mut(memory.address());
    // SAFETY: the memory is a mapping of a file that Rust has no references into, and outlives the
    // mapping for the device.
    let mapped = unsafe { container.vfio_dma_map(iova, memory.len(), address) };
    mapped.map_err(|error| error.to_string())
}

/// Takes bytes to the card and back.
fn transfers(checks: &mut Checks, container: &VfioContainer, queues: &mut Queues) -> Option<()> {
    let source = checks.step("memory", Memory::new(2 * PAGE, Pages::Small))?;
    let target = checks.step("memory", Memory::new(2 * PAGE, Pages::Small))?;
    checks.works("map_source", map(container, SOURCE, &source))?;
    checks.works("map_target", map(container, TARGET, &target))?;
    let data: Vec<u8> = (0..=u8::MAX).cycle().skip(7).step_by(3).take(5003).collect();
    source.set_bytes(1, &data);
    let place = queues.layout.host_managed.base.checked_add(0x1_0000)?;
    let len = u32::try_from(data.len()).ok()?;
    let there = checks.step("to_device", queues.upload(SOURCE + 1, place, len))?;
    checks.same("card_reads_memory", there, DmaStatus::Complete);
    let back = checks.step("to_host", queues.download(place, TARGET + 3, len))?;
    checks.same("card_writes_memory", back, DmaStatus::Complete);
    checks.holds("every_byte", target.bytes(3, data.len()) == data, "others");
    checks.same("no_byte_before", target.bytes(0, 3), vec![0; 3]);
    let rest = 2 * PAGE - 3 - data.len();
    checks.same("no_byte_after", target.bytes(3 + data.len(), rest), vec![0; rest]);
    for (name, iova) in [("unmap_source", SOURCE), ("unmap_target", TARGET)] {
        checks.works(name, container.vfio_dma_unmap(iova, 2 * PAGE))?;
    }
    let refused = checks.step("after_unmapping", queues.upload(SOURCE, place, 64))?;
    checks.holds("unmapped_memory", refused != DmaStatus::Complete, "that it was read");
    Some(())
}

/// The backend beside the program: one process, one device, one domain.
fn shared(
    checks: &mut Checks,
    address: Bdf,
    device: &Arc<VfioDevice>,
    container: &Arc<VfioContainer>,
) -> Option<()> {
    let own = checks.step("memory", Memory::new(PAGE, Pages::Small))?;
    checks.works("map_beside", map(container, SOURCE, &own))?;
    let (ours, theirs) = (Arc::clone(device), Arc::clone(container));
    let options = VfioOptions::new();
    let hal = VfioHal::from_device(address, ours, theirs, FOR_THE_BACKEND, &options);
    let hal = checks.works("backend_takes_over", hal)?;
    let facts = checks.works("facts", hal.facts())?;
    checks.same("vectors", facts.vectors, 4);
    let tests = checks.works("interrupt_test", hal.test_interrupts(LIMIT))?;
    checks.holds("interrupts_arrive", tests.iter().all(|test| test.arrived), "not all");
    let window = checks.works("window", hal.window(MAILBOX_BAR))?;
    let status = checks.works("status", discovery::ops_status(&window))?;
    checks.same("firmware_is_up", i16::from(status), OPS_READY);
    let buffer = checks.works("buffer", hal.dma().alloc(1 << 20, DeviceAccess::ReadWrite))?;
    let bus = buffer.bus_addr().as_u64();
    checks.holds("address_of_the_buffer", FOR_THE_BACKEND.contains(&bus), format_args!("{bus:#x}"));
    drop((window, buffer));
    checks.works("backend_closes", hal.close())?;
    checks.works("unmap_beside", container.vfio_dma_unmap(SOURCE, PAGE))
}
