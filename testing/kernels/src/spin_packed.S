/*
 * spin_packed: packed benchmark. Without data eight fused operations per iteration, which do not
 * depend on each other; with it what a product with 8-bit weights does with a block of 32: four
 * times a load of floats, a gather of bytes, a conversion and a fused operation.
 *
 *   uint64_t iterations;  uint64_t *out;  const void *data;
 *
 * data has 128 bytes of floats and then 32 weights, aligned to 64 bytes.
 * out[rank] = iterations done, stored past the caches by each hart.
 */
#include <et/device.h>

    .text
    .globl  entry_point
    .type   entry_point, @function
entry_point:
    ld      t0, 0(a0)
    ld      t1, 8(a0)
    et_index t2, a1             /* uses t5 and t6 */
    ld      t5, 16(a0)
    slli    t2, t2, 3
    add     t1, t1, t2

    mv      t3, t0
    mov.m.x m0, zero, 0xff
    li      t4, 0x3f800000          /* 1.0 */
    fbcx.ps f16, t4
    fbcx.ps f0, t4
    fbcx.ps f1, t4
    fbcx.ps f2, t4
    fbcx.ps f3, t4
    fbcx.ps f4, t4
    fbcx.ps f5, t4
    fbcx.ps f6, t4
    fbcx.ps f7, t4
    li      t4, 0x3eaaaaab          /* about a third: the results are inexact from the start */
    fbcx.ps f17, t4
    beqz    t3, 3f
    bnez    t5, 2f

    /* All values stay between 0.3 and 1. */
    .balign 8
1:  fmadd.ps f0, f0, f17, f17, rne
    fmadd.ps f1, f1, f17, f17, rne
    fmadd.ps f2, f2, f17, f17, rne
    fmadd.ps f3, f3, f17, f17, rne
    fmadd.ps f4, f4, f17, f17, rne
    fmadd.ps f5, f5, f17, f17, rne
    fmadd.ps f6, f6, f17, f17, rne
    fmadd.ps f7, f7, f17, f17, rne
    addi    t3, t3, -1
    bnez    t3, 1b
    j       3f

2:  lla     t4, in_order
    flw.ps  f31, 0(t4)
    addi    t6, t5, 128
    addi    a2, t5, 136
    addi    a3, t5, 144
    addi    a4, t5, 152
    .balign 8
4:  fbci.pi f0, 0
    flw.ps  f8, 0(t5)
    fgb.ps  f9, f31(t6)
    fcvt.ps.pw f9, f9, rne
    fmadd.ps f0, f9, f8, f0, rne
    flw.ps  f8, 32(t5)
    fgb.ps  f9, f31(a2)
    fcvt.ps.pw f9, f9, rne
    fmadd.ps f0, f9, f8, f0, rne
    flw.ps  f8, 64(t5)
    fgb.ps  f9, f31(a3)
    fcvt.ps.pw f9, f9, rne
    fmadd.ps f0, f9, f8, f0, rne
    flw.ps  f8, 96(t5)
    fgb.ps  f9, f31(a4)
    fcvt.ps.pw f9, f9, rne
    fmadd.ps f0, f9, f8, f0, rne
    addi    t3, t3, -1
    bnez    t3, 4b

3:  sub     t0, t0, t3
    et_store_g64 t0, t1
    li      a0, 0
    ret
    .size   entry_point, . - entry_point

    .section .rodata
    .balign 32
in_order:
    .word   0, 1, 2, 3, 4, 5, 6, 7
