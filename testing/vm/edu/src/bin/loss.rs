//! `et-vm-loss ADDRESS[,KEY=VALUE…] removal|error`: the card goes while the runtime uses it.

use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use et::hal::{ErrorKind, LossReason};
use et::{AnyHal, Device};
use et_vm_edu::{Checks, Sysfs, ask};

/// Limit of whatever has to be noticed.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut checks = Checks::new();
    let mut words = std::env::args().skip(1);
    match (words.next(), words.next().as_deref()) {
        (Some(address), Some("removal")) => removal(&mut checks, &address),
        (Some(address), Some("error")) => error(&mut checks, &address),
        _ => {
            eprintln!("usage: et-vm-loss ADDRESS[,KEY=VALUE…] removal|error");
            return ExitCode::FAILURE;
        }
    };
    checks.finish()
}

fn open(checks: &mut Checks, address: &str) -> Option<Device<AnyHal>> {
    let device = checks.works("open", et::open(&format!("vfio:{address}")))?;
    checks.works("a_copy_works", copy(&device))?;
    Some(device)
}

/// Copies there and back.
fn copy(device: &Device<AnyHal>) -> Result<(), et::Error> {
    let there: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    let buffer = device.alloc(there.len() as u64)?;
    let stream = device.default_stream();
    stream.copy_to_device(&there, &buffer)?.wait(LIMIT)?;
    let mut back = vec![0; there.len()];
    stream.read(&buffer, &mut back, LIMIT)?;
    assert_eq!(there, back, "the device returns other bytes than it was given");
    Ok(())
}

/// Copies until that fails, and returns how; `None` if it does not in time.
fn first_failure(device: &Device<AnyHal>) -> Option<et::Error> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Err(error) = copy(device) {
            return Some(error);
        }
    }
    None
}

/// The kernel takes the card away.
fn removal(checks: &mut Checks, address: &str) -> Option<()> {
    let device = open(checks, address)?;
    let function = address.split(',').next()?;
    let at = checks.step("function_is_known", Sysfs::new(function))?;
    let removed = remove(&at);
    let error = first_failure(&device);
    told(checks, error.as_ref(), LossReason::Removed);
    // The kernel waits for this, and we must not panic about what is not there any more.
    device.close();
    let removed = checks.step("the_removal_ends", removed.recv_timeout(LIMIT))?;
    checks.works("removal", removed)?;
    checks.same("the_function_is_gone", at.exists(), false);
    Some(())
}

fn remove(at: &Sysfs) -> Receiver<std::io::Result<()>> {
    let (done, end) = channel();
    let at = at.clone();
    std::thread::spawn(move || done.send(at.remove()));
    end
}

/// The bus reports an error that cannot be corrected.
fn error(checks: &mut Checks, address: &str) -> Option<()> {
    let device = open(checks, address)?;
    checks.step("the_host_acts", ask("READY-FOR-AER"))?;
    let error = first_failure(&device);
    told(checks, error.as_ref(), LossReason::LinkDown);
    device.close();
    let device = open(checks, address)?;
    device.close();
    Some(())
}

fn told(checks: &mut Checks, error: Option<&et::Error>, why: LossReason) {
    let kind = error.map(et::Error::kind);
    let holds = matches!(kind, Some(ErrorKind::Lost(reason)) if reason == why);
    checks.holds("the_loss_is_told", holds, format_args!("{error:?}"));
}
