//! The words that start tensor operations. Spec: ISA §3.8

use super::Rig;

/// A line of memory.
const AT: u64 = 0x80_1234_5680;

#[test]
fn words_have_the_fields_of_the_specification() {
    let Some(rig) = Rig::new("") else { return };
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
