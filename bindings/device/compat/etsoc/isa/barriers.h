/* For kernels that were written for the vendor's headers: barriers and credits. */
#ifndef ET_COMPAT_BARRIERS_H
#define ET_COMPAT_BARRIERS_H

#include <et/barrier.h>

#include "hart.h"

#define SHIRE_MASTER 32
#define SHIRE_OWN 0xFF
#define THREAD_0 0
#define THREAD_1 1
#define FCC_0 0
#define FCC_1 1

/* Joins barrier `flb`; 1 for the hart that finds `match` others there. */
ET_INLINE uint64_t flbarrier(uint64_t flb, uint64_t match)
{
    return (uint64_t)et_flb_join((unsigned)flb, (unsigned)match + 1);
}

ET_INLINE void fcc_send(uint64_t shire, uint64_t thread, uint64_t fcc, uint64_t minions)
{
    et_credit((unsigned)shire, (unsigned)thread, (unsigned)fcc, minions);
}

ET_INLINE void fcc_consume(uint64_t fcc)
{
    et_fcc_consume((unsigned)fcc);
}

/*
 * Waits until `count` harts of this shire are here, those of thread 0 in the first mask of minions
 * and those of thread 1 in the second; 1 for the last. Unlike et_shire_barrier it does not fence.
 */
ET_INLINE uint64_t shire_barrier(uint64_t flb, uint64_t fcc, uint64_t count, uint64_t minions_t0,
                                 uint64_t minions_t1)
{
    uint64_t last = flbarrier(flb, count - 1);
    if (last) {
        fcc_send(SHIRE_OWN, THREAD_0, fcc, minions_t0);
        fcc_send(SHIRE_OWN, THREAD_1, fcc, minions_t1);
    }
    fcc_consume(fcc);
    return last;
}

#endif
