/*
 * trap_illegal: runs an illegal instruction (the all-zero halfword) on one hart.
 *
 *   uint64_t hart;
 *
 * hart is a rank in the launch, or ~0 for all. Without arguments it is rank 0. The faulting pc is
 * the symbol `illegal_instruction`; the cause is 2. The other harts return 0.
 */
#include <et/device.h>

    .text
    .globl  entry_point
    .type   entry_point, @function
entry_point:
    li      t0, 0
    beqz    a0, 1f
    ld      t0, 0(a0)
1:  et_index t1, a1
    beq     t0, t1, illegal_instruction
    li      t1, -1
    beq     t0, t1, illegal_instruction
    li      a0, 0
    ret
    .size   entry_point, . - entry_point

    .globl  illegal_instruction
    .type   illegal_instruction, @function
illegal_instruction:
    c.unimp                         /* assembles to 0x0000 */
    /* A host that lets this pass shall not see a success. */
    li      a0, -1
    ret
    .size   illegal_instruction, . - illegal_instruction
