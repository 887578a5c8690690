/*
 * For kernels that were written for the vendor's headers: cache operations by firmware.
 *
 * Only declared: how the arguments are packed is not known, and known kernels only mention it in
 * functions that are never called. et/cache.h has what does the work.
 */
#ifndef ET_COMPAT_CACHEOPS_UMODE_H
#define ET_COMPAT_CACHEOPS_UMODE_H

#include <et/cache.h>

ET_BEGIN_C
int64_t cache_ops_priv_evict_sw(uint64_t use_tmask, uint64_t dst, uint64_t way, uint64_t set,
                                uint64_t num_lines);
ET_END_C

#endif
