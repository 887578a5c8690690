//! Getting a device to work again.

use std::sync::Arc;
use std::time::Duration;

use et::hal::{Loss, ResetScope};
use et::{RecoveryPolicy, RecoveryStep};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::card::Card;
use crate::error::{self, Raise};
use crate::wait;

const SCOPES: [(&str, ResetScope); 5] = [
    ("compute", ResetScope::Compute),
    ("operations", ResetScope::Operations),
    ("function", ResetScope::Function),
    ("slot", ResetScope::Slot),
    ("chip", ResetScope::Chip),
];

/// Makes a device work again; returns what was done, or raises it.
pub(crate) fn recover<'py>(
    py: Python<'py>,
    card: &Arc<Card>,
    up_to: &str,
    timeout: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let found = SCOPES.iter().find(|(name, _)| *name == up_to);
    let unknown = || {
        let names = SCOPES.map(|(name, _)| name).join(", ");
        error::raise("ArgumentError", format!("up_to is one of {names}, not {up_to:?}"))
    };
    let (_, widest) = found.ok_or_else(unknown)?;
    let timeout = wait::timeout(Some(timeout))?.unwrap_or(Duration::MAX);
    let policy = RecoveryPolicy::new().widest(*widest).timeout(timeout);
    let outcome = card.own(
        py,
        "recover",
        |_| (),
        move |card, device| {
            let outcome = device.recover(&policy);
            // Each step ends what executors had in flight. A device that works is left alone.
            if outcome.as_ref().map_or(true, |done| !done.steps.is_empty()) {
                card.drop_kept();
            }
            outcome
        },
    )?;
    match outcome {
        Ok(done) => {
            let ill = done.ill.map(|ill| ill.raise().into_value(py));
            let args = (ill, steps(py, &done.steps)?, loss(py, done.lost)?);
            error::make(py, "Recovery", args)
        }
        Err(failed) => {
            let message = error::message(&failed);
            let args = (message, steps(py, &failed.steps)?, loss(py, failed.lost)?);
            let raised = error::raise_with(py, "RecoveryError", args);
            raised.value(py).setattr("device", failed.ill.device())?;
            raised.set_cause(py, Some(failed.ill.raise()));
            Err(raised)
        }
    }
}

fn steps<'py>(py: Python<'py>, steps: &[RecoveryStep]) -> PyResult<Bound<'py, PyList>> {
    let steps = steps.iter().map(|step| {
        let error = step.outcome.clone().err().map(|error| error.raise().into_value(py));
        let args = (step.remedy.to_string(), step.took.as_secs_f64(), error);
        error::make(py, "RecoveryStep", args)
    });
    PyList::new(py, steps.collect::<PyResult<Vec<_>>>()?)
}

fn loss<'py>(py: Python<'py>, lost: Loss) -> PyResult<Bound<'py, PyAny>> {
    error::make(py, "Loss", (lost.queues, lost.compute, lost.memory))
}
