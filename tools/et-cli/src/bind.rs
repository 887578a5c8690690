//! `et bind` and `et unbind`: which driver has a card.

use et::host::{Bdf, BindOptions, Change, Error, Host, Plan, Step, udev_rules};
use serde_json::{Value, json};

use crate::doctor::Root;
use crate::output::{self, Exit, Format, Reported};

#[derive(Debug, clap::Args)]
pub(crate) struct BindArgs {
    /// The card, as `0000:01:00.0`.
    bdf: Bdf,
    /// Prints the writes and makes none.
    #[arg(long)]
    dry_run: bool,
    /// Gives the nodes to a user, and prints the rules that keep it so.
    #[arg(long, value_name = "USER[:GROUP]")]
    owner: Option<String>,
    /// Binds a device that is no ET-SoC-1.
    #[arg(long)]
    any_device: bool,
    #[command(flatten)]
    root: Root,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnbindArgs {
    /// The card, as `0000:01:00.0`.
    bdf: Bdf,
    /// Prints the writes and makes none.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    root: Root,
}

pub(crate) fn bind(args: &BindArgs, format: Format) -> anyhow::Result<()> {
    let host = args.root.host()?;
    explain(bind_on(&host, args, format)?, format)
}

/// Failures of the host are explained, those of the output are not.
fn bind_on(host: &Host, args: &BindArgs, format: Format) -> anyhow::Result<Result<(), Error>> {
    let mut options = BindOptions::default();
    if args.any_device {
        options = options.any_device();
    }
    if let Some(owner) = &args.owner {
        match host.owner(owner) {
            Ok(owner) => options = options.owner(owner),
            Err(error) => return Ok(Err(error)),
        }
    }
    if args.dry_run {
        return shown(host.plan_bind(args.bdf, &options), format);
    }
    let change = match host.bind(args.bdf, &options) {
        Ok(change) => change,
        Err(error) => return Ok(Err(error)),
    };
    // The node of the group comes last.
    let node =
        change.given.last().and_then(|node| node.file_name()).map(|name| name.to_string_lossy());
    let rules = args.owner.as_ref().zip(node).map(|(owner, node)| {
        let (user, group) = owner.split_once(':').unwrap_or((owner, "root"));
        udev_rules(args.bdf, &node, user, group)
    });
    report(&change, rules, format)?;
    Ok(Ok(()))
}

pub(crate) fn unbind(args: &UnbindArgs, format: Format) -> anyhow::Result<()> {
    let host = args.root.host()?;
    if args.dry_run {
        return explain(shown(host.plan_unbind(args.bdf), format)?, format);
    }
    match host.unbind(args.bdf) {
        Ok(change) => report(&change, None, format),
        Err(error) => explain(Err(error), format),
    }
}

fn shown(plan: Result<Plan, Error>, format: Format) -> anyhow::Result<Result<(), Error>> {
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return Ok(Err(error)),
    };
    match format {
        Format::Json => output::json(&json!({
            "bdf": plan.bdf.to_string(), "from": plan.from, "to": plan.to, "steps": steps(&plan),
        }))?,
        Format::Text if plan.steps.is_empty() => println!("nothing to do"),
        Format::Text => plan.steps.iter().for_each(print),
    }
    Ok(Ok(()))
}

fn report(change: &Change, rules: Option<String>, format: Format) -> anyhow::Result<()> {
    let plan = &change.plan;
    let mode = change.mode.as_ref();
    if format == Format::Json {
        return output::json(&json!({
            "bdf": plan.bdf.to_string(), "from": plan.from, "driver": change.driver,
            "steps": steps(plan), "given": change.given, "udev_rules": rules,
            "mode": mode.map(|mode| json!({
                "name": mode.name(), "node": mode.node(), "companion": mode.companion(),
            })),
        }));
    }
    let name = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "no driver".to_owned());
    if plan.steps.is_empty() {
        println!("{}: {} has it already", plan.bdf, name(&change.driver));
    } else {
        println!("{}: {} -> {}", plan.bdf, name(&plan.from), name(&change.driver));
    }
    if let Some(mode) = mode {
        println!(
            "mode {}: {} with {}",
            mode.name(),
            mode.node().display(),
            mode.companion().display()
        );
    }
    for node in &change.given {
        println!("{} has its new owner", node.display());
    }
    if let Some(rules) = rules {
        println!("\nRules for /etc/udev/rules.d/70-et-vfio.rules, to keep the owner:\n{rules}");
    }
    Ok(())
}

fn steps(plan: &Plan) -> Vec<Value> {
    let step = |step: &Step| json!({ "file": step.file, "write": step.write, "why": step.why });
    plan.steps.iter().map(step).collect()
}

/// One command of a shell.
fn print(step: &Step) {
    let text = step.write.replace('\n', "\\n");
    println!("printf '{text}' > {}  # {}", step.file.display(), step.why);
}

/// Prints a failure with its causes and what to do about it.
fn explain(outcome: Result<(), Error>, format: Format) -> anyhow::Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    let remedy = error.remedy();
    let error = anyhow::Error::from(error);
    match format {
        Format::Json => {
            let mut document = json!({ "remedy": remedy });
            output::describe(&error, &mut document);
            output::json(&document)?;
        }
        Format::Text => {
            output::error(&error, format);
            for command in remedy {
                eprintln!("  try: {command}");
            }
        }
    }
    Err(Reported(Exit::Failure).into())
}
