//! What every card must be able to do.

use et::executor::{ExecutorConfig, Place};
use et::graph::{GraphBuilder, HostData, Task};
use et::hal::{DeviceAccess, Pages};
use et::kernel::{Cause, ExceptionKind};
use et::{AnyHal, Device, Error, Launch};

use crate::common::{LONG, load};

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 37 + i / 4096) % 251).unwrap()).collect()
}

/// Copies both ways, through staging and directly, to the odd ends of buffers.
pub(crate) fn copies(device: &Device<AnyHal>) {
    let stream = device.default_stream();
    for len in [1_usize, 13, 4095, 4097, 262_145, 8 << 20] {
        let start = 8 * (len as u64 % 5);
        let buffer = device.alloc(start + len as u64).unwrap();
        let target = buffer.slice(start..).unwrap();
        let data = pattern(len);
        let _ = stream.copy_to_device(&data, &target).unwrap();
        let mut back = vec![0; len];
        stream.read(&target, &mut back, LONG).unwrap();
        assert!(back == data, "{len} bytes through staging");

        let mut host = device.host_buffer(len).unwrap();
        host.copy_in(0, &data).unwrap();
        host.fill(len / 2, len - len / 2, 0x5a).unwrap();
        let mut expected = data;
        expected[len / 2..].fill(0x5a);
        let _host = stream.upload(host, &target).unwrap().wait(LONG).unwrap();
        let host = device.host_buffer(len).unwrap();
        let host = stream.download(&target, host).unwrap().wait(LONG).unwrap();
        host.copy_out(0, &mut back).unwrap();
        assert!(back == expected, "{len} bytes directly");

        let pages = Pages::zeroed(len, device.import_granule().unwrap()).unwrap();
        let lent = device.import_mut(pages, DeviceAccess::ReadWrite).unwrap();
        assert!(lent.is_zero_copy());
        let lent = stream.download(&target, lent).unwrap().wait(LONG).unwrap();
        let pages: Pages = lent.into_owner().unwrap();
        assert!(pages[..len] == expected, "{len} bytes to memory of the caller");
    }
}

/// y = 2.5 x + y, on all harts.
pub(crate) fn saxpy(device: &Device<AnyHal>) {
    let kernel = load(device, "saxpy");
    let stream = device.default_stream();
    let x: Vec<f32> = (0..3001_u16).map(f32::from).collect();
    let buffers = [(); 2].map(|()| device.alloc(4 * 3001).unwrap());
    for buffer in &buffers {
        let _ = stream.copy_to_device(&x, buffer).unwrap();
    }
    let launch = Launch::new(&kernel).buffer(&buffers[0]).buffer(&buffers[1]).f32(2.5).u64(3001);
    stream.launch(&launch).unwrap().wait(LONG).unwrap();
    let mut y = vec![0.0_f32; 3001];
    stream.read(&buffers[1], &mut y, LONG).unwrap();
    assert!(y.iter().zip(&x).all(|(y, x)| *y == 2.5 * x + x));
}

/// A kernel that fails on one hart is reported, and the next one runs.
pub(crate) fn failing_kernel(device: &Device<AnyHal>) {
    let kernel = load(device, "trap_load");
    let outcome = device.default_stream().launch(&Launch::new(&kernel).u64(70)).unwrap().wait(LONG);
    let Err(Error::Launch(failure)) = outcome else { panic!("{outcome:?}") };
    let [hart] = &failure.contexts[..] else { panic!("{failure:#}") };
    assert_eq!(hart.hart_id, 70);
    let cause = ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval: 0 };
    assert_eq!(hart.kind, cause);
    saxpy(device);
}

/// (a + 1)(a + 2) as a graph, in these places of the device.
pub(crate) fn graphs(device: &Device<AnyHal>, places: &[Place]) {
    const N: u16 = 2000;
    for &place in places {
        let bytes = 4 * u64::from(N);
        let executor = device.executor(&ExecutorConfig::new().place(place).cores(8)).unwrap();
        let [a, p, q, f] = [(); 4].map(|()| device.alloc(bytes).unwrap());
        let values: Vec<u8> = (0..N).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        let result = HostData::zeroed(4 * usize::from(N));
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&load(device, "add_scalar"));
        let mul = builder.kernel(&load(device, "mul"));
        builder.copy_in(&HostData::new(values), a.whole()).unwrap();
        for (to, by) in [(&p, 1.0), (&q, 2.0)] {
            let task = Task::new(add).input(a.whole()).output(to.whole()).f32(by).u64(N.into());
            builder.add(task).unwrap();
        }
        let task = Task::new(mul).input(p.whole()).input(q.whole()).output(f.whole());
        builder.add(task.u64(N.into()).stage_out(f.whole(), &result)).unwrap();
        let graph = builder.build().unwrap();
        for _ in 0..2 {
            let outcome = executor.launch(&graph).unwrap().finish(LONG).unwrap();
            assert!(place == Place::Auto || outcome.place() == place.name());
            let is_right = result.with(|bytes| {
                let results =
                    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
                results.zip((0..N).map(f32::from)).all(|(f, a)| f == (a + 1.0) * (a + 2.0))
            });
            assert!(is_right, "{place}");
        }
    }
}

/// All that needs no mapped BAR.
pub(crate) fn everything(device: &Device<AnyHal>) {
    copies(device);
    saxpy(device);
    failing_kernel(device);
    graphs(device, &[Place::Streams, Place::Resident, Place::Auto]);
}
