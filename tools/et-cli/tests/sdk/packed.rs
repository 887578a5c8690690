//! Packed vectors against scalars of the host.

use super::{LONG, Rig};

const A: [f32; 8] = [0.5, 1.5, -2.5, 3.25, -0.75, 10.0, 100.5, -7.0];
const B: [f32; 8] = [1.0, 2.0, 0.5, 4.0, 1.5, 3.0, 0.25, 8.0];
const C: [f32; 8] = [0.1, -0.2, 0.3, 1e6, -1e-6, 7.7, 1e20, 0.0];
const I: [i32; 8] = [1, -1, i32::MAX, i32::MIN, 12345, -54321, 0, 77];
const J: [i32; 8] = [3, 4, 5, 31, 32, 100, 1, 0];
/// Vectors that the kernel writes.
const RESULTS: usize = 34;

fn lanes<T, U: Copy>(of: impl Fn(usize) -> T, to: impl Fn(T) -> U) -> [U; 8] {
    std::array::from_fn(|lane| to(of(lane)))
}

fn floats(of: impl Fn(usize) -> f32) -> [u32; 8] {
    lanes(of, f32::to_bits)
}

fn integers(of: impl Fn(usize) -> i32) -> [u32; 8] {
    lanes(of, i32::cast_unsigned)
}

fn shift(lane: usize, by: impl Fn(u32) -> Option<i32>, over: i32) -> i32 {
    by(J[lane].cast_unsigned()).unwrap_or(over)
}

/// A lane is within a unit in the last place of a number.
fn is_near(found: u32, expected: f64) -> bool {
    let found = f64::from(f32::from_bits(found));
    found == expected || (found - expected).abs() <= expected.abs() * f64::from(f32::EPSILON)
}

#[test]
fn packed_vectors_compute_what_scalars_do() {
    Rig::each("").for_each(|rig| packed_vectors(&rig));
}

fn packed_vectors(rig: &Rig) {
    let device = &rig.device;
    let stream = device.default_stream();
    let inputs = device.alloc_aligned(5 * 32, 64).unwrap();
    let bits = [floats(|l| A[l]), floats(|l| B[l]), floats(|l| C[l])];
    let bits = [&bits[..], &[integers(|l| I[l]), integers(|l| J[l])]].concat().concat();
    stream.copy_to_device(&bits, &inputs).unwrap().wait(LONG).unwrap();
    let out = device.alloc_aligned(32 * RESULTS as u64, 64).unwrap();
    for options in [&["-O2", "-std=c11"], &["-O0", "-std=gnu17"], &["-Os", "-flto"]] {
        if !rig.knows(options[1]) {
            continue;
        }
        let launch = rig.launch("packed.c", options);
        let integers = inputs.addr().as_u64() + 96;
        rig.run(&launch.buffer(&inputs).u64(integers).buffer(&out));
        let mut found = [[0_u32; 8]; RESULTS];
        stream.read(&out, found.as_flattened_mut(), LONG).unwrap();
        check(&found);
    }
}

fn check(found: &[[u32; 8]; RESULTS]) {
    let less = |lane: usize| A[lane] < B[lane];
    let mask = |of: &dyn Fn(usize) -> bool| (0..8).map(|lane| i32::from(of(lane)) << lane).sum();
    let expected = [
        floats(|l| A[l] + B[l]),
        floats(|l| A[l] - B[l]),
        floats(|l| A[l] * B[l]),
        floats(|l| A[l].min(B[l])),
        floats(|l| A[l].max(B[l])),
        floats(|l| A[l].mul_add(B[l], C[l])),
        floats(|l| A[l].mul_add(B[l], -C[l])),
        floats(|l| (-A[l]).mul_add(B[l], C[l])),
        // Checked below.
        found[8],
        found[9],
        found[10],
        floats(|l| A[l].round_ties_even()),
        floats(|l| I[l] as f32),
        floats(|_| 1.5),
        floats(|l| A[l / 4 * 4 + 3 - l % 4]),
        [0, 2, -2, 3, -1, 10, 100, -7].map(i32::cast_unsigned),
        [0x3c00, 0x4000, 0x3800, 0x4400, 0x3e00, 0x4200, 0x3400, 0x4800],
        floats(|l| B[l]),
        integers(|l| I[l].wrapping_add(J[l])),
        integers(|l| I[l].wrapping_sub(J[l])),
        integers(|l| I[l].wrapping_mul(J[l])),
        integers(|l| I[l] & J[l]),
        integers(|l| I[l] | J[l]),
        integers(|l| I[l] ^ J[l]),
        integers(|l| shift(l, |by| I[l].checked_shl(by), 0)),
        integers(|l| shift(l, |by| I[l].cast_unsigned().checked_shr(by).map(u32::cast_signed), 0)),
        integers(|l| shift(l, |by| I[l].checked_shr(by), I[l] >> 31)),
        integers(|l| I[l].min(J[l])),
        integers(|l| I[l].max(J[l])),
        integers(|_| -7),
        integers(|l| if 0x5a >> l & 1 != 0 { 9 } else { I[l] }),
        [
            mask(&|l| less(l) && 0x5a >> l & 1 != 0),
            mask(&less),
            mask(&|l| A[l] <= B[l]),
            mask(&|l| A[l] == B[l]),
            mask(&|l| I[l] < J[l]),
            0xff,
            0xff,
            0,
        ]
        .map(i32::cast_unsigned),
        floats(|l| A[7 - l]),
        floats(|l| A[l]),
    ];
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "result {index}");
    }
    for lane in 0..8 {
        let (a, b) = (f64::from(A[lane]), f64::from(B[lane]));
        assert!(is_near(found[8][lane], 1.0 / a), "1 / {a}");
        assert!(is_near(found[9][lane], a.exp2()), "2 ^ {a}");
        assert!(is_near(found[10][lane], b.log2()), "log2 {b}");
    }
}
