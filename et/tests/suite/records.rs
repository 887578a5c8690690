//! Tasks that are recorded: what they got and left, and that it is enough to run them again.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use crate::common::{LONG, elf, load, load as load_kernel, open};
use et::executor::{
    ExecutorConfig, Outcome, Place, RecordError, RegionRecord, RunError, TaskRecord, TaskState,
};
use et::graph::{Access, Graph, GraphBuilder, Task};
use et::{AnyHal, Device, DeviceBuffer, Kernel, KernelArgs};

const DEVICE: &str = "shires=1,dram=1GiB,cpu-access=yes";
const N: usize = 100;
const WORDS: u64 = N as u64;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn filled(device: &Device<AnyHal>, words: &[u64]) -> DeviceBuffer {
    let buffer = device.alloc(8 * words.len() as u64).unwrap();
    device.default_stream().copy_to_device(words, &buffer).unwrap().wait(LONG).unwrap();
    buffer
}

/// What `task_rmw` does to all words but the first ten, which it only reads.
fn rmw(words: &mut [u64], key: u64) {
    let mut hash = 0x243f_6a88_85a3_08d3_u64;
    for word in &words[..10] {
        hash = (hash ^ word).rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for (i, word) in (0..).zip(words).skip(10) {
        *word = word.rotate_left(13) ^ hash.wrapping_add(key).wrapping_add(i);
    }
}

/// Three tasks that change the same words, the one in the middle recorded.
fn three(device: &Device<AnyHal>, buffer: &DeviceBuffer) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&load(device, "task_rmw"));
    for key in [1, 2, 3] {
        let task = Task::new(function).in_out(buffer).u64(10).u64(WORDS - 10).u64(key);
        let task = task.u64(0).u64(10).shires(1);
        builder.add(if key == 2 { task.name("middle").recorded() } else { task }).unwrap();
    }
    builder.build().unwrap()
}

fn run(device: &Device<AnyHal>, place: Place, graph: &Graph) -> std::sync::Arc<Outcome> {
    let executor = device.executor(&ExecutorConfig::new().place(place)).unwrap();
    executor.launch(graph).unwrap().wait(LONG).unwrap()
}

#[test]
fn a_record_has_what_its_task_got_and_left_in_that_run() {
    let device = open(DEVICE);
    for place in [Place::Streams, Place::Cores, Place::Auto] {
        let mut words: Vec<u64> = (0..WORDS).collect();
        let buffer = filled(&device, &words);
        let graph = three(&device, &buffer);
        let outcomes = [(); 2].map(|()| run(&device, place, &graph));
        for outcome in outcomes {
            outcome.check().unwrap();
            rmw(&mut words, 1);
            let before = bytes(&words);
            rmw(&mut words, 2);
            let [record] = outcome.records() else { panic!("{:?}", outcome.records()) };
            assert_eq!((record.name.as_deref(), &*record.function), (Some("middle"), "task_rmw"));
            assert_eq!((record.state, record.shires), (TaskState::Complete, Some(1)));
            let address = buffer.addr().as_u64();
            assert_eq!(record.args, bytes(&[address, 10, WORDS - 10, 2, 0, 10]));
            let [region] = &record.regions[..] else { panic!("{:?}", record.regions) };
            assert_eq!((region.address, region.len_bytes), (address, 8 * WORDS));
            assert_eq!(region.access, Access::Update);
            assert!(region.before.as_deref() == Some(&before[..]), "before, at {place}");
            assert!(region.after == Some(bytes(&words)), "after, at {place}");
            rmw(&mut words, 3);
        }
    }
    let graph = three(&device, &filled(&device, &[0; N]));
    let resident = device.executor(&ExecutorConfig::new().place(Place::Resident)).unwrap();
    let refused = resident.launch(&graph).unwrap_err();
    assert!(matches!(refused, RunError::Unsupported { .. }), "{refused}");
}

#[test]
fn a_task_that_fails_leaves_what_it_got_and_those_behind_it_nothing() {
    let device = open(DEVICE);
    let [x, y] = [3, 4].map(|word| filled(&device, &[word; 8]));
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&load(&device, "task_trap"));
    let task = |armed| Task::new(function).u64(armed).recorded();
    builder.add(task(1).reads(&x).writes(&y)).unwrap();
    builder.add(task(0).reads(&y)).unwrap();
    let outcome = run(&device, Place::Cores, &builder.build().unwrap());
    let [first, second] = outcome.records() else { panic!("{:?}", outcome.records()) };
    assert_eq!(first.state, TaskState::Failed);
    assert_eq!(second.state, TaskState::DependencyFailed);
    let region = |record: &TaskRecord, at: usize| {
        let RegionRecord { access, before, after, .. } = record.regions[at].clone();
        (access, before, after)
    };
    assert_eq!(region(first, 0), (Access::Read, Some(bytes(&[3; 8])), None));
    assert_eq!(region(first, 1), (Access::Write, None, None));
    assert_eq!(region(second, 0), (Access::Read, None, None));
}

/// Runs the task of a record again, on a device where its addresses are others.
fn again(record: &TaskRecord, kernel: &str) -> Result<TaskRecord, RecordError> {
    let device = open(DEVICE);
    let _before = device.alloc(12_345).unwrap();
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&load(&device, kernel));
    record.replay(&device, &mut builder, function)?;
    let outcome = run(&device, Place::Auto, &builder.build().unwrap());
    outcome.check().unwrap();
    Ok(outcome.records()[0].clone())
}

#[test]
fn a_record_that_was_saved_runs_again_with_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(DEVICE);
    let buffer = filled(&device, &(7..7 + WORDS).collect::<Vec<_>>());
    let record = run(&device, Place::Auto, &three(&device, &buffer)).records()[0].clone();
    record.save(folder.path()).unwrap();
    let loaded = TaskRecord::load(folder.path()).unwrap();
    assert_eq!(loaded, record);
    let replayed = again(&loaded, "task_rmw").unwrap();
    assert_ne!(replayed.regions[0].address, record.regions[0].address);
    assert!(replayed.regions[0].after.is_some());
    assert!(replayed.regions[0].after == record.regions[0].after);

    // Three regions, two of which overlap: c = a + b, where b begins inside a.
    let values: Vec<u64> = (0..64).map(|n| u64::from((n as f32).to_bits()) << 32).collect();
    let (ab, c) = (filled(&device, &values), filled(&device, &[0; 32]));
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&load(&device, "add"));
    let task = Task::new(function).input(ab.slice(..256).unwrap());
    let task = task.input(ab.slice(64..320).unwrap()).output(&c).u64(64);
    builder.add(task.recorded()).unwrap();
    let record = run(&device, Place::Auto, &builder.build().unwrap()).records()[0].clone();
    let replayed = again(&record, "add").unwrap();
    let sum = record.regions[2].after.clone().unwrap();
    assert_eq!(&sum[4..8], &8.0f32.to_le_bytes());
    assert_eq!(replayed.regions[2].after, Some(sum));
}

/// `add_scalar`, which says that its arguments are numbers of 4 bytes, seven of them.
fn seven_numbers(device: &Device<AnyHal>) -> Kernel {
    let (ours, its) = (
        b"a:u32,b:u32,c:u32,d:u32,e:u32,f:u32,g:u32",
        b"x: in f32[], z: out f32[], s: f32, n: u64",
    );
    let mut file = elf("add_scalar");
    let at = file.windows(its.len()).position(|bytes| bytes == its).unwrap();
    file[at..at + ours.len()].copy_from_slice(ours);
    device.load_kernel("seven", &file).unwrap()
}

#[test]
fn arguments_that_are_no_whole_words_stay_as_long_as_they_are() {
    let device = open(DEVICE);
    for place in [Place::Streams, Place::Cores, Place::Resident] {
        let mut builder = GraphBuilder::new();
        let function = builder.kernel(&seven_numbers(&device));
        let args = KernelArgs::new().bytes(&[0; 28], 4);
        builder.add(Task::new(function).args(args).recorded()).unwrap();
        let outcome = run(&device, place, &builder.build().unwrap());
        assert!(outcome.is_success(), "{place}: {:?}", outcome.failures());
        let record = &outcome.records()[0];
        assert_eq!(record.args.len(), 28);
        let mut builder = GraphBuilder::new();
        let function = builder.kernel(&seven_numbers(&device));
        record.replay(&device, &mut builder, function).unwrap();
        assert!(run(&device, place, &builder.build().unwrap()).is_success());
    }
}

#[test]
fn records_that_are_damaged_or_incomplete_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let device = open(DEVICE);
    let buffer = filled(&device, &[5; N]);
    let mut record = run(&device, Place::Auto, &three(&device, &buffer)).records()[0].clone();
    let load = || TaskRecord::load(folder.path()).unwrap_err();
    assert!(matches!(load(), RecordError::File { file, .. } if file == "record.json"));
    record.save(folder.path()).unwrap();
    std::fs::write(path("0.before"), [0; 7]).unwrap();
    assert!(matches!(load(), RecordError::Malformed { file, .. } if file == "0.before"));
    std::fs::remove_file(path("0.after")).unwrap();
    std::fs::write(path("0.before"), [0; 8 * N]).unwrap();
    assert!(matches!(load(), RecordError::File { file, .. } if file == "0.after"));
    let index = std::fs::read_to_string(path("record.json")).unwrap();
    for (from, to) in [("\"version\": 1", "\"version\": 2"), ("update", "x"), ("complete", "x")] {
        assert!(index.contains(from), "{from}");
        std::fs::write(path("record.json"), index.replace(from, to)).unwrap();
        assert!(matches!(load(), RecordError::Malformed { .. }), "{from}");
    }
    // Nothing at an address, and more than there are addresses.
    std::fs::write(path("record.json"), &index).unwrap();
    let mut odd = record.clone();
    odd.regions[0].before = Some(Vec::new());
    odd.regions[0].after = None;
    odd.regions[0].len_bytes = 0;
    odd.save(folder.path()).unwrap();
    let odd = TaskRecord::load(folder.path()).unwrap();
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&load_kernel(&device, "task_rmw"));
    odd.replay(&device, &mut builder, function).unwrap();
    let mut odd = record.clone();
    for (address, len_bytes) in [(u64::MAX, 1), (u64::MAX - 1, u64::MAX), (8, u64::MAX)] {
        (odd.regions[0].address, odd.regions[0].len_bytes) = (address, len_bytes);
        let refused = odd.replay(&device, &mut builder, function).unwrap_err();
        assert!(
            matches!(refused, RecordError::Malformed { .. } | RecordError::Device(_)),
            "{refused}"
        );
    }
    let nowhere = record.save(Path::new("/dev/null/x")).unwrap_err();
    assert!(matches!(nowhere, RecordError::File { .. }));
    record.regions[0].before = None;
    let address = record.regions[0].address;
    let refused = again(&record, "task_rmw").unwrap_err();
    assert!(matches!(refused, RecordError::Incomplete { address: at } if at == address));
}
