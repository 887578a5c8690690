//! `graph.elf`: graphs of tasks on resident harts, with a hart for a scheduler (mode 1) or with the
//! host for one (mode 0).
//!
//! Sequence numbers are not driven to their wrap-around here, which would take 2³² tasks; the
//! models of the handshake do that.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, elf, load, open};
use et::AnyWindow;
use et::hal::{Bar, BarOffset, Hal, Mmio, Width};
use et::{AnyHal, Device, DeviceBuffer, Event, Kernel, Launch};
use et_devapi::handshake::{Assignment, CELL_BYTES, MappedCell, Scheduler, Status, WorkerState};

/// Address of the first byte of BAR0. Spec: device interface §1
const BAR0: u64 = 0x80_0400_1000;

/// "1ETGRAPH".
const MAGIC: u64 = 0x4850_4152_4754_4531;
const LINE_WORDS: usize = 8;
/// Fences and environment calls in the kernel, and how many of them a few seeds of weak memory find
/// missing. Most fences are for schedulers on the host, which is not in this test, or order what
/// accesses to one line order, too.
const FOUND: ([usize; 2], [usize; 2]) = ([20, 5], [2, 2]);

/// A device with the kernel and the functions of tasks.
struct Rig {
    graph: Kernel,
    nop: Kernel,
    rmw: Kernel,
    trap: Kernel,
    hang: Kernel,
    fail: Kernel,
    window: AnyWindow,
    device: Device<AnyHal>,
}

impl Rig {
    fn new(parameters: &str) -> Self {
        Self::with_graph(parameters, &elf("graph"))
    }

    /// With another scheduler and workers.
    fn with_graph(parameters: &str, graph: &[u8]) -> Self {
        let device = open(parameters);
        let task = |name| device.load_kernel_entry(name, &elf(name), Some("et_task")).unwrap();
        Self {
            graph: device.load_kernel("graph", graph).unwrap(),
            nop: task("task_nop"),
            rmw: task("task_rmw"),
            trap: task("task_trap"),
            hang: task("task_hang"),
            fail: task("task_fail"),
            window: device.hal().window(Bar::new(0).unwrap()).unwrap(),
            device,
        }
    }

    /// A buffer at a line with these words.
    fn words(&self, words: &[u64]) -> DeviceBuffer {
        let len = 64 * (words.len() as u64).div_ceil(8).max(1);
        let buffer = self.device.alloc_aligned(len, 64).unwrap();
        let mut padded = words.to_vec();
        padded.resize(usize::try_from(len / 8).unwrap(), 0);
        self.device.default_stream().copy_to_device(&padded, &buffer).unwrap().wait(LONG).unwrap();
        buffer
    }

    fn read(&self, buffer: &DeviceBuffer) -> Vec<u64> {
        let mut words = vec![0; usize::try_from(buffer.len_bytes() / 8).unwrap()];
        self.device.default_stream().read(buffer, &mut words, LONG).unwrap();
        words
    }

    fn peek(&self, buffer: &DeviceBuffer, word: u64) -> u64 {
        let at = BarOffset::new(buffer.addr().as_u64() - BAR0 + 8 * word);
        self.window.read(at, Width::W64).unwrap()
    }

    fn poke(&self, buffer: &DeviceBuffer, word: u64, value: u64) {
        let at = BarOffset::new(buffer.addr().as_u64() - BAR0 + 8 * word);
        self.window.write(at, Width::W64, value).unwrap();
    }
}

/// Waits for something that a running kernel does.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "timeout: {what}");
        std::thread::yield_now();
    }
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

// ---- graphs for the resident scheduler ----

#[derive(Clone, Debug)]
struct Task {
    function: u64,
    args: Vec<u64>,
    successors: Vec<u32>,
}

/// A graph; edges lead to tasks with higher numbers.
#[derive(Clone, Debug, Default)]
struct Plan {
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotRun,
    Dispatched,
    Complete,
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    state: State,
    worker: u64,
    value: i64,
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    state: u64,
    completed: u64,
    failed: u64,
    dispatched: u64,
    started: u64,
    ended: u64,
}

impl Plan {
    fn task(&mut self, function: &Kernel, args: &[u64]) -> u32 {
        let number = u32::try_from(self.tasks.len()).unwrap();
        let function = function.entry().as_u64();
        self.tasks.push(Task { function, args: args.to_vec(), successors: Vec::new() });
        number
    }

    fn edge(&mut self, from: u32, to: u32) {
        let successors = &mut self.tasks[from as usize].successors;
        if !successors.contains(&to) {
            successors.push(to);
        }
    }

    /// Lays the graph out.
    fn upload(&self, rig: &Rig, depth: u64) -> Image {
        fn halves(values: &[u32]) -> Vec<u64> {
            let mut words: Vec<u64> = values
                .chunks(2)
                .map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32)
                .collect();
            words.resize(words.len().next_multiple_of(LINE_WORDS).max(LINE_WORDS), 0);
            words
        }
        let count = self.tasks.len();
        let mut pending = vec![0u32; count];
        let mut successors = Vec::new();
        let mut table = Vec::new();
        let mut args = Vec::new();
        for task in &self.tasks {
            table.push(task.function);
            table.push(args.len() as u64 * 8);
            args.extend(&task.args);
            let (first, len) = (successors.len() as u64, task.successors.len() as u64);
            table.extend([first | len << 32, 0]);
            successors.extend(&task.successors);
            for &to in &task.successors {
                pending[to as usize] += 1;
            }
        }
        let args = rig.words(&args);
        for task in table.chunks_mut(4) {
            task[1] += args.addr().as_u64();
        }
        let mut ready: Vec<u32> =
            (0u32..).zip(&pending).filter(|(_, pending)| **pending == 0).map(|(i, _)| i).collect();
        let roots = ready.len() as u64;
        ready.resize(count, u32::MAX);
        table.resize(table.len().next_multiple_of(LINE_WORDS), 0);
        let tables = [table, halves(&successors), halves(&pending), halves(&ready)];
        let outcomes = vec![0u64; (4 * count).next_multiple_of(LINE_WORDS)];
        let len = 24 + tables.iter().map(Vec::len).sum::<usize>() + outcomes.len();
        let buffer = rig.device.alloc_aligned(8 * len as u64, 64).unwrap();
        let mut words = vec![0; 24];
        words[0] = MAGIC;
        words[1] = count as u64;
        words[7] = roots;
        words[17] = depth;
        let base = buffer.addr().as_u64();
        for (at, table) in (2..).zip(tables.iter().chain([&outcomes])) {
            words[at] = base + 8 * words.len() as u64;
            words.extend(table);
        }
        let outcomes = usize::try_from((words[6] - base) / 8).unwrap();
        rig.device.default_stream().copy_to_device(&words, &buffer).unwrap().wait(LONG).unwrap();
        Image { buffer, outcomes, count, args }
    }
}

struct Image {
    buffer: DeviceBuffer,
    /// Word of the table.
    outcomes: usize,
    count: usize,
    args: DeviceBuffer,
}

impl Image {
    fn progress(&self, rig: &Rig) -> Progress {
        let word = |word| rig.peek(&self.buffer, word);
        Progress {
            state: word(8),
            completed: word(9),
            failed: word(10),
            dispatched: word(11),
            started: word(12),
            ended: word(13),
        }
    }

    fn outcomes(&self, rig: &Rig) -> Vec<Outcome> {
        let words = rig.read(&self.buffer);
        let outcomes = words[self.outcomes..].chunks(4).take(self.count);
        outcomes
            .map(|words| Outcome {
                state: [State::NotRun, State::Dispatched, State::Complete, State::Failed]
                    [usize::try_from(words[0] & 0xffff_ffff).unwrap()],
                worker: words[0] >> 32,
                value: words[1].cast_signed(),
                start: words[2],
                end: words[3],
            })
            .collect()
    }
}

fn start(rig: &Rig, mode: u64, workers: u64, shires: u64, image: &Image) -> (Event, DeviceBuffer) {
    let harts = workers + 1;
    let cells = rig.words(&vec![0; usize::try_from(16 * harts).unwrap()]);
    let launch = Launch::new(&rig.graph).u64(mode).buffer(&cells).u64(harts);
    let launch = launch.buffer(&image.buffer).keep(&image.args).shires(shires);
    (rig.device.default_stream().launch(&launch).unwrap(), cells)
}

/// Runs a graph to its end and checks what must hold for every graph.
fn run(rig: &Rig, plan: &Plan, workers: u64, depth: u64, shires: u64) -> (Vec<Outcome>, Progress) {
    let image = plan.upload(rig, depth);
    let (event, _cells) = start(rig, 1, workers, shires, &image);
    event.wait(LONG).unwrap();
    let (outcomes, progress) = (image.outcomes(rig), image.progress(rig));
    assert_eq!(progress.state, 2);
    assert!(progress.started <= progress.ended);
    let count = |state| outcomes.iter().filter(|outcome| outcome.state == state).count() as u64;
    assert_eq!(progress.completed, count(State::Complete));
    assert_eq!(progress.failed, count(State::Failed));
    assert_eq!(progress.dispatched, progress.completed + progress.failed);
    for (outcome, task) in outcomes.iter().zip(&plan.tasks) {
        if outcome.state == State::NotRun {
            continue;
        }
        assert!((1..=workers).contains(&outcome.worker), "{outcome:?}");
        assert_eq!(outcome.state == State::Failed, outcome.value < 0);
        assert!(outcome.start <= outcome.end);
        for &to in &task.successors {
            let later = outcomes[to as usize];
            assert!(later.state == State::NotRun || outcome.state == State::Complete);
        }
    }
    (outcomes, progress)
}

/// What `task_rmw` does.
fn rmw(memory: &mut [u64], args: &[u64]) {
    let &[_, first, words, key, read_first, read_words] = args else { panic!("{args:?}") };
    let range = |first: u64, len: u64| {
        usize::try_from(first).unwrap()..usize::try_from(first + len).unwrap()
    };
    let hash = memory[range(read_first, read_words)]
        .iter()
        .fold(0x243f_6a88_85a3_08d3u64, |hash, word| {
            (hash ^ word).rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
    for (i, word) in (first..).zip(&mut memory[range(first, words)]) {
        *word = word.rotate_left(13) ^ hash.wrapping_add(key).wrapping_add(i);
    }
}

/// A random graph of `task_rmw` over `lines` lines, with an edge for each hazard and some more.
fn random_plan(rig: &Rig, random: &mut Random, base: u64, lines: u64, tasks: u64) -> Plan {
    let mut plan = Plan::default();
    let none = vec![None; usize::try_from(lines).unwrap()];
    let (mut writer, mut readers) = (none, vec![Vec::new(); usize::try_from(lines).unwrap()]);
    for _ in 0..tasks {
        let span = |random: &mut Random, most: u64| {
            let first = random.below(8 * lines);
            (first, (1 + random.below(most)).min(8 * lines - first))
        };
        let (first, words) = span(random, 12);
        let (read_first, mut read_words) = span(random, 24);
        if random.below(4) == 0 {
            read_words = 0;
        }
        let key = random.next();
        let task = plan.task(&rig.rmw, &[base, first, words, key, read_first, read_words]);
        let lines_of = |first: u64, words: u64| {
            let end = if words == 0 { first / 8 } else { (first + words).div_ceil(8) };
            usize::try_from(first / 8).unwrap()..usize::try_from(end).unwrap()
        };
        for line in lines_of(read_first, read_words).chain(lines_of(first, words)) {
            if let Some(writer) = writer[line] {
                plan.edge(writer, task);
            }
        }
        for line in lines_of(first, words) {
            for reader in std::mem::take(&mut readers[line]) {
                if reader != task {
                    plan.edge(reader, task);
                }
            }
            writer[line] = Some(task);
        }
        for line in lines_of(read_first, read_words) {
            if writer[line] != Some(task) {
                readers[line].push(task);
            }
        }
        if task > 0 && random.below(4) == 0 {
            plan.edge(u32::try_from(random.below(task.into())).unwrap(), task);
        }
    }
    plan
}

/// Runs random graphs and compares memory with that of a sequential execution.
fn random_graphs(rig: &Rig, seed: u64, graphs: u64, workers: &[u64], shires: u64) {
    let mut random = Random(seed);
    for graph in 0..graphs {
        let lines = 2 + random.below(30);
        let mut memory: Vec<u64> = (0..8 * lines).map(|_| random.next()).collect();
        let data = rig.words(&memory);
        let tasks = 1 + random.below(60);
        let plan = random_plan(rig, &mut random, data.addr().as_u64(), lines, tasks);
        let workers = workers[usize::try_from(random.below(workers.len() as u64)).unwrap()];
        let depth = random.below(3);
        let (outcomes, _) = run(rig, &plan, workers, depth, shires);
        assert!(outcomes.iter().all(|outcome| outcome.state == State::Complete));
        for task in &plan.tasks {
            rmw(&mut memory, &task.args);
        }
        assert!(rig.read(&data) == memory, "seed {seed} graph {graph} on {workers} workers");
    }
}

#[test]
fn an_empty_graph_ends_at_once_also_without_workers() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [0, 1, 63] {
        let (_, progress) = run(&rig, &Plan::default(), workers, 0, 1);
        assert_eq!(progress.dispatched, 0);
    }
}

#[test]
fn a_chain_runs_in_order_on_one_worker_and_on_many() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1, 2, 63] {
        let mut plan = Plan::default();
        let data = rig.words(&[0; 8]);
        for key in 0..50 {
            let task = plan.task(&rig.rmw, &[data.addr().as_u64(), key % 8, 1, key, 0, 8]);
            if task > 0 {
                plan.edge(task - 1, task);
            }
        }
        let (outcomes, _) = run(&rig, &plan, workers, 0, 1);
        let mut memory = [0; 8];
        for task in &plan.tasks {
            rmw(&mut memory, &task.args);
        }
        assert_eq!(rig.read(&data), memory);
        // The most recently used worker is preferred.
        assert!(outcomes.iter().all(|outcome| outcome.worker == outcomes[0].worker));
        assert!(outcomes.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}

#[test]
fn independent_tasks_use_all_workers_before_any_gets_two() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1u64, 2, 3, 24, 63] {
        let release = rig.words(&[0]);
        let mut plan = Plan::default();
        for _ in 0..workers {
            plan.task(&rig.hang, &[1, release.addr().as_u64()]);
        }
        for _ in 0..workers {
            plan.task(&rig.nop, &[]);
        }
        for depth in [1, 2] {
            rig.poke(&release, 0, 0);
            let image = plan.upload(&rig, depth);
            let (event, _cells) = start(&rig, 1, workers, 1, &image);
            until(&format!("dispatch to {workers}, {depth}"), || {
                image.progress(&rig).dispatched == depth * workers
            });
            rig.poke(&release, 0, 1);
            event.wait(LONG).unwrap();
            let outcomes = image.outcomes(&rig);
            assert!(outcomes.iter().all(|outcome| outcome.state == State::Complete));
            let mut used: Vec<_> =
                outcomes.iter().take(plan.tasks.len() / 2).map(|outcome| outcome.worker).collect();
            used.sort_unstable();
            assert!(used.into_iter().eq(1..=workers), "one each");
        }
    }
}

#[test]
fn one_task_releases_many_and_many_release_one() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1, 3, 63] {
        let mut plan = Plan::default();
        let data = rig.words(&[7; 8 * 34]);
        let base = data.addr().as_u64();
        let first = plan.task(&rig.rmw, &[base, 0, 8, 1, 0, 8]);
        let middle: Vec<u32> = (1..33)
            .map(|i| {
                let task = plan.task(&rig.rmw, &[base, 8 * i, 8, i, 0, 8]);
                plan.edge(first, task);
                task
            })
            .collect();
        let last = plan.task(&rig.rmw, &[base, 8 * 33, 8, 99, 0, 8 * 33]);
        for task in middle {
            plan.edge(task, last);
        }
        let _ = run(&rig, &plan, workers, 0, 1);
        let mut memory = [7; 8 * 34];
        for task in &plan.tasks {
            rmw(&mut memory, &task.args);
        }
        assert_eq!(rig.read(&data), memory);
    }
}

#[test]
fn random_graphs_leave_what_a_sequential_execution_leaves() {
    let rig = Rig::new("shires=1,dram=1GiB");
    random_graphs(&rig, 1, 220, &[1, 2, 3, 24, 63], 1);
}

#[test]
fn random_graphs_run_across_shires() {
    let rig = Rig::new("shires=4,dram=1GiB");
    random_graphs(&rig, 2, 60, &[3, 64, 65, 127], 0b1010);
    random_graphs(&rig, 3, 10, &[200, 255], 0b1111);
}

#[test]
fn caches_and_late_stores_do_not_matter() {
    for seed in 0..100 {
        let rig = Rig::new(&format!("memory=weak,seed={seed},shires=1,dram=1GiB"));
        random_graphs(&rig, seed, 4, &[1, 2, 3, 24, 63], 1);
    }
}

#[test]
fn caches_of_shires_do_not_matter() {
    for seed in 0..40 {
        let rig = Rig::new(&format!("memory=weak,seed={seed},shires=2,dram=1GiB"));
        random_graphs(&rig, seed, 3, &[2, 63, 64, 100], 0b11);
    }
}

/// Runs a random graph with one instruction missing; tells whether that shows: in the data, in the
/// outcomes, or because the graph does not end.
fn shows(mutant: &[u8], seed: u64) -> bool {
    let rig = Rig::with_graph(&format!("memory=weak,seed={seed},shires=2,dram=1GiB"), mutant);
    let mut random = Random(seed);
    let lines = 2 + random.below(8);
    let mut memory: Vec<u64> = (0..8 * lines).map(|_| random.next()).collect();
    let data = rig.words(&memory);
    let plan = random_plan(&rig, &mut random, data.addr().as_u64(), lines, 30);
    // On one shire or across two.
    let (workers, shires) = if seed.is_multiple_of(2) { (7, 1) } else { (100, 0b11) };
    let image = plan.upload(&rig, 2);
    let (event, _cells) = start(&rig, 1, workers, shires, &image);
    if event.wait(Duration::from_secs(2)).is_err() {
        return true;
    }
    let outcomes = image.outcomes(&rig);
    for task in &plan.tasks {
        rmw(&mut memory, &task.args);
    }
    !outcomes.iter().all(|outcome| outcome.state == State::Complete) || rig.read(&data) != memory
}

/// Fences and environment calls of the scheduler on the device and its workers, one missing at a
/// time. Found within so many seeds: the fences between dispatch and credit and between dismissal
/// and credit, the eviction after a task, the end of the kernel.
#[test]
fn missing_fences_and_evictions_show_in_weak_memory() {
    const SEEDS: u64 = 5;
    const NOP: [u8; 4] = 0x13_u32.to_le_bytes();
    let kernel = elf("graph");
    // The code starts at this offset of the file (kernel.ld), and its last fence is near its end.
    let code = 0x1000..kernel.len() - 4;
    let places = |word: u32| -> Vec<usize> {
        code.clone().step_by(2).filter(|&at| kernel[at..at + 4] == word.to_le_bytes()).collect()
    };
    let fences = places(0x0ff0_000f);
    let end = fences.last().unwrap() + 64;
    let calls: Vec<usize> = places(0x73).into_iter().filter(|&at| at < end).collect();
    assert!((0..SEEDS).all(|seed| !shows(&kernel, seed)), "the kernel itself");
    let mut found = [0; 2];
    for (kind, places) in [&fences, &calls].into_iter().enumerate() {
        for &at in places {
            let mut mutant = kernel.clone();
            mutant[at..at + 4].copy_from_slice(&NOP);
            let seed = (0..SEEDS).find(|&seed| shows(&mutant, seed));
            found[kind] += usize::from(seed.is_some());
            eprintln!("{} at {at:#x}: {seed:?}", ["fence", "call"][kind]);
        }
    }
    let counts = [fences.len(), calls.len()];
    eprintln!("found {found:?} of {counts:?}");
    assert_eq!((counts, found), FOUND, "the kernel is another one: look what is found now");
}

#[test]
fn successors_of_a_failed_task_do_not_run_and_all_others_do() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    let good = plan.task(&rig.fail, &[5]);
    let bad = plan.task(&rig.fail, &[(-5i64).cast_unsigned()]);
    let after_good = plan.task(&rig.nop, &[]);
    let after_bad = plan.task(&rig.nop, &[]);
    let after_both = plan.task(&rig.nop, &[]);
    let after_after_bad = plan.task(&rig.nop, &[]);
    for (from, to) in [
        (good, after_good),
        (bad, after_bad),
        (good, after_both),
        (bad, after_both),
        (after_bad, after_after_bad),
    ] {
        plan.edge(from, to);
    }
    for workers in [1, 3] {
        let (outcomes, progress) = run(&rig, &plan, workers, 0, 1);
        let states: Vec<_> = outcomes.iter().map(|outcome| outcome.state).collect();
        use State::{Complete, Failed, NotRun};
        assert_eq!(states, [Complete, Failed, Complete, NotRun, NotRun, NotRun]);
        assert_eq!((outcomes[0].value, outcomes[1].value), (5, -5));
        assert_eq!((progress.completed, progress.failed, progress.dispatched), (2, 1, 3));
    }
}

#[test]
fn after_a_cancellation_nothing_is_dispatched_and_the_rest_ends() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let release = rig.words(&[0]);
    let mut plan = Plan::default();
    let first = plan.task(&rig.hang, &[1, release.addr().as_u64()]);
    for _ in 0..20 {
        let task = plan.task(&rig.nop, &[]);
        if task % 2 == 0 {
            plan.edge(first, task);
        }
    }
    for depth in [1, 2] {
        rig.poke(&release, 0, 0);
        let image = plan.upload(&rig, depth);
        let (event, _cells) = start(&rig, 1, 1, 1, &image);
        until("dispatch", || image.progress(&rig).dispatched == depth);
        rig.poke(&image.buffer, 16, 1);
        rig.poke(&release, 0, 1);
        event.wait(LONG).unwrap();
        let progress = image.progress(&rig);
        assert_eq!((progress.state, progress.completed, progress.dispatched), (2, depth, depth));
        let ran = image.outcomes(&rig).iter().filter(|o| o.state == State::Complete).count();
        assert_eq!(ran as u64, depth);
    }
}

#[test]
fn a_worker_that_traps_is_named_by_the_outcomes() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    let trap = plan.task(&rig.trap, &[1]);
    let after = plan.task(&rig.nop, &[]);
    plan.edge(trap, after);
    for _ in 0..30 {
        plan.task(&rig.nop, &[]);
        plan.task(&rig.trap, &[0]);
    }
    let image = plan.upload(&rig, 1);
    let (event, _cells) = start(&rig, 1, 3, 1, &image);
    until("the others", || image.progress(&rig).completed == 60);
    assert!(!event.is_done());
    rig.device.abort(&event, LONG).unwrap();
    event.wait(LONG).unwrap_err();
    let outcomes = image.outcomes(&rig);
    assert_eq!(outcomes[0].state, State::Dispatched);
    assert_eq!(outcomes[1].state, State::NotRun);
    assert!(outcomes[2..].iter().all(|outcome| {
        outcome.state == State::Complete && outcome.worker != outcomes[0].worker
    }));
    // The next launch starts afresh.
    random_graphs(&rig, 4, 5, &[3], 1);
}

/// Has the scheduler stop, by an ordinary copy.
fn stop(rig: &Rig, image: &Image) {
    let control = image.buffer.slice(128..136).unwrap();
    rig.device.stream().copy_to_device(&[2_u64], control).unwrap().wait(LONG).unwrap();
}

#[test]
fn a_scheduler_that_is_told_to_stop_needs_no_abort_when_a_worker_has_trapped() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    plan.task(&rig.trap, &[1]);
    for _ in 0..30 {
        plan.task(&rig.nop, &[]);
    }
    let image = plan.upload(&rig, 1);
    // More workers than tasks: most of them sleep from start to end.
    let (event, _cells) = start(&rig, 1, 40, 1, &image);
    until("the others", || image.progress(&rig).completed == 30);
    stop(&rig, &image);
    event.wait(LONG).unwrap_err();
    assert_eq!(image.progress(&rig).state, 2);
    assert_eq!(image.outcomes(&rig)[0].state, State::Dispatched);
    random_graphs(&rig, 5, 5, &[3], 1);
}

#[test]
fn a_scheduler_that_is_told_to_stop_leaves_and_what_is_staged_does_not_start() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let (release, memory) = (rig.words(&[0]), rig.words(&[7; 8]));
    let mut plan = Plan::default();
    let hang = plan.task(&rig.hang, &[1, release.addr().as_u64()]);
    let base = memory.addr().as_u64();
    let behind = plan.task(&rig.rmw, &[0, base, 8, 3, base, 0]);
    let image = plan.upload(&rig, 2);
    let (event, _cells) = start(&rig, 1, 1, 1, &image);
    until("both tasks", || image.progress(&rig).dispatched == 2);
    stop(&rig, &image);
    until("the scheduler", || image.progress(&rig).state == 2);
    assert!(!event.is_done(), "the endless task has not ended");
    rig.poke(&release, 0, 1);
    event.wait(LONG).unwrap();
    let outcomes = image.outcomes(&rig);
    for task in [hang, behind] {
        assert_eq!(outcomes[task as usize].state, State::Dispatched, "its end is not waited for");
    }
    assert_eq!(rig.read(&memory), [7; 8], "it was staged");
}

#[test]
fn a_bad_image_fails_the_launch() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    plan.task(&rig.nop, &[]);
    let image = plan.upload(&rig, 0);
    start(&rig, 1, 0, 1, &image).0.wait(LONG).unwrap_err();
    rig.poke(&image.buffer, 0, 1);
    start(&rig, 1, 5, 1, &image).0.wait(LONG).unwrap_err();
}

/// Instructions for each further task, from two graphs of different sizes.
fn cost(rig: &Rig, name: &str, workers: u64, shape: impl Fn(&mut Plan, u32)) -> u64 {
    let instructions = |tasks: u32| {
        let mut plan = Plan::default();
        for _ in 0..tasks {
            let task = plan.task(&rig.nop, &[]);
            shape(&mut plan, task);
        }
        let before = rig.device.hal().as_sim().unwrap().board().counters().instructions;
        let _ = run(rig, &plan, workers, 0, 1);
        rig.device.hal().as_sim().unwrap().board().counters().instructions - before
    };
    let (few, many) = (1000, 5000);
    let cost = (instructions(many) - instructions(few)) / u64::from(many - few);
    #[expect(clippy::print_stdout, reason = "a figure to read")]
    {
        println!("{name} on {workers} workers: {cost} instructions per task");
    }
    cost
}

#[test]
fn a_task_without_work_costs_less_than_200_instructions() {
    let rig = Rig::new("shires=1,dram=1GiB,timing=deterministic");
    for workers in [1, 3, 63] {
        let chain = cost(&rig, "chain", workers, |plan, task| {
            if task > 0 {
                plan.edge(task - 1, task);
            }
        });
        let independent = cost(&rig, "independent", workers, |_, _| {});
        let wide = cost(&rig, "two predecessors each", workers, |plan, task| {
            for distance in [40, 50] {
                if task >= distance {
                    plan.edge(task - distance, task);
                }
            }
        });
        assert!(chain.max(independent).max(wide) <= 200);
    }
}

// ---- the host as scheduler ----

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
    let release = rig.words(&[0]);
    let args = rig.words(&[1, release.addr().as_u64()]);
    let mut hosted = Hosted::new(&rig, 5);
    // 1: just awake; 2: parked; 3: running; 4: running and one staged; 5: the same, but aborted.
    hosted.until_state(2, WorkerState::Parked);
    for rank in 3..=5 {
        hosted.dispatch(rank, &rig.hang, args.addr().as_u64());
    }
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
    rig.poke(&release, 0, 1);
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
