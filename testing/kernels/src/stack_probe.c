/*
 * stack_probe: uses the given number of bytes of stack on every hart, all at the same time.
 *
 *   uint64_t bytes;  uint64_t *out;
 *
 * bytes is rounded up to 16; the frame of the kernel itself comes on top (well below 256 bytes).
 * out gets two words per hart: out[2 * rank] the lowest address used, out[2 * rank + 1] the number
 * of words that did not keep their value until all harts had written theirs. A hart with such words
 * returns -1. If stacks overlap, a hart may also lose its way altogether: no promise there.
 */
#include <et/device.h>

struct args {
    uint64_t bytes;
    uint64_t *out;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t words = (args->bytes + 15) / 16 * 2;
    volatile uint64_t *block = __builtin_alloca(words * 8);
    uint64_t *out = args->out + 2 * (uint64_t)et_index(env);
    uint64_t tag = (et_hart_id() + 1) << 32;

    for (uint64_t i = 0; i < words; i++)
        block[i] = tag + i;
    et_launch_barrier(env, 0);

    uint64_t lost = 0;
    for (uint64_t i = 0; i < words; i++)
        lost += block[i] != tag + i;
    et_store_g64(&out[0], (uintptr_t)block);
    et_store_g64(&out[1], lost);

    /* Not through the caller's frame, which another hart may have written over. */
    et_exit(lost == 0 ? 0 : -1, ET_RETURN_SUCCESS);
}
