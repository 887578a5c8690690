/*
 * How a kernel starts and ends. Spec: §14
 */
#ifndef ET_KERNEL_H
#define ET_KERNEL_H

#include "base.h"
#include "environment.h"
#include "hart.h"

/* Each kernel defines its own `struct args`; the host fills it in. */
struct args;

ET_BEGIN_C

/* Called on every hart of the launch. A negative result makes the launch fail. */
int64_t entry_point(const struct args *args, const struct kernel_environment *env);

/*
 * Work that can be cut into equal parts: does part `part` of `parts`. A kernel with it has no
 * entry point of its own but says ET_TASK_ENTRY; it can be launched on many harts, and be called by
 * one hart as a task of a graph, with part 0 of 1. A negative result is a failure.
 */
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts) __attribute__((used, noipa));

ET_END_C

/* The entry point of a kernel with `et_task`: each hart of the launch does one part. */
#define ET_TASK_ENTRY                                                                             \
    int64_t entry_point(const struct args *args, const struct kernel_environment *env)            \
    {                                                                                             \
        return et_task(args, env, et_index(env), et_harts(env));                                  \
    }                                                                                             \
    ET_STATIC_ASSERT(1, "takes the semicolon")

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

/*
 * Needed once, at file level, in a kernel that has zeroed variables but no initialised ones: gives
 * the writable segment a place in the file (kernel.ld says why).
 */
#define ET_BSS_ANCHOR                                                                             \
    static uint64_t et_bss_anchor __attribute__((used, section(".data.anchor"))) = 1

#endif
