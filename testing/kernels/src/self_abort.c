/*
 * self_abort: one hart gives up by itself (return type 1, value -1); the others return 0.
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
    if (selected(args == NULL ? 0 : args->hart, env))
        et_exit(-1, ET_RETURN_SELF_ABORT);
    return 0;
}
