//! Arrays in device memory are counted in elements, and go where buffers go.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use et_hal_sim::SimHal;
use et_runtime::{ArraySlice, Device, DeviceArray, Error, Launch};

const LONG: Duration = Duration::from_secs(60);

fn device() -> Device<SimHal> {
    let hal = SimHal::open("shires=1,dram=256MiB".parse().unwrap()).unwrap();
    Device::open(hal).unwrap()
}

#[test]
fn what_was_written_is_read_by_elements() {
    let device = device();
    let stream = device.default_stream();
    let array: DeviceArray<u32> = device.alloc_array(100).unwrap();
    assert_eq!((array.len(), array.is_empty(), array.buffer().len_bytes()), (100, false, 400));
    let values: Vec<u32> = (0..100).collect();
    stream.write(&values, &array).unwrap().wait(LONG).unwrap();
    assert_eq!(stream.to_vec(&array, LONG).unwrap(), values);
    let middle = array.slice(40..=49).unwrap();
    stream.write(&[7u32; 10], &middle).unwrap().wait(LONG).unwrap();
    let part: ArraySlice<u32> = array.slice(38..).unwrap().slice(..4).unwrap();
    assert_eq!(stream.to_vec(&part, LONG).unwrap(), [38, 39, 7, 7]);
    assert_eq!(part.bytes().addr().as_u64(), array.buffer().addr().as_u64() + 4 * 38);
    assert!(array.slice(100..).unwrap().is_empty());
    assert!(stream.to_vec(array.slice(5..5).unwrap(), LONG).unwrap().is_empty());
}

#[test]
fn elements_outside_of_an_array_are_refused() {
    let device = device();
    let stream = device.default_stream();
    let array = device.alloc_array::<u64>(8).unwrap();
    for range in [7..9, 9..9, usize::MAX / 8..usize::MAX / 8 + 1, usize::MAX - 1..usize::MAX] {
        let refused = array.slice(range.clone());
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{range:?}: {refused:?}");
    }
    assert!(array.slice(..=usize::MAX).is_err());
    let refused = stream.write(&[1u64; 7], &array).unwrap_err();
    assert!(matches!(refused, Error::LengthMismatch { .. }), "{refused:?}");
    assert!(matches!(device.alloc_array::<u64>(0), Err(Error::Memory(_))));
    assert!(matches!(device.alloc_array::<u64>(usize::MAX), Err(Error::OutOfRange { .. })));
    assert!(device.alloc_array::<u64>(1 << 40).is_err());
}

#[test]
fn kernels_and_copies_take_arrays_where_they_take_buffers() {
    let device = device();
    let stream = device.default_stream();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/saxpy.elf");
    let saxpy = device.load_kernel("saxpy", &std::fs::read(file).unwrap()).unwrap();
    let alloc = || device.alloc_array::<f32>(64).unwrap();
    let (x, y) = (alloc(), alloc());
    stream.write(&[2.0f32; 64], &x).unwrap().wait(LONG).unwrap();
    stream.fill(&y, 0).unwrap().wait(LONG).unwrap();
    let half = y.slice(32..).unwrap();
    let launch = Launch::new(&saxpy).input(&x).in_out(&half).f32(3.0).u64(32);
    stream.launch(&launch).unwrap().wait(LONG).unwrap();
    let result: Vec<f32> = stream.to_vec(&y, LONG).unwrap();
    assert_eq!((&result[..32], &result[32..]), (&[0.0; 32][..], &[6.0; 32][..]));
}
