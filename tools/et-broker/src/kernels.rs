//! The thread that launches: one kernel after the other, because the card runs one at a time and
//! everything behind a second one would wait with it. Spec: §9.3

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use et_hal::Hal;
use et_runtime::status::LaunchStatus;
use et_runtime::{Error, Forwarded, Stream};
use et_sim_device::{ForwardedEnd, ForwardedLaunch};

use crate::hub::{Hub, Opened, PAUSE, Running, cycles_since, is_fatal};
use crate::member::aborted;

/// How long a kernel may take to end when it is told to, before the cores are reset.
const ABORT: Duration = Duration::from_secs(10);
/// Limit of a reset of the cores.
const RESET: Duration = Duration::from_secs(10);

/// What ends a wait for a kernel.
enum Waited {
    Ended(ForwardedEnd),
    /// It did not end when it was told to, or the cores are down.
    Hung,
    Failed(Error),
}

/// Launches until the hub is stopped.
pub(crate) fn run<H: Hal>(hub: &Hub<H>) {
    let mut stream = None;
    loop {
        let mut state = hub.state();
        if state.is_stopped {
            return;
        }
        let Some(opened) = state.opened.clone() else {
            drop(state);
            stream = None;
            hub.recover();
            continue;
        };
        let Some((member, launch)) = state.kernels.take_turn() else {
            let waited = hub.launches.wait_timeout(state, PAUSE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        };
        state.running = Some(Running { member, event: None, is_aborted: false });
        drop(state);
        let started = Instant::now();
        let stream = stream.get_or_insert_with(|| hub.stream());
        let (end, failure) = execute(hub, &opened, stream, member, &launch, started);
        let took = started.elapsed();
        let mut state = hub.state();
        state.running = None;
        state.kernels.charge(member, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(counts) = state.members.get_mut(member).map(|member| &mut member.counts) {
            counts.launches += 1;
            counts.kernel_time += took;
        }
        hub.settle(&mut state, member);
        drop(state);
        if let Some(error) = failure {
            hub.fail(&error);
        }
        match end {
            Some(end) => launch.answer(end),
            None => drop(launch),
        }
    }
}

/// Has the card execute a launch; returns how it ended, and why the card cannot be used any more.
fn execute<H: Hal>(
    hub: &Hub<H>,
    opened: &Arc<Opened<H>>,
    stream: &Stream<H>,
    member: usize,
    launch: &ForwardedLaunch,
    started: Instant,
) -> (Option<ForwardedEnd>, Option<Error>) {
    let fixed = launch.launch();
    let request = et_runtime::ForwardedLaunch {
        entry: fixed.entry,
        args: fixed.args,
        exception_buffer: fixed.exception_buffer,
        shire_mask: fixed.shire_mask,
        flush_l3: launch.flush_l3(),
        payload: launch.payload().clone(),
    };
    let Some(buffer) = opened.buffers.get(member) else { return (None, None) };
    let uses = [buffer.whole()];
    let mut sent = stream.forward(&request, &uses);
    if matches!(sent, Err(Error::NeedsReset { .. })) {
        // Left by a kernel before, of whomever.
        if let Err(error) = hub.device().reset_compute(RESET) {
            return (None, Some(error));
        }
        sent = stream.forward(&request, &uses);
    }
    let forwarded = match sent {
        Ok(forwarded) => forwarded,
        Err(error) => return (None, is_fatal(&error).then_some(error)),
    };
    match wait(hub, &forwarded, started, member) {
        Waited::Ended(end) => (Some(end), None),
        Waited::Failed(error) => (None, Some(error)),
        Waited::Hung => {
            tracing::warn!(member, "a kernel does not end; the cores are reset");
            let failure = hub.device().reset_compute(RESET).err();
            // It has run, so that its client does not send it again.
            (Some(aborted(cycles_since(started, hub.frequency_mhz))), failure)
        }
    }
}

fn wait<H: Hal>(hub: &Hub<H>, launch: &Forwarded, started: Instant, member: usize) -> Waited {
    let event = launch.event();
    let mut asked: Option<Instant> = None;
    {
        let mut state = hub.state();
        if let Some(running) = &mut state.running {
            running.event = Some(event.clone());
            asked = running.is_aborted.then(Instant::now);
        }
    }
    if asked.is_some() {
        hub.request_abort(event);
    }
    loop {
        let end = asked.map(|asked| asked + ABORT);
        let end = end.or_else(|| hub.kernel_limit.map(|limit| started + limit));
        let left =
            end.map_or(PAUSE, |end| end.saturating_duration_since(Instant::now()).min(PAUSE));
        let error = match launch.wait(left) {
            Ok(answer) => {
                let execute = answer.times.execute;
                let (status, error) = (answer.status, answer.error);
                return Waited::Ended(ForwardedEnd { status, error, execute });
            }
            Err(error) => error,
        };
        match error {
            Error::Timeout { .. } if event.outcome().is_none() => {}
            Error::Aborted { .. } | Error::AbortedWith { .. } => {
                return Waited::Ended(aborted(cycles_since(started, hub.frequency_mhz)));
            }
            Error::NeedsReset { .. } => return Waited::Hung,
            error if is_fatal(&error) => return Waited::Failed(error),
            error => {
                tracing::warn!(%error, "a launch was not executed");
                let status = LaunchStatus::CmMulticastFailed;
                return Waited::Ended(ForwardedEnd { status, error: None, execute: 0 });
            }
        }
        let (is_aborted, is_stopped) = {
            let state = hub.state();
            let is_aborted = state.running.as_ref().is_some_and(|running| running.is_aborted);
            (is_aborted, state.is_stopped)
        };
        if is_aborted || is_stopped {
            asked.get_or_insert_with(|| {
                hub.request_abort(event);
                Instant::now()
            });
        }
        let is_over = |limit: Duration| started.elapsed() >= limit;
        if asked.is_none() && hub.kernel_limit.is_some_and(is_over) {
            tracing::info!(member, "a kernel has run too long");
            if let Some(member) = hub.state().members.get_mut(member) {
                member.counts.overdue += 1;
            }
            hub.request_abort(event);
            asked = Some(Instant::now());
        }
        if asked.is_some_and(|asked| asked.elapsed() >= ABORT) {
            return Waited::Hung;
        }
    }
}
