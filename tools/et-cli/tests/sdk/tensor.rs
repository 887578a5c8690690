//! Tensor operations, and the words that start them. Spec: ISA §3.8

use super::{LONG, Rig};

/// A line of memory.
const AT: u64 = 0x80_1234_5680;

#[test]
fn words_have_the_fields_of_the_specification() {
    for rig in Rig::each("") {
        let out = rig.words(&[u64::MAX; 15]);
        for options in [&["-O2", "-std=c11"], &["-O0", "-std=gnu17"]] {
            rig.run(&rig.launch("tensor_words.c", options).buffer(&out).u64(AT));
            let expected = [
                AT | 15,
                1 << 63 | 1 << 62 | 6 << 59 | 33 << 53 | AT | 2 << 4 | 4,
                1 << 52 | AT,
                1 << 63 | (0x1abcd >> 2) << 48 | AT | (0x1abcd & 3) << 4 | 1,
                3 << 55 | 15 << 51 | 15 << 47 | 16 << 12 | 1,
                1 << 63
                    | 1 << 55
                    | 2 << 51
                    | 4 << 47
                    | 9 << 43
                    | 1 << 23
                    | 1 << 21
                    | 1 << 20
                    | 21 << 12
                    | 47 << 4
                    | 3 << 1,
                1 << 22 | 1 << 1,
                30 << 57 | 2 << 55 | 6 << 51 | 40 << 45 | 0xa61,
                3 << 55 | 15 << 51 | AT,
                3 << 62 | 31 << 57 | 1 << 55 | 1 << 51 | 1 << 49 | AT,
                1 << 62 | 47 << 56 | 8 << 51 | 1 << 48 | AT,
                32 << 16 | 1023 << 3,
                17 << 57 | 8 << 24 | 127 << 16 | 4 << 3 | 3,
                0xa5c3,
                // Columns -3 to 12 of row 2: those from 0 to 9 are inside.
                0x1ff8,
            ];
            assert_eq!(rig.read(&out), expected, "{options:?}");
        }
    }
}

#[test]
fn two_minions_multiply_and_add_up() {
    // Small whole numbers, so that every order of sums is exact.
    let a = |row: usize, k: usize| ((row * 7 + k * 3) % 11) as f32 - 5.0;
    let b = |k: usize, column: usize| ((k * 5 + column * 2) % 13) as f32 - 6.0;
    for memory in ["", ",memory=weak", ",memory=private"] {
        for rig in Rig::each(memory) {
            let stream = rig.device.default_stream();
            let load = |numbers: Vec<f32>| {
                let buffer = rig.device.alloc_aligned(numbers.len() as u64 * 4, 64).unwrap();
                stream.copy_to_device(&numbers, &buffer).unwrap().wait(LONG).unwrap();
                buffer
            };
            let left = load((0..512).map(|i| a(i / 32, i % 32)).collect());
            let right = load((0..512).map(|i| b(i / 16, i % 16)).collect());
            let out = load(vec![0.5; 256]);
            let launch = rig.launch("tensor.c", &["-O2", "-std=c11"]);
            rig.run(&launch.buffer(&left).buffer(&right).buffer(&out));
            let mut found = [0.0_f32; 256];
            stream.read(&out, &mut found, LONG).unwrap();
            let product = |row, column| (0..32).map(|k| a(row, k) * b(k, column)).sum::<f32>();
            let expected: [f32; 256] = std::array::from_fn(|i| product(i / 16, i % 16));
            assert_eq!(found, expected, "{memory}");
        }
    }
}
