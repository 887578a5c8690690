/*
 * task_hang: if armed, spins until a word in memory is no longer 0; then returns 0.
 *
 *   uint64_t armed;  uint64_t *release;
 *
 * The word is read past the caches, so the host may write it while the kernel runs. Nothing that
 * a kernel accesses through the caches may be in its line.
 */
#include <et/device.h>

struct args {
    uint64_t armed;
    uint64_t *release;
};

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env, (void)part, (void)parts;
    if (args->armed != 0)
        while (et_load_g64(args->release) == 0)
            ;
    return 0;
}
ET_TASK_ENTRY;
