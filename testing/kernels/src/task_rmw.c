/*
 * task_rmw: changes some words in a way that depends on other words, so that tasks in a wrong order
 * leave another result.
 *
 *   uint64_t *base;  uint64_t first;  uint64_t words;  uint64_t key;
 *   uint64_t read_first;  uint64_t read_words;
 *
 * All arithmetic is modulo 2^64; rotl is a rotation to the left:
 *
 *   hash = 0x243f6a8885a308d3
 *   for i = read_first .. read_first + read_words - 1 in this order:
 *       hash = rotl(hash ^ base[i], 23) * 0x9e3779b97f4a7c15
 *   for i = first .. first + words - 1:
 *       base[i] = rotl(base[i], 13) ^ (hash + key + i)
 *
 * The hash is complete before a word is changed, so the ranges may overlap if there is one part.
 * With more, the words to change are divided by lines and every part computes the hash.
 */
#include <et/device.h>

struct args {
    uint64_t *base;
    uint64_t first;
    uint64_t words;
    uint64_t key;
    uint64_t read_first;
    uint64_t read_words;
};
_Static_assert(sizeof(struct args) == 48, "documented layout");

static uint64_t rotl(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    uint64_t *base = args->base;
    uint64_t hash = 0x243f6a8885a308d3;
    uint64_t read_end = args->read_first + args->read_words;
    for (uint64_t i = args->read_first; i < read_end; i++)
        hash = rotl(hash ^ base[i], 23) * 0x9e3779b97f4a7c15;

    uint64_t first = args->first;
    struct et_range mine = et_part(base + first, sizeof *base, args->words, part, parts);
    hash += args->key;
    for (uint64_t i = first + mine.begin; i < first + mine.end; i++)
        base[i] = rotl(base[i], 13) ^ (hash + i);
    return 0;
}
ET_TASK_ENTRY;
