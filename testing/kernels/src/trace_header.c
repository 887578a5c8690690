/*
 * trace_header: overwrites the header of the buffer that it traces into.
 *
 *   uint64_t first;  uint64_t words;
 *
 * Each hart traces a value, tag 0 with its id. The one whose part is the first then stores
 * 0xdeadbeef to that many 32-bit words of the header, from `first` on.
 */
#include <et/device.h>

struct args {
    uint64_t first;
    uint64_t words;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    volatile struct et_trace_control *control = et_trace_own();

    (void)env;
    et_trace_u64(0, et_hart_id());
    if (control->disabled || control->size_header)
        return 0;
    volatile uint32_t *header = (volatile uint32_t *)(uintptr_t)control->base;
    for (uint64_t i = 0; i < args->words; i++)
        header[args->first + i] = 0xdeadbeef;
    return 0;
}
