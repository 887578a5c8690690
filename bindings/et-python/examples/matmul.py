"""C = A B in tiles of 16 by 16, on the tensor unit of every minion."""
import et
import numpy as np


@et.kernel("""
/* Minions take tiles of C in turn; only thread 0 of each has the tensor unit. */
int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    uint64_t n = args->n, tiles = n / 16;
    if (et_thread() != 0)
        return 0;
    et_tensor_error_clear();
    et_l1_scratchpad_enable();
    for (uint64_t t = et_index(env) / 2; t < tiles * tiles; t += et_harts(env) / 2) {
        const float *a = args->a + t / tiles * 16 * n, *b = args->b + t % tiles * 16;
        for (uint64_t k = 0; k < n; k += 16) {
            et_tensor_load((struct et_tensor_load_args){
                .from = a + k, .stride = 4 * n, .rows = 16, .line = 0, .id = 0});
            et_tensor_load((struct et_tensor_load_args){
                .from = b + k * n, .stride = 4 * n, .rows = 16, .line = 16, .id = 1});
            et_tensor_wait(ET_WAIT_LOAD_0);
            et_tensor_wait(ET_WAIT_LOAD_1);
            et_tensor_fma((struct et_tensor_fma_args){
                .type = ET_TENSOR_FP32, .rows = 16, .columns = 16, .depth = 16, .b_line = 16,
                .first = k == 0});
            et_tensor_wait(ET_WAIT_FMA);
        }
        et_tensor_store((struct et_tensor_store_args){
            .to = args->c + t / tiles * 16 * n + t % tiles * 16, .stride = 4 * n, .rows = 16,
            .chunks = 4, .step = 1, .minions = 1});
        et_tensor_wait(ET_WAIT_STORE);
    }
    ET_TENSOR_CLOBBER();
    return -(int64_t)et_tensor_error();
}
""")
def matmul(a: et.In[et.f32], b: et.In[et.f32], c: et.Out[et.f32], n: et.u64):
    """C = A B, of n rows and columns, a multiple of 16."""


with et.open("sim:shires=4") as device:
    n = 128
    a, b = (np.random.default_rng(seed).random((n, n), dtype="f4") for seed in (1, 2))
    c = device.empty((n, n))
    matmul(device.array(a), device.array(b), c, n).wait()
    np.testing.assert_allclose(c.to_numpy(), a @ b, rtol=1e-5)
    print(f"{n} x {n}: largest difference {abs(c.to_numpy() - a @ b).max():.1e}")
