//! Region descriptions on the wire: the fixed part, and the list of areas as a capability.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::wire::{self, Capability, RegionInfo, SparseArea, SparseMmap};
use crate::{Access, Area, Region, RegionMemory};

/// Bytes of the fixed part.
const FIXED: usize = size_of::<RegionInfo>();

/// The reply body for a client that takes `argsz` bytes, and whether the descriptor goes along.
///
/// If the capability does not fit, only the fixed part is sent; its `argsz` says what would be
/// needed, and the client asks again.
pub(crate) fn encode(index: u32, region: &Region, argsz: u32) -> (Vec<u8>, bool) {
    let mapped = region.memory.as_ref().filter(|_| !region.areas.is_empty());
    let areas = if mapped.is_some() { &region.areas[..] } else { &[] };
    let mut flags = 0;
    let mut full = FIXED;
    if region.access.read {
        flags |= wire::REGION_READ;
    }
    if region.access.write {
        flags |= wire::REGION_WRITE;
    }
    if mapped.is_some() {
        flags |= wire::REGION_MMAP | wire::REGION_CAPS;
        full += size_of::<Capability>() + size_of::<SparseMmap>();
        full += size_of_val(areas);
    }
    let fits = argsz as usize >= full;
    let caps = mapped.is_some() && fits;
    let info = RegionInfo {
        argsz: to_u32(full).into(),
        flags: flags.into(),
        index: index.into(),
        // Also without the capabilities themselves: QEMU checks it before it asks again.
        cap_offset: if mapped.is_some() { to_u32(FIXED) } else { 0 }.into(),
        size: region.size.into(),
        offset: mapped.map_or(0, |memory| memory.offset).into(),
    };
    let mut body = info.as_bytes().to_vec();
    if caps {
        let head =
            Capability { id: wire::CAP_SPARSE_MMAP.into(), version: 1.into(), next: 0.into() };
        body.extend_from_slice(head.as_bytes());
        let sparse = SparseMmap { areas: to_u32(areas.len()).into(), reserved: 0.into() };
        body.extend_from_slice(sparse.as_bytes());
        for area in areas {
            let area = SparseArea { offset: area.offset.into(), len: area.len.into() };
            body.extend_from_slice(area.as_bytes());
        }
    }
    (body, caps)
}

/// What a reply body says; `Err` names what is wrong.
pub(crate) fn decode(index: u32, body: &[u8], fds: Vec<OwnedFd>) -> Result<Region, &'static str> {
    let (info, _) = wire::take::<RegionInfo>(body).ok_or("it is too short")?;
    if info.index.get() != index {
        return Err("it is for another region");
    }
    let size = info.size.get();
    let flags = info.flags.get();
    let has = |bit| flags & bit != 0;
    let access = Access { read: has(wire::REGION_READ), write: has(wire::REGION_WRITE) };
    let sparse = if has(wire::REGION_CAPS) {
        sparse_areas(body, info.cap_offset.get() as usize)?
    } else {
        None
    };
    let mut fds = fds.into_iter();
    let memory = match (has(wire::REGION_MMAP), fds.next()) {
        (true, Some(fd)) => Some(RegionMemory { fd: Arc::new(fd), offset: info.offset.get() }),
        // Without a descriptor there is nothing to map, whatever the flag says.
        _ => None,
    };
    let areas = match (&memory, sparse) {
        (None, _) => Vec::new(),
        (Some(_), Some(areas)) => areas,
        // No list: all of it.
        (Some(_), None) if size > 0 => vec![Area { offset: 0, len: size }],
        (Some(_), None) => Vec::new(),
    };
    for area in &areas {
        let end = area.offset.checked_add(area.len).ok_or("an area wraps around")?;
        if area.len == 0 || end > size {
            return Err("an area is empty or outside the region");
        }
    }
    if let Some(memory) = &memory {
        memory.offset.checked_add(size).ok_or("the region wraps around in its file")?;
    }
    Ok(Region { size, access, areas, memory })
}

/// Walks the capabilities from `at` on and collects the areas, if there is such a capability.
fn sparse_areas(body: &[u8], mut at: usize) -> Result<Option<Vec<Area>>, &'static str> {
    let mut found = None;
    let mut before = 0;
    while at != 0 {
        // Forward only: so the list ends.
        if at < FIXED || at <= before {
            return Err("the capability list turns back");
        }
        before = at;
        let rest = body.get(at..).ok_or("a capability lies outside")?;
        let (head, rest) = wire::take::<Capability>(rest).ok_or("a capability is cut off")?;
        if head.id.get() == wire::CAP_SPARSE_MMAP {
            let (sparse, rest) = wire::take::<SparseMmap>(rest).ok_or("a capability is cut off")?;
            let count = sparse.areas.get() as usize;
            let bytes = count
                .checked_mul(size_of::<SparseArea>())
                .and_then(|bytes| rest.get(..bytes))
                .ok_or("the list of areas is cut off")?;
            let areas = bytes.chunks_exact(size_of::<SparseArea>()).filter_map(wire::take);
            let areas = areas.map(|(area, _): (&SparseArea, _)| Area {
                offset: area.offset.get(),
                len: area.len.get(),
            });
            found.get_or_insert_with(Vec::new).extend(areas);
        }
        at = head.next.get() as usize;
    }
    Ok(found)
}

/// Sizes of what a device describes; far below 4 GiB.
fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::{Strategy, any, prop, proptest};
    use rustix::event::{EventfdFlags, eventfd};
    use zerocopy::IntoBytes;

    use super::{decode, encode};
    use crate::wire::{Capability, RegionInfo, SparseArea, SparseMmap};
    use crate::{Access, Area, Region, RegionMemory};

    fn fd() -> std::os::fd::OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    fn info(flags: u32, cap_offset: u32) -> RegionInfo {
        RegionInfo {
            argsz: 32.into(),
            flags: flags.into(),
            index: 3.into(),
            cap_offset: cap_offset.into(),
            size: 0x10000.into(),
            offset: 0.into(),
        }
    }

    fn capability(id: u16, next: u32, claimed: u32, areas: &[(u64, u64)]) -> Vec<u8> {
        let head = Capability { id: id.into(), version: 1.into(), next: next.into() };
        let sparse = SparseMmap { areas: claimed.into(), reserved: 0.into() };
        let areas = areas.iter().flat_map(|(offset, len)| {
            let area = SparseArea { offset: (*offset).into(), len: (*len).into() };
            area.as_bytes().to_vec()
        });
        [head.as_bytes(), sparse.as_bytes(), &areas.collect::<Vec<u8>>()].concat()
    }

    fn areas(body: &[u8]) -> Result<Vec<(u64, u64)>, &'static str> {
        let region = decode(3, body, vec![fd()])?;
        Ok(region.areas.iter().map(|area| (area.offset, area.len)).collect())
    }

    #[test]
    fn lists_may_be_chained_and_mixed() {
        let first = capability(1, 64, 1, &[(0, 0x1000)]);
        let other = capability(9, 80, 7, &[]);
        let last = capability(1, 0, 1, &[(0x2000, 0x1000)]);
        let body = [info(0xf, 32).as_bytes(), &first, &other, &last].concat();
        assert_eq!(areas(&body), Ok(vec![(0, 0x1000), (0x2000, 0x1000)]));
    }

    #[test]
    fn without_a_list_all_can_be_mapped() {
        assert_eq!(areas(info(0x7, 0).as_bytes()), Ok(vec![(0, 0x10000)]));
        assert_eq!(areas(info(0x3, 0).as_bytes()), Ok(vec![]));
        let body = [info(0xf, 32).as_bytes(), &capability(1, 0, 0, &[])].concat();
        assert_eq!(areas(&body), Ok(vec![]));
        // A flag without a descriptor is nothing to map.
        let region = decode(3, info(0x7, 0).as_bytes(), vec![]).unwrap();
        assert!(region.memory.is_none() && region.areas.is_empty());
    }

    #[test]
    fn lists_that_lie_are_refused() {
        let with = |cap_offset, capability: Vec<u8>| {
            areas(&[info(0xf, cap_offset).as_bytes(), &capability].concat())
        };
        let good = || capability(1, 0, 1, &[(0, 0x1000)]);
        for (result, said) in [
            (with(8, good()), "turns back"),
            (with(32, capability(1, 32, 0, &[])), "turns back"),
            (with(32, capability(1, 8, 0, &[])), "turns back"),
            (with(32, capability(1, 48, 0, &[])), "cut off"),
            (with(32, capability(1, 49, 0, &[])), "outside"),
            (with(u32::MAX, good()), "outside"),
            (with(60, good()), "cut off"),
            (with(32, capability(1, 0, 2, &[(0, 0x1000)])), "cut off"),
            (with(32, capability(1, 0, u32::MAX, &[(0, 0x1000)])), "cut off"),
            (with(32, capability(1, 0, 1, &[(0, 0)])), "empty or outside"),
            (with(32, capability(1, 0, 1, &[(0xf000, 0x1001)])), "empty or outside"),
            (with(32, capability(1, 0, 1, &[(u64::MAX, 2)])), "wraps"),
            (areas(&[0; 31]), "too short"),
            (areas(&[0; 32]), "another region"),
        ] {
            assert!(result.unwrap_err().contains(said), "{said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            list in prop::collection::vec((0..1_u64 << 40, 1..1_u64 << 20), 0..40),
            offset in 0..1_u64 << 40,
        ) {
            let areas: Vec<Area> =
                list.iter().map(|(offset, len)| Area { offset: *offset, len: *len }).collect();
            let memory = Some(RegionMemory { fd: Arc::new(fd()), offset });
            let region = Region { size: 1 << 41, access: Access::READ, areas, memory };
            let (body, with_fd) = encode(5, &region, u32::MAX);
            let fds = if with_fd { vec![fd()] } else { vec![] };
            let back = decode(5, &body, fds).unwrap();
            assert_eq!((back.size, back.access), (region.size, region.access));
            assert_eq!(back.areas, region.areas);
            assert_eq!(back.memory.is_some(), !region.areas.is_empty());
            assert!(back.memory.is_none_or(|memory| memory.offset == offset));
            // The length is stated the same however little room there is.
            let (fixed, with_fd) = encode(5, &region, 32);
            assert_eq!(fixed[..4], body[..4]);
            assert_eq!((fixed.len(), with_fd), (32, false));
        }

        #[test]
        fn any_bytes_are_judged(
            flags in 0..16_u32,
            cap_offset in (0..120_u32).prop_map(|at| at & !3),
            rest in prop::collection::vec(prop::sample::select(&[0_u8, 1, 2, 32, 40, 64, 255][..]), 0..200),
            size in any::<u64>(),
        ) {
            let info = RegionInfo { size: size.into(), ..info(flags, cap_offset) };
            let body = [info.as_bytes(), &rest].concat();
            if let Ok(region) = decode(3, &body, vec![fd()]) {
                assert!(region.areas.iter().all(|area| area.offset + area.len <= region.size));
            }
        }
    }
}
