//! Waiting: without the interpreter, and ended by Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use et::executor::RunError;
use pyo3::prelude::*;

use crate::error::{self, Raise};

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

/// Waits for what a thread sends; `None` if it ends without.
pub(crate) fn sent<T: Send>(py: Python<'_>, result: Receiver<T>) -> PyResult<Option<T>> {
    let sent = wait(py, None, move |slice| match result.recv_timeout(slice) {
        Ok(sent) => Some(Some(sent)),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(None),
    })?;
    Ok(sent.flatten())
}

/// A failure that may be that of a wait, and not of what was waited for.
pub(crate) trait Late: Raise + Sized {
    /// The same of a wait of this time; what is no failure of a wait comes back as it is.
    fn after(self, time: Option<Duration>) -> Result<Self, Self>;
}

macro_rules! late {
    ($failure:ty) => {
        impl Late for $failure {
            fn after(mut self, time: Option<Duration>) -> Result<Self, Self> {
                match &mut self {
                    Self::Timeout { after, .. } => *after = time.unwrap_or(*after),
                    _ => return Err(self),
                }
                Ok(self)
            }
        }
    };
}

late!(et::Error);
late!(RunError);

/// Waits, as [`wait`] does, for what has ended when `step` does not time out any more, or when
/// `ended` says so; returns how. Raises what the last step failed with, and the time that was asked
/// for, if the end does not come in time.
pub(crate) fn end<T: Send, E: Late + Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut step: impl FnMut(Duration) -> Result<T, E> + Send,
    ended: impl Fn() -> bool + Sync,
) -> PyResult<Result<T, E>> {
    let mut last = None;
    let outcome = wait(py, timeout, |slice| {
        let error = match step(slice) {
            // The end may have come after the time was over.
            Err(_) if ended() => return Some(step(Duration::ZERO)),
            Err(error) => error,
            outcome => return Some(outcome),
        };
        match error.after(timeout) {
            Ok(late) => {
                last = Some(late);
                None
            }
            Err(other) => Some(Err(other)),
        }
    })?;
    outcome.ok_or_else(|| last.expect("no wait ends before its first step").raise())
}
