//! Events.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use et::{Error, Event, EventState, Timeline};

use crate::call::{Inside, guard, inside, timeout};
use crate::failure::et_failure;
use crate::memory::Arrival;
use crate::raw::{self, Growing, User};
use crate::status::{Failure, et_status, status_of};
use crate::table::{self, handle};

/// The end of an operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_event {
    /// A number to be looked up; 0 is no event.
    pub id: u64,
}

/// An event, and the copy to memory of the caller that its end allows.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    event: Event,
    arrival: Option<Arc<Arrival>>,
}

impl Completion {
    pub(crate) fn new(event: Event) -> Self {
        Self { event, arrival: None }
    }

    pub(crate) fn of_arrival(event: Event, arrival: Arrival) -> Self {
        Self { event, arrival: Some(Arc::new(arrival)) }
    }

    /// The event, for those who do not need what arrives.
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }

    /// What belongs to a good end.
    fn finish(&self) -> Result<(), Failure> {
        self.arrival.as_ref().map_or(Ok(()), |arrival| arrival.finish())
    }
}

handle!(et_event, 5, Completion);

/// When an operation was where. Host times are nanoseconds since the device was opened, device
/// times are cycles.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_timeline {
    /// `sizeof(et_timeline)`, set by the caller.
    pub size: usize,
    /// The call was made.
    pub queued_ns: u64,
    /// The first command was sent.
    pub sent_ns: u64,
    /// The last answer came.
    pub completed_ns: u64,
    /// The device took the first command; 0 if it does not say, as below.
    pub device_start_cycles: u64,
    /// How long it waited in the device.
    pub device_wait_cycles: u64,
    /// How long it was executed.
    pub device_execute_cycles: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_timeline {
    const FIRST: usize = size_of::<Self>();
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// To be called at the end of something, in whichever thread sees it. It must not wait, and must
/// not throw.
pub type et_callback = Option<unsafe extern "C" fn(user: *mut c_void, status: et_status)>;

/// A callback that is there, with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(*mut c_void, et_status),
    user: User,
}

impl Callback {
    pub(crate) fn new(callback: et_callback, user: *mut c_void) -> Result<Self, Failure> {
        let null = || Failure::new(et_status::ET_NULL_POINTER, "callback is null");
        Ok(Self { function: callback.ok_or_else(null)?, user: User::new(user) })
    }

    pub(crate) fn call(self, status: et_status) {
        let (function, user) = (self.function, self.user.get());
        // SAFETY: the caller gave a function that may be called with this pointer on any thread.
        inside(Inside::Completion, || unsafe { function(user, status) });
    }
}

/// Waits for an operation, for at most `timeout_ns`; 0 only looks. Returns the status of the
/// operation, or `ET_TIMEOUT`, which cancels nothing. `timeline` may be null.
///
/// Any number of threads may wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_event_wait(
    event: et_event,
    timeout_ns: u64,
    timeline: *mut et_timeline,
) -> et_status {
    guard(|| {
        let event = table::get(event)?;
        let times = event.event.wait(timeout(timeout_ns)?)?;
        event.finish()?;
        // SAFETY: promised by the caller.
        unsafe { put_timeline(&times, timeline) }
    })
}

/// Gives times to a caller who wants them.
///
/// # Safety
/// - As [`raw::put`].
unsafe fn put_timeline(times: &Timeline, to: *mut et_timeline) -> Result<(), Failure> {
    if to.is_null() {
        return Ok(());
    }
    let value = et_timeline {
        size: 0,
        queued_ns: nanoseconds(times.queued),
        sent_ns: nanoseconds(times.sent),
        completed_ns: nanoseconds(times.completed),
        device_start_cycles: times.device.map_or(0, |device| device.start),
        device_wait_cycles: times.device.map_or(0, |device| device.wait),
        device_execute_cycles: times.device.map_or(0, |device| device.execute),
    };
    // SAFETY: promised by the caller.
    unsafe { raw::put(&value, to, "timeline") }
}

/// Returns the status of an operation without waiting: `ET_NOT_READY` before it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_status(event: et_event) -> et_status {
    guard(|| {
        let event = table::get(event)?;
        // Also takes what has arrived.
        if !event.event.is_done() {
            return Err(Failure::new(et_status::ET_NOT_READY, "the operation has not ended"));
        }
        event.event.outcome().transpose()?;
        event.finish()
    })
}

/// Returns the number of the operation, which no other one of the device ever has.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_operation(
    event: et_event,
    operation: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(operation, "operation")?;
        out.write(table::get(event)?.event.id());
        Ok(())
    })
}

/// Has a function called when the operation has ended, at once if it has. It is called exactly
/// once, whether or not the event is freed before.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_on_done(
    event: et_event,
    callback: et_callback,
    user: *mut c_void,
) -> et_status {
    guard(|| {
        let callback = Callback::new(callback, user)?;
        let event = table::get(event)?;
        let its = event.clone();
        event.event.on_done(move |outcome| {
            callback.call(match outcome {
                Ok(_) => its.finish().map_or_else(|failure| failure.status, |()| et_status::ET_OK),
                Err(error) => status_of(error),
            });
        });
        Ok(())
    })
}

/// Where an operation is. It only goes forward.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_event_state {
    /// It waits for others, or for room.
    ET_EVENT_QUEUED = 0,
    /// The device has been sent it, or the first part of it.
    ET_EVENT_READY = 1,
    /// The device has answered, and the host is not done with that: a kernel has failed, and its
    /// report is fetched.
    ET_EVENT_EXECUTED = 2,
    /// It has ended well.
    ET_EVENT_COMPLETE = 3,
    /// It has failed.
    ET_EVENT_FAILED = 4,
}

impl From<EventState> for et_event_state {
    fn from(state: EventState) -> Self {
        match state {
            EventState::Queued => Self::ET_EVENT_QUEUED,
            EventState::Executed => Self::ET_EVENT_EXECUTED,
            EventState::Complete => Self::ET_EVENT_COMPLETE,
            EventState::Failed => Self::ET_EVENT_FAILED,
            // Any other that there may be once lies between being sent and the end.
            _ => Self::ET_EVENT_READY,
        }
    }
}

/// Returns how far an operation is, without waiting.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_state_get(
    event: et_event,
    state: Option<&mut MaybeUninit<et_event_state>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(state, "state")?;
        out.write(table::get(event)?.event.state().into());
        Ok(())
    })
}

/// To be called when an operation is somewhere, as `et_callback` is at its end.
pub type et_state_callback = Option<unsafe extern "C" fn(user: *mut c_void, state: et_event_state)>;

/// Has a function called once the operation is in `state`, an `et_event_state`, or a later one, at
/// once if it is already; it gets the state. It is called exactly once, whether or not the event
/// is freed before.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_on_state(
    event: et_event,
    state: u32,
    callback: et_state_callback,
    user: *mut c_void,
) -> et_status {
    guard(|| {
        let null = || Failure::new(et_status::ET_NULL_POINTER, "callback is null");
        let (function, user) = (callback.ok_or_else(null)?, User::new(user));
        let all = EventState::ALL;
        let found = all.into_iter().find(|known| et_event_state::from(*known) as u32 == state);
        let none = || Failure::new(et_status::ET_INVALID, format!("there is no state {state}"));
        let state = found.ok_or_else(none)?;
        let event = table::get(event)?;
        event.event.on_state(state, move |state| {
            let user = user.get();
            // SAFETY: the caller gave a function that may be called with this pointer on any
            // thread.
            inside(Inside::Completion, || unsafe { function(user, state.into()) });
        });
        Ok(())
    })
}

/// Returns the details of a failed launch; `ET_INVALID` if the operation is none or did not fail.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_failure(
    event: et_event,
    failure: Option<&mut MaybeUninit<et_failure>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(failure, "failure")?;
        let outcome = table::get(event)?.event.outcome();
        let Some(Err(Error::Launch(failure))) = outcome else {
            let why = "the operation is no launch that failed";
            return Err(Failure::new(et_status::ET_INVALID, why));
        };
        out.write(table::insert(Arc::clone(&failure))?);
        Ok(())
    })
}

/// Returns the number with which the device answered a copy or launch that it failed or refused
/// (interface specification, sections 7.6 and 7.8); `ET_INVALID` if the operation has no such
/// answer.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_device_status(
    event: et_event,
    status: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(status, "status")?;
        out.write(match table::get(event)?.event.outcome() {
            Some(Err(Error::Launch(failure))) => failure.status.into(),
            Some(Err(Error::Copy { status, .. })) => status.into(),
            _ => {
                let why = "the operation is no copy or launch that the device failed";
                return Err(Failure::new(et_status::ET_INVALID, why));
            }
        });
        Ok(())
    })
}

/// Frees an event. The operation goes on; if it fails and no call has heard of that, the failure is
/// in the stream's list of errors.
#[unsafe(no_mangle)]
pub extern "C" fn et_event_free(event: et_event) -> et_status {
    guard(|| table::remove(event))
}
