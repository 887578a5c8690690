//! Waiting: without the interpreter, and ended by Ctrl-C.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::error;

/// The longest time between two looks at signals.
const TICK: Duration = Duration::from_millis(50);

/// A time in seconds; `None` is for ever.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(error::raise("ArgumentError", format!("a timeout of {seconds} s")));
    }
    // What does not fit is for ever as well.
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// Takes steps that wait for at most the time they are given, until one has a result, the time is
/// over (`None`), or a handler of a signal raises.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut step: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    let start = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let result = py.detach(|| step(left.map_or(TICK, |left| left.min(TICK))));
        if result.is_some() {
            return Ok(result);
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= TICK) {
            return Ok(None);
        }
    }
}

/// Waits, as [`wait`] does, for what has ended when `step` does not time out any more. The failure
/// after the whole time is that of the last step, with the time that was asked for.
pub(crate) fn end<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut step: impl FnMut(Duration) -> Result<T, et::Error> + Send,
    ended: impl Fn() -> bool + Sync,
) -> PyResult<Result<T, et::Error>> {
    let mut late = None;
    let outcome = wait(py, timeout, |slice| match step(slice) {
        Err(error @ et::Error::Timeout { .. }) if !ended() => {
            late = Some(error);
            None
        }
        outcome => Some(outcome),
    })?;
    Ok(outcome.unwrap_or_else(|| {
        let mut error = late.expect("a wait ends without an outcome after a step");
        if let (et::Error::Timeout { after, .. }, Some(timeout)) = (&mut error, timeout) {
            *after = timeout;
        }
        Err(error)
    }))
}
