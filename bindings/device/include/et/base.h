/*
 * What the other headers are written with.
 */
#ifndef ET_BASE_H
#define ET_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "csr.h"

#ifdef __cplusplus
#define ET_BEGIN_C extern "C" {
#define ET_END_C }
#define ET_STATIC_ASSERT static_assert
#define ET_NORETURN [[noreturn]]
#else
#define ET_BEGIN_C
#define ET_END_C
#define ET_STATIC_ASSERT _Static_assert
#define ET_NORETURN _Noreturn
#endif

#define ET_INLINE static inline __attribute__((always_inline, unused))
#ifdef __clang__
#define ET_NOINLINE __attribute__((noinline))
/* Called by address as well: what a compiler finds out of one caller is not true of the others. */
#define ET_NOIPA ET_NOINLINE
#else
#define ET_NOINLINE __attribute__((noinline, noclone))
#define ET_NOIPA __attribute__((noipa))
#endif
#define ET_ALIGN_LINE __attribute__((aligned(ET_LINE_BYTES)))

#define ET_STR_(x) #x
#define ET_STR(x) ET_STR_(x)

/* Reads and writes of control registers, by number. */
#define ET_CSR_READ(csr)                                                                          \
    (__extension__({                                                                              \
        uint64_t et_value_;                                                                       \
        __asm__ volatile("csrr %0, " ET_STR(csr) : "=r"(et_value_) : : "memory");                 \
        et_value_;                                                                                \
    }))
#define ET_CSR_WRITE(csr, value)                                                                  \
    __asm__ volatile("csrw " ET_STR(csr) ", %0" : : "rK"((uint64_t)(value)) : "memory")

/*
 * Writes to the registers that start something and take more in x31, which no field of the
 * instruction names.
 */
#define ET_CSR_START(csr, command, more)                                                          \
    do {                                                                                          \
        uint64_t et_command_ = (command);                                                         \
        uint64_t et_more_ = (more);                                                               \
        register uint64_t et_x31_ __asm__("t6") = et_more_;                                       \
        __asm__ volatile("csrw " ET_STR(csr) ", %0"                                               \
                         :                                                                        \
                         : "r"(et_command_), "r"(et_x31_)                                         \
                         : "memory");                                                             \
    } while (0)

#endif
