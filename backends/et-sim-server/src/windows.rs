//! Memory of the client, as the board's DMA engine reaches it.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::{BusAddr, DeviceAccess};
use et_sim_device::{HostMemory, RemoteMemory};
use et_vfio_user::{Access, BusMaster, DmaWindow, Errno};
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion};

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// How long the client may take to answer an access.
const ANSWER: Duration = Duration::from_secs(2);

/// Which file: device and inode, and whether it can be written.
type FileId = (u64, u64, bool);

/// The files that windows are parts of, each mapped once.
///
/// A virtual machine offers its memory page by page, always from the same file: a mapping for each
/// page would cost more than the copies.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    files: HashMap<FileId, Weak<MmapRegion>>,
}

impl Windows {
    /// Makes a window known to the engine.
    pub(crate) fn map(
        &mut self,
        host: &HostMemory,
        window: DmaWindow,
        bus: &Arc<BusMaster>,
    ) -> Result<(), Errno> {
        let access = match window.access {
            Access { read: true, write: true } => DeviceAccess::ReadWrite,
            Access { read: true, write: false } => DeviceAccess::Read,
            Access { read: false, write: true } => DeviceAccess::Write,
            Access { read: false, write: false } => return Err(Errno::INVAL),
        };
        let at = BusAddr::new(window.address);
        let mapped = match window.file {
            Some((fd, offset)) => match self.file(fd, window.access.write)? {
                Some(memory) => {
                    let end = offset.checked_add(window.len).ok_or(Errno::INVAL)?;
                    host.map_part(at, memory, offset..end, access)
                }
                None => host.map_remote(at, window.len, remote(bus), access),
            },
            None => host.map_remote(at, window.len, remote(bus), access),
        };
        mapped.map_err(|error| {
            tracing::debug!(error = &error as &dyn std::error::Error, "window refused");
            Errno::INVAL
        })
    }

    /// Returns the mapping of a file; none if the client could make the file shorter: it could kill
    /// this process with a fault.
    fn file(&mut self, fd: OwnedFd, writable: bool) -> Result<Option<Arc<MmapRegion>>, Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let id = (stat.st_dev, stat.st_ino, writable);
        if let Some(memory) = self.files.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(memory));
        }
        let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Ok(None);
        }
        let len = usize::try_from(stat.st_size).map_err(|_| Errno::INVAL)?;
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let file = Arc::new(File::from(fd));
        let map = || {
            MmapRegionBuilder::new(len)
                .with_file_offset(FileOffset::from_arc(Arc::clone(&file), 0))
                .with_mmap_prot(protection.bits().cast_signed())
                .with_mmap_flags(flags.bits().cast_signed())
                .build()
                .map_err(|error| {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "file cannot be mapped");
                    Errno::NOMEM
                })
        };
        let mut memory = map()?;
        let excess = memory.as_ptr().addr() % HUGE_PAGE_BYTES;
        if excess != 0 && len >= HUGE_PAGE_BYTES {
            // Huge pages can be mapped as such only at their own alignment. The kernel fills its
            // address space from the top, so what is mapped below a spacer of this length comes to
            // lie right; if not, it is only slower.
            drop(memory);
            let spacer = MmapRegion::<()>::new(excess);
            memory = map()?;
            drop(spacer);
        }
        let memory = Arc::new(memory);
        self.files.retain(|_, memory| memory.strong_count() != 0);
        self.files.insert(id, Arc::downgrade(&memory));
        Ok(Some(memory))
    }

    pub(crate) fn clear(&mut self) {
        self.files.clear();
    }
}

fn remote(bus: &Arc<BusMaster>) -> Arc<dyn RemoteMemory> {
    Arc::new(ByMessage(Arc::clone(bus)))
}

/// Memory behind the connection.
#[derive(Debug)]
struct ByMessage(Arc<BusMaster>);

impl RemoteMemory for ByMessage {
    fn read(&self, bus: BusAddr, into: &mut [u8]) -> bool {
        self.0.read(bus.as_u64(), into, ANSWER).inspect_err(told).is_ok()
    }

    fn write(&self, bus: BusAddr, from: &[u8]) -> bool {
        self.0.write(bus.as_u64(), from, ANSWER).inspect_err(told).is_ok()
    }
}

fn told(error: &et_vfio_user::BusError) {
    tracing::debug!(error = error as &dyn std::error::Error, "DMA by message");
}
