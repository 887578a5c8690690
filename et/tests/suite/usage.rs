//! Buffers that are for something: what else is asked of them is refused, and whose they are.

#![expect(clippy::unwrap_used, reason = "tests")]

use crate::common::{LONG, load, open};
use et::graph::{Access, GraphBuilder, GraphError, HostData, Task};
use et::memory::{BufferOptions, UsageError, User};
use et::{AnyHal, Device, DeviceBuffer, Error, Event, Launch, ListedCopy};

const DEVICE: &str = "shires=1,dram=1GiB";
const ALL: [Access; 3] = [Access::Read, Access::Write, Access::Update];

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<UsageError> {
    match result {
        Ok(_) => None,
        Err(Error::Usage(error)) => Some(*error),
        Err(error) => panic!("{error:?}"),
    }
}

fn done(event: Result<Event, Error>) -> Result<(), Error> {
    event?.wait(LONG).map(drop)
}

/// An operation on a buffer, its name, and what it needs.
type Operation<'a> = (&'a str, Access, Box<dyn Fn(&DeviceBuffer) -> Result<(), Error> + 'a>);

/// All that the host does with a buffer of 64 bytes.
fn operations<'a>(device: &'a Device<AnyHal>, peer: &Device<AnyHal>) -> Vec<Operation<'a>> {
    let stream = device.default_stream();
    let host = || device.host_buffer(64).unwrap();
    let other = device.alloc(64).unwrap();
    let there = other.whole();
    let far = peer.alloc(64).unwrap().whole();
    let (to_peer, from_peer) = (peer.stream(), peer.stream());
    let (far_to, far_from, others) = (far.clone(), far, [there.clone(), there]);
    let [other_to, other_from] = others;
    let nop = load(device, "task_nop");
    let launch = Launch::new(&nop);
    let fails = |error: et::TransferError| error.error;
    vec![
        ("copy", Access::Write, Box::new(|b| done(stream.copy_to_device(&[1u8; 64], b)))),
        ("fill", Access::Write, Box::new(|b| done(stream.fill(b, 1)))),
        (
            "upload",
            Access::Write,
            Box::new(move |b| stream.upload(host(), b)?.wait(LONG).map(drop).map_err(fails)),
        ),
        (
            "list",
            Access::Write,
            Box::new(|b| done(stream.copy_list(&[ListedCopy::ToDevice(&[1; 64], b.whole())]))),
        ),
        ("copy here", Access::Write, Box::new(move |b| done(stream.copy_on_device(&other_to, b)))),
        (
            "from peer",
            Access::Write,
            Box::new(move |b| done(from_peer.copy_to_peer(&far_from, stream, b))),
        ),
        (
            "staged",
            Access::Write,
            Box::new(move |b| {
                let inputs = [(&[1u8; 64][..], b.whole())];
                let staged = stream.launch_staged(&inputs, &launch, &[], host())?;
                staged.wait(LONG).map(drop).map_err(fails)
            }),
        ),
        ("read", Access::Read, Box::new(|b| stream.read(b, &mut [0u8; 64], LONG))),
        (
            "read list",
            Access::Read,
            Box::new(|b| stream.read_list(&mut [(b.whole(), &mut [0; 64])], LONG)),
        ),
        (
            "download",
            Access::Read,
            Box::new(move |b| stream.download(b, host())?.wait(LONG).map(drop).map_err(fails)),
        ),
        ("copy away", Access::Read, Box::new(move |b| done(stream.copy_on_device(b, &other_from)))),
        (
            "to peer",
            Access::Read,
            Box::new(move |b| match done(stream.copy_to_peer(b, &to_peer, &far_to)) {
                Err(Error::Source { source }) => Err((*source).clone()),
                outcome => outcome,
            }),
        ),
    ]
}

#[test]
fn copies_and_fills_keep_to_what_a_buffer_is_for() {
    let (device, peer) = (open(DEVICE), open(DEVICE));
    for (name, needed, operation) in operations(&device, &peer) {
        for allowed in ALL.map(Some).into_iter().chain([None]) {
            let options = BufferOptions::new().tag("weights");
            let options = match allowed {
                Some(access) => options.host(access),
                None => options.no_host(),
            };
            let buffer = device.alloc_with(64, &options).unwrap();
            assert_eq!((buffer.access(User::Host), buffer.tag()), (allowed, Some("weights")));
            device.profiler().start();
            let refused = refusal(operation(&buffer));
            let sent = device.profiler().stop().records.len();
            if allowed == Some(Access::Update) || allowed == Some(needed) {
                assert_eq!(refused, None, "{name} with {allowed:?}");
                continue;
            }
            let error = refused.unwrap_or_else(|| panic!("{name} with {allowed:?}"));
            assert_eq!((error.user, error.wanted, error.allowed), (User::Host, needed, allowed));
            assert_eq!((error.address, error.len_bytes), (buffer.addr(), 64));
            assert!(error.to_string().contains("\"weights\", 64 bytes"), "{error}");
            assert_eq!(sent, 0, "{name}: operations that were begun");
        }
    }
}

#[test]
fn launches_keep_to_what_kernels_may_do() {
    let device = open(DEVICE);
    let (add, nop) = (load(&device, "add"), load(&device, "task_nop"));
    let stream = device.default_stream();
    let launch = |launch: Launch| refusal(done(stream.launch(&launch)));
    let builtins = device.builtins().unwrap();
    let free = device.alloc(64).unwrap();
    for allowed in ALL {
        let options = BufferOptions::new().kernels(allowed).align(4096);
        let buffer = device.alloc_with(64, &options).unwrap();
        assert!(buffer.addr().is_aligned_to(4096));
        let is_refused = |wanted: Access| allowed != Access::Update && allowed != wanted;
        // By what the launch says, by what the kernel's file says, and by the runtime's own.
        let said: [fn(Launch, &DeviceBuffer) -> Launch; 3] =
            [|l, b| l.input(b), |l, b| l.output(b), |l, b| l.in_out(b)];
        for (said, wanted) in said.into_iter().zip(ALL) {
            let refused = launch(said(Launch::new(&nop).buffer(&free), &buffer));
            let found = refused.map(|error| (error.user, error.wanted, error.allowed));
            let expected = (User::Kernels, wanted, Some(allowed));
            assert_eq!(found, is_refused(wanted).then_some(expected), "{wanted:?} {allowed:?}");
        }
        let of = |x: &DeviceBuffer, z: &DeviceBuffer| {
            launch(Launch::new(&add).buffer(x).buffer(x).buffer(z).u64(16))
        };
        assert_eq!(of(&buffer, &free).is_some(), is_refused(Access::Read));
        assert_eq!(of(&free, &buffer).is_some(), is_refused(Access::Write));
        assert_eq!(
            launch(builtins.copy(&buffer, &free).unwrap()).is_some(),
            is_refused(Access::Read)
        );
        assert_eq!(
            launch(builtins.copy(&free, &buffer).unwrap()).is_some(),
            is_refused(Access::Write)
        );
        assert_eq!(
            launch(builtins.fill(&buffer, &[1]).unwrap()).is_some(),
            is_refused(Access::Write)
        );
    }
}

#[test]
fn a_part_is_limited_for_every_slice_that_has_bytes_of_it() {
    let device = open(DEVICE);
    let nop = load(&device, "task_nop");
    let buffer = device.alloc(1024).unwrap();
    let part = |range| buffer.slice(range).unwrap();
    let writes = |range| {
        let launch = Launch::new(&nop).output(part(range));
        refusal(done(device.default_stream().launch(&launch))).map(|error| error.allowed)
    };
    part(256..512).limit(Access::Read);
    let refused = Some(Some(Access::Read));
    assert_eq!((writes(0..256), writes(512..1024)), (None, None));
    assert_eq!((writes(255..257), writes(511..512), writes(0..1024)), (refused, refused, refused));
    part(512..512).limit(Access::Read);
    assert_eq!(writes(500..600), refused);
    assert_eq!(writes(512..600), None);
    // The later one holds for all of it.
    part(200..600).limit(Access::Update);
    assert_eq!(writes(0..1024), None);
    // Copies are not kernels, and other buffers are others.
    part(0..1024).limit(Access::Read);
    device.default_stream().fill(&buffer, 1).unwrap().wait(LONG).unwrap();
    let other = device.alloc(1024).unwrap();
    assert_eq!(
        refusal(done(device.default_stream().launch(&Launch::new(&nop).output(&other)))),
        None
    );
}

#[test]
fn tasks_and_patches_keep_to_what_buffers_are_for() {
    let device = open(DEVICE);
    let read_only = BufferOptions::new().kernels(Access::Read).host(Access::Write);
    let weights = device.alloc_with(64, &read_only.tag("weights")).unwrap();
    let free = [(); 2].map(|()| device.alloc(64).unwrap());
    let mut builder = GraphBuilder::new();
    let kernel = builder.kernel(&load(&device, "task_nop"));
    let function = builder.function(|_| Ok(()));
    let refused = |result: Result<_, GraphError>| match result.unwrap_err() {
        GraphError::Usage { task, error } => (task.index(), error.user, error.wanted),
        error => panic!("{error}"),
    };
    let data = HostData::zeroed(64);
    let kernels = |access| (0, User::Kernels, access);
    assert_eq!(refused(builder.add(Task::new(kernel).output(&weights))), kernels(Access::Write));
    assert_eq!(refused(builder.add(Task::new(kernel).in_out(&weights))), kernels(Access::Update));
    let host = (0, User::Host, Access::Read);
    assert_eq!(refused(builder.copy_out(&weights, &data)), host);
    let task = || Task::new(kernel).input(&weights);
    assert_eq!(refused(builder.add(task().stage_out(&weights, &data))).1, User::Host);
    assert_eq!(refused(builder.add(task().recorded())).1, User::Host);
    assert!(builder.is_empty());
    builder.copy_in(&data, &weights).unwrap();
    builder.add(task().output(&free[0])).unwrap();
    // What host functions do is theirs.
    builder.add(Task::new(function).writes(&weights)).unwrap();
    let graph = builder.build().unwrap();
    let sealed = device.alloc_with(64, &BufferOptions::new().kernels(Access::Read)).unwrap();
    let patched = graph.patch().rebind(&free[0], &sealed).build();
    let refused = refused(patched.map(|_| unreachable!()));
    assert_eq!(refused, (1, User::Kernels, Access::Write));
    graph.patch().rebind(&free[0], &free[1]).build().unwrap();
}

#[test]
fn memory_is_counted_by_tag_and_named_when_there_is_no_more() {
    let device = open(DEVICE);
    let tags = || -> Vec<(String, u64, u64)> {
        let tags = device.memory_by_tag().into_iter();
        tags.map(|tag| (tag.tag.to_string(), tag.used_bytes, tag.buffers)).collect()
    };
    let alloc =
        |tag: &str, bytes| device.alloc_with(bytes, &BufferOptions::new().tag(tag)).unwrap();
    let before = tags();
    let weights = [alloc("weights", 100 << 20), alloc("weights", 1000)];
    let cache = alloc("cache", 200 << 20);
    let _other = device.alloc(1000).unwrap();
    assert_eq!(tags()[0], ("cache".into(), 200 << 20, 1));
    assert_eq!(tags()[1], ("weights".into(), (100 << 20) + 1000, 2));
    assert_eq!(tags().len(), before.len() + 2);
    let text = device.alloc(1 << 30).unwrap_err().to_string();
    let expected = "; in use by \"cache\" 209715200 bytes in 1 buffer, \"weights\" 104858600 bytes in 2 buffers";
    assert!(text.contains(expected), "{text}");
    let part = cache.slice(..10).unwrap();
    drop((cache, weights));
    assert_eq!(tags()[0].0, "cache", "a slice keeps it");
    drop(part);
    assert_eq!(tags(), before);
    let kernel = load(&device, "add");
    assert!(tags().iter().any(|(tag, bytes, _)| tag == "kernels" && *bytes >= kernel.len_bytes()));
}

/// What kernels do is seen by a device that checks it.
#[test]
fn a_kernel_that_writes_what_it_may_read_is_found() {
    let device = open("check=memory,shires=1,dram=1GiB");
    let options = BufferOptions::new().kernels(Access::Read);
    let buffer = device.alloc_with(64, &options).unwrap();
    let memset = Launch::new(&load(&device, "memset")).buffer(&buffer).u64(1).u64(64);
    let error = device.default_stream().launch(&memset).unwrap().wait(LONG).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}
