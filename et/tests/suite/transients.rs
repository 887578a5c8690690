//! Buffers that graphs have for themselves, in every place: what tasks leave in them is there for
//! those behind, although the memory is others' before and after.

#![expect(clippy::unwrap_used, reason = "tests")]

use crate::common::LONG;
use et::executor::{ExecutorConfig, Place};
use et::graph::{FunctionId, GraphBuilder, Task, TransientBuffer};

const BUFFERS: usize = 10;
const STEPS: u64 = 40;
/// Floats of a cache line.
const LINE: u64 = 16;

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }
}

/// A transient buffer, and what should be in it as far as it is written.
struct Known {
    buffer: TransientBuffer,
    floats: u64,
    values: Vec<f32>,
}

/// A program over transient buffers that puts some of what they had into lines of `results`.
struct Rig {
    device: et::Device<et::AnyHal>,
    add: et::Kernel,
    add_scalar: et::Kernel,
    zeros: et::DeviceBuffer,
    results: et::DeviceBuffer,
}

impl Rig {
    fn new(parameters: &str) -> Self {
        let device = crate::common::open(parameters);
        let (add, add_scalar) =
            (crate::common::load(&device, "add"), crate::common::load(&device, "add_scalar"));
        let zeros = device.alloc(4 * 8 * LINE).unwrap();
        let results = device.alloc(STEPS * 4 * 8 * LINE).unwrap();
        device.default_stream().fill(&zeros, 0).unwrap().wait(LONG).unwrap();
        Self { device, add, add_scalar, zeros, results }
    }

    /// Builds a random program; returns what should be in the results.
    fn program(&self, seed: u64) -> (GraphBuilder, Vec<f32>) {
        let mut random = Random(seed);
        let mut builder = GraphBuilder::new();
        let functions = [builder.kernel(&self.add), builder.kernel(&self.add_scalar)];
        let mut all: Vec<Known> = (0..BUFFERS)
            .map(|_| {
                let floats = LINE * (1 + random.below(8));
                let buffer = builder.transient(&self.device, 4 * floats, 64).unwrap();
                Known { buffer, floats, values: Vec::new() }
            })
            .collect();
        let mut results = vec![-1.0; usize::try_from(STEPS * 8 * LINE).unwrap()];
        for step in 0..STEPS {
            let [x, y, z] = [(); 3].map(|()| random.index(BUFFERS));
            let task = match random.below(4) {
                0 => self.make(&mut all[z], functions[1], &mut random),
                1 => self.show(&all[x], functions[0], step, &mut results),
                _ if x != z && y != z => self.sum(&mut all, [x, y, z], functions[0]),
                _ => None,
            };
            if let Some(task) = task {
                let id = builder.add(task).unwrap();
                let before = u32::try_from(random.below(id.index() as u64 + 1)).unwrap();
                let before = et::graph::TaskId::from_index(before);
                if before != id && random.below(4) == 0 {
                    builder.edge_and_retain(before, id).unwrap();
                }
            }
        }
        (builder, results)
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn make(&self, to: &mut Known, function: FunctionId, random: &mut Random) -> Option<Task> {
        let value = (1 + random.below(9)) as f32;
        to.values = vec![value; usize::try_from(to.floats).unwrap()];
        let task = Task::new(function).input(self.zeros.slice(..4 * to.floats).unwrap());
        Some(task.output(&to.buffer).f32(value).u64(to.floats))
    }

    fn sum(&self, all: &mut [Known], [x, y, z]: [usize; 3], add: FunctionId) -> Option<Task> {
        let room = usize::try_from(all[z].floats).unwrap();
        let count = all[x].values.len().min(all[y].values.len()).min(room);
        let is_small = |value: &f32| *value < 1e6;
        if count == 0 || !all[x].values.iter().chain(&all[y].values).all(is_small) {
            return None;
        }
        let sum = |n: usize| all[x].values[n] + all[y].values[n];
        let sums: Vec<f32> = (0..count).map(sum).collect();
        let part = |at: usize| all[at].buffer.slice(..4 * count as u64).unwrap();
        let task = Task::new(add).input(part(x)).input(part(y)).output(part(z));
        let to = &mut all[z].values;
        to.resize(to.len().max(count), 0.0);
        to[..count].copy_from_slice(&sums);
        Some(task.u64(count as u64))
    }

    fn show(&self, of: &Known, add: FunctionId, step: u64, results: &mut [f32]) -> Option<Task> {
        let count = of.values.len();
        if count == 0 {
            return None;
        }
        let at = step * 8 * LINE;
        let first = usize::try_from(at).unwrap();
        results[first..first + count].copy_from_slice(&of.values);
        let bytes = 4 * count as u64;
        let task = Task::new(add).input(of.buffer.slice(..bytes).unwrap());
        let task = task.input(self.zeros.slice(..bytes).unwrap());
        let to = self.results.slice(4 * at..4 * at + bytes).unwrap();
        Some(task.output(to).u64(count as u64))
    }
}

fn random_programs(parameters: &str, place: Place, programs: u64) {
    let rig = Rig::new(parameters);
    let config = ExecutorConfig::new().place(place).cores(6);
    let executor = rig.device.executor(&config).unwrap();
    let stream = rig.device.default_stream();
    let (mut asked, mut peak) = (0, 0);
    for seed in 0..programs {
        let (builder, expected) = rig.program(seed);
        let graph = builder.build().unwrap();
        asked += graph.transient_memory().asked_bytes;
        peak += graph.transient_memory().peak_bytes;
        let nothing = vec![-1.0_f32; expected.len()];
        stream.copy_to_device(&nothing, &rig.results).unwrap().wait(LONG).unwrap();
        for _ in 0..2 {
            executor.launch(&graph).unwrap().finish(LONG).unwrap();
        }
        let mut found = nothing;
        stream.read(&rig.results, &mut found, LONG).unwrap();
        assert!(found == expected, "{place}, seed {seed}: {graph}");
    }
    assert!(peak < asked, "some memory is shared: {peak} of {asked}");
}

#[test]
fn transient_buffers_keep_what_they_have_on_cores() {
    random_programs("shires=1,dram=1GiB,cpu-access=yes", Place::Cores, 300);
}

#[test]
fn transient_buffers_keep_what_they_have_on_a_resident_scheduler() {
    random_programs("shires=1,dram=1GiB", Place::Resident, 300);
    for seed in 0..5 {
        let weak = format!("memory=weak,seed={seed},shires=1,dram=1GiB");
        random_programs(&weak, Place::Resident, 20);
    }
}

#[test]
fn transient_buffers_keep_what_they_have_on_streams() {
    random_programs("shires=1,dram=1GiB", Place::Streams, 100);
}
