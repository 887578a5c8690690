/*
 * echo_env: writes down how the kernel was started.
 *
 *   uint8_t *out;
 *
 * out is 64-byte aligned. Its first 64 bytes get a copy of the kernel environment (by rank 0), and
 * the 64 bytes at out + 64 * (rank + 1) eight words by each hart:
 *   0 hart id                     4 a0 at entry (argument pointer)
 *   1 rank in the launch          5 a1 at entry (environment pointer)
 *   2 harts of the launch         6 ra at entry
 *   3 sp at entry                 7 all other x registers, fcsr and low words of the f registers,
 *                                   or-ed together: 0 after a proper start
 *
 * It has its own `_start`, since the usual one would have changed ra before we could look.
 */
#include <et/device.h>

    .section .text.start, "ax", @progbits
    .globl  _start
    .type   _start, @function
_start:
    /* Fold what should be zero into x3 before any of it is used. */
    .irp    n, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    or      x3, x3, x\n
    .endr
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fmv.x.w x4, f\n
    or      x3, x3, x4
    .endr
    frcsr   x4
    or      x3, x3, x4

    ld      t0, 0(a0)
    et_index t1, a1
    et_harts t2, a1
    et_hart_id t3

    addi    t4, t1, 1
    slli    t4, t4, 6
    add     t4, t4, t0
    sd      t3, 0(t4)
    sd      t1, 8(t4)
    sd      t2, 16(t4)
    sd      sp, 24(t4)
    sd      a0, 32(t4)
    sd      a1, 40(t4)
    sd      ra, 48(t4)
    sd      x3, 56(t4)

    bnez    t1, 1f
    .irp    at, 0, 8, 16, 24, 32, 40, 48, 56
    ld      t5, \at(a1)
    sd      t5, \at(t0)
    .endr

1:  li      a0, ET_CALL_KERNEL_RETURN
    li      a1, 0
    li      a2, ET_RETURN_SUCCESS
    ecall
2:  j       2b
    .size   _start, . - _start
