//! The independent `vfio_user` crate as the other side.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]
#![expect(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod support;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use et_vfio_user::{
    Access, Area, Client, ClientError, Errno, IrqAction, IrqSet, Limits, NoHostMemory,
};
use support::{
    LONG, MEMORY, MEMORY_AT, MEMORY_BYTES, REGS, REGS_BYTES, Served, count, event, memfd,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion, SparseArea};

#[test]
fn foreign_client_drives_our_server() {
    let served = Served::new();
    let mut client = vfio_user::Client::new(&served.path).unwrap();
    // Its `resettable` says the opposite.
    assert!(!client.resettable());
    let memory = client.region(MEMORY).unwrap();
    assert_eq!((memory.size, memory.sparse_areas.len()), (MEMORY_BYTES, 2));
    let file = memory.file_offset.as_ref().unwrap();
    assert_eq!(file.start(), MEMORY_AT);
    file.file().write_at(b"seen", MEMORY_AT + 0x8000).unwrap();
    let mut bytes = [0; 4];
    client.region_read(MEMORY, 0x8000, &mut bytes).unwrap();
    assert_eq!(&bytes, b"seen");
    assert_eq!(client.region(REGS).unwrap().size, REGS_BYTES);
    assert_eq!(client.region(8).unwrap().size, 0);

    client.region_write(REGS, 0x40, &[1, 2, 3, 4]).unwrap();
    client.region_read(REGS, 0x40, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);

    let info = client.get_irq_info(1).unwrap();
    assert_eq!((info.count, info.flags), (support::VECTORS, 9));
    let events = [event(), event()];
    let fds = [events[0].as_raw_fd(), events[1].as_raw_fd()];
    client.set_irqs(1, 0x24, 4, 2, &fds).unwrap();
    client.set_irqs(1, 0x21, 4, 2, &[]).unwrap();
    assert_eq!((count(&events[0]), count(&events[1])), (1, 1));
    client.set_irqs(1, 0x21, 0, 0, &[]).unwrap();
    assert!(served.toy.seen.lock().unwrap().vectors.is_empty());

    let host = File::from(memfd(8192));
    host.write_at(b"host", 4096).unwrap();
    client.dma_map(4096, 0x10_0000, 4096, host.as_raw_fd()).unwrap();
    {
        let seen = served.toy.seen.lock().unwrap();
        let (len, access, received) = &seen.windows[&0x10_0000];
        assert_eq!((*len, *access), (4096, Access::READ_WRITE));
        let (fd, offset) = received.as_ref().unwrap();
        rustix::io::pread(fd, &mut bytes, *offset).unwrap();
        assert_eq!(&bytes, b"host");
    }
    client.dma_unmap(0x10_0000, 4096).unwrap();
    assert!(served.toy.seen.lock().unwrap().windows.is_empty());
    client.reset().unwrap();
    assert_eq!(served.toy.seen.lock().unwrap().resets, 1);
    client.shutdown().unwrap();
    served.toy.until(|seen| seen.disconnected == 1);
}

#[derive(Default)]
struct Seen {
    windows: Vec<(u64, u64, u32, Option<u64>)>,
    irqs: Vec<(u32, u32, u32, u32, usize)>,
    resets: u32,
}

struct Backend {
    regs: Vec<u8>,
    seen: Arc<Mutex<Seen>>,
}

impl ServerBackend for Backend {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let end = offset as usize + data.len();
        let from = self.regs.get(offset as usize..end);
        data.copy_from_slice(from.ok_or(io::ErrorKind::InvalidInput)?);
        Ok(())
    }

    fn region_write(&mut self, _region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset as usize + data.len();
        let into = self.regs.get_mut(offset as usize..end);
        into.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(data);
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        if address == 0xbad {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let window = (address, size, flags.bits(), fd.map(|_| offset));
        self.seen.lock().unwrap().windows.push(window);
        Ok(())
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap();
        seen.windows.retain(|window| (window.0, window.1) != (address, size));
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.seen.lock().unwrap().resets += 1;
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        self.seen.lock().unwrap().irqs.push((index, flags, start, count, fds.len()));
        Ok(())
    }
}

#[test]
fn our_client_drives_foreign_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let memory = memfd(0x3000);
    let mut regions = Vec::new();
    for index in 0..2 {
        let mut region = ServerRegion {
            region_info: Default::default(),
            sparse_areas: Vec::new(),
            mmap_fd: None,
        };
        region.region_info.argsz = 32;
        region.region_info.index = index;
        region.region_info.flags = 3;
        region.region_info.size = 0x2000;
        regions.push(region);
    }
    regions[1].region_info.flags = 7;
    regions[1].region_info.offset = 0x1000;
    regions[1].mmap_fd = Some(memory.as_raw_fd());
    let mut area = SparseArea { area: Default::default() };
    area.area.offset = 0x1000;
    area.area.size = 0x800;
    regions[1].sparse_areas.push(area);
    let irqs = vec![IrqInfo { index: 0, flags: 9, count: 3 }];
    let server = vfio_user::Server::new(&path, true, irqs, regions).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut backend = Backend { regs: vec![0; 0x2000], seen: Arc::clone(&seen) };
    let serving = std::thread::spawn(move || server.run(&mut backend).unwrap());

    let client = Client::connect(&path, Arc::new(NoHostMemory), LONG).unwrap();
    assert_eq!(client.limits(), Limits::default());
    let info = client.device_info().unwrap();
    assert_eq!((info.pci, info.resettable, info.regions, info.irqs), (true, true, 2, 1));
    let region = client.region_info(1).unwrap();
    assert_eq!(
        (region.size, &region.areas[..]),
        (0x2000, &[Area { offset: 0x1000, len: 0x800 }][..])
    );
    assert_eq!(region.memory.unwrap().offset, 0x1000);
    assert!(client.region_info(0).unwrap().memory.is_none());
    assert!(matches!(client.region_info(2), Err(ClientError::Refused { errno: Errno::INVAL, .. })));

    client.write(0, 0x100, &[5; 300]).unwrap();
    client.posted_write(0, 0x104, &[6; 4]).unwrap();
    let mut bytes = [0; 12];
    client.read(0, 0xfe, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 5, 5, 5, 5, 6, 6, 6, 6, 5, 5]);
    // It does not say why it refuses, and it replies even to posted writes.
    let unsaid = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::Refused { errno: Errno::IO, .. })), "{result:?}");
    };
    unsaid(client.read(0, 0x1fff, &mut [0; 2]));
    unsaid(client.dma_map(0xbad, 4096, Access::READ, None));
    client.posted_write(0, 0x2000, &[1]).unwrap();

    client.dma_map(0x1000, 0x2000, Access::READ, Some((memory.as_fd(), 0x1000))).unwrap();
    client.dma_map(0x8000, 0x1000, Access::READ_WRITE, None).unwrap();
    let windows = [(0x1000, 0x2000, 1, Some(0x1000)), (0x8000, 0x1000, 3, None)];
    assert_eq!(seen.lock().unwrap().windows, windows);
    assert_eq!(client.dma_unmap(0x1000, 0x2000).unwrap(), 0x2000);
    assert_eq!(seen.lock().unwrap().windows, windows[1..]);

    assert_eq!(client.irq_info(0).unwrap().count, 3);
    let events = [event(), event(), event()];
    let set: Vec<_> = events.iter().map(|event| Some(event.as_fd())).collect();
    // It takes one descriptor in a message.
    client.set_irqs(0, 0, IrqAction::Trigger, IrqSet::Eventfds(&set)).unwrap();
    client.set_irqs(0, 0, IrqAction::Trigger, IrqSet::All(0)).unwrap();
    assert_eq!(
        seen.lock().unwrap().irqs,
        [(0, 0x24, 0, 1, 1), (0, 0x24, 1, 1, 1), (0, 0x24, 2, 1, 1), (0, 0x21, 0, 0, 0)]
    );
    client.reset(LONG).unwrap();
    assert_eq!(seen.lock().unwrap().resets, 1);
    drop(client);
    serving.join().unwrap();
}
