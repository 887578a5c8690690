/*
 * Cache operations, from the hart with rank 0.
 *
 *   uint64_t *data;  uint64_t *out;
 *
 * data is 64 words at a multiple of 64, all 1. The kernel adds 1 to each with a flush, a prefetch
 * and an eviction on the way, then locks the third line, which zeroes it, and unlocks it.
 * out[0] is the sum of the words before the lock, out[1] that of the third line after it, out[2]
 * the errors so far, out[3] those after a prefetch of what a kernel may not read.
 */
#include <et/device.h>

struct args {
    uint64_t *data;
    uint64_t *out;
};

static uint64_t sum(const uint64_t *words, unsigned count)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < count; i++)
        total += *(volatile const uint64_t *)&words[i];
    return total;
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    const size_t bytes = 64 * sizeof(uint64_t);
    if (et_index(env) != 0)
        return 0;
    et_tensor_error_clear();
    et_prefetch(args->data, bytes, 0, 1);
    et_prefetch_wait(1);
    for (unsigned i = 0; i < 64; i++)
        args->data[i]++;
    et_flush(args->data, bytes, ET_TO_MEMORY);
    et_evict(args->data, bytes, ET_TO_MEMORY);
    args->out[0] = sum(args->data, 64);
    et_evict_l1(ET_TO_L2);
    et_evict_l1_l2();
    et_lock(args->data + 16, ET_LINE_BYTES);
    args->out[1] = sum(args->data + 16, 8);
    et_unlock(args->data + 16, ET_LINE_BYTES);
    args->out[2] = et_tensor_error();
    et_prefetch((const void *)0x8000000000, ET_LINE_BYTES, ET_TO_L2, 0);
    et_prefetch_wait(0);
    args->out[3] = et_tensor_error();
    return 0;
}
