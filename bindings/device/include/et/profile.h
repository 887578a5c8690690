/*
 * Performance counters, and marks around parts of a kernel, in the trace of the launch.
 * Spec: §16.2, ISA §2
 *
 *     ET_REGION_BEGIN("load");
 *     ...
 *     ET_REGION_END("load");
 *     et_trace_counters();
 *
 * Each mark costs an entry of 48 bytes and the reading of two counters; on a hart that does not
 * trace, a load and a branch.
 */
#ifndef ET_PROFILE_H
#define ET_PROFILE_H

#include "call.h"
#include "trace.h"

/* Kinds of entries. */
#define ET_TRACE_PMC_COUNTER 1
#define ET_TRACE_PMC_COUNTERS 2
#define ET_TRACE_USER_PROFILE 16

/* Bits of the event mask. */
#define ET_TRACE_COUNTERS 2u
#define ET_TRACE_MARKERS 4u

/*
 * The counters of a hart, hpmcounter3 to hpmcounter8. There is one set for each neighbourhood and
 * parity of the thread. The simulated cards count the first, and of the next two the instructions
 * of the hart that asks; the others are 0 there.
 */
struct et_counters {
    uint64_t cycles;
    uint64_t retired[2]; /* instructions of thread 0 and thread 1 */
    uint64_t l2_misses;  /* requests that the L1 passed on */
    uint64_t icache;     /* requests for instructions */
    uint64_t icache_link;
};

/* Counters stand still for some reads, so the last of four counts. */
#define ET_READ_COUNTER(number)                                                                    \
    __extension__({                                                                                \
        uint64_t et_value;                                                                         \
        __asm__ volatile("csrr %0, " #number "\n\tcsrr %0, " #number "\n\tcsrr %0, " #number       \
                         "\n\tcsrr %0, " #number                                                   \
                         : "=r"(et_value));                                                        \
        et_value;                                                                                  \
    })

ET_INLINE struct et_counters et_read_counters(void)
{
    struct et_counters now;

    now.cycles = ET_READ_COUNTER(0xc03);
    now.retired[0] = ET_READ_COUNTER(0xc04);
    now.retired[1] = ET_READ_COUNTER(0xc05);
    now.l2_misses = ET_READ_COUNTER(0xc06);
    now.icache = ET_READ_COUNTER(0xc07);
    now.icache_link = ET_READ_COUNTER(0xc08);
    return now;
}

/* Instructions that this hart has retired. */
ET_INLINE uint64_t et_retired(void)
{
    return et_thread() ? ET_READ_COUNTER(0xc05) : ET_READ_COUNTER(0xc04);
}

/* True if this hart traces entries of a kind. */
ET_INLINE int et_trace_has(uint32_t kind)
{
    volatile struct et_trace_control *control = et_trace_own();
    return !control->disabled && (control->event_mask & kind);
}

/* Traces all counters of this hart. */
ET_INLINE void et_trace_counters(void)
{
    if (!et_trace_has(ET_TRACE_COUNTERS))
        return;

    struct et_counters now = et_read_counters();
    volatile uint32_t *payload = et_trace_entry(et_trace_own(), 64, ET_TRACE_PMC_COUNTERS);
    const uint64_t values[6] = {now.cycles,    now.retired[0], now.retired[1],
                                now.l2_misses, now.icache,     now.icache_link};
    if (!payload)
        return;
    for (unsigned i = 0; i < 6; i++) {
        payload[2 * i] = (uint32_t)values[i];
        payload[2 * i + 1] = (uint32_t)(values[i] >> 32);
    }
}

/*
 * Traces one value as a counter: `counter` is its number in the trace, 0 to 5 for hpmcounter3 to 8,
 * 6 to 8 for the shire cache, from 9 on for the memory shires. Spec: §16.2
 */
ET_INLINE void et_trace_counter(uint8_t counter, uint64_t value)
{
    if (!et_trace_has(ET_TRACE_COUNTERS))
        return;

    volatile uint32_t *payload = et_trace_entry(et_trace_own(), 32, ET_TRACE_PMC_COUNTER);
    if (!payload)
        return;
    payload[0] = (uint32_t)value;
    payload[1] = (uint32_t)(value >> 32);
    payload[2] = counter;
    payload[3] = 0;
}

/*
 * Traces the begin or the end of a region. Both names must be literals: the host reads them in the
 * kernel's file.
 */
ET_INLINE void et_trace_mark(const char *function, uint32_t line, const char *name, uint32_t is_end)
{
    if (!et_trace_has(ET_TRACE_MARKERS))
        return;

    uint64_t retired = et_retired();
    volatile uint32_t *payload = et_trace_entry(et_trace_own(), 48, ET_TRACE_USER_PROFILE);
    const uint64_t values[4] = {(uintptr_t)function, retired, (uint64_t)line << 32 | is_end,
                                (uintptr_t)name};
    if (!payload)
        return;
    for (unsigned i = 0; i < 4; i++) {
        payload[2 * i] = (uint32_t)values[i];
        payload[2 * i + 1] = (uint32_t)(values[i] >> 32);
    }
}

#define ET_REGION_BEGIN(name) et_trace_mark(__func__, __LINE__, name, 0)
#define ET_REGION_END(name) et_trace_mark(__func__, __LINE__, name, 1)

#endif
