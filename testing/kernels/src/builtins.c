/*
 * builtins: the kernels that the runtime brings along.
 *
 *   et_copy:  uint8_t *dst;  uint64_t n;  const uint8_t *src;
 *   et_fill:  uint8_t *dst;  uint64_t n;  uint8_t pattern[16];
 *
 * Any addresses. Source and destination do not overlap. The pattern begins at dst. The entry of the
 * file is that of et_copy.
 */
#include <et/device.h>

struct args {
    uint8_t *dst;
    uint64_t n;
    union {
        const uint8_t *src;
        uint8_t pattern[16];
    };
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    struct et_range mine = et_part(args->dst, 1, args->n, et_index(env), et_harts(env));
    uint8_t *at = args->dst + mine.begin;
    uint8_t *end = args->dst + mine.end;
    const uint8_t *from = args->src + mine.begin;

    if (((uintptr_t)at - (uintptr_t)from) % 8 == 0) {
        for (; at < end && (uintptr_t)at % 8 != 0; at++, from++)
            *at = *from;
        for (; end - at >= 8; at += 8, from += 8)
            *(uint64_t *)at = *(const uint64_t *)from;
    }
    for (; at < end; at++, from++)
        *at = *from;
    return 0;
}

ET_ENTRY(et_copy)
{
    return entry_point(args, env);
}

/* Eight bytes of the repeated pattern. */
static uint64_t word_at(const struct args *args, uint64_t offset)
{
    uint64_t word = 0;

    for (uint64_t byte = 0; byte < 8; byte++)
        word |= (uint64_t)args->pattern[(offset + byte) % 16] << (8 * byte);
    return word;
}

ET_ENTRY(et_fill)
{
    struct et_range mine = et_part(args->dst, 1, args->n, et_index(env), et_harts(env));
    uint64_t at = mine.begin;
    uint8_t *dst = args->dst;

    for (; at < mine.end && (uintptr_t)(dst + at) % 8 != 0; at++)
        dst[at] = args->pattern[at % 16];
    uint64_t words[2] = {word_at(args, at), word_at(args, at + 8)};
    for (uint64_t turn = 0; mine.end - at >= 8; at += 8, turn ^= 1)
        *(uint64_t *)(dst + at) = words[turn];
    for (; at < mine.end; at++)
        dst[at] = args->pattern[at % 16];
    return 0;
}
