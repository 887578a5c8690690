/*
 * Who a hart is: its numbers on the chip, and its rank in a launch.
 */
#ifndef ET_HART_H
#define ET_HART_H

#include "base.h"
#include "environment.h"

/* Number on the chip: 64 * shire + 2 * minion + thread. Not volatile, since it never changes. */
ET_INLINE uint64_t et_hart_id(void)
{
    uint64_t value;
    __asm__("csrr %0, " ET_STR(ET_CSR_HARTID) : "=r"(value));
    return value;
}

ET_INLINE unsigned et_thread(void) { return et_hart_id() & 1; }
ET_INLINE unsigned et_minion(void) { return et_hart_id() >> 1 & 31; } /* in the shire */
ET_INLINE unsigned et_shire(void) { return (unsigned)(et_hart_id() >> 6); }

/* Number of the minion on the chip: what tensor_reduce calls its partner. */
ET_INLINE unsigned et_global_minion(void) { return (unsigned)(et_hart_id() >> 1); }

/* The lower half of the master shire runs firmware, so kernels get minions 16 to 31 there. */
ET_INLINE unsigned et_shire_harts(unsigned shire)
{
    return shire == ET_MASTER_SHIRE ? 32 : ET_HARTS_PER_SHIRE;
}
ET_INLINE unsigned et_shire_first_minion(unsigned shire)
{
    return shire == ET_MASTER_SHIRE ? 16 : 0;
}
ET_INLINE uint64_t et_shire_minion_mask(unsigned shire)
{
    return shire == ET_MASTER_SHIRE ? 0xffff0000 : 0xffffffff;
}

/* Open-coded, because the built-in would call into libgcc, which we do not link. */
ET_INLINE unsigned et_popcount(uint64_t bits)
{
    unsigned n = 0;
    for (; bits != 0; bits &= bits - 1)
        n++;
    return n;
}

/* Rank of this hart among the shire's compute harts: 0..63, or 0..31 in the master shire. */
ET_INLINE unsigned et_index_in_shire(void)
{
    return (et_hart_id() & 63) - 2 * et_shire_first_minion(et_shire());
}

/* Number of shires of this launch. */
ET_INLINE unsigned et_shires(const struct kernel_environment *env)
{
    return et_popcount(env->shire_mask);
}

/* Number of harts of this launch. */
ET_INLINE unsigned et_harts(const struct kernel_environment *env)
{
    uint64_t compute = env->shire_mask & 0xffffffff;
    unsigned master = env->shire_mask >> ET_MASTER_SHIRE & 1;
    return et_popcount(compute) * ET_HARTS_PER_SHIRE + master * 32;
}

/*
 * Rank of this hart in the launch: 0 .. et_harts - 1 without gaps, whatever the mask. Only full
 * shires can lie below a given one, since the master shire has the highest number.
 */
ET_INLINE unsigned et_index(const struct kernel_environment *env)
{
    uint64_t below = env->shire_mask & (((uint64_t)1 << et_shire()) - 1);
    return et_popcount(below) * ET_HARTS_PER_SHIRE + et_index_in_shire();
}

/*
 * Cycle counter of the neighbourhood. The vendor's library reads it four times in a row and trusts
 * only the last value, so we do too.
 */
ET_INLINE uint64_t et_cycles(void)
{
    uint64_t value;
    __asm__ volatile("csrr %0, " ET_STR(ET_CSR_HPMCOUNTER3) "\n\t"
                     "csrr %0, " ET_STR(ET_CSR_HPMCOUNTER3) "\n\t"
                     "csrr %0, " ET_STR(ET_CSR_HPMCOUNTER3) "\n\t"
                     "csrr %0, " ET_STR(ET_CSR_HPMCOUNTER3)
                     : "=r"(value));
    return value;
}

#endif
