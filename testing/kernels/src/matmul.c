/*
 * matmul: C = A * B, f32, row-major: A is m x k, B is k x n, C is m x n.
 *
 *   const float *a;  const float *b;  float *c;  uint64_t m;  uint64_t n;  uint64_t k;
 *
 * Each element is summed from +0 in ascending k with a rounded product and a rounded addition per
 * step, so a plain triple loop on the host gives the same bits. k = 0 gives zeros. C must not
 * overlap A or B.
 */
#include <et/device.h>

struct args {
    const float *a;
    const float *b;
    float *c;
    uint64_t m;
    uint64_t n;
    uint64_t k;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    const float *b = args->b;
    float *c = args->c;
    uint64_t n = args->n;
    uint64_t depth = args->k;
    struct et_range mine = et_part(c, sizeof *c, args->m * n, part, parts);

    uint64_t at = mine.begin;
    while (at < mine.end) {
        uint64_t column = at % n;
        const float *row = args->a + at / n * depth;
        uint64_t left = n - column < mine.end - at ? n - column : mine.end - at;

        if (left >= 4) {
            /* Four columns at a time share each load of A; the order of the sums is the same. */
            float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            for (uint64_t p = 0; p < depth; p++) {
                const float *from = b + p * n + column;
                float factor = row[p];
                s0 += factor * from[0];
                s1 += factor * from[1];
                s2 += factor * from[2];
                s3 += factor * from[3];
            }
            c[at] = s0;
            c[at + 1] = s1;
            c[at + 2] = s2;
            c[at + 3] = s3;
            at += 4;
        } else {
            float sum = 0;
            for (uint64_t p = 0; p < depth; p++)
                sum += row[p] * b[p * n + column];
            c[at++] = sum;
        }
    }
    return 0;
}
ET_TASK_ENTRY;
