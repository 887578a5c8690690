//! What is known of a launch that failed.

use et::LaunchFailure;
use et::core_dump::CoreSummary;
use et::kernel::{ExceptionKind, HartContext};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error;

/// Makes the exception of a failed launch.
pub(crate) fn exception(py: Python<'_>, failure: &LaunchFailure) -> PyErr {
    let harts = failure.contexts.iter().map(|context| hart(py, failure, context));
    let harts = harts.collect::<PyResult<Vec<_>>>().and_then(|harts| PyList::new(py, harts));
    match harts {
        Ok(harts) => {
            let report = format!("{failure:#}");
            let core = failure.core_file().map(core_file);
            let args = (failure.to_string(), failure.kernel(), harts, report, core);
            error::raise_with(py, "KernelError", args)
        }
        Err(error) => error,
    }
}

/// Bytes, harts, and the names of the regions of which not all is there.
fn core_file(summary: &CoreSummary) -> (u64, usize, Vec<String>) {
    let incomplete = summary.regions.iter().filter(|region| region.error.is_some());
    (summary.bytes, summary.harts, incomplete.map(|region| region.name.clone()).collect())
}

fn hart<'py>(
    py: Python<'py>,
    failure: &LaunchFailure,
    context: &HartContext,
) -> PyResult<Bound<'py, PyDict>> {
    let (cause, value) = match context.kind {
        ExceptionKind::Trap { cause, tval } => (Some(cause.as_u64()), Some(i128::from(tval))),
        ExceptionKind::KernelError(value) | ExceptionKind::BusError(value) => {
            (None, Some(i128::from(value)))
        }
        _ => (None, None),
    };
    let location = failure.location(context).unwrap_or_default();
    let (function, offset) = location.symbol.unzip();
    let (file, line) = location.source.unzip();
    let code: Vec<_> = failure.code(context).iter().map(ToString::to_string).collect();
    let dict = PyDict::new(py);
    dict.set_item("hart", context.hart_id)?;
    dict.set_item("shire", context.shire())?;
    dict.set_item("minion", context.minion())?;
    dict.set_item("thread", context.thread())?;
    dict.set_item("what", context.kind.to_string())?;
    dict.set_item("cause", cause)?;
    dict.set_item("value", value)?;
    dict.set_item("pc", context.pc)?;
    dict.set_item("function", function)?;
    dict.set_item("offset", offset)?;
    dict.set_item("file", file)?;
    dict.set_item("line", line)?;
    dict.set_item("registers", context.gpr.as_deref().map(|registers| registers.to_vec()))?;
    dict.set_item("code", code)?;
    dict.set_item("finding", finding(py, failure, context)?)?;
    Ok(dict)
}

/// What a check has found wrong with an access to memory.
fn finding<'py>(
    py: Python<'py>,
    failure: &LaunchFailure,
    context: &HartContext,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let race = context.race();
    let (kind, access, address, bytes) = match (context.memory_fault(), race) {
        (Some((fault, address)), _) => {
            (fault.violation.to_string(), fault.access, address, fault.bytes)
        }
        (None, Some((race, address))) => (race.kind.to_string(), race.access, address, race.bytes),
        (None, None) => return Ok(None),
    };
    let dict = PyDict::new(py);
    dict.set_item("kind", kind)?;
    dict.set_item("access", access.to_string())?;
    dict.set_item("address", address)?;
    dict.set_item("nbytes", bytes)?;
    let buffer = context.nearest;
    let buffer = buffer.map(|near| (near.addr.as_u64(), near.len_bytes, near.is_freed));
    dict.set_item("buffer", buffer)?;
    let other = race.map(|(race, _)| {
        let location = failure.other_location(context).unwrap_or_default();
        let (function, offset) = location.symbol.unzip();
        let (file, line) = location.source.unzip();
        let (access, pc) = (race.other.to_string(), context.other_pc());
        (race.other_hart, access, pc, function, offset, file, line)
    });
    dict.set_item("other", other)?;
    Ok(Some(dict))
}
