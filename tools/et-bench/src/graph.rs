//! `cargo xtask bench graph`: task graphs on host threads, on simulated cores, and beside a floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use anyhow::ensure;
use et::executor::{CpuPool, ExecutorConfig, Place, PoolConfig, RunOptions, TaskState};
use et::graph::{Graph, GraphBuilder, Resource, Task};

use crate::figure::{Figure, Group, Take, Unit, measure, median, repeat};

const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 11;
const FLOOR: &str = "a task handed to the worker used last, no graph";

/// The shapes of the peer's measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dag {
    Indep,
    Chain,
    Fan32,
}

impl Dag {
    const ALL: [Self; 3] = [Self::Indep, Self::Chain, Self::Fan32];

    fn name(self) -> &'static str {
        match self {
            Self::Indep => "indep",
            Self::Chain => "chain",
            Self::Fan32 => "fan32",
        }
    }

    /// Edges, as pairs of earlier and later task, and the number of tasks, for about `n` tasks.
    fn edges(self, n: u32) -> (u32, Vec<(u32, u32)>) {
        match self {
            Self::Indep => (n, Vec::new()),
            Self::Chain => (n, (1..n).map(|task| (task - 1, task)).collect()),
            // Source, 32 in the middle, a sink that is the next source.
            Self::Fan32 => {
                let stages = n / 33;
                let edges = (0..stages).flat_map(|stage| {
                    let source = stage * 33;
                    (1..=32).flat_map(move |k| [(source, source + k), (source + k, source + 33)])
                });
                (stages * 33 + 1, edges.collect())
            }
        }
    }
}

/// The peer's tiny kernel: counts, and checks that a task comes after those it depends on.
struct Tiny {
    count: Arc<AtomicU64>,
    violations: Arc<AtomicU64>,
}

impl Tiny {
    fn new() -> Self {
        Self { count: Arc::default(), violations: Arc::default() }
    }

    fn graph(&self, dag: Dag, n: u32) -> anyhow::Result<Graph> {
        let (tasks, edges) = dag.edges(n);
        let mut builder = GraphBuilder::with_capacity(tasks as usize, edges.len());
        let (count, violations) = (Arc::clone(&self.count), Arc::clone(&self.violations));
        let ordered = dag != Dag::Indep;
        let function = builder.function(move |task| {
            let rank = count.fetch_add(1, Ordering::Relaxed);
            // In a stage of the fan the order is free.
            let index = task.task().index() as u64;
            let wrong = match dag {
                Dag::Indep => false,
                Dag::Chain => rank != index,
                Dag::Fan32 => {
                    rank / 33 != index / 33 || index.is_multiple_of(33) != rank.is_multiple_of(33)
                }
            };
            if ordered && wrong {
                violations.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let ids: Vec<_> =
            (0..tasks).map(|_| builder.add(Task::new(function))).collect::<Result<_, _>>()?;
        for (before, after) in edges {
            builder.edge(ids[before as usize], ids[after as usize])?;
        }
        Ok(builder.build()?)
    }

    /// Runs the graph; returns microseconds per task.
    fn run(&self, pool: &CpuPool, graph: &Graph, options: RunOptions) -> anyhow::Result<f64> {
        self.count.store(0, Ordering::Relaxed);
        let start = Instant::now();
        pool.launch_with(graph, options)?.finish(LIMIT)?;
        let elapsed = start.elapsed();
        ensure!(self.count.load(Ordering::Relaxed) == graph.len() as u64, "tasks were lost");
        ensure!(self.violations.load(Ordering::Relaxed) == 0, "tasks ran out of order");
        Ok(elapsed.as_secs_f64() * 1e6 / graph.len() as f64)
    }
}

/// One line each way.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// The floor: one scheduler, `workers` threads, each task to the worker used last, the others
/// asleep. Returns microseconds per task.
fn floor(workers: usize) -> f64 {
    const TASKS: u64 = 20_000;
    let lines: Arc<Vec<(Line, Line)>> =
        Arc::new((0..workers).map(|_| Default::default()).collect());
    let (count, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let handles: Vec<_> = (0..workers)
        .map(|worker| {
            let (lines, count, over) = (Arc::clone(&lines), Arc::clone(&count), Arc::clone(&over));
            thread::spawn(move || {
                let (dispatch, status) = &lines[worker];
                let mut done = 0;
                let mut looks = 0;
                while !over.load(Ordering::Relaxed) {
                    let number = dispatch.0.load(Ordering::Acquire);
                    if number == done {
                        looks += 1;
                        if looks > 2000 && worker != 0 {
                            thread::park();
                        }
                        std::hint::spin_loop();
                        continue;
                    }
                    looks = 0;
                    count.fetch_add(1, Ordering::Relaxed);
                    done = number;
                    status.0.store(number, Ordering::Release);
                }
            })
        })
        .collect();
    let mut runs: Vec<f64> = Vec::new();
    let mut next = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..TASKS {
            next += 1;
            lines[0].0.0.store(next, Ordering::Release);
            while lines[0].1.0.load(Ordering::Acquire) != next {
                std::hint::spin_loop();
            }
        }
        runs.push(start.elapsed().as_secs_f64() * 1e6 / TASKS as f64);
    }
    over.store(true, Ordering::Relaxed);
    for handle in handles {
        handle.thread().unpark();
        drop(handle.join());
    }
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn pool(workers: u32) -> anyhow::Result<CpuPool> {
    Ok(CpuPool::with_config(&PoolConfig::new(workers))?)
}

const GROUPS: [Group; 16] = [
    ("indep_", |take| tiny_tasks(Dag::Indep, take)),
    ("chain_", |take| tiny_tasks(Dag::Chain, take)),
    ("fan32_", |take| tiny_tasks(Dag::Fan32, take)),
    ("one_task_graph", one_task),
    ("flow_", flows),
    ("graph_speedup_2w", speedup),
    ("graph_forks_us_per_task", forks),
    ("graph_contended_", contended),
    ("build_ns_per_item", build),
    ("graph_bytes_per_task", size),
    ("million_tasks", million),
    ("trace_slowdown_percent", tracing_cost),
    ("cores_", |take| on_device(Place::Cores, "cores", take)),
    ("resident_", |take| on_device(Place::Resident, "resident", take)),
    ("drop_executor_ms", drop_executor),
    ("idle_pool_percent", idle),
];

/// Hands the figures to `take`; with `only`, those of groups whose names may fit.
pub(super) fn figures(only: Option<&str>, mut take: impl FnMut(Figure)) -> anyhow::Result<()> {
    measure(&GROUPS, only, &mut take)
}

/// Empty tasks in graphs of a form, on different numbers of workers.
fn tiny_tasks(dag: Dag, take: Take<'_>) -> anyhow::Result<()> {
    let tiny = Tiny::new();
    let mut ratios: Vec<f64> = Vec::new();
    let mut worst = (0.0, None::<Figure>);
    for workers in [1, 2, 3, 24] {
        let pool = pool(workers)?;
        for n in [1, 1000, 8000] {
            if dag == Dag::Fan32 && n == 1 {
                continue;
            }
            let graph = tiny.graph(dag, n)?;
            let floor = floor(workers as usize);
            tiny.run(&pool, &graph, RunOptions::new())?;
            let runs = repeat(ROUNDS, || tiny.run(&pool, &graph, RunOptions::new()))?;
            let name = format!("{}_{n}_w{workers}_us_per_task", dag.name());
            let figure = Figure::new(name, Unit::Less("µs"), &runs, (FLOOR, floor));
            if n == 8000 {
                ratios.push(figure.ratio);
                if workers <= 3 && figure.value > worst.0 {
                    let name = format!("{}_us_per_task", dag.name());
                    worst = (
                        figure.value,
                        Some(Figure::new(name, Unit::Less("µs"), &runs, (FLOOR, floor))),
                    );
                }
            }
            take(figure);
        }
    }
    if dag == Dag::Chain {
        take(Figure::new("chain_floor_ratio", Unit::Less("× the floor"), &ratios, (FLOOR, 1.0)));
    } else if let Some(figure) = worst.1 {
        take(figure);
    }
    Ok(())
}

/// Launch to completion of one task; also with many more workers than processors.
fn one_task(take: Take<'_>) -> anyhow::Result<()> {
    let tiny = Tiny::new();
    let graph = tiny.graph(Dag::Indep, 1)?;
    for (workers, name, tail) in [
        (1, "one_task_graph_us", None),
        (16, "one_task_graph_w16_us", Some("one_task_graph_w16_p99_us")),
    ] {
        let pool = pool(workers)?;
        let runs = repeat(2000, || tiny.run(&pool, &graph, RunOptions::new()))?;
        take(Figure::new(name, Unit::Less("µs"), &runs, (FLOOR, floor(1))));
        if let Some(tail) = tail {
            let mut sorted = runs;
            sorted.sort_by(f64::total_cmp);
            let p99 = [sorted[sorted.len() * 99 / 100]];
            take(Figure::new(tail, Unit::Less("µs"), &p99, (FLOOR, floor(1))));
        }
    }
    Ok(())
}

/// Graphs of one task that are launched in a flow one by one: in a chain, without work; and in two
/// chains, whose tasks take time.
fn flows(take: Take<'_>) -> anyhow::Result<()> {
    const GRAPHS: usize = 4000;
    let one = |time: Duration| -> anyhow::Result<Graph> {
        let mut builder = GraphBuilder::new();
        let function = builder.function(move |_| {
            spin(time);
            Ok(())
        });
        builder.add(Task::new(function).updates(&Resource::new(1)))?;
        Ok(builder.build()?)
    };
    let run = |pool: &CpuPool, chains: &[Graph]| -> anyhow::Result<f64> {
        let flow = pool.flow();
        let start = Instant::now();
        for _ in 0..GRAPHS / chains.len() {
            for graph in chains {
                flow.launch(graph)?;
            }
        }
        flow.finish(LIMIT)?;
        Ok(start.elapsed().as_secs_f64() / GRAPHS as f64 * 1e6)
    };
    let (single, double) = (pool(1)?, pool(2)?);
    let empty = [one(Duration::ZERO)?];
    let runs = repeat(ROUNDS, || run(&single, &empty))?;
    take(Figure::new("flow_task_us", Unit::Less("µs"), &runs, (FLOOR, floor(1))));
    let time = Duration::from_micros(20);
    let chains = [one(time)?, one(time)?];
    let runs = repeat(ROUNDS, || Ok(run(&single, &chains)? / run(&double, &chains)?))?;
    let floor = bare(1, GRAPHS, time) / bare(2, GRAPHS, time);
    take(Figure::new("flow_speedup_2w", Unit::More("× one worker"), &runs, (BARE, floor)));
    Ok(())
}

/// What the machine gives at this moment without a scheduler, in seconds.
fn bare(threads: usize, tasks: usize, time: Duration) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..tasks / threads).for_each(|_| spin(time)));
        }
    });
    start.elapsed().as_secs_f64()
}

const BARE: &str = "two bare threads against one";

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// How much sooner two workers are done than one, with tasks that take time and do not depend on
/// one another.
fn speedup(take: Take<'_>) -> anyhow::Result<()> {
    for (name, micros, tasks) in [
        ("graph_speedup_2w", 20, 10_000),
        ("graph_speedup_2w_200us", 200, 2000),
        ("graph_speedup_2w_2us", 2, 10_000),
    ] {
        let time = Duration::from_micros(micros);
        let mut builder = GraphBuilder::with_capacity(tasks, 0);
        let function = builder.function(move |_| {
            spin(time);
            Ok(())
        });
        for _ in 0..tasks {
            builder.add(Task::new(function))?;
        }
        let graph = builder.build()?;
        let (one, two) = (pool(1)?, pool(2)?);
        let run = |pool: &CpuPool| -> anyhow::Result<f64> {
            let start = Instant::now();
            pool.launch(&graph)?.finish(LIMIT)?;
            Ok(start.elapsed().as_secs_f64())
        };
        let floor = bare(1, tasks, time) / bare(2, tasks, time);
        let runs = repeat(ROUNDS, || Ok(run(&one)? / run(&two)?))?;
        take(Figure::new(name, Unit::More("× one worker"), &runs, (BARE, floor)));
    }
    Ok(())
}

/// A graph of `tasks` tasks, each behind up to four earlier ones, by a fixed generator.
fn random_graph(tasks: u32, count: &Arc<AtomicU64>) -> anyhow::Result<(Graph, usize, Duration)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(((state >> 32) * u64::from(below)) >> 32).unwrap_or(0)
    };
    let count = Arc::clone(count);
    let start = Instant::now();
    let mut builder = GraphBuilder::with_capacity(tasks as usize, 2 * tasks as usize);
    let function = builder.function(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut ids = Vec::with_capacity(tasks as usize);
    for task in 0..tasks {
        let id = builder.add(Task::new(function))?;
        for _ in 0..random(5).min(task) {
            let window = task.min(10_000);
            builder.edge(ids[(task - 1 - random(window)) as usize], id)?;
        }
        ids.push(id);
    }
    let graph = builder.build()?;
    let edges = graph.edges();
    Ok((graph, edges, start.elapsed()))
}

/// Computes: a thread that loses its processor meanwhile takes longer.
fn compute(steps: u64) {
    let mut value = steps;
    for _ in 0..steps {
        value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}

/// Returns how many steps take so long where nothing else runs.
fn steps_in(time: Duration) -> u64 {
    const STEPS: u64 = 100_000;
    let once = || {
        let start = Instant::now();
        compute(STEPS);
        start.elapsed()
    };
    let best = (0..20).map(|_| once()).min().unwrap_or(time);
    let steps = u128::from(STEPS) * time.as_nanos() / best.as_nanos().max(1);
    u64::try_from(steps).unwrap_or(STEPS)
}

/// Tasks that compute for `time`, in stages of one and two by turns, each behind all of the one
/// before; a chain without the twos.
fn stages(tasks: usize, time: Duration, has_twos: bool) -> anyhow::Result<Stages> {
    let mut builder = GraphBuilder::with_capacity(tasks, 2 * tasks);
    let count = Arc::<AtomicU64>::default();
    let its = Arc::clone(&count);
    let steps = steps_in(time);
    let function = builder.function(move |_| {
        compute(steps);
        its.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut last = Vec::new();
    while builder.len() < tasks {
        let width = if has_twos && last.len() == 1 { 2 } else { 1 };
        let after = |task, last: &Vec<_>| last.iter().fold(task, |task: Task, it| task.after(*it));
        let stage = (0..width).map(|_| builder.add(after(Task::new(function), &last)));
        last = stage.collect::<Result<_, _>>()?;
    }
    Ok(Stages { graph: builder.build()?, count, steps })
}

/// A graph that counts its tasks.
struct Stages {
    graph: Graph,
    count: Arc<AtomicU64>,
    /// Of each task.
    steps: u64,
}

impl Stages {
    /// Does the same on one thread; returns microseconds per task.
    fn bare(&self) -> f64 {
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| (0..self.graph.len()).for_each(|_| compute(self.steps)));
        });
        self.per_task(start.elapsed())
    }

    fn per_task(&self, elapsed: Duration) -> f64 {
        elapsed.as_secs_f64() * 1e6 / self.graph.len() as f64
    }

    /// Runs it; returns microseconds per task.
    fn run(&self, pool: &CpuPool) -> anyhow::Result<f64> {
        self.count.store(0, Ordering::Relaxed);
        let start = Instant::now();
        pool.launch(&self.graph)?.finish(LIMIT)?;
        let elapsed = start.elapsed();
        ensure!(self.count.load(Ordering::Relaxed) == self.graph.len() as u64, "each task once");
        Ok(self.per_task(elapsed))
    }
}

const STAGES: usize = 600;
const STAGE: Duration = Duration::from_micros(8);

/// Short tasks of which two at a time can run together, on two workers.
fn forks(take: Take<'_>) -> anyhow::Result<()> {
    let (graph, pool) = (stages(STAGES, STAGE, true)?, pool(2)?);
    let mut bare_runs = Vec::new();
    let runs = repeat(ROUNDS, || {
        bare_runs.push(graph.bare());
        graph.run(&pool)
    })?;
    let floor = ("by one bare thread", median(&bare_runs));
    take(Figure::new("graph_forks_us_per_task", Unit::Less("µs"), &runs, floor));
    Ok(())
}

/// A chain of tasks that compute for 20 µs, and shorter ones of which two at a time can run
/// together on two workers, while other threads want all processors.
fn contended(take: Take<'_>) -> anyhow::Result<()> {
    const CHAIN: Duration = Duration::from_micros(20);
    for (name, graph, workers) in [
        ("graph_contended_us_per_task", stages(500, CHAIN, false)?, 1),
        ("graph_contended_forks_us_per_task", stages(STAGES, STAGE, true)?, 2),
    ] {
        let pool = pool(workers)?;
        let is_over = AtomicBool::new(false);
        let mut bare_runs = Vec::new();
        let runs = thread::scope(|scope| {
            let _ends = OnDrop(|| is_over.store(true, Ordering::Relaxed));
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            repeat(ROUNDS, || {
                bare_runs.push(graph.bare());
                graph.run(&pool)
            })
        })?;
        let floor = ("by one bare thread, beside the same", median(&bare_runs));
        take(Figure::new(name, Unit::Less("µs"), &runs, floor));
    }
    Ok(())
}

/// Does something at the end of a scope, however that comes.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

fn build(take: Take<'_>) -> anyhow::Result<()> {
    const TASKS: u32 = 100_000;
    let count = Arc::default();
    let runs = repeat(ROUNDS, || {
        let (_, edges, elapsed) = random_graph(TASKS, &count)?;
        Ok(elapsed.as_secs_f64() * 1e9 / (f64::from(TASKS) + edges as f64))
    })?;
    // The floor: the same numbers of words appended to vectors.
    let start = Instant::now();
    let mut words: Vec<u64> = Vec::new();
    for word in 0..u64::from(TASKS) * 3 {
        words.push(std::hint::black_box(word));
    }
    let floor = start.elapsed().as_secs_f64() * 1e9 / words.len() as f64;
    take(Figure::new(
        "build_ns_per_item",
        Unit::Less("ns"),
        &runs,
        ("a word appended to a vector", floor),
    ));
    Ok(())
}

fn size(take: Take<'_>) -> anyhow::Result<()> {
    const TASKS: u32 = 100_000;
    let (graph, edges, _) = random_graph(TASKS, &Arc::default())?;
    let bytes = (graph.resident_bytes() as f64 - 8.0 * edges as f64) / f64::from(TASKS);
    let (unit, floor) = (Unit::Less("bytes, after 8 for each edge"), ("a task's number", 4.0));
    take(Figure::new("graph_bytes_per_task", unit, &[bytes], floor));
    Ok(())
}

fn million(take: Take<'_>) -> anyhow::Result<()> {
    const TASKS: u32 = 1_000_000;
    let count: Arc<AtomicU64> = Arc::default();
    let pool = pool(2)?;
    let floor = floor(1) * f64::from(TASKS) / 1e6;
    let mut runs = Vec::new();
    let mut whole = Vec::new();
    for _ in 0..3 {
        count.store(0, Ordering::Relaxed);
        let start = Instant::now();
        let (graph, ..) = random_graph(TASKS, &count)?;
        let built = Instant::now();
        pool.launch(&graph)?.finish(LIMIT)?;
        runs.push(built.elapsed().as_secs_f64());
        whole.push(start.elapsed().as_secs_f64());
        ensure!(count.load(Ordering::Relaxed) == u64::from(TASKS), "tasks were lost");
    }
    take(Figure::new("million_tasks_s", Unit::Less("s"), &whole, (FLOOR, floor)));
    take(Figure::new("million_tasks_run_s", Unit::Less("s"), &runs, (FLOOR, floor)));
    Ok(())
}

/// What recording every task costs a chain, alternating with and without.
fn tracing_cost(take: Take<'_>) -> anyhow::Result<()> {
    let tiny = Tiny::new();
    let pool = pool(1)?;
    let graph = tiny.graph(Dag::Chain, 8000)?;
    tiny.run(&pool, &graph, RunOptions::new())?;
    let (mut plain, mut traced) = (Vec::new(), Vec::new());
    for _ in 0..4 * ROUNDS {
        plain.push(tiny.run(&pool, &graph, RunOptions::new())?);
        traced.push(tiny.run(&pool, &graph, RunOptions::new().traced())?);
    }
    let pairs: Vec<f64> =
        plain.iter().zip(&traced).map(|(plain, traced)| (traced / plain - 1.0) * 100.0).collect();
    take(Figure::new(
        "trace_slowdown_percent",
        Unit::Less("%"),
        &pairs,
        ("the same chain, not recorded", 100.0),
    ));
    Ok(())
}

/// A kernel that does nothing, as a graph on simulated harts: by the host's scheduler and by the
/// device's own.
fn on_device(place: Place, name: &str, take: Take<'_>) -> anyhow::Result<()> {
    const NOP: &[u8] = include_bytes!("../../../testing/kernels/elf/task_nop.elf");
    const TASKS: u32 = 8000;
    let device = et::open("sim:shires=1,dram=1GiB,threads=1,cpu-access=yes")?;
    let kernel = device.load_kernel("task_nop", NOP)?;
    for dag in Dag::ALL {
        let (tasks, edges) = dag.edges(TASKS);
        let mut builder = GraphBuilder::with_capacity(tasks as usize, edges.len());
        let function = builder.kernel(&kernel);
        let ids: Vec<_> =
            (0..tasks).map(|_| builder.add(Task::new(function))).collect::<Result<_, _>>()?;
        for (before, after) in edges {
            builder.edge(ids[before as usize], ids[after as usize])?;
        }
        let graph = builder.build()?;
        let config = ExecutorConfig::new().place(place).cores(3);
        let executor = device.executor(&config)?;
        let board = device.hal().as_sim().context("the device is not simulated")?.board();
        let mut instructions = Vec::new();
        let mut once = || -> anyhow::Result<f64> {
            let before = board.counters().instructions;
            let start = Instant::now();
            executor.launch(&graph)?.finish(LIMIT)?;
            let elapsed = start.elapsed();
            let after = board.counters().instructions;
            instructions.push((after - before) as f64 / f64::from(tasks));
            Ok(elapsed.as_secs_f64() * 1e6 / f64::from(tasks))
        };
        once()?;
        let runs = repeat(ROUNDS, &mut once)?;
        let floor = floor(1);
        let figure = format!("{name}_{}_us_per_task", dag.name());
        take(Figure::new(figure, Unit::Less("µs"), &runs, (FLOOR, floor)));
        if place == Place::Resident {
            // The count arrives with the end of a launch.
            let figure = format!("resident_{}_instructions", dag.name());
            let floor = ("the kernel alone", 2.0);
            take(Figure::new(
                figure,
                Unit::Less("instructions per task"),
                &instructions[1..],
                floor,
            ));
        }
    }
    device.close();
    Ok(())
}

/// Dropping an executor while a kernel runs that never ends.
fn drop_executor(take: Take<'_>) -> anyhow::Result<()> {
    const HANG: &[u8] = include_bytes!("../../../testing/kernels/elf/task_hang.elf");
    let device = et::open("sim:shires=1,dram=1GiB,threads=1")?;
    let kernel = device.load_kernel("task_hang", HANG)?;
    let release = device.alloc(64)?;
    device.default_stream().fill(&release, 0)?.wait(LIMIT)?;
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&kernel);
    let task = builder.add(Task::new(function).u64(1).in_out(&release))?;
    let graph = builder.build()?;
    let grace = Duration::from_millis(100);
    let runs = repeat(5, || {
        let config = ExecutorConfig::new().place(Place::Streams).close_grace(grace);
        let executor = device.executor(&config)?;
        let run = executor.launch(&graph)?;
        while run.state(task) < TaskState::Running {
            thread::yield_now();
        }
        let start = Instant::now();
        drop(executor);
        Ok(start.elapsed().as_secs_f64() * 1e3)
    })?;
    let floor = ("the time the kernel has to end by itself", grace.as_secs_f64() * 1e3);
    take(Figure::new("drop_executor_ms", Unit::Less("ms"), &runs, floor));
    device.close();
    Ok(())
}

/// Host time of a pool that has worked and has nothing to do.
fn idle(take: Take<'_>) -> anyhow::Result<()> {
    let tiny = Tiny::new();
    let pool = pool(24)?;
    tiny.run(&pool, &tiny.graph(Dag::Fan32, 8000)?, RunOptions::new())?;
    let figure = crate::host::idle_now("idle_pool_percent")?;
    drop(pool);
    take(figure);
    Ok(())
}
