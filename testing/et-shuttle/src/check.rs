//! Running a model and counting its schedules.

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

/// The same schedules every time; a failure prints its own, to be replayed.
const SEED: u64 = 0x0e50_c001;
/// Priorities that change so often are enough for most bugs.
const DEPTH: usize = 3;

/// Runs `model` under `schedules` random schedules, half of them of threads with priorities, and
/// prints their number in the form that `cargo xtask loom` reads.
///
/// A failure prints its schedule; it alone is run again if `ET_SHUTTLE_SCHEDULE` names a file with
/// that. If `ET_LOOM_MODEL` is set, only the model of that name runs.
#[expect(clippy::print_stdout, reason = "the number is the result")]
pub fn check(name: &str, schedules: usize, model: fn()) {
    if std::env::var("ET_LOOM_MODEL").is_ok_and(|only| only != format!("shuttle-{name}")) {
        return;
    }
    if let Some(file) = std::env::var_os("ET_SHUTTLE_SCHEDULE") {
        let Ok(schedule) = std::fs::read_to_string(&file) else {
            panic!("cannot read {}", file.display());
        };
        run(ReplayScheduler::new_from_encoded(&schedule), model);
        return;
    }
    let half = schedules / 2;
    let executions = run(RandomScheduler::new_from_seed(SEED, half), model)
        + run(PctScheduler::new_from_seed(SEED, DEPTH, schedules - half), model);
    println!("model shuttle-{name} executions {executions}");
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) -> usize {
    let mut config = Config::default();
    // All atomics are sequentially consistent here; `et-loom` is for the rest.
    config.silence_warnings = true;
    config.stack_size = 0x40000;
    Runner::new(scheduler, config).run(model)
}

/// Is true once in `of` times.
#[must_use]
pub fn chance(of: u32) -> bool {
    below(of) == 0
}

/// Returns a number below `limit`.
#[must_use]
pub fn below(limit: u32) -> u32 {
    thread_rng().gen_range(0..limit)
}
