/* z = x * y + 1, eight at a time, fused: vendor mnemonics as kernels of others have them. */
#include <et/device.h>
struct args { const float *x; const float *y; float *z; uint64_t n; };
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part, uint64_t parts)
{
    (void)env;
    struct et_range mine = et_part(args->z, 4, args->n, part, parts);
    uint64_t i = mine.begin;
    for (; i + 8 <= mine.end; i += 8)
        __asm__ volatile("mov.m.x m0, zero, 0xff; csrr zero, hartid\n\t"
                         "flw.ps f0, %1\n\t"
                         "flw.ps f1, %2\n\t"
                         "fbci.ps f2, 0x3f800 # 1.0\n\t"
                         "fmadd.ps f0, f0, f1, f2, rne\n\t"
                         "fsw.ps f0, %0"
                         : "=m"(*(float(*)[8])(args->z + i))
                         : "m"(*(const float(*)[8])(args->x + i)), "m"(*(const float(*)[8])(args->y + i))
                         : "f0", "f1", "f2");
    for (; i < mine.end; i++)
        args->z[i] = args->x[i] * args->y[i] + 1;
    return 0;
}
ET_TASK_ENTRY;
