/*
 * Memory and text for kernels without a C library.
 *
 * Weak: what a kernel or a C library defines itself comes first. Words are copied as words, since
 * the cores take misaligned ones. Built with -fno-tree-loop-distribute-patterns, or the compiler
 * makes calls of these functions out of their own loops.
 */
#include <stdint.h>

#include "../include/nolibc/string.h"

#define WEAK __attribute__((weak))

/* A word anywhere, of any type. */
typedef uint64_t word __attribute__((aligned(1), may_alias));

WEAK void *memcpy(void *to, const void *from, size_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    for (; bytes >= sizeof(word); bytes -= sizeof(word)) {
        *(word *)target = *(const word *)source;
        target += sizeof(word);
        source += sizeof(word);
    }
    while (bytes-- != 0)
        *target++ = *source++;
    return to;
}

WEAK void *memmove(void *to, const void *from, size_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    /* Forwards is right unless the target begins inside of the source. */
    if ((uintptr_t)to - (uintptr_t)from >= bytes)
        return memcpy(to, from, bytes);
    while (bytes-- != 0)
        target[bytes] = source[bytes];
    return to;
}

WEAK void *memset(void *to, int value, size_t bytes)
{
    unsigned char *target = to;
    word pattern = (unsigned char)value * 0x0101010101010101u;
    for (; bytes >= sizeof(word); bytes -= sizeof(word)) {
        *(word *)target = pattern;
        target += sizeof(word);
    }
    while (bytes-- != 0)
        *target++ = (unsigned char)value;
    return to;
}

WEAK int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    for (; bytes != 0; bytes--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

WEAK void *memchr(const void *at, int value, size_t bytes)
{
    const unsigned char *byte = at;
    for (; bytes != 0; bytes--, byte++)
        if (*byte == (unsigned char)value)
            return (void *)byte;
    return NULL;
}

WEAK size_t strlen(const char *text)
{
    const char *end = text;
    while (*end)
        end++;
    return (size_t)(end - text);
}

WEAK size_t strnlen(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length])
        length++;
    return length;
}

WEAK int strncmp(const char *a, const char *b, size_t most)
{
    for (; most != 0; most--, a++, b++)
        if (*a != *b || !*a)
            return (unsigned char)*a - (unsigned char)*b;
    return 0;
}

WEAK int strcmp(const char *a, const char *b)
{
    return strncmp(a, b, SIZE_MAX);
}

WEAK char *strcpy(char *to, const char *from)
{
    return memcpy(to, from, strlen(from) + 1);
}

WEAK char *strncpy(char *to, const char *from, size_t bytes)
{
    size_t length = strnlen(from, bytes);
    memcpy(to, from, length);
    memset(to + length, 0, bytes - length);
    return to;
}

WEAK char *strcat(char *to, const char *from)
{
    strcpy(to + strlen(to), from);
    return to;
}

WEAK char *strchr(const char *text, int character)
{
    return memchr(text, character, strlen(text) + 1);
}

WEAK char *strrchr(const char *text, int character)
{
    for (size_t length = strlen(text) + 1; length != 0; length--)
        if (text[length - 1] == (char)character)
            return (char *)text + length - 1;
    return NULL;
}

WEAK char *strstr(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++)
        if (strncmp(text, part, length) == 0)
            return (char *)text;
    return length == 0 ? (char *)text : NULL;
}
