//! `et recover`.

use std::time::{Duration, Instant};

use anyhow::Context;
use et::hal::{Loss, ResetScope};
use et::{AnyHal, Config, Device, OpenError, RecoveryPolicy, RecoveryStep, Remedy, Report};
use serde_json::{Value, json};

use crate::output::{self, Exit, Format, Reported};
use crate::{manage, open};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The widest reset that is allowed; that of the chip loses device memory.
    #[arg(long, value_enum, default_value_t = Scope::Slot, value_name = "RESET")]
    up_to: Scope,
    /// Limit of each step, and of the check behind it.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = open::seconds)]
    timeout: Duration,
}

/// A reset, by the name that it has for the runtime.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Scope {
    /// The compute cores.
    Compute,
    /// The operations firmware.
    Operations,
    /// The PCI function.
    Function,
    /// Everything behind the slot.
    Slot,
    /// The whole chip.
    #[value(alias = "soc")]
    Chip,
}

impl From<Scope> for ResetScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Compute => Self::Compute,
            Scope::Operations => Self::Operations,
            Scope::Function => Self::Function,
            Scope::Slot => Self::Slot,
            Scope::Chip => Self::Chip,
        }
    }
}

/// What there is to say of a recovery, whether it helped or not.
#[derive(Debug, Default)]
struct Done {
    ill: Option<String>,
    steps: Vec<Value>,
    lost: Loss,
}

impl Done {
    fn step(&mut self, remedy: Remedy, took: Duration, error: Option<String>) {
        let (remedy, seconds) = (remedy.to_string(), took.as_secs_f64());
        self.steps.push(json!({ "remedy": remedy, "seconds": seconds, "error": error }));
    }

    fn add(&mut self, steps: &[RecoveryStep], lost: Loss) {
        for step in steps {
            let error = step.outcome.as_ref().err().map(|error| Report(error).to_string());
            self.step(step.remedy, step.took, error);
        }
        self.lose(lost);
    }

    fn lose(&mut self, lost: Loss) {
        self.lost.queues |= lost.queues;
        self.lost.compute |= lost.compute;
        self.lost.memory |= lost.memory;
    }

    fn document(&self) -> Value {
        let Loss { queues, compute, memory } = self.lost;
        json!({
            "ill": self.ill,
            "steps": self.steps,
            "lost": { "queues": queues, "compute": compute, "memory": memory },
        })
    }

    fn print(&self) {
        for step in &self.steps {
            let remedy = step["remedy"].as_str().unwrap_or_default();
            let took = Duration::from_secs_f64(step["seconds"].as_f64().unwrap_or_default());
            let how = step["error"].as_str().map_or_else(
                || "the device works again".to_owned(),
                |error| format!("did not help: {error}"),
            );
            println!("{remedy}, {}: {how}", output::time(took));
        }
        let Loss { queues, compute, memory } = self.lost;
        let lost = [
            (queues, "all handles"),
            (compute, "state of the cores"),
            (memory, "contents of device memory"),
        ];
        let lost: Vec<_> =
            lost.iter().filter(|(is_lost, _)| *is_lost).map(|(_, what)| *what).collect();
        if !lost.is_empty() {
            println!("lost: {}", lost.join(", "));
        }
    }
}

pub(crate) fn recover(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let policy = RecoveryPolicy::new().widest(args.up_to.into()).timeout(args.timeout);
    let mut done = Done::default();
    let outcome = attempt(locator, &policy, &mut done);
    match (format, outcome) {
        // Nothing was done that the failure itself does not say.
        (_, Err(error)) if done.steps.is_empty() => Err(error),
        (Format::Json, Err(error)) => {
            let mut document = done.document();
            output::describe(&error, &mut document);
            output::json(&document)?;
            Err(Reported(Exit::of(&error)).into())
        }
        (Format::Json, Ok(())) => output::json(&done.document()),
        // What is wrong still goes to standard error.
        (Format::Text, Err(error)) => {
            done.print();
            Err(error)
        }
        (Format::Text, Ok(())) => {
            match &done.ill {
                Some(ill) => println!("what was wrong: {ill}"),
                None => println!("the device works; nothing was done"),
            }
            done.print();
            Ok(())
        }
    }
}

fn attempt(locator: &str, policy: &RecoveryPolicy, done: &mut Done) -> anyhow::Result<()> {
    let mut device = match open(locator, policy) {
        Ok(device) => device,
        Err(OpenError::Device(error)) => {
            done.ill = Some(Report(&error).to_string());
            let opened = boot(locator, policy, OpenError::Device(error), done);
            opened.with_context(|| format!("opening {locator}"))?
        }
        Err(error) => return Err(error).with_context(|| format!("opening {locator}")),
    };
    match device.recover(policy) {
        Ok(recovery) => {
            done.add(&recovery.steps, recovery.lost);
            done.ill = done.ill.take().or(recovery.ill.map(|ill| Report(&ill).to_string()));
            Ok(())
        }
        Err(error) => {
            done.add(&error.steps, error.lost);
            done.ill.get_or_insert_with(|| Report(&error.ill).to_string());
            Err(error.into())
        }
    }
}

/// Opens the device. For what its firmware owes then, and at the end, it gets no more time than for
/// a check.
fn open(locator: &str, policy: &RecoveryPolicy) -> Result<Device<AnyHal>, OpenError> {
    let config = Config::new().command_timeout(policy.timeout).shutdown_timeout(policy.timeout);
    open::open_with(locator, config)
}

/// Opens a device that did not open, after resets by the service processor, which is there even if
/// the rest of the card is not.
fn boot(
    locator: &str,
    policy: &RecoveryPolicy,
    mut failed: OpenError,
    done: &mut Done,
) -> Result<Device<AnyHal>, OpenError> {
    for scope in [ResetScope::Operations, ResetScope::Chip] {
        if scope > policy.widest {
            break;
        }
        let started = Instant::now();
        let memory = scope == ResetScope::Chip;
        done.lose(Loss { queues: true, compute: true, memory });
        let opened = reset(locator, scope, policy.timeout).map(|()| open(locator, policy));
        let error = match &opened {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(Report(error).to_string()),
            Err(error) => Some(format!("{error:#}")),
        };
        done.step(Remedy::Reset(scope), started.elapsed(), error);
        match opened {
            Ok(Ok(device)) => return Ok(device),
            Ok(Err(still)) => failed = still,
            Err(_) => {}
        }
    }
    Err(failed)
}

/// Resets by the service processor alone, which is left before the device is opened.
fn reset(locator: &str, scope: ResetScope, timeout: Duration) -> anyhow::Result<()> {
    let management = manage::open(locator)?.with_timeout(timeout);
    match scope {
        ResetScope::Chip => management.reset_chip()?,
        _ => management.reset_operations().map(drop)?,
    }
    Ok(())
}
