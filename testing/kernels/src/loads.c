/*
 * loads: load and store benchmark; adds 1 to each of n words, `passes` times.
 *
 *   uint64_t *buf;  uint64_t n;  uint64_t passes;
 *
 * Each hart sweeps its own lines from end to end, then starts over. Afterwards every word is larger
 * by `passes`.
 */
#include <et/device.h>

struct args {
    uint64_t *buf;
    uint64_t n;
    uint64_t passes;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    /* Volatile, or the compiler would merge the passes into one. */
    volatile uint64_t *buf = args->buf;
    struct et_range mine = et_part(args->buf, sizeof *args->buf, args->n, part, parts);

    for (uint64_t pass = args->passes; pass != 0; pass--)
        for (uint64_t i = mine.begin; i < mine.end; i++)
            buf[i] = buf[i] + 1;
    return 0;
}
ET_TASK_ENTRY;
