/*
 * barrier: runs shire-wide and launch-wide barriers in a row and counts what goes wrong.
 *
 *   uint64_t rounds;  uint64_t *out;
 *
 * out is three words in one 64-byte line; the kernel clears it first:
 *   out[0]  arrivals counted, rounds * harts if all is well
 *   out[1]  times a hart left a launch-wide barrier before all had arrived
 *   out[2]  times a hart left a shire-wide barrier before its shire had arrived
 */
#include <et/device.h>

struct args {
    uint64_t rounds;
    uint64_t *out;
};

/* A line per shire, because local atomics of different shires do not see one another. */
static struct {
    ET_ALIGN_LINE uint64_t arrived;
} shires[ET_MASTER_SHIRE + 1];
ET_BSS_ANCHOR;

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t *out = args->out;
    unsigned shire = et_shire();
    uint64_t *in_shire = &shires[shire].arrived;

    /* Reset here rather than trust the loader's zeros: an earlier launch may have been aborted. */
    if (et_index_in_shire() == 0)
        et_store_l64(in_shire, 0);
    if (et_index(env) == 0)
        for (int i = 0; i < 3; i++)
            et_store_g64(&out[i], 0);
    et_launch_barrier(env, 0);

    for (uint64_t round = 1; round <= args->rounds; round++) {
        et_amoadd_l64(in_shire, 1);
        et_amoadd_g64(&out[0], 1);

        et_shire_barrier(1);
        if (et_load_l64(in_shire) != round * et_shire_harts(shire))
            et_amoadd_g64(&out[2], 1);

        et_launch_barrier(env, 2);
        if (et_load_g64(&out[0]) != round * et_harts(env))
            et_amoadd_g64(&out[1], 1);

        /* Else a fast hart would count its next arrival while a slow one still looks. */
        et_launch_barrier(env, 0);
    }
    return 0;
}
