/*
 * negative_return: returns -7 on one hart and 0 on the others.
 *
 *   uint64_t hart;
 *
 * hart is a rank in the launch, or ~0 for all. Without arguments it is rank 0.
 */
#include "selected.h"

struct args {
    uint64_t hart;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    return selected(args == NULL ? 0 : args->hart, env) ? -7 : 0;
}
