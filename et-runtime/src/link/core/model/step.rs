//! What can happen, and how often.

use proptest::prelude::*;

use super::device::QUEUES;

pub(super) const STREAMS: usize = 4;

/// What happens next.
#[derive(Clone, Debug)]
pub(in crate::link::core) enum Step {
    /// A complete operation of so many copies, perhaps with a launch behind them.
    Submit {
        stream: usize,
        copies: u8,
        launch: bool,
    },
    Barrier {
        stream: usize,
    },
    /// An operation that stays open.
    Begin {
        stream: usize,
    },
    Append {
        launch: bool,
    },
    /// Nothing but a failure closes it, or the program.
    Leave,
    Close {
        fail: bool,
    },
    Depend {
        stream: usize,
        on: usize,
    },
    /// A wait for something outside.
    Wait {
        stream: usize,
    },
    Fire {
        which: usize,
    },
    DropStream {
        stream: usize,
    },
    Abort {
        op: usize,
        gentle: bool,
    },
    AbortStream {
        stream: usize,
    },
    AbortAll,
    GiveUp {
        op: usize,
    },
    Want {
        op: usize,
    },
    Unwant {
        op: usize,
    },
    /// Someone wants to hear when it is sent.
    Listen {
        op: usize,
    },
    Own,
    Reset,
    /// The device takes what is in a queue.
    Take {
        queue: usize,
    },
    /// Another user aborts what it has of a queue.
    Foreign {
        queue: usize,
    },
    /// It refuses the abort of a queue.
    Refuse {
        queue: usize,
    },
    /// It finishes something it has.
    Finish {
        which: usize,
        fail: bool,
    },
    /// It refuses to know something it has.
    Unknown {
        which: usize,
    },
    /// It answers something that was answered, or no one asked.
    Nonsense {
        tag: u16,
    },
    Duplicate,
    Hang,
    Tick,
    /// An operation has ended by now.
    Ended {
        op: usize,
    },
    /// The decision about a held command.
    Decide {
        which: usize,
        follow: bool,
    },
    Lose,
}

/// Makes a step of two random numbers.
type Make = fn(usize, u8) -> Step;

/// How often each comes, and what it is.
///
/// One strategy of plain numbers for all: a choice between strategies seeds a generator of its own
/// for each step, which takes ten times as long as executing it.
const STEPS: [(u16, Make); 29] = [
    (12, |a, b| Step::Submit { stream: stream(a), copies: b / 2 % 4, launch: b % 2 == 1 }),
    (4, |a, _| Step::Barrier { stream: stream(a) }),
    (3, |a, _| Step::Begin { stream: stream(a) }),
    (4, |_, b| Step::Append { launch: b % 2 == 1 }),
    (1, |_, _| Step::Leave),
    (3, |_, b| Step::Close { fail: b % 5 == 4 }),
    (4, |a, b| Step::Depend { stream: stream(a), on: recent(b.into()) }),
    (2, |a, _| Step::Wait { stream: stream(a) }),
    (3, |a, _| Step::Fire { which: a % 4 }),
    (1, |a, _| Step::DropStream { stream: stream(a) }),
    (3, |a, b| Step::Abort { op: recent(a), gentle: b % 2 == 1 }),
    (1, |a, b| match b % 5 {
        4 => Step::AbortAll,
        _ => Step::AbortStream { stream: stream(a) },
    }),
    (1, |a, _| Step::GiveUp { op: recent(a) }),
    (2, |a, _| Step::Want { op: recent(a) }),
    (1, |a, _| Step::Unwant { op: recent(a) }),
    (3, |a, _| Step::Listen { op: recent(a) }),
    (1, |_, _| Step::Own),
    (12, |a, _| Step::Take { queue: a % QUEUES }),
    (20, |a, b| Step::Finish { which: a % 8, fail: b % 10 == 9 }),
    (1, |a, _| Step::Foreign { queue: a % QUEUES }),
    (2, |a, _| Step::Refuse { queue: a % QUEUES }),
    (1, |a, _| Step::Unknown { which: a % 8 }),
    (1, |a, b| match (b % 20, u16::try_from(a).unwrap_or(0)) {
        (19, tag) => Step::Nonsense { tag: tag % 6 },
        (_, tag) => Step::Nonsense { tag },
    }),
    (1, |_, _| Step::Duplicate),
    (1, |_, _| Step::Tick),
    (4, |a, b| Step::Decide { which: a % 4, follow: b % 2 == 1 }),
    (1, |_, b| if b % 20 == 19 { Step::Lose } else { Step::Tick }),
    (1, |_, b| if b % 10 == 9 { Step::Hang } else { Step::Tick }),
    (1, |_, _| Step::Reset),
];

const fn stream(number: usize) -> usize {
    number % STREAMS
}

/// Which of the last operations.
const fn recent(number: usize) -> usize {
    number % 8
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let all = STEPS.iter().map(|(weight, _)| weight).sum::<u16>();
    (0..all, 0usize..0x1_0000, 0u8..240).prop_map(|(mut pick, a, b)| {
        for (weight, make) in STEPS {
            match pick.checked_sub(weight) {
                Some(rest) => pick = rest,
                None => return make(a, b),
            }
        }
        unreachable!("less than the sum of the weights")
    })
}
