/*
 * trace: writes entries to the trace of the launch.
 *
 *   uint64_t values;  uint64_t level;
 *
 * Each hart traces that many values: tag i = 0, 1, 2 ... with value (hart << 32) + i. Then it
 * traces the text "hart NNNN of shire NN" as a string of the given level. A hart that does not
 * trace does nothing.
 */
#include <et/device.h>

struct args {
    uint64_t values;
    uint64_t level;
};

/* Writes `digits` decimal digits of `number`. */
static void decimal(char *to, unsigned digits, uint64_t number)
{
    while (digits--) {
        to[digits] = (char)('0' + number % 10);
        number /= 10;
    }
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    char text[] = "hart 0000 of shire 00";

    (void)env;
    for (uint64_t i = 0; i < args->values; i++)
        et_trace_u64((uint32_t)i, (et_hart_id() << 32) + i);
    decimal(text + 5, 4, et_hart_id());
    decimal(text + 19, 2, et_shire());
    et_trace_string((uint32_t)args->level, text);
    return 0;
}
