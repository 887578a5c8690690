/*
 * Prints from rank 0 everything that formatting knows, and one line from each hart.
 *
 *   const float *floats;  uint64_t count;
 */
#include <et/device.h>

#ifdef __clang__
/* Numbers that are cut off are the point. */
#pragma clang diagnostic ignored "-Wformat"
#endif

struct args {
    const float *floats;
    uint64_t count;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    char text[16];

    if (et_index(env) != 0) {
        et_printf("hart %u", (unsigned)et_hart_id());
        return 0;
    }
    et_printf("%d %i %u %x %X %o", -5, 7, 4000000000u, 0xbeefu, 0xBEEFu, 8u);
    et_printf("%ld %lu %lx %lld", INT64_MIN, UINT64_MAX, (unsigned long)0x123456789abc, 1ll);
    et_printf("%hhd %hhu %hd %hu %zu", 300, 300, 70000, 70000, sizeof text);
    et_printf("[%5d] [%-5d] [%05d] [%+d] [% d] [%.3d] [%5.3d]", 42, 42, 42, 42, 42, 42, 42);
    et_printf("[%*d] [%-*d] [%.*s] [%5s] [%-5s] [%.2s]", 6, 1, 6, 2, 3, "abcdef", "ab", "ab",
              "ab");
    et_printf("%#x %#o %#X %p %c%c %s %%", 255u, 8u, 0u, (void *)0x8005801000, 'o', 'k', "text");
    et_printf("%5.2f|%-9.3e|%g|%G|%+.0f|%#.0f|%06.1f", 3.14159, 31415.9, 0.0001, 1e-5, 2.5, 3.5,
              -1.25);
    et_printf("%f %F %g %e", __builtin_inf(), -__builtin_inff(), __builtin_nan(""), 0.0);
    et_printf("%s", "a text that is longer than what one entry of a trace has room for, so that its "
                    "end is cut off somewhere around here, and this is never seen");
    for (uint64_t i = 0; i < args->count; i++)
        et_printf("%f %e %g", (double)args->floats[i], (double)args->floats[i],
                  (double)args->floats[i]);
    int length = et_snprintf(text, sizeof text, "%s and %s", "something", "something");
    et_log(ET_TRACE_INFO, "%d %s", length, text);
    et_log(ET_TRACE_DEBUG, "not wanted");
    return 0;
}
