//! A card whose queues and sleeps are those of the random schedules.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Command, Completion, Times};
use et_hal::{
    Bar, ErrorKind, ErrorType, Generation, Hal, LossReason, Mailbox, MailboxLayout, Pop, Push,
    QueueId, Ticket, Wake,
};
use et_hal_mock::{MockMmio, MockReset, VecDma, presets};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex, MutexGuard};

use crate::chance;

/// Submission queues of the device that the registers describe. Spec: §3.7
const QUEUES: usize = 2;
/// Commands that a submission queue takes.
const ROOM: usize = 3;

/// What host and firmware share.
#[derive(Default)]
struct State {
    rings: [VecDeque<Vec<u8>>; QUEUES],
    high: [Option<Vec<u8>>; QUEUES],
    /// Taken from the ring and not answered.
    jobs: [Vec<Vec<u8>>; QUEUES],
    answers: VecDeque<Vec<u8>>,
    /// Doorbells that the firmware has not looked after.
    is_rung: bool,
    /// Notifications to the host.
    epoch: u64,
    is_gone: bool,
    is_over: bool,
}

/// The queues, and whoever sleeps at them.
#[derive(Default)]
pub struct Desk {
    state: Mutex<State>,
    for_device: Condvar,
    for_host: Condvar,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn notify(&self, state: &mut State) {
        state.epoch += 1;
        self.for_host.notify_all();
    }

    /// The life of the firmware, until [`end`](Self::end): it looks only if the doorbell rings.
    pub fn serve(&self) {
        let mut state = self.lock();
        loop {
            while !state.is_over && (state.is_gone || !state.has_work()) {
                state = self.for_device.wait(state).unwrap_or_else(|it| it.into_inner());
            }
            if state.is_over {
                return;
            }
            if state.step() {
                self.notify(&mut state);
            }
            // Others go on between two commands.
            drop(state);
            state = self.lock();
        }
    }

    /// Takes the card out, as if it were pulled.
    pub fn lose(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        self.notify(&mut state);
    }

    /// Ends the firmware.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.for_device.notify_all();
    }

    fn check(state: &State) -> Result<(), ErrorKind> {
        if state.is_gone { Err(ErrorKind::Lost(LossReason::Removed)) } else { Ok(()) }
    }
}

impl State {
    fn has_work(&self) -> bool {
        self.is_rung || self.jobs.iter().any(|jobs| !jobs.is_empty())
    }

    /// Takes what is in a ring, or ends a command; returns `true` if the host has to hear of it.
    fn step(&mut self) -> bool {
        if self.is_rung && (chance(2) || self.jobs.iter().all(Vec::is_empty)) {
            self.is_rung = false;
            for queue in 0..QUEUES {
                self.take(queue);
            }
            return true;
        }
        let busy: Vec<_> = (0..QUEUES).filter(|queue| !self.jobs[*queue].is_empty()).collect();
        let queue = busy[thread_rng().gen_range(0..busy.len())];
        // What stands behind a barrier waits for all before it.
        let jobs = &mut self.jobs[queue];
        let is_barred = |job: &Vec<u8>| flags(job).contains(CommandFlags::BARRIER);
        let end = (1..jobs.len()).find(|at| is_barred(&jobs[*at])).unwrap_or(jobs.len());
        let job = jobs.remove(thread_rng().gen_range(0..end));
        self.answer(&job, false)
    }

    /// Spec: §5.3; an abort takes what is in its queue with it, §10.1.
    fn take(&mut self, queue: usize) {
        let taken = std::mem::take(&mut self.rings[queue]);
        self.jobs[queue].extend(taken);
        if let Some(abort) = self.high[queue].take() {
            for job in std::mem::take(&mut self.jobs[queue]) {
                self.answer(&job, true);
            }
            self.answer(&abort, false);
        }
    }

    fn answer(&mut self, job: &[u8], is_aborted: bool) -> bool {
        let Ok((header, command)) = Command::parse(job) else {
            unreachable!("the runtime sends what can be parsed");
        };
        let times = Times { start: 1, wait: 2, execute: 0 };
        let completions = match command.rejected(times) {
            Some(body) if is_aborted => vec![Completion::new(header.tag(), body)],
            _ => presets::success(header, &command),
        };
        for completion in completions {
            let mut bytes = [0; 128];
            let Ok(len) = completion.encode(&mut bytes) else {
                unreachable!("there is room");
            };
            self.answers.push_back(bytes[..len].to_vec());
        }
        true
    }
}

fn flags(job: &[u8]) -> CommandFlags {
    Command::parse(job).map_or(CommandFlags::EMPTY, |(header, _)| header.flags())
}

/// The host's side of a [`Desk`].
#[derive(Clone, Debug)]
pub struct DeskMailbox(Arc<Desk>);

impl ErrorType for DeskMailbox {
    type Error = ErrorKind;
}

impl Mailbox for DeskMailbox {
    fn max_message_bytes(&self, _: QueueId) -> Result<usize, ErrorKind> {
        Ok(1024)
    }

    fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, ErrorKind> {
        let mut state = self.0.lock();
        Desk::check(&state)?;
        let is_taken = match queue {
            QueueId::Submission(queue) => {
                let ring = &mut state.rings[usize::from(queue)];
                let has_room = ring.len() < ROOM;
                if has_room {
                    ring.push_back(message.to_vec());
                }
                has_room
            }
            QueueId::HighPriority(queue) => {
                let place = &mut state.high[usize::from(queue)];
                let has_room = place.is_none();
                place.get_or_insert_with(|| message.to_vec());
                has_room
            }
        };
        Ok(if is_taken { Push::Accepted } else { Push::Full })
    }

    fn kick(&self) -> Result<(), ErrorKind> {
        let mut state = self.0.lock();
        Desk::check(&state)?;
        state.is_rung = true;
        self.0.for_device.notify_all();
        Ok(())
    }

    fn pop(&self, into: &mut [u8]) -> Result<Pop, ErrorKind> {
        let mut state = self.0.lock();
        Desk::check(&state)?;
        let Some(bytes) = state.answers.pop_front() else { return Ok(Pop::Empty) };
        into.get_mut(..bytes.len()).ok_or(ErrorKind::TooLarge)?.copy_from_slice(&bytes);
        Ok(Pop::Message(bytes.len()))
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.0.lock().epoch)
    }

    /// No timeout ever passes: a notification that is missed is a deadlock, which ends the test.
    fn wait(&self, seen: Ticket, _: Duration) -> Result<Wake, ErrorKind> {
        let mut state = self.0.lock();
        while state.epoch == seen.0 && !state.is_gone {
            state = self.0.for_host.wait(state).unwrap_or_else(|it| it.into_inner());
        }
        Desk::check(&state).map(|()| Wake::Notified)
    }

    fn wake(&self) {
        self.0.notify(&mut self.0.lock());
    }
}

/// A device with mocked registers and memory.
pub struct Card {
    desk: Arc<Desk>,
    mmio: Arc<MockMmio>,
    dma: VecDma,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").finish_non_exhaustive()
    }
}

impl Card {
    /// Creates one that has booted.
    #[must_use]
    pub fn new(desk: &Arc<Desk>) -> Self {
        let mmio = Arc::new(presets::booted_registers());
        Self { desk: Arc::clone(desk), mmio, dma: VecDma::default() }
    }
}

impl ErrorType for Card {
    type Error = ErrorKind;
}

impl Hal for Card {
    type Mmio = Arc<MockMmio>;
    type Dma = VecDma;
    type Mailbox = DeskMailbox;
    type Reset = MockReset;

    fn window(&self, _: Bar) -> Result<Self::Mmio, ErrorKind> {
        Ok(Arc::clone(&self.mmio))
    }

    fn dma(&self) -> &VecDma {
        &self.dma
    }

    fn open_mailbox(&self, _: &MailboxLayout) -> Result<DeskMailbox, ErrorKind> {
        Ok(DeskMailbox(Arc::clone(&self.desk)))
    }

    fn reset(&self) -> Result<MockReset, ErrorKind> {
        Err(ErrorKind::Unsupported)
    }

    fn generation(&self) -> Generation {
        Generation(0)
    }
}
