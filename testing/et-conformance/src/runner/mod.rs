//! Running cases, one after the other, each with a limit.

mod options;
mod report;
mod suite;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use clap::Parser;
use et_hal::Hal;

use crate::{Case, Failure, OptionError, Rig, cases};

pub use options::{Exception, NoReason, Options};
pub use report::{Outcome, Report, Verdict};
pub use suite::Suite;

/// A program that is nothing but suites.
#[derive(Debug, Parser)]
struct Harness {
    #[command(flatten)]
    options: Options,
}

/// Runs suites as the `main` of a test without libtest's own harness. Takes libtest's options as
/// far as test runners use them.
#[must_use]
pub fn harness<H: Hal>(suites: Vec<Suite<H>>) -> ExitCode {
    main(suites, &Harness::parse().options)
}

/// Runs suites, or lists them, and returns the exit code for it.
#[must_use]
#[expect(clippy::print_stderr, reason = "what is wrong with options goes to standard error")]
pub fn main<H: Hal>(suites: Vec<Suite<H>>, options: &Options) -> ExitCode {
    let outcome = run(suites, options).and_then(|report| {
        report.write_json(options.json.as_deref())?;
        Ok(report)
    });
    match outcome {
        Ok(report) if report.is_success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", et_runtime::Report(&error));
            ExitCode::from(2)
        }
    }
}

/// What becomes of a case.
struct Planned<H: Hal> {
    name: String,
    case: Case<H>,
    rig: Arc<Rig<H>>,
    is_complete: bool,
    skip: Option<String>,
    expect_failure: Option<String>,
}

/// Runs suites, or lists them, and prints as libtest does.
///
/// After a case that hangs nothing more is run, because it may still have the device.
///
/// # Errors
/// [`OptionError`] if the options fit no case.
pub fn run<H: Hal>(suites: Vec<Suite<H>>, options: &Options) -> Result<Report, OptionError> {
    let planned = plan(suites, options)?;
    let mut report = Report::default();
    if options.list {
        report::list(planned.iter().map(|planned| planned.name.as_str()), options.ignored);
        return Ok(report);
    }
    report::begin(planned.len());
    let mut rest = planned.into_iter();
    for planned in rest.by_ref() {
        let started = Instant::now();
        let (verdict, hangs) = match &planned.skip {
            Some(reason) => (Verdict::ignored(reason.as_str()), false),
            None => execute(&planned),
        };
        report.add(Outcome::new(planned.name, verdict, started.elapsed()));
        if hangs {
            break;
        }
    }
    report.end(rest.count());
    Ok(report)
}

/// Chooses cases, and finds their exceptions.
fn plan<H: Hal>(suites: Vec<Suite<H>>, options: &Options) -> Result<Vec<Planned<H>>, OptionError> {
    let mut planned = Vec::new();
    let mut unused = options::Unused::default();
    for suite in suites {
        let rig = Arc::new(suite.rig);
        for case in cases::<H>() {
            let name = if suite.name.is_empty() {
                case.name.to_owned()
            } else {
                format!("{}::{}", suite.name, case.name)
            };
            let mut reason = |option, own: &[Exception], given: &[Exception]| {
                let own = unused.find(option, own, case.name);
                own.or_else(|| unused.find(option, given, &name))
            };
            let skip = reason("--skip", &suite.skip, &options.skip);
            let expect_failure =
                reason("--expect-failure", &suite.expect_failure, &options.expect_failure);
            let (rig, is_complete) = (Arc::clone(&rig), suite.is_complete);
            planned.push(Planned { name, case, rig, is_complete, skip, expect_failure });
        }
    }
    unused.check()?;
    planned.retain(|planned| options.selects(&planned.name));
    if planned.is_empty() && !options.list && !options.filters.is_empty() {
        return Err(OptionError::NothingSelected);
    }
    Ok(planned)
}

/// Runs one case in a thread of its own; `true` if that does not end.
fn execute<H: Hal>(planned: &Planned<H>) -> (Verdict, bool) {
    let (sender, receiver) = mpsc::channel();
    let (case, rig) = (planned.case, Arc::clone(&planned.rig));
    let limit = rig.case_limit();
    let work = move || {
        let attempt = || match rig.missing(case.needs)? {
            Some(reason) => Ok(Some(reason)),
            None => (case.run)(&rig).map(|()| None),
        };
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(attempt));
        let outcome = outcome.unwrap_or_else(|panic| Err(of_panic(&*panic)));
        // No one listens any more only if the limit has passed.
        let _ = sender.send(outcome);
    };
    let spawned = std::thread::Builder::new().name(planned.name.clone()).spawn(work);
    let outcome = match spawned {
        Err(error) => Err(error.into()),
        Ok(_) => match receiver.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(_) => {
                return (Verdict::Failed(format!("hangs: no end after {limit:?}")), true);
            }
        },
    };
    (judge(planned, outcome), false)
}

fn judge<H: Hal>(planned: &Planned<H>, outcome: Result<Option<String>, Failure>) -> Verdict {
    match (outcome, &planned.expect_failure) {
        (Ok(Some(lack)), _) if planned.is_complete => Verdict::Failed(lack),
        (Ok(Some(lack)), _) => Verdict::ignored(lack),
        (Ok(None), None) => Verdict::Passed,
        (Ok(None), Some(reason)) => {
            Verdict::Failed(format!("passes, although it is expected to fail: {reason}"))
        }
        (Err(failure), None) => Verdict::Failed(failure.to_string()),
        (Err(failure), Some(reason)) => {
            Verdict::ignored(format!("fails as expected: {reason} [{failure}]"))
        }
    }
}

fn of_panic(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::anywhere(format!("panicked: {}", text.unwrap_or("with no text")))
}
