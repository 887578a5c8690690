//! Getting a device to work again.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use et::hal::{Loss, ResetScope};
use et::{RecoveryPolicy, RecoveryStep, Remedy};

use crate::call::guard;
use crate::device::{self, et_device, no_such};
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status, status_of};
use crate::table::{self, handle};

/// What was done about a device that did not work.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_recovery {
    /// A number to be looked up; 0 is no recovery.
    pub id: u64,
}

handle!(et_recovery, 24, Done);

/// A recovery, whether it helped or not.
#[derive(Debug)]
pub(crate) struct Done {
    ill: Option<et::Error>,
    steps: Vec<RecoveryStep>,
    lost: Loss,
}

/// Something that can be done about a device that does not work, from the gentlest to the most
/// violent.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_remedy {
    /// All work in flight is aborted.
    ET_REMEDY_ABORT = 1,
    /// A reset of the cores, as by `et_device_reset_compute`.
    ET_REMEDY_COMPUTE_RESET = 2,
    /// A reset of the operations firmware, as by `et_device_reset_operations`.
    ET_REMEDY_OPERATIONS_RESET = 3,
    /// A reset of the PCI function, as by `et_device_reset`.
    ET_REMEDY_FUNCTION_RESET = 4,
    /// A reset of everything behind the slot.
    ET_REMEDY_SLOT_RESET = 5,
    /// A reset of the whole chip, as by `et_device_reset_chip`.
    ET_REMEDY_CHIP_RESET = 6,
}

/// What `et_device_recover` may do; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_recovery_policy {
    /// `sizeof(et_recovery_policy)`.
    pub size: usize,
    /// Limit of each remedy, and of each check after it; 0 for 5 s.
    pub timeout_ns: u64,
    /// An `et_remedy`: the widest reset that is allowed; 0 for `ET_REMEDY_SLOT_RESET`.
    pub widest: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_recovery_policy {
    const FIRST: usize = size_of::<Self>();
}

/// What a recovery was about and what it has cost.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_recovery_info {
    /// `sizeof(et_recovery_info)`, set by the caller.
    pub size: usize,
    /// Number of the steps. If the recovery helped, the last one did.
    pub steps: usize,
    /// An `et_status`: what was wrong, or is still if nothing helped; `ET_OK` if the device worked.
    pub ill: u32,
    /// 1 if work in flight and queues may be lost, and every handle of before is stale.
    pub lost_queues: u32,
    /// 1 if the state of the cores may be lost.
    pub lost_compute: u32,
    /// 1 if the contents of device memory may be lost.
    pub lost_memory: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_recovery_info {
    const FIRST: usize = size_of::<Self>();
}

/// A step of a recovery.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_recovery_step {
    /// `sizeof(et_recovery_step)`, set by the caller.
    pub size: usize,
    /// How long it took, with the check after it.
    pub took_ns: u64,
    /// An `et_remedy`: what was done; 0 for one that this version does not know.
    pub remedy: u32,
    /// An `et_status`: `ET_OK` if the device works since, else what is wrong with it.
    pub status: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_recovery_step {
    const FIRST: usize = size_of::<Self>();
}

/// The number of a remedy, 0 for one that this version does not know.
fn number_of(remedy: Remedy) -> u32 {
    let remedy = match remedy {
        Remedy::Abort => et_remedy::ET_REMEDY_ABORT,
        Remedy::Reset(ResetScope::Compute) => et_remedy::ET_REMEDY_COMPUTE_RESET,
        Remedy::Reset(ResetScope::Operations) => et_remedy::ET_REMEDY_OPERATIONS_RESET,
        Remedy::Reset(ResetScope::Function) => et_remedy::ET_REMEDY_FUNCTION_RESET,
        Remedy::Reset(ResetScope::Slot) => et_remedy::ET_REMEDY_SLOT_RESET,
        Remedy::Reset(ResetScope::Chip) => et_remedy::ET_REMEDY_CHIP_RESET,
        _ => return 0,
    };
    remedy as u32
}

fn policy(from: &et_recovery_policy) -> Result<RecoveryPolicy, Failure> {
    const SCOPES: [ResetScope; 5] = [
        ResetScope::Compute,
        ResetScope::Operations,
        ResetScope::Function,
        ResetScope::Slot,
        ResetScope::Chip,
    ];
    let mut policy = RecoveryPolicy::new();
    if from.timeout_ns != 0 {
        policy = policy.timeout(Duration::from_nanos(from.timeout_ns));
    }
    if from.widest != 0 {
        let scope = SCOPES.into_iter().find(|&it| number_of(Remedy::Reset(it)) == from.widest);
        let none = || {
            let why = format!("policy.widest is {}, which is no reset", from.widest);
            Failure::new(et_status::ET_INVALID, why)
        };
        policy = policy.widest(scope.ok_or_else(none)?);
    }
    Ok(policy)
}

/// Makes a device work again, with the gentlest remedy that helps: an abort of all work in flight,
/// then wider and wider resets as far as the policy allows. After each it is checked whether the
/// device works. One that works and has nothing in flight is left alone.
///
/// `policy` may be null. If nothing helps, returns what is wrong still; the device is closed then,
/// or does not work, and a later call may try more. `recovery`, which may be null, is written in
/// both cases, and is to be freed; after every other failure its `id` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_recover(
    device: et_device,
    policy: *const et_recovery_policy,
    recovery: Option<&mut MaybeUninit<et_recovery>>,
) -> et_status {
    guard(|| {
        let out = recovery.map(|out| out.write(et_recovery { id: 0 }));
        // SAFETY: promised by the caller.
        let policy = self::policy(&unsafe { raw::options(policy, "policy") }?)?;
        let (done, outcome) =
            device::with_own(device, "recover", |device| match device.recover(&policy) {
                Ok(done) => (Done { ill: done.ill, steps: done.steps, lost: done.lost }, Ok(())),
                Err(error) => {
                    let failure = Failure::of(status_of(&error.ill), &error);
                    let (ill, steps, lost) = (Some(error.ill), error.steps, error.lost);
                    (Done { ill, steps, lost }, Err(failure))
                }
            })?;
        if let Some(out) = out {
            *out = table::insert(done)?;
        }
        outcome
    })
}

fn step(done: &Done, index: usize) -> Result<&RecoveryStep, Failure> {
    done.steps.get(index).ok_or_else(|| no_such("step", index))
}

fn text_of(error: Option<&et::Error>) -> String {
    error.map_or_else(String::new, |error| et::Report(error).to_string())
}

/// Returns what a recovery was about and what it has cost. The caller sets `info->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_recovery_get(
    recovery: et_recovery,
    info: *mut et_recovery_info,
) -> et_status {
    guard(|| {
        let done = table::get(recovery)?;
        let value = et_recovery_info {
            size: 0,
            steps: done.steps.len(),
            ill: done.ill.as_ref().map_or(et_status::ET_OK, status_of) as u32,
            lost_queues: done.lost.queues.into(),
            lost_compute: done.lost.compute.into(),
            lost_memory: done.lost.memory.into(),
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, info, "info") }
    })
}

/// Returns what was wrong, or is still if nothing helped, with all causes; an empty text if the
/// device worked. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_recovery_message(
    recovery: et_recovery,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let text = text_of(table::get(recovery)?.ill.as_ref());
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}

/// Returns a step, by its index from 0. The caller sets `step->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_recovery_step_get(
    recovery: et_recovery,
    index: usize,
    step: *mut et_recovery_step,
) -> et_status {
    guard(|| {
        let done = table::get(recovery)?;
        let found = self::step(&done, index)?;
        let value = et_recovery_step {
            size: 0,
            took_ns: u64::try_from(found.took.as_nanos()).unwrap_or(u64::MAX),
            remedy: number_of(found.remedy),
            status: found.outcome.as_ref().map_or_else(status_of, |()| et_status::ET_OK) as u32,
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, step, "step") }
    })
}

/// Returns what is wrong after a step, with all causes; an empty text if the device works since.
/// `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_recovery_step_message(
    recovery: et_recovery,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let done = table::get(recovery)?;
        let text = text_of(step(&done, index)?.outcome.as_ref().err());
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}

/// Frees what is known of a recovery.
#[unsafe(no_mangle)]
pub extern "C" fn et_recovery_free(recovery: et_recovery) -> et_status {
    guard(|| table::remove(recovery))
}
