//! One client of a server: what it asks is checked, then passed to the device.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::Message;
use crate::limits::Stated;
use crate::link::{End, Link};
use crate::server::Ended;
use crate::wire::{self, Command, flag};
use crate::{
    Access, BusMaster, Closed, Device, DeviceInfo, DmaWindow, IoFdKind, IrqAction, IrqData,
    IrqRequest, Limits, PeerEvent, Region, region,
};

/// A client that has agreed on a version.
pub(crate) struct Session<'a> {
    link: Arc<Link>,
    device: &'a Arc<dyn Device>,
    bus: Arc<BusMaster>,
    info: DeviceInfo,
    /// As the device described them when the client came.
    regions: Vec<Region>,
    /// Length of each DMA window by its first address.
    windows: BTreeMap<u64, u64>,
    /// Descriptors the client takes in one message.
    max_fds: usize,
}

/// A successful answer.
#[derive(Default)]
struct Reply {
    body: Vec<u8>,
    fds: Vec<Arc<OwnedFd>>,
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Self {
        Self { body, fds: Vec::new() }
    }
}

impl<'a> Session<'a> {
    /// Agrees with the client on a version; the connection is closed if that fails.
    pub(crate) fn open(link: Arc<Link>, device: &'a Arc<dyn Device>) -> Result<Self, Ended> {
        let limits = match greet(&link) {
            Ok(limits) => limits,
            Err(ended) => {
                link.close(Closed::Here);
                return Err(ended);
            }
        };
        let piece = limits.max_data_xfer_size.min(Limits::OURS.max_data_xfer_size);
        let info = device.info();
        let region = |index| device.region(index).unwrap_or(Region::ABSENT);
        let peer = link.peer();
        let session = Session {
            bus: Arc::new(BusMaster::new(Arc::clone(&link), piece)),
            link,
            device,
            info,
            regions: (0..info.regions).map(region).collect(),
            windows: BTreeMap::new(),
            max_fds: limits.max_msg_fds.min(crate::link::SENT_FDS),
        };
        device.connected(peer);
        Ok(session)
    }

    /// Serves until the connection is gone, and says why it is.
    pub(crate) fn run(mut self) -> Closed {
        let patience = self.link.patience();
        loop {
            let message = match self.link.next_request(None) {
                Ok(message) => message,
                Err(End::Closed(why)) => return why,
                Err(End::Timeout) => continue,
            };
            let header = message.header;
            let answer = self.answer(message);
            if let Err(errno) = &answer {
                tracing::debug!(command = header.command.get(), %errno, "request refused");
            }
            if header.has(flag::NO_REPLY) {
                continue;
            }
            let sent = match &answer {
                Ok(reply) => {
                    let fds: Vec<BorrowedFd<'_>> = reply.fds.iter().map(|fd| fd.as_fd()).collect();
                    let header = header.reply(reply.body.len());
                    self.link.send(&header, [&reply.body, &[]], &fds, patience)
                }
                Err(errno) => {
                    let header = header.refusal(errno.raw_os_error().unsigned_abs());
                    self.link.send(&header, [&[], &[]], &[], patience)
                }
            };
            if matches!(sent, Err(End::Timeout)) {
                // What is queued is not answered.
                self.link.close(Closed::NotTaken(patience));
            }
        }
    }

    fn answer(&mut self, message: Message) -> Result<Reply, Errno> {
        if message.cut {
            return Err(Errno::INVAL);
        }
        let command = Command::from_code(message.header.command.get()).ok_or(Errno::OPNOTSUPP)?;
        let Message { body, fds, .. } = message;
        if !fds.is_empty() && !matches!(command, Command::DmaMap | Command::SetIrqs) {
            return Err(Errno::INVAL);
        }
        match command {
            Command::DeviceInfo => self.device_info(&body),
            Command::RegionInfo => self.region_info(&body),
            Command::RegionIoFds => self.io_fds(&body),
            Command::IrqInfo => self.irq_info(&body),
            Command::SetIrqs => self.set_irqs(&body, fds),
            Command::RegionRead => self.read(&body),
            Command::RegionWrite => self.write(&body),
            Command::RegionWriteMulti => self.write_multi(&body),
            Command::DmaMap => self.dma_map(&body, fds),
            Command::DmaUnmap => self.dma_unmap(&body),
            Command::DeviceReset => self.reset(&body),
            Command::Version => Err(Errno::INVAL),
            Command::DmaRead | Command::DmaWrite => Err(Errno::OPNOTSUPP),
        }
    }

    fn device_info(&self, body: &[u8]) -> Result<Reply, Errno> {
        let argsz = prefix::<wire::DeviceInfo>(body)?.argsz.get();
        let mut flags = 0;
        if self.info.resettable {
            flags |= wire::DEVICE_RESET;
        }
        if self.info.pci {
            flags |= wire::DEVICE_PCI;
        }
        let info = wire::DeviceInfo {
            argsz: to_u32(size_of::<wire::DeviceInfo>()).into(),
            flags: flags.into(),
            regions: self.info.regions.into(),
            irqs: self.info.irqs.into(),
        };
        whole(&info, argsz)
    }

    fn region_info(&self, body: &[u8]) -> Result<Reply, Errno> {
        let asked = prefix::<wire::RegionInfo>(body)?;
        let argsz = asked.argsz.get();
        if (argsz as usize) < size_of::<wire::RegionInfo>() {
            return Err(Errno::INVAL);
        }
        let index = asked.index.get();
        let region = self.regions.get(index as usize).ok_or(Errno::INVAL)?;
        let (body, with_fd) = region::encode(index, region, argsz);
        let fds = match &region.memory {
            Some(memory) if with_fd && self.max_fds > 0 => vec![Arc::clone(&memory.fd)],
            _ => Vec::new(),
        };
        Ok(Reply { body, fds })
    }

    fn io_fds(&self, body: &[u8]) -> Result<Reply, Errno> {
        let asked = prefix::<wire::RegionIoFds>(body)?;
        let (argsz, index) = (asked.argsz.get() as usize, asked.index.get());
        if asked.flags.get() != 0 || argsz < size_of::<wire::RegionIoFds>() {
            return Err(Errno::INVAL);
        }
        if index as usize >= self.regions.len() {
            return Err(Errno::INVAL);
        }
        let offered = self.device.io_fds(index)?;
        let full = size_of::<wire::RegionIoFds>() + offered.len() * size_of::<wire::SubRegion>();
        let head = wire::RegionIoFds {
            argsz: to_u32(full).into(),
            flags: 0.into(),
            index: index.into(),
            count: to_u32(offered.len()).into(),
        };
        let mut reply = Reply::from(head.as_bytes().to_vec());
        if argsz < full {
            return Ok(reply);
        }
        for io in offered {
            // Sub-regions may share a descriptor.
            let known = reply.fds.iter().position(|fd| Arc::ptr_eq(fd, &io.fd));
            let fd_index = known.unwrap_or_else(|| {
                reply.fds.push(Arc::clone(&io.fd));
                reply.fds.len() - 1
            });
            let part = wire::SubRegion {
                offset: io.offset.into(),
                len: io.len.into(),
                fd_index: to_u32(fd_index).into(),
                kind: match io.kind {
                    IoFdKind::Ioeventfd => 0,
                    IoFdKind::Ioregionfd => 1,
                }
                .into(),
                flags: io.flags.into(),
                padding: 0.into(),
                data: io.data.into(),
            };
            reply.body.extend_from_slice(part.as_bytes());
        }
        if reply.fds.len() > self.max_fds { Err(Errno::TOOBIG) } else { Ok(reply) }
    }

    fn irq_info(&self, body: &[u8]) -> Result<Reply, Errno> {
        let asked = prefix::<wire::IrqInfo>(body)?;
        let index = asked.index.get();
        if index >= self.info.irqs {
            return Err(Errno::INVAL);
        }
        let irq = self.device.irq(index);
        let flags = [
            (irq.eventfd, wire::IRQ_EVENTFD),
            (irq.maskable, wire::IRQ_MASKABLE),
            (irq.automasked, wire::IRQ_AUTOMASKED),
            (irq.noresize, wire::IRQ_NORESIZE),
        ];
        let flags = flags.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
        let info = wire::IrqInfo {
            argsz: to_u32(size_of::<wire::IrqInfo>()).into(),
            flags: flags.into(),
            index: index.into(),
            count: irq.count.into(),
        };
        whole(&info, asked.argsz.get())
    }

    fn set_irqs(&self, body: &[u8], fds: Vec<OwnedFd>) -> Result<Reply, Errno> {
        let (set, data) = wire::take::<wire::SetIrqs>(body).ok_or(Errno::INVAL)?;
        let (index, start, count) = (set.index.get(), set.start.get(), set.count.get());
        if index >= self.info.irqs {
            return Err(Errno::INVAL);
        }
        let end = start.checked_add(count).ok_or(Errno::INVAL)?;
        if end > self.device.irq(index).count {
            return Err(Errno::INVAL);
        }
        let kinds = wire::SET_NONE | wire::SET_BOOL | wire::SET_EVENTFD;
        let action = match set.flags.get() & !kinds {
            wire::SET_MASK => IrqAction::Mask,
            wire::SET_UNMASK => IrqAction::Unmask,
            wire::SET_TRIGGER => IrqAction::Trigger,
            _ => return Err(Errno::INVAL),
        };
        let kind = set.flags.get() & kinds;
        if kind != wire::SET_EVENTFD && !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        let count_bytes = count as usize;
        let data = match kind {
            wire::SET_NONE if data.is_empty() && (count > 0 || action == IrqAction::Trigger) => {
                IrqData::None
            }
            wire::SET_BOOL if data.len() == count_bytes && count > 0 => {
                IrqData::Bool(data.iter().map(|byte| *byte != 0).collect())
            }
            wire::SET_EVENTFD if count > 0 && data.is_empty() => {
                if fds.len() == count_bytes {
                    {
                        let event = |fd| PeerEvent::new(Arc::new(fd)).map(Some);
                        let events: Result<_, _> = fds.into_iter().map(event).collect();
                        IrqData::Eventfds(events?)
                    }
                } else if fds.is_empty() {
                    IrqData::Eventfds((0..count).map(|_| None).collect())
                } else {
                    return Err(Errno::INVAL);
                }
            }
            _ => return Err(Errno::INVAL),
        };
        self.device.set_irqs(IrqRequest { index, start, count, action, data })?;
        Ok(Reply::default())
    }

    /// Checks an access; returns its offset and length.
    fn check(&self, access: &wire::RegionAccess, want: Access) -> Result<(u64, usize), Errno> {
        let (offset, count) = (access.offset.get(), access.count.get());
        let region = self.regions.get(access.region.get() as usize).ok_or(Errno::INVAL)?;
        let end = offset.checked_add(u64::from(count)).ok_or(Errno::INVAL)?;
        let count = count as usize;
        if end > region.size || count > Limits::OURS.max_data_xfer_size {
            return Err(Errno::INVAL);
        }
        if (want.read && !region.access.read) || (want.write && !region.access.write) {
            return Err(Errno::PERM);
        }
        Ok((offset, count))
    }

    fn read(&self, body: &[u8]) -> Result<Reply, Errno> {
        let access = exact::<wire::RegionAccess>(body)?;
        let (offset, count) = self.check(access, Access::READ)?;
        let mut reply = vec![0; wire::TRANSFER_BYTES + count];
        let (head, data) = reply.split_at_mut(wire::TRANSFER_BYTES);
        head.copy_from_slice(access.as_bytes());
        self.device.read(access.region.get(), offset, data)?;
        Ok(reply.into())
    }

    fn write(&self, body: &[u8]) -> Result<Reply, Errno> {
        let (access, data) = wire::take::<wire::RegionAccess>(body).ok_or(Errno::INVAL)?;
        let (offset, count) = self.check(access, Access::WRITE)?;
        if data.len() != count {
            return Err(Errno::INVAL);
        }
        self.device.write(access.region.get(), offset, data)?;
        Ok(access.as_bytes().to_vec().into())
    }

    fn write_multi(&self, body: &[u8]) -> Result<Reply, Errno> {
        let (head, rest) = wire::take::<wire::WriteMulti>(body).ok_or(Errno::INVAL)?;
        let writes = rest.chunks_exact(size_of::<wire::SmallWrite>());
        if !writes.remainder().is_empty() || head.count.get() != writes.len() as u64 {
            return Err(Errno::INVAL);
        }
        for write in writes {
            let write = exact::<wire::SmallWrite>(write)?;
            let wire::SmallWrite { offset, region, count, data } = *write;
            let access = wire::RegionAccess { offset, region, count };
            let (offset, count) = self.check(&access, Access::WRITE)?;
            let data = data.get(..count).filter(|data| !data.is_empty()).ok_or(Errno::INVAL)?;
            self.device.write(region.get(), offset, data)?;
        }
        Ok(head.as_bytes().to_vec().into())
    }

    fn dma_map(&mut self, body: &[u8], mut fds: Vec<OwnedFd>) -> Result<Reply, Errno> {
        let map = exact::<wire::DmaMap>(body)?;
        let (address, len, flags) = (map.address.get(), map.len.get(), map.flags.get());
        let last = len.checked_sub(1).and_then(|len| address.checked_add(len));
        let last = last.ok_or(Errno::INVAL)?;
        let known = wire::ACCESS_READ | wire::ACCESS_WRITE;
        if flags & known == 0 || flags & !known != 0 || fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        let below = self.windows.range(..=last).next_back();
        if below.is_some_and(|(start, len)| address - start.min(&address) < *len) {
            return Err(Errno::EXIST);
        }
        if self.windows.len() >= Limits::OURS.max_dma_maps {
            return Err(Errno::NOSPC);
        }
        let access =
            Access { read: flags & wire::ACCESS_READ != 0, write: flags & wire::ACCESS_WRITE != 0 };
        let file = fds.pop().map(|fd| (fd, map.offset.get()));
        self.device.dma_map(DmaWindow { address, len, access, file }, &self.bus)?;
        self.windows.insert(address, len);
        Ok(Reply::default())
    }

    /// Unmaps all windows inside a range, as the kernel's VFIO does; a guest's IOMMU driver may
    /// invalidate more than it mapped. A range that cuts a window is refused.
    fn dma_unmap(&mut self, body: &[u8]) -> Result<Reply, Errno> {
        let mut unmap = *exact::<wire::DmaUnmap>(body)?;
        let (address, len) = (unmap.address.get(), unmap.len.get());
        let last = match (unmap.flags.get(), len.checked_sub(1)) {
            (wire::UNMAP_ALL, None) if address == 0 => u64::MAX,
            (0, Some(len)) => address.checked_add(len).ok_or(Errno::INVAL)?,
            _ => return Err(Errno::INVAL),
        };
        let end_of = |(start, len): (&u64, &u64)| start + (len - 1);
        let cut_below = self.windows.range(..address).next_back().map(end_of);
        let cut_above = self.windows.range(address..=last).next_back().map(end_of);
        if cut_below.is_some_and(|end| end >= address) || cut_above.is_some_and(|end| end > last) {
            return Err(Errno::INVAL);
        }
        let inside: Vec<(u64, u64)> =
            self.windows.range(address..=last).map(|(start, len)| (*start, *len)).collect();
        let mut bytes = 0_u64;
        for (start, len) in inside {
            self.device.dma_unmap(start, len)?;
            self.windows.remove(&start);
            bytes = bytes.saturating_add(len);
        }
        unmap.len = bytes.into();
        Ok(unmap.as_bytes().to_vec().into())
    }

    fn reset(&self, body: &[u8]) -> Result<Reply, Errno> {
        if !body.is_empty() {
            return Err(Errno::INVAL);
        }
        if !self.info.resettable {
            return Err(Errno::OPNOTSUPP);
        }
        self.device.reset()?;
        Ok(Reply::default())
    }
}

impl Drop for Session<'_> {
    /// Also when the device panics: the client is not left waiting.
    fn drop(&mut self) {
        self.link.close(Closed::Here);
        self.device.disconnected();
    }
}

/// Answers the version message, or refuses it.
fn greet(link: &Link) -> Result<Limits, Ended> {
    let patience = link.patience();
    let message = link.next_request(Some(patience)).map_err(|end| match end {
        End::Closed(why) => Ended::Client(why),
        End::Timeout => Ended::Refused,
    })?;
    let header = message.header;
    let (answer, limits) = match agree(&message) {
        Ok(agreed) => agreed,
        Err(why) => {
            tracing::debug!(why, "client refused");
            let header = header.refusal(Errno::INVAL.raw_os_error().unsigned_abs());
            // It goes in any case.
            let _ = link.send(&header, [&[], &[]], &[], patience);
            return Err(Ended::Refused);
        }
    };
    link.send(&header.reply(answer.len()), [&answer, &[]], &[], patience).map_err(
        |end| match end {
            End::Closed(why) => Ended::Client(why),
            End::Timeout => Ended::Client(Closed::NotTaken(patience)),
        },
    )?;
    Ok(limits)
}

fn agree(message: &Message) -> Result<(Vec<u8>, Limits), String> {
    if message.header.command.get() != Command::Version.code() {
        return Err(format!("first message is of command {}", message.header.command.get()));
    }
    if message.cut || !message.fds.is_empty() || message.header.has(flag::NO_REPLY) {
        return Err("version message is malformed".into());
    }
    let (version, text) =
        wire::take::<wire::Version>(&message.body).ok_or("version message is too short")?;
    if version.major.get() != wire::MAJOR {
        return Err(format!("client speaks version {}", version.major.get()));
    }
    let stated = Stated::parse(text)?;
    let agreed = wire::Version {
        major: wire::MAJOR.into(),
        minor: version.minor.get().min(wire::MINOR).into(),
    };
    Ok(([agreed.as_bytes(), &stated.answer()].concat(), stated.limits))
}

/// A body that is just this structure.
fn exact<T: FromBytes + KnownLayout + Immutable + Unaligned>(body: &[u8]) -> Result<&T, Errno> {
    T::ref_from_bytes(body).map_err(|_| Errno::INVAL)
}

/// A body that starts with this structure; later versions of the protocol may append fields.
fn prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(body: &[u8]) -> Result<&T, Errno> {
    wire::take(body).map(|(fixed, _)| fixed).ok_or(Errno::INVAL)
}

/// A reply of fixed length, if the client takes it.
fn whole<T: IntoBytes + Immutable>(info: &T, argsz: u32) -> Result<Reply, Errno> {
    let body = info.as_bytes();
    if body.len() > argsz as usize { Err(Errno::INVAL) } else { Ok(body.to_vec().into()) }
}

/// Lengths of what a device describes; far below 4 GiB.
fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
