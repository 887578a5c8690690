//! The checker of the simulator: kernels that leave their buffers fail, and say where.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{LONG, load, open};
use et::executor::{ExecutorConfig, Place};
use et::graph::{GraphBuilder, Task};
use et::kernel::{Access, MemoryFault, Violation};
use et::{Device, Error, Launch, LaunchFailure};

fn checked(memory: &str) -> Device {
    open(&format!("check=memory,shires=1,dram=1GiB,memory={memory}"))
}

/// Has a kernel write one byte; returns how that failed.
fn write(device: &Device, address: u64) -> Option<std::sync::Arc<LaunchFailure>> {
    let kernel = load(device, "memset");
    let launch = Launch::new(&kernel).u64(address).u64(1).u64(1);
    match device.default_stream().launch(&launch).unwrap().wait(LONG) {
        Ok(_) => None,
        Err(Error::Launch(failure)) => Some(failure),
        Err(error) => panic!("{error:?}"),
    }
}

fn store(violation: Violation) -> MemoryFault {
    MemoryFault { violation, access: Access::Store, bytes: 1 }
}

/// Returns what was found, and the message.
fn found(failure: Option<std::sync::Arc<LaunchFailure>>) -> (MemoryFault, u64, String) {
    let failure = failure.expect("the launch fails");
    let [context] = &failure.contexts[..] else { panic!("{failure:?}") };
    let (fault, address) = context.memory_fault().expect("the checker's finding");
    (fault, address, failure.to_string())
}

#[test]
fn writes_outside_of_every_buffer_are_found() {
    for memory in ["flat", "private", "weak"] {
        let device = checked(memory);
        // Neighbours, if nothing keeps them apart.
        let buffers = [1024, 1024, 1000].map(|len| device.alloc(len).unwrap());
        let start = buffers[1].addr().as_u64();
        assert!(write(&device, start).is_none() && write(&device, start + 1023).is_none());
        for (address, place) in [
            (start + 1024, "right after the end of"),
            (start + 1036, "12 bytes after the end of"),
            (start - 1, "1 byte before"),
        ] {
            let (fault, at, text) = found(write(&device, address));
            assert_eq!((fault, at), (store(Violation::Outside), address));
            let buffer = format!("{place} the buffer of 1024 bytes at {start:#x}");
            assert!(text.contains("out of bounds: store of 1 byte"), "{text}");
            assert!(text.contains(&buffer), "{text}");
            assert!(text.contains("in et_task+") && text.contains("memset.c:"), "{text}");
        }
        let (fault, ..) = found(write(&device, start + (512 << 20)));
        assert_eq!(fault, store(Violation::Outside));
    }
}

#[test]
fn harts_that_do_the_same_are_one_group() {
    let device = checked("flat");
    let kernel = load(&device, "memset");
    let buffer = device.alloc(64).unwrap();
    let address = buffer.addr().as_u64() + (512 << 20);
    let launch = Launch::new(&kernel).u64(address).u64(1).u64(64 * 64);
    let launched = device.default_stream().launch(&launch).unwrap();
    let Err(Error::Launch(failure)) = launched.wait(LONG) else { panic!("it left its buffer") };
    assert_eq!(failure.groups().first().unwrap().harts.len(), 64);
}

#[test]
fn memory_is_known_to_be_freed() {
    let device = checked("flat");
    let buffer = device.alloc(4096).unwrap();
    let address = buffer.addr().as_u64();
    assert!(write(&device, address).is_none());
    drop(buffer);
    // Would have its place, if that was not kept for a while.
    let other = device.alloc(4096).unwrap();
    assert!(write(&device, other.addr().as_u64()).is_none());
    let (fault, at, text) = found(write(&device, address + 8));
    assert_eq!((fault, at), (store(Violation::Freed), address + 8));
    let buffer = format!("at byte 8 of the freed buffer of 4096 bytes at {address:#x}");
    assert!(text.contains("use after free: store of 1 byte") && text.contains(&buffer), "{text}");
}

#[test]
fn code_is_read_only() {
    let device = checked("flat");
    let victim = load(&device, "add");
    let address = victim.load_address().as_u64();
    let (fault, at, _) = found(write(&device, address));
    assert_eq!((fault, at), (store(Violation::ReadOnly), address));
    // A file with variables has both: those can be written.
    let variables = load(&device, "bss");
    let end = variables.load_address().as_u64() + variables.len_bytes();
    assert!(write(&device, end - 1).is_none());
    assert!(write(&device, variables.load_address().as_u64()).is_some());
}

#[test]
fn what_the_firmware_writes_for_the_runtime_is_read_only() {
    let device = checked("flat");
    let kernel = load(&device, "trap_illegal");
    // It traps with the address of its arguments in a0: the state of failed harts lies behind.
    let launched = device.default_stream().launch(&Launch::new(&kernel).u64(0)).unwrap();
    let Err(Error::Launch(failure)) = launched.wait(LONG) else { panic!("it does not trap") };
    let hart = failure.contexts.first().unwrap();
    let args = hart.gpr.as_ref().unwrap()[9];
    assert_eq!(hart.memory_fault(), None);
    let (fault, ..) = found(write(&device, args + 4096));
    assert_eq!(fault, store(Violation::ReadOnly));
}

#[test]
fn memory_that_was_never_written_is_not_read() {
    for memory in ["flat", "private", "weak"] {
        let device = checked(memory);
        let kernel = load(&device, "add");
        let [x, y, z] = [256, 256, 256].map(|len| device.alloc(len).unwrap());
        let stream = device.default_stream();
        stream.copy_to_device(&[0_u8; 256], &x).unwrap().wait(LONG).unwrap();
        stream.copy_to_device(&[0_u8; 248], y.slice(..248).unwrap()).unwrap().wait(LONG).unwrap();
        let launch = Launch::new(&kernel).buffer(&x).buffer(&y).buffer(&z).u64(64);
        let launched = stream.launch(&launch).unwrap();
        let Err(Error::Launch(failure)) = launched.wait(LONG) else { panic!("y has no end") };
        let (fault, address, text) = found(Some(failure));
        let (violation, access) = (Violation::Unwritten, Access::Load);
        assert_eq!(fault, MemoryFault { violation, access, bytes: 4 });
        assert_eq!(address, y.addr().as_u64() + 248);
        assert!(text.contains("read of uninitialised memory: load of 4 bytes"), "{text}");
        stream.copy_to_device(&[0_u8; 8], y.slice(248..).unwrap()).unwrap().wait(LONG).unwrap();
        stream.launch(&launch).unwrap().wait(LONG).unwrap();
    }
}

#[test]
fn tasks_of_graphs_are_checked_in_every_place() {
    let device = open("check=memory,cpu-access=yes,shires=1,dram=1GiB");
    let kernel = load(&device, "memset");
    for place in [Place::Streams, Place::Cores, Place::Resident] {
        let executor = device.executor(&ExecutorConfig::new().place(place)).unwrap();
        let buffer = device.alloc(256).unwrap();
        let run = |len| {
            let mut builder = GraphBuilder::new();
            let memset = builder.kernel(&kernel);
            builder.add(Task::new(memset).output(buffer.whole()).u64(1).u64(len)).unwrap();
            let outcome = executor.launch(&builder.build().unwrap()).unwrap().wait(LONG).unwrap();
            outcome.check()
        };
        run(256).unwrap();
        let error = run(257).unwrap_err();
        let text = format!("{error:?}");
        let found = "right after the end of the buffer of 256 bytes";
        assert!(text.contains(found), "{place}: {text}");
    }
}

#[test]
fn without_the_option_nothing_is_checked() {
    let device = open("shires=1,dram=1GiB");
    let buffer = device.alloc(1000).unwrap();
    assert!(write(&device, buffer.addr().as_u64() + 1000).is_none());
}
