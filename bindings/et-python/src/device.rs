//! Devices.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use et::executor::{ExecutorConfig, Place};
use et::{AnyHal, Config, FirmwareType, Locator, Priority, StreamOptions};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::apart;
use crate::card::Card;
use crate::dtype::{DType, Shape};
use crate::error::{self, Raise};
use crate::event::Event;
use crate::executor::Executor;
use crate::host::HostBuffer;
use crate::kernel::Kernel;
use crate::management::Management;
use crate::memory::Buffer;
use crate::module::{Builtins, Module, Pattern};
use crate::profile::Profile;
use crate::properties::{Activity, DeviceInfo, Identity, MemoryStats, PeerPath, Properties};
use crate::raw::Source;
use crate::recovery;
use crate::signature::Signature;
use crate::stream::Stream;
use crate::trace::{FirmwareTrace, KernelTrace};
use crate::wait;

/// An open device.
///
/// As a context manager it is closed at the end of the block; else when it is closed, or the last
/// thing that belongs to it is gone, or the interpreter ends.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     device.properties.harts, device.array(b"abc").to_bytes()
///     (64, b'abc')
#[pyclass(frozen, module = "et", eq, hash)]
#[derive(Debug)]
pub(crate) struct Device {
    card: Arc<Card>,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.card, &other.card)
    }
}

impl std::hash::Hash for Device {
    fn hash<S: std::hash::Hasher>(&self, state: &mut S) {
        Arc::as_ptr(&self.card).hash(state);
    }
}

impl Device {
    pub(crate) fn of(card: &Arc<Card>) -> Self {
        Self { card: Arc::clone(card) }
    }

    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    fn reset_by(
        &self,
        py: Python<'_>,
        timeout: f64,
        reset: fn(&mut et::Device<AnyHal>, Duration) -> et::Result<()>,
    ) -> PyResult<()> {
        let timeout = wait::timeout(Some(timeout))?.unwrap_or(Duration::MAX);
        let reset = move |_: &Card, device: &mut et::Device<AnyHal>| reset(device, timeout);
        self.card.own(py, "reset", Card::drop_kept, reset)?.map_err(Raise::raise)
    }

    /// Copies to new memory: in a stream, or without waiting for any other work.
    fn copy(&self, py: Python<'_>, source: &Source, stream: Option<&Stream>) -> PyResult<Buffer> {
        let dtype = source.dtype()?;
        let buffer = Buffer::alloc(py, &self.card, source.shape().to_vec(), Some(dtype))?;
        match stream {
            // A failure is in the list of the stream.
            Some(stream) => drop(buffer.write(py, source.bytes(), Some(stream))?),
            None => {
                buffer.write(py, source.bytes(), Some(&self.stream("normal")?))?.wait(py, None)?;
            }
        }
        Ok(buffer)
    }
}

/// Opens a device by its locator. As long as another process has it, tries again for
/// `busy_timeout` seconds.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB", command_timeout=5) as device:
///     ...     device.array(b"abcd")[1:3].to_bytes()
///     b'bc'
///
/// `options` are:
///
/// - `boot_timeout`, `command_timeout`, `shutdown_timeout`: seconds that the device may take to
///   boot (100), that a call may wait for room while nothing goes on (30), that closing may take
///   before it gives up what is in flight (5);
/// - `watchdog`: seconds without an answer after which the device is asked if it is there (10);
/// - `spin`: seconds that a wait polls before it sleeps (50e-6);
/// - `staging_bytes`: most host memory for copies (32 MiB);
/// - `in_flight`: most commands in flight, at most 4096 (256);
/// - `byte_copies`: copies begin and end at any byte (`True`). With `False` they must at multiples
///   of `Device.properties.dma_align_bytes`, which is all that cards are documented to do.
#[pyfunction]
#[pyo3(signature = (locator = "sim:", *, busy_timeout = 0.0, **options))]
pub(crate) fn open(
    py: Python<'_>,
    locator: &str,
    busy_timeout: f64,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Device> {
    let limit = wait::timeout(Some(busy_timeout))?.unwrap_or(Duration::MAX);
    let device = opened(py, locator, options, move |locator, config| {
        et::open_within(&locator, &config, limit)
    })?;
    let card = py.detach(|| Card::new(locator.to_owned(), device));
    let ends = || error::raise("ClosedError", "the interpreter ends");
    Ok(Device { card: card.ok_or_else(ends)? })
}

/// Opens the service processor of a card alone, which needs no operations firmware: a card whose
/// firmware does not start can be updated and reset. Its calls take at most `timeout` seconds, else
/// the `command_timeout` of the options, which are those of `open`.
#[pyfunction]
#[pyo3(signature = (locator = "sim:", *, timeout = None, **options))]
pub(crate) fn open_management(
    py: Python<'_>,
    locator: &str,
    timeout: Option<f64>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Management> {
    let timeout = wait::timeout(timeout)?;
    let inner = opened(py, locator, options, et::open_management)?;
    Ok(Management::new(None, inner, timeout))
}

fn opened<T: Send + 'static>(
    py: Python<'_>,
    locator: &str,
    options: Option<&Bound<'_, PyDict>>,
    open: impl FnOnce(Locator, Config) -> Result<T, et::OpenError> + Send + 'static,
) -> PyResult<T> {
    et::log::to_stderr_if_asked();
    let parsed: Locator = locator.parse().map_err(|error| et::OpenError::Locator(error).raise())?;
    let config = config(options)?.name(locator);
    // A thread of its own: booting may take long, and Ctrl-C should not have to wait for it. What
    // it opens then is closed at once.
    let (done, result) = channel();
    let thread = std::thread::Builder::new().name("et-open".into());
    thread.spawn(move || done.send(open(parsed, config)).map_or_else(drop, drop))?;
    let panicked = || error::raise("OpenError", "opening the device panicked");
    wait::sent(py, result)?.ok_or_else(panicked)?.map_err(Raise::raise)
}

fn config(options: Option<&Bound<'_, PyDict>>) -> PyResult<Config> {
    // Slices of arrays begin anywhere.
    let mut config = Config::new().byte_copies(true);
    for (name, value) in options.into_iter().flatten() {
        let name: String = name.extract()?;
        let seconds = || -> PyResult<Duration> {
            Ok(wait::timeout(Some(value.extract()?))?.unwrap_or(Duration::MAX))
        };
        config = match name.as_str() {
            "boot_timeout" => config.boot_timeout(seconds()?),
            "command_timeout" => config.command_timeout(seconds()?),
            "shutdown_timeout" => config.shutdown_timeout(seconds()?),
            "watchdog" => config.watchdog(seconds()?),
            "spin" => config.spin(seconds()?),
            "staging_bytes" => config.staging_bytes(value.extract()?),
            "in_flight" => config.in_flight(value.extract()?),
            "byte_copies" => config.byte_copies(value.extract()?),
            _ => {
                let text = format!("open() got an unexpected keyword argument {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        };
    }
    Ok(config)
}

/// Name and bytes of a kernel file: of a path, of bytes, or of what `et.compile` returns.
fn file(kernel: &Bound<'_, PyAny>, name: Option<String>) -> PyResult<(String, Vec<u8>)> {
    let own: Option<String> = kernel.getattr("name").ok().and_then(|name| name.extract().ok());
    let (bytes, own) = if let Ok(bytes) = kernel.cast::<PyBytes>() {
        (bytes.as_bytes().to_vec(), own)
    } else if let Ok(path) = kernel.extract::<PathBuf>() {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let read = kernel.py().detach(|| fs::read(&path));
        let failed = |error: std::io::Error| -> PyErr {
            let text = format!("{}: {error}", path.display());
            error.raw_os_error().map_or_else(
                || PyOSError::new_err(text.clone()),
                |number| PyOSError::new_err((number, error.to_string(), path.clone())),
            )
        };
        (read.map_err(failed)?, stem)
    } else {
        (Source::of(kernel)?.bytes().to_vec(), own)
    };
    Ok((name.or(own).unwrap_or_else(|| "kernel".to_owned()), bytes))
}

/// The devices that can be opened.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<DeviceInfo> {
    py.detach(et::list).into_iter().map(DeviceInfo::from).collect()
}

#[pymethods]
impl Device {
    /// The name it was opened by.
    #[getter]
    fn locator(&self) -> &str {
        &self.card.locator
    }

    /// `True` if it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.card.is_closed()
    }

    /// What the device says about itself.
    #[getter]
    fn properties(&self) -> PyResult<Properties> {
        self.card.look(|device| Properties::from(device.properties()))
    }

    /// What it is and what connects it.
    #[getter]
    fn identity(&self) -> PyResult<Identity> {
        self.card.look(|device| Identity::from(device.properties()))
    }

    /// The way that bytes take from this device to another, which is the same in both directions.
    fn peer_path(&self, other: &Self) -> PyResult<PeerPath> {
        if self == other {
            // A second look at the same lock could wait for one who waits for the first.
            return self.card.look(|device| device.peer_path(device).into());
        }
        self.card.look(|device| other.card.look(|other| device.peer_path(other).into()))?
    }

    /// How much of its memory is used.
    fn memory_stats(&self) -> PyResult<MemoryStats> {
        self.card.look(|device| MemoryStats::from(device.memory_stats()))
    }

    /// What this program has the device do, and what it has done.
    fn activity(&self) -> PyResult<Activity> {
        self.card.look(|device| Activity::from(device.activity()))
    }

    /// Version of a firmware: "master", "machine" or "worker" minion.
    #[pyo3(signature = (firmware = "master"))]
    fn firmware_version(&self, py: Python<'_>, firmware: &str) -> PyResult<(u16, u16, u16)> {
        let all = [
            ("master", FirmwareType::MasterMinion),
            ("machine", FirmwareType::MachineMinion),
            ("worker", FirmwareType::WorkerMinion),
        ];
        let found = all.into_iter().find(|(name, _)| *name == firmware);
        let unknown = || error::raise("ArgumentError", format!("no firmware {firmware:?}"));
        let (_, firmware) = found.ok_or_else(unknown)?;
        let version = self.card.with(py, |device| device.firmware_version(firmware))?;
        Ok((version.major, version.minor, version.patch))
    }

    /// Allocates bytes, at a multiple of 64. Their values are undefined.
    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<Buffer> {
        Buffer::alloc(py, &self.card, vec![nbytes], None)
    }

    /// Allocates an array. Its values are undefined.
    #[pyo3(signature = (shape, dtype = None))]
    fn empty(&self, py: Python<'_>, shape: Shape, dtype: Option<DType>) -> PyResult<Buffer> {
        let dtype = dtype.or_else(|| DType::of_name("f4"));
        Buffer::alloc(py, &self.card, shape.0, dtype)
    }

    /// Allocates an array of zeros.
    #[pyo3(signature = (shape, dtype = None))]
    fn zeros(&self, py: Python<'_>, shape: Shape, dtype: Option<DType>) -> PyResult<Buffer> {
        let buffer = self.empty(py, shape, dtype)?;
        // Not behind other work, and ended when any stream may use it.
        let pattern = Pattern(vec![0]);
        buffer.fill(py, pattern, Some(&self.stream("normal")?))?.wait(py, None)?;
        Ok(buffer)
    }

    /// Copies an array to new device memory, of the same shape and type: NumPy's, PyTorch's, or
    /// anything with the buffer protocol or DLPack. The copy has ended when this returns; with a
    /// stream, it is in the order of that.
    #[pyo3(signature = (source, *, stream = None))]
    fn array(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
    ) -> PyResult<Buffer> {
        self.copy(py, &Source::of(source)?, stream)
    }

    /// As `array`, by PyTorch's name.
    #[pyo3(name = "from_numpy", signature = (source, *, stream = None))]
    fn copy_numpy(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
    ) -> PyResult<Buffer> {
        self.array(py, source, stream)
    }

    /// Copies an array of a library that speaks DLPack to new device memory.
    #[pyo3(name = "from_dlpack", signature = (source, *, stream = None))]
    fn copy_dlpack(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Stream>,
    ) -> PyResult<Buffer> {
        self.copy(py, &Source::of_dlpack(source)?, stream)
    }

    /// Allocates an array of zeros on the host that the device reads and writes directly.
    #[pyo3(signature = (shape, dtype = None))]
    fn host_empty(
        &self,
        py: Python<'_>,
        shape: Shape,
        dtype: Option<DType>,
    ) -> PyResult<HostBuffer> {
        let dtype = dtype.or_else(|| DType::of_name("f4")).unwrap_or(DType::U8);
        HostBuffer::alloc(py, &self.card, shape, dtype)
    }

    /// Lends memory of Python to the device, without a copy: that of a NumPy array, or anything
    /// with the buffer protocol or DLPack, which must be made of whole pages (`import_granule`), as
    /// memory of mmap is. `access` is what the device does with it: "read", "write" or "both".
    ///
    /// The object keeps its memory until the host buffer is released or gone, and no copy uses it.
    /// While a copy does, do not change it, nor read what the device writes.
    #[pyo3(signature = (array, *, access = "both"))]
    fn import_(&self, array: &Bound<'_, PyAny>, access: &str) -> PyResult<HostBuffer> {
        HostBuffer::import(&self.card, array, access)
    }

    /// The bytes of a page of `import_`: memory begins and ends on a multiple. `None` if memory of
    /// Python cannot be lent.
    #[getter]
    fn import_granule(&self) -> PyResult<Option<usize>> {
        self.card.look(|device| device.import_granule())
    }

    /// Loads a kernel: the path of an ELF file, its bytes, or what `et.compile` returns.
    ///
    /// `entry` is a function to start at instead of the file's own, `signature` what it takes, if
    /// its file does not state that; what the file states it must agree with. With `into` it is
    /// loaded into the memory of that buffer, which nothing may write while the kernel is of use.
    #[pyo3(
        signature = (
            kernel, *, name = None, entry = None, signature = None, into = None, _keep = None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are those of Python, by name")]
    fn load(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, PyAny>,
        name: Option<String>,
        entry: Option<&str>,
        signature: Option<&Bound<'_, PyAny>>,
        into: Option<&Buffer>,
        _keep: Option<u64>,
    ) -> PyResult<Kernel> {
        let keep = _keep;
        let (name, bytes) = file(kernel, name)?;
        let signature = signature.map(Signature::parse).transpose()?;
        let place = into.map(Buffer::place).transpose()?;
        let loaded = self.card.with(py, |device| match place {
            Some(place) => device.load_kernel_to(&name, &bytes, entry, place),
            None => device.load_kernel_entry(&name, &bytes, entry),
        })?;
        let signature = Signature::of(py, &loaded, signature)?;
        if let Some(number) = keep {
            self.card.keep(number, (loaded.clone(), signature.clone()));
        }
        Ok(Kernel::new(&self.card, loaded, signature))
    }

    /// The kernel that was loaded with this number, until the device was reset.
    fn _kept(&self, number: u64) -> PyResult<Option<Kernel>> {
        let kept = self.card.kernel(number)?;
        Ok(kept.map(|(kernel, signature)| Kernel::new(&self.card, kernel, signature)))
    }

    /// Loads a kernel file, of which one or more functions are to be launched. It is copied once,
    /// and the call does not wait for that.
    #[pyo3(signature = (kernel, *, name = None))]
    fn load_module(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, PyAny>,
        name: Option<String>,
    ) -> PyResult<Module> {
        let (name, bytes) = file(kernel, name)?;
        let (module, copy) = self.card.with(py, |device| device.load_module(&name, &bytes))?;
        let loaded = Py::new(py, Event::new(&self.card, copy))?;
        Ok(Module::new(&self.card, module, loaded))
    }

    /// The kernels that the runtime brings along: copies and fills that the cores do.
    fn builtins(&self, py: Python<'_>) -> PyResult<Builtins> {
        let builtins = self.card.with(py, et::Device::builtins)?;
        Ok(Builtins::new(&self.card, builtins))
    }

    /// Makes a stream. Where there is not room for all that is ready, commands of a stream of
    /// "high" priority go before those of a "normal" one, and these before those of a "low" one.
    #[pyo3(signature = (*, priority = "normal"))]
    fn stream(&self, priority: &str) -> PyResult<Stream> {
        let priority = match priority {
            "low" => Priority::Low,
            "normal" => Priority::Normal,
            "high" => Priority::High,
            _ => {
                let text = format!("priority is \"low\", \"normal\" or \"high\", not {priority:?}");
                return Err(error::raise("ArgumentError", text));
            }
        };
        let options = StreamOptions::new().priority(priority);
        let stream = self.card.look(|device| device.stream_with(&options))?;
        Ok(Stream::new(&self.card, stream))
    }

    /// The stream that is used where none is named.
    #[getter]
    fn default_stream(&self) -> PyResult<Stream> {
        let stream = self.card.look(|device| device.default_stream().clone())?;
        Ok(Stream::new(&self.card, stream))
    }

    /// Makes an executor for graphs. `place` is "auto", "cores", "resident" or "streams", `workers`
    /// the threads for host functions, `cores` the harts that run tasks, of the shires in the mask.
    #[pyo3(signature = (place = "auto", *, workers = None, cores = None, shires = None))]
    fn executor(
        &self,
        py: Python<'_>,
        place: &str,
        workers: Option<u32>,
        cores: Option<u32>,
        shires: Option<u64>,
    ) -> PyResult<Executor> {
        let place: Place =
            place.parse().map_err(|error| error::raise("ArgumentError", error::message(&error)))?;
        let mut config = ExecutorConfig::new().place(place);
        if let Some(workers) = workers {
            config = config.workers(workers);
        }
        if let Some(cores) = cores {
            config = config.cores(cores);
        }
        if let Some(shires) = shires {
            config = config.shires(shires);
        }
        Ok(Executor::new(&self.card, self.card.executor(py, &config)?))
    }

    /// Records what the device does in a `with` block.
    fn profile(&self) -> Profile {
        Profile::new(&self.card)
    }

    /// Memory that kernels trace into, for their `launch`: of the shires of `shire_mask`, else all,
    /// `bytes_per_hart` for each hart, which begins again when its part is full. `level` is the
    /// highest level of texts that are written, "error", "warn", "info" or "debug"; else what
    /// `enable_logging` lets through for `et::kernel`, at the time of the launch.
    #[pyo3(signature = (shire_mask = None, *, bytes_per_hart = 4096, level = None))]
    fn kernel_trace(
        &self,
        py: Python<'_>,
        shire_mask: Option<u64>,
        bytes_per_hart: u32,
        level: Option<&str>,
    ) -> PyResult<KernelTrace> {
        KernelTrace::new(py, &self.card, shire_mask, bytes_per_hart, level)
    }

    /// Has firmware trace what `enable_logging` lets through for `et::firmware` now, and makes a
    /// reader of it.
    fn firmware_trace(&self, py: Python<'_>) -> PyResult<FirmwareTrace> {
        FirmwareTrace::new(py, &self.card)
    }

    /// The service processor of the card, whose calls take at most `timeout` seconds, else the
    /// device's `command_timeout`.
    #[pyo3(signature = (timeout = None))]
    fn management(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Management> {
        let timeout = wait::timeout(timeout)?;
        let inner = self.card.with(py, |device| device.management())?;
        Ok(Management::new(Some(&self.card), inner, timeout))
    }

    /// Resets the compute cores: what runs is aborted; memory and kernels stay. A Ctrl-C ends the
    /// wait, not the reset.
    #[pyo3(signature = (timeout = 10.0))]
    fn reset_compute(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = wait::timeout(Some(timeout))?.unwrap_or(Duration::MAX);
        self.card.with_apart(py, move |device| device.reset_compute(timeout))
    }

    /// Resets the whole device; everything that was made of it is stale then.
    #[pyo3(signature = (timeout = 100.0))]
    fn reset(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.reset_by(py, timeout, et::Device::reset)
    }

    /// Resets the operations firmware by the service processor, even if it hangs. Memory keeps its
    /// contents, but everything that was made of the device is stale then.
    #[pyo3(signature = (timeout = 100.0))]
    fn reset_operations(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.reset_by(py, timeout, et::Device::reset_operations)
    }

    /// Resets the whole chip by the service processor: memory is lost, an installed firmware image
    /// runs, and everything that was made of the device is stale.
    #[pyo3(signature = (timeout = 100.0))]
    fn reset_chip(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.reset_by(py, timeout, et::Device::reset_chip)
    }

    /// Makes the device work again with the gentlest remedy that helps: an abort of all work in
    /// flight, then wider and wider resets up to that of the "compute" cores, the "operations"
    /// firmware, the "function", the "slot", or the "chip". Each may take `timeout` seconds, and
    /// the check after it as well. A device that works and has nothing in flight is left alone.
    ///
    /// What was done, and what may be lost by it, is in the `Recovery`, or in the `RecoveryError`
    /// if the device stays ill. Executors of before are closed if anything was done, and without
    /// the queues all that was made of the device is stale. A Ctrl-C ends the wait, not the
    /// recovery.
    #[pyo3(signature = (up_to = "slot", timeout = 5.0))]
    fn recover<'py>(
        &self,
        py: Python<'py>,
        up_to: &str,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        recovery::recover(py, &self.card, up_to, timeout)
    }

    /// Closes the device: work in flight may end for a while, then it is aborted. A Ctrl-C ends the
    /// wait for that and not the close; calling this again waits for its end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.card.born.check()?;
        let card = Arc::clone(&self.card);
        apart::work(py, move || card.close())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.card.is_closed() { " (closed)" } else { "" };
        format!("<et.Device {}{closed}>", self.card.locator)
    }

    fn _repr_html_<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("et._html")?.call_method1("device", (this,))
    }
}
