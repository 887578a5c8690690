/*
 * Elementary functions, of one float and of eight at a time.
 *
 *   const float *in;  uint64_t n;  float *single;  float *packed;
 *
 * `in` has n floats, a multiple of 8, and n more for the second operand of the division. `single`
 * and `packed` get n for each function, in the order below.
 */
#include <et/device.h>
#include <et/math.h>

struct args {
    const float *in;
    uint64_t n;
    float *single;
    float *packed;
};

#define APPLY(name)                                                                               \
    do {                                                                                          \
        for (uint64_t i = begin; i < end; i++)                                                    \
            single[i] = et_f32_##name(in[i]);                                                     \
        for (uint64_t i = begin; i < end; i += ET_LANES)                                          \
            et_f32x8_##name((struct et_f32x8 *)(packed + i), (const struct et_f32x8 *)(in + i));  \
        single += n;                                                                              \
        packed += n;                                                                              \
    } while (0)

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    const float *in = args->in;
    float *single = args->single, *packed = args->packed;
    uint64_t n = args->n, share = n / et_harts(env);
    uint64_t begin = share * et_index(env), end = begin + share;

    APPLY(sqrt);
    APPLY(rsqrt);
    APPLY(exp);
    APPLY(log);
    APPLY(sin);
    APPLY(cos);
    APPLY(tanh);
    APPLY(sigmoid);
    for (uint64_t i = begin; i < end; i++)
        single[i] = et_f32_div(in[i], in[n + i]);
    for (uint64_t i = begin; i < end; i += ET_LANES)
        et_f32x8_div((struct et_f32x8 *)(packed + i), (const struct et_f32x8 *)(in + i),
                     (const struct et_f32x8 *)(in + n + i));
    return 0;
}
