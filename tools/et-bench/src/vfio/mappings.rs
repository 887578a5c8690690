//! What it costs to show host memory to a card and to take it back.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use et::hal::{DeviceAccess, Dma, Hal};
use et::vfio::{VfioHal, VfioOptions};
use et_vfio_user::{Access, Client, NoHostMemory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion};

use super::peer::{CardProcess, Echo};
use super::{LIMIT, Take, median, skip};
use crate::figure::{Figure, Unit};

const BOARD: &str = "compute=null,dram=128MiB";
const MIB: usize = 64;
const BYTES: usize = MIB << 20;
const RUNS: usize = 11;
/// Messages in a run; one takes microseconds.
const REPEATS: usize = 100;
const BUS: u64 = 1 << 32;
const HUGE_FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
const HUGE_SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Which pages a file in memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    Small,
    Transparent,
    Huge,
}

impl Pages {
    const ALL: [Self; 3] = [Self::Small, Self::Transparent, Self::Huge];

    /// Those that a file gets which asks for nothing in particular.
    fn by_default() -> Self {
        let setting = fs::read_to_string(HUGE_SHARED).unwrap_or_default();
        let is_on = ["[always]", "[within_size]", "[force]"].iter().any(|on| setting.contains(on));
        if is_on { Self::Transparent } else { Self::Small }
    }

    /// Why there can be none.
    fn hindrance(self) -> Option<&'static str> {
        match self {
            Self::Small if Self::by_default() != self => {
                Some("every file in memory gets transparent huge pages here")
            }
            Self::Transparent if Self::by_default() != self => {
                Some("files in memory get no transparent huge pages here (shmem_enabled)")
            }
            Self::Huge if !huge_pages_are_free() => Some("32 huge pages of 2 MiB are not free"),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Transparent => "thp",
            Self::Huge => "huge",
        }
    }
}

fn huge_pages_are_free() -> bool {
    let free = fs::read_to_string(HUGE_FREE).ok();
    free.and_then(|free| free.trim().parse::<usize>().ok()).is_some_and(|free| free >= MIB / 2)
}

/// Memory as the backend makes it: a sealed file.
fn memory_file(pages: Pages) -> anyhow::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Pages::Huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file = memfd_create("bench", flags)?;
    ftruncate(&file, BYTES as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// Maps it, all pages present.
fn populated(file: OwnedFd) -> anyhow::Result<MmapRegion> {
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    MmapRegionBuilder::new(BYTES)
        .with_file_offset(FileOffset::new(File::from(file), 0))
        .with_mmap_prot((ProtFlags::READ | ProtFlags::WRITE).bits().cast_signed())
        .with_mmap_flags(flags.bits().cast_signed())
        .build()
        .context("mapping a file in memory")
}

/// Buffers of 64 MiB, and the messages alone for memory that is there.
pub(super) fn figures(take: Take<'_>) -> anyhow::Result<()> {
    let card = CardProcess::start(BOARD)?;
    let hal = VfioHal::connect(&card.socket, &VfioOptions::new())?;
    // The backend takes the best pages that it can get.
    let taken = taken(&hal)?;
    for pages in Pages::ALL {
        let name = format!("vfio_map_alloc_{}_us", pages.name());
        if pages == taken {
            take(buffers(name, &hal)?);
        } else {
            let because = format!("the backend's buffers have other pages here ({})", taken.name());
            skip(&name, &because);
        }
    }
    drop(hal);
    let client = Client::connect(&card.socket, Arc::new(NoHostMemory), LIMIT)?;
    let socket = Echo::sockets(Duration::ZERO, None)?;
    for pages in Pages::ALL {
        let name = format!("vfio_map_message_{}_us", pages.name());
        match pages.hindrance() {
            Some(because) => skip(&name, because),
            None => take(messages(name, pages, &client, &socket)?),
        }
    }
    Ok(())
}

/// Which pages a buffer of the backend has, as the kernel says.
fn taken(hal: &VfioHal) -> anyhow::Result<Pages> {
    let [huge, transparent] = ["Shared_Hugetlb:", "ShmemPmdMapped:"].map(mapped_kib);
    let buffer = hal.dma().alloc(BYTES, DeviceAccess::ReadWrite)?;
    let has = |name, before: u64| mapped_kib(name).saturating_sub(before) >= BYTES as u64 >> 10;
    let pages = match () {
        () if has("Shared_Hugetlb:", huge) => Pages::Huge,
        () if has("ShmemPmdMapped:", transparent) => Pages::Transparent,
        () => Pages::Small,
    };
    drop(buffer);
    Ok(pages)
}

/// KiB of this process's memory in pages of one kind.
fn mapped_kib(kind: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(kind));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Microseconds per MiB of a buffer's allocation and release.
fn buffers(name: String, hal: &VfioHal) -> anyhow::Result<Figure> {
    let (mut values, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        drop(hal.dma().alloc(BYTES, DeviceAccess::ReadWrite)?);
        values.push(per_mib(start, 1));
        let start = Instant::now();
        drop(populated(memory_file(Pages::Small)?)?);
        floors.push(per_mib(start, 1));
    }
    let floor = ("a file of small pages made, mapped and gone again", median(&floors));
    Ok(Figure::new(name, Unit::Less("us per MiB"), &values, floor))
}

/// Microseconds per MiB of the two messages, for a file that stays.
fn messages(name: String, pages: Pages, client: &Client, socket: &Echo) -> anyhow::Result<Figure> {
    let file = memory_file(pages)?;
    let memory = populated(file.try_clone()?)?;
    let (mut values, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..REPEATS {
            client.dma_map(BUS, BYTES as u64, Access::READ_WRITE, Some((file.as_fd(), 0)))?;
            client.dma_unmap(BUS, BYTES as u64)?;
        }
        values.push(per_mib(start, REPEATS));
        let start = Instant::now();
        for _ in 0..REPEATS {
            socket.trip()?;
            socket.trip()?;
        }
        floors.push(per_mib(start, REPEATS));
    }
    drop(memory);
    let floor = ("two messages over a Unix socket and back", median(&floors));
    Ok(Figure::new(name, Unit::Less("us per MiB"), &values, floor))
}

fn per_mib(start: Instant, repeats: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / (repeats * MIB) as f64
}
