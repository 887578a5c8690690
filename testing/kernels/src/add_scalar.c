/*
 * add_scalar: z[i] = x[i] + s, f32.
 *
 *   const float *x;  float *z;  float s;  (4 bytes of padding)  uint64_t n;
 *
 * Offsets 0, 8, 16, 24; size 32. z may be x.
 */
#include <et/device.h>

struct args {
    const float *x;
    float *z;
    float s;
    uint64_t n;
};
ET_ARGUMENTS("x: in f32[], z: out f32[], s: f32, n: u64");
_Static_assert(offsetof(struct args, n) == 24 && sizeof(struct args) == 32, "documented layout");

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    const float *x = args->x;
    float *z = args->z;
    float s = args->s;
    struct et_range mine = et_part(z, sizeof *z, args->n, part, parts);

    for (uint64_t i = mine.begin; i < mine.end; i++)
        z[i] = x[i] + s;
    return 0;
}
ET_TASK_ENTRY;
