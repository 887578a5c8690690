/*
 * Fences, fast local barriers, credit counters, and barriers made of them. Spec: ISA §3.3
 *
 * At the start of a kernel all barriers and counters are 0. A barrier orders; it does not write
 * caches back: what another minion shall read is evicted before it (cache.h).
 */
#ifndef ET_BARRIER_H
#define ET_BARRIER_H

#include "hart.h"

/*
 * Completes all earlier memory accesses. The full form, because credit stores go to I/O space. It
 * does not write back or invalidate caches.
 */
ET_INLINE void et_fence(void)
{
    __asm__ volatile("fence iorw, iorw" : : : "memory");
}

/*
 * Joins fast local barrier `barrier` (0..31) of this shire as one of `participants` (1..256). Never
 * blocks; true for the last to arrive, and the barrier is then ready for reuse.
 */
ET_INLINE int et_flb_join(unsigned barrier, unsigned participants)
{
    uint64_t last;
    uint64_t request = barrier | (uint64_t)(participants - 1) << 5;
    __asm__ volatile("csrrw %0, " ET_STR(ET_CSR_FLB) ", %1"
                     : "=r"(last)
                     : "r"(request)
                     : "memory");
    return last != 0;
}

/* Takes one credit from counter 0 or 1 of this hart; sleeps until there is one. */
ET_INLINE void et_fcc_consume(unsigned counter)
{
    ET_CSR_WRITE(ET_CSR_FCC, counter);
}

/* Credits waiting for this hart. */
ET_INLINE unsigned et_fcc_available(unsigned counter)
{
    return ET_CSR_READ(ET_CSR_FCCNB) >> 16 * counter & 0xffff;
}

/* In place of the number of a shire: the hart's own. */
#define ET_OWN_SHIRE 0xffu

/* Where credits are given to counter `counter` of thread `thread` of the minions of a shire. */
ET_INLINE volatile uint64_t *et_credit_register(unsigned shire, unsigned thread, unsigned counter)
{
    return (volatile uint64_t *)(0x01003400c0 + ((uintptr_t)shire << 22) +
                                 8 * (uintptr_t)(2 * thread + counter));
}

/*
 * Gives one credit to counter `counter` of thread `thread` of each minion in `minions`. What the
 * receiver shall find in memory needs a fence before.
 */
ET_INLINE void et_credit(unsigned shire, unsigned thread, unsigned counter, uint64_t minions)
{
    *et_credit_register(shire, thread, counter) = minions;
}

/* The register for credits to one hart, and what to store there. Fence before storing. */
ET_INLINE volatile uint64_t *et_credit_hart_register(uint64_t hart_id, unsigned counter)
{
    return et_credit_register((unsigned)(hart_id >> 6), hart_id & 1, counter);
}
ET_INLINE uint64_t et_credit_hart_bit(uint64_t hart_id)
{
    return (uint64_t)1 << (hart_id >> 1 & 31);
}

/* Gives one credit to one hart. */
ET_INLINE void et_credit_hart(uint64_t hart_id, unsigned counter)
{
    *et_credit_hart_register(hart_id, counter) = et_credit_hart_bit(hart_id);
}

/* Gives one credit to every compute hart of a shire. */
ET_INLINE void et_credit_shire(unsigned shire, unsigned counter)
{
    uint64_t minions = et_shire_minion_mask(shire);
    et_credit(shire, 0, counter, minions);
    et_credit(shire, 1, counter, minions);
}

/*
 * Waits until both harts of this minion are here. Uses the fast local barrier with the minion's
 * number, and credit counter `counter`: others must not have barriers of these numbers pending.
 */
ET_INLINE void et_minion_barrier(unsigned counter)
{
    unsigned minion = et_minion();
    et_fence();
    if (et_flb_join(minion, 2)) {
        et_credit(ET_OWN_SHIRE, 0, counter, (uint64_t)1 << minion);
        et_credit(ET_OWN_SHIRE, 1, counter, (uint64_t)1 << minion);
    }
    et_fcc_consume(counter);
    et_fence();
}

/*
 * Waits until all compute harts of this shire are here. Uses fast local barrier `barrier` and
 * credit counter 0. The last to arrive pays everyone, itself included, so all leave the same way.
 */
ET_INLINE void et_shire_barrier(unsigned barrier)
{
    unsigned shire = et_shire();
    et_fence();
    if (et_flb_join(barrier, et_shire_harts(shire)))
        et_credit_shire(shire, 0);
    et_fcc_consume(0);
    et_fence();
}

/*
 * Waits until all harts of the launch are here. Uses fast local barrier `barrier` of each shire
 * and both credit counters: the last hart of each shire pays one credit (counter 1) to the hart
 * with rank 0, which collects one per shire and then pays everybody (counter 0).
 *
 * A counter in memory would do as well, but the firmware clears barriers and credits before each
 * launch, whereas memory would keep a half-finished count after an abort.
 */
ET_INLINE void et_launch_barrier(const struct kernel_environment *env, unsigned barrier)
{
    uint64_t mask = env->shire_mask;
    unsigned shire = et_shire();

    et_fence();
    if (et_flb_join(barrier, et_shire_harts(shire))) {
        unsigned lowest = 0;
        while ((mask >> lowest & 1) == 0)
            lowest++;
        et_credit(lowest, 0, 1, (uint64_t)1 << et_shire_first_minion(lowest));
    }
    if (et_index(env) == 0) {
        for (unsigned n = et_popcount(mask); n != 0; n--)
            et_fcc_consume(1);
        for (unsigned s = 0; s <= ET_MASTER_SHIRE; s++)
            if (mask >> s & 1)
                et_credit_shire(s, 0);
    }
    et_fcc_consume(0);
    et_fence();
}

#endif
