//! Kernels on single harts, scheduled by the host through mapped device memory.
//!
//! The harts come with the first task, stay while there are tasks and a little longer, and leave
//! when told to: each worker sees the word in its cell, those that sleep are woken by the
//! coordinator, which is told last. A hart whose task never ends, or whose worker has trapped, is
//! lost: its tasks have failed, and the others go on. Only a task that never ends needs an abort of
//! the launch, and by then all others have left.

mod crew;
mod session;

use std::sync::{Arc, Weak};
use std::time::Duration;

use et_hal::Hal;

pub(super) use crew::Crew;
use session::{Progress, Session};

use super::TaskFailure;
use super::access::{Access, Window};
use super::harts::{State, Tenant};
use super::host::Desk;
use super::ids::RunId;
use super::outcome::Cut;
use super::place::{Done, Ended, Ending, Offer, Place, Room, Unit};
use crate::kernel::Kernel;
use crate::stream::Stream;

/// Bytes of arguments a task can have.
pub(super) const MAX_ARGS: u32 = 1024;
/// How often to look at harts that have tasks.
const LOOK: Duration = Duration::from_micros(50);

/// How patient the places on harts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long the harts are kept when there is nothing to do.
    pub(super) rest: Duration,
    /// How long without a completion until the exception buffer is looked at.
    pub(super) stall: Duration,
    /// For the tasks of a late run to end by themselves while other runs have tasks, too.
    pub(super) grace: Duration,
    /// For all harts to come, and for a launch to end after an abort.
    pub(super) limit: Duration,
}

pub(super) struct Cores<H: Hal> {
    access: Access<H>,
    desk: Weak<dyn Desk>,
    kernel: Kernel,
    crew: Crew,
    window: Window<H>,
    patience: Patience,
    harts: Tenant,
    main: Stream<H>,
    /// For looks while the main stream is busy with the launch.
    side: Stream<H>,
    session: Option<Session<H>>,
    is_closed: bool,
}

impl<H: Hal> Cores<H> {
    pub(super) fn new(
        access: &Access<H>,
        desk: &Weak<dyn Desk>,
        (kernel, crew): (Kernel, Crew),
        window: Window<H>,
        harts: Tenant,
        patience: Patience,
    ) -> Self {
        Self {
            access: access.clone(),
            desk: Weak::clone(desk),
            kernel,
            crew,
            window,
            patience,
            harts,
            main: access.stream(),
            side: access.stream(),
            session: None,
            is_closed: false,
        }
    }

    fn start(&mut self) -> crate::Result<()> {
        let session =
            Session::start(&self.access, &self.main, (&self.kernel, self.crew), self.patience)?;
        let desk = Weak::clone(&self.desk);
        session.launch().on_done(move |_| {
            if let Some(desk) = desk.upgrade() {
                desk.notify();
            }
        });
        self.session = Some(session);
        Ok(())
    }
}

impl<H: Hal> Cores<H> {
    /// The session, which begins if it has not; `None` while another place has the harts.
    fn session(&mut self) -> crate::Result<Option<&mut Session<H>>> {
        if !self.harts.claim() {
            return Ok(None);
        }
        if self.session.is_none()
            && let Err(error) = self.start()
        {
            self.harts.gone();
            return Err(error);
        }
        Ok(self.session.as_mut())
    }
}

impl<H: Hal> Place for Cores<H> {
    fn room_for(&mut self, first: Unit<'_>, parts: u32) -> Room {
        match self.session() {
            Ok(Some(session)) => session.room_for(parts as usize, first.cores),
            Ok(None) => Room::Later,
            Err(error) => Room::Never(Box::new(TaskFailure::Device(error))),
        }
    }

    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        let workers = self.crew.workers();
        if let Some(cores) = unit.cores
            && cores.iter().all(|core| core >= workers)
        {
            let worker = cores.iter().next().unwrap_or(0);
            let why = format!("there are {workers} workers");
            return Offer::Failed(Box::new(TaskFailure::WorkerLost { worker, why }));
        }
        match self.session() {
            Ok(Some(_)) => {}
            Ok(None) => return Offer::Full,
            Err(error) => return Offer::Failed(Box::new(TaskFailure::Device(error))),
        }
        let Some(session) = &mut self.session else { return Offer::Full };
        session.offer(&self.access, &self.window, &Arc::clone(unit.run), unit.task)
    }

    fn poll(&mut self, done: &mut Done) -> bool {
        self.harts.refresh();
        let Some(session) = &mut self.session else { return false };
        self.access.poll();
        let is_unwanted = self.is_closed || self.harts.is_wanted_by_others();
        let progress = session.poll(&self.access, &self.window, &self.side, is_unwanted, done);
        match (self.harts.state(), session.state()) {
            (State::Coming, State::Working) => self.harts.came(),
            (State::Coming | State::Working, State::Leaving) => self.harts.leave(),
            (_, State::Away) => {
                self.harts.gone();
                self.session = None;
            }
            _ => {}
        }
        progress == Progress::Some
    }

    fn abort(&mut self, run: RunId, why: Cut) {
        if let (Cut::Deadline(after), Some(session)) = (why, &mut self.session) {
            session.give_up(&self.access, run, after);
        }
    }

    fn next_look(&self) -> Option<Duration> {
        let session = self.session.as_ref()?;
        Some(if session.is_resting() { self.patience.rest / 2 } else { LOOK })
    }

    fn describe(&self, parts: &mut Vec<String>) {
        if let Some(session) = &self.session {
            session.describe(parts);
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
    }

    fn is_busy(&self) -> bool {
        self.session.is_some()
    }
}

/// A task that a hart has, or would have.
fn failed(task: super::ids::TaskRef, failure: TaskFailure) -> Ending {
    Ending::new(task, Ended::failed(failure))
}
