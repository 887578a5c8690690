"""y = a x + y, launched on one, two and all shires, timed and recorded."""
import et
import numpy as np


@et.kernel("""
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    struct et_range mine = et_part(args->y, sizeof(float), args->n, part, parts);
    for (uint64_t i = mine.begin; i < mine.end; i++)
        args->y[i] += args->a * args->x[i];
    return 0;
}
ET_TASK_ENTRY;
""")
def saxpy(x: et.In[et.f32], y: et.InOut[et.f32], a: et.f32, n: et.u64):
    """Adds a times x to y."""


with et.open("sim:shires=4") as device:
    n = 1 << 16
    x, y = np.linspace(0, 1, n, dtype="f4"), np.ones(n, "f4")
    on_device, result = device.array(x), device.array(y)
    with device.profile() as profile:
        for grid in (1, 2, ...):
            saxpy[grid](on_device, result, 2.0, n).wait()
            y += np.float32(2) * x
    np.testing.assert_allclose(result.to_numpy(), y, rtol=1e-6)
    for record in profile.records:
        if record.name == "launch":
            print(f"launch {record.id}: {(record.completed - record.sent) * 1e6:.0f} µs")
