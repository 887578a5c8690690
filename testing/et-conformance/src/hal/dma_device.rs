//! DMA memory as the device sees it: what is copied is what is there.

use et_devapi::msg::ops::{Body, Command, Completion, DmaReadNode, DmaStatus, DmaWriteNode};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::pci::DRAM_BAR;
use et_hal::{
    BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer, Hal, Import, Mailbox, Mmio, Pages,
};

use super::{Ready, SQ0, receive, send};
use crate::check::{Random, check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Hal, "hal::dma":
    the_device_reads_and_writes_exactly_the_buffer,
    buffers_of_all_sizes_can_be_reached_to_their_last_byte,
    the_device_cannot_write_what_it_may_only_read [Need::AccessControl],
    the_device_cannot_reach_what_was_never_given_to_it [Need::AccessControl],
    imported_memory_is_reached_until_its_owner_has_it_back [Need::AccessControl],
}

/// Commands of the device on one mailbox.
struct Copier<'a, H: Hal> {
    ready: &'a Ready<H>,
    mailbox: H::Mailbox,
}

impl<'a, H: Hal> Copier<'a, H> {
    fn new(ready: &'a Ready<H>) -> Result<Self, Failure> {
        Ok(Self { ready, mailbox: ready.mailbox()? })
    }

    fn status(&self, message: &[u8]) -> Result<DmaStatus, Failure> {
        send(&self.mailbox, SQ0, message)?;
        match receive(&self.mailbox, self.ready.patience)? {
            Completion { body: Body::DmaWrite { status, .. }, .. }
            | Completion { body: Body::DmaRead { status, .. }, .. } => Ok(status),
            other => Err(Failure::new(format!("a copy was answered by {other:?}"))),
        }
    }

    fn to_device(&self, from: BusAddr, to: DeviceAddr, len: u32) -> Result<DmaStatus, Failure> {
        let node = DmaWriteNode::new(from, to, len);
        let mut out = [0; 128];
        let size = Command::DmaWriteList { nodes: &[node] }.encode(
            Tag::new(7),
            CommandFlags::EMPTY,
            &mut out,
        )?;
        self.status(&out[..size])
    }

    fn to_host(&self, from: DeviceAddr, to: BusAddr, len: u32) -> Result<DmaStatus, Failure> {
        let node = DmaReadNode::new(to, from, len);
        let mut out = [0; 128];
        let size = Command::DmaReadList { nodes: &[node] }.encode(
            Tag::new(8),
            CommandFlags::EMPTY,
            &mut out,
        )?;
        self.status(&out[..size])
    }
}

/// There by DMA and seen through the BAR; changed through the BAR and back by DMA.
fn the_device_reads_and_writes_exactly_the_buffer<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const BYTES: usize = 8192;
    let ready = Ready::open(rig)?;
    let copier = Copier::new(&ready)?;
    let (dma, window) = (ready.hal.dma(), ready.hal.window(DRAM_BAR)?);
    let (offset, device) = ready.playground()?;
    let mut random = Random::new(5);
    let data = random.bytes(BYTES);
    let mut source = dma.alloc(BYTES, DeviceAccess::Read)?;
    source.copy_in(0, &data)?;
    dma.sync_for_device(&source, 0..BYTES)?;
    window.write_bytes(offset, &[0x33; BYTES])?;
    window.flush()?;
    let status = copier.to_device(source.bus_addr(), device, 4096)?;
    check_eq!(status, DmaStatus::Complete, "the copy to the device");
    let mut seen = vec![0; BYTES];
    window.read_bytes(offset, &mut seen)?;
    same("device memory", &seen[..4096], &data[..4096])?;
    same("device memory behind the copy", &seen[4096..], &[0x33; 4096])?;

    let back = random.bytes(BYTES);
    window.write_bytes(offset, &back)?;
    window.flush()?;
    let mut target = dma.alloc(BYTES, DeviceAccess::Write)?;
    target.fill(0, BYTES, 0x44)?;
    dma.sync_for_device(&target, 0..BYTES)?;
    let inside = BusAddr::new(target.bus_addr().as_u64() + 1024);
    check_eq!(copier.to_host(device, inside, 2048)?, DmaStatus::Complete, "the copy to the host");
    dma.sync_for_cpu(&target, 0..BYTES)?;
    let mut seen = vec![0; BYTES];
    target.copy_out(0, &mut seen)?;
    same("the buffer before the copy", &seen[..1024], &[0x44; 1024])?;
    same("the buffer", &seen[1024..3072], &back[..2048])?;
    same("the buffer behind the copy", &seen[3072..], &[0x44; BYTES - 3072])
}

fn buffers_of_all_sizes_can_be_reached_to_their_last_byte<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let copier = Copier::new(&ready)?;
    let dma = ready.hal.dma();
    let (_, device) = ready.playground()?;
    // All at the same time, so that neighbours would be hit.
    let lens = [8usize, 64, 4096, 12_288, 40_960, 512 << 10];
    let mut random = Random::new(6);
    let mut buffers = Vec::new();
    for len in lens {
        let mut buffer = dma.alloc(len, DeviceAccess::ReadWrite)?;
        let data = random.bytes(len);
        buffer.copy_in(0, &data)?;
        dma.sync_for_device(&buffer, 0..len)?;
        buffers.push((buffer, data));
    }
    for (buffer, data) in &buffers {
        let len = data.len();
        let size = u32::try_from(len)?;
        let outcome = copier.to_device(buffer.bus_addr(), device, size)?;
        check_eq!(outcome, DmaStatus::Complete, "{len} bytes to the device");
        let back = dma.alloc(len, DeviceAccess::Write)?;
        let outcome = copier.to_host(device, back.bus_addr(), size)?;
        check_eq!(outcome, DmaStatus::Complete, "{len} bytes to the host");
        dma.sync_for_cpu(&back, 0..len)?;
        let mut seen = vec![0; len];
        back.copy_out(0, &mut seen)?;
        same("what came back", &seen, data)?;
    }
    Ok(())
}

fn the_device_cannot_write_what_it_may_only_read<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let copier = Copier::new(&ready)?;
    let dma = ready.hal.dma();
    let (_, device) = ready.playground()?;
    let mut readable = dma.alloc(4096, DeviceAccess::Read)?;
    readable.fill(0, 4096, 0x66)?;
    dma.sync_for_device(&readable, 0..4096)?;
    let status = copier.to_host(device, readable.bus_addr(), 4096)?;
    check!(status != DmaStatus::Complete, "a write to a buffer for reading succeeded");
    dma.sync_for_cpu(&readable, 0..4096)?;
    let mut bytes = [0; 4096];
    readable.copy_out(0, &mut bytes)?;
    same("the buffer", &bytes, &[0x66; 4096])?;
    // A refused access must not disturb the next one.
    let status = copier.to_device(readable.bus_addr(), device, 4096)?;
    check_matches!(status, DmaStatus::Complete, "a copy after the refused one");
    Ok(())
}

fn the_device_cannot_reach_what_was_never_given_to_it<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let copier = Copier::new(&ready)?;
    let (_, device) = ready.playground()?;
    // The first page is kept free, so that zeroed descriptors do no harm.
    let status = copier.to_device(BusAddr::new(0), device, 64)?;
    check!(status != DmaStatus::Complete, "a read of bus address 0 succeeded");
    let buffer = ready.hal.dma().alloc(64, DeviceAccess::Read)?;
    let status = copier.to_device(buffer.bus_addr(), device, 64)?;
    check_matches!(status, DmaStatus::Complete, "a copy after the refused one");
    check_eq!(copier.mailbox.max_message_bytes(SQ0).is_ok(), true, "the queue is there");
    Ok(())
}

/// Where a transport cannot import, a buffer stands for the memory.
fn imported_memory_is_reached_until_its_owner_has_it_back<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let copier = Copier::new(&ready)?;
    let dma = ready.hal.dma();
    let (_, device) = ready.playground()?;
    let granule = dma.import_granule().unwrap_or(4096);
    check!(granule.is_power_of_two(), "a granule of {granule} bytes");
    let mut random = Random::new(8);
    let pages = || Pages::zeroed(2 * granule, granule).ok_or_else(|| Failure::new("no memory"));
    let (mut source, target) = (pages()?, pages()?);
    let data = random.bytes(source.len());
    source.copy_from_slice(&data);
    let lent = Import::for_reading(dma, source)?;
    dma.sync_for_device(lent.buffer(), 0..data.len())?;
    let (bus, len) = (lent.buffer().bus_addr(), u32::try_from(data.len())?);
    check_eq!(copier.to_device(bus, device, len)?, DmaStatus::Complete, "a copy from it");
    let status = copier.to_host(device, bus, len)?;
    check!(status != DmaStatus::Complete, "a write to memory that was lent for reading succeeded");
    let end = BusAddr::new(bus.as_u64() + u64::from(len) - 8);
    let status = copier.to_device(end, device, 16)?;
    check!(status != DmaStatus::Complete, "a read beyond the end of it succeeded");
    check_eq!(copier.to_device(bus, device, len)?, DmaStatus::Complete, "another copy from it");
    let source: Pages = lent.into_owner().map_err(|_| Failure::new("another owner"))?;
    same("what was lent for reading", &source, &data)?;
    let status = copier.to_device(bus, device, len)?;
    check!(status != DmaStatus::Complete, "a read of memory that its owner has back succeeded");

    let lent = Import::exclusive(dma, target, DeviceAccess::Write)?;
    dma.sync_for_device(lent.buffer(), 0..data.len())?;
    let bus = lent.buffer().bus_addr();
    check_eq!(copier.to_host(device, bus, len - 64)?, DmaStatus::Complete, "a copy to it");
    dma.sync_for_cpu(lent.buffer(), 0..data.len())?;
    let target: Pages = lent.into_owner().map_err(|_| Failure::new("another owner"))?;
    let (written, rest) = target.split_at(data.len() - 64);
    same("what was written", written, &data[..data.len() - 64])?;
    same("what was not", rest, &[0; 64])
}
