//! `graph.elf`: graphs of tasks on resident harts, with a hart for a scheduler (mode 1) or with the
//! host for one (mode 0).
//!
//! Sequence numbers are not driven to their wrap-around here, which would take 2³² tasks; the
//! models of the handshake do that.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "../common/mod.rs"]
mod common;
mod hosted;
mod resident;

use std::time::Instant;

use common::{LONG, elf, load, open};
use et::AnyWindow;
use et::hal::{Bar, BarOffset, Hal, Mmio, Width};
use et::{AnyHal, Device, DeviceBuffer, Event, Kernel, Launch};

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
    /// Counts itself when it begins, and goes on when so many are there.
    race: Kernel,
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
            race: task("task_race"),
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
