//! Graphs of kernels, in each place of a device.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_sign_loss, reason = "small numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use et::executor::{
    DeviceExecutor, ExecutorConfig, Place, RunError, RunOptions, TaskFailure, TaskState,
};
use et::graph::{CoreSet, Graph, GraphBuilder, HostData, Task, TaskId};
use et::{AnyHal, Device, DeviceBuffer, Kernel};

const LONG: Duration = Duration::from_secs(60);
const PLACES: [Place; 3] = [Place::Streams, Place::Cores, Place::Resident];
const N: u64 = 4096;

fn open() -> Device<AnyHal> {
    et::open("sim:shires=2,dram=1GiB").unwrap()
}

fn kernel(device: &Device<AnyHal>, name: &str) -> Kernel {
    let root = env!("CARGO_MANIFEST_DIR");
    let elf = std::fs::read(format!("{root}/../testing/kernels/elf/{name}.elf")).unwrap();
    device.load_kernel(name, &elf).unwrap()
}

fn executor(device: &Device<AnyHal>, place: Place) -> DeviceExecutor<AnyHal> {
    device.executor(&ExecutorConfig::new().place(place).cores(8)).unwrap()
}

fn read(device: &Device<AnyHal>, buffer: &DeviceBuffer) -> Vec<f32> {
    let mut values = vec![0.0; usize::try_from(buffer.len_bytes() / 4).unwrap()];
    device.default_stream().read(buffer, &mut values, LONG).unwrap();
    values
}

/// f = (a + b + 1)(a + b + 2), as four tasks with copies at both ends.
struct Formula {
    graph: Graph,
    result: HostData,
    buffers: Vec<DeviceBuffer>,
    tasks: [TaskId; 4],
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn formula(device: &Device<AnyHal>) -> Formula {
    let [a, b, s, p, q, f] = [(); 6].map(|()| device.alloc(4 * N).unwrap());
    let a_values: Vec<f32> = (0..N).map(|n| n as f32).collect();
    let result = HostData::zeroed(4 * N as usize);
    let mut builder = GraphBuilder::new();
    let add = builder.kernel(&kernel(device, "add"));
    let add_scalar = builder.kernel(&kernel(device, "add_scalar"));
    let mul = builder.kernel(&kernel(device, "mul"));
    let n = N;
    let sum = Task::new(add)
        .stage_in(&HostData::new(bytes(&a_values)), a.whole())
        .stage_in(&HostData::new(bytes(&vec![0.5; N as usize])), b.whole())
        .name("sum")
        .input(a.whole())
        .input(b.whole())
        .output(s.whole())
        .u64(n);
    let sum = builder.add(sum).unwrap();
    let plus = |to: &DeviceBuffer, by: f32| {
        Task::new(add_scalar).input(s.whole()).output(to.whole()).f32(by).u64(n)
    };
    let plus_1 = builder.add(plus(&p, 1.0)).unwrap();
    let plus_2 = builder.add(plus(&q, 2.0)).unwrap();
    let product = Task::new(mul)
        .input(p.whole())
        .input(q.whole())
        .output(f.whole())
        .u64(n)
        .stage_out(f.whole(), &result);
    let product = builder.add(product).unwrap();
    let graph = builder.build().unwrap();
    Formula {
        graph,
        result,
        buffers: vec![a, b, s, p, q, f],
        tasks: [sum, plus_1, plus_2, product],
    }
}

fn expected() -> Vec<f32> {
    (0..N).map(|n| (n as f32 + 0.5 + 1.0) * (n as f32 + 0.5 + 2.0)).collect()
}

#[test]
fn a_formula_has_the_same_result_in_every_place() {
    let device = open();
    for place in PLACES.into_iter().chain([Place::Auto]) {
        let executor = executor(&device, place);
        let formula = formula(&device);
        for _ in 0..3 {
            let run = executor.launch_with(&formula.graph, RunOptions::new().trace(true)).unwrap();
            let outcome = run.finish(LONG).unwrap();
            assert!(formula.result.with(|result| result == bytes(&expected())), "{place}");
            if place != Place::Auto {
                assert_eq!(outcome.place(), place.name());
            }
            for task in formula.tasks {
                assert_eq!(outcome.state(task), TaskState::Complete);
            }
        }
        assert_eq!(read(&device, &formula.buffers[5]), expected());
    }
    device.close();
}

#[test]
fn streams_are_for_kernels_that_need_many_harts() {
    let device = open();
    let executor = executor(&device, Place::Auto);
    let out = device.alloc(64 * 128).unwrap();
    let mut builder = GraphBuilder::new();
    let reduce = builder.kernel(&kernel(&device, "reduce"));
    let x = device.alloc(4 * N).unwrap();
    builder.add(Task::new(reduce).input(x.whole()).u64(N).output(out.whole())).unwrap();
    let graph = builder.build().unwrap();
    let outcome = executor.launch(&graph).unwrap().finish(LONG).unwrap();
    assert_eq!(outcome.place(), "streams");
    let forced = device.executor(&ExecutorConfig::new().place(Place::Resident)).unwrap();
    let error = forced.launch(&graph).unwrap_err();
    assert!(error.to_string().contains("\"reduce\" has no function et_task"), "{error}");
}

/// A kernel that misbehaves between two tasks that do not, and one beside it.
fn with_bad(
    device: &Device<AnyHal>,
    name: &str,
    task: impl FnOnce(Task) -> Task,
) -> (Graph, [TaskId; 4], Vec<DeviceBuffer>) {
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&kernel(device, "task_nop"));
    let bad = builder.kernel(&kernel(device, name));
    let first = builder.add(Task::new(nop)).unwrap();
    let bad = builder.add(task(Task::new(bad).name("bad")).after(first)).unwrap();
    let behind = builder.add(Task::new(nop).after(bad)).unwrap();
    let mut beside = builder.add(Task::new(nop).after(first)).unwrap();
    for _ in 0..100 {
        beside = builder.add(Task::new(nop).after(beside)).unwrap();
    }
    (builder.build().unwrap(), [first, bad, behind, beside], Vec::new())
}

fn works(device: &Device<AnyHal>, executor: &DeviceExecutor<AnyHal>) {
    let formula = formula(device);
    executor.launch(&formula.graph).unwrap().finish(LONG).unwrap();
    assert!(formula.result.with(|result| result == bytes(&expected())));
}

use TaskState::{Complete, DependencyFailed, Failed};

#[test]
fn a_kernel_that_traps_fails_its_dependents_only() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        let (graph, tasks, _) = with_bad(&device, "task_trap", |task| task.u64(1));
        let outcome = executor.launch(&graph).unwrap().wait(LONG).unwrap();
        let states = tasks.map(|task| outcome.state(task));
        assert_eq!(states, [Complete, Failed, DependencyFailed, Complete], "{place}");
        let [(task, failure)] = outcome.failures() else { panic!("{:?}", outcome.failures()) };
        assert_eq!(*task, tasks[1]);
        let text = failure.to_string();
        assert!(text.contains("hart ") && text.contains("task_trap.c:"), "{place}: {text}");
        if place != Place::Streams {
            assert!(matches!(failure, TaskFailure::Trapped { .. }), "{place}: {failure:?}");
        }
        works(&device, &executor);
    }
}

#[test]
fn a_kernel_that_returns_an_error_fails_its_dependents_only() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        let (graph, tasks, _) =
            with_bad(&device, "task_fail", |task| task.u64((-7_i64).cast_unsigned()));
        let outcome = executor.launch(&graph).unwrap().wait(LONG).unwrap();
        let states = tasks.map(|task| outcome.state(task));
        assert_eq!(states, [Complete, Failed, DependencyFailed, Complete], "{place}");
        let (_, failure) = &outcome.failures()[0];
        if place != Place::Streams {
            assert!(matches!(failure, TaskFailure::Returned { value: -7, .. }), "{failure:?}");
        }
        works(&device, &executor);
    }
}

#[test]
fn a_kernel_that_never_ends_is_given_up_at_the_deadline() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        let word = device.alloc(64).unwrap();
        device.default_stream().fill(&word, 0).unwrap().wait(LONG).unwrap();
        let (graph, tasks, _) =
            with_bad(&device, "task_hang", |task| task.u64(1).in_out(word.whole()));
        let options = RunOptions::new().deadline(Duration::from_millis(300));
        let run = executor.launch_with(&graph, options).unwrap();
        let outcome = run.wait(LONG).unwrap();
        assert_eq!(outcome.state(tasks[0]), Complete, "{place}");
        assert_eq!(outcome.state(tasks[1]), Failed, "{place}");
        assert!(outcome.state(tasks[2]).is_final());
        let error = outcome.check().unwrap_err();
        assert!(matches!(error, RunError::Deadline { .. }), "{place}: {error}");
        works(&device, &executor);
    }
}

#[test]
fn host_functions_and_kernels_mix() {
    let device = open();
    for place in [Place::Streams, Place::Cores, Place::Auto] {
        let executor = executor(&device, place);
        let buffer = device.alloc(4 * N).unwrap();
        let data = HostData::new(bytes(&vec![1.0; N as usize]));
        let mut builder = GraphBuilder::new();
        let add_scalar = builder.kernel(&kernel(&device, "add_scalar"));
        builder.copy_in(&data, buffer.whole()).unwrap();
        let task = Task::new(add_scalar).input(buffer.whole()).output(buffer.whole()).f32(2.0);
        builder.add(task.u64(N)).unwrap();
        let result = HostData::zeroed(4 * N as usize);
        let copy = builder.copy_out(buffer.whole(), &result).unwrap();
        let sum = Arc::new(AtomicU64::new(0));
        let (its, from) = (Arc::clone(&sum), result.clone());
        let function = builder.function(move |_| {
            let total: f32 = from.with(|bytes| {
                bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).sum()
            });
            its.store(total as u64, Ordering::Relaxed);
            Ok(())
        });
        builder.add(Task::new(function).reads(&result).after(copy)).unwrap();
        executor.launch(&builder.build().unwrap()).unwrap().finish(LONG).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 3 * N, "{place}");
    }
}

#[test]
fn cancelling_a_graph_on_the_device_ends_it() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&kernel(&device, "task_nop"));
        let mut last = builder.add(Task::new(nop)).unwrap();
        for _ in 0..20_000 {
            last = builder.add(Task::new(nop).after(last)).unwrap();
        }
        let run = executor.launch(&builder.build().unwrap()).unwrap();
        run.cancel();
        let outcome = run.wait(LONG).unwrap();
        let (complete, cancelled) = (outcome.count(Complete), outcome.count(TaskState::Cancelled));
        assert_eq!(complete + cancelled, 20_001, "{place}");
        assert!(cancelled > 0 && outcome.state(last) != Complete, "{place}");
        works(&device, &executor);
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_is_launched() {
    let device = open();
    let executor = executor(&device, Place::Auto);
    let other = open();
    let foreign = formula(&other);
    assert!(matches!(executor.launch(&foreign.graph), Err(RunError::OtherDevice)));
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&kernel(&device, "task_nop"));
    builder.add(Task::new(nop).shires(1 << 9)).unwrap();
    let graph = builder.build().unwrap();
    assert!(matches!(
        executor.launch(&graph),
        Err(RunError::Device(et::Error::ShireMask { asked: 0x200, available: 3 }))
    ));
    for config in [ExecutorConfig::new().cores(64), ExecutorConfig::new().shires(4)] {
        assert!(device.executor(&config).is_err());
    }
}

#[test]
fn kernels_stay_on_their_cores() {
    let device = open();
    let executor = executor(&device, Place::Cores);
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&kernel(&device, "task_nop"));
    for _ in 0..50 {
        builder.add(Task::new(nop).cores(CoreSet::of([5]))).unwrap();
    }
    executor.launch(&builder.build().unwrap()).unwrap().finish(LONG).unwrap();
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&kernel(&device, "task_nop"));
    builder.add(Task::new(nop).cores(CoreSet::of([8]))).unwrap();
    let outcome = executor.launch(&builder.build().unwrap()).unwrap().wait(LONG).unwrap();
    assert_eq!(outcome.count(Failed), 1);
}

#[test]
fn streams_of_the_device_work_beside_executors() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        works(&device, &executor);
        // The harts are let go after a while, so that an ordinary launch finds them free.
        let launch = et::Launch::new(&kernel(&device, "task_nop"));
        device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
        works(&device, &executor);
    }
}

#[test]
fn an_executor_that_goes_ends_its_runs() {
    let device = open();
    for place in PLACES {
        let executor = executor(&device, place);
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&kernel(&device, "task_nop"));
        let mut last = builder.add(Task::new(nop)).unwrap();
        for _ in 0..5000 {
            last = builder.add(Task::new(nop).after(last)).unwrap();
        }
        let run = executor.launch(&builder.build().unwrap()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        run.on_done(move |outcome| sender.send(outcome.count(Complete)).unwrap());
        drop(executor);
        // Some tasks may have been complete by then, or all of them.
        let complete = receiver.recv_timeout(LONG).expect("the run has ended");
        assert!(complete <= 5001, "{place}");
        works(&device, &self::executor(&device, place));
    }
}

/// The copy in `et-runtime` is the one that the sources give.
#[test]
fn the_runtime_has_the_kernel_of_this_tree() {
    let root = env!("CARGO_MANIFEST_DIR");
    let ours = std::fs::read(format!("{root}/../et-runtime/src/executor/graph.elf")).unwrap();
    let built = std::fs::read(format!("{root}/../testing/kernels/elf/graph.elf")).unwrap();
    assert!(ours == built, "copy testing/kernels/elf/graph.elf to et-runtime/src/executor");
}
