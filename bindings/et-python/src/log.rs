//! Messages of the runtime in Python's `logging`.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::{callbacks, error};

/// Messages that may wait for the interpreter; what comes while there are so many is counted.
const LIMIT: usize = 10_000;
// Relaxed: counts, which order nothing.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Hands messages that the filter lets through to loggers below "et", in a thread of its own: no
/// thread of the runtime waits for the interpreter.
#[pyfunction]
#[pyo3(name = "_log")]
pub(crate) fn log(filter: &str) -> PyResult<()> {
    et::log::forward(filter, |message| {
        if WAITING.fetch_add(1, Ordering::Relaxed) >= LIMIT {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let level = match message.level {
            et::log::Level::Error => 40,
            et::log::Level::Warn => 30,
            et::log::Level::Info => 20,
            et::log::Level::Debug => 10,
            _ => 5,
        };
        let (logger, text) = (logger(message.target), message.text.to_owned());
        callbacks::post(move |py| {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            let dropped = DROPPED.swap(0, Ordering::Relaxed);
            let said = say(py, &logger, level, &text).and_then(|()| match dropped {
                0 => Ok(()),
                _ => say(py, "et", 30, &format!("{dropped} messages were dropped")),
            });
            if let Err(error) = said {
                error.write_unraisable(py, None);
            }
        });
    })
    .map_err(|failed| error::raise("ArgumentError", et::Report(&failed).to_string()))
}

/// The name of the logger for what `target` says: `et.runtime.link` for `et_runtime::link`.
fn logger(target: &str) -> String {
    let path = target.replace("::", ".");
    match path.strip_prefix("et_") {
        Some(rest) => format!("et.{rest}"),
        None if path == "et" || path.starts_with("et.") => path,
        None => format!("et.{path}"),
    }
}

fn say(py: Python<'_>, logger: &str, level: u8, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (logger,))?;
    logger.call_method1("log", (level, "%s", text)).map(drop)
}
