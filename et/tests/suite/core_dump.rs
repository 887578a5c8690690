//! Core files of failed kernels, as the interface makes them and debuggers read them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{LONG, elf, load, open, open_with};
use et::core_dump::{CoreFile, CoreFileError, CoreWriteError, DumpedRegion};
use et::status::LaunchStatus;
use et::{
    AnyHal, Config, Device, DeviceBuffer, DeviceError, Drain, Error, Launch, LaunchFailure, Stream,
    StreamError,
};

const DEVICE: &str = "shires=2,dram=1GiB";

fn fail(device: &Device<AnyHal>, launch: &Launch) -> LaunchFailure {
    let outcome = device.default_stream().launch(launch).unwrap().wait(LONG);
    outcome.unwrap_err().launch_failure().unwrap().clone()
}

fn filled(device: &Device<AnyHal>, bytes: &[u8]) -> DeviceBuffer {
    let buffer = device.alloc(bytes.len() as u64).unwrap();
    device.default_stream().copy_to_device(bytes, &buffer).unwrap().wait(LONG).unwrap();
    buffer
}

/// The bytes of an address range, found by the program headers.
fn memory(core: &[u8], address: u64, len: usize) -> Option<&[u8]> {
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap());
    let half = |at: usize| u16::from_le_bytes(core[at..at + 2].try_into().unwrap());
    let segments = (0..usize::from(half(56))).map(|index| 64 + 56 * index);
    segments.filter(|at| core[*at] == 1).find_map(|at| {
        let (offset, start, bytes) = (word(at + 8), word(at + 16), word(at + 32));
        let inside = address.checked_sub(start).filter(|skip| skip + len as u64 <= bytes)?;
        let from = usize::try_from(offset + inside).unwrap();
        Some(&core[from..from + len])
    })
}

fn region<'a>(regions: &'a [DumpedRegion], name: &str) -> &'a DumpedRegion {
    let found = regions.iter().find(|region| region.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {regions:?}"))
}

#[test]
fn a_core_has_registers_kernel_arguments_stacks_buffers_and_named_regions() {
    let device = open(DEVICE);
    let kernel = load(&device, "trap_load");
    let pattern: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let named = filled(&device, &pattern);
    let used = filled(&device, &[7; 100]);
    let launch = Launch::new(&kernel).u64(70).keep(&used).stack_bytes(8192).dumpable();
    let failure = fail(&device, &launch);
    drop((used, kernel));
    let mut file = Cursor::new(Vec::new());
    let summary = device.core_dump(&failure).region("weights", &named).write(&mut file).unwrap();
    let core = file.into_inner();
    assert_eq!(summary.bytes, core.len() as u64);
    assert_eq!(summary.harts, 1);

    assert!(memory(&core, named.addr().as_u64(), pattern.len()) == Some(&pattern), "weights");
    let used = region(&summary.regions, "buffer 0");
    assert_eq!(memory(&core, used.address, 100), Some(&[7; 100][..]));
    let arguments = region(&summary.regions, "arguments");
    assert_eq!(memory(&core, arguments.address, 8), Some(&70u64.to_le_bytes()[..]));
    let context = &failure.contexts[0];
    // The instruction that trapped: ld a0, 0(zero).
    let pc = context.pc.unwrap();
    assert_eq!(memory(&core, pc, 4), Some(&0x0000_3503u32.to_le_bytes()[..]));
    // The return address of the caller is on the stack, near the stack pointer.
    let stack = region(&summary.regions, "stack of hart 70");
    let sp = context.gpr.as_ref().unwrap()[1];
    assert!((stack.address..stack.address + stack.bytes).contains(&sp), "{sp:#x} {stack:?}");
    let frame = memory(&core, sp, 16).unwrap();
    let saved = u64::from_le_bytes(frame[8..].try_into().unwrap());
    assert_eq!(failure.location(context).unwrap().symbol.unwrap().0, "load_from_null");
    assert!(saved.abs_diff(pc) < 0x1000, "{saved:#x}");

    // Read back, it is the same failure.
    let read = CoreFile::read(Cursor::new(&core)).unwrap();
    let report = format!("{failure:#}");
    let (of_harts, _) = report.split_once("\nmessages of the firmware:").unwrap();
    assert_eq!(format!("{:#}", read.failure), of_harts);
    assert_eq!(read.failure.contexts, failure.contexts);
    assert_eq!(read.shires, 0b11);
    assert_eq!(&*read.kernel, elf("trap_load"));
    assert_eq!(read.regions.len(), summary.regions.len());
}

#[test]
fn memory_is_kept_for_dumpable_launches_only_and_freed_with_their_report() {
    // Much more than what the runtime itself takes for launches.
    const LARGE: u64 = 64 << 20;
    let device = open(DEVICE);
    let is_kept = || device.memory_stats().used_bytes >= LARGE;
    let kernel = load(&device, "trap_load");
    let launch = || {
        let buffer = device.alloc(LARGE).unwrap();
        Launch::new(&kernel).keep(&buffer)
    };
    let report = fail(&device, &launch());
    assert!(!is_kept());
    drop(report);
    let report = fail(&device, &launch().dumpable());
    assert!(is_kept());
    drop(report);
    assert!(!is_kept());
}

#[test]
fn the_core_that_a_launch_asks_for_is_there_when_its_event_fails() {
    const LARGE: usize = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    for drain in [Drain::Thread, Drain::Caller] {
        let device = open_with(DEVICE, Config::new().drain(drain));
        let kernel = load(&device, "trap_load");
        let path = folder.path().join(format!("{drain:?}.core"));
        let fails = |launch: Launch| {
            let buffer = filled(&device, &vec![7; LARGE]);
            let launch = launch.u64(70).keep(&buffer).stack_bytes(8192).core_dump(&path);
            (fail(&device, &launch), buffer.addr().as_u64())
        };
        let (failure, buffer) = fails(Launch::new(&kernel));
        let core = std::fs::read(&path).unwrap();
        let summary = failure.core_file().unwrap();
        assert_eq!((summary.bytes, summary.harts), (core.len() as u64, 1));
        assert!(summary.regions.iter().all(|region| region.error.is_none()), "{summary:?}");
        assert!(memory(&core, buffer, LARGE).unwrap().iter().all(|byte| *byte == 7));
        let read = CoreFile::read(Cursor::new(&core)).unwrap();
        assert_eq!(read.failure.contexts, failure.contexts);
        region(&summary.regions, "stack of hart 70");
        // What was kept for the file goes with it, as soon as the thread that told of the failure
        // is done, and nothing went wrong that is not told.
        let is_kept = || device.memory_stats().used_bytes >= LARGE as u64;
        let goes = || {
            let until = Instant::now() + LONG;
            while is_kept() {
                assert!(Instant::now() < until, "it is kept");
                std::thread::yield_now();
            }
        };
        goes();
        let (report, _) = fails(Launch::new(&kernel).dumpable());
        assert!(is_kept());
        drop(report);
        goes();
        assert!(device.take_errors().is_empty());
        std::fs::remove_file(&path).unwrap();
        let good = Launch::new(&load(&device, "task_nop")).core_dump(&path);
        device.default_stream().launch(&good).unwrap().wait(LONG).unwrap();
        assert!(!path.exists());
    }
}

/// One that ran leaves a core, with where its harts were; one that never ran has none to leave.
#[test]
fn an_aborted_kernel_leaves_a_core() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(DEVICE);
    let buffer = filled(&device, &[7; 4096]);
    let [ran, waited] = ["ran", "waited"].map(|name| folder.path().join(name));
    let kernel = load(&device, "hang");
    let launch = |stream: &Stream<AnyHal>, path| {
        let launch = Launch::new(&kernel).keep(&buffer).stack_bytes(4096).core_dump(path);
        stream.launch(&launch).unwrap()
    };
    let (stream, other) = (device.stream(), device.stream());
    let running = launch(&stream, &ran);
    other.wait_for(&running);
    let waiting = launch(&other, &waited);
    device.request_abort(&waiting).unwrap();
    assert!(matches!(waiting.wait(LONG), Err(Error::Aborted { .. })) && !waited.exists());
    device.abort(&running, LONG).unwrap();
    // On a busy machine it may have been aborted before it was started.
    let failure = (0..10)
        .map(|n| (Duration::from_millis(1 << n), launch(&stream, &ran)))
        .find_map(|(moment, running)| {
            assert!(matches!(running.wait(moment), Err(Error::Timeout { .. })));
            device.abort(&running, LONG).unwrap();
            running.wait(LONG).unwrap_err().launch_failure().cloned()
        })
        .expect("no kernel was started");
    let core = std::fs::read(&ran).unwrap();
    let summary = failure.core_file().unwrap();
    assert_eq!(summary.harts, failure.contexts.len());
    let context = &failure.contexts[0];
    assert!(context.pc.is_some() && context.gpr.is_some(), "{context:?}");
    let place = failure.location(context).unwrap().symbol.unwrap();
    assert!(kernel.name().contains("hang") && !place.0.is_empty(), "{place:?}");
    assert_eq!(memory(&core, buffer.addr().as_u64(), 4096), Some(&[7; 4096][..]));
    let read = CoreFile::read(Cursor::new(&core)).unwrap();
    assert_eq!(read.failure.contexts, failure.contexts);
    assert_eq!(read.failure.status, LaunchStatus::HostAborted);
}

#[test]
fn a_core_that_a_launch_asks_for_in_vain_is_listed_beside_the_failure() {
    let device = open(DEVICE);
    let kernel = load(&device, "trap_load");
    let (send, heard) = std::sync::mpsc::channel();
    device.on_error(move |error| send.send(error.clone()).unwrap());
    let stream = device.stream();
    for (path, kind) in [
        ("/does/not/exist", std::io::ErrorKind::NotFound),
        ("/dev/full", std::io::ErrorKind::StorageFull),
    ] {
        let event = stream.launch(&Launch::new(&kernel).core_dump(path)).unwrap();
        let error = event.wait(LONG).unwrap_err();
        let failure = error.launch_failure().unwrap();
        assert!(!failure.contexts.is_empty() && failure.core_file().is_none(), "{failure}");
        let DeviceError::Stream { stream: of, error } = heard.recv_timeout(LONG).unwrap() else {
            panic!("it is of a stream")
        };
        assert_eq!(of, stream.id());
        for error in [error].into_iter().chain(stream.take_errors().errors) {
            let StreamError::NotDumped { operation, path: at, error, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((*operation, &**at), (event.id(), Path::new(path)));
            let CoreWriteError::File(error) = error else { panic!("{error}") };
            assert_eq!(error.kind(), kind);
        }
        assert!(stream.take_errors().is_empty());
    }
}

#[test]
fn closing_the_device_waits_for_the_cores_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(DEVICE);
    let kernel = load(&device, "trap_load");
    let buffer = filled(&device, &[7; 4 << 20]);
    let paths: Vec<_> = (0..5).map(|n| folder.path().join(n.to_string())).collect();
    for path in &paths {
        let launch = Launch::new(&kernel).keep(&buffer).core_dump(path);
        drop(device.stream().launch(&launch).unwrap());
    }
    device.close();
    for path in &paths {
        let core = CoreFile::read(std::fs::File::open(path).unwrap()).unwrap();
        assert!(core.regions.iter().all(|region| region.error.is_none()), "{:?}", core.regions);
    }
}

#[test]
fn what_cannot_be_read_is_left_out_and_the_rest_is_there() {
    let device = open(DEVICE);
    let kernel = load(&device, "trap_load");
    let buffer = filled(&device, &[1; 4096]);
    let failure = fail(&device, &Launch::new(&kernel).u64(3));
    // To another device the region means nothing, as to one that was reset.
    let other = open(DEVICE);
    let mut file = Cursor::new(Vec::new());
    let summary = other.core_dump(&failure).region("far", &buffer).write(&mut file).unwrap();
    let far = region(&summary.regions, "far");
    assert_eq!((far.bytes, far.written), (4096, 0));
    assert!(far.error.is_some());
    let core = file.into_inner();
    let pc = failure.contexts[0].pc.unwrap();
    assert_eq!(memory(&core, pc, 4), Some(&0x0000_3503u32.to_le_bytes()[..]));
    let read = CoreFile::read(Cursor::new(&core)).unwrap();
    assert!(read.regions.iter().any(|region| region.name == "far" && region.error.is_some()));
}

/// A disk that is full after so many bytes.
struct Full(Cursor<Vec<u8>>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.get_ref().len() + bytes.len() > self.1 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_core_that_cannot_be_written_is_an_error_and_no_core() {
    let device = open(DEVICE);
    let kernel = load(&device, "trap_load");
    let buffer = filled(&device, &[1; 1 << 20]);
    let failure = fail(&device, &Launch::new(&kernel).dumpable());
    for room in [0, 300, 100_000] {
        let mut file = Full(Cursor::new(Vec::new()), room);
        let dump = device.core_dump(&failure).region("buffer", &buffer);
        let error = dump.write(&mut file).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(CoreFile::read(file.0).is_err());
    }
    // The device is as it was.
    let mut file = Cursor::new(Vec::new());
    device.core_dump(&failure).region("buffer", &buffer).write(&mut file).unwrap();
    assert!(failure.to_string().contains("hart 0"), "{failure}");
}

#[test]
fn damaged_core_files_are_refused_without_a_panic() {
    let device = open(DEVICE);
    let failure = fail(&device, &Launch::new(&load(&device, "trap_load")));
    let mut file = Cursor::new(Vec::new());
    device.core_dump(&failure).write(&mut file).unwrap();
    let core = file.into_inner();
    let refused = |bytes: &[u8]| CoreFile::read(Cursor::new(bytes)).unwrap_err();
    assert!(matches!(refused(b""), CoreFileError::NotACore));
    assert!(matches!(refused(&elf("add")), CoreFileError::NotACore));
    for len in (0..core.len()).step_by(7) {
        refused(&core[..len]);
    }
    // Every byte of headers and notes changed; what is left decides.
    for at in (0..core.len()).filter(|at| *at < 300 || core.len() - at < 1500) {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = core.clone();
            bad[at] ^= flip;
            if let Ok(read) = CoreFile::read(Cursor::new(&bad)) {
                let _ = format!("{:#}", read.failure);
            }
        }
    }
}

/// What the real debugger shows; `None` without one.
fn gdb(folder: &Path, bias: u64) -> Option<String> {
    let symbols = format!("symbol-file -o {bias:#x} {}", folder.join("kernel.elf").display());
    let output = Command::new("gdb-multiarch")
        .args(["-nx", "-batch", "-c"])
        .arg(folder.join("core"))
        .args(["-ex", &symbols, "-ex", "bt", "-ex", "info threads", "-ex", "x/i $pc"])
        .output();
    let Ok(output) = output else {
        eprintln!("skipped, because gdb-multiarch is not installed");
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_debugger_shows_function_line_and_callers_of_a_kernel_that_was_moved() {
    let device = open(DEVICE);
    // Something is where the kernel was linked to.
    let _before = device.alloc(1 << 20).unwrap();
    let kernel = load(&device, "trap_load");
    let all = Launch::new(&kernel).u64(u64::MAX).stack_bytes(4096).dumpable();
    let failure = fail(&device, &all);
    assert_eq!(failure.contexts.len(), 128);
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("core")).unwrap();
    device.core_dump(&failure).write(file).unwrap();
    let core = std::fs::File::open(folder.path().join("core")).unwrap();
    let read = CoreFile::read(core).unwrap();
    assert_ne!(read.bias, 0);
    std::fs::write(folder.path().join("kernel.elf"), &read.kernel).unwrap();
    let Some(shown) = gdb(folder.path(), read.bias) else { return };
    for part in [
        "Core was generated by `trap_load'",
        "Segmentation fault",
        "#0  load_from_null () at src/trap_load.c:19",
        "in entry_point (",
        "trap_load.c:27",
        "in _start ()",
        "LWP 127",
        "ld\ta0,0(zero)",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // Hart 0 goes by another number.
    assert!(shown.contains("LWP 65536"), "{shown}");
    let threads = shown.lines().filter(|line| line.contains(" LWP ") && line.contains("trap_load"));
    assert_eq!(threads.count(), 128, "{shown}");
}
