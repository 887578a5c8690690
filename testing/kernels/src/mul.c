/*
 * mul: z[i] = x[i] * y[i], f32.
 *
 *   const float *x;  const float *y;  float *z;  uint64_t n;
 *
 * Exact: one rounded multiplication per element. z may be x or y.
 */
#include <et/device.h>

struct args {
    const float *x;
    const float *y;
    float *z;
    uint64_t n;
};
ET_ARGUMENTS("x: in f32[], y: in f32[], z: out f32[], n: u64");

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    const float *x = args->x;
    const float *y = args->y;
    float *z = args->z;
    struct et_range mine = et_part(z, sizeof *z, args->n, part, parts);

    for (uint64_t i = mine.begin; i < mine.end; i++)
        z[i] = x[i] * y[i];
    return 0;
}
ET_TASK_ENTRY;
