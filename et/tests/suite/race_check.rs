//! The simulator looks for races: kernels whose harts use the same memory without order, or before
//! the data is there, fail, and say who and where. Kernels that are right do not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{LONG, load, open};
use et::executor::{ExecutorConfig, Place, TaskState};
use et::graph::{GraphBuilder, Task};
use et::kernel::{Access, ExceptionKind, HartContext, Race, RaceKind};
use et::{Device, DeviceBuffer, Error, Launch, LaunchFailure};

const HARTS: usize = 128;
const LINE: usize = 64;

fn device(seed: u64) -> Device {
    open(&format!("check=races,shires=2,dram=1GiB,seed={seed}"))
}

/// Buffers for the cases of the kernel `races`.
fn buffers(device: &Device) -> [DeviceBuffer; 2] {
    [24 << 16, HARTS * LINE].map(|bytes| device.alloc(bytes as u64).unwrap())
}

/// Runs one of the cases; returns how that failed.
fn run_on(
    device: &Device,
    buffers: &[DeviceBuffer; 2],
    which: u64,
) -> Option<std::sync::Arc<LaunchFailure>> {
    for buffer in buffers {
        device.default_stream().fill(buffer, 0).unwrap().wait(LONG).unwrap();
    }
    let [cells, sums] = buffers;
    let launch = Launch::new(&load(device, "races")).u64(which).buffer(cells).buffer(sums);
    match device.default_stream().launch(&launch).unwrap().wait(LONG) {
        Ok(_) => None,
        Err(Error::Launch(failure)) => Some(failure),
        Err(error) => panic!("{error:?}"),
    }
}

fn run(device: &Device, which: u64) -> Option<std::sync::Arc<LaunchFailure>> {
    run_on(device, &buffers(device), which)
}

/// The races of a run, each with its hart. Others may have been aborted, as they waited for these.
fn found(failure: &LaunchFailure) -> Vec<(&HartContext, Race)> {
    let is_aborted = |context: &&HartContext| context.kind == ExceptionKind::SystemAbort;
    let contexts = failure.contexts.iter().filter(|context| !is_aborted(context));
    contexts.map(|context| (context, context.race().expect("a race").0)).collect()
}

/// Runs a case with several seeds: each time it shows races, all of them `expected`.
fn shows(which: u64, expected: &[(RaceKind, Access, Access)]) {
    for seed in 0..3 {
        let failure = run(&device(seed), which).expect("the case is wrong");
        for (_, race) in found(&failure) {
            let Race { kind, access, other, .. } = race;
            assert!(expected.contains(&(kind, access, other)), "case {which}: {failure}");
        }
    }
}

#[test]
fn kernels_that_hand_over_rightly_show_nothing() {
    for seed in 0..5 {
        let device = device(seed);
        for which in [0, 4, 6, 8, 12, 13, 15, 16, 18, 20, 22, 24] {
            let failure = run(&device, which);
            assert!(failure.is_none(), "case {which}, seed {seed}: {}", failure.unwrap());
        }
    }
}

#[test]
fn accesses_without_order_are_races() {
    use Access::{Atomic, Line, Load, Store};
    let unordered = RaceKind::Unordered;
    shows(1, &[(unordered, Load, Store), (unordered, Store, Load)]);
    shows(7, &[(unordered, Atomic, Atomic)]);
    shows(9, &[(unordered, Store, Store)]);
    shows(10, &[(unordered, Load, Store), (unordered, Store, Load)]);
    shows(19, &[(unordered, Store, Load)]);
    shows(23, &[(unordered, Load, Store), (unordered, Store, Load)]);
    shows(17, &[(unordered, Line, Store)]);
}

#[test]
fn what_was_not_written_back_is_not_there() {
    use Access::{Atomic, Load, Store};
    let missing = RaceKind::NotWrittenBack;
    shows(2, &[(missing, Load, Store)]);
    shows(5, &[(missing, Atomic, Atomic)]);
    shows(11, &[(missing, Store, Store)]);
    shows(14, &[(missing, Atomic, Store)]);
    shows(21, &[(missing, Load, Store)]);
}

#[test]
fn what_a_cache_has_kept_is_old() {
    shows(3, &[(RaceKind::OldCopy, Access::Load, Access::Store)]);
}

#[test]
fn a_race_names_both_harts_and_both_places() {
    let device = device(0);
    let failure = run(&device, 2).expect("the case is wrong");
    let all = found(&failure);
    // Every hart reads what none has written back, and goes on: others wait for it. A line or two
    // may have been written back all the same, as on the card.
    assert!((HARTS - 8..=HARTS).contains(&all.len()), "{}", all.len());
    for (context, race) in all {
        assert_eq!(u32::from(race.other_hart), (context.hart_id + 66) % 128);
        let (_, address) = context.race().unwrap();
        let cells = context.nearest.unwrap();
        let at = address - cells.addr.as_u64();
        assert_eq!((at, race.bytes), (LINE as u64 * u64::from(race.other_hart), 8));
        let line = |location: Option<et::kernel::Location>| location.unwrap().source.unwrap();
        let (file, reader) = line(failure.location(context));
        let (_, writer) = line(failure.other_location(context));
        assert!(file.ends_with("races.c") && (reader, writer) == (36, 31), "{reader} {writer}");
    }
    assert_eq!(failure.groups().len(), 1, "one place, whoever the other hart is");
    let text = failure.to_string();
    assert!(text.contains("data not written back: load of 8 bytes after store by hart"), "{text}");
    assert!(text.contains("races.c:36; the store at pc") && text.contains("races.c:31"), "{text}");
}

#[test]
fn a_hart_that_traps_after_its_race_has_shown_the_race() {
    let failure = run(&device(0), 25).expect("the case is wrong");
    let races = failure.contexts.iter().filter(|context| context.race().is_some());
    // All but the first to write.
    assert_eq!((failure.contexts.len(), races.count()), (HARTS, HARTS - 1), "{failure}");
}

#[test]
fn a_launch_knows_nothing_of_the_one_before() {
    let device = device(0);
    let buffers = buffers(&device);
    let mut fails = |which| run_on(&device, &buffers, which).is_some();
    assert_eq!([2, 0, 0, 1, 8].map(&mut fails), [true, false, false, true, false]);
}

#[test]
fn tasks_that_the_host_orders_do_not_race() {
    const N: u64 = 256;
    let device = open("check=races,cpu-access=yes,shires=1,dram=1GiB");
    let kernel = load(&device, "add_scalar");
    let buffers = [(); 2].map(|()| device.alloc(4 * N).unwrap());
    for place in [Place::Cores, Place::Resident] {
        let executor = device.executor(&ExecutorConfig::new().place(place).cores(8)).unwrap();
        // Each task reads what another core has written.
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&kernel);
        for step in 0..24 {
            for part in 0..8 {
                let parts = [(step, part + 3), (step + 1, part)];
                let [from, to] = parts.map(|(buffer, part)| {
                    let start = part % 8 * N / 2;
                    buffers[buffer % 2].slice(start..start + N / 2).unwrap()
                });
                let task = Task::new(add).input(from).output(to).f32(1.0).u64(N / 8);
                builder.add(task).unwrap();
            }
        }
        let graph = builder.build().unwrap();
        let stream = device.default_stream();
        stream.fill(&buffers[0], 0).unwrap().wait(LONG).unwrap();
        let outcome = executor.launch(&graph).unwrap().wait(LONG).unwrap();
        outcome.check().unwrap_or_else(|error| panic!("{place}: {error:?}"));
        let mut sums = vec![0.0_f32; 256];
        stream.read(&buffers[0], &mut sums, LONG).unwrap();
        assert_eq!(sums, [24.0; 256], "{place}");
    }
}

#[test]
fn a_race_of_a_task_fails_that_task() {
    const TASKS: usize = 4;
    let device = open("check=races,cpu-access=yes,shires=1,dram=1GiB");
    let kernel = load(&device, "task_race");
    for place in [Place::Cores, Place::Resident] {
        let executor = device.executor(&ExecutorConfig::new().place(place).cores(8)).unwrap();
        let [here, word] = [(); 2].map(|()| device.alloc(LINE as u64).unwrap());
        device.default_stream().fill(&here, 0).unwrap().wait(LONG).unwrap();
        // The graph does not know that they write the same.
        let mut builder = GraphBuilder::new();
        let race = builder.kernel(&kernel);
        let [here, word] = [&here, &word].map(|buffer| buffer.addr().as_u64());
        let tasks = [(); TASKS]
            .map(|()| builder.add(Task::new(race).u64(here).u64(TASKS as u64).u64(word)).unwrap());
        let graph = builder.build().unwrap();
        let outcome = executor.launch(&graph).unwrap().wait(LONG).unwrap();
        // All but the first to write.
        let failed = tasks.iter().filter(|&&task| outcome.state(task) == TaskState::Failed);
        assert_eq!(failed.count(), TASKS - 1, "{place}");
        let error = format!("{:?}", outcome.check().unwrap_err());
        assert!(error.contains("data race: store of 8 bytes after store by hart"), "{error}");
        assert_eq!(error.matches("task_race.c:").count(), 2, "{error}");
    }
}

#[test]
fn memory_is_checked_as_well() {
    let device = device(0);
    let kernel = load(&device, "memset");
    let buffer = device.alloc(64).unwrap();
    let launch = Launch::new(&kernel).buffer(&buffer).u64(1).u64(65);
    let launched = device.default_stream().launch(&launch).unwrap();
    let Err(Error::Launch(failure)) = launched.wait(LONG) else { panic!("it left its buffer") };
    assert!(failure.contexts.iter().any(|context| context.memory_fault().is_some()), "{failure}");
}
