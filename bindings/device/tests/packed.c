/*
 * Packed vectors, from rank 0.
 *
 *   const struct et_f32x8 *in;  const struct et_i32x8 *integers;  uint32_t *out;
 *
 * in has three vectors, integers two. out gets one vector for each operation, in the order below.
 */
#include <et/device.h>

struct args {
    const struct et_f32x8 *in;
    const struct et_i32x8 *integers;
    struct et_f32x8 *out;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    const struct et_f32x8 *a = args->in, *b = a + 1, *c = a + 2;
    const struct et_i32x8 *i = args->integers, *j = i + 1;
    struct et_f32x8 *f = args->out;

    if (et_index(env) != 0)
        return 0;
    et_f32x8_add(f++, a, b);
    et_f32x8_sub(f++, a, b);
    et_f32x8_mul(f++, a, b);
    et_f32x8_min(f++, a, b);
    et_f32x8_max(f++, a, b);
    et_f32x8_fma(f++, a, b, c);
    et_f32x8_fma_sub(f++, a, b, c);
    et_f32x8_sub_fma(f++, a, b, c);
    et_f32x8_recip(f++, a);
    et_f32x8_exp2(f++, a);
    et_f32x8_log2(f++, b);
    et_f32x8_round(f++, a);
    et_f32x8_from_i32(f++, i);
    et_f32x8_fill(f++, 1.5f);
    et_f32x8_swizzle(f++, a, 0x1b);

    struct et_i32x8 *g = (struct et_i32x8 *)f;
    et_i32x8_from_f32(g++, a);
    et_i32x8_f16_from_f32(g, b);
    g++;
    et_f32x8_from_f16((struct et_f32x8 *)g, g - 1);
    g++;
    et_i32x8_add(g++, i, j);
    et_i32x8_sub(g++, i, j);
    et_i32x8_mul(g++, i, j);
    et_i32x8_and(g++, i, j);
    et_i32x8_or(g++, i, j);
    et_i32x8_xor(g++, i, j);
    et_i32x8_shift_left(g++, i, j);
    et_i32x8_shift_right(g++, i, j);
    et_i32x8_shift_right_sign(g++, i, j);
    et_i32x8_min(g++, i, j);
    et_i32x8_max(g++, i, j);
    et_i32x8_fill(g++, -7);

    /* Only lanes of the mask are written; the others stay. */
    uint64_t masks = et_masks_save();
    *g = *i;
    et_lanes(0x5a);
    et_i32x8_fill(g++, 9);
    g->lane[0] = et_f32x8_less(a, b);
    et_lanes_all();
    g->lane[1] = et_f32x8_less(a, b);
    g->lane[2] = et_f32x8_less_equal(a, b);
    g->lane[3] = et_f32x8_equal(a, b);
    g->lane[4] = et_i32x8_less(i, j);
    g->lane[5] = (int32_t)(et_masks_save() & 0xff);
    et_masks_restore(masks);
    g->lane[6] = (int32_t)et_masks_save();
    g->lane[7] = 0;
    g++;

    /* Backwards, and back again. */
    struct et_i32x8 offsets;
    for (int lane = 0; lane < ET_LANES; lane++)
        offsets.lane[lane] = 4 * (ET_LANES - 1 - lane);
    et_f32x8_gather((struct et_f32x8 *)g, a, &offsets);
    et_f32x8_scatter((struct et_f32x8 *)g, g + 1, &offsets);
    return 0;
}
