//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// How long a wait lasts until it is looked whether the user had enough.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// Whether the user had enough. The second time, the program ends at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches what otherwise ends the program.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let is_set = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first one only sets the flag.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&is_set))
                .and_then(|_| flag::register(signal, Arc::clone(&is_set)))
                .context("catching signals")?;
        }
        Ok(Self(is_set))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
