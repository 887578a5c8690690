/*
 * Credits between the two harts of each minion, and minion barriers.
 *
 *   uint64_t *out;  uint64_t rounds;
 *
 * Thread 0 hands `rounds` numbers to thread 1 through one word of the L2 scratchpad, and gets a
 * credit back for each. out[rank] of thread 1 is their sum; of thread 0, the credits that were left
 * over on both counters of both harts after a barrier: 0.
 */
#include <et/device.h>

struct args {
    uint64_t *out;
    uint64_t rounds;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    volatile uint64_t *word = (volatile uint64_t *)et_l2_scratchpad(ET_L2_OWN_SHIRE,
                                                                    et_minion() * ET_LINE_BYTES);
    uint64_t other = et_hart_id() ^ 1;
    uint64_t result = 0;

    for (uint64_t round = 1; round <= args->rounds; round++) {
        if (et_thread() == 0) {
            *word = round * round;
            et_fence();
            et_credit_hart(other, 1);
            et_fcc_consume(1);
        } else {
            et_fcc_consume(1);
            result += *word;
            et_fence();
            et_credit_hart(other, 1);
        }
    }
    et_minion_barrier(0);
    et_minion_barrier(1);
    if (et_thread() == 0)
        result = et_fcc_available(0) + et_fcc_available(1);
    else if (et_fcc_available(0) + et_fcc_available(1) != 0)
        return -1;
    et_store_g64(&args->out[et_index(env)], result);
    return 0;
}
