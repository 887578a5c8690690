//! The state machine, step by step.

mod aborts;

use std::time::Duration;

use et_devapi::msg::ops::{
    AbortStatus, Body, CmResetStatus, DmaStatus, EchoStatus, LaunchStatus, Times,
};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::{QueueId, ResetScope};

use super::model::{Kind, Model};
use super::*;
use crate::link::EventState;
use crate::sync::{Mutex, lock};

/// A device that takes so many commands in each queue.
struct Ring {
    room: usize,
    has: Vec<(QueueId, Tag, CommandFlags, Kind)>,
}

impl Sink<Model> for Ring {
    fn push(&mut self, queue: QueueId, tag: Tag, flags: CommandFlags, load: &mut Model) -> Pushed {
        if self.has.iter().filter(|(its, ..)| *its == queue).count() >= self.room {
            return Pushed::Full;
        }
        self.has.push((queue, tag, flags, load.kind));
        Pushed::Accepted
    }
}

struct Host {
    core: Core<Model>,
    ring: Ring,
    now: Duration,
}

impl Host {
    fn new(queues: usize, room: usize) -> Self {
        let mut core =
            Core::new(Shape { queues, high_queues: queues, in_flight: 8, contexts: queues });
        for context in (0..).take(queues) {
            core.context_made();
            core.context_back(context);
        }
        Self { core, ring: Ring { room, has: Vec::new() }, now: Duration::ZERO }
    }

    fn stream(&mut self) -> StreamKey {
        self.core.open_stream(Priority::Normal).0
    }

    fn pump(&mut self) {
        self.core.pump(self.now, &mut self.ring);
    }

    /// An open operation with these commands.
    fn begin(&mut self, stream: StreamKey, kinds: &[Kind]) -> OpKey {
        self.now += Duration::from_secs(1);
        let key = self.core.begin(stream, "test", self.now).unwrap().key;
        for kind in kinds {
            self.core.append(key, Command::new(Model::new(*kind, key.id))).unwrap();
        }
        self.pump();
        key
    }

    fn is_sent(&mut self, key: OpKey) -> bool {
        self.core.state(key) != Some(EventState::Queued)
    }

    fn close(&mut self, key: OpKey) {
        self.core.close(key, Ok(()), self.now);
        self.pump();
    }

    fn submit(&mut self, stream: StreamKey, kind: Kind) -> OpKey {
        self.now += Duration::from_secs(1);
        let command = Command::new(Model::new(kind, self.core.next_op));
        let operation = self.core.submit(stream, "test", Some(command), self.now).unwrap();
        self.pump();
        operation.key
    }

    /// The device has done the first of what it has; returns whom to wake.
    fn answer(&mut self) -> Vec<Arc<Parker>> {
        self.now += Duration::from_secs(1);
        let (_, tag, _, kind) = self.ring.has.remove(0);
        let times = Times { start: 1, wait: 1, execute: 1 };
        let body = match kind {
            Kind::Copy => Body::DmaWrite { times, status: DmaStatus::Complete },
            Kind::Launch => {
                Body::Launch { times, status: LaunchStatus::KernelCompleted, error: None }
            }
            _ => Body::Echo { start: 1, status: EchoStatus::Success },
        };
        self.core.answer(tag, &body, self.now);
        self.pump();
        std::mem::take(&mut self.core.output).wake
    }

    fn flags(&self) -> Vec<bool> {
        self.ring.has.iter().map(|(_, _, flags, _)| flags.contains(CommandFlags::BARRIER)).collect()
    }
}

fn is_only(woken: &[Arc<Parker>], parker: &Arc<Parker>) -> bool {
    matches!(woken, [one] if Arc::ptr_eq(one, parker))
}

#[test]
fn a_closed_operation_lacks_room_if_nothing_else_is_before_it() {
    let mut host = Host::new(1, 1);
    let (stream, other) = (host.stream(), host.stream());
    let first = host.submit(stream, Kind::Copy);
    assert!(host.is_sent(first) && !host.core.lacks_room(first));
    let second = host.submit(stream, Kind::Copy);
    let third = host.submit(stream, Kind::Copy);
    assert!(!host.is_sent(second) && !host.core.is_clear(stream));
    assert!(host.core.lacks_room(second) && host.core.lacks_room(third));
    assert!(host.core.has_backlog());
    // Behind one that is open, or a wait, it is not room that it lacks.
    let open = host.begin(other, &[]);
    let behind = host.submit(other, Kind::Copy);
    assert!(!host.core.lacks_room(open) && !host.core.lacks_room(behind));
    host.close(open);
    assert!(host.core.lacks_room(behind));
    let wait = host.core.add_wait(other);
    let waiting = host.submit(other, Kind::Copy);
    assert!(host.core.lacks_room(behind) && !host.core.lacks_room(waiting));
    host.core.fired(other, wait, host.now);
    assert!(host.core.lacks_room(waiting));
    while !host.ring.has.is_empty() {
        host.answer();
    }
    for key in [first, second, third, open, behind, waiting] {
        assert!(host.is_sent(key) && !host.core.lacks_room(key), "it has ended");
    }
    assert!(!host.core.has_backlog() && host.core.is_clear(stream));
}

#[test]
fn an_open_operation_is_unblocked_if_its_next_command_waits_for_nothing() {
    let mut host = Host::new(1, 9);
    let stream = host.stream();
    let parker = Arc::new(Parker::new());
    let first = host.begin(stream, &[Kind::Copy]);
    let second = host.begin(stream, &[]);
    assert!(host.core.is_unblocked(first) && !host.core.is_unblocked(second));
    host.core.tell_submitter(second, &parker);
    host.close(first);
    assert!(!host.core.is_unblocked(second), "it is the first, and would wait at a barrier");
    host.core.output = Output::default();
    host.core.tell_submitter(second, &parker);
    let at = host.core.progress(second);
    assert_eq!(at, Duration::from_secs(1), "when the first was sent");
    assert!(is_only(&host.answer(), &parker));
    assert!(host.core.is_unblocked(second) && host.core.progress(second) > at);
    host.close(second);

    // What waits in the device for those before it.
    let first = host.submit(stream, Kind::Copy);
    let second = host.begin(stream, &[Kind::Copy]);
    assert_eq!(host.flags(), [false, true]);
    assert!(!host.core.is_unblocked(second));
    host.answer();
    assert!(host.is_sent(first) && !host.core.is_unblocked(second), "it is at the barrier");
    host.answer();
    assert!(host.core.is_unblocked(second));
    host.now += Duration::from_secs(9);
    host.core.note_progress(second, host.now);
    assert_eq!(host.core.progress(second), host.now);
    host.close(second);
    assert!(host.core.is_unblocked(second), "it has ended");
    assert_eq!(host.core.progress(second), Duration::ZERO);
}

#[test]
fn whoever_waits_for_the_end_is_woken_once() {
    let mut host = Host::new(2, 9);
    let (stream, other) = (host.stream(), host.stream());
    let [mine, all, gone] = [(); 3].map(|()| Arc::new(Parker::new()));
    host.core.when_idle(Some(stream), &mine);
    host.core.when_idle(None, &all);
    assert!(!host.core.waits(Some(stream), &mine) && !host.core.waits(None, &all), "it is idle");
    host.submit(stream, Kind::Copy);
    host.submit(other, Kind::Copy);
    for (which, parker) in [(Some(stream), &mine), (Some(stream), &gone), (None, &all)] {
        assert!(!host.core.is_idle(which));
        host.core.when_idle(which, parker);
        assert!(host.core.waits(which, parker));
    }
    host.core.leave(Some(stream), &gone);
    assert!(!host.core.waits(Some(stream), &gone) && host.core.waits(Some(stream), &mine));
    assert!(is_only(&host.answer(), &mine));
    assert!(host.core.is_idle(Some(stream)) && !host.core.is_idle(Some(other)));
    assert!(!host.core.waits(Some(stream), &mine) && !host.core.is_quiet());
    // The runtime's own commands count for the whole.
    host.core.post(0, Command::new(Model::new(Kind::Ping, 0)));
    host.pump();
    assert_eq!(host.answer().len(), 0);
    assert!(host.core.is_idle(Some(other)) && !host.core.is_quiet());
    assert!(is_only(&host.answer(), &all));
    assert!(host.core.is_quiet() && !host.core.waits(None, &all));
}

#[test]
fn what_is_under_way_is_counted() {
    let mut host = Host::new(1, 1);
    let (stream, dropped) = (host.stream(), host.stream());
    assert_eq!(host.core.attention(), Attention::Nothing);
    let first = host.submit(stream, Kind::Copy);
    assert_eq!(host.core.attention(), Attention::Flights);
    host.core.want(first);
    assert_eq!(host.core.attention(), Attention::Wanted);
    host.core.unwant(first);
    let second = host.submit(dropped, Kind::Copy);
    assert_eq!(host.core.attention(), Attention::Wanted, "there was no room for it");
    host.core.drop_stream(dropped);
    let now = host.core.activity();
    assert_eq!((now.streams, now.accepted, now.pending, now.in_flight), (1, 2, 2, 1));
    assert_eq!(
        (host.core.in_flight_of(first).count(), host.core.in_flight_of(second).count()),
        (1, 0)
    );
    assert!(!host.core.sleep());
    host.answer();
    assert_eq!(
        (host.core.in_flight_of(first).count(), host.core.in_flight_of(second).count()),
        (0, 1)
    );
    assert_eq!(host.core.attention(), Attention::Flights);
    host.answer();
    assert!(host.core.sleep());
    let now = host.core.activity();
    assert_eq!((now.streams, now.accepted, now.pending, now.in_flight), (1, 2, 0, 0));
}

#[test]
fn a_command_without_an_order_goes_where_it_is_answered_first() {
    let mut host = Host::new(3, 9);
    let streams = [(); 3].map(|()| host.stream());
    assert_eq!((host.core.queue_count(), host.core.quietest()), (3, 0));
    host.submit(streams[0], Kind::Copy);
    assert_eq!(host.core.quietest(), 1, "the one with the fewest commands");
    for stream in &streams[1..] {
        host.submit(*stream, Kind::Launch);
    }
    host.submit(streams[0], Kind::Copy);
    host.ring.has.retain(|(_, _, flags, _)| !flags.contains(CommandFlags::BARRIER));
    assert_eq!(host.core.quietest(), 1, "behind a barrier it would wait as behind a kernel");
    let kernel = host.submit(streams[2], Kind::Copy);
    assert!(host.core.abort(kernel, Harm::Accept, host.now).unwrap());
    assert_eq!(host.core.quietest(), 2, "that which is aborted goes on soon");
}

#[test]
fn a_device_that_is_silent_is_asked_and_given_up_then() {
    let (mut host, limit) = (Host::new(2, 9), Duration::from_secs(10));
    let stream = host.stream();
    let later = |host: &mut Host, secs| {
        host.now += Duration::from_secs(secs);
        let is_gone = host.core.watch(limit, host.now);
        host.pump();
        (is_gone, host.ring.has.iter().map(|(queue, .., kind)| (*queue, *kind)).collect::<Vec<_>>())
    };
    assert_eq!(later(&mut host, 99), (false, vec![]), "there is nothing to answer");
    host.submit(stream, Kind::Launch);
    let launch = (QueueId::Submission(0), Kind::Launch);
    assert_eq!(later(&mut host, 9), (false, vec![launch]));
    let asked = vec![launch, (QueueId::Submission(1), Kind::Ping)];
    assert_eq!(later(&mut host, 1), (false, asked.clone()), "not behind the kernel");
    assert_eq!(later(&mut host, 9), (false, asked.clone()));
    assert_eq!(later(&mut host, 1), (true, asked.clone()));
    // It answers after all.
    host.ring.has.swap(0, 1);
    host.answer();
    assert_eq!(later(&mut host, 9), (false, vec![launch]));
    assert_eq!(later(&mut host, 1), (false, asked), "it is asked again");
}

#[test]
fn contexts_are_made_as_long_as_launches_want_them_and_there_may_be_more() {
    let mut host = Host::new(2, 9);
    let streams = [(); 2].map(|()| host.stream());
    assert_eq!((host.core.contexts(), host.core.wants_more_contexts()), (2, false));
    host.core.context_gone();
    assert_eq!(host.core.contexts(), 1);
    assert!(!host.core.wants_more_contexts(), "some are free");
    for stream in streams {
        host.submit(stream, Kind::Launch);
    }
    assert!(host.core.wants_more_contexts());
    host.core.context_made();
    assert!(!host.core.wants_more_contexts(), "there may be no more");
}

#[test]
fn a_kernel_that_hangs_takes_more_to_end_than_a_reset_of_compute() {
    for (kind, scope) in [(Kind::Copy, ResetScope::Compute), (Kind::Launch, ResetScope::Function)] {
        let mut host = Host::new(1, 9);
        let stream = host.stream();
        host.submit(stream, kind);
        host.core.compute_fails(&"silence".into(), host.now);
        let why = host.core.health().compute_refusal();
        assert!(
            matches!(why, Some(Error::NeedsReset { scope: its, .. }) if *its == scope),
            "{why:?}"
        );
    }
}

#[test]
fn who_gives_up_fails_its_operation_and_the_next_one_goes_on() {
    let mut host = Host::new(1, 1);
    let stream = host.stream();
    let first = host.submit(stream, Kind::Copy);
    let second = host.submit(stream, Kind::Copy);
    let third = host.submit(stream, Kind::Copy);
    host.core.give_up(second, Error::timeout("room", Duration::ZERO), host.now);
    let ended: Vec<_> = host.core.output.ended.drain(..).collect();
    let [Ended { operation, error: Some(Error::Timeout { .. }), .. }] = &ended[..] else {
        panic!("{} have ended", ended.len());
    };
    assert_eq!(operation.key, second);
    host.answer();
    assert!(host.is_sent(first) && host.is_sent(third));
}

#[test]
fn a_stream_waits_for_each_of_those_it_depends_on() {
    let mut host = Host::new(1, 9);
    let [mine, one, other] = [(); 3].map(|()| host.stream());
    for stream in [one, other] {
        let key = host.submit(stream, Kind::Copy);
        host.core.depend(mine, key);
    }
    host.answer();
    host.submit(mine, Kind::Copy);
    assert_eq!(host.flags(), [false, true], "the second is still on its way");
}

#[test]
fn a_command_behind_others_waits_if_they_are_on_their_way() {
    let mut host = Host::new(1, 9);
    let stream = host.stream();
    let key = host.begin(stream, &[Kind::Copy, Kind::Copy]);
    let behind = |host: &mut Host| {
        let load = Model::new(Kind::Copy, key.id);
        host.core.append(key, Command::behind(load)).unwrap();
        host.pump();
    };
    behind(&mut host);
    assert_eq!(host.flags(), [false, false, true]);
    while !host.ring.has.is_empty() {
        host.answer();
    }
    behind(&mut host);
    assert_eq!(host.flags(), [false]);
}

#[test]
fn a_queue_that_goes_on_is_better_than_one_that_is_aborted() {
    let mut host = Host::new(2, 9);
    let stream = host.stream();
    let copy = host.submit(stream, Kind::Copy);
    assert!(host.core.abort(copy, Harm::Accept, host.now).unwrap());
    assert_eq!(host.core.quietest(), 1);
}

#[test]
fn high_priority_goes_where_there_is_such_a_queue() {
    let shape = Shape { queues: 2, high_queues: 1, in_flight: 8, contexts: 1 };
    let mut core = Core::new(shape);
    let ping = || Command::new(Model::ping());
    assert!(core.post_high(0, ping()) && !core.post_high(1, ping()));
    core.lose(&Error::all_closed(), Duration::ZERO);
    assert!(!core.post_high(0, ping()), "the device is lost");
}

#[test]
fn what_has_been_done_is_counted_when_it_has_ended() {
    let mut host = Host::new(2, 8);
    let stream = host.stream();
    let (copy, launch) = (host.submit(stream, Kind::Copy), host.submit(stream, Kind::Launch));
    let before = host.core.activity();
    assert_eq!((before.launches, before.to_device_bytes), (0, 0));
    assert_eq!(before.launched_shires, 1 << launch.id);
    host.answer();
    host.answer();
    let after = host.core.activity();
    assert_eq!((after.launches, after.to_device_bytes), (1, copy.id));
    let shire = usize::try_from(launch.id).unwrap();
    assert_eq!((after.launched_shires, after.busy_cycles[shire]), (0, 1));

    // A copy that failed has brought nothing, and a kernel that failed has run.
    host.submit(stream, Kind::Copy);
    host.submit(stream, Kind::Launch);
    let times = Times { start: 1, wait: 1, execute: 9 };
    let (_, tag, ..) = host.ring.has.remove(0);
    let body = Body::DmaWrite { times, status: DmaStatus::InvalidAddress };
    host.core.answer(tag, &body, host.now);
    let (_, tag, ..) = host.ring.has.remove(0);
    let body = Body::Launch { times, status: LaunchStatus::Error, error: None };
    let Answer::Held(held) = host.core.answer(tag, &body, host.now) else { panic!("not held") };
    let activity = host.core.activity();
    assert_eq!((activity.launches, activity.to_device_bytes), (2, copy.id));
    assert_eq!(activity.busy_cycles.iter().sum::<u64>(), 10);
    let (_, _, op) = held.split();
    host.core.release(op, Ok(()), host.now);

    // One that the firmware refuses has not.
    host.submit(stream, Kind::Launch);
    let (_, tag, ..) = host.ring.has.remove(0);
    let times = Times { execute: 0, ..times };
    let body = Body::Launch { times, status: LaunchStatus::Error, error: None };
    assert!(matches!(host.core.answer(tag, &body, host.now), Answer::Held(_)));
    assert_eq!(host.core.activity().launches, 2);
}

#[test]
fn a_launch_whose_answer_is_looked_at_is_executed() {
    let mut host = Host::new(2, 8);
    let stream = host.stream();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listen = |host: &mut Host, key: OpKey, name: &'static str| {
        let heard = Arc::clone(&heard);
        let callback = Box::new(move |state: &EventState| lock(&heard).push((name, *state)));
        assert!(host.core.on_reached(key, EventState::Executed, callback).is_ok());
    };
    let (fails, works) = (host.submit(stream, Kind::Launch), host.submit(stream, Kind::Launch));
    listen(&mut host, fails, "fails");
    listen(&mut host, works, "works");
    assert_eq!(host.core.state(fails), Some(EventState::Ready));
    let (_, tag, ..) = host.ring.has.remove(0);
    let times = Times { start: 1, wait: 1, execute: 9 };
    let body = Body::Launch { times, status: LaunchStatus::Exception, error: None };
    let Answer::Held(held) = host.core.answer(tag, &body, host.now) else { panic!("not held") };
    assert_eq!(host.core.state(fails), Some(EventState::Executed));
    for Reached { state, told, .. } in host.core.output.reached.drain(..) {
        told.into_iter().for_each(|callback| callback(&state));
    }
    // Who asks now is told at once.
    listen(&mut host, fails, "late");
    for Reached { state, told, .. } in host.core.output.reached.drain(..) {
        told.into_iter().for_each(|callback| callback(&state));
    }
    assert_eq!(*lock(&heard), [("fails", EventState::Executed), ("late", EventState::Executed)]);
    let (_, _, op) = held.split();
    host.core.release(op, Err(Error::Aborted { op: "launch" }), host.now);
    assert_eq!(host.core.state(fails), None);
    // What succeeds tells of its end.
    host.core.output.ended.clear();
    host.now += Duration::from_secs(1);
    let (_, tag, ..) = host.ring.has.remove(0);
    let body = Body::Launch { times, status: LaunchStatus::KernelCompleted, error: None };
    host.core.answer(tag, &body, host.now);
    let ended = host.core.output.ended.pop().unwrap();
    assert_eq!((host.core.state(works), lock(&heard).len()), (None, 2));
    assert_eq!((ended.operation.key, ended.told.len()), (works, 1));
}

#[test]
fn commands_of_high_priority_take_no_place_of_the_others() {
    let mut host = Host::new(2, 9);
    host.core = Core::new(Shape { queues: 2, high_queues: 2, in_flight: 4, contexts: 2 });
    let stream = host.stream();
    for _ in 0..3 {
        host.submit(stream, Kind::Copy);
    }
    for queue in [0, 1] {
        assert!(host.core.post_high(queue, Command::new(Model::ping())));
        host.pump();
    }
    let [fourth, fifth] = [(); 2].map(|()| host.submit(stream, Kind::Copy));
    assert!(host.is_sent(fourth) && !host.is_sent(fifth), "four are allowed");
    host.answer();
    assert!(host.is_sent(fifth));
}

#[test]
fn what_a_lost_device_could_still_reach_is_kept_until_its_reset() {
    let mut host = Host::new(1, 9);
    let stream = host.stream();
    host.submit(stream, Kind::Copy);
    let lost = Error::lost("it is gone");
    assert!(host.core.lose(&lost, host.now) && !host.core.lose(&lost, host.now));
    let kept = host.core.end_quarantine();
    assert!(matches!(&kept[..], [copy] if copy.kind == Kind::Copy));
    assert!(host.core.end_quarantine().is_empty());
}

#[test]
fn an_operation_of_no_command_ends_in_its_turn() {
    let mut host = Host::new(1, 8);
    let (stream, other) = (host.stream(), host.stream());
    let submit = |host: &mut Host| {
        let operation = host.core.submit(stream, "test", None, host.now).unwrap();
        host.pump();
        operation.key
    };
    let first = submit(&mut host);
    assert_eq!((host.core.state(first), host.ring.has.len()), (None, 0), "nothing is before it");
    // Behind its stream, behind another in the same queue, and behind something elsewhere.
    host.submit(stream, Kind::Copy);
    let second = submit(&mut host);
    assert_eq!(host.flags(), [false, true]);
    host.answer();
    assert!(host.core.state(second).is_some());
    host.answer();
    assert_eq!(host.core.state(second), None);
    let before = host.submit(other, Kind::Copy);
    host.core.depend(stream, before);
    let third = submit(&mut host);
    assert_eq!(host.flags(), [false, true]);
    host.answer();
    assert!(host.core.state(third).is_some());
    host.answer();
    assert_eq!(host.core.state(third), None);
    let wait = host.core.add_wait(stream);
    let fourth = submit(&mut host);
    assert!(host.core.state(fourth).is_some() && host.ring.has.is_empty());
    host.core.fired(stream, wait, host.now);
    host.pump();
    host.answer();
    assert_eq!(host.core.state(fourth), None);
}
