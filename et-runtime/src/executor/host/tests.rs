//! The threads with a scheduler that does what the test says.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use super::*;
use crate::executor::RunOptions;
use crate::executor::run::{Route, RunShared};
use crate::graph::{Graph, GraphBuilder, Task};

/// For a whole test.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct ManualClock(Mutex<Duration>);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// Holds up who comes with as many notes before, if there is such a number.
#[derive(Default)]
struct NoDesk {
    notes: AtomicU32,
    holds_at: AtomicU32,
}

impl Desk for NoDesk {
    fn notify(&self) {
        let number = self.notes.fetch_add(1, Ordering::AcqRel) + 1;
        while self.holds_at.load(Ordering::Acquire) == number {
            std::thread::yield_now();
        }
    }
    fn picked_up(&self) {}
}

struct Rig {
    host: HostThreads<NoDesk>,
    run: Arc<RunShared>,
    desk: Arc<NoDesk>,
    clock: Arc<ManualClock>,
    began: Instant,
}

impl Rig {
    /// With `workers` threads and a run of `tasks` tasks that do the same.
    fn new(workers: u32, tasks: u32, function: impl Fn(u32, bool) + Send + Sync + 'static) -> Self {
        let mut builder = GraphBuilder::new();
        let function = builder.function(move |task| {
            function(count(task.task().index()), task.is_cancelled());
            Ok(())
        });
        for _ in 0..tasks {
            builder.add(Task::new(function)).unwrap();
        }
        Self::of(workers, builder.build().unwrap())
    }

    fn of(workers: u32, graph: Graph) -> Self {
        let options = RunOptions::new();
        let run =
            RunShared::new(RunId(7), (Route::HOST, None), graph, (options, None), Duration::ZERO);
        let runs = Arc::new(Runs::default());
        runs.set(0, Some(Arc::clone(&run)));
        let desk = Arc::new(NoDesk::default());
        let threads = Threads {
            name: "test".into(),
            limit: workers,
            spins: 10,
            processors: 2,
            start_limit: Duration::from_secs(1),
        };
        let clock = Arc::new(ManualClock::default());
        let host = HostThreads::new(Arc::downgrade(&desk), runs, clock.clone(), threads);
        Self { host, run, desk, clock, began: Instant::now() }
    }

    /// Puts the clock forward.
    fn pass(&self, time: Duration) {
        *self.clock.0.lock().unwrap() += time;
    }

    /// Lets other threads go on, but not for ever.
    fn give_way(&self) {
        assert!(self.began.elapsed() < LIMIT, "what is waited for does not come");
        std::thread::yield_now();
    }

    fn task(&self, index: u32) -> TaskRef {
        TaskRef { run: self.run.number, slot: 0, unit: index }
    }

    fn offer(&mut self, index: u32) -> Offer {
        let task = self.task(index);
        self.host.offer(Unit { run: &self.run, task, cores: None })
    }

    /// Offers until it is taken, and collects what ends meanwhile; returns who has it.
    fn hand(&mut self, index: u32, done: &mut Done) -> WorkerId {
        loop {
            if let Offer::Taken { worker, .. } = self.offer(index) {
                self.host.settle(0);
                return worker;
            }
            self.host.settle(1);
            self.host.poll(done);
            // However long this test has to wait for a processor.
            self.host.idle_looks = 0;
            self.give_way();
        }
    }
}

#[test]
fn a_thread_that_does_not_announce_itself_in_time_is_given_up() {
    let mut rig = Rig::new(1, 1, |_, _| {});
    let mut done = Done::default();
    let worker = WorkerId(0);
    rig.host.workers.push(WorkerSlot::absent());
    rig.host.starting.push(Starting { worker, since: Duration::ZERO });
    rig.pass(Duration::from_secs(1));
    assert!(!rig.host.poll(&mut done));
    assert_eq!((rig.host.starting.len(), rig.host.next_look()), (1, Some(Duration::ZERO)));
    rig.pass(Duration::from_nanos(1));
    assert!(rig.host.poll(&mut done), "what it was for is offered again");
    assert_eq!((rig.host.starting.len(), &rig.host.lost[..]), (0, &[worker][..]));
    assert_eq!(rig.host.next_look(), None);
    // Another thread takes what it would have had.
    assert_eq!(rig.hand(0, &mut done), WorkerId(1));
    while done.complete.is_empty() {
        rig.host.poll(&mut done);
        rig.give_way();
    }
}

#[test]
fn each_task_comes_back_once() {
    let ran = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&ran);
    let mut rig = Rig::new(2, 200, move |_, _| {
        its.fetch_add(1, Ordering::Relaxed);
    });
    let mut done = Done::default();
    for task in 0..200 {
        rig.hand(task, &mut done);
    }
    while rig.host.is_busy() {
        rig.turn(&mut done);
        rig.give_way();
    }
    let mut complete: Vec<u32> = done.complete.iter().map(|task| task.unit).collect();
    complete.sort_unstable();
    assert_eq!(complete, (0..200).collect::<Vec<_>>());
    assert!(done.ended.is_empty());
    assert_eq!((ran.load(Ordering::Relaxed), rig.host.completions()), (200, 200));
    assert!(rig.host.dismiss().wait().is_empty());
}

#[test]
fn a_worker_that_is_given_up_gives_its_tasks_back_once() {
    let is_over = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_over);
    let mut rig = Rig::new(1, 2, move |_, _| {
        while !its.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let mut done = Done::default();
    rig.hand(0, &mut done);
    // With one worker the second task is staged behind the first.
    assert!(matches!(rig.offer(1), Offer::Taken { is_staged: true, .. }));
    rig.host.abort(RunId(8), Cut::Deadline(Duration::ZERO));
    rig.host.abort(rig.run.number, Cut::Cancelled);
    assert!(!rig.host.poll(&mut done) && done.is_empty(), "neither late nor done");
    rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
    assert!(rig.host.poll(&mut done));
    let is_late = |ending: &Ending| match &ending.how {
        Ended::Failed(failure) => {
            matches!(**failure, TaskFailure::Deadline { worker: Some(0), .. })
        }
        _ => false,
    };
    assert!(done.ended.len() == 2 && done.ended.iter().all(is_late), "{:?}", done.ended);
    is_over.store(true, Ordering::Release);
    // The worker completes its task, and nothing is said of it any more; another one takes its
    // place.
    let mut done = Done::default();
    rig.hand(0, &mut done);
    while rig.host.is_busy() {
        rig.turn(&mut done);
        rig.give_way();
    }
    assert_eq!((done.complete.len(), done.ended.len()), (1, 0));
    rig.host.dismiss().wait();
}

#[test]
fn the_thread_of_a_worker_that_was_given_up_is_not_waited_for() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    let first = rig.hand(0, &mut done);
    rig.wait_until_begun(first);
    // It comes, completes its task, and leaves.
    rig.desk.holds_at.store(3, Ordering::Release);
    rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
    open(&*flags);
    while !rig.host.workers[first.at()].has_left() {
        rig.give_way();
    }
    assert_eq!(rig.hand(1, &mut done), first, "its place is free");
    rig.collect(1, &mut done);
    rig.desk.holds_at.store(0, Ordering::Release);
    rig.host.dismiss().wait();
}

impl Rig {
    fn offer_at(&mut self, index: u32, cores: &CoreSet) -> Offer {
        let (run, task) = (Arc::clone(&self.run), self.task(index));
        self.host.offer(Unit { run: &run, task, cores: Some(cores) })
    }

    /// Polls until there is news, as a scheduler does that offers only then.
    fn wait_for_news(&mut self) {
        let mut done = Done::default();
        while !self.turn(&mut done) {
            self.give_way();
        }
    }
}

/// Other tasks have got another worker in its place meanwhile, which goes.
#[test]
fn a_worker_that_was_given_up_is_followed_by_another_for_those_bound_to_it() {
    let flags = Arc::new([const { AtomicBool::new(false) }; 3]);
    let its = Arc::clone(&flags);
    let mut rig = Rig::new(1, 3, move |task, _| {
        while !its[task as usize].load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let (mut done, cores) = (Done::default(), CoreSet::of([0]));
    let first = rig.hand(0, &mut done);
    rig.wait_until_begun(first);
    rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
    assert!(matches!(rig.offer_at(1, &cores), Offer::Full));
    assert_eq!(rig.hand(2, &mut done), WorkerId(1));
    assert!(matches!(rig.offer_at(1, &cores), Offer::Full));
    flags[2].store(true, Ordering::Release);
    rig.collect(1, &mut done);
    assert!(matches!(rig.offer_at(1, &cores), Offer::Full), "it has not left");
    assert!(!rig.turn(&mut done));
    open(&*flags);
    rig.wait_for_news();
    assert!(matches!(rig.offer_at(1, &cores), Offer::Full));
    rig.wait_for_news();
    assert!(matches!(rig.offer_at(1, &cores), Offer::Taken { worker, .. } if worker == first));
    rig.host.settle(0);
    rig.collect(2, &mut done);
    assert_eq!(rig.host.lost, [WorkerId(1)], "there is one worker at a time");
    rig.host.dismiss().wait();
}

#[test]
fn parts_that_start_together_wait_for_the_next_thread_of_a_worker_that_was_given_up() {
    let (flags, mut rig) = flagged::<3>();
    let (mut done, cores) = (Done::default(), CoreSet::of([0, 1]));
    let first = rig.hand(0, &mut done);
    rig.wait_until_begun(first);
    rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
    let (run, task) = (Arc::clone(&rig.run), rig.task(1));
    let room = |rig: &mut Rig| {
        let first = Unit { run: &run, task, cores: Some(&cores) };
        rig.host.room_for(first, 2)
    };
    assert!(matches!(room(&mut rig), Room::Later));
    rig.wait_for_news();
    assert!(matches!(room(&mut rig), Room::Later));
    open(&*flags);
    while !matches!(room(&mut rig), Room::Now) {
        rig.wait_for_news();
    }
    assert!(rig.host.lost.is_empty());
    for index in [1, 2] {
        assert!(matches!(rig.offer_at(index, &cores), Offer::Taken { is_staged: false, .. }));
    }
    rig.host.settle(0);
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn what_needs_a_thread_that_cannot_be_had_fails_unless_others_are_at_work() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    rig.host.has_no_threads = true;
    let is_lost =
        |failure: &TaskFailure| matches!(failure, TaskFailure::WorkerLost { worker: 0, .. });
    assert!(matches!(rig.offer(0), Offer::Failed(failure) if is_lost(&failure)));
    let (run, task) = (Arc::clone(&rig.run), rig.task(0));
    let room = rig.host.room_for(Unit { run: &run, task, cores: None }, 2);
    assert!(matches!(room, Room::Never(failure) if is_lost(&failure)));
    assert!(!rig.host.poll(&mut done), "it is not offered again at once");
    rig.host.has_no_threads = false;
    rig.hand(0, &mut done);
    rig.host.has_no_threads = true;
    rig.host.width = 2;
    assert!(matches!(rig.offer(1), Offer::Full), "there will be a worker");
    assert!(!rig.host.poll(&mut done));
    open(&*flags);
    rig.collect(1, &mut done);
    assert!(matches!(rig.offer(1), Offer::Taken { .. }));
    rig.host.settle(0);
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}

/// What is known after tasks that took so long.
fn pace_of(task: Duration) -> Pace {
    let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
    for _ in 0..2 {
        now += task;
        pace.completion(1, || now);
    }
    pace
}

const SHORT: Duration = Duration::from_nanos(200);
const LONG: Duration = Duration::from_micros(50);

/// Tasks that are over when their flag says so.
fn flagged<const TASKS: usize>() -> (Arc<[AtomicBool; TASKS]>, Rig) {
    let flags = Arc::new([const { AtomicBool::new(false) }; TASKS]);
    let its = Arc::clone(&flags);
    let rig = Rig::new(2, count(TASKS), move |task, _| {
        while !its[task as usize].load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    (flags, rig)
}

impl Rig {
    /// Lets a second worker be used, and has it take a task; the first has begun its own.
    fn widen_for(&mut self, index: u32, done: &mut Done) -> WorkerId {
        self.host.busy.iter().for_each(|worker| self.wait_until_begun(*worker));
        self.host.settle(1);
        self.host.stalled();
        self.hand(index, done)
    }

    /// Polls, and wakes who has got something by that.
    fn turn(&mut self, done: &mut Done) -> bool {
        let is_news = self.host.poll(done);
        self.host.settle(self.host.waiting);
        is_news
    }

    /// Waits until as many tasks are complete.
    fn collect(&mut self, number: u64, done: &mut Done) {
        while self.host.completions() < number {
            self.turn(done);
            self.give_way();
        }
    }
}

#[test]
fn a_task_waits_for_a_worker_that_is_free_rather_than_behind_a_task_of_unknown_length() {
    let (flags, mut rig) = flagged::<3>();
    let mut done = Done::default();
    rig.hand(0, &mut done);
    let second = rig.widen_for(1, &mut done);
    assert!(matches!(rig.offer(2), Offer::Full), "both workers have a task");
    flags[1].store(true, Ordering::Release);
    rig.collect(1, &mut done);
    let offer = rig.offer(2);
    assert!(matches!(offer, Offer::Taken { worker, is_staged: false } if worker == second));
    open(&*flags);
    rig.host.settle(0);
    rig.collect(3, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn short_tasks_are_staged() {
    let (flags, mut rig) = flagged::<4>();
    let mut done = Done::default();
    let workers = [rig.hand(0, &mut done), rig.widen_for(1, &mut done)];
    assert!(matches!(rig.offer(2), Offer::Full), "nothing is known of how long they take");
    rig.host.pace = pace_of(SHORT);
    let is_staged =
        |offer, at| matches!(offer, Offer::Taken { worker, is_staged: true } if worker == at);
    assert!(is_staged(rig.offer(2), workers[0]) && is_staged(rig.offer(3), workers[1]));
    assert!(matches!(rig.offer(3), Offer::Full), "one is staged at each");
    flags[0].store(true, Ordering::Release);
    rig.collect(1, &mut done);
    assert_eq!(done.started, [rig.task(2)], "it is the first of its worker now");
    open(&*flags);
    rig.collect(4, &mut done);
    rig.host.dismiss().wait();
}

fn open(flags: &[AtomicBool]) {
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
}

/// Two workers, of which the second, which is returned, has nothing; the first runs task 0 until
/// its flag is set, and task 1 is behind that.
fn staged<const TASKS: usize>() -> (Arc<[AtomicBool; TASKS]>, Rig, WorkerId) {
    let (flags, mut rig) = flagged::<TASKS>();
    let mut done = Done::default();
    let first = rig.hand(0, &mut done);
    flags[2].store(true, Ordering::Release);
    let second = rig.widen_for(2, &mut done);
    rig.collect(1, &mut done);
    (rig.host.pace, rig.host.width) = (pace_of(SHORT), 1);
    assert!(matches!(rig.offer(1), Offer::Taken { worker, is_staged: true } if worker == first));
    rig.host.settle(0);
    rig.host.poll(&mut done);
    assert!(done.moved.is_empty(), "short tasks stay where they are staged");
    (flags, rig, second)
}

impl Rig {
    fn wait_until_begun(&self, worker: WorkerId) {
        while self.host.workers[worker.at()].first_waiting().is_some() {
            self.give_way();
        }
    }
}

#[test]
fn who_comes_takes_over_what_is_behind_a_task_that_takes_long() {
    let (flags, mut rig, second) = staged::<5>();
    let mut done = Done::default();
    for (index, pace) in [(3, SHORT), (4, LONG)] {
        assert!(done.moved.is_empty(), "not while they are short");
        flags[index as usize].store(true, Ordering::Release);
        rig.host.width = 2;
        assert_eq!(rig.hand(index, &mut done), second);
        while rig.host.workers[second.at()].first_waiting().is_some() {
            rig.give_way();
        }
        rig.host.pace = pace_of(pace);
        rig.collect(u64::from(index) - 1, &mut done);
    }
    assert_eq!(done.moved, [(rig.task(1), second)]);
    flags[1].store(true, Ordering::Release);
    rig.collect(4, &mut done);
    let complete: Vec<_> = done.complete.iter().map(|task| task.unit).collect();
    assert_eq!(complete, [3, 4, 1], "while the other worker has task 0");
    open(&*flags);
    rig.collect(5, &mut done);
    // The first worker sees that its other task is gone, and can get another one.
    while rig.host.idle.len() < 2 {
        rig.turn(&mut done);
        rig.give_way();
    }
    assert_eq!((done.complete.len(), rig.host.completions()), (4, 5));
    rig.host.dismiss().wait();
}

#[test]
fn parts_that_start_together_and_tasks_of_other_cores_stay_where_they_are() {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    builder.add(Task::new(function)).unwrap();
    builder.add(Task::new(function).cores(CoreSet::of([1, 7]))).unwrap();
    builder.add(Task::new(function).parts(2)).unwrap();
    builder.add(Task::new(function).parts_together(2)).unwrap();
    let graph = builder.build().unwrap();
    let part = |task, part| graph.view().units(task).start + part;
    let units = [0, 1, part(2, 1), part(3, 0), part(3, 1)];
    let rig = Rig::of(2, graph.clone());
    let may_move = |unit, worker| rig.host.may_move(rig.task(unit), WorkerId(worker));
    assert_eq!(units.map(|unit| may_move(unit, 0)), [true, false, true, false, false]);
    assert_eq!(units.map(|unit| may_move(unit, 1)), [true, true, true, false, false]);
}

#[test]
fn what_has_begun_since_it_was_looked_at_is_not_taken_back() {
    let (flags, mut rig) = flagged::<3>();
    flags[2].store(true, Ordering::Release);
    let mut done = Done::default();
    let (worker, looked_at) = loop {
        let before = rig.host.completions();
        let worker = rig.hand(2, &mut done);
        rig.collect(before + 1, &mut done);
        while !rig.host.workers[worker.at()].is_asleep() {
            rig.give_way();
        }
        assert!(matches!(rig.offer(0), Offer::Taken { worker: its, .. } if its == worker));
        if let Some(waiting) = rig.host.workers[worker.at()].first_waiting() {
            break (worker, waiting);
        }
        // It was not asleep yet.
        flags[0].store(true, Ordering::Release);
        rig.collect(before + 2, &mut done);
        flags[0].store(false, Ordering::Release);
    };
    assert_eq!(looked_at.task, rig.task(0));
    rig.host.settle(0);
    rig.wait_until_begun(worker);
    rig.host.pace = pace_of(SHORT);
    assert!(matches!(rig.offer(1), Offer::Taken { is_staged: true, .. }));
    assert_eq!(rig.host.workers[worker.at()].take_back(looked_at), None);
    let staged = rig.host.workers[worker.at()].first_waiting().unwrap();
    assert_eq!(staged.task, rig.task(1));
    assert_eq!(rig.host.workers[worker.at()].take_back(staged), Some(rig.task(1)));
    open(&*flags);
    rig.host.dismiss().wait();
}

#[test]
fn what_no_worker_has_begun_at_the_deadline_costs_none() {
    let (flags, mut rig) = flagged::<2>();
    flags[0].store(true, Ordering::Release);
    let mut done = Done::default();
    loop {
        let before = rig.host.completions();
        let worker = rig.hand(0, &mut done);
        rig.collect(before + 1, &mut done);
        while !rig.host.workers[worker.at()].is_asleep() {
            rig.give_way();
        }
        assert!(matches!(rig.offer(1), Offer::Taken { worker: its, .. } if its == worker));
        rig.host.woken.clear();
        rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
        let [Ending { how: Ended::Failed(failure), .. }] = &rig.host.news.ended[..] else {
            panic!("{:?}", rig.host.news);
        };
        let it = Some(worker.0);
        assert!(matches!(**failure, TaskFailure::Deadline { worker, .. } if worker == it));
        if rig.host.lost.is_empty() {
            assert!(rig.host.busy.is_empty() && rig.host.away.contains(&worker));
            break;
        }
        // It was not asleep yet.
        flags[1].store(true, Ordering::Release);
        rig.host.poll(&mut done);
    }
    open(&*flags);
    rig.host.dismiss().wait();
}

#[test]
fn a_worker_that_has_to_see_that_its_task_is_gone_is_used_again() {
    let (flags, mut rig) = flagged::<2>();
    open(&*flags);
    let mut done = Done::default();
    loop {
        let before = rig.host.completions();
        let worker = rig.hand(0, &mut done);
        rig.collect(before + 1, &mut done);
        while !rig.host.workers[worker.at()].is_asleep() {
            rig.give_way();
        }
        assert!(matches!(rig.offer(1), Offer::Taken { worker: its, .. } if its == worker));
        rig.host.woken.clear();
        let its = &mut rig.host.workers[worker.at()];
        if its.first_waiting().and_then(|waiting| its.take_back(waiting)).is_none() {
            // It was not asleep yet.
            rig.collect(before + 2, &mut done);
            continue;
        }
        rig.turn(&mut done);
        assert_eq!((rig.host.busy.as_slice(), rig.host.away.as_slice()), (&[][..], &[worker][..]));
        rig.host.workers[worker.at()].wake();
        while !rig.host.idle.contains(&worker) {
            rig.turn(&mut done);
            rig.give_way();
        }
        break;
    }
    rig.host.dismiss().wait();
}

#[test]
fn what_has_no_worker_any_more_goes_to_the_next_one_or_ends_at_its_deadline() {
    let (flags, mut rig) = flagged::<2>();
    open(&*flags);
    let mut done = Done::default();
    let worker = rig.hand(0, &mut done);
    rig.collect(1, &mut done);
    assert!(!rig.host.is_busy());
    // As if the workers that had them were given up.
    let others = TaskRef { run: RunId(8), ..rig.task(0) };
    rig.host.displaced.extend([others, rig.task(1)]);
    assert!(rig.host.is_busy());
    rig.host.abort(others.run, Cut::Deadline(Duration::from_secs(3)));
    let [Ending { task, how: Ended::Failed(failure), .. }] = &rig.host.news.ended[..] else {
        panic!("{:?}", rig.host.news);
    };
    assert!(matches!(**failure, TaskFailure::Deadline { worker: None, .. }) && *task == others);
    rig.host.poll(&mut done);
    assert_eq!(done.moved, [(rig.task(1), worker)]);
    rig.host.settle(0);
    rig.collect(2, &mut done);
    rig.host.displaced.push(rig.task(1));
    assert!(rig.host.poll(&mut done), "it is to be woken");
    rig.host.settle(0);
    rig.collect(3, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn what_waits_behind_a_task_that_is_stuck_goes_to_another_worker() {
    let (flags, mut rig, second) = staged::<3>();
    let mut done = Done::default();
    flags[1].store(true, Ordering::Release);
    rig.host.stalled();
    assert!(rig.host.poll(&mut done), "it is to be woken");
    assert_eq!(done.moved, [(rig.task(1), second)]);
    rig.host.settle(0);
    rig.collect(2, &mut done);
    assert_eq!(done.complete, [rig.task(1)]);
    open(&*flags);
    rig.collect(3, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn what_waits_behind_a_task_that_is_stuck_goes_to_a_new_worker() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    let first = rig.hand(0, &mut done);
    rig.wait_until_begun(first);
    rig.host.pace = pace_of(SHORT);
    assert!(matches!(rig.offer(1), Offer::Taken { is_staged: true, .. }));
    flags[1].store(true, Ordering::Release);
    rig.host.settle(0);
    rig.host.stalled();
    while done.complete.is_empty() {
        rig.turn(&mut done);
        rig.give_way();
    }
    assert_eq!(done.complete, [rig.task(1)]);
    assert!(matches!(done.moved[..], [(task, to)] if task == rig.task(1) && to != first));
    open(&*flags);
    rig.host.dismiss().wait();
}

#[test]
fn who_comes_runs_what_a_worker_that_is_not_woken_has() {
    let (flags, mut rig) = flagged::<5>();
    let mut done = Done::default();
    let first = rig.hand(0, &mut done);
    let second = rig.widen_for(1, &mut done);
    rig.wait_until_begun(second);
    open(&flags[..3]);
    rig.collect(2, &mut done);
    while done.moved.is_empty() {
        let before = rig.host.completions();
        while !rig.host.workers[second.at()].is_asleep() {
            rig.give_way();
        }
        // The one used last gets the first; nothing wakes it.
        rig.host.idle = vec![first, second];
        (rig.host.pace, rig.host.width) = (pace_of(LONG), 2);
        assert!(matches!(rig.offer(3), Offer::Taken { worker, .. } if worker == second));
        rig.host.woken.clear();
        assert_eq!(rig.hand(2, &mut done), first);
        rig.collect(before + 1, &mut done);
        if done.moved.is_empty() {
            // It was not asleep yet.
            flags[3].store(true, Ordering::Release);
            rig.collect(before + 2, &mut done);
            flags[3].store(false, Ordering::Release);
        }
    }
    assert_eq!(done.moved, [(rig.task(3), first)]);
    assert_eq!((rig.host.busy.as_slice(), rig.host.away.as_slice()), (&[first][..], &[second][..]));
    rig.host.settle(1);
    assert!(matches!(rig.offer(4), Offer::Full), "one runs, and the other sleeps");
    assert!(rig.host.runs_itself(), "there is no other worker");
    rig.host.stalled();
    assert!(rig.host.pace.task().is_some(), "so it is of no use to forget how long they take");
    // It comes, sees that its task is gone, and takes over what is behind that.
    let before = rig.host.completions();
    rig.wait_until_begun(first);
    rig.host.pace = pace_of(SHORT);
    assert!(matches!(rig.offer(4), Offer::Taken { worker, is_staged: true } if worker == first));
    rig.host.pace = pace_of(LONG);
    rig.host.workers[second.at()].wake();
    while !rig.host.away.is_empty() {
        let is_news = rig.turn(&mut done);
        assert_eq!(is_news, rig.host.away.is_empty());
        rig.give_way();
    }
    assert_eq!(done.moved[1..], [(rig.task(4), second)]);
    assert_eq!(rig.host.completions(), before, "to give way is to complete nothing");
    open(&*flags);
    rig.collect(before + 2, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn workers_need_no_other_thread_unless_tasks_wait_for_one_more_of_them() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    rig.hand(0, &mut done);
    assert!(!rig.host.runs_itself(), "nothing is known of how long tasks take");
    rig.host.pace = pace_of(LONG);
    assert!(rig.host.runs_itself());
    rig.host.waiting = 1;
    assert!(!rig.host.runs_itself(), "one waits that another worker can run");
    rig.host.pace = pace_of(SHORT);
    assert!(rig.host.runs_itself(), "it is not worth another worker");
    rig.host.pace = pace_of(LONG);
    rig.widen_for(1, &mut done);
    rig.host.pace = pace_of(LONG);
    rig.host.waiting = 1;
    assert!(rig.host.runs_itself(), "there is no other worker");
    open(&*flags);
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn what_only_one_worker_may_run_is_staged_at_it() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    let cores = CoreSet::of([1, 7]);
    let (first, second) = (rig.task(0), rig.task(1));
    let run = Arc::clone(&rig.run);
    let offer = |rig: &mut Rig, task| rig.host.offer(Unit { run: &run, task, cores: Some(&cores) });
    while matches!(offer(&mut rig, first), Offer::Full) {
        rig.host.settle(1);
        rig.turn(&mut done);
        rig.give_way();
    }
    assert!(matches!(
        offer(&mut rig, second),
        Offer::Taken { worker: WorkerId(1), is_staged: true }
    ));
    open(&*flags);
    rig.host.settle(0);
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}
