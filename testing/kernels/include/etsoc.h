/*
 * What a compute kernel needs from an ET-SoC-1 minion and a stock RISC-V compiler does not know.
 *
 * Every vendor instruction is wrapped here and nowhere else. No assembler in a distribution knows
 * their mnemonics, hence `.insn`. The file serves C and preprocessed assembly; the assembly part is
 * at the end.
 *
 * Memory, in one paragraph. The level-1 data caches of different minions are not kept coherent, and
 * a line is 64 bytes. A plain store is visible to the host after the kernel has ended, and to
 * no other reader for sure before that. So: let one hart own a whole line of what it writes
 * (`et_slice`), or store with the "global" instructions below, which act at the memory side of the
 * caches. Never mix the two on one line. The simulator forgives all of this, unless its memory is
 * set to weak; the chip does not.
 *
 * "local" operations (suffix _l) meet in the second-level cache of the shire: they are atomic
 * between harts of one shire only. "global" ones (suffix _g) are atomic over the whole chip.
 */
#ifndef ETSOC_H
#define ETSOC_H

/* User-mode control registers. */
#define ET_CSR_HPMCOUNTER3 0xc03
#define ET_CSR_HARTID 0xcd0
#define ET_CSR_FCCNB 0xcc0
#define ET_CSR_FLB 0x820
#define ET_CSR_FCC 0x821
#define ET_CSR_TENSOR_WAIT 0x830
#define ET_CSR_TENSOR_ERROR 0x808
#define ET_CSR_EVICT_VA 0x89f

/* Environment calls and the type that goes with the one that ends the kernel. */
#define ET_CALL_EVICT_L1 6
#define ET_CALL_KERNEL_RETURN 8
#define ET_CALL_EVICT_L1_L2 11
#define ET_RETURN_SUCCESS 0
#define ET_RETURN_SELF_ABORT 1

#define ET_LINE_BYTES 64
#define ET_HARTS_PER_SHIRE 64
#define ET_MASTER_SHIRE 32

/* Offset of shire_mask in the kernel environment, for assembly. */
#define ET_ENV_SHIRE_MASK 8

#ifndef __ASSEMBLER__

#include <stddef.h>
#include <stdint.h>

#define ET_INLINE static inline __attribute__((always_inline, unused))
#define ET_NOINLINE __attribute__((noinline, noclone))
#define ET_ALIGN_LINE __attribute__((aligned(ET_LINE_BYTES)))

/* Hart selector of the fault kernels: all harts of the launch. */
#define ET_ALL_HARTS UINT64_MAX

/* ---- start-up interface ------------------------------------------------------------------- */

/* Handed to every hart in a1. Read only. */
struct kernel_environment {
    uint16_t version_major;
    uint16_t version_minor;
    uint16_t version_patch;
    uint16_t reserved0;
    uint64_t shire_mask;    /* bit s: shire s takes part in this launch; bit 32: master shire */
    uint32_t frequency_mhz; /* of the minions, as booted */
    uint8_t reserved1[44];
};
_Static_assert(sizeof(struct kernel_environment) == 64, "one cache line");
_Static_assert(offsetof(struct kernel_environment, shire_mask) == ET_ENV_SHIRE_MASK, "layout");

/* Each kernel defines its own `struct args`; the host fills it in. */
struct args;

/* Called on every hart of the launch. A negative result makes the launch fail. */
int64_t entry_point(const struct args *args, const struct kernel_environment *env);

/*
 * Work that can be cut into equal parts: does part `part` of `parts`. A kernel with it has no
 * entry point of its own but says ET_TASK_ENTRY; it can be launched on many harts, and be called by
 * one hart as a task of a graph, with part 0 of 1. A negative result is a failure.
 */
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts) __attribute__((used, noipa));

/* The entry point of a kernel with `et_task`: each hart of the launch does one part. */
#define ET_TASK_ENTRY                                                                             \
    int64_t entry_point(const struct args *args, const struct kernel_environment *env)            \
    {                                                                                             \
        return et_task(args, env, et_index(env), et_harts(env));                                  \
    }                                                                                             \
    _Static_assert(1, "takes the semicolon")

/* Ends the kernel on this hart without going back through the start-up code. */
__attribute__((noreturn, unused)) static inline void et_exit(int64_t value, uint64_t type)
{
    register uint64_t a0 __asm__("a0") = ET_CALL_KERNEL_RETURN;
    register int64_t a1 __asm__("a1") = value;
    register uint64_t a2 __asm__("a2") = type;
    __asm__ volatile("ecall" : : "r"(a0), "r"(a1), "r"(a2) : "memory");
    __builtin_unreachable();
}

/*
 * Needed once, at file level, in a kernel that has zeroed variables but no initialised ones: gives
 * the writable segment a place in the file (kernel.ld says why).
 */
#define ET_BSS_ANCHOR                                                                             \
    static uint64_t et_bss_anchor __attribute__((used, section(".data.anchor"))) = 1

/* ---- control registers --------------------------------------------------------------------- */

#define ET_STR_(x) #x
#define ET_STR(x) ET_STR_(x)

/* Volatile only where reading twice may differ; the hart number never changes. */
ET_INLINE uint64_t et_hart_id(void)
{
    uint64_t value;
    __asm__("csrr %0, " ET_STR(ET_CSR_HARTID) : "=r"(value));
    return value;
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

/* Sticky error bits of this hart. Firmware ignores them: a kernel that minds returns them. */
ET_INLINE uint64_t et_tensor_error(void)
{
    uint64_t value;
    __asm__ volatile("csrr %0, " ET_STR(ET_CSR_TENSOR_ERROR) : "=r"(value));
    return value;
}

/*
 * Completes all earlier memory accesses. The full form, because credit stores go to I/O space. It
 * does not write back or invalidate caches.
 */
ET_INLINE void et_fence(void)
{
    __asm__ volatile("fence iorw, iorw" : : : "memory");
}

/* ---- atomics ------------------------------------------------------------------------------- */

/* All vendor atomics: opcode 0x3B, funct3 2 for 32 and 3 for 64 bits, funct7 bit 0 = global. */
#define ET_AMO_(name, type, funct3, funct7)                                                       \
    ET_INLINE type et_##name(volatile type *at, type operand)                                     \
    {                                                                                             \
        type old;                                                                                 \
        __asm__ volatile(".insn r 0x3b, " #funct3 ", " #funct7 ", %0, %1, %2"                     \
                         : "=r"(old)                                                              \
                         : "r"(at), "r"(operand)                                                  \
                         : "memory");                                                             \
        return old;                                                                               \
    }

/* et_<operation>_<scope><bits>: returns the old value; the address must be naturally aligned. */
#define ET_AMO(name, local, global, type32, type64)                                               \
    ET_AMO_(name##_l32, type32, 2, local)                                                         \
    ET_AMO_(name##_g32, type32, 2, global)                                                        \
    ET_AMO_(name##_l64, type64, 3, local)                                                         \
    ET_AMO_(name##_g64, type64, 3, global)

ET_AMO(amoadd, 0x00, 0x01, uint32_t, uint64_t)
ET_AMO(amoswap, 0x04, 0x05, uint32_t, uint64_t)
ET_AMO(amoxor, 0x10, 0x11, uint32_t, uint64_t)
ET_AMO(amoor, 0x20, 0x21, uint32_t, uint64_t)
ET_AMO(amoand, 0x30, 0x31, uint32_t, uint64_t)
ET_AMO(amomin, 0x40, 0x41, int32_t, int64_t)
ET_AMO(amomax, 0x50, 0x51, int32_t, int64_t)
ET_AMO(amominu, 0x60, 0x61, uint32_t, uint64_t)
ET_AMO(amomaxu, 0x70, 0x71, uint32_t, uint64_t)

/*
 * Compare and swap: stores `desired` if memory holds `expected`; returns what was there. The
 * comparand is always x31, which no encoding field names, so the operand is pinned to t6.
 */
#define ET_CMPSWAP_(name, type, funct3, funct7)                                                   \
    ET_INLINE type et_##name(volatile type *at, type expected, type desired)                      \
    {                                                                                             \
        type old;                                                                                 \
        register type x31 __asm__("t6") = expected;                                               \
        __asm__ volatile(".insn r 0x3b, " #funct3 ", " #funct7 ", %0, %1, %2"                     \
                         : "=r"(old)                                                              \
                         : "r"(at), "r"(desired), "r"(x31)                                        \
                         : "memory");                                                             \
        return old;                                                                               \
    }

ET_CMPSWAP_(cmpswap_l32, uint32_t, 2, 0x78)
ET_CMPSWAP_(cmpswap_g32, uint32_t, 2, 0x79)
ET_CMPSWAP_(cmpswap_l64, uint64_t, 3, 0x78)
ET_CMPSWAP_(cmpswap_g64, uint64_t, 3, 0x79)

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
#define ET_POST_(name, funct7)                                                                    \
    ET_INLINE void et_post_##name##_g64(volatile uint64_t *at, uint64_t operand)                  \
    {                                                                                             \
        __asm__ volatile(".insn r 0x3b, 3, " #funct7 ", x0, %0, %z1"                              \
                         :                                                                        \
                         : "r"(at), "rJ"(operand)                                                 \
                         : "memory");                                                             \
    }

ET_POST_(store, 0x05)
ET_POST_(or, 0x21)

/* Bytes and halfwords have real coherent stores (a halfword must be aligned), and no loads. */
#define ET_SMALL_STORE_(name, type, funct7)                                                       \
    ET_INLINE void et_store_##name(volatile type *at, type value)                                 \
    {                                                                                             \
        __asm__ volatile(".insn r 0x3b, 3, " #funct7 ", x0, %0, %1"                               \
                         :                                                                        \
                         : "r"(at), "r"((uint64_t)value)                                          \
                         : "memory");                                                             \
    }

ET_SMALL_STORE_(l8, uint8_t, 0x08)
ET_SMALL_STORE_(g8, uint8_t, 0x09)
ET_SMALL_STORE_(l16, uint16_t, 0x0c)
ET_SMALL_STORE_(g16, uint16_t, 0x0d)

/* ---- cache --------------------------------------------------------------------------------- */

enum et_cache_level { ET_TO_L2 = 1, ET_TO_L3 = 2, ET_TO_MEMORY = 3 };

/*
 * Writes back and drops the lines of [at, at + bytes) down to `level`, and waits for it. Use it
 * after writing what another minion will read, and before reading what another one has written.
 * One command does up to 16 lines; x31 carries the stride.
 */
ET_INLINE void et_evict(const void *at, size_t bytes, enum et_cache_level level)
{
    uint64_t line = (uintptr_t)at & ~(uint64_t)(ET_LINE_BYTES - 1);
    uint64_t end = (uintptr_t)at + bytes;

    et_fence();
    while (line < end) {
        uint64_t lines = (end - line + ET_LINE_BYTES - 1) / ET_LINE_BYTES;
        if (lines > 16)
            lines = 16;
        uint64_t command = (uint64_t)level << 58 | (line & 0xffffffffffc0) | (lines - 1);
        register uint64_t x31 __asm__("t6") = ET_LINE_BYTES;
        __asm__ volatile("csrw " ET_STR(ET_CSR_EVICT_VA) ", %0"
                         :
                         : "r"(command), "r"(x31)
                         : "memory");
        line += lines * ET_LINE_BYTES;
    }
    __asm__ volatile("csrwi " ET_STR(ET_CSR_TENSOR_WAIT) ", 6" : : : "memory");
}

/* Environment call `number`; returns what it does. All other registers stay as they are. */
ET_INLINE int64_t et_call(uint64_t number, uint64_t first, uint64_t second)
{
    register uint64_t a0 __asm__("a0") = number;
    register uint64_t a1 __asm__("a1") = first;
    register uint64_t a2 __asm__("a2") = second;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2) : "memory");
    return (int64_t)a0;
}

/* Writes back and drops all lines of this minion's first-level cache, for both of its harts. */
ET_INLINE void et_evict_l1(enum et_cache_level level)
{
    (void)et_call(ET_CALL_EVICT_L1, 0, level);
}

/* The same for that cache and the whole second-level cache of the shire. */
ET_INLINE void et_evict_l1_l2(void)
{
    (void)et_call(ET_CALL_EVICT_L1_L2, 0, 0);
}

/* ---- who am I ------------------------------------------------------------------------------ */

ET_INLINE unsigned et_thread(void) { return et_hart_id() & 1; }
ET_INLINE unsigned et_minion(void) { return et_hart_id() >> 1 & 31; } /* in the shire */
ET_INLINE unsigned et_shire(void) { return et_hart_id() >> 6; }

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

/* Whether a selector (rank in the launch, or ET_ALL_HARTS) means this hart. */
ET_INLINE int et_selected(uint64_t selector, const struct kernel_environment *env)
{
    return selector == ET_ALL_HARTS || selector == et_index(env);
}

/* ---- dividing work ------------------------------------------------------------------------- */

struct et_range {
    uint64_t begin; /* first element of this hart */
    uint64_t end;   /* one past its last; equal to begin if there is nothing to do */
};

/*
 * Part `part` of `parts` of the `count` elements of `size` bytes that start at `base`. That is what
 * the kernel writes: the cuts are made at its 64-byte lines, so that no line has two owners. That
 * holds if `base` is a multiple of `size` and `size` divides 64; otherwise an element that
 * straddles two lines goes to the owner of the first. Parts differ by at most one line, and of a
 * short array some are empty.
 */
ET_INLINE struct et_range et_part(const void *base, uint64_t size, uint64_t count, uint64_t part,
                                  uint64_t parts)
{
    struct et_range range = {0, 0};
    if (count == 0)
        return range;

    uint64_t lead = (uintptr_t)base % ET_LINE_BYTES; /* bytes of the first line before base */
    uint64_t lines = (lead + count * size + ET_LINE_BYTES - 1) / ET_LINE_BYTES;
    uint64_t first = lines * part / parts;
    uint64_t last = lines * (part + 1) / parts;

    /* Element number of the first element that begins in the given line or later. */
    range.begin = first == 0 ? 0 : (first * ET_LINE_BYTES - lead + size - 1) / size;
    range.end = last == 0 ? 0 : (last * ET_LINE_BYTES - lead + size - 1) / size;
    if (range.begin > count)
        range.begin = count;
    if (range.end > count)
        range.end = count;
    return range;
}

/* This hart's part, if all harts of the launch take one. */
ET_INLINE struct et_range et_slice(const void *base, uint64_t size, uint64_t count,
                                   const struct kernel_environment *env)
{
    return et_part(base, size, count, et_index(env), et_harts(env));
}

/* ---- credits and barriers ------------------------------------------------------------------ */

/*
 * Joins fast local barrier `barrier` (0..31) of this shire as one of `participants`. Never blocks;
 * true for the last to arrive, and the barrier is then ready for reuse.
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
    __asm__ volatile("csrw " ET_STR(ET_CSR_FCC) ", %0" : : "rK"((uint64_t)counter) : "memory");
}

/* Credits waiting for this hart. */
ET_INLINE unsigned et_fcc_available(unsigned counter)
{
    uint64_t both;
    __asm__ volatile("csrr %0, " ET_STR(ET_CSR_FCCNB) : "=r"(both) : : "memory");
    return both >> 16 * counter & 0xffff;
}

/* Where credits are given to counter `counter` of thread `thread` of the minions of a shire. */
ET_INLINE volatile uint64_t *et_credit_register(unsigned shire, unsigned thread, unsigned counter)
{
    return (volatile uint64_t *)(0x01003400c0 + ((uintptr_t)shire << 22) +
                                 8 * (uintptr_t)(2 * thread + counter));
}

/* Gives one credit to counter `counter` of thread `thread` of each minion in `minions`. */
ET_INLINE void et_credit(unsigned shire, unsigned thread, unsigned counter, uint64_t minions)
{
    *et_credit_register(shire, thread, counter) = minions;
}

/* The register for credits to one hart, and what to store there. Fence before storing. */
ET_INLINE volatile uint64_t *et_credit_hart_register(uint64_t hart_id, unsigned counter)
{
    return et_credit_register(hart_id >> 6, hart_id & 1, counter);
}
ET_INLINE uint64_t et_credit_hart_bit(uint64_t hart_id)
{
    return (uint64_t)1 << (hart_id >> 1 & 31);
}

/* Gives one credit to every compute hart of a shire. */
ET_INLINE void et_credit_shire(unsigned shire, unsigned counter)
{
    uint64_t minions = et_shire_minion_mask(shire);
    et_credit(shire, 0, counter, minions);
    et_credit(shire, 1, counter, minions);
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
 *
 * A barrier orders, it does not write caches back: see the note on memory at the top.
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

#else /* __ASSEMBLER__ */

/* amoswapg.d with the old value dropped: a 64-bit store that needs no line of its own. */
.macro et_store_g64 value, at
    .insn r 0x3b, 3, 0x05, x0, \at, \value
.endm

.macro et_hart_id rd
    csrr    \rd, ET_CSR_HARTID
.endm

/* rd = number of harts of the launch; clobbers t5 and t6. `rd` and `env` must differ. */
.macro et_harts rd, env
    ld      t5, ET_ENV_SHIRE_MASK(\env)
    li      \rd, 0
.Lharts_next_\@:
    beqz    t5, .Lharts_done_\@
    addi    t6, t5, -1
    and     t5, t5, t6
    addi    \rd, \rd, ET_HARTS_PER_SHIRE
    j       .Lharts_next_\@
.Lharts_done_\@:
    /* The master shire has only half of its harts to give. */
    ld      t5, ET_ENV_SHIRE_MASK(\env)
    srli    t5, t5, ET_MASTER_SHIRE
    andi    t5, t5, 1
    slli    t5, t5, 5
    sub     \rd, \rd, t5
.endm

/* rd = rank of this hart in the launch; clobbers t5 and t6. `rd` and `env` must differ. */
.macro et_index rd, env
    csrr    t6, ET_CSR_HARTID
    andi    \rd, t6, 63
    srli    t6, t6, 6
    addi    t5, t6, -ET_MASTER_SHIRE
    bnez    t5, .Lindex_full_\@
    addi    \rd, \rd, -32
.Lindex_full_\@:
    li      t5, 1
    sll     t5, t5, t6
    addi    t5, t5, -1
    ld      t6, ET_ENV_SHIRE_MASK(\env)
    and     t5, t5, t6
.Lindex_next_\@:
    beqz    t5, .Lindex_done_\@
    addi    t6, t5, -1
    and     t5, t5, t6
    addi    \rd, \rd, ET_HARTS_PER_SHIRE
    j       .Lindex_next_\@
.Lindex_done_\@:
.endm

#endif
#endif
