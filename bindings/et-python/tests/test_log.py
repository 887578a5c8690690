"""What the stack says, in `logging`."""

import logging
import subprocess
import sys
import time

import pytest

import et
from conftest import KERNELS, SIM


def fail():
    """A kernel traps."""
    with et.open(SIM, shutdown_timeout=1.0) as device:
        with pytest.raises(et.KernelError):
            device.load(KERNELS / "trap_load.elf").launch(et.u64(0)).wait(60)


def until(is_done):
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline, "it never came"


def test_messages_reach_the_loggers_of_their_parts(caplog):
    et.enable_logging(logging.DEBUG)
    try:
        fail()
        said = lambda: [it for it in caplog.records if "launch failed" in it.getMessage()]
        until(said)
        (record, *_) = said()
        assert "device=" in record.getMessage() and "kernel=" in record.getMessage()
        assert record.levelno == logging.DEBUG
        assert record.name.startswith("et.runtime.")
    finally:
        et.enable_logging("off")
    before = len(caplog.records)
    fail()
    # In the thread that hands over, behind all that was said.
    with et.open(SIM) as device:
        done = []
        event = device.stream().record()
        event.add_done_callback(lambda _: done.append(True))
        until(lambda: done)
    assert len(caplog.records) == before


@pytest.mark.parametrize("what, highest", [("error", 40), ("warn", 30), ("info", 20), ("debug", 10)])
def test_kernels_and_firmware_keep_to_the_same_threshold(caplog, what, highest):
    # As the device numbers them: critical, error, warning, info, debug.
    levels = [level for level in (40, 40, 30, 20, 10) if level >= highest]
    et.enable_logging(what)
    try:
        with et.open(SIM, shutdown_timeout=1.0) as device:
            firmware = device.firmware_trace()
            traced = device.kernel_trace()
            kernel = device.load(KERNELS / "trace.elf")
            written = 0
            for level in range(5):
                kernel.launch(et.u64(0), et.u64(level), shires=1, trace=traced).wait(60)
                written += traced.log()
            assert written == 64 * len(levels), "what is not wanted is not written"
            with pytest.raises(et.KernelError):
                device.load(KERNELS / "trap_load.elf").launch(et.u64(5)).wait(60)
            assert firmware.log() != 0
            of = lambda name: [it for it in caplog.records if it.name == name]
            until(lambda: any("U-mode exception" in it.getMessage() for it in of("et.firmware")))
        said = [it for it in of("et.kernel") if "hart=63 " in it.getMessage()]
        assert [it.levelno for it in said] == levels
        assert all(it.getMessage().startswith("hart 0063 of shire 00") for it in said)
        (trapped,) = [it for it in of("et.firmware") if "U-mode exception" in it.getMessage()]
        assert trapped.levelno == highest and "hart=5 " in trapped.getMessage()
    finally:
        et.enable_logging("off")
    with et.open(SIM) as device, pytest.raises(et.ArgumentError, match="loud"):
        device.kernel_trace(level="loud")


def test_what_is_no_level_is_refused():
    with pytest.raises(et.ArgumentError, match="et_runtime=loud"):
        et.enable_logging("et_runtime=loud")


def test_the_environment_asks_for_lines_on_standard_error():
    program = f"import et\nwith et.open({SIM!r}): pass\n"
    for level, expected in (("et_runtime=info", True), ("off", False)):
        ran = subprocess.run([sys.executable, "-c", program], env={"ET_LOG": level},
                             capture_output=True, text=True, timeout=120, check=True)
        assert ("info  et_runtime::" in ran.stderr) == expected, ran.stderr
