//! Barriers, credits, caches, scratchpads, and the names that kernels of others use.

use super::Rig;

/// Harts of the launches.
const HARTS: usize = 128;

#[test]
fn harts_of_a_minion_hand_over_with_credits() {
    for memory in ["", ",memory=weak"] {
        for rig in Rig::each(memory) {
            let out = rig.words(&[u64::MAX; HARTS]);
            rig.run(&rig.launch("credits.c", &["-O2", "-std=c11"]).buffer(&out).u64(20));
            let sum = (1..=20).map(|round: u64| round * round).sum();
            let expected: [u64; HARTS] = std::array::from_fn(|rank| [0, sum][rank % 2]);
            assert_eq!(rig.read(&out), expected, "{memory}");
        }
    }
}

#[test]
fn scratchpads_are_shared_by_shires() {
    for memory in ["", ",memory=weak"] {
        for rig in Rig::each(memory) {
            let out = rig.words(&[u64::MAX; 4 * HARTS]);
            rig.run(&rig.launch("scratchpads.c", &["-O2", "-std=c11"]).buffer(&out));
            let own: u64 = (0..64).sum();
            let sum = 2 * own + (64 << 32);
            let words: [u64; 4 * HARTS] = rig.read(&out);
            for (rank, words) in words.chunks(4).enumerate() {
                // Off and on of the L1 scratchpad; bit 0 says that it is a part of the cache.
                let states = [0x13, 0][rank % 2];
                assert_eq!(words, [sum, 0, 0x0123_4567, states], "rank {rank} {memory}");
            }
        }
    }
}

#[test]
fn cache_operations_keep_the_data() {
    for memory in ["", ",memory=weak"] {
        for rig in Rig::each(memory) {
            let (data, out) = (rig.words(&[1; 64]), rig.words(&[u64::MAX; 4]));
            rig.run(&rig.launch("caches.c", &["-O2", "-std=c11"]).buffer(&data).buffer(&out));
            assert_eq!(rig.read(&out), [128, 0, 0, 1 << 7], "{memory}");
            let mut expected = [2; 64];
            expected[16..24].fill(0);
            assert_eq!(rig.read(&data), expected, "{memory}");
        }
    }
}

#[test]
fn kernels_for_the_vendors_headers_run() {
    for rig in Rig::each("") {
        let out = rig.words(&[u64::MAX; 8 * HARTS]);
        rig.run(&rig.launch("compat.c", &["-O2", "-std=gnu11"]).buffer(&out));
        let words: [u64; 8 * HARTS] = rig.read(&out);
        let mut not_last = 0;
        for (rank, words) in words.chunks(8).enumerate() {
            let (shire, minion) = (rank as u64 / 64, rank as u64 / 2);
            assert_eq!(words[0] & !1, shire << 32 | minion << 8, "rank {rank}");
            not_last += words[0] & 1;
        }
        assert_eq!(not_last, HARTS as u64 / 4, "one hart of each minion is not the last");
    }
}
