/*
 * entries: three kernels in one file.
 *
 *   uint64_t *out;
 *
 * Rank 0 writes a number to out[0]: 1 by the entry of the file, 2 by `second`, 3 by `third`. The
 * others do nothing.
 */
#include <et/device.h>

struct args {
    uint64_t *out;
};

static int64_t put(const struct args *args, const struct kernel_environment *env, uint64_t number)
{
    if (et_index(env) == 0)
        args->out[0] = number;
    return 0;
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    return put(args, env, 1);
}

ET_ENTRY(second)
{
    return put(args, env, 2);
}

ET_ENTRY(third)
{
    return put(args, env, 3);
}
