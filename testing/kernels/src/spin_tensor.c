/*
 * spin_tensor: tensor benchmark. The first hart of each minion multiplies two matrices of 16 by 16
 * floats, again and again; each product takes the place of the one before.
 *
 *   const float *a;  const float *b;  float *c;  uint64_t iterations;
 *
 * a, b and c have 16 rows of 64 bytes, aligned to as many. Minion 0 of shire 0 stores the last
 * product to c. With no iterations nothing is done.
 */
#include <et/device.h>

struct args {
    const float *a;
    const float *b;
    float *c;
    uint64_t iterations;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    (void)env;
    if (et_thread() != 0 || args->iterations == 0)
        return 0;
    et_tensor_error_clear();
    et_l1_scratchpad_enable();
    et_tensor_load((struct et_tensor_load_args){
        .from = args->a, .stride = 64, .rows = 16, .line = 0, .id = 0});
    et_tensor_load((struct et_tensor_load_args){
        .from = args->b, .stride = 64, .rows = 16, .line = 16, .id = 1});
    et_tensor_wait(ET_WAIT_LOAD_0);
    et_tensor_wait(ET_WAIT_LOAD_1);
    for (uint64_t left = args->iterations; left != 0; left--)
        et_tensor_fma((struct et_tensor_fma_args){
            .type = ET_TENSOR_FP32, .rows = 16, .columns = 16, .depth = 16, .b_line = 16,
            .first = 1});
    et_tensor_wait(ET_WAIT_FMA);
    if (et_shire() == 0 && et_minion() == 0) {
        et_tensor_store((struct et_tensor_store_args){
            .to = args->c, .stride = 64, .rows = 16, .chunks = 4, .step = 1, .minions = 1});
        et_tensor_wait(ET_WAIT_STORE);
    }
    ET_TENSOR_CLOBBER();
    return -(int64_t)et_tensor_error();
}
