//! A kernel for tests: it has one card, keeps books on everything it gives out, and refuses what it
//! is told to refuse.
//!
//! Memory, BARs and event counters are real (memory files, `eventfd`), so that windows and waits
//! work; only the VFIO part is a model.

mod card;
mod iommu;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) use card::Card;
pub(crate) use iommu::{Iommu, Pin};

use super::{Arg, Errno, Fd, Linux, MapRequest, OwnerFile, Pages, Request, Sys};
use crate::sync::lock;

/// Where the card is.
pub(crate) const BDF: &str = "0000:01:00.0";
/// Its group.
pub(crate) const GROUP: u32 = 17;

static IDENTITIES: AtomicUsize = AtomicUsize::new(1);

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Container,
    Group,
    Cdev,
    Iommufd,
    Device,
    /// A real descriptor.
    Memory,
    Event,
    Owner,
}

/// What can be set and seen by tests.
#[derive(Debug)]
pub(crate) struct State {
    /// Calls in order, those that cannot fail left out.
    pub(crate) log: Vec<String>,
    /// Refuse the call with this index in the log.
    pub(crate) fail: Option<(usize, Errno)>,
    /// Refuse requests of a kind, one after the other.
    pub(crate) refuse: BTreeMap<Request, VecDeque<Errno>>,
    /// Refuse to open these paths.
    pub(crate) refuse_open: BTreeMap<String, Errno>,
    /// Refuse every mapping of a BAR.
    pub(crate) refuse_bar_maps: Option<Errno>,
    pub(crate) fds: BTreeMap<Fd, Node>,
    next_fd: Fd,
    /// Mappings of the process: address and length.
    pub(crate) mappings: BTreeMap<usize, usize>,
    /// Addresses kept from child processes.
    pub(crate) kept_from_children: usize,
    pub(crate) card: Card,
    pub(crate) iommu: Iommu,
    /// The kernel has `/dev/vfio/devices` and `/dev/iommu`.
    pub(crate) has_cdev: bool,
    pub(crate) viable: bool,
    pub(crate) huge_pages_free: usize,
    huge: Vec<Fd>,
    pub(crate) owner_text: String,
    pub(crate) owner_locked_by_other: bool,
    pub(crate) may_see_frames: bool,
    /// The clock.
    pub(crate) time: Duration,
    /// A reset does not return before this is cleared.
    pub(crate) hang_resets: bool,
    /// Nor does closing the device.
    pub(crate) hang_close: bool,
}

/// The kernel.
#[derive(Debug)]
pub(crate) struct Fake {
    linux: Linux,
    identity: usize,
    state: Mutex<State>,
    released: Condvar,
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            log: Vec::new(),
            fail: None,
            refuse: BTreeMap::new(),
            refuse_open: BTreeMap::new(),
            refuse_bar_maps: None,
            fds: BTreeMap::new(),
            next_fd: 1_000_000,
            mappings: BTreeMap::new(),
            kept_from_children: 0,
            card: Card::new(&Linux),
            iommu: Iommu::new(),
            has_cdev: true,
            viable: true,
            huge_pages_free: 0,
            huge: Vec::new(),
            owner_text: String::new(),
            owner_locked_by_other: false,
            may_see_frames: true,
            time: Duration::ZERO,
            hang_resets: false,
            hang_close: false,
        };
        let identity = IDENTITIES.fetch_add(1, Ordering::Relaxed);
        let (state, released) = (Mutex::new(state), Condvar::new());
        Arc::new(Self { linux: Linux, identity, state, released })
    }

    /// Looks at, or changes, the state.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut lock(&self.state))
    }

    pub(crate) fn calls(&self) -> usize {
        self.with(|state| state.log.len())
    }

    /// Signals a vector of the card, if the kernel has it enabled.
    pub(crate) fn interrupt(&self, index: u32, vector: usize) {
        let fd =
            self.with(|state| state.card.irqs.get(&index).and_then(|fds| fds.get(vector).copied()));
        if let Some(fd) = fd {
            self.linux.raise(fd);
        }
    }

    /// Lets a hanging reset return.
    pub(crate) fn release_resets(&self) {
        self.with(|state| (state.hang_resets, state.hang_close) = (false, false));
        self.released.notify_all();
    }

    /// Waits until nothing of the process is left: a thread that was left behind may take its time.
    pub(crate) fn wait_until_clean(&self) {
        for _ in 0..1_000_000 {
            if self.with(|state| state.fds.is_empty()) {
                break;
            }
            std::thread::yield_now();
        }
        self.assert_clean("at the end");
    }

    /// Fails unless every descriptor, mapping and pin was given back.
    pub(crate) fn assert_clean(&self, when: &str) {
        self.with(|state| {
            assert!(state.fds.is_empty(), "descriptors left {when}: {:?}", state.fds);
            assert!(state.mappings.is_empty(), "mappings left {when}: {:x?}", state.mappings);
            assert!(state.iommu.pins.is_empty(), "pins left {when}: {:x?}", state.iommu.pins);
            let stopped = !state.card.was_open || state.card.dead || !state.card.is_bus_master();
            assert!(stopped, "bus mastering left on {when}");
        });
    }

    /// Fails if anything is left but memory that the device may still write to: without an IOMMU
    /// and without certainty that it is silent, no other process may get that memory.
    pub(crate) fn wait_until_clean_but_memory(&self) {
        let memory = |state: &State| state.fds.values().all(|&node| node == Node::Memory);
        for _ in 0..1_000_000 {
            if self.with(|state| memory(state)) {
                break;
            }
            std::thread::yield_now();
        }
        self.with(|state| {
            assert!(memory(state), "more than memory is left: {:?}", state.fds);
            assert_eq!(state.mappings.len(), state.fds.len(), "{:x?}", state.mappings);
            let told = state.fds.is_empty() || state.owner_text.starts_with("open");
            assert!(told, "the next opener learns of it");
        });
    }

    /// Begins a call that may fail.
    fn call(&self, name: String) -> Result<(), Errno> {
        self.with(|state| {
            let index = state.log.len();
            state.log.push(name);
            match state.fail {
                Some((at, errno)) if at == index => Err(errno),
                _ => Ok(()),
            }
        })
    }
}

impl State {
    fn add(&mut self, node: Node) -> Fd {
        let fd = self.next_fd;
        self.next_fd += 1;
        self.fds.insert(fd, node);
        fd
    }

    fn node(&self, fd: Fd) -> Result<Node, Errno> {
        self.fds.get(&fd).copied().ok_or(Errno::BADF)
    }

    fn is_open(&self, node: Node) -> bool {
        self.fds.values().any(|&open| open == node)
    }
}

impl Sys for Fake {
    fn identity(&self) -> usize {
        self.identity
    }

    fn open(&self, path: &Path) -> Result<Fd, Errno> {
        let path = path.display().to_string();
        self.call(format!("open {path}"))?;
        self.with(|state| {
            if let Some(&errno) = state.refuse_open.get(&path) {
                return Err(errno);
            }
            let group = format!("/dev/vfio/{GROUP}");
            let bare = format!("/dev/vfio/noiommu-{GROUP}");
            let node = match path.as_str() {
                "/dev/vfio/vfio" => Node::Container,
                "/dev/vfio/devices/vfio3" if state.has_cdev => Node::Cdev,
                "/dev/iommu" if state.has_cdev => Node::Iommufd,
                path if path == group && !state.iommu.absent => Node::Group,
                path if path == bare && state.iommu.absent => Node::Group,
                _ => return Err(Errno::NOENT),
            };
            // A mapping of a BAR keeps the device open as a descriptor does.
            if matches!(node, Node::Group | Node::Cdev)
                && (state.is_open(node) || state.is_open(Node::Device))
            {
                return Err(Errno::BUSY);
            }
            Ok(state.add(node))
        })
    }

    fn close(&self, fd: Fd) {
        let state = lock(&self.state);
        if state.hang_close && state.device(fd).is_ok() {
            let wait = Duration::from_secs(8);
            let hung = self.released.wait_timeout_while(state, wait, |state| state.hang_close);
            drop(hung);
        } else {
            drop(state);
        }
        let node = self.with(|state| {
            let node = state.fds.remove(&fd).expect("closed once");
            // As in the kernel, only the last copy counts.
            if !state.is_open(node) {
                state.closed(node);
            }
            state.huge.retain(|&huge| huge != fd);
            node
        });
        if matches!(node, Node::Memory | Node::Event) {
            self.linux.close(fd);
        }
    }

    fn duplicate(&self, fd: Fd) -> Result<Fd, Errno> {
        self.call("duplicate".into())?;
        self.with(|state| {
            let node = state.node(fd)?;
            Ok(state.add(node))
        })
    }

    fn read_at(&self, fd: Fd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.call(format!("read {at:#x}+{}", into.len()))?;
        self.with(|state| {
            state.device(fd)?;
            state.card.read(&self.linux, at, into)
        })
    }

    fn write_at(&self, fd: Fd, from: &[u8], at: u64) -> Result<usize, Errno> {
        let name = self.with(|state| state.card.name_of_write(at, from));
        self.call(name)?;
        self.with(|state| {
            state.device(fd)?;
            state.card.write(&self.linux, at, from)
        })
    }

    fn ioctl(&self, fd: Fd, request: Request, arg: Arg<'_>) -> Result<u32, Errno> {
        self.call(format!("ioctl {request:?}"))?;
        let mut state = lock(&self.state);
        if let Some(errno) = state.refuse.get_mut(&request).and_then(VecDeque::pop_front) {
            return Err(errno);
        }
        if request == Request::DeviceReset && state.hang_resets {
            let wait = Duration::from_secs(8);
            let hung = self.released.wait_timeout_while(state, wait, |state| state.hang_resets);
            (state, _) = hung.unwrap();
        }
        state.request(&self.linux, fd, request, arg)
    }

    fn read_text(&self, path: &Path) -> Result<String, Errno> {
        self.call(format!("text {}", path.display()))?;
        match path.file_name().and_then(|name| name.to_str()) {
            Some("vendor") => Ok("0x1e0a\n".into()),
            Some("device") if path.ends_with("0000:02:00.0/device") => Ok("0x1234\n".into()),
            Some("device") => Ok("0xeb01\n".into()),
            Some("stat") => Ok(format!("1 (a) b) S{}", " 1".repeat(40))),
            Some("status") => Ok("Name:\ta\nUid:\t7\t1000\t7\t7\n".into()),
            Some(name) if name.ends_with(".owner") => Ok(self.with(|s| s.owner_text.clone())),
            Some("cmdline") => Ok("test\0program\0".into()),
            Some("osrelease") => Ok("6.1.0-test\n".into()),
            _ => Err(Errno::NOENT),
        }
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Errno> {
        self.call(format!("link {}", path.display()))?;
        match path.file_name().and_then(|name| name.to_str()) {
            Some("iommu_group") if path.to_string_lossy().contains(BDF) => {
                Ok(format!("../../../kernel/iommu_groups/{GROUP}").into())
            }
            Some("driver") => Ok("../../../bus/pci/drivers/vfio-pci".into()),
            _ => Err(Errno::NOENT),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Errno> {
        self.call(format!("list {}", path.display()))?;
        if path.ends_with("bus/pci/devices") {
            return Ok(vec![BDF.into(), "0000:02:00.0".into(), "junk".into()]);
        }
        let has_cdev = self.with(|state| state.has_cdev);
        if has_cdev && path.ends_with(format!("{BDF}/vfio-dev")) {
            return Ok(vec!["vfio3".into()]);
        }
        Err(Errno::NOENT)
    }

    fn owner_file(&self, path: &Path) -> Result<OwnerFile, Errno> {
        self.call(format!("owner {}", path.display()))?;
        self.with(|state| {
            let locked = !state.owner_locked_by_other && !state.is_open(Node::Owner);
            let fd = state.add(Node::Owner);
            Ok(OwnerFile { fd, locked, text: state.owner_text.clone() })
        })
    }

    fn write_text(&self, fd: Fd, text: &str) -> Result<(), Errno> {
        self.call("write owner".into())?;
        self.with(|state| {
            assert_eq!(state.node(fd), Ok(Node::Owner));
            state.owner_text = text.into();
        });
        Ok(())
    }

    fn memory_file(&self, len: usize, pages: Pages) -> Result<Fd, Errno> {
        self.call(format!("memory {len} {pages:?}"))?;
        // Huge pages are small ones here: the machine of the tests need not have any.
        let fd = self.linux.memory_file(len, Pages::Small)?;
        self.with(|state| {
            state.fds.insert(fd, Node::Memory);
            if pages == Pages::Huge {
                state.huge.push(fd);
            }
        });
        Ok(fd)
    }

    fn map(&self, request: MapRequest) -> Result<NonNull<u8>, Errno> {
        let file = match request.file {
            None => {
                self.call(format!("reserve {:#x}", request.len))?;
                None
            }
            Some((fd, offset)) => {
                let (node, huge) = self.with(|state| (state.node(fd), state.huge.contains(&fd)));
                let node = node?;
                let pages = if huge { "Huge" } else { "" };
                self.call(format!("map {node:?} {pages}{:#x}", request.len))?;
                Some(self.with(|state| state.mapped_file(node, fd, offset, request.len))?)
            }
        };
        let at = self.linux.map(MapRequest { file, ..request })?;
        self.with(|state| {
            let start = at.addr().get();
            if request.over.is_none() {
                state.mappings.insert(start, request.len);
            } else {
                let inside = state
                    .mappings
                    .iter()
                    .any(|(&base, &len)| base <= start && start + request.len <= base + len);
                assert!(inside, "only a reservation may be replaced");
            }
        });
        Ok(at)
    }

    fn unmap(&self, at: NonNull<u8>, len: usize) {
        let mapped = self.with(|state| state.mappings.remove(&at.addr().get()));
        assert_eq!(mapped, Some(len), "unmapped as it was mapped");
        self.linux.unmap(at, len);
    }

    fn keep_from_children(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno> {
        self.call("keep from children".into())?;
        self.with(|state| state.kept_from_children += 1);
        self.linux.keep_from_children(at, len)
    }

    fn populate(&self, at: NonNull<u8>, len: usize) -> Result<(), Errno> {
        self.call("populate".into())?;
        self.linux.populate(at, len)
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        self.with(|state| state.iommu.lock_limit)
    }

    fn page_map_entry(&self, at: NonNull<u8>) -> Result<u64, Errno> {
        self.call("page map".into())?;
        let seen = self.with(|state| state.may_see_frames);
        // Each mapping gets a huge page of its own, by its place in the books.
        let known = self.with(|state| state.mappings.range(..=at.addr().get()).count()) as u64;
        Ok(if seen { 1 << 63 | (0x10_0000 + known * 512) } else { 1 << 63 })
    }

    fn page_bytes(&self) -> usize {
        self.linux.page_bytes()
    }

    fn coarse_time(&self) -> Duration {
        self.with(|state| state.time)
    }

    fn event(&self) -> Result<Fd, Errno> {
        self.call("event".into())?;
        let fd = self.linux.event()?;
        self.with(|state| state.fds.insert(fd, Node::Event));
        Ok(fd)
    }

    fn raise(&self, fd: Fd) {
        self.linux.raise(fd);
    }

    fn clear(&self, fd: Fd) -> bool {
        self.linux.clear(fd)
    }

    fn poll(&self, fds: &[Fd], timeout: Duration) -> Result<u32, Errno> {
        self.call("poll".into())?;
        self.linux.poll(fds, timeout)
    }
}
