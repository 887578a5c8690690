//! Random programs against random devices, in virtual time.
//!
//! A program is a list of steps: what users call, what the device does, and time that passes. The
//! device keeps real rings (of few places), executes each queue in order with barriers, runs one
//! kernel at a time, and answers late, twice, not at all, or goes away. After each step the state
//! machine is asked what it would do; at the end everything that was accepted must have ended
//! exactly once.

mod aborts;
mod command;
mod device;
mod order;
mod step;

use std::collections::BTreeSet;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{Body, CmResetStatus, KernelAbortStatus};
use proptest::prelude::*;

pub(super) use self::command::{Kind, Model};
use self::device::{Device, Moment, QUEUES};
pub(super) use self::step::Step;
use self::step::{STREAMS, step};
use super::*;
use crate::link::EventState;
use crate::link::Outcome;
use crate::sync::{Mutex, lock};

const TAGS: u16 = 6;
const CONTEXTS: usize = 3;
const PRIORITIES: [Priority; STREAMS] =
    [Priority::Normal, Priority::High, Priority::Low, Priority::Normal];

/// What the program knows of an operation.
struct Known {
    key: OpKey,
    operation: Arc<Operation>,
    stream: usize,
    is_open: bool,
    is_unattended: bool,
    ended: u32,
    wanted: u32,
    /// Callbacks for its sending and execution, and those that were called.
    listeners: usize,
    told: Arc<Mutex<Vec<EventState>>>,
    touched: bool,
    /// It was aborted, and others may be harmed for it.
    aborted: Option<Harm>,
    /// Accepted ones.
    commands: u32,
}

impl Known {
    fn is_meant(&mut self, harm: Harm) {
        if self.ended == 0 && self.aborted != Some(Harm::Accept) {
            self.aborted = Some(harm);
        }
    }
}

struct World {
    core: Core<Model>,
    device: Device,
    streams: Vec<Option<(StreamKey, u32)>>,
    ops: Vec<Known>,
    waits: Vec<(StreamKey, u64)>,
    held: Vec<(Model, HeldOp, usize)>,
    now: Duration,
    own: usize,
    own_done: usize,
    /// Contexts that were made, and those that went with launches they were made for.
    made: usize,
    gone: usize,
    /// Order between operations that the program has asked for: earlier, later.
    order: Vec<(u64, u64)>,
    /// What the next operations of a stream come after.
    depends: Vec<(usize, u64)>,
    /// Launches were given up while the device had them.
    has_hung: bool,
    /// Another user has aborted something.
    has_foreign: bool,
    /// The device has refused an abort.
    has_refused: bool,
    /// In whose favour each queue is to be aborted, or 0.
    asked: [u64; QUEUES],
    ended: BTreeSet<u64>,
    /// The background thread sleeps.
    is_asleep: bool,
}

impl World {
    fn new() -> Self {
        let shape =
            Shape { queues: QUEUES, high_queues: QUEUES, in_flight: TAGS, contexts: CONTEXTS };
        let mut core = Core::new(shape);
        // Launches bring the last one along.
        for context in 0..CONTEXTS - 1 {
            core.context_made();
            core.context_back(u32::try_from(context).unwrap());
        }
        let streams = PRIORITIES.map(|its| Some(core.open_stream(its))).to_vec();
        Self {
            core,
            device: Device::default(),
            streams,
            ops: Vec::new(),
            waits: Vec::new(),
            held: Vec::new(),
            now: Duration::ZERO,
            own: 0,
            own_done: 0,
            made: CONTEXTS - 1,
            gone: 0,
            order: Vec::new(),
            depends: Vec::new(),
            has_hung: false,
            has_foreign: false,
            has_refused: false,
            asked: [0; QUEUES],
            ended: BTreeSet::new(),
            is_asleep: false,
        }
    }

    fn is_lost(&self) -> bool {
        self.core.health().refusal().is_some()
    }

    fn begin(&mut self, stream: usize) -> Option<usize> {
        let (key, _) = self.streams[stream]?;
        let begun = self.core.begin(key, "op", self.now);
        assert_eq!(begun.is_err(), self.is_lost());
        Some(self.know(begun.ok()?, stream))
    }

    /// All of an operation at once: one command, or none.
    fn submit(&mut self, stream: usize, kind: Option<Kind>) {
        let Some((key, _)) = self.streams[stream] else { return };
        let id = self.core.next_op;
        let command = kind.map(|kind| Command::new(Model::new(kind, id)));
        let is_launch = kind == Some(Kind::Launch);
        let is_down = is_launch && self.core.health().compute_refusal().is_some();
        let submitted = self.core.submit(key, "op", command, self.now);
        assert_eq!(submitted.is_err(), is_down || self.is_lost());
        if let Ok(operation) = submitted {
            assert_eq!(operation.key.id, id);
            let at = self.know(operation, stream);
            self.ops[at].is_open = false;
            self.ops[at].commands = u32::from(kind.is_some());
        }
    }

    fn know(&mut self, operation: Arc<Operation>, stream: usize) -> usize {
        let id = operation.key.id;
        self.ops.push(Known {
            key: operation.key,
            operation,
            stream,
            is_open: true,
            is_unattended: false,
            ended: 0,
            wanted: 0,
            listeners: 0,
            told: Arc::default(),
            touched: false,
            aborted: None,
            commands: 0,
        });
        self.put_in_order(id, stream);
        self.ops.len() - 1
    }

    fn append(&mut self, at: usize, kind: Kind) {
        let key = self.ops[at].key;
        let mut load = Model::new(kind, key.id);
        if kind == Kind::Launch && self.core.wants_more_contexts() {
            self.core.context_made();
            (load.context, load.is_fresh) = (Some(0), true);
            self.made += 1;
        }
        let command = if kind == Kind::Launch { Command::behind(load) } else { Command::new(load) };
        let is_down = kind == Kind::Launch && self.core.health().compute_refusal().is_some();
        match self.core.append(key, command) {
            Ok(()) => {
                assert!(!is_down, "a launch is accepted although compute is down");
                self.ops[at].commands += 1;
            }
            Err(_) => self.ops[at].touched = true,
        }
    }

    fn close(&mut self, at: usize, outcome: Result<()>) {
        self.ops[at].is_open = false;
        self.core.close(self.ops[at].key, outcome, self.now);
    }

    fn open_op(&self) -> Option<usize> {
        self.ops.iter().position(|op| op.is_open)
    }

    fn pick(&self, which: usize) -> Option<usize> {
        let alive: Vec<usize> = (0..self.ops.len()).rev().take(8).collect();
        alive.get(which % alive.len().max(1)).copied()
    }

    fn apply(&mut self, step: &Step) {
        self.now += Duration::from_millis(1);
        match *step {
            Step::Submit { stream, copies: 1, launch: false } => {
                self.submit(stream, Some(Kind::Copy));
            }
            // A launch that brings a context has another command before it, which fills that.
            Step::Submit { stream, copies: 0, launch }
                if !launch || !self.core.wants_more_contexts() =>
            {
                self.submit(stream, launch.then_some(Kind::Launch));
            }
            Step::Submit { stream, copies, launch } => {
                if let Some(at) = self.begin(stream) {
                    for _ in 0..copies {
                        self.append(at, Kind::Copy);
                    }
                    if launch {
                        self.append(at, Kind::Launch);
                    }
                    self.close(at, Ok(()));
                }
            }
            Step::Barrier { stream } => {
                self.submit(stream, Some(Kind::Barrier));
            }
            Step::Begin { stream } => drop(self.begin(stream)),
            Step::Append { launch } => {
                if let Some(at) = self.open_op() {
                    self.append(at, if launch { Kind::Launch } else { Kind::Copy });
                }
            }
            Step::Leave => {
                if let Some(at) = self.open_op() {
                    self.ops[at].is_unattended = true;
                    self.core.leave_open(self.ops[at].key, self.now);
                }
            }
            Step::Close { fail } => {
                if let Some(at) = self.open_op() {
                    self.ops[at].touched |= fail;
                    let outcome = if fail { Err(Error::all_closed()) } else { Ok(()) };
                    self.close(at, outcome);
                }
            }
            Step::Depend { stream, on } => {
                if let (Some((key, _)), Some(on)) = (self.streams[stream], self.pick(on)) {
                    self.core.depend(key, self.ops[on].key);
                    self.depends.push((stream, self.ops[on].key.id));
                }
            }
            Step::Wait { stream } => {
                if let Some((key, _)) = self.streams[stream] {
                    let wait = self.core.add_wait(key);
                    self.waits.push((key, wait));
                }
            }
            Step::Fire { which } => {
                if !self.waits.is_empty() {
                    let at = which % self.waits.len();
                    let (key, wait) = self.waits.remove(at);
                    self.core.fired(key, wait, self.now);
                }
            }
            Step::DropStream { stream } => {
                if let Some((key, _)) = self.streams[stream].take() {
                    self.core.drop_stream(key);
                    self.streams[stream] = Some(self.core.open_stream(PRIORITIES[stream]));
                    // The order of the new one has nothing to do with that of the old.
                    self.depends.retain(|(its, _)| *its != stream);
                    for op in &mut self.ops {
                        if op.stream == stream {
                            op.stream = usize::MAX;
                        }
                    }
                }
            }
            Step::Abort { op, gentle } => {
                if let Some(at) = self.pick(op) {
                    self.ops[at].touched = true;
                    let key = self.ops[at].key;
                    let harm = if gentle { Harm::Avoid } else { Harm::Accept };
                    self.ops[at].is_meant(harm);
                    let outcome = self.core.abort(key, harm, self.now).unwrap();
                    assert!(!(outcome && self.ended.contains(&key.id)), "ended twice");
                }
            }
            Step::AbortStream { stream } => {
                if let Some((key, _)) = self.streams[stream] {
                    for op in self.ops.iter_mut().filter(|op| op.stream == stream) {
                        op.touched = true;
                        op.is_meant(Harm::Accept);
                    }
                    self.depends.retain(|(its, _)| *its != stream);
                    self.core.abort_stream(key, self.now).unwrap();
                    let lane = self.core.streams.get(key.0).unwrap();
                    let waits = |entry: &Entry| matches!(entry, Entry::Wait(_));
                    assert!(!lane.entries.iter().any(waits), "waits for what it would have done");
                }
            }
            Step::AbortAll => {
                for op in &mut self.ops {
                    op.touched = true;
                    op.is_meant(Harm::Accept);
                }
                self.core.abort_all(self.now).unwrap();
            }
            Step::GiveUp { op } => {
                if let Some(at) = self.pick(op).filter(|at| !self.ops[*at].is_open) {
                    self.ops[at].touched = true;
                    self.core.give_up(self.ops[at].key, Error::all_closed(), self.now);
                }
            }
            Step::Want { op } => {
                if let Some(at) = self.pick(op) {
                    self.ops[at].wanted += 1;
                    self.core.want(self.ops[at].key);
                }
            }
            Step::Unwant { op } => {
                if let Some(at) = self.pick(op).filter(|at| self.ops[*at].wanted != 0) {
                    self.ops[at].wanted -= 1;
                    self.core.unwant(self.ops[at].key);
                }
            }
            Step::Listen { op } => {
                if let Some(op) = self.pick(op).map(|at| &mut self.ops[at]) {
                    let told = Arc::clone(&op.told);
                    let callback = Box::new(move |state: &_| lock(&told).push(*state));
                    let state = match op.listeners % 2 {
                        0 => EventState::Ready,
                        _ => EventState::Executed,
                    };
                    let registered = self.core.on_reached(op.key, state, callback);
                    assert_eq!(registered.is_err(), op.ended != 0, "a listener is refused");
                    op.listeners += usize::from(registered.is_ok());
                }
            }
            Step::Own => {
                if !self.is_lost() {
                    self.own += 1;
                    let load = Model::new(Kind::Own, 0);
                    let queue = self.core.quietest();
                    self.core.post(queue, Command::new(load));
                }
            }
            Step::Take { queue } => self.device.take(queue),
            Step::Refuse { queue } => {
                let is_refused = self.device.refuse(queue);
                self.has_refused |= is_refused;
                self.settle();
                let waits = matches!(self.core.queues[queue].abort, Abort::Answered(_));
                // What a reset has not left unanswered is answered by it.
                let is_over = self.has_hung || self.is_lost();
                assert!(!(is_refused && waits) || is_over, "waits for what goes on");
            }
            Step::Foreign { queue } => {
                self.has_foreign = true;
                self.device.abort(queue);
            }
            Step::Finish { which, fail } => {
                self.device.catch_up();
                self.device.finish(which, fail);
            }
            Step::Unknown { which } => {
                if let Some(tag) = self.device.forget(which) {
                    self.core.refused(tag, self.now);
                }
            }
            Step::Nonsense { tag } => {
                let completion = Body::KernelAbort { status: KernelAbortStatus::Success };
                self.device.answers.push_back((Tag::new(tag), completion));
            }
            Step::Duplicate => {
                let last = self.device.answered.last().cloned();
                self.device.answers.extend(last);
            }
            Step::Hang => {
                let why: Arc<str> = "hang".into();
                self.has_hung = true;
                for op in &mut self.ops {
                    op.touched = true;
                }
                self.core.compute_fails(&why, self.now);
            }
            Step::Tick => {
                self.now += Duration::from_secs(1);
                if self.core.watch(Duration::from_secs(60), self.now) {
                    self.core.lose(&Error::all_closed(), self.now);
                }
            }
            Step::Ended { op } => assert_eq!(self.ops[op].ended, 1, "operation {op}"),
            Step::Decide { which, follow } => self.decide(which, follow),
            Step::Lose => {
                self.device.gone = true;
                self.core.lose(&Error::all_closed(), self.now);
            }
            Step::Reset => {
                if self.core.post_reset(Command::new(Model::new(Kind::Reset, 0))) {
                    self.own += 1;
                    self.device.resets += 1;
                }
            }
        }
        self.settle();
    }

    fn decide(&mut self, which: usize, follow: bool) {
        if self.held.is_empty() {
            return;
        }
        let (mut load, op, queue) = self.held.remove(which % self.held.len());
        let context = load.context.take();
        match load.kind {
            Kind::Own | Kind::Reset => {
                self.own_done += 1;
                while self.core.replace_context() {
                    self.core.context_back(0);
                }
                self.core.release(op, Ok(()), self.now);
            }
            Kind::Launch if follow => {
                let next = self.core.quietest();
                let report = Model { context, ..Model::new(Kind::Report, 0) };
                self.core.follow(op, next, Command::new(report), self.now);
            }
            _ => {
                context.into_iter().for_each(|context| self.core.context_back(context));
                self.core.release(op, Err(Error::Aborted { op: "held" }), self.now);
            }
        }
        self.core.decided(queue, self.now);
    }

    fn was_reset(&mut self, status: CmResetStatus) {
        if status == CmResetStatus::Success {
            self.has_hung = true;
            for op in &mut self.ops {
                op.touched = true;
            }
        }
    }

    /// Hears the answers, sends what can be sent, and looks at what has ended.
    fn settle(&mut self) {
        while let Some((tag, completion)) = self.device.answers.pop_front() {
            self.device.answered.push((tag, completion));
            if let Body::CmReset { status } = completion
                && std::mem::take(&mut self.device.has_reset)
            {
                self.device.resets -= 1;
                self.was_reset(status);
            }
            match self.core.answer(tag, &completion, self.now) {
                Answer::Held(held) => {
                    let queue = held.queue;
                    let (load, _, op) = held.split();
                    let is_extra = matches!(load.kind, Kind::Own | Kind::Report);
                    let is_caught = is_extra && device::was_aborted(&completion);
                    assert!(!is_caught || self.has_foreign, "caught by an abort of this host");
                    // Whoever decides may make a success of it.
                    *self.device.complete.entry(load.op).or_default() += 1;
                    self.held.push((load, op, queue));
                }
                // As its driver does.
                Answer::Nonsense => {
                    self.device.gone = true;
                    self.core.lose(&Error::all_closed(), self.now);
                }
                Answer::Settled | Answer::AbortRefused(_) | Answer::Stray => {}
            }
            if !self.device.gone {
                self.core.pump(self.now, &mut self.device);
            }
        }
        self.core.pump(self.now, &mut self.device);
        let output = std::mem::take(&mut self.core.output);
        self.is_asleep &= !output.rouse;
        // What waits on the host for something outside is no reason to be awake.
        let has_nothing = self.is_lost() || self.core.in_flight() == 0 && self.core.interest == 0;
        assert!(!self.is_asleep || has_nothing, "the background thread sleeps");
        self.is_asleep = self.core.sleep();
        assert!(!self.is_asleep || has_nothing, "the background thread goes to sleep");
        for (load, error) in output.finished {
            assert!(load.context.is_none() || error.is_some(), "a context is lost");
            let is_own = matches!(load.kind, Kind::Own | Kind::Reset);
            let is_extra = is_own || load.kind == Kind::Report;
            assert!(!is_extra || self.is_lost(), "decided for whoever decides: {error:?}");
            self.own_done += usize::from(is_own);
            self.gone += usize::from(load.is_fresh && error.is_some());
        }
        for Reached { operation, state, told } in output.reached {
            assert!(!self.ended.contains(&operation.key.id), "sent after its end");
            told.into_iter().for_each(|callback| callback(&state));
        }
        for op in self.core.ops.keys().into_iter().filter_map(|slot| self.core.ops.get(slot)) {
            assert!(op.sent.is_none() || op.on_sent.is_empty(), "sent, and its listeners wait");
            assert!(!op.is_executed || op.on_executed.is_empty(), "executed, and those wait");
            assert!(!op.is_executed || op.active == 1, "executed, and something goes on");
            let key = op.operation.key;
            let Some(known) = self.ops.iter().find(|op| op.key.id == key.id) else {
                unreachable!("it was not accepted");
            };
            assert_eq!(
                op.interest as usize,
                known.wanted as usize + op.on_sent.len() + op.on_executed.len(),
                "interest"
            );
            let must_close = known.is_unattended && op.error.is_some();
            assert!(!(must_close && op.is_open), "nothing else closes it");
        }
        self.check_empty(&output.ended);
        for Ended { operation, timeline, error, told: reached } in output.ended {
            let id = operation.key.id;
            let outcome = error.clone().map_or(Ok(timeline), Err);
            let state = EventState::of(&outcome);
            reached.into_iter().for_each(|callback| callback(&state));
            let told = operation.result.set(outcome, |_| ());
            assert_eq!(told.expect("its only result").run(), Vec::<String>::new());
            let Some(known) = self.ops.iter_mut().find(|op| op.key.id == id) else {
                unreachable!("ended without having been accepted");
            };
            known.ended += 1;
            assert_eq!(known.ended, 1, "operation {id} ended twice");
            let has_failed_alone = known.is_unattended && error.is_some();
            assert!(!known.is_open || has_failed_alone, "operation {id} ended while it was open");
            known.is_open = false;
            assert!(Arc::ptr_eq(&known.operation, &operation));
            if error.is_none() {
                let complete = self.device.complete.get(&id).copied().unwrap_or(0);
                assert_eq!(complete, known.commands, "operation {id} succeeded");
            }
            if let (Some(error), false) = (&error, known.touched) {
                // Only failures of the device, or of an abort beside it.
                let is_known = matches!(
                    error,
                    Error::Copy { .. }
                        | Error::Refused { .. }
                        | Error::AbortedWith { .. }
                        | Error::Aborted { .. }
                        | Error::Closed { .. }
                        | Error::Lost { .. }
                );
                assert!(is_known, "{error:?}");
            }
            self.ended.insert(id);
        }
        if !self.is_lost() {
            self.check_aborts();
        }
        for (asked, place) in self.asked.iter_mut().zip(&self.core.queues) {
            *asked = match place.abort {
                Abort::Wanted(id) | Abort::Asked(id) => id,
                Abort::None | Abort::Answered(_) => 0,
            };
        }
    }

    /// Lets everything come to its end; returns what became of the operations.
    fn finish(mut self) -> Vec<Outcome> {
        let mut rounds = 0;
        while let Some(at) = self.open_op() {
            self.close(at, Ok(()));
            self.settle();
        }
        loop {
            let waits = std::mem::take(&mut self.waits);
            for (key, wait) in waits {
                self.core.fired(key, wait, self.now);
            }
            for queue in 0..QUEUES {
                self.apply(&Step::Take { queue });
            }
            self.apply(&Step::Finish { which: 0, fail: false });
            self.apply(&Step::Decide { which: 0, follow: false });
            if self.core.is_quiet() && self.core.in_flight() == 0 && !self.core.has_backlog() {
                break;
            }
            rounds += 1;
            assert!(rounds < 2000, "does not come to an end");
        }
        for op in &self.ops {
            assert_eq!(op.ended, 1, "operation {} never ended", op.key.id);
            let told = lock(&op.told);
            assert_eq!(told.len(), op.listeners, "operation {}: {told:?}", op.key.id);
        }
        assert_eq!(self.own, self.own_done, "the runtime's own commands");
        assert_eq!(self.core.interest, 0, "interest in operations that have ended");
        if !self.is_lost() {
            assert_eq!(self.core.contexts.free.len(), self.core.contexts.made, "contexts");
            // What a reset lets be replaced may come back all the same.
            let made = self.core.contexts.made + self.core.lost;
            let is_right = if self.has_hung { PartialOrd::ge } else { PartialEq::eq };
            assert!(is_right(&made, &(self.made - self.gone)), "contexts are gone");
            assert!(self.core.contexts.starved.is_empty() && self.core.resets == 0);
            for stream in self.core.streams.keys() {
                let is_barred = self.core.streams.get(stream).is_some_and(Lane::is_barred);
                assert!(!is_barred, "stream {stream} waits for what has ended");
            }
        }
        assert_eq!((self.core.unsent, self.core.held, self.core.orphans), (0, 0, 0));
        for queue in &self.core.queues {
            assert_eq!((queue.in_flight, queue.is_high_busy), (0, false));
            assert!(!self.is_lost() && queue.abort == Abort::None || self.is_lost());
        }
        self.check_order();
        for stream in std::mem::take(&mut self.streams).into_iter().flatten() {
            self.core.drop_stream(stream.0);
        }
        assert!(self.core.streams.is_empty(), "streams without handle and work");
        self.ops.iter().filter_map(|op| op.operation.result.get()).collect()
    }

    /// No command of an operation starts before all of an earlier one have ended, whatever was
    /// aborted and sent again in between.
    fn check_order(&self) {
        // What another user has aborted was perhaps begun, out of its turn, behind an abort.
        if self.has_hung || self.has_foreign {
            return;
        }
        let log = &self.device.log;
        for (earlier, later) in &self.order {
            // What was given up need not wait for anything any more.
            if self.ops.iter().any(|op| op.key.id == *later && op.touched) {
                continue;
            }
            let end = log.iter().rposition(|entry| *entry == (*earlier, Moment::End));
            let start = log.iter().position(|entry| *entry == (*later, Moment::Start));
            if let (Some(end), Some(start)) = (end, start) {
                assert!(end < start, "{later} started before {earlier} had ended: {log:?}");
            }
        }
    }
}

pub(super) fn run(steps: &[Step]) -> Vec<Outcome> {
    let mut world = World::new();
    for step in steps {
        world.apply(step);
    }
    world.finish()
}

/// How many programs: `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200_000)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_accepted_operation_ends_exactly_once(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        run(&steps);
    }
}
