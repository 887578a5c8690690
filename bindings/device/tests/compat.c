/*
 * What kernels for the vendor's headers use.
 *
 *   uint64_t *out;
 *
 * out[8 * rank] is shire << 32 | global minion << 8, and 1 more for the first of each two harts of
 * the minions 0 to 15 that arrived at their barrier.
 */
#include "etsoc/common/utils.h"
#include "etsoc/isa/barriers.h"
#include "etsoc/isa/cacheops-umode.h"
#include "etsoc/isa/hart.h"

struct args {
    uint64_t *out;
};

/* Entry points of such kernels have types of their own. */
int entry_point(struct args *args, void *environment);
int entry_point(struct args *args, void *environment)
{
    uint64_t local = get_minion_id() % SOC_MINIONS_PER_SHIRE;
    uint64_t mask = (uint64_t)1 << local;
    const struct kernel_environment *env = environment;
    uint64_t last = 1;

    /* The other half of the barriers is left for the shire. */
    if (local < 16)
        last = shire_barrier(local, FCC_0, 2, mask, mask);

    et_assert(get_hart_id() == 2 * get_minion_id() + get_thread_id());
    shire_barrier(31, FCC_1, 64, 0xffffffff, 0xffffffff);
    fcc_send(SHIRE_OWN, get_thread_id() == THREAD_0 ? THREAD_1 : THREAD_0, FCC_0, mask);
    fcc_consume(FCC_0);
    args->out[et_index(env) * 8] = get_shire_id() << 32 | get_minion_id() << 8 | !last;
    et_evict(&args->out[et_index(env) * 8], 8, ET_TO_MEMORY);
    return 0;
}
