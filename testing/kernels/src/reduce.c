/*
 * reduce: sum of n 64-bit words, modulo 2^64.
 *
 *   const uint64_t *x;  uint64_t n;  uint64_t *out;
 *
 * out is four words in one 64-byte line; the kernel clears it first:
 *   out[0]  the sum
 *   out[1]  harts that read the final sum after the barrier (equals out[3] if barriers work)
 *   out[2]  harts that added their part
 *   out[3]  harts of the launch
 *
 * All traffic on out is global atomics, so no hart ever holds it in its cache.
 */
#include <et/device.h>

struct args {
    const uint64_t *x;
    uint64_t n;
    uint64_t *out;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t *out = args->out;
    uint64_t harts = et_harts(env);

    if (et_index(env) == 0) {
        et_store_g64(&out[0], 0);
        et_store_g64(&out[1], 0);
        et_store_g64(&out[2], 0);
        et_store_g64(&out[3], harts);
    }
    et_launch_barrier(env, 0);

    struct et_range mine = et_slice(args->x, sizeof *args->x, args->n, env);
    uint64_t sum = 0;
    for (uint64_t i = mine.begin; i < mine.end; i++)
        sum += args->x[i];
    et_amoadd_g64(&out[0], sum);
    et_amoadd_g64(&out[2], 1);
    et_launch_barrier(env, 1);

    uint64_t total = et_load_g64(&out[0]);
    uint64_t arrived = et_load_g64(&out[2]);
    et_launch_barrier(env, 0);

    /* No hart adds any more: one that left the second barrier too early reads another sum now. */
    if (arrived == harts && total == et_load_g64(&out[0]))
        et_amoadd_g64(&out[1], 1);
    return 0;
}
