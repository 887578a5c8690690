/*
 * hang: never ends; a launch of it is over when the host aborts it.
 *
 *   no arguments
 *
 * t0 counts, so that two register dumps show that the hart was alive.
 */
#include <et/device.h>

    .text
    .globl  entry_point
    .type   entry_point, @function
entry_point:
    li      t0, 0
1:  addi    t0, t0, 1
    j       1b
    .size   entry_point, . - entry_point
