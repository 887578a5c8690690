/*
 * Formatted text into the trace of the launch, one entry per call.
 */
#ifndef ET_PRINT_H
#define ET_PRINT_H

#include <stdarg.h>

#include "trace.h"

ET_BEGIN_C

/*
 * Formats as C's snprintf, without %n, %a, and wide characters: at most `size` bytes, a 0 included.
 * Returns the length of the whole text. Floating-point numbers are exact in every digit.
 */
int et_snprintf(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int et_vsnprintf(char *to, size_t size, const char *format, va_list values)
    __attribute__((format(printf, 3, 0)));

/*
 * Traces a text of that level (ET_TRACE_...), cut to ET_TRACE_STRING_BYTES, if the hart traces
 * strings of the level; otherwise nothing is formatted. Uses about 1.3 KiB of the stack.
 */
void et_log(uint32_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The same for a text that is traced whatever level is wanted, as long as strings are. In the log
 * of the host it is as one of ET_TRACE_INFO.
 */
void et_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

ET_END_C

#endif
