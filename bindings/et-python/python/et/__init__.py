"""Host stack for ET-SoC-1 accelerators.

>>> import et, numpy
>>> device = et.open("sim:shires=1,dram=128MiB")
>>> x = device.array(numpy.arange(4, dtype="f4"))
>>> x.to_numpy()
array([0., 1., 2., 3.], dtype=float32)
>>> device.close()
"""

import atexit as _atexit
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("et does not support free-threaded builds of Python; use one with the GIL")

from ._et import (
    Activity,
    AsicVoltages,
    Buffer,
    Builtin,
    Builtins,
    CacheConfig,
    CardEvent,
    CopyPaths,
    Device,
    DeviceInfo,
    ErrorCounts,
    Event,
    Executor,
    FirmwareTrace,
    Flow,
    Frequencies,
    Graph,
    Grid,
    Holder,
    HostBuffer,
    HostData,
    Identity,
    Kernel,
    KernelTrace,
    Management,
    ManagementCounters,
    Mapping,
    MemoryRate,
    MemoryStats,
    MinionErrors,
    Module,
    Parameter,
    PeerPath,
    Profile,
    Properties,
    Record,
    Residency,
    Run,
    Statistic,
    Stream,
    Temperatures,
    devices,
    open,
    open_management,
)
from ._et import _end, _log, version as __version__
from ._errors import (
    AbortedError,
    ArgumentError,
    ArgumentsMismatchError,
    BackendError,
    BusyError,
    CancelledError,
    ClosedError,
    CompileError,
    DeadlineError,
    Diagnostic,
    Error,
    Finding,
    ForkError,
    FreedError,
    GraphError,
    CoreFile,
    Hart,
    KernelError,
    LoadError,
    LocatorError,
    Loss,
    LostError,
    NearBuffer,
    NeedsResetError,
    OpenError,
    OtherHart,
    OutOfMemoryError,
    Recovery,
    RecoveryError,
    RecoveryStep,
    RefusedError,
    RunError,
    StaleError,
    TaskError,
    TimeoutError,
    UnsupportedError,
)
from ._kernel import KernelFunction, kernel
from ._types import In, InOut, Out, Scalar, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

# Before the interpreter ends, not while: no thread may enter it any more then.
_atexit.register(_end)


def enable_logging(what="info"):
    """Sends what the stack says to the loggers below ``logging.getLogger("et")``.

    ``what`` is a level, of ``logging`` or by name, or levels of parts: ``"warn,et_runtime=debug"``.
    It is the threshold for all of them; the logger ``et`` lets everything through if it has no level
    of its own. What is said is handed over by a thread, a moment later.
    """
    import logging

    if isinstance(what, int):
        names = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"),
                 (logging.DEBUG, "debug"))
        what = next((name for level, name in names if what >= level), "trace")
    _log(what)
    logger = logging.getLogger("et")
    if logger.level == logging.NOTSET:
        logger.setLevel(1)


def from_dlpack(source, device, *, stream=None):
    """Copies an array of a library that speaks DLPack to new memory of a device."""
    return device.from_dlpack(source, stream=stream)


__all__ = ["Binary", "clear_cache", "compile",
           *(name for name in dir() if not name.startswith("_"))]


def __getattr__(name):
    # What compiles needs many modules of Python; who only runs kernels does not wait for them.
    if name in ("Binary", "clear_cache", "compile"):
        from . import _compile

        return getattr(_compile, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
