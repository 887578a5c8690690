/*
 * Dividing work between harts.
 */
#ifndef ET_WORK_H
#define ET_WORK_H

#include "hart.h"

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

#endif
