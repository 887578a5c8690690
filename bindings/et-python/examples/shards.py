"""A layer of a network on one device: what the examples for many hosts run on each."""
import dataclasses
import time

import et
import numpy as np

# A card of its own for every process; one thread, so that two of them are two cores' work.
SIMULATED = "sim:shires=1,threads=1,dram=256MiB"


@et.kernel("""
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    uint64_t columns = args->columns, depth = args->depth;
    /* Whole rows, so that no two harts write to one line of the cache. */
    for (uint64_t row = part; row < args->rows; row += parts) {
        for (uint64_t column = 0; column < columns; column++) {
            float sum = 0;
            for (uint64_t i = 0; i < depth; i++)
                sum += args->x[row * depth + i] * args->w[i * columns + column];
            args->y[row * columns + column] = sum > 0 ? sum : 0;
        }
    }
    return 0;
}
ET_TASK_ENTRY;
""")
def layer(x: et.In[et.f32], w: et.In[et.f32], y: et.Out[et.f32], rows: et.u64, depth: et.u64,
          columns: et.u64):
    """y = max(x w, 0)"""


@dataclasses.dataclass
class Cost:
    """Where the time of a shard went, in seconds, and what was copied, in bytes."""
    copies: float = 0.0
    kernel: float = 0.0
    moved: int = 0

    def __add__(self, other):
        return Cost(self.copies + other.copies, self.kernel + other.kernel,
                    self.moved + other.moved)


class Layer:
    """The layer with its weights on a device, which stays open for all shards."""

    def __init__(self, locator, weights):
        self.device = et.open(locator)
        self.weights = self.device.array(weights)
        # Compiled and loaded here, so that no shard pays for it.
        layer.on(self.device)

    def __call__(self, rows):
        """The result for some rows, and what it cost."""
        depth, columns = self.weights.shape
        start = time.perf_counter()
        x, y = self.device.array(rows), self.device.empty((len(rows), columns))
        copied = time.perf_counter()
        layer(x, self.weights, y, len(rows), depth, columns).wait()
        computed = time.perf_counter()
        result = y.to_numpy()
        copies = copied - start + time.perf_counter() - computed
        return result, Cost(copies, computed - copied, rows.nbytes + result.nbytes)


def batch(rows, depth=256, columns=128):
    """Rows, weights, and what the layer makes of them."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, depth), dtype="f4")
    w = random.standard_normal((depth, columns), dtype="f4")
    return x, w, np.maximum(x @ w, 0)


def figures(alone, together, cost, between):
    """The same as `report` prints, for machines."""
    return {"alone_s": alone, "together_s": together, "speedup": alone / together,
            "kernel_s": cost.kernel, "copies_s": cost.copies, "between_s": between,
            "moved_bytes": cost.moved}


def report(name, alone, together, workers, cost, between):
    """A table: what more devices gave, and what it cost to bring the data to them."""
    print(f"{name}: 1 device {alone:.2f} s, {workers} devices {together:.2f} s, "
          f"{alone / together:.2f} times as fast")
    megabytes = cost.moved / 1e6
    print(f"  {'kernels':24}{cost.kernel / workers:8.3f} s on each device")
    print(f"  {'host and device':24}{cost.copies / workers:8.3f} s on each, for "
          f"{megabytes / workers:.1f} MB")
    print(f"  {'sending and waiting':24}{between:8.3f} s, for {megabytes:.1f} MB")
