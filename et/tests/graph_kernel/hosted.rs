//! Mode 0: the host is the scheduler.

use std::time::{Duration, Instant};

use et::hal::BarOffset;
use et::{AnyWindow, DeviceBuffer, Event, Kernel, Launch};
use et_devapi::handshake::{Assignment, CELL_BYTES, MappedCell, Scheduler, Status, WorkerState};

use super::{BAR0, LONG, Plan, Random, Rig, load, rmw, start, until};

/// Mode 0: cell 0 is the relay's.
struct Hosted<'a> {
    rig: &'a Rig,
    event: Event,
    cells: DeviceBuffer,
    schedulers: Vec<Scheduler>,
}

impl<'a> Hosted<'a> {
    fn new(rig: &'a Rig, workers: usize) -> Self {
        let image = Plan::default().upload(rig, 0);
        let (event, cells) = start(rig, 0, workers as u64, 1, &image);
        let schedulers = vec![Scheduler::new(); workers + 1];
        let mut hosted = Self { rig, event, cells, schedulers };
        for rank in 0..=workers {
            until("announcement", || {
                let cell = hosted.cell(rank);
                hosted.schedulers[rank].open(&cell).unwrap() == Some(rank as u64)
            });
        }
        hosted
    }

    fn cell(&self, rank: usize) -> MappedCell<'a, AnyWindow> {
        let at = self.cells.addr().as_u64() - BAR0 + CELL_BYTES * rank as u64;
        MappedCell::new(&self.rig.window, BarOffset::new(at))
    }

    fn status(&self, rank: usize) -> Status {
        self.schedulers[rank].status(&self.cell(rank)).unwrap()
    }

    fn wake_if_parked(&mut self, rank: usize) {
        if !self.schedulers[rank].must_wake(&self.cell(rank)).unwrap() {
            return;
        }
        let cell = self.cell(0);
        until("room at the relay", || {
            let relay = &mut self.schedulers[0];
            if let Some(finished) = relay.poll(&cell).unwrap() {
                assert_eq!(finished.outcome, 0);
            }
            relay.has_room()
        });
        let _ =
            self.schedulers[0].dispatch(&cell, Assignment { task: 1, arg: rank as u64 }).unwrap();
    }

    fn dispatch(&mut self, rank: usize, function: &Kernel, args: u64) {
        let assignment = Assignment { task: function.entry().as_u64(), arg: args };
        let cell = self.cell(rank);
        let _ = self.schedulers[rank].dispatch(&cell, assignment).unwrap();
        self.wake_if_parked(rank);
    }

    fn finish(&mut self, rank: usize) -> u64 {
        let cell = self.cell(rank);
        let mut finished = None;
        until("completion", || {
            finished = self.schedulers[rank].poll(&cell).unwrap();
            finished.is_some()
        });
        let finished = finished.unwrap();
        let (start, end) = self.schedulers[rank].times(&cell, finished.sequence).unwrap();
        assert!(0 < start && start <= end);
        finished.outcome
    }

    fn quit(&mut self, rank: usize) {
        let cell = self.cell(rank);
        self.schedulers[rank].quit(&cell).unwrap();
        self.wake_if_parked(rank);
    }

    fn until_state(&self, rank: usize, state: WorkerState) {
        until("state", || self.status(rank).state == state);
    }

    /// Waits for all workers to leave, then dismisses the relay.
    fn end(mut self) {
        for rank in 1..self.schedulers.len() {
            self.until_state(rank, WorkerState::Exited);
        }
        let cell = self.cell(0);
        self.schedulers[0].quit(&cell).unwrap();
        self.event.wait(LONG).unwrap();
        assert_eq!(self.status(0).state, WorkerState::Exited);
    }
}

fn thousand_tasks(parameters: &str, tasks: u64) {
    let rig = Rig::new(parameters);
    let mut memory: Vec<u64> = (0..32).collect();
    let data = rig.words(&memory);
    let args: Vec<_> = (0..tasks)
        .map(|i| [data.addr().as_u64(), 8 * (1 + i % 3), 8, i, 8 * (1 + i % 3), 8, 0, 0])
        .collect();
    let buffer = rig.words(args.as_flattened());
    let mut hosted = Hosted::new(&rig, 3);
    for i in 0..tasks {
        let rank = usize::try_from(1 + i % 3).unwrap();
        // Now and then all go to sleep.
        if i % 97 == 0 {
            for rank in 1..4 {
                while hosted.schedulers[rank].outstanding() > 0 {
                    assert_eq!(hosted.finish(rank), 0);
                }
                hosted.until_state(rank, WorkerState::Parked);
            }
        }
        if !hosted.schedulers[rank].has_room() {
            assert_eq!(hosted.finish(rank), 0);
        }
        hosted.dispatch(rank, &rig.rmw, buffer.addr().as_u64() + 64 * i);
    }
    for rank in 1..4 {
        while hosted.schedulers[rank].outstanding() > 0 {
            assert_eq!(hosted.finish(rank), 0);
        }
        hosted.quit(rank);
    }
    hosted.end();
    for args in &args {
        rmw(&mut memory, &args[..6]);
    }
    assert_eq!(rig.read(&data), memory);
}

#[test]
fn the_host_dispatches_a_thousand_tasks_to_three_workers() {
    thousand_tasks("shires=1,dram=1GiB", 1000);
}

#[test]
fn the_host_dispatches_whatever_the_caches_do() {
    for seed in 0..20 {
        thousand_tasks(&format!("memory=weak,seed={seed},shires=1,dram=1GiB"), 100);
    }
}

/// Dispatches to a worker that is about to park.
fn near_parking(parameters: &str, seed: u64, tasks: u64) {
    let rig = Rig::new(parameters);
    let mut random = Random(seed);
    let mut hosted = Hosted::new(&rig, 1);
    let mut typical = Duration::from_micros(100);
    for i in 0..tasks {
        hosted.dispatch(1, &rig.nop, 0);
        assert_eq!(hosted.finish(1), 0);
        let start = Instant::now();
        if i % 16 == 0 {
            hosted.until_state(1, WorkerState::Parked);
            typical = (typical + start.elapsed()) / 2;
        } else {
            let delay =
                typical.mul_f64(0.5 + 0.01 * f64::from(u32::try_from(random.below(100)).unwrap()));
            while start.elapsed() < delay {
                std::hint::spin_loop();
            }
        }
    }
    hosted.quit(1);
    hosted.end();
}

#[test]
fn a_dispatch_to_a_worker_that_is_about_to_park_is_not_lost() {
    near_parking("shires=1,dram=1GiB", 1, 5000);
}

#[test]
fn a_dispatch_to_a_worker_that_is_about_to_park_is_not_lost_whatever_the_caches_do() {
    for seed in 0..20 {
        near_parking(&format!("memory=weak,seed={seed},shires=1,dram=1GiB"), seed, 250);
    }
}

#[test]
fn workers_of_the_host_leave_from_every_state() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let [begun, written] = [(); 2].map(|()| rig.words(&[0]));
    let args = rig.words(&[begun.addr().as_u64(), 4, written.addr().as_u64()]);
    let mut hosted = Hosted::new(&rig, 5);
    // 1: just awake; 2: parked; 3: running; 4: running and one staged; 5: the same, but aborted.
    hosted.until_state(2, WorkerState::Parked);
    for rank in 3..=5 {
        hosted.dispatch(rank, &rig.race, args.addr().as_u64());
    }
    until("three that run", || rig.peek(&begun, 0) == 3);
    for rank in 4..=5 {
        hosted.dispatch(rank, &rig.nop, 0);
    }
    hosted.dispatch(1, &rig.nop, 0);
    assert_eq!(hosted.finish(1), 0);
    for rank in 1..=4 {
        hosted.quit(rank);
    }
    let cell = hosted.cell(5);
    hosted.schedulers[5].abort(&cell).unwrap();
    hosted.wake_if_parked(5);
    hosted.until_state(1, WorkerState::Exited);
    hosted.until_state(2, WorkerState::Exited);
    for rank in 3..=5 {
        let status = hosted.status(rank);
        assert_eq!((status.state, status.completed), (WorkerState::Awake, 0));
    }
    rig.poke(&begun, 0, 4);
    for rank in 3..=5 {
        hosted.until_state(rank, WorkerState::Exited);
    }
    let completed: Vec<_> = (1..=5).map(|rank| hosted.status(rank).completed).collect();
    assert_eq!(completed, [1, 0, 1, 2, 1]);
    hosted.end();
}

#[test]
fn workers_of_the_host_can_be_told_to_quit_before_they_are_opened() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let image = Plan::default().upload(&rig, 0);
    let (event, cells) = start(&rig, 0, 2, 1, &image);
    let mut hosted = Hosted { rig: &rig, event, cells, schedulers: vec![Scheduler::new(); 3] };
    // Parked while closed.
    hosted.until_state(1, WorkerState::Parked);
    let cell = hosted.cell(0);
    until("relay", || hosted.schedulers[0].open(&cell).unwrap().is_some());
    hosted.quit(1);
    hosted.quit(2);
    hosted.end();
}

#[test]
fn the_relay_refuses_what_it_does_not_know() {
    let rig = Rig::new("shires=1,dram=1GiB");
    // Before the launch: copies wait for it.
    let args = rig.words(&[(-3i64).cast_unsigned()]);
    let mut hosted = Hosted::new(&rig, 1);
    let cell = hosted.cell(0);
    for (task, arg) in [(0, 1), (1, 2), (2, 0)] {
        let _ = hosted.schedulers[0].dispatch(&cell, Assignment { task, arg }).unwrap();
        assert_eq!(hosted.finish(0), u64::MAX);
    }
    // A wake that was not needed does no harm.
    let _ = hosted.schedulers[0].dispatch(&cell, Assignment { task: 1, arg: 1 }).unwrap();
    assert_eq!(hosted.finish(0), 0);
    hosted.dispatch(1, &rig.fail, args.addr().as_u64());
    assert_eq!(hosted.finish(1).cast_signed(), -3);
    hosted.quit(1);
    hosted.end();
}

#[test]
fn tasks_can_be_launched_on_all_harts_too() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut memory: Vec<u64> = (0..1000).collect();
    let data = rig.words(&memory);
    let args = [0, 105, 871, 42, 3, 100];
    let kernel = load(&rig.device, "task_rmw");
    let launch = args[1..].iter().fold(Launch::new(&kernel).buffer(&data), |l, arg| l.u64(*arg));
    rig.device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    rmw(&mut memory, &args);
    assert_eq!(rig.read(&data), memory);
    let nop = load(&rig.device, "task_nop");
    let event = rig.device.default_stream().launch(&Launch::new(&nop)).unwrap();
    event.wait(Duration::from_secs(10)).unwrap();
}
