/*
 * C = A * B on the tensor units of two minions, each with half of the depth.
 *
 *   const float *a;  const float *b;  float *c;
 *
 * a is 16 rows of 32, b 32 rows of 16, c 16 rows of 16. Minion 1 of shire 0 sends its half of the
 * sums to minion 0, which stores.
 */
#include <et/device.h>

struct args {
    const float *a;
    const float *b;
    float *c;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    unsigned minion = et_minion();

    (void)env;
    if (et_shire() != 0 || minion > 1 || et_thread() != 0)
        return 0;
    et_tensor_error_clear();
    et_l1_scratchpad_enable();
    et_tensor_load((struct et_tensor_load_args){
        .from = args->a + 16 * minion, .stride = 128, .rows = 16, .line = 0, .id = 0});
    et_tensor_load((struct et_tensor_load_args){
        .from = args->b + 256 * minion, .stride = 64, .rows = 16, .line = 16, .id = 1});
    et_tensor_wait(ET_WAIT_LOAD_0);
    et_tensor_wait(ET_WAIT_LOAD_1);
    et_tensor_fma((struct et_tensor_fma_args){
        .type = ET_TENSOR_FP32, .rows = 16, .columns = 16, .depth = 16, .b_line = 16, .first = 1});
    et_tensor_wait(ET_WAIT_FMA);
    et_tensor_reduce((struct et_tensor_reduce_args){
        .role = minion ? ET_SEND : ET_RECEIVE, .partner = et_global_minion() ^ 1,
        .function = ET_REDUCE_FADD, .count = 32});
    et_tensor_wait(ET_WAIT_REDUCE);
    if (minion == 0) {
        et_tensor_store((struct et_tensor_store_args){
            .to = args->c, .stride = 64, .rows = 16, .chunks = 4, .step = 1, .minions = 1});
        et_tensor_wait(ET_WAIT_STORE);
    }
    ET_TENSOR_CLOBBER();
    return -(int64_t)et_tensor_error();
}
