/* Kernels that do something on one hart only. */
#ifndef SELECTED_H
#define SELECTED_H

#include <et/device.h>

/* In place of a rank: all harts of the launch. */
#define ALL_HARTS UINT64_MAX

/* True if a selector (rank in the launch, or ALL_HARTS) means this hart. */
ET_INLINE int selected(uint64_t selector, const struct kernel_environment *env)
{
    return selector == ALL_HARTS || selector == et_index(env);
}

#endif
