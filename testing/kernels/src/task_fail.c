/*
 * task_fail: returns what it is told; negative means failure.
 *
 *   int64_t value;
 */
#include <et/device.h>

struct args {
    int64_t value;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env, (void)part, (void)parts;
    return args->value;
}
ET_TASK_ENTRY;
