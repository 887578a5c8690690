"""Devices and kernels that the tests share."""

import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

import et

KERNELS = pathlib.Path(__file__).parents[3] / "testing/kernels/elf"
SIM = "sim:shires=1,dram=128MiB"


def has_compiler():
    prefixes = ("riscv64-unknown-elf-", "riscv64-elf-", "riscv-none-elf-")
    return any(shutil.which(f"{prefix}gcc") for prefix in prefixes)


needs_compiler = pytest.mark.skipif(not has_compiler(),
                                    reason="no compiler for bare RISC-V is installed")


@pytest.fixture
def device():
    with et.open(SIM, shutdown_timeout=1.0) as device:
        yield device


@pytest.fixture
def saxpy(device):
    """y = a x + y; its file states x: in f32[], y: inout f32[], a: f32, n: u64"""
    return device.load(KERNELS / "saxpy.elf")


@pytest.fixture
def hang(device):
    """Never ends."""
    return device.load(KERNELS / "hang.elf")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of compiled kernels for this test alone."""
    monkeypatch.setenv("ET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run_python(code, *, check=True, timeout=60, env=None):
    """Runs a program in a process of its own."""
    # Who starts the tests in the background may have Ctrl-C ignored in all that they start.
    prelude = ("import et, signal, sys\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               f"SIM, KERNELS = {SIM!r}, {str(KERNELS)!r}\n")
    return subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(code)],
                          capture_output=True, text=True, check=check, timeout=timeout, env=env)
