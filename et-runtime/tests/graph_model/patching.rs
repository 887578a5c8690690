//! Patches of graphs.

use et_runtime::KernelArgs;
use et_runtime::graph::{Graph, GraphBuilder, GraphError, HostData, Patch, Region, Task};

use super::{addresses, builder, device, id};

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
