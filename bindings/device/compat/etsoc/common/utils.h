/* For kernels that were written for the vendor's headers: printing and giving up. */
#ifndef ET_COMPAT_UTILS_H
#define ET_COMPAT_UTILS_H

#include <et/call.h>
#include <et/print.h>

/* A launch in which this fails has failed; the trace says where. */
#define et_assert(condition)                                                                      \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            et_printf("%s:%d: assertion failed: %s", __FILE__, __LINE__, #condition);             \
            et_abort();                                                                           \
        }                                                                                         \
    } while (0)

#endif
