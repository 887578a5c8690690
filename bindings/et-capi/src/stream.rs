//! Streams and copies.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::Deref;

use et::core_dump::CoreWriteError;
use et::{AnyHal, Event, Priority, Stream, StreamError, StreamErrors, StreamOptions};

use crate::call::{guard, may_wait, timeout};
use crate::device::{self, et_device, no_such};
use crate::event::{Completion, et_event};
use crate::launch::et_launch;
use crate::memory::{self, Arrival, et_host_buffer, et_mem};
use crate::raw::{self, Growing, Out, User};
use crate::status::{Failure, et_status, status_of};
use crate::table::{self, handle};

/// A queue of operations, which are done in their order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_stream {
    /// A number to be looked up; 0 is no stream.
    pub id: u64,
}

/// A stream of a device.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    stream: Stream<AnyHal>,
    device: et_device,
}

impl Deref for Queue {
    type Target = Stream<AnyHal>;

    fn deref(&self) -> &Stream<AnyHal> {
        &self.stream
    }
}

handle!(et_stream, 4, Queue);

/// What went wrong in a stream without anyone hearing of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_error_list {
    /// A number to be looked up; 0 is no list.
    pub id: u64,
}

handle!(et_error_list, 9, StreamErrors);

/// Gives an event to a caller who wants it.
pub(crate) fn give(out: Out<'_, et_event>, event: Event) -> Result<(), Failure> {
    if let Some(out) = out {
        out.write(table::insert(Completion::new(event))?);
    }
    Ok(())
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_create(
    device: et_device,
    stream: Option<&mut MaybeUninit<et_stream>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(stream, "stream")?;
        let stream = device::with(device, |device| Ok(device.stream()))?;
        out.write(table::insert(Queue { stream, device })?);
        Ok(())
    })
}

/// How soon commands of a stream are sent when there is not room for all that are ready.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_priority {
    /// What a stream has if nothing is said.
    ET_PRIORITY_NORMAL = 0,
    /// When no other stream has anything to send, or 256 commands have gone before.
    ET_PRIORITY_LOW = 1,
    /// Before the others, of which one may go after each 16 commands.
    ET_PRIORITY_HIGH = 2,
}

/// Options of a stream; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_stream_options {
    /// `sizeof(et_stream_options)`.
    pub size: usize,
    /// An `et_priority`.
    pub priority: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_stream_options {
    const FIRST: usize = size_of::<Self>();
}

/// Makes a stream with options, which may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_stream_create_with(
    device: et_device,
    options: *const et_stream_options,
    stream: Option<&mut MaybeUninit<et_stream>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(stream, "stream")?;
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let all = [
            (et_priority::ET_PRIORITY_NORMAL, Priority::Normal),
            (et_priority::ET_PRIORITY_LOW, Priority::Low),
            (et_priority::ET_PRIORITY_HIGH, Priority::High),
        ];
        let number = options.priority;
        let found = all.into_iter().find(|(priority, _)| *priority as u32 == number);
        let none = || Failure::new(et_status::ET_INVALID, format!("there is no priority {number}"));
        let options = StreamOptions::new().priority(found.ok_or_else(none)?.1);
        let stream = device::with(device, |device| Ok(device.stream_with(&options)))?;
        out.write(table::insert(Queue { stream, device })?);
        Ok(())
    })
}

/// Frees a stream. What it was given is done.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_free(stream: et_stream) -> et_status {
    guard(|| table::remove(stream))
}

/// Waits until all operations are done, failed ones included.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_synchronize(stream: et_stream, timeout_ns: u64) -> et_status {
    guard(|| Ok(table::get(stream)?.synchronize(timeout(timeout_ns)?)?))
}

/// Aborts the operations of a stream, and waits until all of them are done.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_abort(stream: et_stream, timeout_ns: u64) -> et_status {
    guard(|| {
        may_wait()?;
        Ok(table::get(stream)?.abort(timeout(timeout_ns)?)?)
    })
}

/// Makes later operations of a stream wait for an event of any stream of any device. Only its end
/// counts: if the operation fails, the stream goes on.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_wait_for(stream: et_stream, event: et_event) -> et_status {
    guard(|| {
        table::get(stream)?.wait_for(table::get(event)?.event());
        Ok(())
    })
}

/// Makes an event for the end of everything before it.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_barrier(
    stream: et_stream,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(event, "event")?;
        give(Some(out), table::get(stream)?.barrier()?)
    })
}

/// Copies memory of the caller to the device. It may be changed when the call returns.
///
/// `event` may be null here and below; a failure is then in the stream's list of errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_copy_to_device(
    stream: et_stream,
    from: *const c_void,
    bytes: usize,
    to: et_mem,
    offset: u64,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        // SAFETY: promised by the caller.
        let from = unsafe { raw::bytes(from, bytes, "from") }?;
        let to = memory::slice(to, offset, bytes as u64)?;
        give(event, table::get(stream)?.copy_to_device(from, &to)?)
    })
}

/// Copies device memory to memory of the caller, and waits for it. After a failure `to` may be
/// partly written, or zeroed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_copy_to_host(
    stream: et_stream,
    from: et_mem,
    offset: u64,
    to: *mut c_void,
    bytes: usize,
    timeout_ns: u64,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        let from = memory::slice(from, offset, bytes as u64)?;
        // SAFETY: promised by the caller.
        let to = unsafe { raw::bytes_mut(to, bytes, "to") }?;
        Ok(stream.read(&from, to, timeout(timeout_ns)?)?)
    })
}

/// Copies device memory to memory of the caller, without waiting. The bytes are there when a call
/// has returned that the operation has ended well, or its callback is called. Until then `to`
/// belongs to the library; freeing the event gives it back, and it is not written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_copy_to_host_async(
    stream: et_stream,
    from: et_mem,
    offset: u64,
    to: *mut c_void,
    bytes: usize,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(event, "event")?;
        let queue = table::get(stream)?;
        let from = memory::slice(from, offset, bytes as u64)?;
        raw::check(to, bytes, "to")?;
        // Of at least one byte, since nothing can be mapped that has none.
        let buffer = device::with(queue.device, |device| Ok(device.host_buffer(bytes.max(1))?))?;
        let transfer = queue.download(&from, buffer)?;
        let event = transfer.event().clone();
        // SAFETY: promised by the caller.
        let arrival = unsafe { Arrival::new(transfer, User::new(to), bytes) };
        out.write(table::insert(Completion::of_arrival(event, arrival))?);
        Ok(())
    })
}

/// Copies the first bytes of a host buffer to the device, without waiting. The buffer is busy until
/// that has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_upload(
    stream: et_stream,
    from: et_host_buffer,
    to: et_mem,
    offset: u64,
    bytes: u64,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        let to = memory::slice(to, offset, bytes)?;
        give(event, memory::lend(from, |buffer| stream.upload(buffer, &to))?)
    })
}

/// Copies device memory to the start of a host buffer, without waiting. The buffer is busy until
/// that has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_download(
    stream: et_stream,
    from: et_mem,
    offset: u64,
    bytes: u64,
    to: et_host_buffer,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        let from = memory::slice(from, offset, bytes)?;
        give(event, memory::lend(to, |buffer| stream.download(&from, buffer))?)
    })
}

/// Copies within the memory of a device. The two places must not overlap.
#[unsafe(no_mangle)]
pub extern "C" fn et_copy_on_device(
    stream: et_stream,
    from: et_mem,
    from_offset: u64,
    to: et_mem,
    to_offset: u64,
    bytes: u64,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let from = memory::slice(from, from_offset, bytes)?;
        let to = memory::slice(to, to_offset, bytes)?;
        give(event, table::get(stream)?.copy_on_device(&from, &to)?)
    })
}

/// Sets device memory to a byte.
#[unsafe(no_mangle)]
pub extern "C" fn et_fill(
    stream: et_stream,
    to: et_mem,
    offset: u64,
    bytes: u64,
    byte: u8,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let to = memory::slice(to, offset, bytes)?;
        give(event, table::get(stream)?.fill(&to, byte)?)
    })
}

/// Sets device memory to a pattern of 1, 2, 4, 8 or 16 bytes, which begins at its first byte and is
/// cut off at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_fill_pattern(
    stream: et_stream,
    to: et_mem,
    offset: u64,
    bytes: u64,
    pattern: *const c_void,
    pattern_bytes: usize,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let to = memory::slice(to, offset, bytes)?;
        // SAFETY: promised by the caller.
        let pattern = unsafe { raw::bytes(pattern, pattern_bytes, "pattern") }?;
        give(event, table::get(stream)?.fill_pattern(&to, pattern)?)
    })
}

/// Launches a kernel, which comes with its arguments and options. The same description may be
/// launched again.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_submit(
    stream: et_stream,
    launch: et_launch,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let stream = table::get(stream)?;
        let event_of = crate::launch::with(launch, |launch| Ok(stream.launch(launch)?))?;
        give(event, event_of)
    })
}

/// Takes the errors of operations whose events were freed or never given, and the panics of
/// callbacks; a new list gathers from then on.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_take_errors(
    stream: et_stream,
    list: Option<&mut MaybeUninit<et_error_list>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(list, "list")?;
        out.write(table::insert(table::get(stream)?.take_errors())?);
        Ok(())
    })
}

/// Returns the number of errors in a list, and of those that did not find room in it. `dropped` may
/// be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_error_list_count(
    list: et_error_list,
    count: Option<&mut MaybeUninit<usize>>,
    dropped: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    guard(|| {
        let list = table::get(list)?;
        raw::wanted(count, "count")?.write(list.errors.len());
        raw::store(dropped, list.dropped);
        Ok(())
    })
}

/// Returns one error of a list: its status, the number of its operation, and its message. `status`,
/// `operation` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_error_list_get(
    list: et_error_list,
    index: usize,
    status: Option<&mut MaybeUninit<et_status>>,
    operation: Option<&mut MaybeUninit<u64>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let list = table::get(list)?;
        let error = list.errors.get(index).ok_or_else(|| no_such("error", index))?;
        let (code, number) = match error {
            StreamError::Failed { operation, error, .. } => (status_of(error), *operation),
            StreamError::Panicked { operation, .. } => (et_status::ET_INTERNAL, *operation),
            StreamError::NotDumped { operation, error, .. } => {
                let code = match error {
                    CoreWriteError::File(_) => et_status::ET_FILE,
                    CoreWriteError::Region { error, .. } => status_of(error),
                    _ => et_status::ET_CLOSED,
                };
                (code, *operation)
            }
            _ => (et_status::ET_OTHER, 0),
        };
        raw::store(status, code);
        raw::store(operation, number);
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&et::Report(error).to_string(), buffer, capacity, needed) }
    })
}

/// Frees a list of errors.
#[unsafe(no_mangle)]
pub extern "C" fn et_error_list_free(list: et_error_list) -> et_status {
    guard(|| table::remove(list))
}
