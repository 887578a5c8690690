/*
 * memset: fills n bytes at dst with the low byte of value.
 *
 *   uint8_t *dst;  uint64_t value;  uint64_t n;
 *
 * dst may have any alignment.
 */
#include <et/device.h>

struct args {
    uint8_t *dst;
    uint64_t value;
    uint64_t n;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    struct et_range mine = et_part(args->dst, 1, args->n, part, parts);
    uint8_t byte = (uint8_t)args->value;
    uint64_t word = byte * (uint64_t)0x0101010101010101;
    uint8_t *at = args->dst + mine.begin;
    uint8_t *end = args->dst + mine.end;

    for (; at < end && (uintptr_t)at % 8 != 0; at++)
        *at = byte;
    for (; end - at >= 8; at += 8)
        *(uint64_t *)at = word;
    for (; at < end; at++)
        *at = byte;
    return 0;
}
ET_TASK_ENTRY;
