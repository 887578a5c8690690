/*
 * The words that start tensor operations, from rank 0.
 *
 *   uint64_t *out;  uint64_t address;
 */
#include <et/device.h>

struct args {
    uint64_t *out;
    uint64_t address;
};

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t *out = args->out;
    void *at = (void *)args->address;

    if (et_index(env) != 0)
        return 0;
    *out++ = et_tensor_load_word((struct et_tensor_load_args){.from = at, .rows = 16});
    *out++ = et_tensor_load_word((struct et_tensor_load_args){
        .from = at, .rows = 5, .line = 33, .layout = ET_LAYOUT_TRANSPOSE16, .offset = 2,
        .masked = 1, .coop = 1});
    *out++ = et_tensor_load_word((struct et_tensor_load_args){.from = at, .rows = 1, .to_b = 1});
    *out++ = et_tensor_load_l2_word((struct et_tensor_load_l2_args){
        .from = at, .rows = 2, .line = 0x1abcd, .masked = 1});
    *out++ = et_tensor_fma_word((struct et_tensor_fma_args){
        .rows = 16, .columns = 16, .depth = 16, .b_line = 16, .first = 1});
    *out++ = et_tensor_fma_word((struct et_tensor_fma_args){
        .type = ET_TENSOR_INT8, .rows = 3, .columns = 8, .depth = 5, .a_line = 47, .a_offset = 9,
        .b_line = 21, .b_in_ten_b = 1, .masked = 1, .a_unsigned = 1, .to_floats = 1});
    *out++ = et_tensor_fma_word((struct et_tensor_fma_args){
        .type = ET_TENSOR_FP16, .rows = 1, .columns = 4, .depth = 1, .b_unsigned = 1});
    *out++ = et_tensor_quant_word((struct et_tensor_quant_args){
        .steps = ET_QUANT_I32_TO_F32 | ET_QUANT_MUL_ROW << 4 | ET_QUANT_PACK << 8,
        .line = 40, .rows = 7, .columns = 12, .register_ = 30});
    *out++ = et_tensor_store_word((struct et_tensor_store_args){
        .to = at, .rows = 16, .chunks = 4, .step = 1, .minions = 1});
    *out++ = et_tensor_store_word((struct et_tensor_store_args){
        .to = at, .rows = 2, .chunks = 2, .register_ = 31, .step = 4, .minions = 2});
    *out++ = et_tensor_store_lines_word((struct et_tensor_store_lines_args){
        .to = at, .rows = 9, .line = 47, .step = 2});
    *out++ = et_tensor_reduce_word((struct et_tensor_reduce_args){
        .role = ET_SEND, .partner = 1023, .function = ET_REDUCE_FADD, .count = 32});
    *out++ = et_tensor_reduce_word((struct et_tensor_reduce_args){
        .role = ET_TREE, .level = 4, .function = ET_REDUCE_MOVE, .register_ = 17, .count = 127});
    /* As far as the words go to control registers that hold them. */
    et_tensor_mask(0xa5c3);
    *out++ = ET_CSR_READ(ET_CSR_TENSOR_MASK);
    et_tensor_conv((struct et_tensor_conv_args){
        .row_step = 0, .column_step = 1, .rows = 4, .columns = 10, .row = 2, .column = -3});
    *out++ = ET_CSR_READ(ET_CSR_TENSOR_MASK);
    return 0;
}
