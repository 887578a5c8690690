/*
 * Atomics, and loads and stores past the level-1 cache. Spec: ISA §3.1, §3.2
 *
 * The level-1 data caches of different minions are not kept coherent. "Local" operations (suffix
 * _l) meet in the second-level cache of the shire: they are atomic between harts of one shire only,
 * and trap on the L2 scratchpad. "Global" ones (suffix _g) act at the memory side and are atomic
 * over the whole chip. Never mix the two, or either with plain accesses, on one line.
 */
#ifndef ET_ATOMIC_H
#define ET_ATOMIC_H

#include "base.h"

#define ET_AMO_(name, mnemonic, type)                                                             \
    ET_INLINE type et_##name(volatile type *at, type operand)                                     \
    {                                                                                             \
        type old;                                                                                 \
        __asm__ volatile(mnemonic " %0, %2, (%1)"                                                 \
                         : "=r"(old)                                                              \
                         : "r"(at), "r"(operand)                                                  \
                         : "memory");                                                             \
        return old;                                                                               \
    }

/* et_<operation>_<scope><bits>: returns the old value; the address must be naturally aligned. */
#define ET_AMO(name, type32, type64)                                                              \
    ET_AMO_(name##_l32, #name "l.w", type32)                                                      \
    ET_AMO_(name##_g32, #name "g.w", type32)                                                      \
    ET_AMO_(name##_l64, #name "l.d", type64)                                                      \
    ET_AMO_(name##_g64, #name "g.d", type64)

ET_AMO(amoadd, uint32_t, uint64_t)
ET_AMO(amoswap, uint32_t, uint64_t)
ET_AMO(amoxor, uint32_t, uint64_t)
ET_AMO(amoor, uint32_t, uint64_t)
ET_AMO(amoand, uint32_t, uint64_t)
ET_AMO(amomin, int32_t, int64_t)
ET_AMO(amomax, int32_t, int64_t)
ET_AMO(amominu, uint32_t, uint64_t)
ET_AMO(amomaxu, uint32_t, uint64_t)

/*
 * Compare and swap: stores `desired` if memory holds `expected`; returns what was there. The
 * comparand is always x31, which no encoding field names, so the operand is pinned to t6.
 */
#define ET_CMPSWAP_(name, mnemonic, type)                                                         \
    ET_INLINE type et_##name(volatile type *at, type expected, type desired)                      \
    {                                                                                             \
        type old;                                                                                 \
        register type x31 __asm__("t6") = expected;                                               \
        __asm__ volatile(mnemonic " %0, %2, (%1)"                                                 \
                         : "=r"(old)                                                              \
                         : "r"(at), "r"(desired), "r"(x31)                                        \
                         : "memory");                                                             \
        return old;                                                                               \
    }

ET_CMPSWAP_(cmpswap_l32, "amocmpswapl.w", uint32_t)
ET_CMPSWAP_(cmpswap_g32, "amocmpswapg.w", uint32_t)
ET_CMPSWAP_(cmpswap_l64, "amocmpswapl.d", uint64_t)
ET_CMPSWAP_(cmpswap_g64, "amocmpswapg.d", uint64_t)

/* Loads and stores past the level-1 cache. There is no such load: "or" with zero is the load. */
#define ET_COHERENT_(scope, bits)                                                                 \
    ET_INLINE uint##bits##_t et_load_##scope##bits(volatile uint##bits##_t *at)                   \
    {                                                                                             \
        return et_amoor_##scope##bits(at, 0);                                                     \
    }                                                                                             \
    ET_INLINE void et_store_##scope##bits(volatile uint##bits##_t *at, uint##bits##_t value)      \
    {                                                                                             \
        (void)et_amoswap_##scope##bits(at, value);                                                \
    }

ET_COHERENT_(l, 32)
ET_COHERENT_(g, 32)
ET_COHERENT_(l, 64)
ET_COHERENT_(g, 64)

/*
 * Posted forms, without the old value: the hart goes on at once, and only a fence tells when they
 * have taken effect. Not even two of them are in order without one.
 */
#define ET_POST_(name, mnemonic)                                                                  \
    ET_INLINE void et_post_##name##_g64(volatile uint64_t *at, uint64_t operand)                  \
    {                                                                                             \
        __asm__ volatile(mnemonic " x0, %z1, (%0)" : : "r"(at), "rJ"(operand) : "memory");        \
    }

ET_POST_(store, "amoswapg.d")
ET_POST_(or, "amoorg.d")

/* Bytes and halfwords have real coherent stores (a halfword must be aligned), and no loads. */
#define ET_SMALL_STORE_(name, mnemonic, type)                                                     \
    ET_INLINE void et_store_##name(volatile type *at, type value)                                 \
    {                                                                                             \
        __asm__ volatile(mnemonic " %1, (%0)" : : "r"(at), "r"((uint64_t)value) : "memory");      \
    }

ET_SMALL_STORE_(l8, "sbl", uint8_t)
ET_SMALL_STORE_(g8, "sbg", uint8_t)
ET_SMALL_STORE_(l16, "shl", uint16_t)
ET_SMALL_STORE_(g16, "shg", uint16_t)

#endif
