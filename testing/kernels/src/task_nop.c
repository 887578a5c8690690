/*
 * task_nop: does nothing and succeeds.
 *
 *   no arguments
 */
#include <et/device.h>

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)args, (void)env, (void)part, (void)parts;
    return 0;
}
ET_TASK_ENTRY;
