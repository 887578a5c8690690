//! Aborts and resets, step by step.

use super::*;

impl Host {
    fn abort(&mut self, key: OpKey) {
        assert!(self.core.abort(key, Harm::Accept, self.now).unwrap());
        self.pump();
    }

    /// Of what the device has, it answers one: a copy is aborted, and the abort done.
    fn answer_aborted(&mut self, at: usize, execute: u64) {
        let (_, tag, _, kind) = self.ring.has.remove(at);
        let times = Times { start: 1, wait: 1, execute };
        let body = match kind {
            Kind::Abort => Body::Abort { status: AbortStatus::Success },
            Kind::Launch => Body::Launch { times, status: LaunchStatus::HostAborted, error: None },
            _ => Body::DmaWrite { times, status: DmaStatus::HostAborted },
        };
        self.core.answer(tag, &body, self.now);
        self.pump();
    }

    /// Answers of what was aborted do not come any more.
    fn wait(&mut self) {
        self.now += Duration::from_secs(1);
        self.pump();
    }

    fn ask_for_reset(&mut self) {
        assert!(self.core.post_reset(Command::new(Model::new(Kind::Reset, 0))));
        self.pump();
    }

    /// Returns how many contexts are replaced.
    fn answer_reset(&mut self, status: CmResetStatus) -> usize {
        let at = self.kinds().iter().position(|kind| *kind == Kind::Reset).unwrap();
        let (_, tag, ..) = self.ring.has.remove(at);
        let answer = self.core.answer(tag, &Body::CmReset { status }, self.now);
        let Answer::Held(held) = answer else { panic!("someone may want to know") };
        let queue = held.queue;
        self.core.release(held.split().2, Ok(()), self.now);
        self.core.decided(queue, self.now);
        let mut replaced = 0;
        while self.core.replace_context() {
            self.core.context_back(0);
            replaced += 1;
        }
        self.pump();
        replaced
    }

    fn reset(&mut self) -> usize {
        self.ask_for_reset();
        self.answer_reset(CmResetStatus::Success)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.ring.has.iter().map(|it| it.3).collect()
    }
}

#[test]
fn an_abort_ends_what_is_meant_and_what_cannot_be_repeated() {
    let times = |execute| Times { start: 1, wait: 1, execute };
    let status = LaunchStatus::HostAborted;
    for (has_run, execute) in [(true, 1), (false, 0)] {
        let mut host = Host::new(1, 9);
        let [stream, other] = [(); 2].map(|()| host.stream());
        host.submit(stream, Kind::Launch);
        let copy = host.submit(other, Kind::Copy);
        host.abort(copy);
        let [(_, launch, ..), (_, meant, ..), (high, abort, _, Kind::Abort)] = host.ring.has[..]
        else {
            panic!("{:?}", host.ring.has);
        };
        assert_eq!(high, QueueId::HighPriority(0));
        host.ring.has.clear();
        let body = Body::Launch { times: times(execute), status, error: None };
        match (has_run, host.core.answer(launch, &body, host.now)) {
            (true, Answer::Held(held)) => {
                let (_, error, _) = held.split();
                let is_known = matches!(error, Some(Error::AbortedWith { op: "test", .. }));
                assert!(is_known, "{error:?}");
            }
            (false, Answer::Settled) => {}
            _ => panic!("has run: {has_run}"),
        }
        // A copy leaves nothing to be looked at.
        let body = Body::DmaWrite { times: times(0), status: DmaStatus::HostAborted };
        assert!(matches!(host.core.answer(meant, &body, host.now), Answer::Settled));
        let body = Body::Abort { status: AbortStatus::Success };
        assert!(matches!(host.core.answer(abort, &body, host.now), Answer::Settled));
        host.pump();
        let again: Vec<_> = host.ring.has.iter().map(|(.., kind)| *kind).collect();
        assert_eq!(again, if has_run { &[][..] } else { &[Kind::Launch] });
    }
}

#[test]
fn a_reset_of_compute_answers_for_launches_and_aborts_before_it() {
    let mut host = Host::new(2, 9);
    let [stream, _, other] = [(); 3].map(|()| host.stream());
    let kernel = host.submit(stream, Kind::Launch);
    host.abort(kernel);
    host.submit(other, Kind::Copy);
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Abort], "the queue is held up");
    assert_eq!(host.reset(), 1, "its context went with it");
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Abort, Kind::Copy], "and goes on");
    host.submit(stream, Kind::Copy);
    assert!(!host.flags().contains(&true), "nothing is before it");
    let ended = &host.core.output.ended;
    assert!(matches!(&ended[..], [Ended { error: Some(Error::Aborted { .. }), .. }]));
}

#[test]
fn an_abort_that_waits_for_a_kernel_is_not_that_of_another_queue() {
    let mut host = Host::new(2, 9);
    // The kernels of queue 0 all run; the third is for the one that is aborted.
    host.core.context_made();
    host.core.context_back(2);
    let streams = [(); 6].map(|()| host.stream());
    let [first, in_other, second, _, third, _] = streams;
    let innocents = [first, second].map(|stream| host.submit(stream, Kind::Launch));
    let patient = host.submit(third, Kind::Launch);
    let copy = host.submit(in_other, Kind::Copy);
    let queues: Vec<_> = host.ring.has.iter().map(|(queue, ..)| *queue).collect();
    let [zero, one] = [0, 1].map(QueueId::Submission);
    assert_eq!(queues, [zero, zero, zero, one]);
    assert!(host.core.abort(patient, Harm::Avoid, host.now).unwrap());
    assert!(host.core.waits_for_a_kernel(patient) && host.core.waits_for_a_kernel(innocents[1]));
    assert!(!host.core.waits_for_a_kernel(innocents[0]), "of itself");
    host.abort(copy);
    let asked = |host: &Host| {
        let queues = host.ring.has.iter().filter(|(.., kind)| *kind == Kind::Abort);
        queues.map(|(queue, ..)| *queue).collect::<Vec<_>>()
    };
    assert_eq!(asked(&host), [QueueId::HighPriority(1)], "of queue 1 only");
    host.answer();
    assert_eq!(asked(&host), [QueueId::HighPriority(1)], "one kernel of another is left");
    host.answer();
    assert_eq!(asked(&host), [1, 0].map(QueueId::HighPriority));
    assert!(!host.core.waits_for_a_kernel(patient));
}

/// The device aborts what it has taken from its ring, and not what it takes afterwards.
#[test]
fn what_an_abort_came_too_early_for_is_aborted_by_another() {
    for is_asked_late in [false, true] {
        let mut host = Host::new(1, 8);
        let (stream, other) = (host.stream(), host.stream());
        let (first, second) = (host.submit(stream, Kind::Copy), host.submit(other, Kind::Copy));
        host.abort(first);
        if !is_asked_late {
            host.abort(second);
        }
        assert_eq!(host.kinds(), [Kind::Copy, Kind::Copy, Kind::Abort]);
        host.answer_aborted(0, 0);
        host.answer_aborted(1, 0);
        assert_eq!(host.kinds(), [Kind::Copy]);
        if is_asked_late {
            host.abort(second);
        } else {
            host.wait();
        }
        assert_eq!(host.kinds(), [Kind::Copy, Kind::Abort]);
        host.answer_aborted(0, 0);
        host.answer_aborted(0, 0);
        assert_eq!((host.core.state(first), host.core.state(second)), (None, None));
        // One that has ended when the other abort is answered needs none, which might harm others.
        let (third, fourth) = (host.submit(stream, Kind::Copy), host.submit(other, Kind::Copy));
        host.abort(third);
        host.abort(fourth);
        host.answer_aborted(0, 0);
        host.answer_aborted(0, 0);
        assert_eq!(host.kinds(), [Kind::Abort]);
        host.answer_aborted(0, 0);
        assert_eq!(host.kinds(), []);
        let next = host.submit(other, Kind::Copy);
        assert!(host.is_sent(next));
        host.answer();
        assert_eq!(host.core.state(next), None);
    }
}

/// What the device takes after an abort may begin before what that has ended is sent again.
#[test]
fn what_an_abort_lets_begin_out_of_its_turn_is_not_overtaken_later() {
    for (is_refused, has_begun) in [(false, false), (false, true), (true, false)] {
        let mut host = Host::new(1, 8);
        let [stream, other, third] = [(); 3].map(|()| host.stream());
        let before = host.submit(stream, Kind::Copy);
        let meant = host.submit(other, Kind::Copy);
        let behind = host.submit(stream, Kind::Copy);
        let late = host.submit(third, Kind::Copy);
        assert_eq!(host.flags(), [false, false, true, false]);
        host.abort(meant);
        host.abort(late);
        // The device has taken the first two when it looks at the abort.
        for at in [0, 0, 2] {
            host.answer_aborted(at, 1);
        }
        assert_eq!(host.kinds(), [Kind::Copy, Kind::Copy], "the answers may be on their way");
        host.wait();
        assert_eq!(host.kinds(), [Kind::Copy, Kind::Copy, Kind::Abort]);
        assert!(host.core.state(before).is_some(), "it would be sent again");
        if is_refused {
            let (_, tag, ..) = host.ring.has.remove(2);
            let body = Body::Abort { status: AbortStatus::Error };
            let answer = host.core.answer(tag, &body, host.now);
            assert!(matches!(answer, Answer::AbortRefused(Error::Refused { op: "abort", .. })));
            assert!(host.core.state(behind).is_some(), "it goes on");
            let (_, tag, ..) = host.ring.has.remove(0);
            let body = Body::DmaWrite { times: Times::default(), status: DmaStatus::InvalidSize };
            let answer = host.core.answer(tag, &body, host.now);
            assert!(matches!(answer, Answer::Settled), "its operation has the error");
            assert!(host.core.state(behind).is_none());
        } else {
            host.answer_aborted(0, u64::from(has_begun));
            host.answer_aborted(0, 0);
            host.answer_aborted(0, 0);
        }
        let ended = &host.core.output.ended;
        let its = ended.iter().find(|its| its.operation.key == before);
        if is_refused || has_begun {
            let error = its.and_then(|its| its.error.as_ref());
            assert!(matches!(error, Some(Error::AbortedWith { .. })), "{error:?}");
        } else {
            assert!(its.is_none());
            assert_eq!(host.flags(), [false, true], "in their order again");
        }
    }
}

/// The same, of what was sent again.
#[test]
fn what_is_sent_again_keeps_its_barrier_through_the_next_abort() {
    let mut host = Host::new(1, 8);
    let [stream, other] = [(); 2].map(|()| host.stream());
    let before = host.submit(stream, Kind::Copy);
    host.submit(stream, Kind::Copy);
    let meant = host.submit(other, Kind::Copy);
    host.abort(meant);
    for _ in 0..4 {
        host.answer_aborted(0, 0);
    }
    assert_eq!(host.flags(), [false, true], "both are sent again");
    let meant = host.submit(other, Kind::Copy);
    host.abort(meant);
    // The device has yet to take the one with the barrier when it looks at the abort.
    for at in [0, 1, 1] {
        host.answer_aborted(at, 0);
    }
    host.answer();
    assert_eq!(
        (host.core.state(before), host.kinds()),
        (None, vec![]),
        "too late to be sent again"
    );
}

/// An operation keeps no order between its own commands.
#[test]
fn a_barrier_that_its_own_operation_has_overtaken_is_sent_again() {
    let mut host = Host::new(1, 8);
    let [stream, other] = [(); 2].map(|()| host.stream());
    host.submit(stream, Kind::Copy);
    let operation = host.begin(stream, &[Kind::Copy, Kind::Copy]);
    host.close(operation);
    assert_eq!(host.flags(), [false, true, false]);
    host.answer();
    let meant = host.submit(other, Kind::Copy);
    host.abort(meant);
    host.answer_aborted(0, 0);
    host.answer_aborted(1, 0);
    // It had not taken the second when it looked at the abort.
    assert_eq!(host.kinds(), [Kind::Copy, Kind::Abort]);
    host.answer();
    host.answer_aborted(0, 0);
    assert_eq!((host.kinds(), host.flags()), (vec![Kind::Copy], vec![true]));
    assert!(host.core.state(operation).is_some(), "it has not failed");
}

#[test]
fn an_abort_that_waits_for_a_kernel_is_asked_for_beside_another() {
    let mut host = Host::new(1, 9);
    host.core.context_made();
    host.core.context_back(2);
    let [first, second, third] = [(); 3].map(|()| host.stream());
    host.submit(first, Kind::Launch);
    let patient = host.submit(second, Kind::Launch);
    assert!(host.core.abort(patient, Harm::Avoid, host.now).unwrap());
    let copy = host.submit(third, Kind::Copy);
    host.abort(copy);
    let aborts = |host: &Host| {
        let is_one = |it: &&(QueueId, Tag, CommandFlags, Kind)| it.3 == Kind::Abort;
        host.ring.has.iter().filter(is_one).map(|it| it.1).collect::<Vec<_>>()
    };
    // The kernel ends before the device looks at the abort, and it has not yet taken the other.
    host.answer();
    let [abort] = aborts(&host)[..] else { panic!("{:?}", host.ring.has) };
    host.ring.has.retain(|it| it.1 != abort);
    let body = Body::Abort { status: AbortStatus::Success };
    assert!(matches!(host.core.answer(abort, &body, host.now), Answer::Settled));
    host.wait();
    assert_eq!(aborts(&host).len(), 1, "what has waited is to be aborted, too");
}

/// The device may look at the abort before it takes the operation from the ring.
#[test]
fn an_abort_that_comes_too_early_for_its_own_operation_is_asked_for_once_more() {
    let mut host = Host::new(1, 8);
    let stream = host.stream();
    let meant = host.submit(stream, Kind::Launch);
    host.abort(meant);
    let mut asked = 0;
    while let Some(at) = host.ring.has.iter().position(|it| it.3 == Kind::Abort) {
        let (_, tag, ..) = host.ring.has.remove(at);
        let body = Body::Abort { status: AbortStatus::Success };
        assert!(matches!(host.core.answer(tag, &body, host.now), Answer::Settled));
        host.wait();
        host.wait();
        asked += 1;
    }
    assert_eq!((asked, host.ring.has.len()), (2, 1));
}

/// What a lost launch has waited for is not overtaken by what comes behind the launch.
#[test]
fn a_launch_that_is_lost_leaves_its_barrier_to_the_next() {
    for is_empty in [false, true] {
        let mut host = Host::new(1, 8);
        let [before, stream] = [(); 2].map(|()| host.stream());
        let first = host.submit(before, Kind::Copy);
        host.core.depend(stream, first);
        host.submit(stream, Kind::Launch);
        assert_eq!(host.flags(), [false, true]);
        host.reset();
        let next = if is_empty {
            let operation = host.core.submit(stream, "test", None, host.now).unwrap();
            host.pump();
            operation.key
        } else {
            host.submit(stream, Kind::Copy)
        };
        assert!(host.core.state(next).is_some());
        assert_eq!(host.flags(), [false, true, true]);
        // When the queue is empty, there is nothing to wait for any more.
        host.answer();
        host.ring.has.remove(0);
        host.answer();
        assert_eq!(host.core.state(next), None);
        host.submit(stream, Kind::Copy);
        assert_eq!(host.flags(), [false]);
        // One that has waited for nothing leaves nothing.
        host.submit(before, Kind::Launch);
        host.reset();
        host.submit(before, Kind::Copy);
        assert_eq!(host.flags(), [false; 3]);
    }
}

#[test]
fn an_abort_that_the_device_does_not_know_is_told_and_what_it_has_goes_on() {
    let mut host = Host::new(1, 8);
    let stream = host.stream();
    let meant = host.submit(stream, Kind::Copy);
    host.abort(meant);
    let (_, tag, _, Kind::Abort) = host.ring.has.remove(1) else { panic!("{:?}", host.ring.has) };
    let answer = host.core.refused(tag, host.now);
    let Answer::AbortRefused(Error::Refused { op: "abort", .. }) = answer else {
        panic!("it is told")
    };
    assert!(matches!(host.core.refused(tag, host.now), Answer::Stray));
    let next = host.submit(stream, Kind::Copy);
    assert!(host.is_sent(next) && host.core.state(meant).is_some());
    host.answer();
    assert_eq!(host.core.state(meant), None);
}

#[test]
fn an_abort_that_is_not_needed_any_more_is_not_sent() {
    let mut host = Host::new(2, 8);
    let [stream, in_other, other] = [(); 3].map(|()| host.stream());
    let meant = host.submit(stream, Kind::Copy);
    let innocent = host.submit(other, Kind::Launch);
    // Another command holds the high-priority queue up while the operation ends by itself.
    assert!(host.core.post_high(0, Command::new(Model::ping())));
    host.pump();
    host.abort(meant);
    // What is to be aborted in another queue is no reason for it.
    let elsewhere = host.submit(in_other, Kind::Copy);
    host.abort(elsewhere);
    host.answer();
    assert_eq!(host.core.state(meant), None);
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Ping, Kind::Copy, Kind::Abort]);
    host.ring.has.swap(0, 1);
    host.answer();
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Copy, Kind::Abort], "no abort harms it");
    let next = host.submit(other, Kind::Copy);
    assert!(host.is_sent(next), "the queue goes on");
    host.answer();
    assert_eq!(host.core.state(innocent), None);
}

/// A kernel that the device took after the abort may run as long as it likes.
#[test]
fn a_queue_goes_on_beside_a_kernel_that_an_abort_has_not_met() {
    for has_met in [false, true] {
        let mut host = Host::new(2, 8);
        let [stream, elsewhere, other, _, third] = [(); 5].map(|()| host.stream());
        let again = host.submit(other, Kind::Launch);
        let meant = host.submit(stream, Kind::Copy);
        let endless = host.submit(third, Kind::Launch);
        // What is behind a barrier of another queue overtakes nothing.
        for _ in 0..2 {
            host.submit(elsewhere, Kind::Copy);
        }
        host.abort(meant);
        for at in [0, 0, 3] {
            host.answer_aborted(at, 0);
        }
        let left = [Kind::Launch, Kind::Copy, Kind::Copy];
        assert_eq!((host.core.state(meant), &host.kinds()[..]), (None, &left[..]));
        let numbered = host.core.sequence;
        host.wait();
        assert!(host.core.sequence > numbered, "it comes behind what is there");
        assert_eq!(host.kinds(), [&left[..], &[Kind::Launch]].concat());
        let next = host.submit(stream, Kind::Copy);
        assert!(host.is_sent(next) && host.core.state(again).is_some());
        if has_met {
            // It was met all the same, and took its time.
            let (_, tag, ..) = host.ring.has[0];
            let times = Times { start: 1, wait: 1, execute: 1 };
            let body = Body::Launch { times, status: LaunchStatus::HostAborted, error: None };
            let Answer::Held(held) = host.core.answer(tag, &body, host.now) else {
                panic!("a kernel that has run is looked at")
            };
            let Some(Error::AbortedWith { operation, .. }) = held.error else {
                panic!("{:?}", held.error)
            };
            assert_eq!(operation, meant.id);
        } else {
            // What is sent again is behind the kernel, whose own abort need not wait for it.
            assert!(host.core.abort(endless, Harm::Avoid, host.now).unwrap());
            assert!(!host.core.waits_for_a_kernel(endless));
            host.pump();
            assert_eq!(host.kinds().last(), Some(&Kind::Abort));
        }
    }
}

/// It is executed all the same, perhaps. Launches that the reset has ended are never answered.
#[test]
fn an_abort_that_a_reset_has_left_may_end_what_comes_later() {
    let mut host = Host::new(2, 8);
    let [stream, _, other] = [(); 3].map(|()| host.stream());
    let kernel = host.submit(stream, Kind::Launch);
    host.abort(kernel);
    host.reset();
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Abort]);
    for is_left in [true, false] {
        if !is_left {
            host.answer_aborted(1, 0);
        }
        host.submit(other, Kind::Copy);
        host.ring.has.rotate_right(1);
        host.answer();
        host.submit(other, Kind::Launch);
        let (_, tag, ..) = host.ring.has.pop().unwrap();
        let times = Times { start: 1, wait: 1, execute: 1 };
        let body = Body::Launch { times, status: LaunchStatus::HostAborted, error: None };
        let Answer::Held(held) = host.core.answer(tag, &body, host.now) else { panic!() };
        match &held.error {
            Some(Error::AbortedWith { operation, .. }) => {
                assert_eq!((is_left, *operation), (true, kernel.id));
            }
            Some(Error::Aborted { .. }) => assert!(!is_left),
            other => panic!("{other:?}"),
        }
        let (queue, (.., op)) = (held.queue, held.split());
        host.core.release(op, Ok(()), host.now);
        host.core.decided(queue, host.now);
    }
}

/// What a reset of compute ends is never answered.
#[test]
fn launches_are_held_while_compute_is_reset() {
    let mut host = Host::new(2, 8);
    host.core.contexts.limit = 4;
    let [stream, other] = [(); 2].map(|()| host.stream());
    let before = host.submit(stream, Kind::Launch);
    host.ask_for_reset();
    let launch = host.submit(other, Kind::Launch);
    assert!(host.is_sent(before) && !host.is_sent(launch));
    assert!(!host.core.lacks_room(launch), "no one waits for that");
    let third = host.stream();
    let copy = host.submit(third, Kind::Copy);
    assert!(host.is_sent(copy), "others go on");
    // Contexts do not let it go either, nor the first of two resets.
    host.ask_for_reset();
    assert_eq!(host.kinds(), [Kind::Launch, Kind::Reset, Kind::Copy], "one after another");
    for context in [2, 3] {
        host.core.context_made();
        host.core.context_back(context);
        host.pump();
    }
    assert_eq!(host.answer_reset(CmResetStatus::Success), 1);
    assert_eq!((host.core.state(before), host.is_sent(launch)), (None, false));
    assert_eq!(host.answer_reset(CmResetStatus::Success), 0);
    assert!(host.is_sent(launch));
    let contexts = &host.core.contexts;
    assert_eq!((contexts.free.len() + 1, contexts.made), (4, 4), "it has one of them");
}

/// The answer to the last says that none is to come.
#[test]
fn resets_are_sent_one_after_another() {
    let resets = |host: &Host| host.kinds().iter().filter(|kind| **kind == Kind::Reset).count();
    for is_other_free in [true, false] {
        let mut host = Host::new(2, 8);
        let busy = if is_other_free { &[0][..] } else { &[0, 1] };
        for &queue in busy {
            assert!(host.core.post_high(queue, Command::new(Model::ping())));
            host.pump();
        }
        host.ask_for_reset();
        assert_eq!(resets(&host), usize::from(is_other_free));
        // Now a queue is free that the first is not in.
        host.ring.has.rotate_left(busy.len() - 1);
        host.answer();
        host.ask_for_reset();
        assert_eq!(resets(&host), usize::from(is_other_free));
    }
}

/// Whatever becomes of the reset; nothing is lost by one that was not done.
#[test]
fn launches_go_on_after_a_reset_that_fails() {
    for is_known in [true, false] {
        let mut host = Host::new(1, 8);
        let [stream, other] = [(); 2].map(|()| host.stream());
        host.core.context_made();
        host.core.context_back(1);
        let before = host.submit(stream, Kind::Launch);
        host.ask_for_reset();
        let launch = host.submit(other, Kind::Launch);
        assert!(!host.is_sent(launch));
        if is_known {
            assert_eq!(host.answer_reset(CmResetStatus::CmResetFailed), 0);
        } else {
            let (_, tag, _, Kind::Reset) = host.ring.has.remove(1) else { panic!() };
            assert!(matches!(host.core.refused(tag, host.now), Answer::Settled));
            host.pump();
        }
        assert!(host.is_sent(launch) && host.core.state(before).is_some());
        // The next one holds them again.
        host.ask_for_reset();
        let tag = host.ring.has.last().unwrap().1;
        let body = Body::Abort { status: AbortStatus::Success };
        assert!(matches!(host.core.answer(tag, &body, host.now), Answer::Nonsense));
    }
}

/// What is sent again may be kernels, behind which the report of one that is aborted would wait.
#[test]
fn a_queue_does_not_go_on_before_what_is_to_be_decided() {
    for is_late in [false, true] {
        let mut host = Host::new(1, 8);
        let [stream, other] = [(); 2].map(|()| host.stream());
        host.core.context_made();
        host.core.context_back(1);
        let bad = host.submit(stream, Kind::Launch);
        host.submit(other, Kind::Launch);
        host.abort(bad);
        let aborted = |host: &mut Host, at: usize, execute| {
            let (_, tag, ..) = host.ring.has.remove(at);
            let times = Times { start: 1, wait: 1, execute };
            let body = Body::Launch { times, status: LaunchStatus::HostAborted, error: None };
            host.core.answer(tag, &body, host.now)
        };
        assert!(matches!(aborted(&mut host, 1, 0), Answer::Settled));
        if is_late {
            // It is asked for again, and not needed when there is room for it.
            host.answer_aborted(1, 0);
            assert!(host.core.post_high(0, Command::new(Model::ping())));
            host.wait();
            assert_eq!(host.kinds(), [Kind::Launch, Kind::Ping]);
        }
        let Answer::Held(held) = aborted(&mut host, 0, 1) else { panic!("a report is to come") };
        assert!(matches!(held.error, Some(Error::Aborted { op: "test" })), "it was meant");
        if is_late {
            host.answer();
        } else {
            host.answer_aborted(0, 0);
        }
        host.wait();
        assert_eq!(host.kinds(), [], "it takes its time");
        let queue = held.queue;
        let (_, _, op) = held.split();
        host.core.follow(op, queue, Command::new(Model::new(Kind::Report, 0)), host.now);
        host.core.decided(queue, host.now);
        host.pump();
        assert_eq!(host.kinds(), [Kind::Report, Kind::Launch]);
    }
}
