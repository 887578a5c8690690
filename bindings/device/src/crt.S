/*
 * Start-up code of every kernel that does not bring its own `_start`.
 *
 * The firmware has set up the stack and passes the argument pointer in a0 and the kernel
 * environment in a1, which is just what a C function wants. gp stays 0: the linker script defines
 * no __global_pointer$, so no code refers to it.
 */
#include <et/device.h>

    .section .text.start, "ax", @progbits
    .globl  _start
    .type   _start, @function
_start:
    call    entry_point
    mv      a1, a0
    li      a0, ET_CALL_KERNEL_RETURN
    li      a2, ET_RETURN_SUCCESS
    ecall
    /* The call does not come back. If it does, stop at a place with a name. */
1:  j       1b
    .size   _start, . - _start
