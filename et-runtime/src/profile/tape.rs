//! What is kept of operations until it is taken.

use std::time::Duration;

use et_devapi::msg::ops::Times;

use super::record::Record;
use crate::link::core::Ended;
use crate::sync::Arc;
use crate::timeline::Timeline;

/// Operations in one piece of memory.
const PIECE: usize = 1 << 10;

/// An operation in two thirds of the space that [`Record`] takes.
#[derive(Debug)]
struct Kept {
    name: &'static str,
    id: u64,
    /// Queued, sent and completed, in nanoseconds.
    times: [u64; 3],
    device: Option<Times>,
    stream: u32,
    /// Number of its kernel, or 0.
    kernel: u32,
    /// The place of its error, counted from 1, or 0.
    error: u32,
}

const _: () = assert!(3 * size_of::<Kept>() <= 2 * size_of::<Record>());

/// Operations in the order in which they were recorded.
///
/// Nothing is moved while it grows, and its memory is used again.
#[derive(Debug, Default)]
pub(super) struct Tape {
    full: Vec<Vec<Kept>>,
    last: Vec<Kept>,
    errors: Vec<Arc<str>>,
    spare: Vec<Vec<Kept>>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Tape {
    pub(super) fn len(&self) -> usize {
        self.full.len() * PIECE + self.last.len()
    }

    pub(super) fn push(&mut self, ended: &Ended) {
        if self.last.len() == self.last.capacity() {
            let piece = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PIECE));
            let full = std::mem::replace(&mut self.last, piece);
            if !full.is_empty() {
                self.full.push(full);
            }
        }
        let Ended { operation, timeline, error, .. } = ended;
        let Timeline { queued, sent, completed, device } = *timeline;
        let error = error.as_ref().map_or(0, |error| {
            self.errors.push(error.to_string().into());
            u32::try_from(self.errors.len()).unwrap_or(0)
        });
        self.last.push(Kept {
            name: operation.name,
            id: operation.key.id,
            times: [nanos(queued), nanos(sent), nanos(completed)],
            device,
            stream: operation.stream,
            kernel: operation.kernel(),
            error,
        });
    }

    /// Takes what was recorded; the memory for more of it stays.
    pub(super) fn take(&mut self) -> Self {
        let spare = std::mem::take(&mut self.spare);
        let taken = std::mem::take(self);
        self.spare = spare;
        taken
    }

    /// Gives the memory of one back that was [unrolled](Self::unroll), for so many operations.
    pub(super) fn reuse(&mut self, other: Self, most: usize) {
        self.spare.extend(other.spare);
        self.spare.truncate(most.div_ceil(PIECE));
    }

    /// Moves what was recorded to `into`; what is left is the memory.
    pub(super) fn unroll(mut self, kernels: &[Arc<str>], into: &mut Vec<Record>) -> Self {
        if !self.last.is_empty() {
            self.full.push(self.last);
        }
        into.reserve(self.full.iter().map(Vec::len).sum());
        let at = |list: &[Arc<str>], number: u32| {
            list.get((number as usize).checked_sub(1)?).map(Arc::clone)
        };
        for piece in &mut self.full {
            into.extend(piece.drain(..).map(|kept| {
                let [queued, sent, completed] = kept.times.map(Duration::from_nanos);
                let timeline = Timeline { queued, sent, completed, device: kept.device };
                Record {
                    name: kept.name,
                    kernel: at(kernels, kept.kernel),
                    id: kept.id,
                    stream: kept.stream,
                    timeline,
                    failed: kept.error != 0,
                    error: at(&self.errors, kept.error),
                }
            }));
        }
        Self { spare: self.full, ..Self::default() }
    }
}
