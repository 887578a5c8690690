"""What goes wrong, as exceptions."""

from __future__ import annotations

import builtins
import typing


class Error(Exception):
    """Anything that this package raises of its own. `operation` is what failed or was waited for, and
    `device` names the device, as far as that is known."""

    operation: str | None = None
    device: str | None = None


class OpenError(Error):
    """The device could not be opened. `holder` is the process that has it, if that is why and is
    known."""

    holder: typing.Any

    def __init__(self, message: str, holder: typing.Any = None) -> None:
        super().__init__(message)
        self.holder = holder


class LocatorError(OpenError, ValueError):
    """The text names no device."""


class BackendError(Error):
    """What is between this program and the device failed."""


class ClosedError(Error):
    """The device or the executor is closed."""


class StaleError(Error):
    """The handle is older than the last reset of the device."""


class FreedError(Error):
    """The memory was freed."""


class ForkError(Error):
    """The device was opened in the process of which this one is a copy."""


class LostError(Error):
    """The device has gone, or does not speak its protocol any more."""


class NeedsResetError(Error):
    """The compute cores are of no use before a reset."""


class RecoveryStep(typing.NamedTuple):
    """One thing that was done about a device that did not work."""

    remedy: str
    """"abort", or "compute reset" and so on."""
    seconds: float
    """How long it took, with the check after it."""
    error: typing.Optional[Error]
    """What was wrong after it; `None` if the device works since."""


class Loss(typing.NamedTuple):
    """What a recovery may have destroyed; true if that is anything."""

    queues: bool
    """Work in flight; all that was made of the device is stale."""
    compute: bool
    """State of the cores."""
    memory: bool
    """Contents of device memory."""

    def __bool__(self) -> bool:
        return any(self)


class Recovery(typing.NamedTuple):
    """A device that works again, or always did."""

    ill: typing.Optional[Error]
    """What was wrong; `None` if the device worked."""
    steps: list[RecoveryStep]
    """What was done, in this order; the last one helped."""
    lost: Loss


class RecoveryError(Error):
    """A device stays ill, whatever was allowed: what is wrong is in `__cause__`, what was done in
    `steps`, and what may be lost in `lost`."""

    steps: list[RecoveryStep]
    lost: Loss

    def __init__(self, message: str, steps: typing.Iterable[RecoveryStep] = (),
                 lost: Loss = Loss(False, False, False)) -> None:
        super().__init__(message)
        self.steps = list(steps)
        self.lost = lost


class TimeoutError(Error, builtins.TimeoutError):
    """A wait has taken too long; what was waited for goes on."""


class OutOfMemoryError(Error, MemoryError):
    """The device has no memory left for this."""


class ArgumentError(Error, ValueError):
    """A value that is not possible here."""


class ArgumentsMismatchError(ArgumentError, TypeError):
    """The arguments are not those that the kernel takes. `kernel` is its name, `signature` what it
    takes, `parameter` the name of the wrong one, if it is one that has a name."""

    kernel: str
    signature: str
    parameter: typing.Optional[str]

    def __init__(self, message: str, kernel: str = "", signature: str = "",
                 parameter: typing.Optional[str] = None) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.signature = signature
        self.parameter = parameter


class BusyError(Error):
    """It is in use."""


class AbortedError(Error):
    """The operation was aborted."""


class RefusedError(Error):
    """The device refused a command."""


class UnsupportedError(Error):
    """The device cannot do this."""


class LoadError(Error, ValueError):
    """The kernel's file is no use."""


class GraphError(Error, ValueError):
    """The graph is wrong."""


class RunError(Error):
    """A graph did not run, or not to its end."""


class TaskError(RunError):
    """A task of a graph failed: its cause is in `__cause__`, its number in `task`."""

    task: int

    def __init__(self, message: str, task: int = -1) -> None:
        super().__init__(message)
        self.task = task


class CancelledError(RunError):
    """The run was cancelled."""


class DeadlineError(RunError, builtins.TimeoutError):
    """The run had a deadline, and was not complete then."""


class NearBuffer(typing.NamedTuple):
    """A buffer beside an address."""

    address: int
    nbytes: int
    is_freed: bool


class OtherHart(typing.NamedTuple):
    """What another hart did before, and where; `None` is what is not known."""

    hart: int
    """Its number; that of the hart itself if it did that, in another way."""
    access: str
    """`"load"`, `"store"`, `"atomic"` or `"tensor load"`."""
    pc: typing.Optional[int]
    function: typing.Optional[str]
    offset: typing.Optional[int]
    """Bytes from the start of the function."""
    file: typing.Optional[str]
    line: typing.Optional[int]


class Finding(typing.NamedTuple):
    """What a check of the simulated card has found wrong with an access to memory."""

    kind: str
    """With `check=memory`, and with `check=races`, `"out of bounds"`, `"use after free"`,
    `"write to read-only memory"` or `"read of uninitialised memory"`; with `check=races` also
    `"data race"`, `"data not written back"` or `"old copy in the cache"`."""
    access: str
    """`"load"`, `"store"`, `"atomic"` or `"tensor load"`."""
    address: int
    nbytes: int
    buffer: typing.Optional[NearBuffer]
    """The buffer nearest to the address, as it was used then."""
    other: typing.Optional[OtherHart]
    """Of the last three kinds, the other hart."""


class Hart(typing.NamedTuple):
    """What a hart left behind that stopped a kernel; `None` is what is not known."""

    hart: int
    shire: int
    minion: int
    thread: int
    what: str
    """What happened."""
    cause: typing.Optional[int]
    """Value of the register `scause`, of a trap."""
    value: typing.Optional[int]
    """Address or instruction of a trap, or what the kernel returned."""
    pc: typing.Optional[int]
    function: typing.Optional[str]
    offset: typing.Optional[int]
    """Bytes from the start of the function."""
    file: typing.Optional[str]
    line: typing.Optional[int]
    registers: typing.Optional[list[int]]
    """x1 to x31."""
    code: list[str]
    """The instruction and its neighbours."""
    finding: typing.Optional[Finding] = None
    """What a check has found, if it stopped for that."""


def _hart(finding: typing.Optional[dict[str, typing.Any]] = None, **known: typing.Any) -> Hart:
    if finding is None:
        return Hart(**known)
    near, other = finding.pop("buffer"), finding.pop("other")
    found = Finding(buffer=NearBuffer(*near) if near else None,
                    other=OtherHart(*other) if other else None, **finding)
    return Hart(finding=found, **known)


class CoreFile(typing.NamedTuple):
    """What is in the core file of a launch."""

    nbytes: int
    """Bytes of the file."""
    harts: int
    """Harts whose registers are in it."""
    incomplete: list[str]
    """Regions of memory of which not all is in it."""


class KernelError(Error):
    """A kernel failed. What is known of the first hart is in `hart`, `cause`, `pc`, `function`,
    `file` and `line`, of all in `harts`; `report` is a text of several lines. `core_file` is what
    is in the core file that the launch asked for; `None` if there is no such file."""

    kernel: str
    harts: list[Hart]
    report: str
    core_file: typing.Optional[CoreFile]

    def __init__(self, message: str, kernel: str = "", harts: typing.Iterable[typing.Any] = (),
                 report: str = "", core_file: typing.Any = None) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.harts = [_hart(**hart) for hart in harts]
        self.report = report or message
        self.core_file = CoreFile(*core_file) if core_file else None

    @property
    def _first(self) -> typing.Optional[Hart]:
        return self.harts[0] if self.harts else None

    @property
    def hart(self) -> typing.Optional[int]:
        """Number of the first hart that failed."""
        return self._first.hart if self._first else None

    @property
    def cause(self) -> typing.Optional[int]:
        """Why it trapped."""
        return self._first.cause if self._first else None

    @property
    def pc(self) -> typing.Optional[int]:
        """Where it was."""
        return self._first.pc if self._first else None

    @property
    def function(self) -> typing.Optional[str]:
        """The function in which it was."""
        return self._first.function if self._first else None

    @property
    def file(self) -> typing.Optional[str]:
        """The source file in which it was."""
        return self._first.file if self._first else None

    @property
    def line(self) -> typing.Optional[int]:
        """The line at which it was."""
        return self._first.line if self._first else None

    def _repr_html_(self) -> str:
        from . import _html

        return _html.failure(self)


class Diagnostic(typing.NamedTuple):
    """A message of the compiler."""

    file: typing.Optional[str]
    line: typing.Optional[int]
    column: typing.Optional[int]
    severity: str
    message: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place}: {self.severity}: {self.message}" if place else self.message


class CompileError(Error):
    """The source does not compile. What the compiler says is in `diagnostics`; `file`, `line` and
    `column` are those of the first error, `output` is all of it."""

    diagnostics: list[Diagnostic]
    output: str

    def __init__(self, message: str, diagnostics: typing.Iterable[Diagnostic] = (),
                 output: str = "") -> None:
        super().__init__(message)
        self.diagnostics = list(diagnostics)
        self.output = output or message

    @property
    def _first(self) -> typing.Optional[Diagnostic]:
        errors = [found for found in self.diagnostics if "error" in found.severity]
        return next(iter(errors or self.diagnostics), None)

    @property
    def file(self) -> typing.Optional[str]:
        """The file of the first error."""
        return self._first.file if self._first else None

    @property
    def line(self) -> typing.Optional[int]:
        """The line of the first error."""
        return self._first.line if self._first else None

    @property
    def column(self) -> typing.Optional[int]:
        """The column of the first error."""
        return self._first.column if self._first else None

    def _repr_html_(self) -> str:
        from . import _html

        return _html.text(self.output)
