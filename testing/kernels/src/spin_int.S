/*
 * spin_int: integer benchmark, eight instructions per iteration.
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
    et_hart_id a2
    li      a3, 1
    li      a4, 2
    li      a5, 3
    beqz    t3, 2f

    /* Six operations that depend on one another across iterations, so that none is free. */
    .balign 8
1:  add     a2, a2, a3
    xor     a3, a3, a4
    slli    a4, a2, 3
    sub     a5, a5, a2
    or      a3, a3, a5
    srli    a5, a4, 5
    addi    t3, t3, -1
    bnez    t3, 1b

2:  sub     t0, t0, t3
    et_store_g64 t0, t1
    li      a0, 0
    ret
    .size   entry_point, . - entry_point
