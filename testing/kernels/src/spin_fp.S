/*
 * spin_fp: single-precision benchmark, eight instructions per iteration, two of them fused.
 *
 *   uint64_t iterations;  uint64_t *out;
 *
 * out[rank] = iterations done, stored past the caches by each hart.
 */
#include <et/device.h>

    .text
    .globl  entry_point
    .type   entry_point, @function
entry_point:
    ld      t0, 0(a0)
    ld      t1, 8(a0)
    et_index t2, a1
    slli    t2, t2, 3
    add     t1, t1, t2

    mv      t3, t0
    li      t4, 0x3f800000          /* 1.0 */
    fmv.w.x fa0, t4
    li      t4, 0x3f000000          /* 0.5 */
    fmv.w.x fa1, t4
    li      t4, 0x3e800000          /* 0.25 */
    fmv.w.x fa2, t4
    beqz    t3, 2f

    /* All values stay between 0.125 and 2: neither slow paths nor flushed results take part. */
    .balign 8
1:  fmadd.s fa0, fa0, fa1, fa2
    fadd.s  fa3, fa0, fa1
    fmul.s  fa4, fa3, fa1
    fsub.s  fa5, fa4, fa2
    fmadd.s fa6, fa5, fa1, fa3
    fmin.s  fa0, fa6, fa0
    addi    t3, t3, -1
    bnez    t3, 1b

2:  sub     t0, t0, t3
    et_store_g64 t0, t1
    li      a0, 0
    ret
    .size   entry_point, . - entry_point
