//! Interrupts that should have come.

use std::time::{Duration, Instant};

/// An interrupt that is owed: messages were found and none had announced them.
///
/// A device may raise it late (an emulator took half a second), and one interrupt may announce many
/// messages. So neither messages alone nor counting show that one was lost; a long silence does.
/// Any interrupt settles the debt.
#[derive(Debug, Default)]
pub(crate) struct Owed(Option<Debt>);

#[derive(Debug)]
struct Debt {
    since: Instant,
    /// Interrupts heard until then.
    heard: u64,
    is_told: bool,
}

impl Owed {
    /// Notes that messages are there which nothing has announced.
    pub(crate) fn found(&mut self, heard: u64, now: Instant) {
        self.settle(heard);
        self.0.get_or_insert(Debt { since: now, heard, is_told: false });
    }

    /// Returns `true` while an interrupt is owed; `heard` interrupts have come so far.
    pub(crate) fn is_open(&mut self, heard: u64) -> bool {
        self.settle(heard);
        self.0.is_some()
    }

    /// Returns `true`, once for each debt, when none has come for `patience`.
    pub(crate) fn is_lost(&mut self, heard: u64, now: Instant, patience: Duration) -> bool {
        self.settle(heard);
        let Some(debt) = &mut self.0 else { return false };
        let is_late = now.saturating_duration_since(debt.since) >= patience;
        is_late && !std::mem::replace(&mut debt.is_told, true)
    }

    fn settle(&mut self, heard: u64) {
        if self.0.as_ref().is_some_and(|debt| debt.heard != heard) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_late_interrupt_is_not_lost() {
        let (mut owed, start) = (Owed::default(), Instant::now());
        owed.found(5, start);
        assert!(owed.is_open(5));
        // The emulator's: 479 ms after the messages.
        assert!(!owed.is_lost(5, start + Duration::from_millis(479), PATIENCE));
        assert!(!owed.is_open(6), "settled by the interrupt");
        assert!(!owed.is_lost(6, start + 2 * PATIENCE, PATIENCE));
    }

    #[test]
    fn a_long_silence_is_a_loss_and_told_once() {
        let (mut owed, start) = (Owed::default(), Instant::now());
        owed.found(5, start);
        // More messages do not make it younger.
        owed.found(5, start + PATIENCE - MOMENT);
        assert!(!owed.is_lost(5, start + PATIENCE - MOMENT, PATIENCE));
        assert!(owed.is_lost(5, start + PATIENCE, PATIENCE));
        assert!(!owed.is_lost(5, start + 3 * PATIENCE, PATIENCE));
        assert!(owed.is_open(5), "looked for more often until one comes");
        assert!(!owed.is_open(6));
        // The next is another.
        owed.found(6, start + 3 * PATIENCE);
        assert!(owed.is_lost(6, start + 4 * PATIENCE, PATIENCE));
    }

    #[test]
    fn silence_without_messages_is_no_loss() {
        let mut owed = Owed::default();
        assert!(!owed.is_lost(0, Instant::now() + PATIENCE, Duration::ZERO));
    }
}
