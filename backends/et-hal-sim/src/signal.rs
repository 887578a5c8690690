//! The interrupts of one endpoint, as a mailbox waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::mailbox::Signal;
use et_hal::{BarOffset, Endpoint, ErrorType, Generation, Mmio, Ticket, Wake};
use et_sim_device::{Board, Event, Fault, Link, Waited};

use crate::SimError;

/// How long a lost interrupt can go unnoticed on a board that loses them.
const POLL: Duration = Duration::from_millis(4);
/// The same on a board that loses none: a safety net that costs an idle program next to nothing.
const RARE_POLL: Duration = Duration::from_millis(100);
/// Polls after which a wait returns in any case: the caller may be waiting for room, not for
/// messages.
const POLLS: u32 = 16;

/// Waits for either vector of an endpoint, and looks itself from time to time.
#[derive(Debug)]
pub struct SimSignal {
    board: Arc<Board>,
    generation: Generation,
    endpoint: Endpoint,
    /// Control block of the completion queue.
    completion: BarOffset,
    /// Longest sleep without a look.
    poll: Duration,
}

impl SimSignal {
    pub(crate) fn new(board: Arc<Board>, endpoint: Endpoint, completion: BarOffset) -> Self {
        let loses = |fault: &Fault| matches!(fault, Fault::LostInterrupts { .. });
        let poll = if board.config().faults.iter().any(loses) { POLL } else { RARE_POLL };
        Self { generation: board.generation(), board, endpoint, completion, poll }
    }

    fn event(&self) -> &Event {
        self.board.interrupts().event(self.endpoint)
    }

    /// Returns `true` if there are messages, by the indices of the ring. Spec: §5.2
    fn has_messages(&self) -> bool {
        let page = self.board.page();
        let tail = self.completion.checked_add(8);
        let head = page.load_acquire_u64(self.completion);
        tail.map(|tail| page.load_acquire_u64(tail)) != Some(head)
    }
}

impl ErrorType for SimSignal {
    type Error = SimError;
}

impl Signal for SimSignal {
    fn ticket(&self) -> Ticket {
        Ticket(self.event().epoch().into())
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, SimError> {
        // Tickets are made by `ticket` from 32 bits; an invented one compares unequal at worst.
        let seen = u32::try_from(seen.0).unwrap_or_else(|_| self.event().epoch().wrapping_add(1));
        let deadline = Instant::now().checked_add(timeout);
        for _ in 0..POLLS {
            if self.board.link(self.generation) == Link::Stale {
                return Err(SimError::Stale);
            }
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if self.event().wait(seen, left.min(self.poll)) == Waited::Raised || self.has_messages()
            {
                break;
            }
            if left <= self.poll {
                return Ok(Wake::TimedOut);
            }
        }
        if self.board.link(self.generation) == Link::Stale {
            return Err(SimError::Stale);
        }
        Ok(Wake::Notified)
    }

    fn wake(&self) {
        self.event().raise();
    }

    fn verify(&self) -> Result<(), SimError> {
        match self.board.link(self.generation) {
            Link::Stale => Err(SimError::Stale),
            Link::Up | Link::Down => Ok(()),
        }
    }

    /// Nothing to look at: each access to a board that is gone fails by itself.
    fn glance(&self) -> Result<(), SimError> {
        Ok(())
    }
}
