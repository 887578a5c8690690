//! Running a model and counting its executions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Explores all executions of `model` with at most `preemptions`, all of them if `None`, and prints
/// their number in the form that `cargo xtask loom` reads. If `ET_LOOM_MODEL` names another model,
/// it does nothing.
#[expect(clippy::print_stdout, reason = "the number is the result")]
pub fn check(name: &str, preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    if std::env::var_os("ET_LOOM_MODEL").is_some_and(|only| only != name) {
        return;
    }
    // Not a loom atomic: it counts executions and is no part of them.
    let executions = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("model {name} executions {}", executions.load(Ordering::Relaxed));
}
