/*
 * The scratchpad in the level-1 cache of a minion, and the one in the level-2 cache of a shire.
 * Spec: ISA §2, §4.3
 */
#ifndef ET_SCRATCHPAD_H
#define ET_SCRATCHPAD_H

#include "cache.h"

/* Lines of the L1 scratchpad. Only the tensor unit reads and writes them. */
#define ET_L1_SCRATCHPAD_LINES 48

/*
 * Turns the L1 scratchpad on or off for both harts of the minion. Turning it on zeroes it. One hart
 * does that while the other keeps away from it. Kernels start with it turned on.
 */
ET_INLINE void et_l1_scratchpad_enable(void)
{
    et_fence();
    ET_CSR_WRITE(ET_CSR_UCACHE_CONTROL, 2);
    et_cache_wait();
}
ET_INLINE void et_l1_scratchpad_disable(void)
{
    et_fence();
    ET_CSR_WRITE(ET_CSR_UCACHE_CONTROL, 0);
    et_cache_wait();
}

/* Bytes of the L2 scratchpad of a shire, as firmware configures it. Beyond is a bus error. */
#define ET_L2_SCRATCHPAD_BYTES 0x280000

/* In place of the number of a shire: the hart's own. */
#define ET_L2_OWN_SHIRE 0x7fu

/*
 * The byte `offset` of the L2 scratchpad of a shire. Harts read and write it in any size, with
 * plain and global accesses; local atomics trap. It is not zeroed at the start of a kernel.
 */
ET_INLINE void *et_l2_scratchpad(unsigned shire, size_t offset)
{
    return (void *)(0x80000000 + ((uintptr_t)shire << 23) + offset);
}

/*
 * The same bytes interleaved: line `line` of the shire `shire`, at addresses where consecutive
 * lines are those of consecutive shires.
 */
ET_INLINE void *et_l2_scratchpad_line(unsigned shire, size_t line)
{
    return (void *)(0xc0000000 + ((uintptr_t)(shire >> 5 & 3) << 28) + ((uintptr_t)line << 11) +
                    ((uintptr_t)(shire & 31) << 6));
}

#endif
