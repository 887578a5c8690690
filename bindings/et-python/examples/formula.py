"""(a + b + 1) (a + b + 2) over 16384 floats, with a kernel that is compiled at run time."""
import et
import numpy as np


@et.kernel("""
int64_t et_task(const struct args *args, const struct kernel_environment *env,
                uint64_t part, uint64_t parts)
{
    struct et_range mine = et_part(args->z, sizeof(float), args->n, part, parts);
    for (uint64_t i = mine.begin; i < mine.end; i++) {
        float sum = args->a[i] + args->b[i];
        args->z[i] = (sum + 1) * (sum + 2);
    }
    return 0;
}
ET_TASK_ENTRY;
""")
def formula(a: et.In[et.f32], b: et.In[et.f32], z: et.Out[et.f32], n: et.u64): ...

with et.open("sim:") as device:
    a, b = (np.random.default_rng(seed).random(16384, dtype="f4") for seed in (1, 2))
    z = device.empty(a.shape)
    formula(device.array(a), device.array(b), z, a.size).wait()
    np.testing.assert_allclose(z.to_numpy(), (a + b + 1) * (a + b + 2), rtol=1e-6)
