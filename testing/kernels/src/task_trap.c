/*
 * task_trap: stores to address 0 if armed, which traps with cause 7; else returns 0.
 *
 *   uint64_t armed;
 */
#include <et/device.h>

struct args {
    uint64_t armed;
};

/* In assembly, because a compiler may do as it likes with a null pointer that it can see. */
static ET_NOINLINE void store_to_null(void)
{
    __asm__ volatile("sd zero, 0(zero)" : : : "memory");
}

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env, (void)part, (void)parts;
    if (args->armed != 0)
        store_to_null();
    return 0;
}
ET_TASK_ENTRY;
