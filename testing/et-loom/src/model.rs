//! Running a model and counting its executions.

use std::sync::atomic::{AtomicU64, Ordering};

/// Explores all executions of `model` with at most `preemptions`, all of them if `None`, and prints their number in the
/// form that `cargo xtask loom` reads.
#[expect(clippy::print_stdout, reason = "the number is the result")]
pub fn check(name: &str, preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
    let before = EXECUTIONS.load(Ordering::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        EXECUTIONS.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = EXECUTIONS.load(Ordering::Relaxed) - before;
    println!("model {name} executions {executions}");
}
