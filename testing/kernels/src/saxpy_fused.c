/*
 * saxpy_fused: y[i] = fma(a, x[i], y[i]), f32, one rounding.
 *
 *   const float *x;  float *y;  float a;  (4 bytes of padding)  uint64_t n;
 *
 * Offsets 0, 8, 16, 24; size 32. The only kernel whose results need a fused multiply-add on the
 * host side (fmaf, f32::mul_add). It is asked for by name: contraction stays off in all kernels.
 */
#include <et/device.h>

struct args {
    const float *x;
    float *y;
    float a;
    uint64_t n;
};
ET_ARGUMENTS("x: in f32[], y: inout f32[], a: f32, n: u64");
_Static_assert(offsetof(struct args, n) == 24 && sizeof(struct args) == 32, "documented layout");

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    const float *x = args->x;
    float *y = args->y;
    float a = args->a;
    struct et_range mine = et_part(y, sizeof *y, args->n, part, parts);

    for (uint64_t i = mine.begin; i < mine.end; i++)
        y[i] = __builtin_fmaf(a, x[i], y[i]);
    return 0;
}
ET_TASK_ENTRY;
