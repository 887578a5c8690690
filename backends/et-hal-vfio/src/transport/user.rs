//! A device that another process simulates, by the vfio-user protocol.
//!
//! Register windows are mapped from the descriptors the server sends, if the server cannot make the
//! files shorter afterwards; doorbells are eventfds where the server has some, else messages that
//! are not answered. DMA memory is offered by descriptor; imported memory, which has none, is read
//! and written by this process when the device asks for it.

#![expect(unsafe_code, reason = "copies from and to memory that was imported by address")]

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use et_hal::{DeviceAccess, ResetScope, Widths};
use et_vfio_user::{
    Access, Client, ClientError, HostMemory, IoFd, IoFdKind, IrqAction, IrqSet, PeerEvent,
    RegionMemory,
};
use rustix::fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};

use super::{Addressing, Area, DmaRequest, IrqIndex, Region, Transport, Vectors};
use crate::sync::{lock, read, write};
use crate::sys::{Errno, Fd};
use crate::{Call, LostBecause, Mode, VfioError};

/// Bus addresses that are given out: any would do, since no other device is on this bus.
const ADDRESSES: (u64, u64) = (0x1_0000, (1 << 48) - 1);
const PAGE_BYTES: u64 = 4096;
/// `HUGETLBFS_MAGIC`, as `statfs` tells it.
const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;

/// The connection to a server.
pub(crate) struct User {
    client: Client,
    path: PathBuf,
    /// Files behind the regions, by index.
    files: Mutex<BTreeMap<u32, RegionMemory>>,
    doorbells: Vec<Doorbell>,
    /// How long the server may take for a reset.
    reset_timeout: Duration,
    by_address: Arc<ByAddress>,
}

/// A write that a descriptor takes.
struct Doorbell {
    region: u32,
    at: u64,
    value: Vec<u8>,
    event: PeerEvent,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.path.display())
    }
}

/// Memory without descriptor, by bus address.
#[derive(Debug, Default)]
struct ByAddress(RwLock<BTreeMap<u64, Window>>);

#[derive(Debug)]
struct Window {
    len: u64,
    /// Where it is in this process.
    address: u64,
    access: DeviceAccess,
}

impl ByAddress {
    /// Calls `copy` with the place of `len` bytes at `bus`, while they cannot be taken away.
    fn with(
        &self,
        bus: u64,
        len: usize,
        may: impl Fn(DeviceAccess) -> bool,
        copy: impl FnOnce(*mut u8),
    ) -> Result<(), Errno> {
        let windows = read(&self.0);
        let (start, window) = windows.range(..=bus).next_back().ok_or(Errno::FAULT)?;
        let offset = bus - start;
        let end = offset.checked_add(len as u64).ok_or(Errno::FAULT)?;
        if end > window.len {
            return Err(Errno::FAULT);
        }
        if !may(window.access) {
            return Err(Errno::PERM);
        }
        let address = usize::try_from(window.address + offset).map_err(|_| Errno::FAULT)?;
        copy(std::ptr::with_exposed_provenance_mut(address));
        Ok(())
    }
}

impl HostMemory for ByAddress {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let may = |access| access != DeviceAccess::Write;
        self.with(address, into.len(), may, |from| {
            // SAFETY: `with` found the range inside a window, and holds the lock that `unmap_dma`
            // takes to remove one. Who imports memory promises it until the drop of the import has
            // returned, and that drop returns only after `unmap_dma` (`Pool::unmap`: it waits if
            // another thread, such as a close, is at it). `into` is a buffer of the connection and
            // does not overlap memory that only the device may use.
            unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let may = |access| access != DeviceAccess::Read;
        self.with(address, from.len(), may, |into| {
            // SAFETY: as in `read`; here `from` is the connection's.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        })
    }
}

/// Connects to a server, which may take so long for an answer, and for a reset.
pub(crate) fn connect(
    path: &Path,
    answer_timeout: Duration,
    reset_timeout: Duration,
) -> Result<User, VfioError> {
    let by_address = Arc::new(ByAddress::default());
    let memory: Arc<dyn HostMemory> = Arc::clone(&by_address) as _;
    let client =
        Client::connect(path, memory, answer_timeout).map_err(|error| refused(path, error))?;
    let info = client.device_info().map_err(|error| failed(path, Call::Info, error))?;
    if !info.pci {
        return Err(VfioError::Lacking {
            what: "a PCI device behind this socket",
            remedy: "name the socket of a simulated card",
        });
    }
    let doorbells = (0..6).flat_map(|region| doorbells(&client, region)).collect();
    let (path, files) = (path.to_owned(), Mutex::default());
    Ok(User { client, path, files, doorbells, reset_timeout, by_address })
}

/// The eventfds of a region. A server that has none, or does not know the question, gets messages.
fn doorbells(client: &Client, region: u32) -> Vec<Doorbell> {
    let fds = client.io_fds(region).unwrap_or_default();
    let is_usable = |io: &IoFd| io.kind == IoFdKind::Ioeventfd && (1..=8).contains(&io.len);
    fds.into_iter()
        .filter(is_usable)
        .filter_map(|IoFd { offset, len, fd, data, .. }| {
            let value =
                data.to_le_bytes().into_iter().take(usize::try_from(len).unwrap_or(8)).collect();
            let event = PeerEvent::new(fd).inspect_err(|errno| {
                tracing::warn!(offset, %errno, "doorbell is no eventfd, writing messages");
            });
            Some(Doorbell { region, at: offset, value, event: event.ok()? })
        })
        .collect()
}

/// Returns the length of a file that the server cannot take away under a mapping, for reading and
/// writing; `None` if it can. An access to a page that is gone would be a `SIGBUS`.
fn lasting_bytes(file: &OwnedFd) -> Option<u64> {
    // Only files in memory have seals.
    let seals = fcntl_get_seals(file).ok()?;
    let is_writable = !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)
        && fcntl_getfl(file).ok()?.contains(OFlags::RDWR);
    // A hole in a file of huge pages is filled only while there are huge pages.
    let is_huge = fstatfs(file).ok()?.f_type == HUGETLBFS;
    let is_lasting = seals.contains(SealFlags::SHRINK) && is_writable && !is_huge;
    if is_lasting { u64::try_from(fstat(file).ok()?.st_size).ok() } else { None }
}

fn refused(path: &Path, error: ClientError) -> VfioError {
    VfioError::Server { path: path.to_owned(), source: Box::new(error) }
}

/// What a failed request means.
fn failed(path: &Path, call: Call, error: ClientError) -> VfioError {
    match error {
        ClientError::Refused { errno, .. } => {
            VfioError::call(call, path.display().to_string(), errno)
        }
        ClientError::Disconnected(_) => VfioError::Lost(LostBecause::Disconnected),
        error => refused(path, error),
    }
}

impl User {
    fn failed(&self, call: Call) -> impl FnOnce(ClientError) -> VfioError + '_ {
        move |error| failed(&self.path, call, error)
    }
}

impl Transport for User {
    fn mode(&self) -> Mode {
        Mode::User
    }

    fn interface(&self) -> String {
        let (major, minor) = self.client.version();
        format!("vfio-user {major}.{minor}")
    }

    fn region(&self, index: u32) -> Result<Region, VfioError> {
        let found = self.client.region_info(index).map_err(self.failed(Call::Info))?;
        let mut areas = Vec::new();
        if let Some(memory) = found.memory {
            // The first one stays: who has asked for its descriptor may be about to map it.
            let mut files = lock(&self.files);
            let memory = files.entry(index).or_insert(memory);
            let len = lasting_bytes(&memory.fd).unwrap_or(0).saturating_sub(memory.offset);
            let all = found.areas.iter().map(|area| (area.offset, area.offset + area.len));
            let (kept, left): (Vec<_>, Vec<_>) = all.partition(|&(_, end)| end <= len);
            areas.extend(kept.into_iter().map(|(start, end)| Area { start, end }));
            if !left.is_empty() {
                tracing::warn!(index, "region's file can get shorter, accesses are messages");
            }
        }
        Ok(Region { index, size: found.size, offset: 0, areas })
    }

    fn file(&self, region: &Region, at: u64) -> (Fd, u64) {
        let files = lock(&self.files);
        files.get(&region.index).map_or((-1, 0), |memory| {
            // The descriptor lives as long as `self`.
            (memory.fd.as_raw_fd(), memory.offset + at)
        })
    }

    fn read(&self, region: &Region, at: u64, into: &mut [u8]) -> Result<(), VfioError> {
        self.client.read(region.index, at, into).map_err(self.failed(Call::Region))
    }

    fn write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError> {
        self.client.write(region.index, at, from).map_err(self.failed(Call::Region))
    }

    fn posted_write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError> {
        let is_it =
            |bell: &&Doorbell| bell.region == region.index && bell.at == at && bell.value == from;
        if let Some(bell) = self.doorbells.iter().find(is_it) {
            bell.event.signal();
            return Ok(());
        }
        self.client.posted_write(region.index, at, from).map_err(self.failed(Call::Region))
    }

    fn unsplit_widths(&self) -> Widths {
        // A message is one access.
        Widths::ALL
    }

    fn vectors(&self, index: IrqIndex) -> Result<u32, VfioError> {
        let info = self.client.irq_info(index.number()).map_err(self.failed(Call::Info))?;
        Ok(if info.eventfd { info.count } else { 0 })
    }

    fn set_vectors(&self, index: IrqIndex, events: &[Fd]) -> Result<Vectors, VfioError> {
        let have = self.vectors(index)?;
        if events.len() > have as usize {
            return Ok(Vectors::Only(have));
        }
        let fds: Vec<_> = events
            .iter()
            // SAFETY: the caller holds the handles of these descriptors for the length of the call.
            .map(|&fd| Some(unsafe { BorrowedFd::borrow_raw(fd) }))
            .collect();
        let set = IrqSet::Eventfds(&fds);
        self.client
            .set_irqs(index.number(), 0, IrqAction::Trigger, set)
            .map_err(self.failed(Call::SetIrqs))?;
        Ok(Vectors::Enabled)
    }

    fn disable_vectors(&self, index: IrqIndex) -> Result<(), VfioError> {
        self.client
            .set_irqs(index.number(), 0, IrqAction::Trigger, IrqSet::All(0))
            .map_err(self.failed(Call::SetIrqs))
    }

    fn trigger(&self, index: IrqIndex, vector: u32) -> Result<(), VfioError> {
        self.client
            .set_irqs(index.number(), vector, IrqAction::Trigger, IrqSet::All(1))
            .map_err(self.failed(Call::SetIrqs))
    }

    fn addressing(&self) -> Result<Addressing, VfioError> {
        let entries = Some(self.client.limits().max_dma_maps as u64);
        Ok(Addressing::Chosen { ranges: vec![ADDRESSES], page_bytes: PAGE_BYTES, entries })
    }

    fn map_dma(&self, request: &DmaRequest) -> Result<(), VfioError> {
        let access = match request.access {
            DeviceAccess::Read => Access::READ,
            DeviceAccess::Write => Access::WRITE,
            DeviceAccess::ReadWrite => Access::READ_WRITE,
        };
        let file = request.file.map(|(fd, at)| {
            // SAFETY: as above.
            (unsafe { BorrowedFd::borrow_raw(fd) }, at)
        });
        if file.is_none() {
            let DmaRequest { len, address, access, .. } = *request;
            write(&self.by_address.0).insert(request.iova, Window { len, address, access });
        }
        let mapped = self.client.dma_map(request.iova, request.len, access, file);
        if mapped.is_err() {
            write(&self.by_address.0).remove(&request.iova);
        }
        mapped.map_err(self.failed(Call::MapDma))
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<u64, VfioError> {
        // From here on the device is refused, whatever the server says.
        write(&self.by_address.0).remove(&iova);
        match self.client.dma_unmap(iova, len) {
            // With the connection all windows are gone.
            Err(ClientError::Disconnected(_)) => Ok(len),
            unmapped => unmapped.map_err(self.failed(Call::UnmapDma)),
        }
    }

    fn gone(&self) -> Option<Fd> {
        Some(self.client.closed_fd().as_raw_fd())
    }

    fn can_reset(&self, scope: ResetScope) -> bool {
        scope == ResetScope::Function
    }

    fn reset(&self, _: ResetScope) -> Result<(), VfioError> {
        self.client.reset(self.reset_timeout).map_err(self.failed(Call::Reset))
    }
}
