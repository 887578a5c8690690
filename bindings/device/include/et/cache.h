/*
 * Cache operations. Spec: ISA §3.7
 *
 * Memory, in one paragraph. The level-1 data caches of different minions are not kept coherent, and
 * a line is 64 bytes. A plain store is visible to the host after the kernel has ended, and to
 * no other reader for sure before that. So: let one hart own a whole line of what it writes
 * (`et_slice`), or store with the "global" operations of atomic.h. What is handed to another minion
 * is evicted by the writer, and by the reader before it reads.
 */
#ifndef ET_CACHE_H
#define ET_CACHE_H

#include "barrier.h"
#include "call.h"

enum et_cache_level { ET_TO_L2 = 1, ET_TO_L3 = 2, ET_TO_MEMORY = 3 };

/* What a hart can wait for, apart from the operations of the tensor unit (tensor.h). */
enum et_cache_event { ET_WAIT_PREFETCH_0 = 4, ET_WAIT_PREFETCH_1 = 5, ET_WAIT_CACHE = 6 };

/* Most lines of one command. */
#define ET_CACHE_LINES 16

/* The command for `lines` lines (1..16) from `line` on. */
ET_INLINE uint64_t et_cache_command(uint64_t line, uint64_t lines, unsigned level)
{
    return (uint64_t)level << 58 | (line & 0xffffffffffc0) | (lines - 1);
}

/* Waits until this hart's evictions, flushes and locks are done. */
ET_INLINE void et_cache_wait(void)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_WAIT, ET_WAIT_CACHE);
}

/* Writes the commands for the lines of [at, at + bytes) to a register. */
#define ET_FOR_LINES_(at, bytes, level, csr, id)                                                  \
    do {                                                                                          \
        uint64_t et_line_ = (uintptr_t)(at) & ~(uint64_t)(ET_LINE_BYTES - 1);                     \
        uint64_t et_end_ = (uintptr_t)(at) + (bytes);                                             \
        while (et_line_ < et_end_) {                                                              \
            uint64_t et_lines_ = (et_end_ - et_line_ + ET_LINE_BYTES - 1) / ET_LINE_BYTES;        \
            if (et_lines_ > ET_CACHE_LINES)                                                       \
                et_lines_ = ET_CACHE_LINES;                                                       \
            ET_CSR_START(csr, et_cache_command(et_line_, et_lines_, level), ET_LINE_BYTES | (id)); \
            et_line_ += et_lines_ * ET_LINE_BYTES;                                                \
        }                                                                                         \
    } while (0)

/*
 * Writes back and drops the lines of [at, at + bytes) down to `level`, and waits for it. Use it
 * after writing what another minion will read, and before reading what another one has written.
 */
ET_INLINE void et_evict(const void *at, size_t bytes, enum et_cache_level level)
{
    et_fence();
    ET_FOR_LINES_(at, bytes, level, ET_CSR_EVICT_VA, 0);
    et_cache_wait();
}

/* Writes back the lines of [at, at + bytes) down to `level` and keeps them, and waits for it. */
ET_INLINE void et_flush(const void *at, size_t bytes, enum et_cache_level level)
{
    et_fence();
    ET_FOR_LINES_(at, bytes, level, ET_CSR_FLUSH_VA, 0);
    et_cache_wait();
}

/*
 * Starts to bring the lines of [at, at + bytes) into the cache of `level` (not ET_TO_MEMORY), or
 * into the first level with 0. `id` is 0 or 1, for et_prefetch_wait.
 */
ET_INLINE void et_prefetch(const void *at, size_t bytes, unsigned level, unsigned id)
{
    ET_FOR_LINES_(at, bytes, level, ET_CSR_PREFETCH_VA, id);
}

/* Waits for the prefetches with this number. */
ET_INLINE void et_prefetch_wait(unsigned id)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_WAIT, ET_WAIT_PREFETCH_0 + id);
}

/*
 * Puts the lines of [at, at + bytes) into the first-level cache, **zeroed**, and keeps them there
 * until they are unlocked; waits for it. Failures are bit 5 of et_tensor_error.
 */
ET_INLINE void et_lock(const void *at, size_t bytes)
{
    ET_FOR_LINES_(at, bytes, 0, ET_CSR_LOCK_VA, 0);
    et_cache_wait();
}

/* Lets the lines of [at, at + bytes) go again, and waits for it. */
ET_INLINE void et_unlock(const void *at, size_t bytes)
{
    ET_FOR_LINES_(at, bytes, 0, ET_CSR_UNLOCK_VA, 0);
    et_cache_wait();
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

/* Bits of et_tensor_error: what went wrong in cache and tensor operations and with credits. */
enum et_tensor_error_bit {
    ET_ERROR_LOAD_LAYOUT = 1,
    ET_ERROR_CREDIT_OVERFLOW = 3,
    ET_ERROR_SCRATCHPAD_OFF = 4,
    ET_ERROR_LOCK = 5,
    ET_ERROR_PAIRING = 6,
    ET_ERROR_MEMORY = 7,
    ET_ERROR_STORE_SHAPE = 8,
    ET_ERROR_REDUCE = 9
};

/* Sticky error bits of this hart. Firmware ignores them: a kernel that minds returns them. */
ET_INLINE uint64_t et_tensor_error(void)
{
    return ET_CSR_READ(ET_CSR_TENSOR_ERROR);
}

ET_INLINE void et_tensor_error_clear(void)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_ERROR, 0);
}

#endif
