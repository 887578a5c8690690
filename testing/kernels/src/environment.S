/*
 * environment: every hart writes down what it was started with, and its own view of the environment.
 *
 *   uint8_t *out;
 *
 * out is 64-byte aligned and has 128 bytes per hart of the launch; rank r owns the two lines at
 * out + 128 * r:
 *     0 uint64_t hart id              32 left as it is
 *     8 uint64_t sp at entry          64 struct kernel_environment, a copy of its 64 bytes
 *    16 uint64_t a0 at entry (argument pointer)
 *    24 uint64_t a1 at entry (environment pointer)
 *
 * `echo_env` looks at the other registers too, but copies the environment only once.
 *
 * In assembly, since C has no say over what sp is by the time it can ask. The start-up code leaves
 * sp, a0 and a1 alone.
 */
#include "etsoc.h"

    .text
    .globl  entry_point
    .type   entry_point, @function
entry_point:
    ld      t0, 0(a0)
    et_index t1, a1
    slli    t1, t1, 7
    add     t0, t0, t1

    et_hart_id t2
    sd      t2, 0(t0)
    sd      sp, 8(t0)
    sd      a0, 16(t0)
    sd      a1, 24(t0)

    .irp    at, 0, 8, 16, 24, 32, 40, 48, 56
    ld      t2, \at(a1)
    sd      t2, 64+\at(t0)
    .endr

    li      a0, 0
    ret
    .size   entry_point, . - entry_point
