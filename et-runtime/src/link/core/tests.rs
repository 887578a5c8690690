//! What random programs have found, and what they would find seldom.

use std::time::Duration;

use et_devapi::msg::{CommandFlags, Tag};
use et_hal::QueueId;

use super::model::{Kind, Model, Step, run};
use super::{Command, Core, Harm, Load, Priority, Pushed, Shape, Sink};

const fn submit(stream: usize, copies: u8, launch: bool) -> Step {
    Step::Submit { stream, copies, launch }
}

const fn finish(which: usize) -> Step {
    Step::Finish { which, fail: false }
}

const fn abort(op: usize) -> Step {
    Step::Abort { op, gentle: false }
}

/// A launch that finds its ring full keeps its context for the next try, and gives it back if there
/// is none.
#[test]
fn a_context_that_was_granted_comes_back_when_its_launch_is_aborted() {
    run(&[
        submit(1, 1, true),
        submit(3, 1, true),
        submit(3, 1, false),
        submit(0, 0, false),
        submit(0, 0, false),
        submit(0, 0, false),
        abort(4),
        submit(0, 0, false),
    ]);
}

/// What the device has not taken from its ring is not aborted; it must not overtake what was before
/// it and is sent again.
#[test]
fn what_was_not_taken_overtakes_nothing_that_is_sent_again() {
    run(&[
        submit(0, 0, false),
        submit(0, 0, false),
        submit(0, 1, false),
        submit(1, 3, true),
        submit(1, 1, false),
        Step::Take { queue: 1 },
        submit(0, 0, false),
        finish(0),
        submit(1, 0, true),
        finish(0),
        submit(1, 0, true),
        finish(0),
        Step::Take { queue: 1 },
        finish(0),
        abort(1),
        Step::Take { queue: 0 },
        Step::GiveUp { op: 1 },
        submit(0, 0, false),
    ]);
}

/// The same where an earlier command of the operation had the barrier.
#[test]
fn what_follows_a_barrier_in_an_operation_overtakes_nothing_either() {
    run(&[
        submit(0, 2, false),
        submit(0, 3, true),
        submit(1, 2, false),
        submit(2, 0, false),
        Step::Own,
        submit(0, 0, false),
        submit(2, 0, false),
        Step::Begin { stream: 2 },
        abort(0),
        Step::Take { queue: 0 },
        finish(0),
        finish(0),
        submit(1, 2, false),
        abort(1),
        Step::Take { queue: 0 },
        finish(0),
        finish(0),
        abort(6),
        Step::Take { queue: 1 },
        finish(3),
        Step::Take { queue: 1 },
        submit(3, 1, false),
        finish(0),
        finish(0),
        Step::AbortStream { stream: 3 },
    ]);
}

/// An operation is aborted that had its stream wait for another stream, whose copy is sent again;
/// the next one waits still.
#[test]
fn a_barrier_outlives_the_operation_that_had_it() {
    run(&[
        submit(0, 1, false),
        Step::Take { queue: 0 },
        Step::Depend { stream: 2, on: 0 },
        submit(2, 1, false),
        Step::Take { queue: 0 },
        abort(0),
        submit(2, 1, false),
    ]);
}

/// Has room for everything, and answers nothing.
#[derive(Default)]
struct Deaf(Vec<(QueueId, Kind)>);

impl Sink<Model> for Deaf {
    fn push(&mut self, queue: QueueId, _: Tag, _: CommandFlags, load: &mut Model) -> Pushed {
        self.0.push((queue, load.kind));
        Pushed::Accepted
    }
}

/// One command in flight is all that is allowed, and it is a kernel that takes as long as it likes.
#[test]
fn a_kernel_that_has_the_only_tag_can_be_aborted_and_is_not_taken_for_silence() {
    let shape = Shape { queues: 2, high_queues: 2, in_flight: 1, contexts: 1 };
    let (mut core, mut deaf) = (Core::new(shape), Deaf::default());
    core.context_made();
    core.context_back(0);
    let stream = core.open_stream(Priority::Normal).0;
    let mut submit = |core: &mut Core<Model>, load| {
        let command = Some(Command::new(load));
        let operation = core.submit(stream, "test", command, Duration::ZERO).unwrap();
        core.pump(Duration::ZERO, &mut deaf);
        operation.key
    };
    let kernel = submit(&mut core, Model::new(Kind::Launch, 1));
    submit(&mut core, Model::ping());
    assert_eq!(deaf.0, [(QueueId::Submission(0), Kind::Launch)], "one at a time");

    let limit = Duration::from_secs(1);
    assert!(core.abort(kernel, Harm::Accept, limit).unwrap());
    core.pump(limit, &mut deaf);
    assert!(!core.watch(limit, limit));
    core.pump(limit, &mut deaf);
    let high = [(QueueId::HighPriority(0), Kind::Abort), (QueueId::HighPriority(1), Kind::Ping)];
    assert_eq!(deaf.0[1..], high);
}

/// The device answers an echo that an abort has caught, although what was before it has yet to be
/// executed.
#[test]
fn a_barrier_that_was_caught_by_an_abort_is_sent_again() {
    run(&[
        submit(0, 0, true),
        submit(2, 0, true),
        Step::Barrier { stream: 2 },
        Step::Take { queue: 0 },
        abort(2),
        Step::Take { queue: 0 },
    ]);
}

const FOLLOW: Step = Step::Decide { which: 0, follow: true };

/// A launch fails, and its report is fetched in the queue of an innocent kernel: the other queue
/// has one too, and more besides.
const REPORTED: [Step; 8] = [
    submit(0, 0, true),
    Step::Take { queue: 0 },
    submit(1, 0, true),
    Step::Take { queue: 1 },
    Step::Finish { which: 0, fail: true },
    submit(2, 1, true),
    FOLLOW,
    Step::Take { queue: 1 },
];

/// The report of a failed launch is no part of it any more: to abort the launch hurts none that
/// shares the queue of the report.
#[test]
fn what_follows_from_an_answer_is_not_aborted() {
    let outcomes = run(&[&REPORTED[..], &[abort(2), Step::Take { queue: 1 }]].concat());
    assert!(outcomes[1].is_ok(), "the innocent kernel: {outcomes:?}");
}

/// Not even with something else, although its launch is aborted.
#[test]
fn what_follows_from_an_answer_is_sent_again() {
    run(&[&REPORTED[..], &[abort(2), abort(1), Step::Take { queue: 1 }]].concat());
}

/// Nor is it given up while it waits to be sent again.
#[test]
fn what_follows_from_an_answer_waits_to_be_sent_again() {
    run(&[&REPORTED[..], &[abort(1), Step::Take { queue: 1 }, abort(2)]].concat());
}

/// The report of an aborted kernel waits for no kernel that goes on instead of it, in whatever
/// queue.
#[test]
fn what_follows_from_an_abort_waits_for_no_kernel() {
    run(&[
        submit(0, 0, true),
        submit(2, 0, true),
        Step::Take { queue: 0 },
        submit(1, 0, true),
        Step::Take { queue: 1 },
        abort(2),
        Step::Take { queue: 0 },
        FOLLOW,
        Step::Take { queue: 0 },
        // The report is the second that runs, beside the kernel of queue 1.
        finish(0),
        Step::Decide { which: 0, follow: false },
        Step::Ended { op: 0 },
    ]);
}

/// The report comes from a queue that is being aborted, and says nothing of what was before it.
#[test]
fn what_follows_from_an_answer_overtakes_nothing() {
    let outcomes = run(&[
        submit(1, 1, false),
        submit(3, 1, false),
        Step::Take { queue: 1 },
        submit(0, 1, true),
        Step::Take { queue: 0 },
        finish(0),
        Step::Finish { which: 0, fail: true },
        // Queue 0 is being aborted, so that the report goes to the other.
        submit(2, 1, false),
        abort(0),
        FOLLOW,
        abort(2),
        Step::Take { queue: 1 },
        Step::Take { queue: 1 },
        finish(0),
    ]);
    assert!(outcomes[0].is_ok(), "the innocent copy: {outcomes:?}");
}

/// The device refuses to know the kernel that a patient abort waits for.
#[test]
fn an_abort_that_avoids_harm_is_asked_for_however_the_kernel_before_it_ends() {
    let before = [
        submit(1, 1, true),
        submit(3, 1, true),
        Step::Take { queue: 1 },
        submit(0, 0, false),
        Step::Abort { op: 1, gentle: true },
        finish(0),
        finish(1),
    ];
    for end in [Step::Unknown { which: 0 }, finish(0), Step::Finish { which: 0, fail: true }] {
        run(&[&before[..], &[end]].concat());
    }
}
