/*
 * Formatting, for kernels with and without a C library. The cores have no doubles and no division
 * of floats: numbers are taken apart as integers.
 */
#include "../include/et/print.h"

struct output {
    char *to;
    size_t size;
    size_t length; /* of the whole text */
};

static void put(struct output *out, char character)
{
    if (out->length + 1 < out->size)
        out->to[out->length] = character;
    out->length++;
}

static void repeat(struct output *out, char character, long times)
{
    while (times-- > 0)
        put(out, character);
}

enum { LEFT = 1, PLUS = 2, SPACE = 4, OTHER = 8, ZEROS = 16, UPPER = 32 };

/* What is between % and the letter. */
struct format {
    unsigned flags;
    long width;
    long precision; /* -1 if there is none */
};

/* Before a number of `length` characters: blanks, sign or base, zeros. Returns the blanks after. */
static long begin(struct output *out, const struct format *format, const char *prefix, long length)
{
    long before = 0;
    while (prefix[before])
        before++;
    long padding = format->width - before - length;
    if (!(format->flags & (LEFT | ZEROS)))
        repeat(out, ' ', padding);
    while (*prefix)
        put(out, *prefix++);
    if ((format->flags & (LEFT | ZEROS)) == ZEROS)
        repeat(out, '0', padding);
    return format->flags & LEFT ? padding : 0;
}

static const char *sign_of(const struct format *format, int negative)
{
    return negative ? "-" : format->flags & PLUS ? "+" : format->flags & SPACE ? " " : "";
}

static void text(struct output *out, const struct format *format, const char *at, long length)
{
    struct format blanks = {format->flags & LEFT, format->width, -1};
    long after = begin(out, &blanks, "", length);
    for (long i = 0; i < length; i++)
        put(out, at[i]);
    repeat(out, ' ', after);
}

static void whole(struct output *out, struct format format, uint64_t value, unsigned base,
                  const char *prefix)
{
    char digits[24]; /* 22 octal ones at most */
    long count = 0;
    const char *letters = format.flags & UPPER ? "0123456789ABCDEF" : "0123456789abcdef";
    for (; value != 0; value /= base)
        digits[count++] = letters[value % base];
    long length = format.precision < 0 ? 1 : format.precision;
    if (length < count)
        length = count;
    if (base == 8 && format.flags & OTHER && length == count)
        length++;
    if (format.precision >= 0)
        format.flags &= ~(unsigned)ZEROS;
    long after = begin(out, &format, prefix, length);
    repeat(out, '0', length - count);
    while (count != 0)
        put(out, digits[--count]);
    repeat(out, ' ', after);
}

/* ---- numbers with a point -------------------------------------------------------------------- */

enum {
    BASE = 1000000000,
    DIGITS = 9,   /* in a word */
    WHOLE = 36,   /* words before the point: 309 digits, and room for rounding up */
    WORDS = WHOLE + 120 /* and 1074 digits behind it */
};

/* A number without sign, exactly. The word WHOLE is the first behind the point. */
struct decimal {
    uint32_t word[WORDS];
    int first, last; /* words that are not 0 */
};

/* The number mantissa * 2^exponent. */
static void exactly(struct decimal *number, uint64_t mantissa, int exponent)
{
    for (int i = 0; i < WORDS; i++)
        number->word[i] = 0;
    number->first = number->last = WHOLE - 1;
    number->word[WHOLE - 1] = (uint32_t)(mantissa % BASE);
    if (mantissa / BASE != 0)
        number->word[--number->first] = (uint32_t)(mantissa / BASE);
    while (exponent > 0) {
        int shift = exponent < 29 ? exponent : 29;
        uint64_t carry = 0;
        for (int i = WHOLE - 1; i >= number->first; i--) {
            carry += (uint64_t)number->word[i] << shift;
            number->word[i] = (uint32_t)(carry % BASE);
            carry /= BASE;
        }
        if (carry != 0)
            number->word[--number->first] = (uint32_t)carry;
        exponent -= shift;
    }
    while (exponent < 0) {
        /* 10^9 is a multiple of 2^9, so what falls out of a word is whole in the next. */
        int shift = -exponent < DIGITS ? -exponent : DIGITS;
        uint32_t carry = 0;
        for (int i = number->first; i <= number->last; i++) {
            uint32_t rest = number->word[i] & ((1u << shift) - 1);
            number->word[i] = (number->word[i] >> shift) + carry;
            carry = (uint32_t)(BASE >> shift) * rest;
        }
        if (carry != 0)
            number->word[++number->last] = carry;
        if (number->word[number->first] == 0 && number->first < number->last)
            number->first++;
        exponent += shift;
    }
}

/* Where the digit for 10^position is: its word, and 10^ its place in the word. */
static int place(int position, uint32_t *power)
{
    int word = position >= 0 ? WHOLE - 1 - position / DIGITS : WHOLE + (-position - 1) / DIGITS;
    int place = position >= 0 ? position % DIGITS : DIGITS - 1 - (-position - 1) % DIGITS;
    for (*power = 1; place != 0; place--)
        *power *= 10;
    return word;
}

static unsigned digit(const struct decimal *number, int position)
{
    uint32_t power;
    int word = place(position, &power);
    return word < 0 || word >= WORDS ? 0 : number->word[word] / power % 10;
}

/* The position of the first digit; 0 for zero. */
static int highest(const struct decimal *number)
{
    int word = 0;
    while (word < WORDS && number->word[word] == 0)
        word++;
    if (word == WORDS)
        return 0;
    int position = (WHOLE - word) * DIGITS - 1;
    while (digit(number, position) == 0)
        position--;
    return position;
}

/* Rounds to a multiple of 10^position; halves to even. What is behind stays. */
static void round_to(struct decimal *number, int position)
{
    uint32_t power;
    int word = place(position - 1, &power);
    if (word >= WORDS)
        return;
    unsigned next = digit(number, position - 1);
    int more = number->word[word] % power != 0;
    for (int i = word + 1; i <= number->last && !more; i++)
        more = number->word[i] != 0;
    if (next < 5 || (next == 5 && !more && digit(number, position) % 2 == 0))
        return;
    word = place(position, &power);
    number->word[word] += power;
    for (; number->word[word] >= BASE; word--) {
        number->word[word] -= BASE;
        number->word[word - 1]++;
    }
}

/* `places` digits behind the point. */
static void fixed(struct output *out, const struct format *format, const char *sign,
                  const struct decimal *number, int places)
{
    int first = highest(number) > 0 ? highest(number) : 0;
    int point = places > 0 || format->flags & OTHER;
    long after = begin(out, format, sign, first + 1 + point + places);
    for (int position = first; position >= -places; position--) {
        put(out, (char)('0' + digit(number, position)));
        if (position == 0 && point)
            put(out, '.');
    }
    repeat(out, ' ', after);
}

static void scientific(struct output *out, const struct format *format, const char *sign,
                       const struct decimal *number, int places)
{
    int first = highest(number);
    unsigned size = (unsigned)(first < 0 ? -first : first);
    int point = places > 0 || format->flags & OTHER;
    long after = begin(out, format, sign, 1 + point + places + (size < 100 ? 4 : 5));
    for (int position = first; position >= first - places; position--) {
        put(out, (char)('0' + digit(number, position)));
        if (position == first && point)
            put(out, '.');
    }
    put(out, format->flags & UPPER ? 'E' : 'e');
    put(out, first < 0 ? '-' : '+');
    if (size >= 100)
        put(out, (char)('0' + size / 100));
    put(out, (char)('0' + size / 10 % 10));
    put(out, (char)('0' + size % 10));
    repeat(out, ' ', after);
}

static void floating(struct output *out, struct format format, uint64_t bits, char letter)
{
    struct decimal number;
    const char *sign = sign_of(&format, bits >> 63 != 0);
    uint64_t mantissa = bits & 0xfffffffffffff;
    int exponent = (int)(bits >> 52 & 0x7ff);

    if (exponent == 0x7ff) {
        const char *name = format.flags & UPPER ? "INFNAN" : "infnan";
        format.flags &= ~(unsigned)ZEROS;
        long after = begin(out, &format, sign, 3);
        for (int i = 0; i < 3; i++)
            put(out, name[i + (mantissa != 0 ? 3 : 0)]);
        repeat(out, ' ', after);
        return;
    }
    if (exponent != 0)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1;
    exactly(&number, mantissa, exponent - 1075);
    int places = format.precision < 0 ? 6 : (int)format.precision;
    if (letter == 'f') {
        round_to(&number, -places);
        fixed(out, &format, sign, &number, places);
    } else if (letter == 'e') {
        round_to(&number, highest(&number) - places);
        scientific(out, &format, sign, &number, places);
    } else {
        if (places == 0)
            places = 1;
        round_to(&number, highest(&number) - places + 1);
        int first = highest(&number);
        int is_fixed = first < places && first >= -4;
        int behind = is_fixed ? places - 1 - first : places - 1;
        int last = is_fixed ? -behind : first - behind;
        for (; !(format.flags & OTHER) && behind > 0 && digit(&number, last) == 0; last++)
            behind--;
        (is_fixed ? fixed : scientific)(out, &format, sign, &number, behind);
    }
}

/* ---- the format ------------------------------------------------------------------------------ */

static long number(const char **at)
{
    long value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + **at - '0';
    return value;
}

/* One argument of integer type, `size` bytes of it. */
static uint64_t integer(uint64_t value, unsigned size, int is_signed)
{
    unsigned unused = 64 - 8 * size;
    return is_signed ? (uint64_t)((int64_t)(value << unused) >> unused) : value << unused >> unused;
}

int et_vsnprintf(char *to, size_t size, const char *at, va_list values)
{
    struct output out = {to, size, 0};

    while (*at) {
        if (*at != '%') {
            put(&out, *at++);
            continue;
        }
        at++;
        struct format format = {0, 0, -1};
        for (;; at++) {
            unsigned flag = *at == '-' ? LEFT : *at == '+' ? PLUS : *at == ' ' ? SPACE
                          : *at == '#' ? OTHER : *at == '0' ? ZEROS : 0;
            if (flag == 0)
                break;
            format.flags |= flag;
        }
        if (*at == '*') {
            format.width = va_arg(values, int);
            if (format.width < 0) {
                format.flags |= LEFT;
                format.width = -format.width;
            }
            at++;
        } else {
            format.width = number(&at);
        }
        if (*at == '.') {
            at++;
            if (*at == '*') {
                format.precision = va_arg(values, int);
                at++;
            } else {
                format.precision = number(&at);
            }
        }
        unsigned bytes = 4;
        for (;; at++) {
            if (*at == 'h')
                bytes /= 2;
            else if (*at == 'l' || *at == 'z' || *at == 'j' || *at == 't')
                bytes = 8;
            else
                break;
        }
        char letter = *at;
        if (letter == 0)
            break;
        at++;
        if (letter >= 'A' && letter <= 'Z' && letter != 'X') {
            format.flags |= UPPER;
            letter = (char)(letter - 'A' + 'a');
        }
        switch (letter) {
        case 'd':
        case 'i': {
            /* All integers come in 64-bit registers. */
            int64_t value = (int64_t)integer(va_arg(values, uint64_t), bytes, 1);
            uint64_t amount = value < 0 ? -(uint64_t)value : (uint64_t)value;
            whole(&out, format, amount, 10, sign_of(&format, value < 0));
            break;
        }
        case 'u':
        case 'o':
        case 'x':
        case 'X': {
            uint64_t value = integer(va_arg(values, uint64_t), bytes, 0);
            unsigned base = letter == 'u' ? 10 : letter == 'o' ? 8 : 16;
            const char *prefix = "";
            if (letter == 'X')
                format.flags |= UPPER;
            if (base == 16 && format.flags & OTHER && value != 0)
                prefix = letter == 'X' ? "0X" : "0x";
            whole(&out, format, value, base, prefix);
            break;
        }
        case 'p':
            whole(&out, format, va_arg(values, uint64_t), 16, "0x");
            break;
        case 'c': {
            char character = (char)va_arg(values, int);
            text(&out, &format, &character, 1);
            break;
        }
        case 's': {
            const char *string = va_arg(values, const char *);
            long length = 0;
            if (!string)
                string = "(null)";
            while ((format.precision < 0 || length < format.precision) && string[length])
                length++;
            text(&out, &format, string, length);
            break;
        }
        case 'f':
        case 'e':
        case 'g':
            /* Doubles come in integer registers: the ABI has float registers of 32 bits. */
            floating(&out, format, va_arg(values, uint64_t), letter);
            break;
        default:
            put(&out, letter);
        }
    }
    if (size != 0)
        to[out.length < size ? out.length : size - 1] = 0;
    return (int)out.length;
}

int et_snprintf(char *to, size_t size, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length = et_vsnprintf(to, size, format, values);
    va_end(values);
    return length;
}

static void log_values(uint32_t wanted, uint32_t level, const char *format, va_list values)
{
    char line[ET_TRACE_STRING_BYTES];
    if (!et_trace_wants(wanted))
        return;
    et_vsnprintf(line, sizeof line, format, values);
    et_trace_string_as(wanted, level, line);
}

void et_log(uint32_t level, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    log_values(level, level, format, values);
    va_end(values);
}

void et_printf(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    log_values(ET_TRACE_CRITICAL, ET_TRACE_INFO, format, values);
    va_end(values);
}

/*
 * What compilers call to hand a float to a function with any number of arguments. A double is
 * returned as a 64-bit integer is.
 */
uint64_t __extendsfdf2(float value) __attribute__((weak));
uint64_t __extendsfdf2(float value)
{
    union {
        float value;
        uint32_t bits;
    } from = {value};
    uint64_t sign = (uint64_t)(from.bits >> 31) << 63;
    uint64_t exponent = from.bits >> 23 & 0xff;
    uint64_t mantissa = from.bits & 0x7fffff;

    if (exponent == 0xff)
        return sign | (uint64_t)0x7ff << 52 | mantissa << 29;
    if (exponent == 0) {
        if (mantissa == 0)
            return sign;
        /* A subnormal float is a normal double. */
        for (exponent = 1; mantissa >> 23 == 0; exponent--)
            mantissa <<= 1;
        mantissa &= 0x7fffff;
    }
    return sign | (exponent + 1023 - 127) << 52 | mantissa << 29;
}
