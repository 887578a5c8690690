"""The side of Python in `et-bench python`: prints its figures as JSON. Arguments: the file of a
kernel that takes three arrays of floats and a number, how many runs, and launches of each."""
import json
import statistics
import subprocess
import sys
import time

import et
import numpy as np

RUNS, LAUNCHES, LARGE = int(sys.argv[2]), int(sys.argv[3]), 64 << 20


def launches():
    """Microseconds of a launch with four arguments and its wait, in each run."""
    with et.open("sim:compute=null") as device:
        kernel, stream = device.load(sys.argv[1]), device.default_stream
        array, runs = device.empty(16), []
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                stream.launch(kernel, array, array, array, 16).wait()
            runs.append((time.perf_counter() - start) / LAUNCHES * 1e6)
        # The first is for the caches.
        return runs[1:]


def copies():
    """Bytes a second from a NumPy array to a device, in each run."""
    with et.open("sim:compute=null,dram=2GiB") as device:
        source, runs = np.full(LARGE, 3, "u1"), []
        target = device.array(source)
        for _ in range(RUNS):
            start = time.perf_counter()
            target.copy_from(source).wait()
            runs.append(LARGE / (time.perf_counter() - start))
        return runs


def imports():
    """Milliseconds of `import et` in a fresh interpreter, less what one takes that imports nothing."""
    def run(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - start) * 1e3
    run("import et")
    empty = statistics.median(run("") for _ in range(RUNS))
    return [run("import et") - empty for _ in range(RUNS)], empty


milliseconds, empty = imports()
print(json.dumps({"launch_us": launches(), "copy_bytes_per_s": copies(),
                  "import_ms": milliseconds, "empty_ms": empty}))
