//! Streams in the order of their turns.

use std::collections::VecDeque;

/// How soon commands of a stream are sent when there is not room for all that are ready.
///
/// It decides on the host only: the device executes what it has in the order it got it, and a
/// kernel that runs is not interrupted. None starves, whatever those above it do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Goes when no other stream has anything to send, or 256 commands have gone before.
    Low,
    /// What a stream has if nothing is said.
    #[default]
    Normal,
    /// Goes before the others, of which one may go after each 16 commands.
    High,
}

impl Priority {
    const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Commands of higher priority that may go first.
    const fn patience(self) -> u32 {
        match self {
            Self::High => u32::MAX,
            Self::Normal => 16,
            Self::Low => 256,
        }
    }
}

/// A line for each priority. Streams of the same take turns.
#[derive(Debug, Default)]
pub(super) struct Ready {
    lines: [VecDeque<u32>; 3],
    /// How often one of higher priority has gone while some waited in a line.
    passed: [u32; 3],
}

impl Ready {
    #[inline]
    pub(super) fn push_back(&mut self, stream: u32, priority: Priority) {
        self.lines[priority as usize].push_back(stream);
    }

    /// Gives a turn back, or one to a stream that has waited elsewhere.
    pub(super) fn push_front(&mut self, stream: u32, priority: Priority) {
        self.lines[priority as usize].push_front(stream);
    }

    fn has_one_line(&self) -> bool {
        let [low, _, high] = &self.lines;
        low.is_empty() && high.is_empty()
    }

    /// Takes out whose turn it is.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<(u32, Priority)> {
        let next = if self.has_one_line() { Priority::Normal } else { self.next()? };
        Some((self.lines[next as usize].pop_front()?, next))
    }

    fn next(&self) -> Option<Priority> {
        let waits = |its: &Priority| !self.lines[*its as usize].is_empty();
        let is_due = |its: &Priority| waits(its) && self.passed[*its as usize] >= its.patience();
        let due = Priority::ALL.into_iter().find(is_due);
        due.or_else(|| Priority::ALL.into_iter().rev().find(waits))
    }

    /// Notes that one of them has used its turn.
    #[inline]
    pub(super) fn has_gone(&mut self, priority: Priority) {
        if !self.has_one_line() || priority != Priority::Normal {
            self.count(priority);
        }
    }

    fn count(&mut self, gone: Priority) {
        for lower in Priority::ALL.into_iter().take_while(|its| *its < gone) {
            self.passed[lower as usize] += u32::from(!self.lines[lower as usize].is_empty());
        }
        self.passed[gone as usize] = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }

    pub(super) fn clear(&mut self) {
        self.lines.iter_mut().for_each(VecDeque::clear);
    }

    /// Takes a stream out; `false` if it is not there.
    pub(super) fn remove(&mut self, stream: u32) -> bool {
        self.lines.iter_mut().any(|line| {
            let at = line.iter().position(|other| *other == stream);
            at.is_some_and(|at| line.remove(at).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use et_devapi::msg::ops::{Body, EchoStatus};
    use et_devapi::msg::{CommandFlags, Tag};
    use et_hal::QueueId;

    use super::*;
    use crate::link::core::{Command, Core, Load, Pushed, Shape, Sink, StreamKey, Verdict, Work};

    /// Places in the ring.
    const RING: usize = 2;

    /// A command; launches want a context.
    struct Job {
        is_launch: bool,
        context: Option<()>,
    }

    impl Load for Job {
        type Context = ();

        fn abort() -> Self {
            Self::ping()
        }

        fn wants_context(&self) -> bool {
            self.is_launch && self.context.is_none()
        }

        fn give_context(&mut self, context: ()) {
            self.context = Some(context);
        }

        fn take_context(&mut self) -> Option<()> {
            self.context.take()
        }

        fn has_clean_context(&self) -> bool {
            true
        }

        fn ping() -> Self {
            Self { is_launch: false, context: None }
        }

        fn is_launch(&self) -> bool {
            self.is_launch
        }

        fn has_context(&self) -> bool {
            self.is_launch
        }

        fn take_listener(&mut self) -> Option<Self> {
            None
        }

        fn work(&self) -> Work {
            Work::Other
        }

        fn verdict(&self, _: &Body) -> Verdict {
            Verdict::Done(None)
        }
    }

    #[derive(Default)]
    struct Ring(VecDeque<Tag>);

    impl Sink<Job> for Ring {
        fn push(&mut self, _: QueueId, tag: Tag, _: CommandFlags, _: &mut Job) -> Pushed {
            if self.0.len() == RING {
                return Pushed::Full;
            }
            self.0.push_back(tag);
            Pushed::Accepted
        }
    }

    /// A device that does one command in each unit of time, and streams that always have more.
    struct Host {
        core: Core<Job>,
        ring: Ring,
        now: u64,
        kind: bool,
        /// Those that never stop, with what they have done.
        busy: Vec<(StreamKey, u64)>,
    }

    impl Host {
        fn new(is_launch: bool, busy: &[Priority]) -> Self {
            let shape = Shape { queues: 1, high_queues: 1, in_flight: 64, contexts: RING };
            let mut core = Core::new(shape);
            for _ in 0..RING {
                core.context_made();
                core.context_back(());
            }
            let busy =
                busy.iter().map(|priority| (core.open_stream(*priority).0, 0)).collect::<Vec<_>>();
            let mut host = Self { core, ring: Ring::default(), now: 0, kind: is_launch, busy };
            for at in 0..host.busy.len() {
                host.submit(host.busy[at].0);
            }
            host
        }

        fn submit(&mut self, stream: StreamKey) -> u64 {
            let now = Duration::from_secs(self.now);
            let operation = self.core.begin(stream, "test", now).unwrap();
            let job = Job { is_launch: self.kind, context: None };
            self.core.append(operation.key, Command::new(job)).unwrap();
            self.core.close(operation.key, Ok(()), now);
            self.core.pump(now, &mut self.ring);
            operation.key.id
        }

        /// The device does one command; returns the operations that ended.
        fn tick(&mut self) -> Vec<u64> {
            self.now += 1;
            let now = Duration::from_secs(self.now);
            let tag = self.ring.0.pop_front().unwrap();
            let done = Body::Echo { start: 1, status: EchoStatus::Success };
            self.core.answer(tag, &done, now);
            let output = std::mem::take(&mut self.core.output);
            for (load, _) in output.finished {
                if load.context.is_some() {
                    self.core.context_back(());
                }
            }
            let ended: Vec<_> = output
                .ended
                .iter()
                .map(|ended| (ended.operation.key.id, ended.operation.stream))
                .collect();
            for (_, number) in &ended {
                let busy = usize::try_from(*number).unwrap();
                if let Some((stream, done)) = self.busy.get_mut(busy) {
                    *done += 1;
                    let stream = *stream;
                    self.submit(stream);
                }
            }
            self.core.pump(now, &mut self.ring);
            ended.into_iter().map(|(id, _)| id).collect()
        }

        /// Returns how long one operation of a further stream takes.
        fn time_of(&mut self, priority: Priority) -> u64 {
            let stream = self.core.open_stream(priority).0;
            // All are in their places.
            (0..1000).for_each(|_| drop(self.tick()));
            let start = self.now;
            let id = self.submit(stream);
            while !self.tick().contains(&id) {
                assert!(self.now - start < 10_000, "it starves");
            }
            self.now - start
        }
    }

    #[test]
    fn the_higher_goes_first_when_there_is_not_room_for_all() {
        for is_launch in [false, true] {
            let time = |priority| Host::new(is_launch, &[Priority::Normal; 500]).time_of(priority);
            let (high, normal) = (time(Priority::High), time(Priority::Normal));
            // What is in the ring goes before it, and what was about to.
            assert!(high <= RING as u64 + 2, "high: {high}, launches: {is_launch}");
            assert!((500..=504).contains(&normal), "normal: {normal}, launches: {is_launch}");
        }
    }

    #[test]
    fn the_lower_waits_and_does_not_starve() {
        for is_launch in [false, true] {
            let time = |busy, priority| Host::new(is_launch, &[busy; 4]).time_of(priority);
            let normal = time(Priority::High, Priority::Normal);
            assert!((16..=24).contains(&normal), "normal: {normal}, launches: {is_launch}");
            let low = time(Priority::Normal, Priority::Low);
            assert!((230..=264).contains(&low), "low: {low}, launches: {is_launch}");
        }
    }

    #[test]
    fn equals_share() {
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            let mut host = Host::new(false, &[priority; 5]);
            (0..1000).for_each(|_| drop(host.tick()));
            for (_, done) in &host.busy {
                assert!((199..=201).contains(done), "{priority:?}: {done} of 1000");
            }
        }
    }
}
