/*
 * trap_load: loads from address 0 on one hart.
 *
 *   uint64_t hart;
 *
 * hart is a rank in the launch, or ~0 for all. Without arguments it is rank 0. The faulting pc is
 * in `load_from_null`; the cause is 5 and the trap value 0. The other harts return 0.
 */
#include "selected.h"

struct args {
    uint64_t hart;
};

/* In assembly, because a compiler may do as it likes with a null pointer that it can see. */
static ET_NOINLINE int64_t load_from_null(void)
{
    int64_t value;
    __asm__ volatile("ld %0, 0(zero)" : "=r"(value) : : "memory");
    return value;
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    if (!selected(args == NULL ? 0 : args->hart, env))
        return 0;
    (void)load_from_null();
    return -1; /* only if the load did not trap */
}
