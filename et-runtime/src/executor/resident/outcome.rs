//! What a launch has left of a graph.

use std::time::Duration;

use et_devapi::handshake::CELL_WORDS;
use et_hal::Hal;

use super::image::{Image, Left, OUTCOME_BYTES, PROGRESS, Progress, Remains};
use super::rows::Row;
use super::{Active, Tools};
use crate::event::Transfer;
use crate::executor::TaskFailure;
use crate::executor::access::Access;
use crate::executor::ids::{Rank, WorkerId};
use crate::executor::place::{Done, Ended, Span};
use crate::kernel::{ExceptionKind, HartContext};
use crate::memory::DeviceBuffer;
use crate::{Error, Result};

const OUTCOME_WORDS: usize = (OUTCOME_BYTES / 8) as usize;

/// On its way to the host.
pub(super) struct Remaining<H: Hal> {
    image: Image,
    buffer: DeviceBuffer,
    trapped: Vec<HartContext>,
    /// Why the launch failed, if it did.
    error: Option<Error>,
    /// Outcomes, progress and cells; nothing is asked of a device that has not ended the launch.
    fetches: Result<Option<[Transfer<H>; 3]>>,
}

/// What was fetched.
struct Tables {
    outcomes: Vec<u64>,
    progress: Progress,
    cells: Vec<Remains>,
}

impl<H: Hal> Remaining<H> {
    pub(super) fn new(
        tools: &Tools<H>,
        (image, buffer): (Image, DeviceBuffer),
        trapped: Vec<HartContext>,
        error: Option<Error>,
        is_given_up: bool,
    ) -> Self {
        let fetch = |at: u64, words: usize| -> Result<Transfer<H>> {
            let transfer =
                tools.access.fetch(&tools.side, buffer.slice(at..at + 8 * words as u64)?)?;
            tools.hear(transfer.event());
            Ok(transfer)
        };
        let outcomes = image.rows.len() * OUTCOME_WORDS;
        let cells = tools.crew.harts as usize * CELL_WORDS;
        let all = || -> Result<[Transfer<H>; 3]> {
            let outcomes = fetch(image.at.outcomes, outcomes)?;
            Ok([outcomes, fetch(PROGRESS, 8)?, fetch(image.at.cells, cells)?])
        };
        let fetches = if is_given_up { Ok(None) } else { all().map(Some) };
        Self { image, buffer, trapped, error, fetches }
    }

    /// Returns `true` once all is there.
    pub(super) fn poll(&self) -> bool {
        match &self.fetches {
            Ok(Some(all)) => all.iter().all(|transfer| transfer.event().outcome().is_some()),
            _ => true,
        }
    }

    fn take(&mut self, tools: &Tools<H>) -> Result<Option<Tables>> {
        let fetches = std::mem::replace(&mut self.fetches, Ok(None))?;
        let Some([outcomes_at, progress_at, cells_at]) = fetches else { return Ok(None) };
        let mut outcomes = vec![0; self.image.rows.len() * OUTCOME_WORDS];
        take_words(&tools.access, outcomes_at, &mut outcomes)?;
        let mut progress = [0; 8];
        take_words(&tools.access, progress_at, &mut progress)?;
        let mut cells = vec![0; tools.crew.harts as usize * CELL_WORDS];
        take_words(&tools.access, cells_at, &mut cells)?;
        let (progress, cells) = (Progress::of(&progress), remains_of(&cells));
        Ok(Some(Tables { outcomes, progress, cells }))
    }

    /// Says what became of the tasks. If a worker was lost, what has not run is left to another
    /// launch.
    pub(super) fn harvest(&mut self, tools: &Tools<H>, of: &mut Active<H>, done: &mut Done) {
        let tables = match self.take(tools) {
            Ok(Some(tables)) => tables,
            Ok(None) => {
                for (_, unit) in self.units() {
                    of.give_up(done, unit);
                }
                return;
            }
            Err(error) => {
                let error = self.error.clone().unwrap_or(error);
                for (_, unit) in self.units() {
                    of.fail(done, unit, error.clone());
                }
                return;
            }
        };
        let mut contexts = std::mem::take(&mut self.trapped);
        if let (true, Some(Error::Launch(failure))) = (contexts.is_empty(), &self.error) {
            // Workers that trapped while the rest ended by itself. Those the abort stopped are no
            // cause.
            let is_cause = |context: &&HartContext| context.kind != ExceptionKind::SystemAbort;
            contexts = failure.contexts.iter().filter(is_cause).cloned().collect();
        }
        let mut has_trap = false;
        let mut is_known = vec![false; self.image.rows.len()];
        for (here, unit) in self.units() {
            let outcome = &tables.outcomes[here * OUTCOME_WORDS..][..OUTCOME_WORDS];
            let (how, span) = match Left::of(outcome, of.is_guarded(unit)) {
                Left::Complete { rank, start, end } => {
                    (Ended::Complete, self.span(tools, &tables, rank, (start, end)))
                }
                Left::Failed { rank, value, start, end } => {
                    let hart = cell_of(&tables, rank).map_or(0, |cell| cell.hart);
                    let failure = TaskFailure::Returned { value, hart };
                    (Ended::failed(failure), self.span(tools, &tables, rank, (start, end)))
                }
                Left::Dispatched { rank } => {
                    let Some((failure, is_trap)) = self.lost(&tables, &contexts, here, rank, of)
                    else {
                        continue;
                    };
                    has_trap |= is_trap;
                    (Ended::failed(failure), None)
                }
                Left::Skipped => (Ended::Skipped, None),
                Left::NotRun => continue,
            };
            is_known[here] = true;
            of.end_at(done, unit, how, span);
        }
        for (here, unit) in self.units() {
            if !is_known[here] && of.is_beside_failed(unit) {
                is_known[here] = true;
                of.end(done, unit, Ended::NotRun);
            }
        }
        if has_trap && of.cut.is_none() {
            return;
        }
        // Nothing is launched again: what has not run will not.
        for (here, unit) in self.units() {
            if !is_known[here] {
                match &self.error {
                    Some(error) if of.cut.is_none() => of.fail(done, unit, error.clone()),
                    _ => of.end(done, unit, Ended::NotRun),
                }
            }
        }
    }

    /// The units of the image, by row.
    fn units(&self) -> impl Iterator<Item = (usize, u32)> + use<H> {
        let rows = self.image.rows.clone().into_iter().enumerate();
        rows.filter_map(|(here, row)| match row {
            Row::Unit(unit) => Some((here, unit)),
            Row::Join => None,
        })
    }

    /// Why a task did not end that a worker had, and whether it was its trap; `None` if it had not
    /// started and can run again.
    fn lost(
        &self,
        tables: &Tables,
        contexts: &[HartContext],
        here: usize,
        rank: Rank,
        of: &Active<H>,
    ) -> Option<(TaskFailure, bool)> {
        let worker = rank.worker().unwrap_or(WorkerId(0));
        let cell = cell_of(tables, rank);
        let context = cell.and_then(|cell| {
            contexts.iter().find(|context| u64::from(context.hart_id) == cell.hart)
        });
        let base = self.buffer.addr().as_u64();
        let is_running = cell.is_some_and(|cell| {
            self.image.row_of_args(cell.running.wrapping_sub(base)) == Some(here)
        });
        match (context, of.late(), &self.error) {
            (Some(context), ..) if is_running => {
                let Row::Unit(unit) = self.image.rows[here] else { return None };
                Some((of.run.trapped(unit, worker, context), true))
            }
            (_, Some(after), _) => {
                let worker = Some(worker.0);
                Some((TaskFailure::Deadline { after, worker }, false))
            }
            (Some(_), None, _) => None,
            (None, None, Some(error)) => Some((TaskFailure::Device(error.clone()), false)),
            (None, None, None) => {
                let why = "its hart ended without a word".to_owned();
                Some((TaskFailure::WorkerLost { worker: worker.0, why }, false))
            }
        }
    }

    /// When a task ran; `None` if the frequency is not known, and so not how long a cycle is.
    fn span(
        &self,
        tools: &Tools<H>,
        tables: &Tables,
        rank: Rank,
        (start, end): (u64, u64),
    ) -> Option<Box<Span>> {
        let mhz = u64::from(tools.access.mhz()?.get());
        let origin = tables.progress.started_cycles;
        let time = |cycles: u64| {
            Duration::from_nanos(cycles.saturating_sub(origin).saturating_mul(1000) / mhz)
        };
        let worker = rank.worker()?;
        Some(Box::new(Span { worker, start: time(start), end: time(end) }))
    }
}

fn cell_of(tables: &Tables, rank: Rank) -> Option<&Remains> {
    tables.cells.get(rank.worker()?.at())
}

/// What the cells of the workers say.
pub(super) fn remains_of(words: &[u64]) -> Vec<Remains> {
    words.chunks_exact(CELL_WORDS).skip(1).map(Remains::of).collect()
}

/// Takes words that a fetch has brought.
pub(super) fn take_words<H: Hal>(
    access: &Access<H>,
    transfer: Transfer<H>,
    words: &mut [u64],
) -> Result<()> {
    let mut bytes = vec![0_u8; 8 * words.len()];
    access.take(transfer, &mut bytes)?;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(())
}
