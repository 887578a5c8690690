//! Operations that are made of many copies, and those between devices.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use et::{DeviceSlice, ListedCopy, NoPeer, PeerPath};

use crate::call::{guard, may_wait, timeout};
use crate::device::{self, et_device};
use crate::event::et_event;
use crate::launch::et_launch;
use crate::memory::{self, et_host_buffer, et_mem};
use crate::raw;
use crate::status::{Failure, et_status};
use crate::stream::{et_stream, give};
use crate::table;

/// A copy of a list: of memory of the caller to the device, or within the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_copy {
    /// Memory of the caller to be copied; null for a copy within the device.
    pub from: *const c_void,
    /// Memory on the device to be copied, if `from` is null.
    pub from_mem: et_mem,
    /// First byte of it.
    pub from_offset: u64,
    /// Where it is copied to.
    pub to: et_mem,
    /// First byte of it.
    pub to_offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A copy of a list: of memory on the device to memory of the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_read {
    /// What is copied.
    pub from: et_mem,
    /// First byte of it.
    pub from_offset: u64,
    /// Memory of the caller.
    pub to: *mut c_void,
    /// Number of bytes.
    pub bytes: usize,
}

/// A part of a host buffer, and memory on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_part {
    /// First byte in the host buffer.
    pub host_offset: usize,
    /// Memory on the device.
    pub mem: et_mem,
    /// First byte of it.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The way from the memory of one device to that of another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_peer_path {
    /// They are one device: `et_copy_on_device`.
    ET_PEER_SAME_DEVICE = 1,
    /// Through the host, by `et_copy_to_peer`: the registers of at least one of them keep other
    /// devices out of its memory.
    ET_PEER_HOST_REFUSED = 2,
    /// Through the host: nothing maps the memory of one on the bus of the other.
    ET_PEER_HOST_NOT_MAPPED = 3,
    /// Through the host, for a reason that this version does not know.
    ET_PEER_HOST = 4,
}

/// Memory of the caller of a copy to the device, and where it goes.
///
/// # Safety
/// - As [`raw::bytes`].
unsafe fn to_device(copy: &et_copy) -> Result<(&[u8], DeviceSlice), Failure> {
    let len = usize::try_from(copy.bytes).unwrap_or(usize::MAX);
    // SAFETY: promised by the caller.
    let from = unsafe { raw::bytes(copy.from, len, "from") }?;
    Ok((from, memory::slice(copy.to, copy.to_offset, copy.bytes)?))
}

/// A copy of a list, as the runtime has it.
///
/// # Safety
/// - As [`raw::bytes`].
unsafe fn listed(copy: &et_copy) -> Result<ListedCopy<'_>, Failure> {
    let et_copy { from, from_mem, from_offset, to, to_offset, bytes } = *copy;
    if from.is_null() {
        let from = memory::slice(from_mem, from_offset, bytes)?;
        return Ok(ListedCopy::OnDevice(from, memory::slice(to, to_offset, bytes)?));
    }
    // SAFETY: promised by the caller.
    let (from, to) = unsafe { to_device(copy) }?;
    Ok(ListedCopy::ToDevice(from, to))
}

/// The parts of a list, as the runtime has them.
///
/// # Safety
/// - As [`raw::array`].
unsafe fn parts(
    list: *const et_part,
    count: usize,
    what: &str,
) -> Result<Vec<(usize, DeviceSlice)>, Failure> {
    // SAFETY: promised by the caller.
    let list = unsafe { raw::array(list, count, what) }?;
    let part =
        |part: &et_part| Ok((part.host_offset, memory::slice(part.mem, part.offset, part.bytes)?));
    list.iter().map(part).collect()
}

/// Does several copies as one operation; they are not ordered among themselves. Memory of the
/// caller may be changed when the call returns. All copies are checked before the first is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_copy_list(
    stream: et_stream,
    copies: *const et_copy,
    count: usize,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        // SAFETY: promised by the caller.
        let copies = unsafe { raw::array(copies, count, "copies") }?;
        // SAFETY: promised by the caller.
        let list = copies.iter().map(|copy| unsafe { listed(copy) });
        give(event, stream.copy_list(&list.collect::<Result<Vec<_>, _>>()?)?)
    })
}

/// Copies several pieces of device memory to memory of the caller as one operation, and waits for
/// it. The places must not overlap. After a failure they may be partly written, or zeroed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_read_list(
    stream: et_stream,
    reads: *const et_read,
    count: usize,
    timeout_ns: u64,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        // SAFETY: promised by the caller.
        let reads = unsafe { raw::array(reads, count, "reads") }?;
        check_apart(reads)?;
        let read = |read: &et_read| {
            let et_read { from, from_offset, to, bytes } = *read;
            let from = memory::slice(from, from_offset, bytes as u64)?;
            // SAFETY: promised by the caller; no other of the list overlaps, as was checked.
            Ok((from, unsafe { raw::bytes_mut(to, bytes, "to") }?))
        };
        let mut list = reads.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        Ok(stream.read_list(&mut list, timeout(timeout_ns)?)?)
    })
}

/// Refuses places that overlap, to each of which a reference will exist.
fn check_apart(reads: &[et_read]) -> Result<(), Failure> {
    let mut places: Vec<_> = reads
        .iter()
        .filter(|read| read.bytes != 0)
        .map(|read| (read.to.addr(), read.bytes))
        .collect();
    places.sort_unstable();
    let overlap = |pair: &[(usize, usize)]| pair[0].0.saturating_add(pair[0].1) > pair[1].0;
    if places.windows(2).any(overlap) {
        return Err(Failure::new(et_status::ET_INVALID, "places of a list overlap"));
    }
    Ok(())
}

/// Copies parts of a host buffer to the device as one operation, without waiting. The buffer is
/// busy until that has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_upload_list(
    stream: et_stream,
    from: et_host_buffer,
    copies: *const et_part,
    count: usize,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        // SAFETY: promised by the caller.
        let copies = unsafe { parts(copies, count, "copies") }?;
        give(event, memory::lend(from, |buffer| stream.upload_list(buffer, &copies))?)
    })
}

/// Copies device memory to parts of a host buffer as one operation, without waiting. The rest of
/// the buffer stays as it is; it is busy until the operation has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_download_list(
    stream: et_stream,
    copies: *const et_part,
    count: usize,
    to: et_host_buffer,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        // SAFETY: promised by the caller.
        let copies = unsafe { parts(copies, count, "copies") }?;
        give(event, memory::lend(to, |buffer| stream.download_list(&copies, buffer))?)
    })
}

/// Copies memory of the caller to the device, launches a kernel, and copies what it made to parts
/// of a host buffer: as one operation with one event. `inputs`, in which `from` is never null, may
/// be changed when the call returns; the host buffer is busy until the operation has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_launch_staged(
    stream: et_stream,
    inputs: *const et_copy,
    input_count: usize,
    launch: et_launch,
    outputs: *const et_part,
    output_count: usize,
    into: et_host_buffer,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        // SAFETY: promised by the caller.
        let inputs = unsafe { raw::array(inputs, input_count, "inputs") }?;
        // SAFETY: promised by the caller.
        let inputs = inputs.iter().map(|input| unsafe { to_device(input) });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        // SAFETY: promised by the caller.
        let outputs = unsafe { parts(outputs, output_count, "outputs") }?;
        let event_of = crate::launch::with(launch, |launch| {
            memory::lend(into, |into| stream.launch_staged(&inputs, launch, &outputs, into))
        })?;
        give(event, event_of)
    })
}

/// Copies from the device of a stream to that of another stream, `peer`, without waiting: when the
/// earlier operations of both have ended. The data goes through the host in pieces. The event is
/// one of the other device.
#[unsafe(no_mangle)]
pub extern "C" fn et_copy_to_peer(
    stream: et_stream,
    from: et_mem,
    from_offset: u64,
    peer: et_stream,
    to: et_mem,
    to_offset: u64,
    bytes: u64,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let (stream, peer) = (table::get(stream)?, table::get(peer)?);
        let from = memory::slice(from, from_offset, bytes)?;
        let to = memory::slice(to, to_offset, bytes)?;
        give(event, stream.copy_to_peer(&from, &peer, &to)?)
    })
}

/// Returns the way that bytes take from one device to another, an `et_peer_path`, which is the same
/// in both directions.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_peer_path(
    device: et_device,
    other: et_device,
    path: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(path, "path")?;
        let path = device::with(device, |device| {
            device::with(other, |other| Ok(device.peer_path(other)))
        })?;
        let path = match path {
            PeerPath::SameDevice => et_peer_path::ET_PEER_SAME_DEVICE,
            PeerPath::Host(NoPeer::Refused) => et_peer_path::ET_PEER_HOST_REFUSED,
            PeerPath::Host(NoPeer::NotMapped) => et_peer_path::ET_PEER_HOST_NOT_MAPPED,
            _ => et_peer_path::ET_PEER_HOST,
        };
        out.write(path as u32);
        Ok(())
    })
}
