/*
 * bss: shows that the loader zero-fills .bss and relocates pointers in constants and in data.
 *
 *   uint64_t *out;
 *
 * out has 8 + harts words and is never cleared. Rank 0 writes
 *   out[0]  bytes of .bss that were not zero: 0
 *   out[1]  bytes of .bss that did not keep what was stored: 0
 *   out[2]  start of .bss
 *   out[3]  &_start, computed from the pc
 *   out[4]  &_start, from a pointer in .data    (equal to out[3] if relocated)
 *   out[5]  &_start, from a pointer in .rodata  (equal to out[3] if relocated)
 *   out[6]  initialised variable in .data: 0x0123456789ABCDEF
 *   out[7]  harts of the launch
 * and every hart out[8 + rank] = f(rank), with f called through a table of function pointers: by
 * rank mod 4 it is rank + 1, rank * 2, rank ^ 0x55 or ~rank. A hart that finds something wrong
 * returns -1.
 *
 * .bss is left zero, so that the loaded image can be launched again.
 */
#include <et/device.h>

struct args {
    uint64_t *out;
};

extern const uint8_t _start[];

static uint64_t increment(uint64_t x) { return x + 1; }
static uint64_t twice(uint64_t x) { return x * 2; }
static uint64_t flip(uint64_t x) { return x ^ 0x55; }
static uint64_t invert(uint64_t x) { return ~x; }

typedef uint64_t operation(uint64_t);

static operation *const in_rodata[4] = {increment, twice, flip, invert};
static const uint8_t *const start_in_rodata = _start;

/* Not static, or the compiler would see that they are never written and move them to .rodata. */
operation *in_data[4] = {increment, twice, flip, invert};
const uint8_t *start_in_data = _start;
uint64_t initialised = 0x0123456789abcdef;

/*
 * Reads a variable from memory. The compiler knows what is in there and would compute it from the
 * pc; but volatile variables cannot be constants in .rodata, so only the access is volatile.
 */
#define FROM_MEMORY(variable) (*(__typeof__(variable) volatile *)&(variable))

/* More than a page, and not a multiple of one: both the tail and the whole pages must be zeroed. */
static volatile uint8_t ET_ALIGN_LINE zeros[5000];

static uint64_t count_not(uint8_t value)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < sizeof zeros; i++)
        wrong += zeros[i] != value;
    return wrong;
}

static void fill(uint8_t value)
{
    for (uint64_t i = 0; i < sizeof zeros; i++)
        zeros[i] = value;
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t *out = args->out;
    uint64_t index = et_index(env);
    int wrong = 0;

    if (index == 0) {
        uint64_t not_zero = count_not(0);
        fill(0xa5);
        uint64_t not_kept = count_not(0xa5);
        fill(0);

        et_store_g64(&out[0], not_zero);
        et_store_g64(&out[1], not_kept);
        et_store_g64(&out[2], (uintptr_t)zeros);
        et_store_g64(&out[3], (uintptr_t)_start);
        et_store_g64(&out[4], (uintptr_t)FROM_MEMORY(start_in_data));
        et_store_g64(&out[5], (uintptr_t)FROM_MEMORY(start_in_rodata));
        et_store_g64(&out[6], FROM_MEMORY(initialised));
        et_store_g64(&out[7], et_harts(env));
        wrong = not_zero != 0 || not_kept != 0 || FROM_MEMORY(initialised) != 0x0123456789abcdef;
    }

    /* Compare before calling: a pointer that was not relocated leads anywhere. */
    operation *constant = FROM_MEMORY(in_rodata[index % 4]);
    operation *variable = FROM_MEMORY(in_data[index % 4]);
    if (FROM_MEMORY(start_in_data) != _start || FROM_MEMORY(start_in_rodata) != _start ||
        constant != variable)
        return -1;
    uint64_t result = constant(index);
    wrong |= result != variable(index);
    et_store_g64(&out[8 + index], result);
    return wrong ? -1 : 0;
}
