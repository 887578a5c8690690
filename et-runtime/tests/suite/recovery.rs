//! Each kind of failure is met with the gentlest remedy that helps, and no more than is allowed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use et_devapi::msg::ops::Command;
use et_hal::{Loss, ResetScope};
use et_hal_mock::{MockHal, presets};
use et_hal_sim::SimHal;
use et_runtime::{Config, Device, Drain, Error, Launch, RecoveryPolicy, Remedy};
use et_sim_device::{Fault, StuckUntil};

const LONG: Duration = Duration::from_secs(20);
const POLICY: RecoveryPolicy = RecoveryPolicy::new().timeout(Duration::from_millis(200));
const COMPUTE: Remedy = Remedy::Reset(ResetScope::Compute);
const OPERATIONS: Remedy = Remedy::Reset(ResetScope::Operations);
const FUNCTION: Remedy = Remedy::Reset(ResetScope::Function);
const SLOT: Remedy = Remedy::Reset(ResetScope::Slot);
const CHIP: Remedy = Remedy::Reset(ResetScope::Chip);

fn device() -> Device<SimHal> {
    device_that_boots_within(LONG)
}

fn device_that_boots_within(limit: Duration) -> Device<SimHal> {
    let hal = SimHal::open("shires=1,dram=256MiB,threads=1".parse().unwrap()).unwrap();
    // Only the policy's own limits are to end a wait.
    Device::open_with(hal, Config::new().watchdog(LONG).boot_timeout(limit)).unwrap()
}

fn inject(device: &Device<SimHal>, fault: Fault) {
    device.hal().board().inject(fault);
}

/// The device copies.
fn works(device: &Device<SimHal>) {
    let buffer = device.alloc(64).unwrap();
    device.default_stream().fill(&buffer, 7).unwrap().wait(LONG).unwrap();
}

fn recovered(device: &mut Device<SimHal>) -> (Vec<Remedy>, Loss) {
    let recovery = device.recover(&POLICY).unwrap();
    works(device);
    assert!(recovery.steps.last().is_none_or(|step| step.outcome.is_ok()));
    (recovery.steps.iter().map(|step| step.remedy).collect(), recovery.lost)
}

#[test]
fn silent_firmware_starts_anew_and_memory_stays() {
    let mut device = device();
    inject(&device, Fault::Hang { after: 0 });
    let (remedies, lost) = recovered(&mut device);
    assert_eq!(remedies, [Remedy::Abort, COMPUTE, OPERATIONS]);
    assert_eq!(lost, Loss { queues: true, compute: true, memory: false });
}

/// Firmware does not say what becomes of the launch, so no one may wait for that.
#[test]
fn a_launch_under_which_the_compute_firmware_traps_or_hangs_ends() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/task_nop.elf");
    let elf = std::fs::read(file).unwrap();
    for (fault, said) in [
        (Fault::ComputeException { nth: 1, hart: 5 }, "hart 5"),
        (Fault::ComputeHang { nth: 1 }, "do not answer"),
    ] {
        let mut device = device();
        let kernel = device.load_kernel("nop", &elf).unwrap();
        inject(&device, fault);
        let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
        let error = event.wait(LONG).unwrap_err();
        // The device may still use the memory of the launch.
        assert!(
            matches!(&error, Error::NeedsReset { scope: ResetScope::Function, why, .. } if why.contains(said)),
            "{error:?}"
        );
        let late = device.abort(&event, LONG).unwrap_err();
        assert!(matches!(late, Error::HasEnded { .. }), "{late:?}");
        let refused = device.default_stream().launch(&Launch::new(&kernel)).map(drop);
        assert!(matches!(refused, Err(Error::NeedsReset { .. })), "{refused:?}");
        assert_eq!(recovered(&mut device).0, [FUNCTION]);
        let kernel = device.load_kernel("nop", &elf).unwrap();
        device.default_stream().launch(&Launch::new(&kernel)).unwrap().wait(LONG).unwrap();
    }
}

/// It would end them, and they would never be answered.
#[test]
fn launches_wait_for_a_reset_that_its_caller_gave_up() {
    let [launches, resets] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let (launched, may_answer) = (Arc::clone(&launches), Arc::clone(&resets));
    let mut withheld = None;
    // A reset is answered together with what comes when it may be.
    let mailbox = presets::answering_mailbox(move |header, command| {
        let mut answers = presets::success(header, command);
        match command {
            Command::CmReset { .. } => withheld = Some(std::mem::take(&mut answers)),
            Command::KernelLaunch(_) => {
                assert!(withheld.is_none(), "the reset ends it");
                launched.fetch_add(1, Ordering::Relaxed);
            }
            _ if may_answer.swap(0, Ordering::Relaxed) != 0 => {
                answers.extend(withheld.take().into_iter().flatten());
            }
            _ => {}
        }
        answers
    });
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    let device = Device::open_with(hal, Config::new().drain(Drain::Caller)).unwrap();
    let elf = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/task_nop.elf");
    let kernel = device.load_kernel("nop", &std::fs::read(elf).unwrap()).unwrap();
    let stream = device.default_stream();
    for before in 0..2 {
        let outcome = device.reset_compute(Duration::ZERO);
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
        let event = stream.launch(&Launch::new(&kernel)).unwrap();
        assert!(matches!(event.wait(Duration::ZERO), Err(Error::Timeout { .. })));
        assert_eq!(launches.load(Ordering::Relaxed), before);
        resets.store(1, Ordering::Relaxed);
        device.stream().fill(&device.alloc(64).unwrap(), 1).unwrap().wait(LONG).unwrap();
        event.wait(LONG).unwrap();
    }
    assert_eq!(launches.load(Ordering::Relaxed), 2);
}

#[test]
fn what_the_policy_forbids_is_not_done() {
    let mut device = device();
    let buffer = device.alloc(64).unwrap();
    inject(&device, Fault::Hang { after: 0 });
    let error = device.recover(&POLICY.widest(ResetScope::Compute)).unwrap_err();
    let remedies: Vec<_> = error.steps.iter().map(|step| step.remedy).collect();
    assert_eq!(remedies, [Remedy::Abort, COMPUTE]);
    assert!(error.steps.iter().all(|step| step.outcome.is_err()));
    assert!(matches!(error.ill, Error::Timeout { .. }), "{error:?}");
    assert_eq!(error.lost, Loss { queues: false, compute: true, memory: false });
    assert!(error.to_string().contains("abort, compute reset"), "{error}");
    // What was made before is still this device's.
    assert!(device.default_stream().fill(&buffer, 1).is_ok());
    assert_eq!(recovered(&mut device).0.last(), Some(&OPERATIONS));
}

#[test]
fn what_cannot_help_is_not_tried() {
    let mut device = device();
    inject(&device, Fault::LinkLoss { after: 0 });
    // It is seen by the first who looks.
    let buffer = device.alloc(64).unwrap();
    let seen = device.default_stream().fill(&buffer, 1).and_then(|event| event.wait(LONG));
    assert!(seen.is_err());
    // Messages reach nothing any more.
    let (remedies, _) = recovered(&mut device);
    assert!(!remedies.contains(&Remedy::Abort) && !remedies.contains(&COMPUTE), "{remedies:?}");
    assert_eq!(remedies.last(), Some(&FUNCTION));
}

#[test]
fn a_silent_service_processor_is_missed_by_those_who_use_it() {
    let mut device = device();
    inject(&device, Fault::SpSilent { after: 0 });
    assert_eq!(recovered(&mut device).0, []);
    device.management().unwrap();
    let (remedies, lost) = recovered(&mut device);
    assert_eq!((remedies, lost.memory), (vec![FUNCTION], false));
    device.management().unwrap().uptime().unwrap();
}

/// The firmware hangs, and does not boot until a reset of this scope.
fn stuck(until: StuckUntil) -> Device<SimHal> {
    // Every reset that does not help takes as long.
    let device = device_that_boots_within(Duration::from_secs(2));
    inject(&device, Fault::Stuck { until });
    inject(&device, Fault::Hang { after: 0 });
    device
}

#[test]
fn a_card_that_a_function_reset_does_not_mend_has_its_slot_reset() {
    let mut device = stuck(StuckUntil::Slot);
    let (remedies, lost) = recovered(&mut device);
    assert_eq!(remedies, [Remedy::Abort, COMPUTE, OPERATIONS, FUNCTION, SLOT]);
    assert_eq!(lost, Loss { queues: true, compute: true, memory: true });
}

/// Only who asks for it.
#[test]
fn the_chip_is_the_last_that_is_reset() {
    let mut device = stuck(StuckUntil::Chip);
    let error = device.recover(&POLICY).unwrap_err();
    let remedies: Vec<_> = error.steps.iter().map(|step| step.remedy).collect();
    assert_eq!(remedies, [Remedy::Abort, COMPUTE, OPERATIONS, FUNCTION, SLOT]);
    assert_eq!(error.lost, Loss { queues: true, compute: true, memory: true });
    let recovery = device.recover(&POLICY.widest(ResetScope::Chip)).unwrap();
    assert_eq!(recovery.steps.last().map(|step| step.remedy), Some(CHIP));
    works(&device);
}

/// What the runtime puts in order after a failed launch, and questions of its own, are no illness.
#[test]
fn what_the_runtime_does_for_itself_is_left_alone() {
    let mut device = device();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/trap_load.elf");
    let kernel = device.load_kernel("trap", &std::fs::read(file).unwrap()).unwrap();
    for _ in 0..100 {
        let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
        assert!(matches!(event.wait(LONG), Err(Error::Launch(_))));
        let recovery = device.recover(&POLICY.timeout(LONG)).unwrap();
        assert!(recovery.ill.is_none() && recovery.steps.is_empty(), "{recovery:?}");
    }
}
