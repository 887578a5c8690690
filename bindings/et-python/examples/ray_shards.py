"""A batch over the devices of many hosts with Ray: actors own devices, the object store has the data.

    python ray_shards.py                            two workers here, each with a simulated card
    python ray_shards.py --address auto --device vfio:0000:01:00.0 --workers 8      on a cluster
"""
import argparse
import json
import os
import signal
import time

import numpy as np
import ray

import shards


# One more resource, "et", if the hosts of a cluster are started with `--resources '{"et": 1}'`. A
# worker that dies is started again, opens its device again, and is sent its shard again.
@ray.remote(num_cpus=1, max_restarts=3, max_task_retries=3)
class Worker:
    def __init__(self, locator, weights):
        # Read from the object store of this host: no copy but that to the device.
        self.layer = shards.Layer(locator, ray.get(weights[0]))

    def ready(self):
        return os.getpid()

    def forward(self, rows, dies=False):
        """The result for a shard, what it cost, and who did it."""
        if dies and not ray.get_runtime_context().was_current_actor_reconstructed:
            os.kill(os.getpid(), signal.SIGKILL)
        return *self.layer(rows), os.getpid()


def run(workers, x, weights, shards_each, kill=False):
    """Runs all rows; returns the result, its cost, who did it, and the seconds of all of it."""
    start = time.perf_counter()
    parts = [ray.put(part) for part in np.array_split(x, shards_each * len(workers))]
    pending = [workers[i % len(workers)].forward.remote(part, kill and i == len(workers))
               for i, part in enumerate(parts)]
    results, costs, who = zip(*ray.get(pending))
    result = np.concatenate(results)
    return result, sum(costs, shards.Cost()), set(who), time.perf_counter() - start


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--address", help="of a cluster, or auto; else one is started here")
    options.add_argument("--device", default=shards.SIMULATED, help="what each worker opens")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--rows", type=int, default=512)
    options.add_argument("--kill", action="store_true", help="one worker dies over its second shard")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()

    here = {} if options.address else dict(
        num_cpus=options.workers, include_dashboard=False, object_store_memory=256 << 20,
        _node_ip_address="127.0.0.1")
    ray.init(address=options.address, log_to_driver=False, **here)
    x, weights, wanted = shards.batch(options.rows)
    shared = ray.put(weights)
    workers = [Worker.remote(options.device, [shared]) for _ in range(options.workers)]
    first = ray.get([worker.ready.remote() for worker in workers])

    alone = run(workers[:1], x, weights, 4)[-1]
    result, cost, who, together = run(workers, x, weights, 4, options.kill)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    between = max(together - (cost.copies + cost.kernel) / options.workers, 0)
    if options.json:
        print(json.dumps({"workers": options.workers, "started_again": len(who - set(first)),
                          **shards.figures(alone, together, cost, between)}))
    else:
        shards.report("Ray", alone, together, options.workers, cost, between)
        print(f"  {len(who - set(first))} workers were started again")
    ray.shutdown()


if __name__ == "__main__":
    main()
