/*
 * Environment calls, and ends of a kernel. Spec: §14
 */
#ifndef ET_CALL_H
#define ET_CALL_H

#include "base.h"

/* Environment call `number`; returns what it does. All other registers stay as they are. */
ET_INLINE int64_t et_call(uint64_t number, uint64_t first, uint64_t second)
{
    register uint64_t a0 __asm__("a0") = number;
    register uint64_t a1 __asm__("a1") = first;
    register uint64_t a2 __asm__("a2") = second;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2) : "memory");
    return (int64_t)a0;
}

/* Ends the kernel on this hart without going back through the start-up code. */
ET_NORETURN __attribute__((unused)) static inline void et_exit(int64_t value, uint64_t type)
{
    (void)et_call(ET_CALL_KERNEL_RETURN, (uint64_t)value, type);
    __builtin_unreachable();
}

/* Gives up: the launch fails, with a report of this place. Other harts run on. */
ET_NORETURN __attribute__((unused)) static inline void et_abort(void)
{
    et_exit(-1, ET_RETURN_SELF_ABORT);
}

#endif
