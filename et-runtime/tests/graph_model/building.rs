//! What the builder refuses, derives, answers and exports.

use et_runtime::KernelArgs;
use et_runtime::graph::{
    Access, CoreSet, GraphBuilder, GraphError, HostData, Region, Resource, Task,
};

use super::{LONG, Use, builder, device, edges, id, ids, json, kernel, program};

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
    assert_eq!(refused(base().parts(0)), GraphError::NoParts { task: task(1) });
    let too_many = refused(base().parts(u32::MAX));
    assert!(matches!(too_many, GraphError::TooMany { .. }), "{too_many}");

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
    let kernel: Box<str> = "memset".into();
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
    assert_eq!(graph.function(task), "memset");
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
