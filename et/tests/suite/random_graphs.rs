//! Random programs of tasks against the same programs run one task after the other.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use et::executor::{
    CpuPool, DeviceExecutor, ExecutorConfig, Flow, Outcome, Place, RunError, TaskFailure, TaskState,
};
use et::graph::{
    Comparison, CoreSet, FunctionId, Graph, GraphBuilder, GraphError, HostData, Resource, Task,
    TaskError, TaskId, Word,
};

/// Programs on host threads, shared by the numbers of workers; as many on the device, shared by its
/// places.
const PROGRAMS: u64 = 10_000;
/// A pool is replaced after so many, so that starts and ends are among what is tested.
const PROGRAMS_PER_POOL: u64 = 500;
const MOST_TASKS: u64 = 40;
const MOST_WORDS: u64 = 64;

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn range(&mut self, words: u64, most: u64) -> Range<u64> {
        let len = self.below(most.min(words) + 1);
        let start = self.below(words - len + 1);
        start..start + len
    }
}

/// One task: changes the words of one range depending on those of another, as `task_rmw` of the
/// test kernels does.
#[derive(Clone, Debug)]
struct Step {
    read: Range<u64>,
    write: Range<u64>,
    key: u64,
    /// Fails, and leaves everything as it was.
    fails: bool,
    condition: Option<Condition>,
}

impl Step {
    fn conflicts(&self, later: &Self) -> bool {
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start) < a.end.min(b.end);
        let looked_at = |step: &Self| step.condition.as_ref().map_or(0..0, |c| c.word..c.word + 1);
        overlap(&self.write, &later.read)
            || overlap(&self.write, &later.write)
            || overlap(&self.read, &later.write)
            || overlap(&self.write, &looked_at(later))
            || overlap(&looked_at(self), &later.write)
    }

    fn is_to_run(&self, words: &[u64]) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.holds(words))
    }
}

/// A task runs only if this word of the array compares so with a value.
#[derive(Clone, Debug)]
struct Condition {
    word: u64,
    ty: &'static str,
    comparison: Comparison,
    value: u64,
}

impl Condition {
    fn random(words: u64, random: &mut Random) -> Self {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let word = random.below(words);
        let any = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        let pick = |random: &mut Random, of: u64| usize::try_from(random.below(of)).unwrap();
        // What the word is at the start is among the values.
        let value = if random.one_in(2) { Random(word).next() } else { random.next() };
        let ty = ["u32", "i32", "u64", "i64"][pick(random, 4)];
        Self { word, ty, comparison: any[pick(random, 6)], value }
    }

    /// Where it is in its word of 64 bits.
    fn offset(&self) -> u64 {
        if self.ty.ends_with("32") { self.value % 2 * 4 } else { 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is compared")]
    fn holds(&self, words: &[u64]) -> bool {
        let value = self.value;
        let word = words[usize::try_from(self.word).unwrap()] >> (8 * self.offset());
        let order = match self.ty {
            "u32" => (word as u32).cmp(&(value as u32)),
            "i32" => (word as u32).cast_signed().cmp(&(value as u32).cast_signed()),
            "u64" => word.cmp(&value),
            _ => word.cast_signed().cmp(&value.cast_signed()),
        };
        match self.comparison {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is compared")]
    fn add_to(&self, task: Task, memory: &Memory<'_>) -> Task {
        let Self { comparison, value, .. } = *self;
        match self.ty {
            "u32" => task.only_if(&memory.word(self).unwrap(), comparison, value as u32),
            "i32" => {
                let value = (value as u32).cast_signed();
                task.only_if(&memory.word(self).unwrap(), comparison, value)
            }
            "u64" => task.only_if(&memory.word(self).unwrap(), comparison, value),
            _ => task.only_if(&memory.word(self).unwrap(), comparison, value.cast_signed()),
        }
    }
}

/// Where the words of a program are that its conditions look at.
enum Memory<'a> {
    Host(&'a [HostData]),
    Device(&'a et::DeviceBuffer),
}

impl Memory<'_> {
    fn word<T: et::graph::WordType>(&self, of: &Condition) -> Result<Word<T>, GraphError> {
        let offset = of.offset();
        match self {
            Self::Host(words) => {
                let word = usize::try_from(of.word).unwrap();
                Word::on_host(&words[word], usize::try_from(offset).unwrap())
            }
            Self::Device(array) => Word::on_device(*array, 8 * of.word + offset),
        }
    }
}

/// Tasks over one array, in program order.
struct Program {
    words: u64,
    tasks: Vec<Step>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.words)?;
        for (index, Step { read, write, key, fails, condition }) in self.tasks.iter().enumerate() {
            let fails = if *fails { ", fails" } else { "" };
            write!(f, "\n  {index}: {read:?} -> {write:?}, key {key:#x}{fails}, {condition:?}")?;
        }
        Ok(())
    }
}

impl Program {
    fn random(words: u64, random: &mut Random) -> Self {
        // From programs that are nearly a chain to such whose tasks hardly touch.
        let most = 1 + random.below(words.min(16));
        let failing = if random.one_in(4) { 8 } else { u64::MAX };
        let conditional = if random.one_in(2) { 3 } else { u64::MAX };
        let tasks = (0..random.below(MOST_TASKS + 1))
            .map(|_| Step {
                read: random.range(words, most),
                write: random.range(words, most),
                key: random.next(),
                fails: random.one_in(failing),
                condition: random.one_in(conditional).then(|| Condition::random(words, random)),
            })
            .collect();
        Self { words, tasks }
    }

    /// What the words are before it runs.
    fn start(&self) -> Vec<u64> {
        (0..self.words).map(|word| Random(word).next()).collect()
    }

    /// Runs those tasks in program order that are complete in the end, and checks that others have
    /// the conditions that they must have had.
    fn replay(&self, words: &mut [u64], ends: &[TaskState]) {
        for (index, (step, end)) in self.tasks.iter().zip(ends).enumerate() {
            let expected = match end {
                TaskState::Complete | TaskState::Failed => true,
                TaskState::Skipped => false,
                _ => continue,
            };
            assert_eq!(step.is_to_run(words), expected, "task {index} is {end}");
            if *end == TaskState::Complete {
                step.run(words);
            }
        }
    }

    /// The program in some parts that follow one another.
    fn pieces(&self, random: &mut Random) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut tasks = &self.tasks[..];
        while !tasks.is_empty() {
            let most = if random.one_in(2) { 2 } else { MOST_TASKS };
            let len = usize::try_from(1 + random.below(most)).unwrap().min(tasks.len());
            let (piece, rest) = tasks.split_at(len);
            pieces.push(Self { words: self.words, tasks: piece.to_vec() });
            tasks = rest;
        }
        pieces
    }

    /// Returns `true` if a task is behind one that is not complete.
    fn is_lost(&self, task: usize, ends: &[TaskState]) -> bool {
        let before = self.tasks[..task].iter().zip(ends);
        before
            .filter(|(_, end)| !end.is_success())
            .any(|(before, _)| before.conflicts(&self.tasks[task]))
    }

    /// Runs the tasks one after the other, and says what becomes of each.
    fn run(&self, words: &mut [u64]) -> Vec<TaskState> {
        let mut ends = Vec::new();
        for (task, step) in self.tasks.iter().enumerate() {
            ends.push(match () {
                () if self.is_lost(task, &ends) => TaskState::DependencyFailed,
                () if !step.is_to_run(words) => TaskState::Skipped,
                () if step.fails => TaskState::Failed,
                () => {
                    step.run(words);
                    TaskState::Complete
                }
            });
        }
        ends
    }

    /// What becomes of the tasks of the first run, and of the words.
    fn first_run(&self) -> (Vec<TaskState>, Vec<u64>) {
        let mut words = self.start();
        (self.run(&mut words), words)
    }

    /// Checks what does not depend on what was cancelled when: nothing has run behind something
    /// that has not.
    fn check_ends(&self, ends: &[TaskState]) {
        for (task, step) in self.tasks.iter().enumerate() {
            let is_right = match ends[task] {
                TaskState::Complete => !self.is_lost(task, ends) && !step.fails,
                TaskState::Failed => !self.is_lost(task, ends) && step.fails,
                TaskState::DependencyFailed => self.is_lost(task, ends),
                TaskState::Skipped => !self.is_lost(task, ends) && step.condition.is_some(),
                end => end == TaskState::Cancelled,
            };
            assert!(is_right, "task {task} is {:?}", ends[task]);
        }
    }
}

impl Step {
    fn run(&self, words: &mut [u64]) {
        let at = |word: u64| usize::try_from(word).unwrap();
        let hash = self.read.clone().fold(HASH_START, |hash, word| mix(hash, words[at(word)]));
        for word in self.write.clone() {
            words[at(word)] = changed(words[at(word)], hash, self.key, word);
        }
    }
}

// The function of testing/kernels/src/task_rmw.c.
const HASH_START: u64 = 0x243f_6a88_85a3_08d3;

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn changed(word: u64, hash: u64, key: u64, index: u64) -> u64 {
    word.rotate_left(13) ^ hash.wrapping_add(key).wrapping_add(index)
}

/// An array that tasks share. Relaxed: only the order of the tasks makes the result what it is.
struct Shared {
    words: Arc<[AtomicU64]>,
    resource: Resource,
    /// Each word once more, for conditions.
    copies: Arc<[HostData]>,
}

impl Shared {
    fn new(program: &Program) -> Self {
        let words = program.start().into_iter().map(AtomicU64::new).collect();
        let copy = |word: u64| HostData::new(word.to_le_bytes().to_vec());
        let copies = program.start().into_iter().map(copy).collect();
        Self { words, resource: Resource::new(program.words), copies }
    }

    fn words(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

/// Makes a program a graph of host functions; some tasks may run on one of `workers` only.
fn build(program: &Program, shared: &Shared, workers: u64, random: &mut Random) -> Graph {
    let mut builder = GraphBuilder::new();
    let (words, copies) = (Arc::clone(&shared.words), Arc::clone(&shared.copies));
    let change = builder.function(move |task| {
        let &[first, count, key, read_first, read_count] = task.args() else {
            return Err(TaskError::from("five words"));
        };
        let at = |word: u64| &words[usize::try_from(word).unwrap()];
        let hash = (read_first..read_first + read_count)
            .fold(HASH_START, |hash, word| mix(hash, at(word).load(Ordering::Relaxed)));
        if key % 4 == 0 {
            // A wide window for those who come too early.
            std::thread::yield_now();
        }
        for word in first..first + count {
            let old = at(word).load(Ordering::Relaxed);
            let new = changed(old, hash, key, word);
            at(word).store(new, Ordering::Relaxed);
            let copy = &copies[usize::try_from(word).unwrap()];
            copy.with_mut(|bytes| bytes.copy_from_slice(&new.to_le_bytes()));
        }
        Ok(())
    });
    let fail = builder.function(|_| Err(TaskError::from("no luck")));
    for step in &program.tasks {
        let Step { read, write, key, fails, condition } = step;
        let mut task = Task::new(if *fails { fail } else { change });
        for word in [write.start, write.end - write.start, *key] {
            task = task.u64(word);
        }
        task = task.u64(read.start).u64(read.end - read.start);
        // For the order it is the same whether a write looks at what was there, and whether a range
        // is declared in parts.
        let written = shared.resource.range(write.clone());
        task = if random.one_in(3) { task.writes(written) } else { task.updates(written) };
        let middle = read.start + random.below(read.end - read.start + 1);
        task = task.reads(shared.resource.range(read.start..middle));
        task = task.reads(shared.resource.range(middle..read.end));
        for word in write.clone() {
            task = task.writes(&shared.copies[usize::try_from(word).unwrap()]);
        }
        if let Some(condition) = condition {
            task = condition.add_to(task, &Memory::Host(&shared.copies));
        }
        if random.one_in(16) {
            let worker = u32::try_from(random.below(workers)).unwrap();
            task = task.cores(CoreSet::of([worker]));
        }
        builder.add(task).unwrap();
    }
    builder.build().unwrap()
}

/// What became of each task.
fn ends(outcome: &Outcome) -> Vec<TaskState> {
    let tasks = u32::try_from(outcome.graph().len()).unwrap();
    (0..tasks).map(|task| outcome.state(TaskId::from_index(task))).collect()
}

/// Launches all, so that those overlap which may; returns what became of the tasks of each.
fn run_on_cpu(pool: &CpuPool, graphs: &[&Graph]) -> Vec<Vec<TaskState>> {
    let runs: Vec<_> = graphs.iter().map(|graph| pool.launch(graph).unwrap()).collect();
    let outcomes = runs.iter().map(|run| run.wait(crate::common::LONG).unwrap());
    outcomes
        .map(|outcome| {
            let ends = ends(&outcome);
            let failed = ends.contains(&TaskState::Failed);
            assert_eq!(matches!(outcome.check(), Err(RunError::TaskFailed { .. })), failed);
            assert_eq!(outcome.is_success(), !failed);
            for (task, end) in ends.iter().enumerate() {
                let task = TaskId::from_index(u32::try_from(task).unwrap());
                let root = outcome.root_cause(task).map(|root| outcome.state(root));
                let expected = *end == TaskState::DependencyFailed;
                assert_eq!(root, expected.then_some(TaskState::Failed), "why {task} did not run");
            }
            ends
        })
        .collect()
}

/// What became of each task, as if those of earlier graphs were of the same.
fn ends_in_flow(outcome: &Outcome) -> Vec<TaskState> {
    let mut ends = ends(outcome);
    for (task, why) in outcome.failures() {
        if let TaskFailure::Earlier { state, .. } = why {
            assert!(state.is_final() && !state.is_success(), "{why}");
            ends[task.index()] = TaskState::DependencyFailed;
        }
    }
    ends
}

/// A program in pieces is that program.
fn check_flow(flow: &Flow, program: &Program, shared: &Shared, workers: u64, random: &mut Random) {
    let launch = |piece| flow.launch(&build(&piece, shared, workers, random)).unwrap();
    let pieces = program.pieces(&mut Random(program.words));
    let runs: Vec<_> = pieces.into_iter().map(launch).collect();
    let (expected, words) = program.first_run();
    let failed = flow.finish(crate::common::LONG).is_err();
    assert_eq!(failed, expected.contains(&TaskState::Failed));
    assert_eq!(shared.words(), words, "in pieces");
    let ends = runs.iter().flat_map(|run| ends_in_flow(&run.outcome().unwrap()));
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

/// One program alone, several times, beside another one or behind another one, or in pieces.
fn check_uncancelled(pool: &CpuPool, programs: &[Program; 2], workers: u64, random: &mut Random) {
    let [first, second] = programs;
    let kind = random.below(8);
    let shared = Shared::new(first);
    let graph = build(first, &shared, workers, random);
    match kind {
        0 => {
            let times = 2 + random.below(3);
            let mut words = first.start();
            for ends in run_on_cpu(pool, &vec![&graph; usize::try_from(times).unwrap()]) {
                assert_eq!(ends, first.run(&mut words));
            }
            assert_eq!(shared.words(), words, "{times} times");
        }
        1 => {
            let beside = Shared::new(second);
            let other = build(second, &beside, workers, random);
            let ends = run_on_cpu(pool, &[&graph, &other]);
            for (ends, program, shared) in [(&ends[0], first, &shared), (&ends[1], second, &beside)]
            {
                let found = (ends.clone(), shared.words());
                assert_eq!(found, program.first_run(), "beside another one");
            }
        }
        2 => {
            let other = build(second, &shared, workers, random);
            let ends = run_on_cpu(pool, &[&graph, &other]);
            let mut words = first.start();
            assert_eq!(ends, [first.run(&mut words), second.run(&mut words)]);
            assert_eq!(shared.words(), words, "the second behind the first");
        }
        3 | 4 => check_flow(&pool.flow(), first, &shared, workers, random),
        _ => {
            let (ends, words) = first.first_run();
            assert_eq!(run_on_cpu(pool, &[&graph]), [ends]);
            assert_eq!(shared.words(), words);
        }
    }
}

/// A program some of whose tasks are cancelled at any time, and one behind it.
fn check_cancelled(pool: &CpuPool, programs: &[Program; 2], workers: u64, random: &mut Random) {
    let shared = Shared::new(&programs[0]);
    let runs = programs.each_ref().map(|program| {
        let graph = build(program, &shared, workers, random);
        pool.launch(&graph).unwrap()
    });
    for _ in 0..random.below(300) {
        std::hint::spin_loop();
    }
    if random.one_in(2) {
        runs[0].cancel();
    } else {
        // One that is not there is ignored.
        let task = u32::try_from(random.below(MOST_TASKS)).unwrap();
        runs[0].cancel_task(TaskId::from_index(task));
    }
    let mut words = programs[0].start();
    for (run, program) in runs.iter().zip(programs) {
        let ends = ends(&run.wait(crate::common::LONG).unwrap());
        program.check_ends(&ends);
        program.replay(&mut words, &ends);
    }
    assert_eq!(shared.words(), words, "what ran, in program order");
}

/// Shows what was tried when it failed.
struct Shown<'a>(u64, &'a [Program; 2]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, [first, second]) = self;
            eprintln!("seed {seed}\nfirst {first:?}\nsecond {second:?}");
        }
    }
}

fn on_cpu(workers: u64) {
    let new_pool = || CpuPool::new(u32::try_from(workers).unwrap()).unwrap();
    let mut pool = new_pool();
    for number in 0..PROGRAMS / 4 {
        if number % PROGRAMS_PER_POOL == 0 {
            pool = new_pool();
        }
        let seed = number * 4 + workers;
        let mut random = Random(seed);
        let words = 1 + random.below(MOST_WORDS);
        let programs = [(); 2].map(|()| Program::random(words, &mut random));
        let _shown = Shown(seed, &programs);
        if random.one_in(8) {
            check_cancelled(&pool, &programs, workers, &mut random);
        } else {
            check_uncancelled(&pool, &programs, workers, &mut random);
        }
    }
}

#[test]
fn random_programs_on_one_worker() {
    on_cpu(1);
}

#[test]
fn random_programs_on_two_workers() {
    on_cpu(2);
}

#[test]
fn random_programs_on_three_workers() {
    on_cpu(3);
}

#[test]
fn random_programs_on_four_workers() {
    on_cpu(4);
}

/// A device with the two kernels that programs are made of.
struct Board {
    device: et::Device<et::AnyHal>,
    executor: DeviceExecutor<et::AnyHal>,
    change: et::Kernel,
    fail: et::Kernel,
}

impl Board {
    fn new(place: Place) -> Self {
        // Elsewhere the words of conditions are copied.
        let access = if place == Place::Cores { ",cpu-access=yes" } else { "" };
        let device = crate::common::open(&format!("shires=1,dram=1GiB{access}"));
        let config = ExecutorConfig::new().place(place).cores(6);
        let executor = device.executor(&config).unwrap();
        let (change, fail) =
            (crate::common::load(&device, "task_rmw"), crate::common::load(&device, "task_fail"));
        Self { device, executor, change, fail }
    }

    /// Makes a program a graph of kernels on the words of `array`.
    fn build(&self, program: &Program, array: &et::DeviceBuffer) -> Graph {
        let mut builder = GraphBuilder::new();
        let functions: [FunctionId; 2] = [builder.kernel(&self.change), builder.kernel(&self.fail)];
        for Step { read, write, key, fails, condition } in &program.tasks {
            let slice = |range: &Range<u64>| array.slice(range.start * 8..range.end * 8).unwrap();
            let task = Task::new(functions[usize::from(*fails)]);
            let task = match condition {
                Some(condition) => condition.add_to(task, &Memory::Device(array)),
                None => task,
            };
            let task = if *fails {
                task.i64(-1)
            } else {
                task.u64(array.addr().as_u64())
                    .u64(write.start)
                    .u64(write.end - write.start)
                    .u64(*key)
                    .u64(read.start)
                    .u64(read.end - read.start)
            };
            builder.add(task.reads(slice(read)).updates(slice(write))).unwrap();
        }
        builder.build().unwrap()
    }

    fn check(&self, program: &Program, flow: Option<&Flow>, random: &mut Random) {
        let array = self.device.alloc(program.words * 8).unwrap();
        let stream = self.device.default_stream();
        stream.copy_to_device(&program.start(), &array).unwrap().wait(crate::common::LONG).unwrap();
        let ends = match flow {
            Some(flow) => {
                let launch = |piece| flow.launch(&self.build(&piece, &array)).unwrap();
                let runs: Vec<_> = program.pieces(random).into_iter().map(launch).collect();
                drop(flow.finish(crate::common::LONG));
                runs.iter().flat_map(|run| ends_in_flow(&run.outcome().unwrap())).collect()
            }
            None => {
                let run = self.executor.launch(&self.build(program, &array)).unwrap();
                ends(&run.wait(crate::common::LONG).unwrap())
            }
        };
        let (expected, after) = program.first_run();
        assert_eq!(ends, expected);
        let mut words = program.start();
        stream.read(&array, &mut words, crate::common::LONG).unwrap();
        assert_eq!(words, after);
    }
}

/// On streams all harts share the work of a task, so it must not write what it reads.
fn on_device(place: Place) {
    const PLACES: [Place; 3] = [Place::Cores, Place::Resident, Place::Streams];
    let board = Board::new(place);
    let flow = board.executor.flow();
    for number in (0..PROGRAMS).filter(|number| PLACES[(number % 3) as usize] == place) {
        let mut random = Random(number ^ 0xd0_0d1e);
        let words = 1 + random.below(MOST_WORDS);
        let mut program = Program::random(words, &mut random);
        program.tasks.truncate(20);
        if place == Place::Streams {
            for Step { read, write, .. } in &mut program.tasks {
                if read.start < write.end && write.start < read.end {
                    *read = 0..0;
                }
            }
        }
        let in_pieces = random.one_in(4);
        if in_pieces && place == Place::Resident {
            // A graph that depends on a failed task does not run there, not even in part.
            program.tasks.iter_mut().for_each(|step| step.fails = false);
        }
        let _shown = ShownOne(number, &program);
        board.check(&program, in_pieces.then_some(&flow), &mut random);
    }
}

/// As [`Shown`], for one program.
struct ShownOne<'a>(u64, &'a Program);

impl Drop for ShownOne<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: {:?}", self.0, self.1);
        }
    }
}

#[test]
fn random_programs_on_cores() {
    on_device(Place::Cores);
}

#[test]
fn random_programs_on_a_resident_scheduler() {
    on_device(Place::Resident);
}

#[test]
fn random_programs_on_streams() {
    on_device(Place::Streams);
}
