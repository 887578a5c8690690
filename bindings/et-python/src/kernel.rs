//! Kernels and their launches.

use std::path::PathBuf;
use std::sync::Arc;

use et::Launch;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::{self, Packed};
use crate::card::Card;
use crate::device::Device;
use crate::error::{self, Raise};
use crate::event::Event;
use crate::life::Here;
use crate::signature::{Parameter, Signature};
use crate::stream::Stream;
use crate::trace::KernelTrace;

/// A kernel that is loaded on a device.
///
/// `kernel.launch(x, y, n)` launches it on all shires; `kernel[4](x, y, n)` on the first four,
/// `kernel[[0, 5]](x, y, n)` on these two, and `kernel[4, stream](x, y, n)` on a stream.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB") as device:
///     ...     source = "long entry_point(long *args) { *(long *)args[0] = args[1]; return 0; }"
///     ...     kernel = device.load(et.compile(source), signature=[et.Out[et.i64], et.i64])
///     ...     x = device.zeros(1, "i8")
///     ...     kernel[1](x, 7).wait(timeout=60)
///     ...     x.to_numpy().tolist()
///     [7]
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) card: Arc<Card>,
    kernel: Here<et::Kernel>,
    signature: Option<Signature>,
}

impl Kernel {
    pub(crate) fn new(card: &Arc<Card>, kernel: et::Kernel, signature: Option<Signature>) -> Self {
        Self { card: Arc::clone(card), kernel: Here::new(kernel), signature }
    }

    pub(crate) fn get(&self) -> PyResult<&et::Kernel> {
        self.kernel.get()
    }

    pub(crate) fn pack(&self, given: &Bound<'_, PyTuple>) -> PyResult<Packed> {
        args::pack(&self.card, self.get()?.name(), given, self.signature.as_ref())
    }

    /// The shires that a grid stands for; `None` is all.
    pub(crate) fn mask(&self, grid: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
        let Some(grid) = grid.filter(|grid| !grid.is_none() && !grid.is(grid.py().Ellipsis()))
        else {
            return Ok(None);
        };
        let wrong = || error::raise("ArgumentError", format!("{grid} is not a number of shires"));
        if let Ok(count) = grid.extract::<u32>() {
            let all = self.card.look(|device| device.properties().shire_mask)?;
            let mut mask = 0_u64;
            for shire in (0..64).filter(|shire| all >> shire & 1 != 0).take(count as usize) {
                mask |= 1 << shire;
            }
            return match mask.count_ones() == count && count != 0 {
                true => Ok(Some(mask)),
                false => Err(wrong()),
            };
        }
        let mut mask = 0;
        for shire in grid.try_iter().map_err(|_| wrong())? {
            let shire = shire?.extract::<u32>().ok().filter(|&shire| shire < 64);
            mask |= 1 << shire.ok_or_else(wrong)?;
        }
        Ok(Some(mask))
    }

    /// Describes a launch.
    pub(crate) fn describe(
        &self,
        args: &Bound<'_, PyTuple>,
        mask: Option<u64>,
        stack: Option<u64>,
        flush_l3: bool,
        core_dump: Option<PathBuf>,
    ) -> PyResult<Launch> {
        let Packed { args: bytes, memory } = self.pack(args)?;
        let mut launch = Launch::new(self.get()?).args(bytes);
        for (slice, _) in memory {
            launch = launch.keep(slice);
        }
        if let Some(mask) = mask {
            launch = launch.shires(mask);
        }
        if let Some(bytes) = stack {
            launch = launch.stack_bytes(bytes);
        }
        if let Some(path) = core_dump {
            launch = launch.core_dump(path);
        }
        Ok(if flush_l3 { launch.flush_l3() } else { launch })
    }

    fn start(&self, py: Python<'_>, launch: &Launch, stream: Option<&Stream>) -> PyResult<Event> {
        let stream = self.card.stream(stream)?;
        let event = py.detach(|| stream.launch(launch)).map_err(Raise::raise)?;
        Ok(Event::new(&self.card, event))
    }
}

#[pymethods]
impl Kernel {
    /// Name of the kernel.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(self.get()?.name())
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device::of(&self.card)
    }

    /// Bytes of the code on the device.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.get()?.len_bytes())
    }

    /// What the kernel takes, in its order: what was said when it was loaded, else what its file
    /// states with `ET_ARGUMENTS`; `None` if neither is so, and anything is passed on.
    #[getter]
    fn signature(&self) -> Option<Vec<Parameter>> {
        self.signature.as_ref().map(Signature::list)
    }

    /// Launches the kernel, and returns at once. Arguments are buffers, and numbers, which become
    /// what the signature states; without a signature, numbers that say their type: `et.u64(5)`,
    /// `numpy.float32(3)`, `ctypes.c_int32(1)`.
    ///
    /// What the signature does not allow is an `ArgumentsMismatchError`, and nothing is sent:
    /// another number of arguments, memory of other elements, read-only memory that the kernel
    /// writes, a number that says another type, or is none.
    ///
    /// `shires` is a number of shires or a list of them, `stack` the bytes of each hart's stack. If
    /// the launch fails, a core file with its arrays and the stacks that `stack` asks for is
    /// written to `core_dump`, in place of what may be there; `KernelError.core_file` says what is
    /// in it. What the kernel traces goes to `trace`, a `KernelTrace`.
    #[pyo3(
        signature = (
            *args, shires = None, stream = None, stack = None, flush_l3 = false, core_dump = None,
            trace = None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are those of Python, by name")]
    pub(crate) fn launch(
        &self,
        args: &Bound<'_, PyTuple>,
        shires: Option<&Bound<'_, PyAny>>,
        stream: Option<&Stream>,
        stack: Option<u64>,
        flush_l3: bool,
        core_dump: Option<PathBuf>,
        trace: Option<&KernelTrace>,
    ) -> PyResult<Event> {
        let mut launch = self.describe(args, self.mask(shires)?, stack, flush_l3, core_dump)?;
        if let Some(trace) = trace {
            launch = launch.trace(trace.option()?);
        }
        self.start(args.py(), &launch, stream)
    }

    /// Where to launch: a number of shires, a list of them, `...` for all; and a stream.
    fn __getitem__(this: &Bound<'_, Self>, index: &Bound<'_, PyAny>) -> PyResult<Grid> {
        let (grid, stream) = match index.cast::<PyTuple>() {
            Ok(pair) => {
                let (grid, stream): (Bound<'_, PyAny>, Py<Stream>) = pair.extract()?;
                (grid, Some(stream))
            }
            Err(_) => (index.clone(), None),
        };
        let mask = this.get().mask(Some(&grid))?;
        Ok(Grid { kernel: this.clone().unbind(), mask, stream })
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<et.Kernel {} on {}>", self.name()?, self.card.locator))
    }
}

/// A kernel and where to launch it.
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Grid {
    kernel: Py<Kernel>,
    mask: Option<u64>,
    stream: Option<Py<Stream>>,
}

#[pymethods]
impl Grid {
    /// Launches the kernel there, and returns at once.
    #[pyo3(signature = (*args))]
    fn __call__(&self, args: &Bound<'_, PyTuple>) -> PyResult<Event> {
        let kernel = self.kernel.get();
        let launch = kernel.describe(args, self.mask, None, false, None)?;
        kernel.start(args.py(), &launch, self.stream.as_ref().map(Py::get))
    }
}
