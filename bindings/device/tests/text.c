/*
 * Memory and text functions without a C library, from rank 0.
 *
 *   uint64_t *out;
 *
 * out[0] counts what was wrong, out[1] what was tried.
 */
#include <et/device.h>
#include <string.h>

struct args {
    uint64_t *out;
};

/* Large enough that the compiler calls memcpy and memset for it. */
struct large {
    uint64_t words[40];
};

/* Not known to the compiler, so that it calls the functions. */
static volatile size_t zero = 0;
ET_BSS_ANCHOR;

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    unsigned char bytes[64], copy[64];
    char text[32];
    uint64_t wrong = 0, tried = 0;

    if (et_index(env) != 0)
        return 0;
    for (size_t length = zero; length < 20; length++) {
        for (size_t at = 0; at < 9; at++) {
            for (unsigned i = 0; i < 64; i++) {
                bytes[i] = (unsigned char)(i * 7 + 1);
                copy[i] = 0;
            }
            memcpy(copy + at, bytes + 3, length);
            memmove(bytes + at, bytes + 4, length);
            for (size_t i = 0; i < 64; i++) {
                int inside = i >= at && i < at + length;
                wrong += copy[i] != (inside ? (unsigned char)((i - at + 3) * 7 + 1) : 0);
                wrong += bytes[i] != (unsigned char)((inside ? i - at + 4 : i) * 7 + 1);
                tried += 2;
            }
            memset(copy + at, 0x5a, length);
            wrong += at != 0 && copy[at - 1] != 0;
            wrong += copy[at + length] != 0;
            for (size_t i = 0; i < length; i++)
                wrong += copy[at + i] != 0x5a;
        }
    }
    struct large a, b;
    for (unsigned i = 0; i < 40; i++)
        a.words[i] = i + zero;
    b = a;
    b.words[39] += zero;
    wrong += memcmp(&a, &b, sizeof a) != 0;
    b.words[20] = 256;
    wrong += memcmp(&a, &b, sizeof a) <= 0;
    wrong += memchr(&a.words[3], 3, 8) != &a.words[3] || memchr(&a.words[3], 4, 8) != NULL;

    strcpy(text, &"kernel"[zero]);
    strcat(text, " of a card");
    wrong += strlen(text + zero) != 16 || strnlen(text, 3 + zero) != 3;
    wrong += strcmp(text, "kernel of a cbrd") >= 0 || strcmp(text, "kernel of a card") != 0;
    wrong += strncmp(text, "kernels", 6 + zero) != 0 || strncmp(text, "kernels", 7 + zero) >= 0;
    wrong += strchr(text, 'a') != text + 10 || strrchr(text, 'a') != text + 13;
    wrong += strchr(text, 'z') != NULL || strstr(text, "card") != text + 12;
    wrong += strstr(text, "cards") != NULL || strstr(text + zero, "") != text;
    strncpy(text, "ab", 5 + zero);
    wrong += memcmp(text, "ab\0\0\0l", 6) != 0;
    args->out[0] = wrong;
    args->out[1] = tried;
    return 0;
}
