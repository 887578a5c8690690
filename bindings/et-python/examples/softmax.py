"""Softmax of every row of a matrix, as a graph: three kernels, ordered by what they use."""
import et
import numpy as np

ROWS = """
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    /* Whole rows, so that no two harts write to one line of the cache. */
    for (uint64_t row = part; row < args->rows; row += parts) {
        const float *x = args->x + row * args->columns;
        float *z = args->z + row * args->columns;
        %s
    }
    return 0;
}
ET_TASK_ENTRY;
"""


@et.kernel(ROWS % """
        float most = x[0];
        for (uint64_t i = 1; i < args->columns; i++)
            most = x[i] > most ? x[i] : most;
        for (uint64_t i = 0; i < args->columns; i++)
            z[i] = x[i] - most;
""")
def shift(x: et.In[et.f32], z: et.Out[et.f32], rows: et.u64, columns: et.u64):
    """Subtracts the largest of each row."""


@et.kernel(ROWS % """
        for (uint64_t i = 0; i < args->columns; i++) {
            /* exp(x) = exp(x / 1024) ^ 1024, and near 0 three terms are enough. */
            float y = x[i] * (1.0f / 1024), e = 1 + y * (1 + y * (0.5f + y * (1.0f / 6)));
            for (int square = 0; square < 10; square++)
                e *= e;
            z[i] = e;
        }
""")
def exp(x: et.In[et.f32], z: et.Out[et.f32], rows: et.u64, columns: et.u64):
    """The exponential of numbers up to 0."""


@et.kernel(ROWS % """
        float sum = 0;
        for (uint64_t i = 0; i < args->columns; i++)
            sum += x[i];
        /* The cores do not divide; their vector units take reciprocals. */
        struct et_f32x8 by = {{sum, 1, 1, 1, 1, 1, 1, 1}};
        et_f32x8_recip(&by, &by);
        for (uint64_t i = 0; i < args->columns; i++)
            z[i] = x[i] * by.lane[0];
""")
def normalise(x: et.In[et.f32], z: et.Out[et.f32], rows: et.u64, columns: et.u64):
    """Divides by the sum of each row."""


with et.open("sim:shires=2") as device:
    rows, columns = 64, 256
    x = np.random.default_rng(0).normal(0, 3, (rows, columns)).astype("f4")
    given, low, high, result = device.array(x), *(device.empty(x.shape) for _ in range(3))
    graph = et.Graph()
    for kernel, source, target in [(shift, given, low), (exp, low, high), (normalise, high, result)]:
        graph.add(kernel.on(device), source, target, rows, columns, name=kernel.__name__)
    run = graph.run(timeout=60)
    wanted = np.exp(x - x.max(axis=1, keepdims=True))
    wanted /= wanted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.to_numpy(), wanted, rtol=2e-3, atol=1e-7)
    print(f"{graph.edges} edges; on {run.place} in {run.elapsed * 1e3:.1f} ms")
