/*
 * Eight lanes of 32 bits at a time. Spec: ISA §3.4 to §3.6
 *
 * The compiler knows float registers of 32 bits only, so it cannot keep vectors in them. Here a
 * vector is 32 bytes of memory, and each function loads, computes and stores. Where that is too
 * slow, write the loop as one `__asm__` with the vendor's mnemonics, name the f registers in it
 * yourself and list them as clobbered; code of the compiler in between may use them, and zeroes
 * lanes 1 to 7 of those that it writes.
 *
 * The mask m0 says which lanes are computed; the others of a result stay as they were. Kernels
 * start with all. Subnormal numbers count as zero. Arithmetic rounds by the rounding mode of fcsr.
 */
#ifndef ET_PACKED_H
#define ET_PACKED_H

#include "base.h"

#define ET_LANES 8

/* Vectors. Any alignment of 4 bytes does; one that is a multiple of 32 is the fastest. */
struct et_f32x8 {
    float lane[ET_LANES];
};
struct et_i32x8 {
    int32_t lane[ET_LANES];
};

/* ---- masks ---------------------------------------------------------------------------------- */

/* Sets m0: bit e for lane e. */
ET_INLINE void et_lanes(uint8_t lanes)
{
    __asm__ volatile("mov.m.x m0, %0, 0" : : "r"((uint64_t)lanes) : "memory");
}

/* Sets m0 to all lanes. */
ET_INLINE void et_lanes_all(void)
{
    __asm__ volatile("mov.m.x m0, zero, 0xff" : : : "memory");
}

/* All eight masks, m0 in the lowest byte: what et_masks_restore takes. */
ET_INLINE uint64_t et_masks_save(void)
{
    uint64_t masks;
    __asm__ volatile("mova.x.m %0" : "=r"(masks) : : "memory");
    return masks;
}
ET_INLINE void et_masks_restore(uint64_t masks)
{
    __asm__ volatile("mova.m.x %0" : : "r"(masks) : "memory");
}

/* ---- computing ------------------------------------------------------------------------------ */

/* et_<name>(to, a): *to = operation of *a. The vectors may be the same. */
#define ET_PACKED_1_(name, result, operand, operation)                                            \
    ET_INLINE void et_##name(struct result *to, const struct operand *a)                          \
    {                                                                                             \
        __asm__ volatile("flw.ps ft0, %1\n\t" operation " ft0, ft0\n\tfsw.ps ft0, %0"             \
                         : "+m"(*to)                                                              \
                         : "m"(*a)                                                                \
                         : "ft0");                                                                \
    }

/* et_<name>(to, a, b): *to = *a operation *b. */
#define ET_PACKED_2_(name, vector, operation)                                                     \
    ET_INLINE void et_##name(struct vector *to, const struct vector *a, const struct vector *b)   \
    {                                                                                             \
        __asm__ volatile("flw.ps ft0, %1\n\tflw.ps ft1, %2\n\t" operation                         \
                         " ft0, ft0, ft1\n\tfsw.ps ft0, %0"                                       \
                         : "+m"(*to)                                                              \
                         : "m"(*a), "m"(*b)                                                       \
                         : "ft0", "ft1");                                                         \
    }

/* et_<name>(to, a, b, c), with one rounding. */
#define ET_PACKED_3_(name, operation)                                                             \
    ET_INLINE void et_##name(struct et_f32x8 *to, const struct et_f32x8 *a,                       \
                             const struct et_f32x8 *b, const struct et_f32x8 *c)                  \
    {                                                                                             \
        __asm__ volatile("flw.ps ft0, %1\n\tflw.ps ft1, %2\n\tflw.ps ft2, %3\n\t" operation       \
                         " ft0, ft0, ft1, ft2\n\tfsw.ps ft0, %0"                                  \
                         : "+m"(*to)                                                              \
                         : "m"(*a), "m"(*b), "m"(*c)                                              \
                         : "ft0", "ft1", "ft2");                                                  \
    }

ET_PACKED_2_(f32x8_add, et_f32x8, "fadd.ps")
ET_PACKED_2_(f32x8_sub, et_f32x8, "fsub.ps")
ET_PACKED_2_(f32x8_mul, et_f32x8, "fmul.ps")
ET_PACKED_2_(f32x8_min, et_f32x8, "fmin.ps")
ET_PACKED_2_(f32x8_max, et_f32x8, "fmax.ps")
ET_PACKED_3_(f32x8_fma, "fmadd.ps")      /* a * b + c */
ET_PACKED_3_(f32x8_fma_sub, "fmsub.ps")  /* a * b - c */
ET_PACKED_3_(f32x8_sub_fma, "fnmsub.ps") /* c - a * b */

/* Within one unit in the last place. */
ET_PACKED_1_(f32x8_recip, et_f32x8, et_f32x8, "frcp.ps") /* 1 / a */
ET_PACKED_1_(f32x8_exp2, et_f32x8, et_f32x8, "fexp.ps")
ET_PACKED_1_(f32x8_log2, et_f32x8, et_f32x8, "flog.ps")

ET_PACKED_1_(f32x8_round, et_f32x8, et_f32x8, "fround.ps") /* to a whole number */
ET_PACKED_1_(f32x8_from_i32, et_f32x8, et_i32x8, "fcvt.ps.pw")
ET_PACKED_1_(i32x8_from_f32, et_i32x8, et_f32x8, "fcvt.pw.ps")

/* Half precision: in the low half of each lane, the high half is 0. */
ET_PACKED_1_(f32x8_from_f16, et_f32x8, et_i32x8, "fcvt.ps.f16")
ET_PACKED_1_(i32x8_f16_from_f32, et_i32x8, et_f32x8, "fcvt.f16.ps")

ET_PACKED_2_(i32x8_add, et_i32x8, "fadd.pi")
ET_PACKED_2_(i32x8_sub, et_i32x8, "fsub.pi")
ET_PACKED_2_(i32x8_mul, et_i32x8, "fmul.pi")
ET_PACKED_2_(i32x8_and, et_i32x8, "fand.pi")
ET_PACKED_2_(i32x8_or, et_i32x8, "for.pi")
ET_PACKED_2_(i32x8_xor, et_i32x8, "fxor.pi")
ET_PACKED_2_(i32x8_shift_left, et_i32x8, "fsll.pi")
ET_PACKED_2_(i32x8_shift_right, et_i32x8, "fsrl.pi")       /* zeros come in */
ET_PACKED_2_(i32x8_shift_right_sign, et_i32x8, "fsra.pi") /* the sign comes in */
ET_PACKED_2_(i32x8_min, et_i32x8, "fmin.pi")
ET_PACKED_2_(i32x8_max, et_i32x8, "fmax.pi")

/* The same value in all lanes. */
ET_INLINE void et_i32x8_fill(struct et_i32x8 *to, int32_t value)
{
    __asm__ volatile("fbcx.ps ft0, %1\n\tfsw.ps ft0, %0"
                     : "+m"(*to)
                     : "r"((int64_t)value)
                     : "ft0");
}
ET_INLINE void et_f32x8_fill(struct et_f32x8 *to, float value)
{
    __asm__ volatile("fbc.ps ft0, %1\n\tfsw.ps ft0, %0" : "+m"(*to) : "m"(value) : "ft0");
}

/* Lane e of each half takes lane (order >> 2 * (e % 4)) & 3 of that half; `order` is a constant. */
#define et_f32x8_swizzle(to, a, order)                                                            \
    do {                                                                                          \
        struct et_f32x8 *et_to_ = (to);                                                           \
        const struct et_f32x8 *et_a_ = (a);                                                       \
        __asm__ volatile("flw.ps ft0, %1\n\tfswizz.ps ft0, ft0, %2\n\tfsw.ps ft0, %0"             \
                         : "+m"(*et_to_)                                                          \
                         : "m"(*et_a_), "i"(order)                                                \
                         : "ft0");                                                                \
    } while (0)

/* ---- comparing ------------------------------------------------------------------------------ */

/* Returns bit e for lane e, 0 for lanes that are not in m0. Changes m1. */
#define ET_PACKED_COMPARE_(name, vector, operation)                                               \
    ET_INLINE uint8_t et_##name(const struct vector *a, const struct vector *b)                   \
    {                                                                                             \
        uint64_t masks;                                                                           \
        __asm__ volatile("flw.ps ft0, %1\n\tflw.ps ft1, %2\n\tmov.m.x m1, zero, 0\n\t" operation  \
                         " m1, ft0, ft1\n\tmova.x.m %0"                                           \
                         : "=r"(masks)                                                            \
                         : "m"(*a), "m"(*b)                                                       \
                         : "ft0", "ft1");                                                         \
        return (uint8_t)(masks >> 8);                                                             \
    }

ET_PACKED_COMPARE_(f32x8_less, et_f32x8, "fltm.ps")
ET_PACKED_COMPARE_(f32x8_less_equal, et_f32x8, "flem.ps")
ET_PACKED_COMPARE_(f32x8_equal, et_f32x8, "feqm.ps")
ET_PACKED_COMPARE_(i32x8_less, et_i32x8, "fltm.pi")

/* ---- gathering ------------------------------------------------------------------------------ */

/* Lane e is the word at `base` + `offsets` lane e, in bytes. */
ET_INLINE void et_f32x8_gather(struct et_f32x8 *to, const void *base,
                               const struct et_i32x8 *offsets)
{
    __asm__ volatile("flw.ps ft0, %1\n\tfgw.ps ft1, ft0(%2)\n\tfsw.ps ft1, %0"
                     : "+m"(*to)
                     : "m"(*offsets), "r"(base)
                     : "ft0", "ft1", "memory");
}

/* The word at `base` + `offsets` lane e becomes lane e; of equal offsets the highest lane wins. */
ET_INLINE void et_f32x8_scatter(const struct et_f32x8 *from, void *base,
                                const struct et_i32x8 *offsets)
{
    __asm__ volatile("flw.ps ft0, %0\n\tflw.ps ft1, %1\n\tfscw.ps ft1, ft0(%2)"
                     :
                     : "m"(*offsets), "m"(*from), "r"(base)
                     : "ft0", "ft1", "memory");
}

#endif
