/*
 * task_part: writes down which part it is, and where it runs.
 *
 *   struct line *out;  uint64_t bad;  int64_t value;  uint64_t spins;
 *
 * Each part fills its line of out after so many turns of a loop, and returns 0; the part with
 * number bad returns value.
 */
#include <et/device.h>

struct line {
    uint64_t part;
    uint64_t parts;
    uint64_t hart;
    uint64_t runs; /* how often it ran */
    uint64_t unused[4];
};
_Static_assert(sizeof(struct line) == 64, "a cache line for each part");

struct args {
    struct line *out;
    uint64_t bad;
    int64_t value;
    uint64_t spins;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    for (volatile uint64_t spin = args->spins; spin != 0; spin--)
        continue;
    struct line *line = &args->out[part];
    line->part = part;
    line->parts = parts;
    line->hart = et_hart_id();
    line->runs++;
    return part == args->bad ? args->value : 0;
}
ET_TASK_ENTRY;
