/*
 * atomics: every vendor atomic and coherent store, from all harts at once.
 *
 *   uint64_t *out;
 *
 * out is 16 words (two 64-byte lines, aligned), cleared by the kernel; with h harts of ranks
 * i = 0 .. h-1 it ends as
 *   out[0]  amoadd    sum of i + 1
 *   out[1]  amoor     bits i mod 64 of all harts
 *   out[2]  amoand    all ones without the bits i mod 64
 *   out[3]  amoxor    xor of all (i + 1) * 0x9E3779B97F4A7C15
 *   out[4]  amomax    h - 1 (signed; starts at -1)
 *   out[5]  amomin    -(h - 1) (signed; starts at 0)
 *   out[6]  amomaxu   ~0 (hart 0 offers it; starts at 0)
 *   out[7]  amominu   0 (hart 0 offers it; starts at ~0)
 *   out[8]  cmpswap   h: each hart adds 1 in a retry loop
 *   out[9]  amoswap   0: each hart swaps in i + 1 and adds what it got out to out[10];
 *                     the last value is moved to out[10] as well
 *   out[10] amoadd    equals out[0]
 *   out[11] 32-bit    high half 0xFFFFFFFF as initialised, low half h (amoadd of 32 bits)
 *   out[12] bytes and halfwords: 0x0000_BEEF_0000_00A5 (every hart stores the same)
 *   out[13] harts that saw a 32-bit old value that was not sign-extended properly: 0
 *   out[14] compare-and-swap with a wrong comparand: stays 0x1234
 *   out[15] harts of the launch
 */
#include <et/device.h>

struct args {
    uint64_t *out;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t *out = args->out;
    uint64_t index = et_index(env);
    uint64_t bit = (uint64_t)1 << index % 64;
    static const uint64_t start[16] = {
        [2] = UINT64_MAX, [4] = UINT64_MAX, [7] = UINT64_MAX, [11] = 0xffffffff00000000,
        [14] = 0x1234,
    };

    if (index == 0) {
        for (int i = 0; i < 15; i++)
            et_store_g64(&out[i], start[i]);
        et_store_g64(&out[15], et_harts(env));
    }
    et_launch_barrier(env, 0);

    et_amoadd_g64(&out[0], index + 1);
    et_amoor_g64(&out[1], bit);
    et_amoand_g64(&out[2], ~bit);
    et_amoxor_g64(&out[3], (index + 1) * 0x9e3779b97f4a7c15);
    et_amomax_g64((int64_t *)&out[4], (int64_t)index);
    et_amomin_g64((int64_t *)&out[5], -(int64_t)index);
    et_amomaxu_g64(&out[6], index == 0 ? UINT64_MAX : index);
    et_amominu_g64(&out[7], index == 0 ? 0 : ~index);

    uint64_t seen = et_load_g64(&out[8]);
    for (;;) {
        uint64_t before = et_cmpswap_g64(&out[8], seen, seen + 1);
        if (before == seen)
            break;
        seen = before;
    }

    et_amoadd_g64(&out[10], et_amoswap_g64(&out[9], index + 1));

    et_amoadd_g32((uint32_t *)&out[11], 1);
    et_store_g8((uint8_t *)&out[12], 0xa5);
    et_store_g16((uint16_t *)&out[12] + 2, 0xbeef);

    /* Asked for as 64 bits on purpose: the compiler would re-extend a 32-bit result itself. */
    int64_t old;
    __asm__ volatile("amoorg.w %0, x0, (%1)"
                     : "=r"(old)
                     : "r"((uint32_t *)&out[11] + 1)
                     : "memory");
    if (old != -1)
        et_amoadd_g64(&out[13], 1);

    et_cmpswap_g64(&out[14], 0x4321, 0xbad);

    et_launch_barrier(env, 1);
    if (index == 0)
        et_amoadd_g64(&out[10], et_amoswap_g64(&out[9], 0));
    return 0;
}
