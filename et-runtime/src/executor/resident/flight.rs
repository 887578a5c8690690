//! A launch of what is left of a graph.

use std::time::Duration;

use et_devapi::handshake::CELL_WORDS;
use et_hal::Hal;

use super::image::{CONTROL, Counts, FINISH, Image, Offsets, PROGRESS, Progress, STOP};
use super::outcome::{Remaining, remains_of, take_words};
use super::rows::Rows;
use super::{LOOK, Tools};
use crate::Result;
use crate::event::{Event, Transfer};
use crate::executor::access::Stop;
use crate::executor::outcome::Cut;
use crate::executor::run::RunShared;
use crate::kernel::{HartContext, Launch, decode_near};
use crate::memory::DeviceBuffer;
use crate::sync::Ordering;

/// How long those who have been dismissed may take to leave before the others are stopped.
const LEAVE: Duration = Duration::from_millis(10);

/// A look at the device, on its way.
enum Look<H: Hal> {
    Nothing,
    /// At the progress line.
    Progress(Transfer<H>),
    /// At exception buffer and cells.
    Traps(Transfer<H>, Transfer<H>),
}

/// Counts the tasks of units that are in their order.
fn tasks_of(run: &RunShared, units: &[u32]) -> usize {
    let view = run.graph.view();
    units.chunk_by(|a, b| view.unit(*a).task == view.unit(*b).task).count()
}

pub(super) struct Flight<H: Hal> {
    image: Image,
    buffer: DeviceBuffer,
    /// Before it is done, the memory shows what was there before.
    uploaded: Event,
    launch: Event,
    /// Tasks that the launch has.
    tasks: usize,
    progress: Progress,
    /// Tasks that had ended before this launch.
    before: usize,
    look: Look<H>,
    looked: Duration,
    /// Since when there was no progress.
    since: Duration,
    trapped: Vec<HartContext>,
    /// What the control word says, and since when.
    told: (u64, Duration),
    /// The scheduler has told its workers to leave, since then.
    left: Option<Duration>,
    stop: Option<Stop>,
    is_given_up: bool,
}

impl<H: Hal> Flight<H> {
    pub(super) fn start(tools: &Tools<H>, run: &RunShared, units: &[u32]) -> Result<Self> {
        let harts = tools.crew.harts;
        let rows = Rows::new(&run.graph, units);
        let room = Offsets::new(Counts::of(&run.graph, &rows), harts).len_bytes;
        let buffer = tools.access.memory().alloc(room, 64)?;
        let base = buffer.addr().as_u64();
        let image = Image::new(&run.graph, rows, base, (&tools.kernel, harts));
        let all = buffer.slice(..image.at.len_bytes)?;
        // If it fails, the scheduler finds no image and says so, or the device is gone.
        let uploaded = tools.main.copy_to_device(&image.bytes, all)?;
        let launch = Launch::new(&tools.kernel)
            .u64(1)
            .u64(base + image.at.cells)
            .u64(harts.into())
            .buffer(&buffer)
            .shires(tools.crew.shires);
        let launch = tools.main.launch(&launch)?;
        tools.hear(&launch);
        let now = tools.access.now();
        Ok(Self {
            image,
            buffer,
            uploaded,
            launch,
            tasks: tasks_of(run, units),
            progress: Progress::default(),
            before: run.finished.load(Ordering::Relaxed),
            look: Look::Nothing,
            looked: now,
            since: now,
            trapped: Vec::new(),
            told: (0, now),
            left: None,
            stop: None,
            is_given_up: false,
        })
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Does all there is to do; returns `true` once the launch has ended, or is given up.
    pub(super) fn poll(
        &mut self,
        tools: &Tools<H>,
        run: &RunShared,
        cut: Option<(Cut, Duration)>,
    ) -> bool {
        if self.launch.outcome().is_some() {
            return true;
        }
        let limit = tools.patience.limit;
        if let Some(stop) = &mut self.stop {
            self.is_given_up = stop.poll(&tools.access);
            return self.is_given_up;
        }
        let now = tools.access.now();
        if self.uploaded.is_done() {
            match cut {
                Some((Cut::Deadline(_), _)) => self.tell(tools, STOP),
                Some((Cut::Cancelled, _)) => self.tell(tools, FINISH),
                None => {}
            }
            self.look(tools, run, now);
        }
        let patience = if matches!(cut, Some((Cut::Deadline(_), _))) { LEAVE } else { limit };
        let has_left = self.left.is_some_and(|since| now >= since.saturating_add(patience));
        let is_deaf = self.told.0 == STOP && now >= self.told.1.saturating_add(limit);
        if has_left || is_deaf {
            if is_deaf {
                let device = tools.access.device();
                tracing::warn!(%device, "the scheduler of a graph does not answer");
            }
            self.stop = Some(Stop::new(&tools.access, &self.launch, limit));
        }
        false
    }

    /// Writes the control word; it only grows.
    fn tell(&mut self, tools: &Tools<H>, word: u64) {
        if self.told.0 >= word {
            return;
        }
        self.told = (word, tools.access.now());
        let control = self.buffer.slice(CONTROL..CONTROL + 8);
        match control.and_then(|control| tools.side.copy_to_device(&[word], control)) {
            Ok(_) => {}
            Err(error) => {
                let device = tools.access.device();
                tracing::warn!(%device, %error, "a graph cannot be told to end");
            }
        }
    }

    /// Looks whether the graph goes on, and whether a worker is lost.
    fn look(&mut self, tools: &Tools<H>, run: &RunShared, now: Duration) {
        match std::mem::replace(&mut self.look, Look::Nothing) {
            Look::Nothing => {
                if self.told.0 != STOP && now.saturating_sub(self.looked) < LOOK {
                    return;
                }
                self.looked = now;
                match self.fetch(tools, PROGRESS, 8) {
                    Ok(transfer) => self.look = Look::Progress(transfer),
                    // If the device is gone, the event of the launch says so.
                    Err(error) => tracing::debug!(%error, "cannot look at a graph"),
                }
            }
            Look::Progress(transfer) if transfer.event().is_done() => {
                let mut words = [0; 8];
                if take_words(&tools.access, transfer, &mut words).is_ok() {
                    self.take_progress(tools, run, &words, now);
                }
            }
            Look::Traps(exceptions, cells)
                if exceptions.event().is_done() && cells.event().is_done() =>
            {
                self.since = now;
                if let Err(error) = self.take_traps(tools, exceptions, cells) {
                    tracing::debug!(%error, "cannot look for lost workers");
                }
            }
            waiting => self.look = waiting,
        }
    }

    fn take_progress(
        &mut self,
        tools: &Tools<H>,
        run: &RunShared,
        words: &[u64; 8],
        now: Duration,
    ) {
        let progress = Progress::of(words);
        let rows = self.image.rows.len().max(1);
        // Of tasks with parts it is not known which have ended.
        let ended = progress.ended(rows) * self.tasks / rows;
        run.finished.store(self.before + ended, Ordering::Relaxed);
        if progress.has_ended() {
            self.left.get_or_insert(now);
        }
        if progress != self.progress {
            self.progress = progress;
            self.since = now;
        } else if now.saturating_sub(self.since) >= tools.patience.stall {
            self.since = now;
            let Some(exceptions) = tools.access.exceptions(&self.launch) else { return };
            let words = tools.crew.harts as usize * CELL_WORDS;
            let looks = tools.access.fetch(&tools.side, exceptions).and_then(|exceptions| {
                Ok((exceptions, self.fetch(tools, self.image.at.cells, words)?))
            });
            match looks {
                Ok((exceptions, cells)) => self.look = Look::Traps(exceptions, cells),
                Err(error) => tracing::debug!(%error, "cannot look for lost workers"),
            }
        }
    }

    /// Has the scheduler stop if harts have trapped and no other one has a task.
    fn take_traps(
        &mut self,
        tools: &Tools<H>,
        exceptions: Transfer<H>,
        cells: Transfer<H>,
    ) -> Result<()> {
        let mut bytes = vec![0_u8; et_devapi::abi::EXCEPTION_BUFFER_BYTES];
        tools.access.take(exceptions, &mut bytes)?;
        let contexts = decode_near(&bytes, tools.access.memory());
        let mut words = vec![0; tools.crew.harts as usize * CELL_WORDS];
        take_words(&tools.access, cells, &mut words)?;
        if contexts.is_empty() {
            return Ok(());
        }
        let cells = remains_of(&words);
        let is_trapped = |hart: u64| contexts.iter().any(|c| u64::from(c.hart_id) == hart);
        let held = cells.iter().filter(|cell| is_trapped(cell.hart));
        let held: u64 = held.map(|cell| u64::from(cell.outstanding)).sum();
        // A coordinator that trapped has no identity in its cell, and nothing goes on without it.
        let has_coordinator = contexts
            .iter()
            .any(|context| !cells.iter().any(|cell| cell.hart == u64::from(context.hart_id)));
        if has_coordinator {
            self.trapped = contexts;
            let limit = tools.patience.limit;
            self.stop = Some(Stop::new(&tools.access, &self.launch, limit));
        } else if held >= self.progress.outstanding() {
            self.trapped = contexts;
            self.tell(tools, STOP);
        }
        Ok(())
    }

    fn fetch(&self, tools: &Tools<H>, at: u64, words: usize) -> Result<Transfer<H>> {
        let end = at + 8 * words as u64;
        tools.access.fetch(&tools.side, self.buffer.slice(at..end)?)
    }

    /// What the launch has left, to be read.
    pub(super) fn end(self, tools: &Tools<H>) -> Remaining<H> {
        let Self { image, buffer, launch, trapped, is_given_up, .. } = self;
        let error = match launch.outcome() {
            Some(outcome) => outcome.err(),
            None => Some(crate::Error::Aborted { op: "graph" }),
        };
        Remaining::new(tools, (image, buffer), trapped, error, is_given_up)
    }
}
