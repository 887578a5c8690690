//! Running graphs.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use et::AnyHal;
use et::executor::{
    DeviceExecutor, ExecutorConfig, Flow, Outcome, Place, Run, RunOptions, TaskState, TraceDetail,
};
use et::graph::TaskId;

use crate::call::{guard, may_close, timeout};
use crate::device::{self, et_device, no_such};
use crate::event::{Callback, et_callback};
use crate::graph::et_graph;
use crate::memory::{self, et_mem};
use crate::profile::{self, et_profile};
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status, status_of_task};
use crate::table::{self, handle};

/// What runs graphs on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_executor {
    /// A number to be looked up; 0 is no executor.
    pub id: u64,
}

handle!(et_executor, 13, DeviceExecutor<AnyHal>);

/// A launched graph.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_run {
    /// A number to be looked up; 0 is no run.
    pub id: u64,
}

handle!(et_run, 14, Run);

/// Graphs that follow one another task by task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_flow {
    /// A number to be looked up; 0 is no flow.
    pub id: u64,
}

handle!(et_flow, 23, Flow);

/// Who schedules kernels, and what runs them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_place {
    /// The first of the others that can run the graph: resident, cores, streams.
    ET_PLACE_AUTO = 0,
    /// Single harts, scheduled by the host.
    ET_PLACE_CORES = 1,
    /// Single harts, scheduled by one of them.
    ET_PLACE_RESIDENT = 2,
    /// Each task is a launch.
    ET_PLACE_STREAMS = 3,
}

/// Options of an executor; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_executor_options {
    /// `sizeof(et_executor_options)`.
    pub size: usize,
    /// Shires whose harts are workers.
    pub shire_mask: u64,
    /// How long kernels may go on when the executor is freed.
    pub close_grace_ns: u64,
    /// An `et_place`.
    pub place: u32,
    /// Most host threads for host functions.
    pub workers: u32,
    /// Harts that run tasks.
    pub cores: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_executor_options {
    const FIRST: usize = size_of::<Self>();
}

/// Options of a run; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_run_options {
    /// `sizeof(et_run_options)`.
    pub size: usize,
    /// Ends the run so long after its launch.
    pub deadline_ns: u64,
    /// If not 0, it is recorded when each task runs, for `et_run_write_profile`.
    pub trace: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_run_options {
    const FIRST: usize = std::mem::offset_of!(Self, trace);
}

/// How much of a recorded run is written.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_trace_detail {
    /// When each task ran and on which worker, and the dependencies.
    ET_DETAIL_TASKS = 0,
    /// Also where each task waited: for a worker, and in the hands of one.
    ET_DETAIL_PHASES = 1,
    /// Also how many tasks wait for a worker over time, and how many workers do nothing although
    /// some do.
    ET_DETAIL_OVERHEAD = 2,
}

/// Where a task is. It only goes forward.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_task_state {
    /// It waits for others.
    ET_TASK_WAITING = 1,
    /// It can run.
    ET_TASK_READY = 2,
    /// The device schedules it.
    ET_TASK_DELEGATED = 3,
    /// A worker has it.
    ET_TASK_RUNNING = 4,
    /// It has run, and what it wrote is there for the tasks behind it; for the host when the run
    /// has ended.
    ET_TASK_EXECUTED = 5,
    /// It has run, and what it wrote can be used. Final.
    ET_TASK_DONE = 6,
    /// It failed. Final.
    ET_TASK_FAILED_ITSELF = 7,
    /// It was cancelled. Final.
    ET_TASK_CANCELLED = 8,
    /// A task it waits for failed or was cancelled. Final.
    ET_TASK_NOT_RUN = 9,
    /// Its condition was false: it did not run, and those behind it go on. Final.
    ET_TASK_SKIPPED = 10,
}

/// Makes an executor. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_executor_create(
    device: et_device,
    options: *const et_executor_options,
    executor: Option<&mut MaybeUninit<et_executor>>,
) -> et_status {
    guard(|| {
        may_close()?;
        let out = raw::wanted(executor, "executor")?;
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let config = config(&options)?;
        let made = device::with(device, |device| Ok(device.executor(&config)?))?;
        out.write(table::insert(made)?);
        Ok(())
    })
}

fn config(options: &et_executor_options) -> Result<ExecutorConfig, Failure> {
    let places = [
        (et_place::ET_PLACE_AUTO, Place::Auto),
        (et_place::ET_PLACE_CORES, Place::Cores),
        (et_place::ET_PLACE_RESIDENT, Place::Resident),
        (et_place::ET_PLACE_STREAMS, Place::Streams),
    ];
    let place = places.into_iter().find(|(number, _)| *number as u32 == options.place);
    let unknown = || {
        let why = format!("there is no place {}", options.place);
        Failure::new(et_status::ET_INVALID, why)
    };
    let mut config = ExecutorConfig::new().place(place.ok_or_else(unknown)?.1);
    if options.workers != 0 {
        config = config.workers(options.workers);
    }
    if options.cores != 0 {
        config = config.cores(options.cores);
    }
    if options.shire_mask != 0 {
        config = config.shires(options.shire_mask);
    }
    if options.close_grace_ns != 0 {
        config = config.close_grace(Duration::from_nanos(options.close_grace_ns));
    }
    Ok(config)
}

/// Frees an executor: cancels what has not started, and stops what runs after a while.
#[unsafe(no_mangle)]
pub extern "C" fn et_executor_free(executor: et_executor) -> et_status {
    guard(|| {
        may_close()?;
        table::remove(executor)
    })
}

/// Launches a graph. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_graph_launch(
    executor: et_executor,
    graph: et_graph,
    options: *const et_run_options,
    run: Option<&mut MaybeUninit<et_run>>,
) -> et_status {
    guard(|| {
        // The executor may be freed meanwhile, so that this thread ends it.
        may_close()?;
        let out = raw::wanted(run, "run")?;
        // SAFETY: promised by the caller.
        let given = unsafe { raw::options(options, "options") }?;
        let graph = table::get(graph)?;
        let made = table::get(executor)?.launch_with(&graph, run_options(&given))?;
        out.write(table::insert(made)?);
        Ok(())
    })
}

fn run_options(given: &et_run_options) -> RunOptions {
    let mut options = RunOptions::new();
    if given.deadline_ns != 0 {
        options = options.deadline(Duration::from_nanos(given.deadline_ns));
    }
    if given.trace != 0 {
        options = options.traced();
    }
    options
}

/// Makes a flow: a task of a graph that is launched in it begins as soon as those of earlier graphs
/// of the flow have ended that use what it uses. Tasks that depend on one that did not complete
/// fail, until `et_flow_finish` has said what went wrong. Of use as long as the executor.
#[unsafe(no_mangle)]
pub extern "C" fn et_flow_create(
    executor: et_executor,
    flow: Option<&mut MaybeUninit<et_flow>>,
) -> et_status {
    guard(|| {
        // As in a launch.
        may_close()?;
        let out = raw::wanted(flow, "flow")?;
        out.write(table::insert(table::get(executor)?.flow())?);
        Ok(())
    })
}

/// Frees a flow. What was launched goes on.
#[unsafe(no_mangle)]
pub extern "C" fn et_flow_free(flow: et_flow) -> et_status {
    guard(|| table::remove(flow))
}

/// Launches a graph behind those of the flow. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_flow_launch(
    flow: et_flow,
    graph: et_graph,
    options: *const et_run_options,
    run: Option<&mut MaybeUninit<et_run>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(run, "run")?;
        // SAFETY: promised by the caller.
        let given = unsafe { raw::options(options, "options") }?;
        let graph = table::get(graph)?;
        let made = table::get(flow)?.launch_with(&graph, run_options(&given))?;
        out.write(table::insert(made)?);
        Ok(())
    })
}

/// Makes a run that ends when all that the flow writes to some bytes by now is written; it fails if
/// that did not complete.
#[unsafe(no_mangle)]
pub extern "C" fn et_flow_settled(
    flow: et_flow,
    mem: et_mem,
    offset: u64,
    bytes: u64,
    run: Option<&mut MaybeUninit<et_run>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(run, "run")?;
        let slice = memory::slice(mem, offset, bytes)?;
        out.write(table::insert(table::get(flow)?.settled(slice)?)?);
        Ok(())
    })
}

/// Waits until all that was launched in the flow has ended, for at most `timeout_ns`; later tasks
/// depend on none of it. Returns what `et_run_wait` would for the first graph that did not end
/// well.
#[unsafe(no_mangle)]
pub extern "C" fn et_flow_finish(flow: et_flow, timeout_ns: u64) -> et_status {
    guard(|| Ok(table::get(flow)?.finish(timeout(timeout_ns)?)?))
}

/// Waits until a run has ended, for at most `timeout_ns`; 0 only looks. Returns `ET_OK` if all
/// tasks have run, `ET_TASK_FAILED` and `ET_CANCELLED` if not, and `ET_TIMEOUT`, which cancels
/// nothing.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_wait(run: et_run, timeout_ns: u64) -> et_status {
    guard(|| Ok(table::get(run)?.finish(timeout(timeout_ns)?).map(drop)?))
}

/// Returns how many tasks have ended, in any way, and how many there are. Either may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_progress(
    run: et_run,
    ended: Option<&mut MaybeUninit<usize>>,
    tasks: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let (now, all) = table::get(run)?.progress();
        raw::store(ended, now);
        raw::store(tasks, all);
        Ok(())
    })
}

/// Returns where a task is, an `et_task_state`.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_task_state(
    run: et_run,
    task: u32,
    state: Option<&mut MaybeUninit<et_task_state>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(state, "state")?;
        let run = table::get(run)?;
        if task as usize >= run.progress().1 {
            return Err(no_such("task", task as usize));
        }
        out.write(match run.state(TaskId::from_index(task)) {
            TaskState::Waiting => et_task_state::ET_TASK_WAITING,
            TaskState::Ready => et_task_state::ET_TASK_READY,
            TaskState::Delegated => et_task_state::ET_TASK_DELEGATED,
            TaskState::Staged | TaskState::Running => et_task_state::ET_TASK_RUNNING,
            TaskState::Executed => et_task_state::ET_TASK_EXECUTED,
            TaskState::Complete => et_task_state::ET_TASK_DONE,
            TaskState::Failed => et_task_state::ET_TASK_FAILED_ITSELF,
            TaskState::Cancelled => et_task_state::ET_TASK_CANCELLED,
            TaskState::DependencyFailed => et_task_state::ET_TASK_NOT_RUN,
            TaskState::Skipped => et_task_state::ET_TASK_SKIPPED,
        });
        Ok(())
    })
}

/// Cancels what has not started.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_cancel(run: et_run) -> et_status {
    guard(|| {
        table::get(run)?.cancel();
        Ok(())
    })
}

/// Has a function called when a run has ended, at once if it has.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_on_done(
    run: et_run,
    callback: et_callback,
    user: *mut c_void,
) -> et_status {
    guard(|| {
        let callback = Callback::new(callback, user)?;
        table::get(run)?.on_done(move |outcome| {
            let status = outcome
                .check()
                .map_or_else(|error| Failure::from(error).status, |()| et_status::ET_OK);
            callback.call(status);
        });
        Ok(())
    })
}

/// Returns one of the tasks that failed by themselves, by its index from 0 in the order in which
/// they did: which task, its status and its message. `ET_NOT_READY` before the run has ended,
/// `ET_OUT_OF_BOUNDS` if there are not as many. `task`, `status` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_run_failure(
    run: et_run,
    index: usize,
    task: Option<&mut MaybeUninit<u32>>,
    status: Option<&mut MaybeUninit<et_status>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let outcome = outcome(run)?;
        let failed = outcome.failures().get(index);
        let (id, failure) = failed.ok_or_else(|| no_such("failure", index))?;
        raw::store(task, u32::try_from(id.index()).unwrap_or(u32::MAX));
        raw::store(status, status_of_task(failure));
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&et::Report(failure).to_string(), buffer, capacity, needed) }
    })
}

fn outcome(run: et_run) -> Result<Arc<Outcome>, Failure> {
    let not_ready = || Failure::new(et_status::ET_NOT_READY, "the run has not ended");
    table::get(run)?.outcome().ok_or_else(not_ready)
}

/// Writes a run that has ended as a file that Perfetto and Chrome open, and `et report`: when each
/// task ran and on which worker, as far as an `et_trace_detail` says, if its options asked for a
/// trace; besides, what did not succeed and why, and what was skipped. With a recording of the
/// device from before the launch to the end, how much of its memory was in use meanwhile; a
/// recording of which the id is 0 is none. `ET_NOT_READY` before the run has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_run_write_profile(
    run: et_run,
    detail: u32,
    recorded: et_profile,
    path: *const c_char,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let path = unsafe { raw::text(path, "path") }?;
        let detail = trace_detail(detail)?;
        let recorded = match recorded.id {
            0 => None,
            _ => Some(Arc::clone(&table::get(recorded)?.0)),
        };
        let outcome = outcome(run)?;
        profile::write_file(path, |out| match &recorded {
            Some(recorded) => outcome.write_chrome_json_with_memory(detail, recorded, out),
            None => outcome.write_chrome_json_with(detail, out),
        })
    })
}

fn trace_detail(number: u32) -> Result<TraceDetail, Failure> {
    let all = [
        (et_trace_detail::ET_DETAIL_TASKS, TraceDetail::Tasks),
        (et_trace_detail::ET_DETAIL_PHASES, TraceDetail::Phases),
        (et_trace_detail::ET_DETAIL_OVERHEAD, TraceDetail::Overhead),
    ];
    let found = all.into_iter().find(|(detail, _)| *detail as u32 == number);
    let unknown = || Failure::new(et_status::ET_INVALID, format!("there is no detail {number}"));
    Ok(found.ok_or_else(unknown)?.1)
}

/// Frees a run, which goes on.
#[unsafe(no_mangle)]
pub extern "C" fn et_run_free(run: et_run) -> et_status {
    guard(|| table::remove(run))
}
