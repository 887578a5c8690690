/*
 * task_race: waits until so many tasks are here at the same time, then writes where the others write.
 *
 *   uint64_t *here;  uint64_t tasks;  uint64_t *word;
 *
 * here counts, and is 0 before; nothing that a kernel accesses through the caches may be in its line.
 * That tasks have met orders nothing that they do afterwards.
 */
#include <et/device.h>

struct args {
    uint64_t *here;
    uint64_t tasks;
    volatile uint64_t *word;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env, (void)part, (void)parts;
    et_amoadd_g64(args->here, 1);
    while (et_load_g64(args->here) < args->tasks)
        ;
    *args->word = args->tasks;
    return 0;
}
ET_TASK_ENTRY;
