//! Devices.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use et::{AnyHal, CopyPath, Device};

use crate::call::{guard, may_close, timeout};
use crate::event::et_event;
use crate::raw::{self, Growing, Out};
use crate::status::{Failure, et_status, initialised};
use crate::table::{self, handle};

/// An open device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_device {
    /// A number to be looked up; 0 is no device.
    pub id: u64,
}

/// `None` while it is reset, and when it is closed.
pub(crate) type Slot = RwLock<Option<Device<AnyHal>>>;
handle!(et_device, 1, Slot);

/// How a device is opened; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_device_options {
    /// `sizeof(et_device_options)`.
    pub size: usize,
    /// How long it may take to boot.
    pub boot_timeout_ns: u64,
    /// How long a call may wait for room while its stream makes no progress.
    pub command_timeout_ns: u64,
    /// How long closing may wait for what is in flight.
    pub shutdown_timeout_ns: u64,
    /// How long the device may answer nothing before it is asked whether it is there.
    pub watchdog_ns: u64,
    /// How long a wait polls before it sleeps.
    pub spin_ns: u64,
    /// Most host memory for copies, in bytes.
    pub staging_bytes: u64,
    /// Most commands in flight, at most 4096.
    pub in_flight: u32,
    /// 1: copies may start and end at any byte of device memory. Firmware allows it, and cards are
    /// not documented to.
    pub byte_copies: u32,
    /// How long to try again while another process has the device; 0 for not at all.
    pub busy_timeout_ns: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_device_options {
    const FIRST: usize = std::mem::offset_of!(Self, busy_timeout_ns);
}

/// What a device says about itself; 0 where it does not say.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_properties {
    /// `sizeof(et_properties)`, set by the caller.
    pub size: usize,
    /// Shires that kernels can use, a bit for each.
    pub shire_mask: u64,
    /// First address of the memory for users.
    pub memory_base: u64,
    /// Its bytes.
    pub memory_bytes: u64,
    /// Scratchpad of a shire, in bytes.
    pub local_memory_bytes: u64,
    /// Second-level cache, in bytes.
    pub l2_bytes: u64,
    /// Third-level cache, in bytes.
    pub l3_bytes: u64,
    /// Most bytes of a part of a copy.
    pub dma_max_bytes: u64,
    /// Addresses and lengths of copies are multiples of this.
    pub dma_align_bytes: u64,
    /// Cycles of device times in a second.
    pub timestamp_hz: u64,
    /// Number of shires.
    pub shires: u32,
    /// Number of cores.
    pub cores: u32,
    /// Number of hardware threads.
    pub harts: u32,
    /// A cache line, in bytes.
    pub cache_line_bytes: u32,
    /// Frequency of the cores at boot.
    pub frequency_mhz: u32,
    /// Bandwidth of the memory in MB/s.
    pub memory_bandwidth_mbps: u32,
    /// Version of the firmware's interface.
    pub api_version_major: u32,
    /// Version of the firmware's interface.
    pub api_version_minor: u32,
    /// Version of the firmware's interface.
    pub api_version_patch: u32,
    /// Thermal design power.
    pub tdp_watts: u32,
    /// 1 if the host can use device memory without copies.
    pub cpu_access: u32,
    /// Submission queues.
    pub queues: u32,
    /// Most parts of a copy in one command.
    pub dma_max_parts: u32,
    /// 0.
    pub reserved: u32,
    /// An `et_copy_path`: between ordinary memory and the device.
    pub copy_ordinary: u32,
    /// An `et_copy_path`: between host memory of the library and the device. Memory that was
    /// imported and that the device cannot reach is moved once more.
    pub copy_host_buffer: u32,
    /// An `et_copy_path`: `et_copy_on_device`.
    pub copy_on_device: u32,
    /// An `et_copy_path`: `et_builtin_copy`.
    pub copy_builtin: u32,
}

/// What a program has a device do at the moment, and what it has done since the device was opened
/// or reset. Two looks and the time between them give a load.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_activity {
    /// `sizeof(et_activity)`, set by the caller.
    pub size: usize,
    /// Streams that have a handle, those of the library itself included.
    pub streams: u64,
    /// Operations that were accepted.
    pub accepted: u64,
    /// Those of them that have not ended.
    pub pending: u64,
    /// Commands that the device has and has not answered, those of the library itself included.
    pub in_flight: u64,
    /// Device memory that is managed, in bytes.
    pub memory_bytes: u64,
    /// How much of it is in use.
    pub memory_used_bytes: u64,
    /// Memory handles that are live.
    pub buffers: u64,
    /// Kernels that have run, well or not.
    pub launches: u64,
    /// Bytes that were copied to the device.
    pub to_device_bytes: u64,
    /// Bytes that were copied from the device.
    pub to_host_bytes: u64,
    /// Shires that kernels can run on, a bit for each.
    pub available_shires: u64,
    /// Shires that kernels have which have not ended, a bit for each: it is busy, or will be.
    pub launched_shires: u64,
    /// For how many cycles of the minions' clock each shire has run kernels. The device says so
    /// when a kernel has ended.
    pub busy_cycles: [u64; 32],
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_activity {
    const FIRST: usize = size_of::<Self>();
}

/// The way that bytes take in a copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_copy_path {
    /// The device's engine moves them between device memory and the host memory they are in.
    ET_COPY_DIRECT = 1,
    /// The device's engine moves them between device memory and staging memory of the host;
    /// between that and memory of the caller, the host's processors move them.
    ET_COPY_STAGED = 2,
    /// The device's cores move them, by a kernel: they do not leave its memory.
    ET_COPY_CORES = 3,
}

/// The number of a way, 0 for one that this version does not know.
fn copy_path(path: CopyPath) -> u32 {
    match path {
        CopyPath::Direct => et_copy_path::ET_COPY_DIRECT as u32,
        CopyPath::Staged => et_copy_path::ET_COPY_STAGED as u32,
        CopyPath::Cores => et_copy_path::ET_COPY_CORES as u32,
        _ => 0,
    }
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_properties {
    const FIRST: usize = size_of::<Self>();
}

/// Calls `with` with an open device.
pub(crate) fn with<R>(
    device: et_device,
    with: impl FnOnce(&Device<AnyHal>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let slot = table::get(device)?;
    // Closing and resetting may wait for callbacks, which therefore never wait for them here.
    let Ok(open) = slot.try_read() else {
        return Err(Failure::new(et_status::ET_BUSY, "the device is being closed or reset"));
    };
    open.as_ref().map_or_else(|| Err(et::Error::closed("using the device").into()), with)
}

fn take(slot: &Slot) -> Option<Device<AnyHal>> {
    slot.write().unwrap_or_else(PoisonError::into_inner).take()
}

/// Opens a device by its locator, such as "sim:", "sim:shires=2,dram=1GiB" or
/// "vfio:0000:01:00.0".
///
/// `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_open(
    locator: *const c_char,
    options: *const et_device_options,
    device: Option<&mut std::mem::MaybeUninit<et_device>>,
) -> et_status {
    guard(|| {
        initialised()?;
        may_close()?;
        let out = raw::wanted(device, "device")?;
        // SAFETY: promised by the caller.
        let locator = unsafe { raw::text(locator, "locator") }?;
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let parsed = locator.parse().map_err(et::OpenError::from)?;
        let busy = Duration::from_nanos(options.busy_timeout_ns);
        let opened = et::open_within(&parsed, &config(&options).name(locator), busy)?;
        out.write(table::insert(RwLock::new(Some(opened)))?);
        Ok(())
    })
}

pub(crate) fn config(options: &et_device_options) -> et::Config {
    let mut config = et::Config::new();
    type Set = fn(et::Config, Duration) -> et::Config;
    let times: [(u64, Set); 5] = [
        (options.boot_timeout_ns, et::Config::boot_timeout),
        (options.command_timeout_ns, et::Config::command_timeout),
        (options.shutdown_timeout_ns, et::Config::shutdown_timeout),
        (options.watchdog_ns, et::Config::watchdog),
        (options.spin_ns, et::Config::spin),
    ];
    for (time, set) in times {
        if time != 0 {
            config = set(config, Duration::from_nanos(time));
        }
    }
    if options.staging_bytes != 0 {
        config = config.staging_bytes(usize::try_from(options.staging_bytes).unwrap_or(usize::MAX));
    }
    if options.in_flight != 0 {
        config = config.in_flight(u16::try_from(options.in_flight).unwrap_or(u16::MAX));
    }
    config = config.byte_copies(options.byte_copies != 0);
    config
}

/// Closes a device: waits a while for what is in flight, then aborts it. Streams, memory and so on
/// remain handles, to be freed, and answer `ET_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_close(device: et_device) -> et_status {
    guard(|| {
        may_close()?;
        if let Some(device) = take(&*table::take(device)?) {
            device.close();
        }
        Ok(())
    })
}

/// Returns the number of devices that can be opened, the simulator included.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_count(count: Option<&mut std::mem::MaybeUninit<usize>>) -> et_status {
    guard(|| {
        raw::wanted(count, "count")?.write(et::list().len());
        Ok(())
    })
}

/// Returns the locator of a device that can be opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_locator(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut std::mem::MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let devices = et::list();
        let device = devices.get(index).ok_or_else(|| no_such("device", index))?;
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&device.locator, buffer, capacity, needed) }
    })
}

pub(crate) fn no_such(what: &str, index: usize) -> Failure {
    Failure::new(et_status::ET_OUT_OF_BOUNDS, format!("there is no {what} {index}"))
}

/// Returns what a device says about itself. The caller sets `properties->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_properties(
    device: et_device,
    properties: *mut et_properties,
) -> et_status {
    guard(|| {
        let found = with(device, |device| Ok(device.properties()))?;
        let cache = |level| {
            let cache = found.caches.iter().find(|cache| cache.level == level);
            cache.map_or(0, |cache| cache.size_bytes)
        };
        let value = et_properties {
            size: 0,
            shire_mask: found.shire_mask,
            memory_base: found.global_memory_base.as_u64(),
            memory_bytes: found.global_memory_bytes,
            local_memory_bytes: found.local_memory_bytes.unwrap_or(0),
            l2_bytes: cache(2),
            l3_bytes: cache(3),
            dma_max_bytes: found.dma_max_node_bytes,
            dma_align_bytes: found.dma_align_bytes,
            timestamp_hz: found.timestamp_hz.unwrap_or(0),
            shires: found.shires,
            cores: found.cores,
            harts: found.harts,
            cache_line_bytes: found.cache_line_bytes,
            frequency_mhz: found.boot_frequency_mhz.unwrap_or(0),
            memory_bandwidth_mbps: found.memory_bandwidth_mbps.unwrap_or(0),
            api_version_major: found.api_version.major.into(),
            api_version_minor: found.api_version.minor.into(),
            api_version_patch: found.api_version.patch.into(),
            tdp_watts: found.tdp_watts.unwrap_or(0).into(),
            cpu_access: found.cpu_access.into(),
            queues: found.queues.into(),
            dma_max_parts: found.dma_max_nodes.into(),
            reserved: 0,
            copy_ordinary: copy_path(found.copies.ordinary),
            copy_host_buffer: copy_path(found.copies.host_buffer),
            copy_on_device: copy_path(found.copies.on_device),
            copy_builtin: copy_path(found.copies.builtin),
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, properties, "properties") }
    })
}

/// Counts what a program has a device do. The caller sets `activity->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_activity(
    device: et_device,
    activity: *mut et_activity,
) -> et_status {
    guard(|| {
        let found = with(device, |device| Ok(device.activity()))?;
        let value = et_activity {
            size: 0,
            streams: found.streams,
            accepted: found.accepted,
            pending: found.pending,
            in_flight: found.in_flight,
            memory_bytes: found.memory_bytes,
            memory_used_bytes: found.memory_used_bytes,
            buffers: found.buffers,
            launches: found.launches,
            to_device_bytes: found.to_device_bytes,
            to_host_bytes: found.to_host_bytes,
            available_shires: found.available_shires,
            launched_shires: found.launched_shires,
            busy_cycles: found.busy_cycles,
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, activity, "activity") }
    })
}

/// Aborts one operation, whether it runs or waits, and waits until it has ended; with a timeout of
/// 0 it only asks for that.
///
/// `ET_INVALID` if it has ended already or belongs to another device.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_abort(
    device: et_device,
    event: et_event,
    timeout_ns: u64,
) -> et_status {
    guard(|| {
        let limit = timeout(timeout_ns)?;
        let event = table::get(event)?;
        let event = event.event();
        with(device, |device| Ok(device.request_abort(event)?))?;
        match event.wait(limit) {
            Err(error @ et::Error::Timeout { .. }) if timeout_ns != 0 && !event.is_done() => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    })
}

/// Resets the cores: aborts everything and restarts them. Memory and kernels stay.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_reset_compute(device: et_device, timeout_ns: u64) -> et_status {
    guard(|| {
        may_close()?;
        let limit = Duration::from_nanos(timeout_ns);
        with(device, |device| Ok(device.reset_compute(limit)?))
    })
}

/// Resets the whole device and opens it again, even one that does not answer any more. Every
/// stream, memory, kernel and event of before is stale.
///
/// After an error the device is closed; a reset may be tried again.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_reset(device: et_device, timeout_ns: u64) -> et_status {
    reset_by(device, timeout_ns, Device::reset)
}

/// Resets the operations firmware by the service processor, even if it hangs. Memory keeps its
/// contents, but everything that was made of the device is stale, as after `et_device_reset`.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_reset_operations(device: et_device, timeout_ns: u64) -> et_status {
    reset_by(device, timeout_ns, Device::reset_operations)
}

/// Resets the whole chip by the service processor: memory is lost, an installed firmware image
/// runs, and everything that was made of the device is stale, as after `et_device_reset`.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_reset_chip(device: et_device, timeout_ns: u64) -> et_status {
    reset_by(device, timeout_ns, Device::reset_chip)
}

fn reset_by(
    device: et_device,
    timeout_ns: u64,
    reset: fn(&mut Device<AnyHal>, Duration) -> et::Result<()>,
) -> et_status {
    guard(|| {
        let limit = Duration::from_nanos(timeout_ns);
        Ok(with_own(device, "reset", |device| reset(device, limit))??)
    })
}

/// Calls `with` with an open device that no one else uses meanwhile.
pub(crate) fn with_own<R>(
    device: et_device,
    op: &'static str,
    with: impl FnOnce(&mut Device<AnyHal>) -> R,
) -> Result<R, Failure> {
    may_close()?;
    let slot = table::get(device)?;
    // Taken out, so that callbacks that use it meanwhile are refused and do not wait.
    let mut device = take(&slot).ok_or_else(|| et::Error::closed(op))?;
    let result = with(&mut device);
    *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(device);
    Ok(result)
}

/// Takes what has arrived from the device, without waiting, and calls callbacks; `messages` may be
/// null. Only needed by programs that never wait.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_poll(
    device: et_device,
    messages: Option<&mut std::mem::MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let out: Out<'_, usize> = messages;
        with(device, |device| {
            raw::store(out, device.poll());
            Ok(())
        })
    })
}
