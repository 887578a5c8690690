/*
 * What kernels without a C library have of <string.h>; defined in src/string.c. Compilers call the
 * first four for copies of structs and the like.
 */
#ifndef ET_NOLIBC_STRING_H
#define ET_NOLIBC_STRING_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
void *memchr(const void *at, int value, size_t bytes);

size_t strlen(const char *text);
size_t strnlen(const char *text, size_t most);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t most);
char *strcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t bytes);
char *strcat(char *to, const char *from);
char *strchr(const char *text, int character);
char *strrchr(const char *text, int character);
char *strstr(const char *text, const char *part);

#ifdef __cplusplus
}
#endif

#endif
