"""A batch over the devices of many hosts with MPI: every process owns one device.

    mpiexec -n 2 python -m mpi4py mpi_shards.py     two processes here, each with a simulated card
    mpiexec -n 8 -hosts a,b python -m mpi4py mpi_shards.py --device vfio:0000:01:00.0 \\
        --device vfio:0000:02:00.0                  four on each host take its devices in turn
"""
import argparse
import json
import time

import numpy as np
from mpi4py import MPI

import shards


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", action="append", help="devices of each host")
    options.add_argument("--rows", type=int, default=512)
    options.add_argument("--json", action="store_true")
    options = options.parse_args()

    world = MPI.COMM_WORLD
    on_host = world.Split_type(MPI.COMM_TYPE_SHARED).rank
    devices = options.device or [shards.SIMULATED]
    first = world.rank == 0
    x, weights, wanted = shards.batch(options.rows)
    depth, columns = weights.shape
    if not first:
        # Only the first process has the data; the others are sent it.
        x, weights = None, np.empty_like(weights)
    world.Bcast(weights)
    layer = shards.Layer(devices[on_host % len(devices)], weights)

    # The first process alone; the others sleep, as a barrier would keep their cores busy.
    start = time.perf_counter()
    if first:
        layer(x)
    alone = time.perf_counter() - start
    waiting = world.Ibarrier()
    while not waiting.Test():
        time.sleep(0.01)

    start = time.perf_counter()
    counts = [len(part) for part in np.array_split(np.arange(options.rows), world.size)]
    mine = np.empty((counts[world.rank], depth), "f4")
    world.Scatterv([x, [n * depth for n in counts]] if first else None, mine)
    scattered = time.perf_counter()
    part, cost = layer(mine)
    computed = time.perf_counter()
    result = np.empty((options.rows, columns), "f4") if first else None
    costs = world.gather(cost)
    gathering = time.perf_counter()
    world.Gatherv(part, [result, [n * columns for n in counts]] if first else None)
    end = time.perf_counter()
    if not first:
        return
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    together, between = end - start, scattered - start + end - gathering
    cost = sum(costs, shards.Cost())
    if options.json:
        print(json.dumps({"workers": world.size, "rows": counts,
                          **shards.figures(alone, together, cost, between)}))
    else:
        shards.report("MPI", alone, together, world.size, cost, between)


if __name__ == "__main__":
    main()
