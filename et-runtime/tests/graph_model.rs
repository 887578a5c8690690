//! Task graphs: what their builder refuses, and what it derives, against slow and simple models.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests are tests too")]

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use et_hal_sim::{BoardConfig, SimHal};
use et_runtime::graph::{
    Access, CoreSet, FunctionId, Graph, GraphBuilder, GraphError, HostData, Patch, Region,
    Resource, Task, TaskId,
};
use et_runtime::{Device, Kernel, KernelArgs};
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::{collection, prop_assert, prop_assert_eq};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(120);

fn device() -> Device<SimHal> {
    let config = "dram=256MiB,compute=null".parse::<BoardConfig>().unwrap();
    Device::open(SimHal::open(config).unwrap()).unwrap()
}

fn kernel(device: &Device<SimHal>) -> Kernel {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf/add.elf");
    device.load_kernel("add", &std::fs::read(file).unwrap()).unwrap()
}

fn builder() -> (GraphBuilder, FunctionId) {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    (builder, function)
}

fn id(index: usize) -> TaskId {
    TaskId::from_index(index.try_into().unwrap())
}

fn ids(indices: impl IntoIterator<Item = usize>) -> Vec<TaskId> {
    indices.into_iter().map(id).collect()
}

fn json(graph: &Graph) -> Value {
    serde_json::from_str(&graph.to_json()).unwrap()
}

/// Returns all edges with their reasons, as the JSON export has them.
fn edges(graph: &Graph) -> Vec<(usize, usize, String)> {
    let document = json(graph);
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let edges = document["edges"].as_array().unwrap().iter().map(|edge| {
        let reasons = edge["reasons"].as_array().unwrap().iter();
        let reasons: Vec<_> = reasons.map(|reason| reason.as_str().unwrap()).collect();
        (number(&edge["from"]), number(&edge["to"]), reasons.join(" "))
    });
    edges.collect()
}

type Use = (Access, Range<u64>);

/// Builds one task for each list of accesses to one resource of 100 units.
fn program(tasks: &[&[Use]]) -> Graph {
    let (mut builder, function) = builder();
    let resource = Resource::new(100);
    for accesses in tasks {
        builder.add(declare(Task::new(function), &resource, accesses.iter().cloned())).unwrap();
    }
    builder.build().unwrap()
}

fn declare(task: Task, resource: &Resource, accesses: impl IntoIterator<Item = Use>) -> Task {
    accesses.into_iter().fold(task, |task, (access, range)| match access {
        Access::Read => task.reads(resource.range(range)),
        Access::Write => task.writes(resource.range(range)),
        Access::Update => task.updates(resource.range(range)),
    })
}

#[test]
fn the_three_hazards_become_edges() {
    use Access::{Read, Update, Write};
    type Case<'a> = (&'a [&'a [Use]], &'a [(usize, usize, &'a str)]);
    let cases: [Case<'_>; 11] = [
        (&[&[(Write, 0..10)], &[(Read, 0..10)]], &[(0, 1, "raw")]),
        (&[&[(Write, 0..10)], &[(Write, 0..10)]], &[(0, 1, "waw")]),
        (&[&[(Read, 0..10)], &[(Write, 0..10)]], &[(0, 1, "war")]),
        (&[&[(Read, 0..10)], &[(Read, 0..10)]], &[]),
        (&[&[(Write, 0..10)], &[(Update, 0..10)]], &[(0, 1, "raw waw")]),
        (&[&[(Update, 0..10)], &[(Read, 9..20)]], &[(0, 1, "raw")]),
        (&[&[(Write, 5..10)], &[(Write, 0..6)]], &[(0, 1, "waw")]),
        (&[&[(Read, 0..100)], &[(Write, 50..51)]], &[(0, 1, "war")]),
        (&[&[(Write, 0..10)], &[(Read, 10..20)], &[(Write, 4..4)]], &[]),
        // Two writers of parts, one reader of the whole, then a writer of a part.
        (
            &[&[(Write, 0..10)], &[(Write, 10..20)], &[(Read, 5..15)], &[(Write, 12..13)]],
            &[(0, 2, "raw"), (1, 2, "raw"), (2, 3, "war")],
        ),
        // Reading and writing the same range in one task is an update, in whatever order it is
        // said.
        (
            &[&[(Write, 0..10)], &[(Write, 0..10), (Read, 0..10)], &[(Read, 3..5)]],
            &[(0, 1, "raw waw"), (1, 2, "raw")],
        ),
    ];
    for (tasks, expected) in cases {
        let found = edges(&program(tasks));
        let expected: Vec<_> = expected.iter().map(|&(a, b, why)| (a, b, why.to_owned())).collect();
        assert_eq!(found, expected, "{tasks:?}");
    }
}

#[test]
fn an_edge_keeps_all_its_reasons() {
    let (mut builder, function) = builder();
    let resource = Resource::new(10);
    let first =
        builder.add(Task::new(function).writes(resource.range(0..5)).reads(resource.range(5..10)));
    let first = first.unwrap();
    let second = builder.add(Task::new(function).after(first).updates(&resource)).unwrap();
    builder.edge(first, second).unwrap();
    builder.edge(first, second).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(edges(&graph), [(0, 1, "raw waw war explicit".to_owned())]);
    assert_eq!(graph.edges(), 1);
}

#[test]
fn other_spaces_and_other_resources_are_independent() {
    let device = device();
    let (a, b) = (device.alloc(64).unwrap(), device.alloc(64).unwrap());
    let data = HostData::zeroed(64);
    let (mut builder, function) = builder();
    for region in [
        Region::from(&a),
        Region::from(&b),
        Region::from(&data),
        Region::from(&Resource::new(64)),
        Region::from(&Resource::new(64)),
    ] {
        builder.add(Task::new(function).writes(region)).unwrap();
    }
    builder.add(Task::new(function).reads(a.slice(60..).unwrap()).reads(&data.clone())).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(graph.predecessors(id(5)), ids([0, 2]));
    assert_eq!(graph.edges(), 2);
}

#[test]
fn every_mistake_in_a_task_has_its_error() {
    let (mut builder, function) = builder();
    let resource = Resource::new(100);
    let first = builder.add(Task::new(function)).unwrap();
    let task = |index| id(index);
    let base = || Task::new(function);
    let mut refused = |task: Task| builder.add(task).unwrap_err();

    assert_eq!(refused(base().after(task(7))), GraphError::UnknownTask { task: task(7), tasks: 1 });
    let other = {
        let mut other = GraphBuilder::new();
        other.function(|_| Ok(()));
        other.function(|_| Ok(()))
    };
    assert_eq!(
        refused(Task::new(other)),
        GraphError::UnknownFunction { function: other, functions: 1 }
    );
    let writes =
        base().writes(resource.range(20..30)).reads(&resource).updates(resource.range(5..21));
    let error = refused(writes);
    assert_eq!(
        error,
        GraphError::OverlappingWrites { task: task(1), first: 5..21, second: 20..30 }
    );
    assert_eq!(error.to_string(), "task 1 declares overlapping writes: 0x5..0x15 and 0x14..0x1e");
    #[expect(clippy::reversed_empty_ranges, reason = "a mistake that is to be found")]
    for range in [90..101, 60..50] {
        assert_eq!(
            refused(base().reads(resource.range(range.clone()))),
            GraphError::OutsideResource { task: task(1), range, len: 100 }
        );
    }
    assert_eq!(refused(base().cores(CoreSet::of([]))), GraphError::EmptyCoreSet { task: task(1) });
    assert_eq!(refused(base().shires(0)), GraphError::EmptyShireMask { task: task(1) });

    assert_eq!(builder.edge(first, first), Err(GraphError::SelfEdge { task: first }));
    for (before, after) in [(first, task(9)), (task(9), first)] {
        let expected = GraphError::UnknownTask { task: task(9), tasks: 1 };
        assert_eq!(builder.edge(before, after), Err(expected));
    }
    builder.expect_args(function, 8).unwrap();
    assert_eq!(
        builder.expect_args(other, 8),
        Err(GraphError::UnknownFunction { function: other, functions: 1 })
    );
    assert_eq!(
        builder.add(base().u32(1)),
        Err(GraphError::ArgumentsMismatch { task: task(1), expected: 8, found: 4 })
    );
    builder.add(base().u64(1).writes(resource.range(0..5)).updates(resource.range(5..10))).unwrap();
    // What was refused has left nothing behind.
    assert_eq!(builder.build().unwrap().edges(), 0);
}

#[test]
fn what_belongs_to_another_device_or_time_is_refused() {
    let (mut mine, other) = (device(), device());
    let (old, foreign) = (mine.alloc(64).unwrap(), other.alloc(64).unwrap());
    let old_kernel = kernel(&mine);
    let data = HostData::zeroed(64);
    mine.reset(LONG).unwrap();
    let buffer = mine.alloc(64).unwrap();

    let (mut builder, function) = builder();
    let stale = builder.kernel(&old_kernel);
    builder.add(Task::new(function).input(&buffer)).unwrap();
    for bad in [&old, &foreign] {
        let start = bad.addr().as_u64();
        let expected = Err(GraphError::BufferOfAnotherDevice { task: id(1), start, len: 64 });
        assert_eq!(builder.add(Task::new(function).input(&buffer).reads(bad)), expected);
        assert_eq!(builder.add(Task::new(function).stage_out(bad, &data)), expected);
        assert_eq!(builder.copy_in(&data, bad), expected);
        assert_eq!(builder.copy_out(bad, &data), expected);
    }
    let refused = builder.add(Task::new(stale));
    let kernel: Box<str> = "add".into();
    assert_eq!(refused, Err(GraphError::KernelOfAnotherDevice { task: id(1), kernel }));

    let graph = builder.build().unwrap();
    let refused = graph.patch().rebind(&buffer, &foreign).build().unwrap_err();
    let start = foreign.addr().as_u64();
    assert_eq!(refused, GraphError::RebindToAnotherDevice { start, len: 64 });
}

#[test]
fn a_kernel_takes_no_more_arguments_than_a_launch() {
    let device = device();
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&kernel(&device));
    let args = |len: usize| KernelArgs::new().bytes(&vec![1; len], 1);
    let refused = builder.add(Task::new(function).args(args((1 << 20) + 1)));
    let (len, max) = ((1 << 20) + 1, 1 << 20);
    assert_eq!(refused, Err(GraphError::ArgumentsTooLarge { task: id(0), len, max }));
    let task = builder.add(Task::new(function).shires(3).args(args(13))).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(graph.function(task), "add");
    assert_eq!(graph.args(task), [0x0101_0101_0101_0101, 0x01_0101_0101]);
    assert_eq!(json(&graph)["tasks"][0]["shires"], "0x3");
}

#[test]
fn a_cycle_is_refused_with_its_path() {
    let (mut builder, function) = builder();
    for name in ["in", "a", "b", "c", "out"] {
        builder.add(Task::new(function).name(name)).unwrap();
    }
    for (before, after) in [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)] {
        builder.edge(id(before), id(after)).unwrap();
    }
    let error = builder.build().unwrap_err();
    let GraphError::Cycle { path } = &error else { panic!("{error}") };
    let mut tasks = path.tasks().to_vec();
    assert!(tasks.windows(2).all(|pair| pair[1].index() == pair[0].index() % 3 + 1), "{error}");
    tasks.sort();
    assert_eq!(tasks, ids([1, 2, 3]));
    let text = error.to_string();
    assert!(text.starts_with("the edges form a cycle: task ") && text.contains("task 2 \"b\" → "));
}

#[test]
fn a_long_cycle_is_abbreviated() {
    let (mut builder, function) = builder();
    for _ in 0..10_000 {
        builder.add(Task::new(function)).unwrap();
    }
    for task in 0..10_000 {
        builder.edge(id(task), id((task + 1) % 10_000)).unwrap();
    }
    let error = builder.build().unwrap_err();
    let GraphError::Cycle { path } = &error else { panic!("{error}") };
    assert_eq!(path.tasks().len(), 10_000);
    assert!(error.to_string().contains("… 9988 more → "), "{error}");
    assert!(error.to_string().len() < 400);
}

#[test]
fn copies_and_stages_are_tasks_in_order() {
    let device = device();
    let (x, y) = (device.alloc(64).unwrap(), device.alloc(64).unwrap());
    let (input, output) = (HostData::new(vec![7; 64]), HostData::zeroed(64));
    let (mut builder, function) = builder();
    let copy = builder.copy_in(&input, &x).unwrap();
    let task = Task::new(function).name("work").input(&x).output(&y);
    let task = builder.add(task.stage_in(&input, &x).stage_out(&y, &output)).unwrap();
    let back = builder.copy_out(&y, &output).unwrap();
    let short = HostData::zeroed(8);
    assert_eq!(
        builder.copy_in(&short, &x),
        Err(GraphError::CopyLength { task: id(5), host: 8, device: 64 })
    );
    let staged = Task::new(function).stage_in(&input, &x).stage_out(&y, &short);
    assert_eq!(
        builder.add(staged),
        Err(GraphError::CopyLength { task: id(6), host: 8, device: 64 })
    );
    let graph = builder.build().unwrap();
    assert_eq!((copy, task, back), (id(0), id(2), id(4)));
    let functions: Vec<_> = graph.tasks().map(|task| graph.function(task)).collect();
    assert_eq!(functions, ["copy-in", "copy-in", "host", "copy-out", "copy-out"]);
    let expected = [
        (0, 1, "waw"),
        (1, 2, "raw explicit"),
        (2, 3, "raw explicit"),
        (2, 4, "raw"),
        (3, 4, "waw"),
    ];
    assert_eq!(edges(&graph), expected.map(|(a, b, why)| (a, b, why.to_owned())));
}

#[test]
fn a_stage_counts_as_a_use_of_the_buffer() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    let data = HostData::zeroed(64);
    let (mut builder, function) = builder();
    let task = Task::new(function).stage_in(&data, &buffer).stage_out(&buffer, &data);
    let task = builder.add(task).unwrap();
    let later = builder.add(Task::new(function).writes(&buffer)).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(graph.successors(task).collect::<Vec<_>>(), ids([2]));
    assert_eq!(graph.successors(id(2)).collect::<Vec<_>>(), [later]);
    let uses: Vec<_> = graph.accesses(task).map(|(_, _, access)| access).collect();
    assert_eq!(uses, [Access::Read, Access::Write]);
}

#[test]
fn a_task_has_any_number_of_stages() {
    let device = device();
    let [a, b, c, d] = [(); 4].map(|()| device.alloc(64).unwrap());
    let data = [(); 4].map(|()| HostData::zeroed(64));
    let (mut builder, function) = builder();
    let task = Task::new(function).stage_out(&c, &data[2]).stage_in(&data[0], &a);
    let task = builder.add(task.stage_in(&data[1], &b).stage_out(&d, &data[3])).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!((graph.len(), graph.edges(), task), (5, 4, id(2)));
    assert_eq!(graph.predecessors(task), ids([0, 1]));
    assert_eq!(graph.successors(task).collect::<Vec<_>>(), ids([3, 4]));
}

#[test]
fn queries_of_a_diamond() {
    let (mut builder, function) = builder();
    for weight in [1, 5, 3, 1] {
        builder.add(Task::new(function).u64(weight)).unwrap();
    }
    // Against the order of creation, so that it is no topological one.
    for (before, after) in [(3, 1), (3, 2), (1, 0), (2, 0)] {
        builder.edge(id(before), id(after)).unwrap();
    }
    let graph = builder.build().unwrap();
    assert_eq!(graph.roots().collect::<Vec<_>>(), ids([3]));
    assert_eq!(graph.ready(ids([3, 2])), ids([1]));
    assert_eq!((graph.fan_in(id(0)), graph.fan_out(id(3))), (2, 2));
    assert_eq!(graph.predecessors(id(0)), ids([1, 2]));
    assert_eq!(graph.topological_order(), ids([3, 1, 2, 0]));
    assert_eq!(graph.critical_path(|task| graph.args(task)[0]), (7, ids([3, 1, 0])));
    assert_eq!(graph.critical_path(|_| u64::MAX).0, u64::MAX);
    let empty = GraphBuilder::new().build().unwrap();
    assert!(empty.is_empty());
    assert_eq!(empty.critical_path(|_| 1), (0, vec![]));
    assert_eq!(empty.to_string(), "0 tasks, 0 edges, 0 ready at the start");
}

#[test]
fn exports_say_everything_whatever_the_names_are() {
    let (mut builder, function) = builder();
    let name = "a \"b\" \\ \n → c";
    let cores = CoreSet::range(0..4);
    let first = Task::new(function).name(name).u32(5).cores(cores.clone());
    let first = builder.add(first.updates(Resource::new(9).range(2..4))).unwrap();
    let second = builder.add(Task::new(function).cores(cores)).unwrap();
    builder.edge(first, second).unwrap();
    let graph = builder.build().unwrap();
    let document = json(&graph);
    let task = &document["tasks"][0];
    assert_eq!((&task["name"], &task["function"]), (&name.into(), &"host".into()));
    assert_eq!((&task["cores"], &task["args"][0]), (&"0-3".into(), &"0x5".into()));
    let access = serde_json::json!(
        {"access": "update", "kind": "resource", "space": 0, "start": 2, "end": 4}
    );
    assert_eq!(task["accesses"], serde_json::json!([access]));
    assert_eq!(document["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(
        graph.to_dot(),
        "digraph tasks {\n  t0 [label=\"0 a \\\"b\\\" \\\\ \\n → c: host\"];\n  \
         t1 [label=\"1 host\"];\n  t0 -> t1 [label=\"explicit\"];\n}\n"
    );
    assert_eq!(
        graph.to_string(),
        format!("2 tasks, 1 edge, 1 ready at the start\ntask 0 \"{name}\": host → 1\ntask 1: host")
    );
}

#[test]
fn large_graphs_are_displayed_as_a_summary() {
    let (mut builder, function) = builder();
    for _ in 0..1000 {
        builder.add(Task::new(function)).unwrap();
    }
    let graph = builder.build().unwrap();
    assert_eq!(graph.to_string(), "1000 tasks, 0 edges, 1000 ready at the start");
    assert_eq!(graph.to_dot().lines().count(), 1002);
}

#[test]
fn a_fan_of_a_hundred_thousand_needs_no_configuration() {
    const WIDTH: usize = 100_000;
    let (mut builder, function) = builder();
    let resource = Resource::new(WIDTH as u64);
    builder.add(Task::new(function).writes(&resource)).unwrap();
    // All read the same half; then the region is cut into parts, each with the same long list of
    // readers.
    for _ in 0..WIDTH {
        builder.add(Task::new(function).reads(resource.range(0..WIDTH as u64 / 2))).unwrap();
    }
    for at in 0..1000 {
        builder.add(Task::new(function).reads(resource.range(at * 7..at * 7 + 9))).unwrap();
    }
    let last = builder.add(Task::new(function).writes(&resource)).unwrap();
    let graph = builder.build().unwrap();
    // The last task waits for the first too, which wrote what no one read.
    let (fan_out, fan_in) = (graph.fan_out(id(0)), graph.fan_in(last));
    assert_eq!((fan_out, fan_in), (WIDTH + 1001, WIDTH + 1001));
}

#[test]
fn a_hundred_thousand_overlapping_writes_form_a_chain() {
    let (mut builder, function) = builder();
    let resource = Resource::new(100_010);
    for at in 0..100_000 {
        builder.add(Task::new(function).writes(resource.range(at..at + 10))).unwrap();
    }
    let graph = builder.build().unwrap();
    assert_eq!(graph.edges(), 99_999);
    assert_eq!(graph.critical_path(|_| 1).0, 100_000);
}

#[test]
fn a_million_tasks_fit_into_what_was_promised() {
    const TASKS: usize = 1_000_000;
    let (mut builder, function) = builder();
    let resource = Resource::new(TASKS as u64);
    for at in 0..TASKS as u64 {
        let task = Task::new(function).u64(at).reads(resource.range(at.saturating_sub(1)..at));
        builder.add(task.writes(resource.range(at..at + 1))).unwrap();
    }
    let graph = builder.build().unwrap();
    assert_eq!((graph.len(), graph.edges(), graph.roots().len()), (TASKS, TASKS - 1, 1));
    let limit = 64 * graph.len() + 8 * graph.edges();
    assert!(graph.resident_bytes() <= limit, "{} of {limit}", graph.resident_bytes());
    assert_eq!(graph.args(id(TASKS - 1)), [TASKS as u64 - 1]);
    assert_eq!(graph.patch().build().unwrap().len(), TASKS);
}

fn addresses(graph: &Graph, task: TaskId) -> Vec<u64> {
    graph.accesses(task).map(|(_, range, _)| range.start).collect()
}

#[test]
fn a_patch_replaces_arguments_and_nothing_else() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    let (mut builder, function) = builder();
    let task = builder.add(Task::new(function).u32(1).input(&buffer).u32(2)).unwrap();
    let other = builder.add(Task::new(function).u32(3)).unwrap();
    let graph = builder.build().unwrap();
    let address = buffer.addr();
    let args = |a, address, b| KernelArgs::new().u32(a).addr(address).u32(b);
    let patched = graph.patch().args(task, args(10, address, 20)).build().unwrap();
    assert_eq!(patched.args(task), [10, address.as_u64(), 20]);
    assert_eq!(graph.args(task), [1, address.as_u64(), 2]);
    assert_eq!(patched.args(other), [3]);

    let refused = |patch: Patch| patch.build().unwrap_err();
    assert_eq!(
        refused(graph.patch().args(other, KernelArgs::new().u64(1))),
        GraphError::ArgumentsMismatch { task: other, expected: 4, found: 8 }
    );
    assert_eq!(
        refused(graph.patch().args(id(9), KernelArgs::new())),
        GraphError::UnknownTask { task: id(9), tasks: 2 }
    );
    let found = device.alloc(64).unwrap();
    let (expected, found) = (address.as_u64(), found.addr());
    assert_eq!(
        refused(graph.patch().args(task, args(1, found, 2))),
        GraphError::AddressMismatch { task, word: 1, expected, found: found.as_u64() }
    );
}

#[test]
fn rebinding_moves_regions_arguments_and_copies() {
    let device = device();
    let (x, y, z) =
        (device.alloc(256).unwrap(), device.alloc(256).unwrap(), device.alloc(256).unwrap());
    let at = |buffer: &et_runtime::DeviceBuffer| buffer.addr().as_u64();
    let data = HostData::zeroed(64);
    let (mut builder, function) = builder();
    let copy = builder.copy_in(&data, x.slice(64..128).unwrap()).unwrap();
    let task = Task::new(function).u32(5).input(x.slice(64..128).unwrap()).output(&y);
    // An equal number that is no address is not touched.
    let task = builder.add(task.u64(at(&x) + 64)).unwrap();
    let graph = builder.build().unwrap();

    let moved = graph.patch().rebind(&x, &z).build().unwrap();
    assert_eq!(moved.args(task), [5, at(&z) + 64, at(&y), at(&x) + 64]);
    assert_eq!(addresses(&moved, task), [at(&z) + 64, at(&y)]);
    assert_eq!(addresses(&moved, copy), [0, at(&z) + 64]);
    assert_eq!(addresses(&graph, task), [at(&x) + 64, at(&y)]);

    // Exchange, with new arguments of either kind.
    for value in [at(&x) + 64, at(&y) + 64] {
        let args = KernelArgs::new().u32(6).u64(value).u64(at(&x)).u64(7);
        let exchange = graph.patch().rebind(&x, &y).rebind(&y, &x).args(task, args);
        assert_eq!(exchange.build().unwrap().args(task), [6, at(&y) + 64, at(&x), 7]);
    }

    let refused = |patch: Patch| patch.build().unwrap_err();
    let (low, high) = (x.slice(..100).unwrap(), z.slice(..100).unwrap());
    let region = at(&x) + 64..at(&x) + 128;
    assert_eq!(
        refused(graph.patch().rebind(&low, &high)),
        GraphError::RebindSplits { old: at(&x)..at(&x) + 100, region: region.clone() }
    );
    assert_eq!(
        refused(graph.patch().rebind(&x, &z).rebind(&x, &z)),
        GraphError::RebindSplits { old: at(&x)..at(&x) + 256, region: at(&x)..at(&x) + 256 }
    );
    assert_eq!(
        refused(graph.patch().rebind(&x, &high)),
        GraphError::RebindLength { old: 256, new: 100 }
    );
    assert_eq!(
        refused(graph.patch().rebind(&z, &x)),
        GraphError::RebindUnused { old: at(&z)..at(&z) + 256 }
    );
    let error = refused(graph.patch().rebind(&x, &y));
    let (first, second) = (at(&y)..at(&y) + 256, at(&y) + 64..at(&y) + 128);
    assert_eq!(error, GraphError::RebindOverlaps { first, second });
    assert_eq!(moved.patch().rebind(&z, &x).build().unwrap().args(task), graph.args(task));
}

#[test]
fn buffers_that_are_only_read_may_become_the_same() {
    let device = device();
    let [a, b, c] = [(); 3].map(|()| device.alloc(64).unwrap());
    let (mut builder, function) = builder();
    builder.add(Task::new(function).input(&a).input(&b).output(&c)).unwrap();
    let graph = builder.build().unwrap();
    let same = graph.patch().rebind(&a, &b).build().unwrap();
    assert_eq!(same.args(id(0))[..2], [b.addr().as_u64(); 2]);
    assert!(graph.patch().rebind(&a, &c).build().is_err());
    assert!(graph.patch().rebind(&c, &a).build().is_err());
}

#[test]
fn a_graph_keeps_its_buffers_and_gives_back_those_it_was_patched_away_from() {
    let device = device();
    let used = || device.memory_stats().used_bytes;
    let before = used();
    let (a, b) = (device.alloc(4096).unwrap(), device.alloc(4096).unwrap());
    let (mut builder, function) = builder();
    builder.add(Task::new(function).input(&a).input(a.slice(64..).unwrap())).unwrap();
    let graph = builder.build().unwrap();
    let patched = graph.patch().rebind(&a, &b).build().unwrap();
    drop((a, b));
    assert_eq!(used(), before + 2 * 4096);
    drop(graph);
    assert_eq!(used(), before + 4096);
    drop(patched);
    assert_eq!(used(), before);
}

#[test]
fn data_of_copies_is_replaced_wherever_it_is_used() {
    let device = device();
    let [a, b] = [(); 2].map(|()| device.alloc(64).unwrap());
    let [x, y, z] = [(); 3].map(|()| HostData::zeroed(64));
    let (mut builder, function) = builder();
    let first = builder.copy_in(&x, &a).unwrap();
    let second = builder.copy_in(&y, &b).unwrap();
    let host = builder.add(Task::new(function).reads(&a)).unwrap();
    let back = builder.copy_out(&a, &z).unwrap();
    let graph = builder.build().unwrap();

    let refused = |patch: Patch| patch.build().unwrap_err();
    assert_eq!(refused(graph.patch().data(host, &x)), GraphError::NotACopy { task: host });
    assert_eq!(
        refused(graph.patch().data(first, &HostData::zeroed(1))),
        GraphError::CopyLength { task: first, host: 1, device: 64 }
    );
    assert_eq!(
        refused(graph.patch().data(first, &z)),
        GraphError::DataInUse { task: first, other: back }
    );
    assert_eq!(
        refused(graph.patch().data(back, &y)),
        GraphError::DataInUse { task: back, other: second }
    );
    let new = HostData::zeroed(64);
    assert_eq!(
        refused(graph.patch().data(first, &new).data(first, &y)),
        GraphError::DataInUse { task: first, other: first }
    );
    // Both only read; and exchanged.
    graph.patch().data(first, &y).build().unwrap();
    graph.patch().data(first, &z).data(back, &x).build().unwrap();
    graph.patch().data(first, &new).data(back, &HostData::zeroed(64)).build().unwrap();
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Graph>();
    check::<GraphBuilder>();
    check::<Patch>();
    check::<HostData>();
    check::<Region>();
    check::<GraphError>();
}

/// A task of a random program: its accesses, and explicit edges from earlier tasks, counted back.
type Step = (Vec<Use>, Vec<usize>);

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![
        3 => any::<()>().prop_map(|()| Access::Read),
        1 => any::<()>().prop_map(|()| Access::Write),
        1 => any::<()>().prop_map(|()| Access::Update),
    ];
    let range = (0..40u64, 0..12u64).prop_map(|(start, len)| start..start + len);
    let accesses = collection::vec((access, range), 0..4).prop_map(|mut accesses| {
        let mut writes: Vec<Range<u64>> = Vec::new();
        accesses.retain(|(access, range)| {
            let fits = !access.writes() || !writes.iter().any(|other| overlap(other, range));
            if access.writes() && fits {
                writes.push(range.clone());
            }
            fits
        });
        accesses
    });
    (accesses, collection::vec(1..20usize, 0..2))
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn conflict(a: &Step, b: &Step) -> bool {
    a.0.iter().any(|(access, range)| {
        b.0.iter().any(|(other, with)| (access.writes() || other.writes()) && overlap(range, with))
    })
}

/// Returns what can be reached along `edges`, all of which lead upwards.
fn closure(tasks: usize, edges: &HashSet<(usize, usize)>) -> Vec<HashSet<usize>> {
    let mut reach = vec![HashSet::new(); tasks];
    for from in (0..tasks).rev() {
        for to in (from + 1..tasks).filter(|&to| edges.contains(&(from, to))) {
            let further = reach[to].clone();
            reach[from].extend(further);
            reach[from].insert(to);
        }
    }
    reach
}

proptest! {
    #[test]
    fn exactly_the_conflicts_are_ordered(steps in collection::vec(step(), 0..40)) {
        let (mut builder, function) = builder();
        let resource = Resource::new(64);
        let mut expected = HashSet::new();
        let mut explicit = HashSet::new();
        for (at, step) in steps.iter().enumerate() {
            builder.add(declare(Task::new(function), &resource, step.0.iter().cloned())).unwrap();
            expected.extend((0..at).filter(|&before| conflict(&steps[before], step)).map(|before| (before, at)));
            explicit.extend(step.1.iter().filter_map(|back| Some((at.checked_sub(*back)?, at))));
        }
        for &(before, after) in &explicit {
            builder.edge(id(before), id(after)).unwrap();
        }
        let graph = builder.build().unwrap();
        let found: HashSet<_> = edges(&graph).into_iter().map(|(from, to, _)| (from, to)).collect();
        prop_assert_eq!(found.len(), graph.edges());
        prop_assert!(explicit.is_subset(&found));
        // No edge without a reason of its own, and none missing that the others do not imply.
        prop_assert!(found.iter().all(|edge| expected.contains(edge) || explicit.contains(edge)));
        let all = expected.union(&explicit).copied().collect();
        prop_assert_eq!(closure(steps.len(), &found), closure(steps.len(), &all));
        for (from, to, reasons) in edges(&graph) {
            let conflicts = expected.contains(&(from, to)) && reasons != "explicit";
            prop_assert!(conflicts || explicit.contains(&(from, to)));
            prop_assert_eq!(reasons.ends_with("explicit"), explicit.contains(&(from, to)));
        }
    }

    #[test]
    fn orders_and_paths_of_any_graph(
        tasks in 1..9usize,
        pairs in collection::vec((0..8usize, 0..8usize), 0..14),
        weights in collection::vec(0..10u64, 8),
    ) {
        let (mut builder, function) = builder();
        for _ in 0..tasks {
            builder.add(Task::new(function)).unwrap();
        }
        let pairs: HashSet<_> = pairs.into_iter().filter(|&(a, b)| a != b && a.max(b) < tasks).collect();
        for &(before, after) in &pairs {
            builder.edge(id(before), id(after)).unwrap();
        }
        let graph = match builder.build() {
            Ok(graph) => graph,
            Err(GraphError::Cycle { path }) => {
                let path: Vec<_> = path.tasks().iter().map(|task| task.index()).collect();
                let next = path.iter().cycle().skip(1);
                prop_assert!(path.iter().zip(next).all(|(&a, &b)| pairs.contains(&(a, b))));
                prop_assert_eq!(path.iter().collect::<HashSet<_>>().len(), path.len());
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        let order = graph.topological_order();
        let place = |task: usize| order.iter().position(|at| at.index() == task).unwrap();
        prop_assert_eq!(order.len(), tasks);
        prop_assert!(pairs.iter().all(|&(before, after)| place(before) < place(after)));

        // The heaviest of all paths, found by trying them.
        fn heaviest(from: usize, pairs: &HashSet<(usize, usize)>, weights: &[u64]) -> u64 {
            let after = pairs.iter().filter(|pair| pair.0 == from);
            weights[from] + after.map(|pair| heaviest(pair.1, pairs, weights)).max().unwrap_or(0)
        }
        let expected = (0..tasks).map(|task| heaviest(task, &pairs, &weights)).max().unwrap();
        let (total, path) = graph.critical_path(|task| weights[task.index()]);
        prop_assert_eq!(total, expected);
        prop_assert_eq!(path.iter().map(|task| weights[task.index()]).sum::<u64>(), total);
        let steps = path.windows(2);
        prop_assert!(steps.map(|pair| (pair[0].index(), pair[1].index())).all(|pair| pairs.contains(&pair)));

        for task in graph.tasks() {
            let before: Vec<_> = (0..tasks).filter(|&other| pairs.contains(&(other, task.index()))).collect();
            prop_assert_eq!(graph.predecessors(task), ids(before.clone()));
            prop_assert_eq!(graph.fan_in(task), before.len());
            prop_assert_eq!(graph.fan_out(task), graph.successors(task).len());
        }
        let dot = graph.to_dot();
        let drawn: HashSet<_> = dot.lines().filter_map(|line| {
            let (from, to) = line.trim().strip_prefix('t')?.split_once(" -> t")?;
            Some((from.parse().ok()?, to.split(' ').next()?.parse().ok()?))
        }).collect();
        prop_assert_eq!(drawn, pairs);
    }
}

/// Tries to rebind, and says by looking at all pairs whether that may succeed.
fn rebinding_agrees_with_all_pairs(
    device: &Device<SimHal>,
    uses: &[Use],
    rebinds: &[(u64, u64, u64)],
) -> Result<(), proptest::test_runner::TestCaseError> {
    let buffer = device.alloc(64).unwrap();
    let base = buffer.addr().as_u64();
    let (mut builder, function) = builder();
    for (access, range) in uses {
        let slice = buffer.slice(range.clone()).unwrap();
        let task = Task::new(function);
        let added = match access {
            Access::Read => builder.add(task.input(&slice)),
            Access::Write => builder.add(task.output(&slice)),
            Access::Update => builder.add(task.in_out(&slice)),
        };
        added.unwrap();
    }
    let mut patch = builder.build().unwrap().patch();
    for &(old, new, len) in rebinds {
        let slice = |start| buffer.slice(start..start + len).unwrap();
        patch = patch.rebind(slice(old), slice(new));
    }

    let olds: Vec<_> = rebinds.iter().map(|&(old, _, len)| old..old + len).collect();
    let inside = |range: &Range<u64>| {
        olds.iter().position(|old| old.start <= range.start && range.end <= old.end)
    };
    let is_cut =
        |range: &Range<u64>| inside(range).is_none() && olds.iter().any(|old| overlap(old, range));
    let moved: Vec<_> = uses
        .iter()
        .map(|(access, range)| match inside(range) {
            None => (0, *access, range.clone()),
            Some(at) => {
                let (old, new, _) = rebinds[at];
                (at + 1, *access, range.start - old + new..range.end - old + new)
            }
        })
        .collect();
    let pairs = |a: usize| (0..a).map(move |b| (a, b));
    let is_ambiguous = (0..olds.len()).flat_map(pairs).any(|(a, b)| overlap(&olds[a], &olds[b]));
    let is_unused = (1..=olds.len()).any(|group| moved.iter().all(|other| other.0 != group));
    let collides = (0..moved.len()).flat_map(pairs).any(|(a, b)| {
        let (a, b) = (&moved[a], &moved[b]);
        a.0 != b.0 && overlap(&a.2, &b.2) && (a.1.writes() || b.1.writes())
    });
    let is_refused =
        is_ambiguous || is_unused || collides || uses.iter().any(|(_, range)| is_cut(range));
    match patch.build() {
        Ok(graph) => {
            prop_assert!(!is_refused);
            for (task, (_, _, range)) in graph.tasks().zip(&moved) {
                prop_assert_eq!(addresses(&graph, task), [base + range.start]);
                prop_assert_eq!(graph.args(task), [base + range.start]);
            }
        }
        Err(error) => prop_assert!(is_refused, "{}", error),
    }
    Ok(())
}

#[test]
fn rebinding_is_refused_exactly_where_edges_would_be_missing() {
    let device = device();
    let access = prop_oneof![
        2 => any::<()>().prop_map(|()| Access::Read),
        1 => any::<()>().prop_map(|()| Access::Write),
        1 => any::<()>().prop_map(|()| Access::Update),
    ];
    let range = (0..15u64, 1..3u64).prop_map(|(start, len)| start * 4..(start + len).min(16) * 4);
    let rebind = (0..4u64, 0..7u64).prop_map(|(old, new)| (old * 16, new * 8, 16));
    let strategy = (collection::vec((access, range), 1..8), collection::vec(rebind, 1..4));
    // A region that collides only with one that a longer one of its own group hides.
    let uses = [(Access::Read, 24..36), (Access::Read, 52..64), (Access::Write, 56..60)];
    rebinding_agrees_with_all_pairs(&device, &uses, &[(48, 24, 16)]).unwrap();
    let mut runner = proptest::test_runner::TestRunner::default();
    let result = runner.run(&strategy, |(uses, rebinds)| {
        rebinding_agrees_with_all_pairs(&device, &uses, &rebinds)
    });
    result.unwrap();
}
