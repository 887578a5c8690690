//! Executors on a simulated device: graphs that do not let one another go on, kernels that do not
//! end, and what is said of tasks. What every device must do is in the conformance kit.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{LONG, load, open, open_with};
use et::executor::{
    DeviceExecutor, ExecutorConfig, Place, Run, RunError, RunOptions, TaskFailure, TaskState,
};
use et::graph::{CoreSet, Graph, GraphBuilder, HostData, Task, TaskId};
use et::{AnyHal, Clock, Config, Device, DeviceBuffer, Kernel, Launch, SystemClock};

/// A device whose registers let the host use its memory.
const MAPPED: &str = "shires=1,dram=1GiB,cpu-access=yes";

/// The system's clock, put forward at times.
#[derive(Debug, Default)]
struct LeapingClock {
    system: SystemClock,
    ahead: Mutex<Duration>,
}

impl LeapingClock {
    fn leap(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }
}

impl Clock for LeapingClock {
    fn now(&self) -> Duration {
        self.system.now() + *self.ahead.lock().unwrap()
    }
}

struct Rig {
    hang: Kernel,
    nop: Kernel,
    trap: Kernel,
    release: DeviceBuffer,
    device: Device<AnyHal>,
}

impl Rig {
    fn new(parameters: &str) -> Self {
        Self::of(open(parameters))
    }

    fn of(device: Device<AnyHal>) -> Self {
        let release = device.alloc(64).unwrap();
        device.default_stream().fill(&release, 0).unwrap().wait(LONG).unwrap();
        Self {
            hang: load(&device, "task_hang"),
            nop: load(&device, "task_nop"),
            trap: load(&device, "task_trap"),
            release,
            device,
        }
    }

    fn executor(&self, place: Place) -> DeviceExecutor<AnyHal> {
        self.device.executor(&ExecutorConfig::new().place(place).cores(3)).unwrap()
    }

    /// An endless kernel, and a host function before it if the graph shall not be one for the
    /// resident place.
    fn endless(&self, with_host: bool) -> (Graph, TaskId) {
        let mut builder = GraphBuilder::new();
        if with_host {
            let function = builder.function(|_| Ok(()));
            builder.add(Task::new(function)).unwrap();
        }
        let hang = builder.kernel(&self.hang);
        let task = builder.add(Task::new(hang).u64(1).in_out(&self.release).name("endless"));
        (builder.build().unwrap(), task.unwrap())
    }

    fn nops(&self, count: usize) -> Graph {
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&self.nop);
        for _ in 0..count {
            builder.add(Task::new(nop)).unwrap();
        }
        builder.build().unwrap()
    }

    /// Lets endless kernels end.
    fn let_go(&self) {
        let word = self.release.slice(..8).unwrap();
        self.device.stream().copy_to_device(&[1_u64], word).unwrap().wait(LONG).unwrap();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "timeout: {what}");
        std::thread::yield_now();
    }
}

fn until_it_runs(run: &Run, task: TaskId) {
    until("the task runs", || run.state(task) >= TaskState::Running);
}

#[test]
fn a_graph_that_needs_the_harts_lets_the_other_one_end_first() {
    // The first has its kernel on harts that the host schedules, the second wants them for a
    // scheduler of their own.
    let rig = Rig::new(MAPPED);
    let executor = rig.executor(Place::Auto);
    let (first, task) = rig.endless(true);
    let first = executor.launch(&first).unwrap();
    until_it_runs(&first, task);
    let second = executor.launch(&rig.nops(20)).unwrap();
    let third = executor.launch(&rig.nops(5)).unwrap();
    let early = second.wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(early, RunError::Timeout { .. }), "{early}");
    assert!(!first.is_done() && !second.is_done());
    rig.let_go();
    for run in [first, second, third] {
        assert!(run.finish(LONG).unwrap().is_success());
    }
}

#[test]
fn a_deadline_ends_its_run_whatever_other_runs_do() {
    let rig = Rig::new(MAPPED);
    for place in [Place::Cores, Place::Resident, Place::Streams] {
        let executor = rig.executor(place);
        let (endless, task) = rig.endless(false);
        let other = executor.launch(&endless).unwrap();
        if place == Place::Resident {
            until("the launch", || other.state(task) == TaskState::Delegated);
        } else {
            until_it_runs(&other, task);
        }
        let options = RunOptions::new().deadline(Duration::from_millis(50));
        let late = executor.launch_with(&rig.nops(3), options).unwrap();
        let start = Instant::now();
        let outcome = late.wait(LONG).unwrap();
        assert!(start.elapsed() < LONG / 4, "{place}: it waited for the other run");
        let is_late = matches!(outcome.check(), Err(RunError::Deadline { .. }));
        // Where there is a hart for them the three have simply run.
        assert!(is_late || place == Place::Cores && outcome.is_success(), "{place}: {outcome:?}");
        assert!(!other.is_done(), "{place}: nothing has stopped the other run");
        rig.let_go();
        assert!(other.finish(LONG).unwrap().is_success(), "{place}");
        rig.device.default_stream().fill(&rig.release, 0).unwrap().wait(LONG).unwrap();
        assert!(executor.launch(&rig.nops(9)).unwrap().finish(LONG).unwrap().is_success());
    }
}

/// Streams of the user have launches behind the kernel of the graph, in every queue of the device.
#[test]
fn a_deadline_ends_its_run_whatever_other_streams_do() {
    let clock = Arc::new(LeapingClock::default());
    let config = Config::new().watchdog(Duration::MAX).clock(clock.clone());
    let rig = Rig::of(open_with(MAPPED, config));
    let executor = rig.executor(Place::Streams);
    let (endless, task) = rig.endless(false);
    let run = executor.launch_with(&endless, RunOptions::new().deadline(LONG)).unwrap();
    until_it_runs(&run, task);
    let queues = rig.device.properties().queues;
    let streams: Vec<_> = (0..2 * queues).map(|_| rig.device.stream()).collect();
    let launch = Launch::new(&rig.nop);
    let behind: Vec<_> = streams.iter().map(|stream| stream.launch(&launch).unwrap()).collect();
    clock.leap(LONG);
    let outcome = run.wait(LONG).unwrap();
    assert!(matches!(outcome.check(), Err(RunError::Deadline { .. })), "{outcome:?}");
    assert!(matches!(outcome.failures(), [(_, TaskFailure::Deadline { .. })]), "{outcome:?}");
    for event in behind {
        event.wait(LONG).unwrap();
    }
}

#[test]
fn an_executor_is_made_while_a_kernel_runs() {
    let rig = Rig::new(MAPPED);
    let launch = Launch::new(&rig.hang).u64(1).buffer(&rig.release);
    let endless = rig.device.default_stream().launch(&launch).unwrap();
    assert!(endless.wait(Duration::from_millis(20)).is_err());
    let start = Instant::now();
    let executors = [Place::Cores, Place::Resident, Place::Streams].map(|it| rig.executor(it));
    assert!(start.elapsed() < LONG / 4, "the kernel held them up");
    assert!(!endless.is_done());
    rig.let_go();
    endless.wait(LONG).unwrap();
    for executor in executors {
        assert!(executor.launch(&rig.nops(3)).unwrap().finish(LONG).unwrap().is_success());
    }
}

#[test]
fn a_kernel_that_outlasts_the_grace_is_stopped_when_its_executor_is_dropped() {
    let rig = Rig::new(MAPPED);
    let grace = Duration::from_millis(7);
    let config = ExecutorConfig::new().place(Place::Streams).close_grace(grace);
    let executor = rig.device.executor(&config).unwrap();
    let (endless, task) = rig.endless(false);
    let run = executor.launch(&endless).unwrap();
    until_it_runs(&run, task);
    let start = Instant::now();
    drop(executor);
    assert!(start.elapsed() >= grace);
    let outcome = run.wait(LONG).unwrap();
    let [(_, TaskFailure::Deadline { after, .. })] = outcome.failures() else {
        panic!("{outcome:?}");
    };
    assert_eq!(*after, grace);
}

#[test]
fn an_endless_kernel_is_stopped_at_the_deadline_and_the_place_works_on() {
    let clock = Arc::new(LeapingClock::default());
    let config = Config::new().watchdog(Duration::MAX).clock(clock.clone());
    let rig = Rig::of(open_with(MAPPED, config));
    for place in [Place::Cores, Place::Resident, Place::Streams] {
        let executor = rig.executor(place);
        let (endless, task) = rig.endless(false);
        let mut stopped = 0;
        until("the third end", || {
            let options = RunOptions::new().deadline(LONG);
            let run = executor.launch_with(&endless, options).unwrap();
            until("the launch", || run.state(task) >= TaskState::Delegated);
            clock.leap(LONG);
            let outcome = run.wait(LONG).unwrap();
            assert!(executor.launch(&rig.nops(9)).unwrap().finish(LONG).unwrap().is_success());
            // What the resident scheduler has may not have started when the time is up.
            let has_started = outcome.state(task) != TaskState::Cancelled;
            assert!(has_started || place == Place::Resident, "{place}");
            if !has_started {
                return false;
            }
            assert_eq!(outcome.state(task), TaskState::Failed, "{place}");
            let [(_, TaskFailure::Deadline { .. })] = outcome.failures() else {
                panic!("{place}: {:?}", outcome.failures());
            };
            stopped += 1;
            stopped == 3
        });
    }
}

#[test]
fn a_deadline_ends_its_run_however_long_the_grace() {
    let clock = Arc::new(LeapingClock::default());
    let config = Config::new().watchdog(Duration::MAX).clock(clock.clone());
    let rig = Rig::of(open_with(MAPPED, config));
    for place in [Place::Cores, Place::Resident, Place::Streams] {
        let config = ExecutorConfig::new().place(place).cores(3).close_grace(Duration::MAX);
        let executor = rig.device.executor(&config).unwrap();
        let (endless, task) = rig.endless(false);
        let options = RunOptions::new().deadline(LONG);
        let run = executor.launch_with(&endless, options).unwrap();
        until("the launch", || run.state(task) >= TaskState::Delegated);
        clock.leap(LONG);
        let outcome = run.wait(LONG).unwrap();
        assert!(matches!(outcome.check(), Err(RunError::Deadline { .. })), "{place}: {outcome:?}");
        assert!(executor.launch(&rig.nops(9)).unwrap().finish(LONG).unwrap().is_success());
    }
}

#[test]
fn an_executor_with_an_endless_kernel_goes_soon() {
    let config = Config::new().shutdown_timeout(LONG);
    let rig = Rig::of(open_with(MAPPED, config));
    for place in [Place::Cores, Place::Resident, Place::Streams] {
        let executor = rig.executor(place);
        let (endless, task) = rig.endless(false);
        let run = executor.launch(&endless).unwrap();
        until("the launch", || run.state(task) >= TaskState::Delegated);
        let start = Instant::now();
        drop(executor);
        assert!(start.elapsed() < LONG / 4, "{place}: it waited for the kernel");
        assert!(run.outcome().unwrap().check().is_err(), "{place}");
        // Nothing is left on the device.
        let next = rig.executor(place);
        assert!(next.launch(&rig.nops(9)).unwrap().finish(LONG).unwrap().is_success(), "{place}");
    }
}

#[test]
fn harts_that_have_all_trapped_are_followed_by_new_ones() {
    let rig = Rig::new(MAPPED);
    for place in [Place::Cores, Place::Resident] {
        let executor = rig.executor(place);
        let mut builder = GraphBuilder::new();
        let trap = builder.kernel(&rig.trap);
        for _ in 0..3 {
            builder.add(Task::new(trap).u64(1)).unwrap();
        }
        let traps = builder.build().unwrap();
        for _ in 0..2 {
            let outcome = executor.launch(&traps).unwrap().wait(LONG).unwrap();
            assert_eq!(outcome.count(TaskState::Failed), 3, "{place}: {:?}", outcome.failures());
            assert!(executor.launch(&rig.nops(9)).unwrap().finish(LONG).unwrap().is_success());
        }
    }
}

#[test]
fn states_are_true_or_say_that_the_place_does_not_know() {
    let rig = Rig::new(MAPPED);
    for place in [Place::Cores, Place::Resident, Place::Streams] {
        let executor = rig.executor(place);
        let mut builder = GraphBuilder::new();
        let (hang, nop) = (builder.kernel(&rig.hang), builder.kernel(&rig.nop));
        let data = HostData::zeroed(64);
        let target = rig.device.alloc(64).unwrap();
        let copy = builder.copy_in(&data, &target).unwrap();
        let first = builder.add(Task::new(hang).u64(1).in_out(&rig.release)).unwrap();
        let behind = builder.add(Task::new(nop).after(first)).unwrap();
        let run = executor.launch(&builder.build().unwrap()).unwrap();
        let expected = if place == Place::Resident {
            [TaskState::Executed, TaskState::Delegated, TaskState::Delegated]
        } else {
            [TaskState::Executed, TaskState::Running, TaskState::Waiting]
        };
        until("the states", || [copy, first, behind].map(|task| run.state(task)) == expected);
        rig.let_go();
        assert!(run.finish(LONG).unwrap().is_success(), "{place}");
        assert_eq!([copy, first, behind].map(|task| run.state(task)), [TaskState::Complete; 3]);
        rig.device.default_stream().fill(&rig.release, 0).unwrap().wait(LONG).unwrap();
    }
}

#[test]
fn progress_is_read_from_the_image_and_never_from_what_was_there_before() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let executor = rig.executor(Place::Resident);
    for _ in 0..20 {
        let before = rig.device.alloc(1 << 20).unwrap();
        rig.device.default_stream().fill(&before, 0xff).unwrap().wait(LONG).unwrap();
        // The image comes to where this was.
        drop(before);
        // A copy on another stream of the same device makes the upload late.
        let big = rig.device.alloc(16 << 20).unwrap();
        let bytes = vec![1_u8; 16 << 20];
        let stream = rig.device.stream();
        let copies: Vec<_> = (0..2).map(|_| stream.copy_to_device(&bytes, &big).unwrap()).collect();
        let run = executor.launch(&rig.nops(50)).unwrap();
        let watched = run.clone();
        let is_over = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&is_over);
        let watcher = std::thread::spawn(move || {
            while !its.load(Ordering::Relaxed) {
                let (finished, tasks) = watched.progress();
                assert!(finished <= tasks, "{finished} of {tasks}");
                std::thread::yield_now();
            }
        });
        assert!(run.finish(LONG).unwrap().is_success());
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        for copy in copies {
            copy.wait(LONG).unwrap();
        }
    }
}

#[test]
fn tasks_bound_to_harts_do_not_stand_in_the_way_of_others() {
    let rig = Rig::new(MAPPED);
    let executor = rig.executor(Place::Cores);
    let mut builder = GraphBuilder::new();
    let (hang, nop) = (builder.kernel(&rig.hang), builder.kernel(&rig.nop));
    let mut bound = Vec::new();
    for _ in 0..4 {
        let task = Task::new(hang).u64(1).cores(CoreSet::of([0])).input(&rig.release);
        bound.push(builder.add(task).unwrap());
    }
    let free: Vec<_> = (0..20).map(|_| builder.add(Task::new(nop)).unwrap()).collect();
    let run = executor.launch(&builder.build().unwrap()).unwrap();
    until("the free ones", || free.iter().all(|task| run.state(*task) == TaskState::Executed));
    assert!(bound.iter().all(|task| !run.state(*task).is_final()));
    rig.let_go();
    assert!(run.finish(LONG).unwrap().is_success());
}

/// The firmware stops the kernel and says so twice; neither answer arrives.
#[test]
fn an_abort_that_fails_leads_to_a_reset_of_the_cores() {
    const BOARD: &str = "shires=1,dram=1GiB";
    let config = ExecutorConfig::new().place(Place::Streams).abort_limit(Duration::from_millis(50));
    let clock = Arc::new(LeapingClock::default());
    let prepared = |board: &str| {
        // What holds up the end is seen.
        let options =
            Config::new().shutdown_timeout(LONG).watchdog(Duration::MAX).clock(clock.clone());
        let rig = Rig::of(open_with(board, options));
        let executor = rig.device.executor(&config).unwrap();
        // The first launch brings a copy with it.
        rig.device.stream().launch(&Launch::new(&rig.nop)).unwrap().wait(LONG).unwrap();
        (rig, executor)
    };
    let counters = |rig: &Rig| rig.device.hal().as_sim().unwrap().board().counters();
    let before = counters(&prepared(BOARD).0);
    let dropped: String =
        (1..=2).map(|n| format!(",fault=drop-response:{}", before.responses + n)).collect();
    let (rig, executor) = prepared(&format!("{BOARD}{dropped}"));
    assert_eq!(counters(&rig).responses, before.responses);
    // Accepted before the reset, and executed after it.
    let other = open(BOARD);
    let gate = other.stream().launch(&Launch::new(&load(&other, "hang"))).unwrap();
    let stream = rig.device.stream();
    stream.wait_for(&gate);
    let late = stream.launch(&Launch::new(&rig.nop)).unwrap();
    let (endless, task) = rig.endless(false);
    let run = executor.launch_with(&endless, RunOptions::new().deadline(LONG)).unwrap();
    // If it passed before the launch is sent, there would be nothing to abort.
    until_it_runs(&run, task);
    clock.leap(LONG);
    let outcome = run.wait(LONG).unwrap();
    assert!(matches!(outcome.check(), Err(RunError::Deadline { .. })), "{outcome:?}");
    // The answers to launch, abort and reset.
    until("the reset", || counters(&rig).responses >= before.responses + 3);
    other.reset_compute(LONG).unwrap();
    assert!(gate.wait(LONG).is_err());
    late.wait(LONG).unwrap();
    let launch = Launch::new(&rig.nop);
    rig.device.stream().launch(&launch).unwrap().wait(LONG).unwrap();
    // The launch that was lost stands in nothing's way, not in its own stream and not at the end.
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&rig.nop);
    builder.add(Task::new(nop)).unwrap();
    executor.launch(&builder.build().unwrap()).unwrap().finish(LONG).unwrap();
    let start = Instant::now();
    drop(executor);
    rig.device.close();
    assert!(start.elapsed() < LONG / 4, "the end was held up");
}

#[test]
fn the_host_schedules_harts_only_if_the_registers_let_it_use_their_memory() {
    let cores = ExecutorConfig::new().place(Place::Cores);
    let card = open("shires=1,dram=1GiB");
    assert!(!card.properties().cpu_access);
    let error = card.executor(&cores).unwrap_err();
    assert!(matches!(error, RunError::NoCpuAccess), "{error}");
    let granted = open(MAPPED);
    assert!(granted.properties().cpu_access);
    granted.executor(&cores).unwrap();
}

#[test]
fn errors_of_the_device_say_what_is_wrong() {
    let device = open("shires=1,dram=1GiB");
    let error = device.executor(&ExecutorConfig::new().shires(1 << 9)).unwrap_err();
    assert!(error.to_string().contains("shire"), "{error}");
}
