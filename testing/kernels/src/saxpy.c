/*
 * saxpy: y[i] = a * x[i] + y[i], f32, the product rounded before the addition.
 *
 *   const float *x;  float *y;  float a;  (4 bytes of padding)  uint64_t n;
 *
 * Offsets 0, 8, 16, 24; size 32. `saxpy_fused` is the variant with one rounding.
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
        y[i] = a * x[i] + y[i];
    return 0;
}
ET_TASK_ENTRY;
