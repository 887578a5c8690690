/* For kernels that were written for the vendor's headers: numbers of harts. */
#ifndef ET_COMPAT_HART_H
#define ET_COMPAT_HART_H

#include <et/hart.h>

#define SOC_MINIONS_PER_SHIRE 32

ET_INLINE uint64_t get_hart_id(void) { return et_hart_id(); }
ET_INLINE uint64_t get_shire_id(void) { return et_shire(); }

/* On the chip, not in the shire. */
ET_INLINE uint64_t get_minion_id(void) { return et_global_minion(); }
ET_INLINE uint64_t get_thread_id(void) { return et_thread(); }

#endif
