/*
 * regions: marks parts of itself and reads its counters.
 *
 *   uint64_t rounds;  uint64_t steps;
 *
 * Each hart is in the region "all", and within it `rounds` times in "step", where it takes `steps`
 * turns of a loop. After each step it traces its counters. A region "open" has no end.
 */
#include <et/device.h>
#include <et/profile.h>

struct args {
    uint64_t rounds;
    uint64_t steps;
};

/* A turn is at least one instruction, and at most four. */
static void step(uint64_t steps)
{
    ET_REGION_BEGIN("step");
    for (uint64_t i = 0; i < steps; i++)
        __asm__ volatile("" : "+r"(i));
    ET_REGION_END("step");
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    (void)env;
    ET_REGION_BEGIN("all");
    for (uint64_t i = 0; i < args->rounds; i++) {
        step(args->steps);
        et_trace_counters();
    }
    ET_REGION_END("all");
    ET_REGION_BEGIN("open");
    return 0;
}
