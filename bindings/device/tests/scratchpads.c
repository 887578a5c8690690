/*
 * The L2 scratchpads of all shires, seen from each, by both kinds of addresses; the switch of the
 * L1 scratchpad.
 *
 *   uint64_t *out;
 *
 * Each hart leaves (shire << 32 | rank in the shire) in a line of its own shire's scratchpad. Then
 * it adds up what all harts of all shires of the launch left, into out[4 * rank]; counts the lines
 * of its own shire that read otherwise through the interleaved addresses, into out[4 * rank + 1];
 * the last line of the scratchpad with a marker, into out[4 * rank + 2]; and the states of the L1
 * scratchpad after off and on, into out[4 * rank + 3].
 */
#include <et/device.h>

struct args {
    uint64_t *out;
};

static volatile uint64_t *line(unsigned shire, unsigned number)
{
    return (volatile uint64_t *)et_l2_scratchpad(shire, (size_t)number * ET_LINE_BYTES);
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    unsigned own = et_index_in_shire();
    uint64_t *out = args->out + 4 * et_index(env);
    uint64_t sum = 0, wrong = 0;

    *line(ET_L2_OWN_SHIRE, own) = (uint64_t)et_shire() << 32 | own;
    et_evict((const void *)line(et_shire(), own), ET_LINE_BYTES, ET_TO_L2);
    et_launch_barrier(env, 0);
    for (unsigned shire = 0; shire <= ET_MASTER_SHIRE; shire++)
        for (unsigned i = 0; env->shire_mask >> shire & 1 && i < et_shire_harts(shire); i++)
            sum += *line(shire, i);
    for (unsigned i = 0; i < et_shire_harts(et_shire()); i++)
        wrong += *(volatile uint64_t *)et_l2_scratchpad_line(et_shire(), i) != *line(et_shire(), i);
    et_store_g64(&out[0], sum);
    et_store_g64(&out[1], wrong);

    const unsigned last = ET_L2_SCRATCHPAD_BYTES / ET_LINE_BYTES - 1;
    if (own == 0)
        et_store_g64((uint64_t *)line(ET_L2_OWN_SHIRE, last), 0x1234567);
    et_shire_barrier(1);
    et_store_g64(&out[2], *line(et_shire(), last));

    /* Both harts of a minion have the same switch. */
    uint64_t states = 0;
    if (et_thread() == 0) {
        et_l1_scratchpad_disable();
        states = ET_CSR_READ(ET_CSR_UCACHE_CONTROL) & 3;
        et_l1_scratchpad_enable();
        states = states << 4 | (ET_CSR_READ(ET_CSR_UCACHE_CONTROL) & 3);
    }
    et_store_g64(&out[3], states);
    return 0;
}
