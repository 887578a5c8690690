//! What stands behind the function of a client.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use et_hal::Hal;
use et_sim_device::{ForwardedCopy, ForwardedEnd, ForwardedLaunch, MemoryAfterReset, Parent, Wake};

use crate::hub::{CopyJob, Hub, State};

/// Limit of a client's management command.
const QUERY: Duration = Duration::from_secs(5);

/// One slot of a hub.
pub(crate) struct Seat<H: Hal> {
    pub(crate) hub: Arc<Hub<H>>,
    pub(crate) index: usize,
}

impl<H: Hal> fmt::Debug for Seat<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<H: Hal> Seat<H> {
    /// Takes note that the partition is written from now on; none if the card has failed.
    fn to_write(&self) -> Option<MutexGuard<'_, State<H>>> {
        let mut state = self.hub.state();
        state.opened.as_ref()?;
        state.members.get_mut(self.index)?.is_dirty = true;
        Some(state)
    }
}

impl<H: Hal> Parent for Seat<H> {
    fn partition(&self) -> Range<u64> {
        self.hub.state().members.get(self.index).map_or(0..0, |member| member.partition.clone())
    }

    fn is_ready(&self) -> bool {
        self.hub.state().members.get(self.index).is_some_and(|member| member.is_ready)
    }

    fn reset(&self, memory: MemoryAfterReset, wake: Wake) {
        let mut state = self.hub.state();
        let jobs = (state.kernels.drain(self.index), state.copies.drain(self.index));
        let event = state.end_running(self.index);
        let Some(member) = state.members.get_mut(self.index) else { return };
        member.wake = Some(wake);
        member.is_ready = false;
        member.is_ending = true;
        // A partition that was to be cleared still is, if a second reset comes meanwhile.
        let is_left = memory == MemoryAfterReset::Cleared && member.is_dirty;
        member.is_to_clear |= is_left && !self.hub.keeps_memory;
        self.hub.settle(&mut state, self.index);
        drop(state);
        // Nothing of it was begun, so no one waits for the answers.
        drop(jobs);
        if let Some(event) = event {
            self.hub.request_abort(&event);
        }
    }

    fn launch(&self, launch: ForwardedLaunch) {
        let Some(mut state) = self.to_write() else { return };
        state.kernels.push(self.index, launch);
        drop(state);
        self.hub.launches.notify_all();
    }

    fn abort_launch(&self) {
        let mut state = self.hub.state();
        let waiting = state.kernels.drain(self.index);
        let event = state.end_running(self.index);
        drop(state);
        for launch in waiting {
            launch.answer(aborted(0));
        }
        if let Some(event) = event {
            self.hub.request_abort(&event);
        }
    }

    fn copy(&self, copy: ForwardedCopy) {
        let Some(mut state) = self.to_write() else { return };
        state.copies.push(self.index, CopyJob::Piece(Box::new(copy)));
        drop(state);
        self.hub.copies.notify_one();
    }

    fn query(&self, id: u16, payload: &[u8]) -> Option<(i32, Vec<u8>)> {
        let management = self.hub.state().opened.as_ref()?.management.clone()?;
        let answer = management.with_timeout(QUERY).forward(id, payload, "query of a client");
        match answer {
            Ok(answer) => Some((answer.status, answer.payload.to_vec())),
            Err(error) => {
                tracing::debug!(id, %error, "query of a client");
                None
            }
        }
    }
}

/// The end of a launch that was aborted, after so many cycles.
pub(crate) fn aborted(execute: u64) -> ForwardedEnd {
    let status = et_runtime::status::LaunchStatus::HostAborted;
    ForwardedEnd::without_details(status, execute)
}
