/*
 * Elementary functions, of one float and of eight lanes. Spec: ISA §1.4, §1.5, §3.5.1
 *
 * The minions have no division and no square root, and their exponential and logarithm are those
 * of base 2. These functions are made of what they have. `et_f32_<name>` is for one float,
 * `et_f32x8_<name>` for the lanes that m0 selects; both need lane 0 of m0 to be set, as it is at
 * the start of a kernel, and rounding to the nearest. They are so many units in the last place off
 * at most, if what the hardware approximates is off by one:
 *
 *   sqrt                      1
 *   div, rsqrt, exp           2
 *   sin, cos                  2, for arguments up to 1e5
 *   log, sigmoid              3
 *   tanh                      4
 *
 * Subnormal arguments and results count as zero. Infinities, NaN, zeros and what is out of range
 * give what C's functions give, but that sqrt(-0) is 0 and rsqrt(-0) positive infinity.
 */
#ifndef ET_MATH_H
#define ET_MATH_H

#include "packed.h"

/* What the functions load; the offsets below are into this. */
static const float et_math_[] __attribute__((unused)) = {
    1.0f,                  /*   0 */
    0.5f,                  /*   4 */
    -0.5f,                 /*   8 */
    0.25f,                 /*  12 */
    0x1p126f,              /*  16 */
    0x1p-64f,              /*  20: below it square roots are of a multiple, */
    0x1p64f,               /*  24 */
    0x1p-32f,              /*  28 */
    130.0f,                /*  32: above it exp is infinite, */
    -150.0f,               /*  36: and below 0 */
    0x1.715476p+0f,        /*  40: log2(e) in two parts */
    0x1.4ae0c0p-26f,       /*  44 */
    0x1.62e430p-1f,        /*  48: ln 2 */
    -2.0f,                 /*  52 */
    0x1.45f306p-1f,        /*  56: 2 / pi */
    0x1.921fb6p+0f,        /*  60: pi / 2 in three parts */
    -0x1.777a5cp-25f,      /*  64 */
    -0x1.ee59dap-50f,      /*  68 */
    -1.0f / 6,             /*  72: sine */
    1.0f / 120,            /*  76 */
    -1.0f / 5040,          /*  80 */
    1.0f / 362880,         /*  84 */
    1.0f / 24,             /*  88: cosine */
    -1.0f / 720,           /*  92 */
    1.0f / 40320,          /*  96 */
    -1.0f / 3628800,       /* 100 */
    1.0f / 6,              /* 104: hyperbolic sine and cosine */
    1.0f / 5040,           /* 108 */
    1.0f / 720,            /* 112 */
};

#define ET_MATH_LOAD_(to, at) "fbc.ps " to ", " #at "(%2)\n\t"

/* ft0 = ft0 / ft1, by one step of Newton's method for 1 / ft1 and one for the quotient. */
#define ET_MATH_DIV_                                                                              \
    /* Above 2^126 there is no reciprocal: both are taken a quarter. */                           \
    "fsgnjx.ps ft2, ft1, ft1\n\t" ET_MATH_LOAD_("ft3", 16)                                        \
    "flt.ps ft2, ft3, ft2\n\t" ET_MATH_LOAD_("ft3", 12) ET_MATH_LOAD_("ft4", 0)                   \
    "fcmov.ps ft2, ft2, ft3, ft4\n\t"                                                             \
    "fmul.ps ft0, ft0, ft2\n\t"                                                                   \
    "fmul.ps ft1, ft1, ft2\n\t"                                                                   \
    "frcp.ps ft2, ft1\n\t"                                                                        \
    "fnmsub.ps ft4, ft1, ft2, ft4\n\t"                                                            \
    "fmadd.ps ft4, ft2, ft4, ft2\n\t"                                                             \
    "fmul.ps ft5, ft0, ft4\n\t"                                                                   \
    "fnmsub.ps ft6, ft1, ft5, ft0\n\t"                                                            \
    "fmadd.ps ft5, ft6, ft4, ft5\n\t"                                                             \
    /* With zeros and infinities the steps make NaN: what came first is right then. */            \
    "fmul.ps ft0, ft0, ft2\n\t"                                                                   \
    "feq.ps ft6, ft5, ft5\n\t"                                                                    \
    "fcmov.ps ft0, ft6, ft5, ft0\n\t"

/* ft0 = square root of ft0: 2^(log2 / 2), and one step of Newton's method. */
#define ET_MATH_SQRT_                                                                             \
    ET_MATH_LOAD_("ft1", 20) "flt.ps ft1, ft0, ft1\n\t"                                           \
    ET_MATH_LOAD_("ft2", 24) ET_MATH_LOAD_("ft3", 0) "fcmov.ps ft2, ft1, ft2, ft3\n\t"            \
    "fmul.ps ft0, ft0, ft2\n\t"                                                                   \
    ET_MATH_LOAD_("ft4", 28) "fcmov.ps ft1, ft1, ft4, ft3\n\t"                                    \
    "flog.ps ft2, ft0\n\t"                                                                        \
    ET_MATH_LOAD_("ft3", 4) "fmul.ps ft2, ft2, ft3\n\t"                                           \
    "fexp.ps ft2, ft2\n\t"                                                                        \
    "frcp.ps ft4, ft2\n\t"                                                                        \
    "fmul.ps ft4, ft4, ft3\n\t"                                                                   \
    "fnmsub.ps ft5, ft2, ft2, ft0\n\t"                                                            \
    "fmadd.ps ft5, ft5, ft4, ft2\n\t"                                                             \
    "feq.ps ft4, ft5, ft5\n\t"                                                                    \
    "fcmov.ps ft0, ft4, ft5, ft2\n\t"                                                             \
    "fmul.ps ft0, ft0, ft1\n\t"

/* ft0 = 1 / square root of ft0, the same way. */
#define ET_MATH_RSQRT_                                                                            \
    "flog.ps ft1, ft0\n\t"                                                                        \
    ET_MATH_LOAD_("ft2", 8) "fmul.ps ft1, ft1, ft2\n\t"                                           \
    "fexp.ps ft1, ft1\n\t"                                                                        \
    "fmul.ps ft3, ft0, ft1\n\t"                                                                   \
    ET_MATH_LOAD_("ft4", 0) "fnmsub.ps ft3, ft3, ft1, ft4\n\t"                                    \
    ET_MATH_LOAD_("ft2", 4) "fmul.ps ft3, ft3, ft2\n\t"                                           \
    "fmadd.ps ft3, ft3, ft1, ft1\n\t"                                                             \
    "feq.ps ft4, ft3, ft3\n\t"                                                                    \
    "fcmov.ps ft0, ft4, ft3, ft1\n\t"

/* ft0 = e^ft0: a power of two and the rest, the power in two halves for results near the ends. */
#define ET_MATH_EXP_                                                                              \
    ET_MATH_LOAD_("ft1", 32) "fmin.ps ft2, ft0, ft1\n\t"                                          \
    ET_MATH_LOAD_("ft1", 36) "fmax.ps ft2, ft2, ft1\n\t"                                          \
    ET_MATH_LOAD_("ft3", 40) "fmul.ps ft4, ft2, ft3\n\t"                                          \
    "fround.ps ft4, ft4\n\t"                                                                      \
    "fmsub.ps ft3, ft2, ft3, ft4\n\t"                                                             \
    ET_MATH_LOAD_("ft1", 44) "fmadd.ps ft3, ft2, ft1, ft3\n\t"                                    \
    "fexp.ps ft3, ft3\n\t"                                                                        \
    ET_MATH_LOAD_("ft1", 4) "fmul.ps ft5, ft4, ft1\n\t"                                           \
    "fround.ps ft5, ft5\n\t"                                                                      \
    "fsub.ps ft4, ft4, ft5\n\t"                                                                   \
    "fexp.ps ft5, ft5\n\t"                                                                        \
    "fexp.ps ft4, ft4\n\t"                                                                        \
    "fmul.ps ft3, ft3, ft5\n\t"                                                                   \
    "fmul.ps ft3, ft3, ft4\n\t"                                                                   \
    "feq.ps ft1, ft0, ft0\n\t"                                                                    \
    "fcmov.ps ft0, ft1, ft3, ft0\n\t"

#define ET_MATH_LOG_ "flog.ps ft0, ft0\n\t" ET_MATH_LOAD_("ft1", 48) "fmul.ps ft0, ft0, ft1\n\t"

/* ft3 = ft3 * ft2 + what is at `at`. */
#define ET_MATH_STEP_(at) ET_MATH_LOAD_("ft4", at) "fmadd.ps ft3, ft3, ft2, ft4\n\t"

/*
 * ft0 = sine of ft0: the rest of a division by a quarter turn, and the quarter, which `shift`
 * changes. Taylor's series are good enough for an eighth of a turn.
 */
#define ET_MATH_TURN_(shift)                                                                      \
    ET_MATH_LOAD_("ft1", 56) "fmul.ps ft1, ft0, ft1\n\t"                                          \
    "fround.ps ft1, ft1\n\t"                                                                      \
    ET_MATH_LOAD_("ft2", 60) "fnmsub.ps ft0, ft1, ft2, ft0\n\t"                                   \
    ET_MATH_LOAD_("ft2", 64) "fnmsub.ps ft0, ft1, ft2, ft0\n\t"                                   \
    ET_MATH_LOAD_("ft2", 68) "fnmsub.ps ft0, ft1, ft2, ft0\n\t"                                   \
    "fcvt.pw.ps ft1, ft1\n\t"                                                                     \
    "faddi.pi ft1, ft1, " #shift "\n\t"                                                           \
    "fmul.ps ft2, ft0, ft0\n\t"                                                                   \
    ET_MATH_LOAD_("ft3", 100) ET_MATH_STEP_(96) ET_MATH_STEP_(92) ET_MATH_STEP_(88)               \
    ET_MATH_STEP_(8) ET_MATH_STEP_(0)                                                             \
    "fsgnj.ps ft5, ft3, ft3\n\t"                                                                  \
    ET_MATH_LOAD_("ft3", 84) ET_MATH_STEP_(80) ET_MATH_STEP_(76) ET_MATH_STEP_(72)                \
    "fmul.ps ft3, ft3, ft2\n\t"                                                                   \
    "fmadd.ps ft3, ft3, ft0, ft0\n\t"                                                             \
    "fandi.pi ft4, ft1, 1\n\t"                                                                    \
    "fcmov.ps ft3, ft4, ft5, ft3\n\t"                                                             \
    "fandi.pi ft4, ft1, 2\n\t"                                                                    \
    "fslli.pi ft4, ft4, 30\n\t"                                                                   \
    "fxor.pi ft0, ft3, ft4\n\t"

/*
 * ft0 = hyperbolic tangent of ft0: (1 - e) / (1 + e) with e = exp(-2 |x|), or for less than 1/2
 * the quotient of hyperbolic sine and cosine.
 */
#define ET_MATH_TANH_                                                                             \
    "fsgnj.ps ft7, ft0, ft0\n\t"                                                                  \
    "fsgnjx.ps ft8, ft0, ft0\n\t"                                                                 \
    ET_MATH_LOAD_("ft1", 52) "fmul.ps ft0, ft8, ft1\n\t" ET_MATH_EXP_                             \
    ET_MATH_LOAD_("ft9", 0) "fsub.ps ft6, ft9, ft0\n\t"                                           \
    "fadd.ps ft10, ft9, ft0\n\t"                                                                  \
    "fmul.ps ft2, ft8, ft8\n\t"                                                                   \
    ET_MATH_LOAD_("ft3", 96) ET_MATH_STEP_(112) ET_MATH_STEP_(88) ET_MATH_STEP_(4)                \
    ET_MATH_STEP_(0)                                                                              \
    "fsgnj.ps ft5, ft3, ft3\n\t"                                                                  \
    ET_MATH_LOAD_("ft3", 84) ET_MATH_STEP_(108) ET_MATH_STEP_(76) ET_MATH_STEP_(104)              \
    "fmul.ps ft3, ft3, ft2\n\t"                                                                   \
    "fmadd.ps ft3, ft3, ft8, ft8\n\t"                                                             \
    ET_MATH_LOAD_("ft4", 4) "flt.ps ft4, ft8, ft4\n\t"                                            \
    "fcmov.ps ft0, ft4, ft3, ft6\n\t"                                                             \
    "fcmov.ps ft1, ft4, ft5, ft10\n\t" ET_MATH_DIV_                                               \
    "fsgnj.ps ft0, ft0, ft7\n\t"

/* ft0 = 1 / (1 + e^-ft0) */
#define ET_MATH_SIGMOID_                                                                          \
    "fsgnjn.ps ft0, ft0, ft0\n\t" ET_MATH_EXP_                                                    \
    ET_MATH_LOAD_("ft2", 0) "fadd.ps ft1, ft0, ft2\n\t"                                           \
    "fsgnj.ps ft0, ft2, ft2\n\t" ET_MATH_DIV_

#define ET_MATH_CLOBBERED_                                                                        \
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "ft8", "ft9", "ft10"

/* et_f32_<name>(a), and et_f32x8_<name>(to, a): *to = function of *a; they may be the same. */
#define ET_MATH_(name, body)                                                                      \
    ET_INLINE float et_f32_##name(float a)                                                        \
    {                                                                                             \
        float to;                                                                                 \
        __asm__("fmv.s ft0, %1\n\t" body "fmv.s %0, ft0"                                          \
                : "=f"(to)                                                                        \
                : "f"(a), "r"(et_math_), "m"(et_math_)                                            \
                : ET_MATH_CLOBBERED_);                                                            \
        return to;                                                                                \
    }                                                                                             \
    ET_INLINE void et_f32x8_##name(struct et_f32x8 *to, const struct et_f32x8 *a)                 \
    {                                                                                             \
        __asm__ volatile("flw.ps ft0, %1\n\t" body "fsw.ps ft0, %0"                               \
                         : "+m"(*to)                                                              \
                         : "m"(*a), "r"(et_math_), "m"(et_math_)                                  \
                         : ET_MATH_CLOBBERED_);                                                   \
    }

ET_MATH_(sqrt, ET_MATH_SQRT_)
ET_MATH_(rsqrt, ET_MATH_RSQRT_)
ET_MATH_(exp, ET_MATH_EXP_)
ET_MATH_(log, ET_MATH_LOG_)
ET_MATH_(sin, ET_MATH_TURN_(0))
ET_MATH_(cos, ET_MATH_TURN_(1))
ET_MATH_(tanh, ET_MATH_TANH_)
ET_MATH_(sigmoid, ET_MATH_SIGMOID_)

/* a / b */
ET_INLINE float et_f32_div(float a, float b)
{
    float to;
    __asm__("fmv.s ft0, %1\n\tfmv.s ft1, %4\n\t" ET_MATH_DIV_ "fmv.s %0, ft0"
            : "=f"(to)
            : "f"(a), "r"(et_math_), "m"(et_math_), "f"(b)
            : ET_MATH_CLOBBERED_);
    return to;
}
ET_INLINE void et_f32x8_div(struct et_f32x8 *to, const struct et_f32x8 *a,
                            const struct et_f32x8 *b)
{
    __asm__ volatile("flw.ps ft0, %1\n\tflw.ps ft1, %4\n\t" ET_MATH_DIV_ "fsw.ps ft0, %0"
                     : "+m"(*to)
                     : "m"(*a), "r"(et_math_), "m"(et_math_), "m"(*b)
                     : ET_MATH_CLOBBERED_);
}

#endif
