//! The requests, as the kernel answers them. Offsets are written out here, independently of the
//! code under test.

use super::super::{Arg, Errno, Fd, Linux, Record, Request, Sys};
use super::card::Card;
use super::{BDF, GROUP, Node, Pin, State};

impl State {
    pub(super) fn device(&self, fd: Fd) -> Result<(), Errno> {
        match self.node(fd)? {
            Node::Device => Ok(()),
            Node::Cdev if self.iommu.bound => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Does what the kernel does when a descriptor goes away.
    pub(super) fn closed(&mut self, node: Node) {
        match node {
            Node::Container | Node::Iommufd => self.iommu.release(),
            Node::Device | Node::Cdev => {
                // The last close of the device stops it.
                self.card.config[4] &= !4;
                self.card.irqs.clear();
                self.card.was_open = true;
                self.iommu.bound = false;
                self.iommu.attached = false;
            }
            _ => {}
        }
    }

    pub(super) fn mapped_file(
        &mut self,
        node: Node,
        fd: Fd,
        offset: u64,
        len: usize,
    ) -> Result<(Fd, u64), Errno> {
        match node {
            Node::Device | Node::Cdev => match self.refuse_bar_maps {
                Some(errno) => Err(errno),
                None => self.card.file(offset, len),
            },
            Node::Memory if self.huge.contains(&fd) => {
                let pages = len.div_ceil(2 << 20);
                self.huge_pages_free =
                    self.huge_pages_free.checked_sub(pages).ok_or(Errno::NOMEM)?;
                Ok((fd, offset))
            }
            Node::Memory => Ok((fd, offset)),
            _ => Err(Errno::NODEV),
        }
    }

    pub(super) fn request(
        &mut self,
        linux: &Linux,
        fd: Fd,
        request: Request,
        arg: Arg<'_>,
    ) -> Result<u32, Errno> {
        let node = self.node(fd)?;
        if self.card.unplugged && matches!(node, Node::Device | Node::Cdev) {
            return Err(Errno::NODEV);
        }
        match (node, request, arg) {
            (Node::Container, Request::ApiVersion, Arg::None) => Ok(0),
            (Node::Container, Request::CheckExtension, Arg::Value(kind)) => {
                let has = if self.iommu.absent { kind == 8 } else { kind == 3 || kind == 1 };
                Ok(u32::from(has))
            }
            (Node::Container, Request::SetIommu, Arg::Value(kind)) => self.set_iommu(kind),
            (Node::Container, Request::IommuInfo, Arg::Record(record)) => self.iommu_info(record),
            (Node::Container, Request::MapDma, Arg::Record(record)) => self.map_dma(record),
            (Node::Container, Request::UnmapDma, Arg::Record(record)) => {
                let unmapped = self.iommu.unmap(record.u64(8), record.u64(16))?;
                record.put_u64(16, unmapped);
                Ok(0)
            }
            (Node::Group, Request::GroupStatus, Arg::Record(record)) => {
                // A flag we do not know is set as well.
                record.put_u32(4, u32::from(self.viable) | 0x80);
                Ok(0)
            }
            (Node::Group, Request::SetContainer, Arg::Record(record)) => {
                let container = record.u32(0).cast_signed();
                if self.node(container)? != Node::Container || self.iommu.container_has_group {
                    return Err(Errno::INVAL);
                }
                self.iommu.container_has_group = true;
                Ok(0)
            }
            (Node::Group, Request::DeviceFd, Arg::Record(record)) => {
                if self.iommu.kind.is_none() || record.bytes() != format!("{BDF}\0").as_bytes() {
                    return Err(Errno::NODEV);
                }
                Ok(self.add(Node::Device).cast_unsigned())
            }
            (Node::Cdev, Request::BindIommufd, Arg::Record(record)) => {
                if self.node(record.u32(8).cast_signed())? != Node::Iommufd || self.iommu.bound {
                    return Err(Errno::INVAL);
                }
                self.iommu.bound = true;
                Ok(0)
            }
            (Node::Iommufd, Request::IoasAlloc, Arg::Record(record)) => {
                self.iommu.has_ioas = true;
                record.put_u32(8, 5);
                Ok(0)
            }
            (Node::Cdev, Request::AttachPageTable, Arg::Record(record)) => {
                if !self.iommu.bound || !self.iommu.has_ioas || record.u32(8) != 5 {
                    return Err(Errno::INVAL);
                }
                self.iommu.attached = true;
                Ok(0)
            }
            (Node::Iommufd, Request::IoasRanges, Arg::Record(record)) => self.ioas_ranges(record),
            (Node::Iommufd, Request::IoasMap, Arg::Record(record)) => {
                let flags = record.u32(4);
                if flags & 1 == 0 || record.u32(8) != 5 || !self.iommu.attached {
                    return Err(Errno::INVAL);
                }
                let (read, write) = (flags & 4 != 0, flags & 2 != 0);
                let pin = Pin { len: record.u64(24), read, write, address: record.u64(16) };
                self.iommu.map(record.u64(32), pin).map(|()| 0)
            }
            (Node::Iommufd, Request::IoasUnmap, Arg::Record(record)) => {
                let unmapped = self.iommu.unmap(record.u64(8), record.u64(16))?;
                if unmapped == 0 {
                    return Err(Errno::NOENT);
                }
                record.put_u64(16, unmapped);
                Ok(0)
            }
            (Node::Device | Node::Cdev, request, arg) => {
                self.device(fd)?;
                self.device_request(linux, request, arg)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn set_iommu(&mut self, kind: u32) -> Result<u32, Errno> {
        if !self.iommu.container_has_group {
            return Err(Errno::INVAL);
        }
        if !self.iommu.interrupt_remapping {
            return Err(Errno::PERM);
        }
        self.iommu.kind = Some(kind);
        Ok(0)
    }

    fn iommu_info(&self, record: &mut Record) -> Result<u32, Errno> {
        if self.iommu.kind != Some(3) {
            return Err(Errno::INVAL);
        }
        record.put_u64(8, 0xffff_f000);
        if self.iommu.tells_nothing {
            record.put_u32(4, 1);
            return Ok(0);
        }
        let ranges_bytes = 16 + 16 * self.iommu.ranges.len();
        let total = 24 + ranges_bytes + 12;
        record.put_u32(4, 3);
        record.put_u32(0, u32::try_from(total).unwrap());
        if record.len() < total {
            record.put_u32(16, 0);
            return Ok(0);
        }
        record.put_u32(16, 24);
        record.put_u32(24, 1 | 1 << 16);
        record.put_u32(28, u32::try_from(24 + ranges_bytes).unwrap());
        record.put_u32(32, u32::try_from(self.iommu.ranges.len()).unwrap());
        for (index, &(first, last)) in self.iommu.ranges.iter().enumerate() {
            record.put_u64(40 + 16 * index, first);
            record.put_u64(48 + 16 * index, last);
        }
        record.put_u32(24 + ranges_bytes, 3 | 1 << 16);
        record.put_u32(24 + ranges_bytes + 4, 0);
        let left = self.iommu.entries.saturating_sub(u32::try_from(self.iommu.pins.len()).unwrap());
        record.put_u32(24 + ranges_bytes + 8, left);
        Ok(0)
    }

    fn map_dma(&mut self, record: &Record) -> Result<u32, Errno> {
        if self.iommu.kind != Some(3) || record.u32(0) != 32 {
            return Err(Errno::INVAL);
        }
        let (read, write) = (record.u32(4) & 1 != 0, record.u32(4) & 2 != 0);
        let pin = Pin { len: record.u64(24), read, write, address: record.u64(8) };
        self.iommu.map(record.u64(16), pin).map(|()| 0)
    }

    fn ioas_ranges(&self, record: &mut Record) -> Result<u32, Errno> {
        if record.u32(4) != 5 || !self.iommu.attached {
            return Err(Errno::INVAL);
        }
        let room = record.u32(8) as usize;
        record.put_u32(8, u32::try_from(self.iommu.ranges.len()).unwrap());
        record.put_u64(24, 4096);
        for (index, &(first, last)) in self.iommu.ranges.iter().take(room).enumerate() {
            record.put_u64(32 + 16 * index, first);
            record.put_u64(40 + 16 * index, last);
        }
        if room < self.iommu.ranges.len() { Err(Errno::MSGSIZE) } else { Ok(0) }
    }

    fn device_request(
        &mut self,
        linux: &Linux,
        request: Request,
        arg: Arg<'_>,
    ) -> Result<u32, Errno> {
        match (request, arg) {
            (Request::DeviceInfo, Arg::Record(record)) => {
                record.put_u32(4, 2 | u32::from(self.card.has_reset));
                record.put_u32(8, 9);
                record.put_u32(12, 5);
                Ok(0)
            }
            (Request::RegionInfo, Arg::Record(record)) => self.region_info(record),
            (Request::IrqInfo, Arg::Record(record)) => {
                let index = record.u32(8);
                if index >= 5 {
                    return Err(Errno::INVAL);
                }
                let count = self.card.claimed_vectors.get(&index).copied().unwrap_or(0);
                record.put_u32(4, 1);
                record.put_u32(12, count);
                Ok(0)
            }
            (Request::SetIrqs, Arg::Record(record)) => self.set_irqs(linux, record),
            (Request::DeviceReset, Arg::None) => {
                assert!(
                    self.card.dead || !self.card.is_bus_master(),
                    "reset with bus mastering on"
                );
                if !self.card.has_reset {
                    return Err(Errno::NOTTY);
                }
                self.card.resets += 1;
                Ok(0)
            }
            (Request::HotResetInfo, Arg::Record(record)) => {
                let groups = self.card.slot_groups.clone();
                record.put_u32(4, if self.card.slot_owned { 3 } else { 1 });
                record.put_u32(8, u32::try_from(groups.len()).unwrap());
                if record.len() < 12 + 8 * groups.len() {
                    return Err(Errno::NOSPC);
                }
                for (index, group) in groups.into_iter().enumerate() {
                    record.put_u32(12 + 8 * index, group);
                }
                Ok(0)
            }
            (Request::HotReset, Arg::Record(record)) => {
                assert!(
                    self.card.dead || !self.card.is_bus_master(),
                    "reset with bus mastering on"
                );
                let proven = match record.u32(8) {
                    0 => self.iommu.bound && self.card.slot_owned,
                    1 => {
                        self.node(record.u32(12).cast_signed())? == Node::Group
                            && self.card.slot_groups.iter().all(|&group| group == GROUP)
                    }
                    _ => false,
                };
                if !proven {
                    return Err(Errno::PERM);
                }
                self.card.slot_resets += 1;
                Ok(0)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn region_info(&self, record: &mut Record) -> Result<u32, Errno> {
        let index = record.u32(8);
        if index >= 9 {
            return Err(Errno::INVAL);
        }
        let size = self.card.sizes.get(&index).copied().unwrap_or(0);
        record.put_u64(16, size);
        record.put_u64(24, Card::offset(index));
        let mut flags = if size > 0 { 3 } else { 0 };
        if size > 0 && index < 6 && !self.card.trapped.contains(&index) {
            flags |= 4;
        }
        if let Some(areas) = self.card.sparse.get(&index) {
            flags |= 8;
            // Another capability comes first.
            let total = 32 + 8 + 16 + 16 * areas.len();
            record.put_u32(0, u32::try_from(total).unwrap());
            if record.len() >= total {
                record.put_u32(12, 32);
                record.put_u32(32, 3 | 1 << 16);
                record.put_u32(36, 40);
                record.put_u32(40, 1 | 1 << 16);
                record.put_u32(48, u32::try_from(areas.len()).unwrap());
                for (place, &(start, len)) in (56..).step_by(16).zip(areas) {
                    record.put_u64(place, start);
                    record.put_u64(place + 8, len);
                }
            }
        }
        record.put_u32(4, flags);
        Ok(0)
    }

    fn set_irqs(&mut self, linux: &Linux, record: &Record) -> Result<u32, Errno> {
        let (flags, index, start, count) =
            (record.u32(4), record.u32(8), record.u32(12), record.u32(16));
        let have = self.card.vectors.get(&index).copied().unwrap_or(0);
        match (flags, count) {
            // No data, count 0: disable.
            (0x21, 0) => {
                self.card.irqs.remove(&index);
                Ok(0)
            }
            // No data: trigger.
            (0x21, 1) => {
                let fds = self.card.irqs.get(&index).ok_or(Errno::INVAL)?;
                linux.raise(*fds.get(start as usize).ok_or(Errno::INVAL)?);
                Ok(0)
            }
            // Event counters.
            (0x24, count) => {
                if start != 0 || (index == 1 && self.card.irqs.contains_key(&1)) {
                    return Err(Errno::INVAL);
                }
                if count > have {
                    return if have == 0 { Err(Errno::NOSPC) } else { Ok(have) };
                }
                let fds: Vec<Fd> = (0..count as usize)
                    .map(|vector| record.u32(20 + 4 * vector).cast_signed())
                    .collect();
                for &fd in &fds {
                    if self.node(fd)? != Node::Event {
                        return Err(Errno::BADF);
                    }
                }
                self.card.irqs.insert(index, fds);
                Ok(0)
            }
            _ => Err(Errno::NOTTY),
        }
    }
}
