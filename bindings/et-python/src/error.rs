//! Failures of the runtime as exceptions, whose classes are in `et._errors`.

use et::executor::{RunError, TaskFailure};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::failure;
use crate::properties::Holder;

/// A failure that becomes an exception.
pub(crate) trait Raise {
    fn raise(self) -> PyErr;
}

impl Raise for std::convert::Infallible {
    fn raise(self) -> PyErr {
        match self {}
    }
}

/// Makes an exception of a class of the package.
pub(crate) fn raise(class: &str, message: impl Into<String>) -> PyErr {
    let message = message.into();
    Python::attach(|py| match class_of(py, class).and_then(|class| class.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    })
}

/// Makes an exception of a class of the package with more arguments than a text.
pub(crate) fn raise_with<'py>(
    py: Python<'py>,
    class: &str,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyErr {
    make(py, class, args).map_or_else(|error| error, PyErr::from_value)
}

/// Makes what is described beside the exceptions of the package.
pub(crate) fn make<'py>(
    py: Python<'py>,
    class: &str,
    args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<Bound<'py, PyAny>> {
    class_of(py, class)?.call1(args.into_pyobject(py)?)
}

fn class_of<'py>(py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("et._errors")?.getattr(class)
}

/// The message of a failure with those of its causes.
pub(crate) fn message(error: &(dyn std::error::Error + 'static)) -> String {
    et::Report(error).to_string()
}

/// The class of a failure of the runtime.
fn class(error: &et::Error) -> &'static str {
    use et::Error as E;
    match error {
        E::Hal { .. } => "BackendError",
        E::Open(_) => "OpenError",
        E::Load(et::LoadError::Device { source, .. }) => class(source),
        E::Load(_) => "LoadError",
        E::Timeout { .. } => "TimeoutError",
        E::Closed { .. } => "ClosedError",
        E::Stale { .. } => "StaleError",
        E::Lost { .. } => "LostError",
        E::NeedsReset { .. } => "NeedsResetError",
        E::Memory(et::memory::AllocError::OutOfMemory { .. }) => "OutOfMemoryError",
        E::KernelInUse { .. } | E::Mapped { .. } => "BusyError",
        E::Copy { .. } | E::Refused { .. } => "RefusedError",
        E::Launch(_) => "KernelError",
        E::ArgumentsMismatch { .. } => "ArgumentsMismatchError",
        E::Aborted { .. } | E::AbortedWith { .. } => "AbortedError",
        E::Unsupported { .. } => "UnsupportedError",
        E::Memory(_)
        | E::OutOfRange { .. }
        | E::Misaligned { .. }
        | E::Overlap { .. }
        | E::LengthMismatch { .. }
        | E::ForeignBuffer
        | E::ForeignEvent
        | E::ShireMask { .. }
        | E::ArgumentsTooLarge { .. }
        | E::LaunchOption { .. }
        | E::HasEnded { .. } => "ArgumentError",
        _ => "Error",
    }
}

impl Raise for et::Error {
    fn raise(self) -> PyErr {
        let raised = match &self {
            Self::Launch(failed) => Python::attach(|py| failure::exception(py, failed)),
            Self::ArgumentsMismatch { kernel, signature, .. } => Python::attach(|py| {
                let args = (message(&self), &**kernel, signature, None::<&str>);
                raise_with(py, "ArgumentsMismatchError", args)
            }),
            _ => raise(class(&self), message(&self)),
        };
        Python::attach(|py| {
            let value = raised.value(py);
            let named = value
                .setattr("operation", self.operation())
                .and_then(|()| value.setattr("device", self.device()));
            named.map_or_else(|error| error, |()| raised)
        })
    }
}

impl Raise for et::LoadError {
    fn raise(self) -> PyErr {
        et::Error::from(self).raise()
    }
}

impl Raise for et::OpenError {
    fn raise(self) -> PyErr {
        let class = match &self {
            Self::Locator(_) => "LocatorError",
            _ => "OpenError",
        };
        let holder = self.holder().map(Holder::from);
        Python::attach(|py| raise_with(py, class, (message(&self), holder)))
    }
}

impl Raise for et::graph::GraphError {
    fn raise(self) -> PyErr {
        raise("GraphError", message(&self))
    }
}

impl Raise for RunError {
    fn raise(self) -> PyErr {
        match self {
            Self::Device(error) => error.raise(),
            Self::TaskFailed { task, ref failure, .. } => {
                let cause = match failure.cause() {
                    TaskFailure::Device(error) => Some(error.clone().raise()),
                    TaskFailure::Trapped { failure, .. } => {
                        Some(Python::attach(|py| failure::exception(py, failure)))
                    }
                    _ => None,
                };
                let (text, index) = (message(&self), task.index());
                Python::attach(|py| {
                    let error = raise_with(py, "TaskError", (text, index));
                    error.set_cause(py, cause);
                    error
                })
            }
            Self::Cancelled { .. } => raise("CancelledError", message(&self)),
            Self::Deadline { .. } => raise("DeadlineError", message(&self)),
            Self::Timeout { .. } => raise("TimeoutError", message(&self)),
            Self::Closed { .. } => raise("ClosedError", message(&self)),
            Self::Unsupported { .. } | Self::NoCpuAccess => {
                raise("UnsupportedError", message(&self))
            }
            Self::DeviceFull { .. } => raise("OutOfMemoryError", message(&self)),
            _ => raise("RunError", message(&self)),
        }
    }
}
