//! Buffers that a graph has for itself: where they are, and how long.

use std::collections::HashSet;
use std::ops::Range;

use et_hal_sim::SimHal;
use et_runtime::graph::{Access, Graph, GraphBuilder, GraphError, HostData, Task, TaskId};
use et_runtime::memory::AllocError;
use et_runtime::{Device, KernelArgs};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use proptest::{collection, prop_assert, prop_assert_eq};

use super::{builder, device, id, kernel};

/// Where each use of device memory is.
fn places(graph: &Graph, task: TaskId) -> Vec<Range<u64>> {
    graph.accesses(task).map(|(_, range, _)| range).collect()
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Each task reads what the one before it wrote: two buffers are enough.
#[test]
fn a_chain_needs_two_buffers_however_long_it_is() {
    let device = device();
    let before = device.memory_stats().used_bytes;
    let (mut builder, function) = builder();
    let buffers: Vec<_> = (0..20).map(|_| builder.transient(&device, 1000, 64).unwrap()).collect();
    builder.add(Task::new(function).writes(&buffers[0])).unwrap();
    for pair in buffers.windows(2) {
        builder.add(Task::new(function).reads(&pair[0]).writes(&pair[1])).unwrap();
    }
    let graph = builder.build().unwrap();
    let memory = graph.transient_memory();
    assert_eq!((memory.buffers, memory.asked_bytes), (20, 20_000));
    assert_eq!(memory.peak_bytes, 1024 + 1000);
    assert_eq!(device.memory_stats().used_bytes - before, 2048);
    drop(graph);
    assert_eq!(device.memory_stats().used_bytes, before);
}

#[test]
fn a_retained_buffer_lives_until_the_task_that_retains_it() {
    let device = device();
    for retains in [false, true] {
        for by_task in [false, true] {
            let (mut builder, function) = builder();
            let [a, b, c] = [(); 3].map(|()| builder.transient(&device, 64, 64).unwrap());
            let first = builder.add(Task::new(function).writes(&a)).unwrap();
            builder.add(Task::new(function).reads(&a).writes(&b)).unwrap();
            builder.add(Task::new(function).reads(&b).writes(&c)).unwrap();
            let last = Task::new(function).reads(&c);
            let last = match (retains, by_task) {
                (false, true) => last.after(first),
                (true, true) => last.after_and_retain(first),
                (_, false) => last,
            };
            let last = builder.add(last).unwrap();
            match (retains, by_task) {
                (false, false) => builder.edge(first, last).unwrap(),
                (true, false) => builder.edge_and_retain(first, last).unwrap(),
                (_, true) => {}
            }
            let graph = builder.build().unwrap();
            let peak = if retains { 192 } else { 128 };
            assert_eq!(graph.transient_memory().peak_bytes, peak, "{retains} {by_task}");
            assert_eq!(graph.predecessors(last), [first, id(2)]);
        }
    }
}

/// A random program: lengths of the buffers, and for each task the buffers it uses, with numbers
/// that say how, and tasks that it is behind, counted back, retaining or not.
type Program = (Vec<u64>, Vec<(Vec<(usize, u8)>, Vec<(usize, bool)>)>);

fn program() -> impl Strategy<Value = Program> {
    let step = (
        collection::vec((0..8usize, 0..4u8), 0..4),
        collection::vec((1..12usize, proptest::bool::ANY), 0..2),
    );
    (collection::vec(1..400u64, 8), collection::vec(step, 0..24))
}

fn lives_stay_apart(device: &Device<SimHal>, (lens, steps): &Program) -> Result<(), TestCaseError> {
    let (mut builder, function) = builder();
    let align = |buffer: usize| 64 << (buffer % 3);
    let mut buffers = Vec::new();
    for (at, &len) in lens.iter().enumerate() {
        buffers.push(builder.transient(device, len, align(at)).unwrap());
    }
    let mut writers = vec![Vec::new(); lens.len()];
    let mut users = vec![HashSet::new(); lens.len()];
    // The first use of each task, to tell which buffer its accesses are of.
    let mut uses: Vec<Vec<usize>> = Vec::new();
    for (at, (accesses, behind)) in steps.iter().enumerate() {
        let mut task = Task::new(function);
        let mut its = Vec::new();
        for &(buffer, how) in accesses {
            if its.contains(&buffer) {
                continue;
            }
            its.push(buffer);
            users[buffer].insert(at);
            let is_written = !writers[buffer].is_empty();
            task = match (is_written, how) {
                (true, 0) => task.reads(&buffers[buffer]),
                (true, 1) => task.updates(&buffers[buffer]),
                _ => task.writes(&buffers[buffer]),
            };
            if !is_written || how != 0 {
                writers[buffer].push(at);
            }
        }
        for &(back, retains) in behind {
            let Some(before) = at.checked_sub(back) else { continue };
            if !retains {
                task = task.after(id(before));
                continue;
            }
            task = task.after_and_retain(id(before));
            for (buffer, writers) in writers.iter().enumerate() {
                if writers.contains(&before) {
                    users[buffer].insert(at);
                }
            }
        }
        uses.push(its);
        builder.add(task).unwrap();
    }
    let graph = builder.build().unwrap();

    // What runs before what, whatever the order: all edges lead upwards.
    let mut after = vec![HashSet::new(); steps.len()];
    for from in (0..steps.len()).rev() {
        for to in graph.successors(id(from)) {
            let further = after[to.index()].clone();
            after[from].extend(further);
            after[from].insert(to.index());
        }
    }
    let mut place = vec![None; lens.len()];
    for (task, its) in uses.iter().enumerate() {
        for (&buffer, range) in its.iter().zip(places(&graph, id(task))) {
            prop_assert_eq!(range.end - range.start, lens[buffer]);
            prop_assert_eq!(range.start % align(buffer), 0);
            prop_assert_eq!(place[buffer].get_or_insert(range.clone()), &range);
        }
    }
    let placed: Vec<usize> = (0..lens.len()).filter(|&buffer| place[buffer].is_some()).collect();
    let range = |buffer: usize| place[buffer].clone().unwrap();
    let is_before = |a: usize, b: usize| {
        users[a].iter().all(|from| users[b].iter().all(|to| after[*from].contains(to)))
    };
    for &a in &placed {
        for &b in placed.iter().filter(|&&b| b > a) {
            let shares = overlap(&range(a), &range(b));
            prop_assert!(!shares || is_before(a, b) || is_before(b, a), "{} and {}", a, b);
        }
    }
    let memory = graph.transient_memory();
    let start = placed.iter().map(|&buffer| range(buffer).start).min().unwrap_or(0);
    let end = placed.iter().map(|&buffer| range(buffer).end).max().unwrap_or(0);
    prop_assert_eq!((memory.buffers, memory.peak_bytes), (placed.len(), end - start));
    Ok(())
}

#[test]
fn buffers_share_memory_only_if_every_order_keeps_them_apart() {
    let device = device();
    let mut runner = TestRunner::new(Config::with_cases(2000));
    runner.run(&program(), |program| lives_stay_apart(&device, &program)).unwrap();
}

#[test]
fn tasks_read_only_what_others_have_written() {
    let device = device();
    let (mut builder, function) = builder();
    let buffer = builder.transient(&device, 256, 64).unwrap();
    let part = |range: Range<u64>| buffer.slice(range).unwrap();
    let refused = builder.add(Task::new(function).updates(&buffer)).unwrap_err();
    assert_eq!(refused, GraphError::NotWritten { task: id(0), at: 0, len: 256 });
    builder.add(Task::new(function).writes(part(0..64)).writes(part(128..256))).unwrap();
    let refused = builder.add(Task::new(function).reads(part(32..200))).unwrap_err();
    assert_eq!(refused, GraphError::NotWritten { task: id(1), at: 64, len: 256 });
    let data = HostData::zeroed(64);
    let refused = builder.copy_out(part(64..128), &data).unwrap_err();
    assert_eq!(refused, GraphError::NotWritten { task: id(1), at: 64, len: 256 });
    // A copy before a task counts.
    let staged = Task::new(function).reads(part(32..200)).stage_in(&data, part(64..128));
    builder.add(staged).unwrap();
    builder.copy_out(part(60..124), &data).unwrap();
    assert_eq!(builder.build().unwrap().transient_memory().peak_bytes, 256);
}

#[test]
fn what_cannot_be_is_refused() {
    let (device, other) = (device(), device());
    let mut builder = GraphBuilder::new();
    let refused = |result: Result<_, GraphError>| match result {
        Err(GraphError::Memory(error)) => *error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(builder.transient(&device, 0, 64)), AllocError::ZeroLength);
    for align in [0, 3, 96] {
        let bad = AllocError::BadAlignment { align };
        assert_eq!(refused(builder.transient(&device, 64, align)), bad);
    }
    let function = builder.kernel(&kernel(&device));
    let unused = builder.transient(&device, 1 << 30, 64).unwrap();
    let foreign = builder.transient(&other, 64, 64).map(drop);
    assert_eq!(foreign, Err(GraphError::TransientOfAnotherDevice { len: 64 }));
    // Those of another builder are nothing to this one.
    let mut another = GraphBuilder::new();
    let its = another.transient(&device, 64, 64).unwrap();
    let refused = builder.add(Task::new(function).output(&its)).unwrap_err();
    assert!(matches!(refused, GraphError::BufferOfAnotherDevice { .. }), "{refused:?}");
    let refused = device.default_stream().fill(&its, 0).map(drop);
    assert!(refused.is_err(), "it has no address");
    // More than the device has, although none of it is used: it takes none.
    assert_eq!(unused.len_bytes(), 1 << 30);
    let used = builder.transient(&device, 1 << 30, 64).unwrap();
    let task = builder.add(Task::new(function).output(&used).u64(0).u64(8)).unwrap();
    assert_eq!(task, id(0));
    match builder.build() {
        Err(GraphError::Memory(error)) => {
            assert!(matches!(*error, AllocError::OutOfMemory { .. }), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(its.slice(0..65).is_err());
}

/// Their addresses go wherever those of other buffers would: arguments, copies, conditions.
#[test]
fn arguments_copies_and_patches_have_the_places() {
    let device = device();
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&kernel(&device));
    let buffer = builder.transient(&device, 128, 4096).unwrap();
    let own = device.alloc(128).unwrap();
    let data = HostData::zeroed(64);
    builder.copy_in(&data, buffer.slice(64..128).unwrap()).unwrap();
    let task = Task::new(function).u32(7).output(buffer.slice(0..64).unwrap()).input(&own);
    let task = builder.add(task.stage_out(buffer.slice(64..128).unwrap(), &data)).unwrap();
    let word = et_runtime::graph::Word::<u32>::on_device(buffer.slice(4..8).unwrap(), 0).unwrap();
    let compare = et_runtime::graph::Comparison::Equal;
    let last = Task::new(function).in_out(&buffer).only_if(&word, compare, 1);
    let last = builder.add(last).unwrap();
    let whole = buffer.slice(..).unwrap();
    let args = KernelArgs::new().addr(whole.addr()).u64(whole.addr().as_u64() + 1);
    let by_hand = builder.add(Task::new(function).args(args).reads(&whole)).unwrap();
    let graph = builder.build().unwrap();
    let place = graph.accesses(last).next().unwrap().1;
    let base = place.start;
    assert_eq!((base % 4096, place.end - base), (0, 128));
    assert_eq!(graph.args(task), [7, base, own.addr().as_u64()]);
    assert_eq!(graph.args(last), [base]);
    let odd = whole.addr().as_u64() + 1;
    assert_eq!(graph.args(by_hand), [base, odd], "the address of what it declares, and no other");
    assert_eq!(places(&graph, id(0))[1], base + 64..base + 128);
    assert_eq!(graph.condition(last), Some(format!("if u32 at {:#x} == 1", base + 4)));
    // What is the caller's can still be another's.
    let new = device.alloc(128).unwrap();
    let patched = graph.patch().rebind(&own, &new).build().unwrap();
    assert_eq!(patched.args(task), [7, base, new.addr().as_u64()]);
    assert_eq!(patched.transient_memory(), graph.transient_memory());
    assert_eq!(graph.accesses(task).map(|access| access.2).next(), Some(Access::Write));
}
