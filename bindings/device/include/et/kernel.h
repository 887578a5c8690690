/*
 * How a kernel starts and ends. Spec: §14
 */
#ifndef ET_KERNEL_H
#define ET_KERNEL_H

#include "base.h"
#include "call.h"
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
ET_NOIPA __attribute__((used)) int64_t et_task(const struct args *args,
                                               const struct kernel_environment *env, uint64_t part,
                                               uint64_t parts);

ET_END_C

/* The entry point of a kernel with `et_task`: each hart of the launch does one part. */
#define ET_TASK_ENTRY                                                                             \
    int64_t entry_point(const struct args *args, const struct kernel_environment *env)            \
    {                                                                                             \
        return et_task(args, env, et_index(env), et_harts(env));                                  \
    }                                                                                             \
    ET_STATIC_ASSERT(1, "takes the semicolon")

/*
 * A further kernel in the same file: `ET_ENTRY(scale) { ... }` defines what a launch of the function
 * `scale` runs, as entry_point is for a launch of the file. All have the same `struct args`.
 */
#define ET_ENTRY(name)                                                                            \
    static int64_t name##_body(const struct args *args, const struct kernel_environment *env);    \
    ET_NORETURN __attribute__((used, section(".text.entry"))) void name(                          \
        const struct args *args, const struct kernel_environment *env);                           \
    void name(const struct args *args, const struct kernel_environment *env)                      \
    {                                                                                             \
        et_exit(name##_body(args, env), ET_RETURN_SUCCESS);                                       \
    }                                                                                             \
    static int64_t name##_body(const struct args *args, const struct kernel_environment *env)

/*
 * States the members of `struct args`, so that hosts refuse a launch with others before it happens:
 * `ET_ARGUMENTS("x: in f32[], y: inout f32[], a: f32, n: u64")`, once for each file. Pointers say
 * what the kernel does with the array: in, out, inout. The text takes no memory on the device.
 */
#define ET_ARGUMENTS(text)                                                                        \
    __asm__(".pushsection .et.arguments,\"\",@progbits\n"                                          \
            ".asciz \"" text "\"\n"                                                               \
            ".popsection");                                                                       \
    ET_STATIC_ASSERT(1, "takes the semicolon")

/*
 * Needed once, at file level, in a kernel that has zeroed variables but no initialised ones: gives
 * the writable segment a place in the file (kernel.ld says why).
 */
#define ET_BSS_ANCHOR                                                                             \
    static uint64_t et_bss_anchor __attribute__((used, section(".data.anchor"))) = 1

#endif
