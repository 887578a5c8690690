"""Launches, arguments, failures, waits."""

import ctypes
import signal
import threading
import time

import numpy as np
import pytest

import et

from conftest import KERNELS, SIM, run_python


@pytest.fixture
def xy(device):
    return device.array(np.arange(1000, dtype="f4")), device.array(np.ones(1000, "f4"))


def expected(factor=3.0):
    return np.arange(1000, dtype="f4") * np.float32(factor) + np.float32(1)


@pytest.mark.parametrize("launch", [
    lambda kernel, stream, args: kernel.launch(*args),
    lambda kernel, stream, args: kernel[...](*args),
    lambda kernel, stream, args: kernel[1](*args),
    lambda kernel, stream, args: kernel[[0]](*args),
    lambda kernel, stream, args: kernel[1, stream](*args),
    lambda kernel, stream, args: kernel.launch(*args, shires=[0], stream=stream, stack=8192),
    lambda kernel, stream, args: stream.launch(kernel, *args, flush_l3=True),
])
def test_ways_to_launch(device, saxpy, xy, launch):
    x, y = xy
    launch(saxpy, device.stream(), (x, y, 3.0, 1000)).wait(10)
    np.testing.assert_array_equal(y.to_numpy(), expected())


def test_what_a_device_has_done_is_counted(device, saxpy, xy):
    before = device.activity()
    saxpy.launch(*xy, 3.0, 1000).wait(10)
    after = device.activity()
    assert (after.launches, after.pending) == (before.launches + 1, 0)
    assert after.memory_used_bytes >= 2 * 4000 and after.buffers >= 2
    assert len(after.busy_cycles) == 32 and after.busy_cycles[0] > before.busy_cycles[0]
    assert after.busy_cycles[1:] == [0] * 31 and after.available_shires == 1
    xy[1].to_numpy()
    assert device.activity().to_host_bytes >= after.to_host_bytes + 4000
    assert device.activity() == device.activity() and after != before
    assert f"launches: {after.launches}" in repr(after)


@pytest.mark.parametrize("factor, count", [
    (et.f32(3), et.u64(1000)), (np.float32(3), np.uint64(1000)),
    (ctypes.c_float(3), ctypes.c_uint64(1000)),
])
def test_numbers_that_say_their_type(device, saxpy, xy, factor, count):
    x, y = xy
    named = device.load((KERNELS / "saxpy.elf").read_bytes(), name="plain")
    assert named.name == "plain" and saxpy.name == "saxpy"
    named.launch(x, y, factor, count).wait(10)
    np.testing.assert_array_equal(y.to_numpy(), expected())


def test_files_state_what_kernels_take(device, saxpy, xy):
    x, y = xy
    texts = ["x: in float32[]", "y: inout float32[]", "a: float32", "n: uint64"]
    assert [str(parameter) for parameter in saxpy.signature] == texts
    assert [parameter.offset for parameter in saxpy.signature] == [0, 8, 16, 24]
    a = saxpy.signature[2]
    assert (a.name, a.access, a.dtype) == ("a", "scalar", "float32")
    assert device.load(KERNELS / "memset.elf").signature is None
    # Numbers become what the file states, also such of NumPy of another type.
    saxpy[1](x, y, 2, np.int32(1000)).wait(10)
    np.testing.assert_array_equal(y.to_numpy(), expected(2))
    saxpy.launch(x, y, np.float64(1), x.size).wait(10)
    np.testing.assert_array_equal(y.to_numpy(), expected(3))


def test_graphs_take_from_files_what_tasks_write(device, saxpy):
    buffers = [device.array(np.full(64, value, "f4")) for value in (1, 2, 3)]
    a, b, c = buffers
    graph = et.Graph()
    graph.add(saxpy, a, b, 2.0, 64)
    graph.add(saxpy, a, c, 1.0, 64)
    graph.add(saxpy, b, c, 1.0, 64)
    # The first two only read what they share.
    assert graph.edges == 2
    graph.run(timeout=30)
    assert c.to_numpy()[0] == 3 + 1 + 4


def test_signatures_agree_with_files(device):
    path = KERNELS / "saxpy.elf"
    given = device.load(path, signature=[et.In, et.InOut[et.f32], et.f32, et.u64])
    # Left open is left open; names are those of the file.
    assert str(given.signature[0]) == "x: in any[]"
    for signature, parameter, text in [
        ([et.In[et.f32], et.InOut[et.f32], et.f32], None, "states 4 arguments"),
        ([et.In[et.f32], et.In[et.f32], et.f32, et.u64], "y", "states inout float32"),
        ([et.In[et.u32], et.InOut[et.f32], et.f32, et.u64], "x", "in float32.*not in uint32"),
        ([et.In[et.f32], et.InOut[et.f32], et.f32, et.i64], "n", "states uint64, not int64"),
    ]:
        with pytest.raises(et.ArgumentsMismatchError, match=text) as caught:
            device.load(path, signature=signature)
        assert caught.value.parameter == parameter and caught.value.kernel == "saxpy"


def test_arguments_that_are_wrong(device, saxpy, xy):
    x, y = xy
    plain = device.load(KERNELS / "memset.elf")
    with pytest.raises(TypeError, match="argument 1: C has many types"):
        plain.launch(x, 3.0)
    with pytest.raises(TypeError, match="takes 4 arguments .*a: float32.*, not 3") as caught:
        saxpy.launch(x, y, 3.0)
    error = caught.value
    assert isinstance(error, et.ArgumentsMismatchError) and isinstance(error, ValueError)
    assert (error.kernel, error.parameter) == ("saxpy", None)
    assert error.signature == "x: in float32[], y: inout float32[], a: float32, n: uint64"
    words = device.zeros(3, "i4")
    before = device.default_stream.record().id
    for wrong, parameter, text in [
        ((np.zeros(3), y, 3.0, 3), "x", r"argument 0 \(x\): an et.Buffer is wanted, not ndarray"),
        ((x, words, 3.0, 3), "y", "a buffer of float32, not of int32"),
        ((x, y.toreadonly(), 3.0, 3), "y", r"argument 1 \(y\): the kernel writes it"),
        ((x, y, x, 3), "a", r"argument 2 \(a\): a buffer for a float32"),
        ((x, y, "3", 3), "a", "a number of type float32 is wanted, not str"),
        ((x, y, et.f64(3), 3), "a", "a float32 is wanted, not a float64"),
        ((x, y, 3.0, 1.5), "n", r"argument 3 \(n\): a number of type uint64 is wanted, not float"),
        ((x, y, 3.0, np.float32(3)), "n", "wanted, not float32"),
        ((x, y, 3.0, ctypes.c_int32(3)), "n", "a uint64 is wanted, not a int32"),
    ]:
        with pytest.raises(et.ArgumentsMismatchError, match=text) as caught:
            saxpy.launch(*wrong)
        assert caught.value.parameter == parameter
    with pytest.raises(OverflowError, match=r"argument 3 \(n\)"):
        saxpy.launch(x, y, 3.0, -1)
    with pytest.raises(OverflowError, match=r"argument 2 \(a\)"):
        saxpy.launch(x, y, 1e300, 3)
    # Nothing of it was sent.
    assert device.default_stream.record().id == before + 1
    # What a kernel only reads may be read-only.
    saxpy.launch(x.toreadonly(), y, 3.0, 1000).wait(10)
    np.testing.assert_array_equal(y.to_numpy(), expected())
    for grid in (0, 2, [0, 1], [99], "x", 1.5):
        with pytest.raises((et.ArgumentError, TypeError)):
            saxpy[grid](x, y, 3.0, 1000)


def test_files_that_are_no_kernels(device, tmp_path):
    with pytest.raises(et.LoadError, match="bad"):
        device.load(b"no ELF file", name="bad")
    with pytest.raises(FileNotFoundError):
        device.load(tmp_path / "nothing.elf")
    with pytest.raises(et.LoadError, match="nothing"):
        device.load(KERNELS / "saxpy.elf", entry="nothing")
    with pytest.raises(TypeError):
        device.load(KERNELS / "saxpy.elf", signature=[int])


def test_kernels_in_memory_of_the_user(device, xy):
    code = device.alloc(20480)
    # The file demands a multiple.
    code = code[-code.address % 4096:][:16384]
    place = code[4096:]
    kernel = device.load(KERNELS / "saxpy.elf", into=place)
    kernel.launch(*xy, 3.0, 1000).wait(10)
    np.testing.assert_array_equal(xy[1].to_numpy(), expected())
    assert code[:4096].to_numpy().size == 4096 and kernel.nbytes <= 12288
    for wrong in (code[4:], code[:8], code.toreadonly()):
        with pytest.raises(et.Error):
            device.load(KERNELS / "saxpy.elf", into=wrong)


def test_a_trap_says_where(device):
    kernel = device.load(KERNELS / "trap_load.elf")
    with pytest.raises(et.KernelError) as caught:
        kernel.launch(et.u64(0)).wait(10)
    error = caught.value
    assert error.kernel == "trap_load" and error.cause == 5 and error.hart is not None
    assert error.file.endswith("trap_load.c") and error.line > 0
    assert error.pc and error.function and str(error.hart) in str(error)
    first = error.harts[0]
    assert len(first.registers) == 31 and any(line.startswith(">") for line in first.code)
    assert first.function in error._repr_html_() and "<script" not in error._repr_html_()
    assert len(error.report) > len(str(error))


def test_a_race_names_the_other_hart():
    with et.open("sim:check=races,shires=2,dram=1GiB") as device:
        cells, sums = device.zeros(24 << 16, "u1"), device.zeros(128 * 64, "u1")
        kernel = device.load(KERNELS / "races.elf")
        # Harts read what others have written, and not written back.
        error = kernel.launch(et.u64(2), cells, sums).exception(60)
        found = error.harts[0].finding
        assert (found.kind, found.access, found.nbytes) == ("data not written back", "load", 8)
        assert found.buffer == (cells.address, cells.nbytes, False)
        assert found.address == cells.address + 64 * found.other.hart
        assert found.other.access == "store" and found.other.pc and found.other.function
        assert found.other.file.endswith("races.c") and found.other.line == 31
        assert error.line == 36
        # Without it nothing is found.
        assert kernel.launch(et.u64(0), cells, sums).exception(60) is None


def test_an_access_outside_of_a_buffer_says_which():
    with et.open("sim:check=memory,shires=1,dram=1GiB") as device:
        array = device.empty(64, "u1")
        launch = device.load(KERNELS / "memset.elf").launch(array, et.u64(1), et.u64(65))
        found = launch.exception(60).harts[0].finding
        assert found == et.Finding("out of bounds", "store", array.address + 64, 1,
                                   et.NearBuffer(array.address, 64, False), None)
        trap = device.load(KERNELS / "trap_illegal.elf").launch().exception(60)
        assert trap.harts[0].finding is None


def test_failed_launches_leave_core_files(device, tmp_path):
    trap, path = device.load(KERNELS / "trap_load.elf"), tmp_path / "failed.core"
    kept = device.array(b"kept by the launch as an argument")
    error = trap.launch(et.u64(0), core_dump=path, stack=8192).exception(60)
    assert error.core_file.nbytes == path.stat().st_size and error.core_file.harts == 1
    assert error.core_file.incomplete == []
    assert path.read_bytes()[:5] == b"\x7fELF\x02" and b"kept by the launch" not in path.read_bytes()
    # Arrays that are arguments are in it.
    saxpy = device.load(KERNELS / "negative_return.elf")
    error = saxpy.launch(et.u64(0), kept, core_dump=str(path)).exception(60)
    assert error.core_file is not None and b"kept by the launch" in path.read_bytes()
    path.unlink()
    device.load(KERNELS / "task_nop.elf").launch(core_dump=path).wait(60)
    assert not path.exists()
    assert trap.launch(et.u64(0)).exception(60).core_file is None
    stream = device.stream()
    staged = stream.launch_staged(trap, et.u64(0), into=device.host_empty(8), core_dump=path)
    assert staged.exception(60).core_file is not None and path.exists()
    event = trap.launch(et.u64(0), stream=stream, core_dump=tmp_path / "none" / "x.core")
    assert event.exception(60).core_file is None
    assert any("x.core" in text and "No such file" in text for text in stream.take_errors())


def test_a_failure_is_an_exception_for_everyone(device):
    event = device.load(KERNELS / "trap_load.elf").launch(et.u64(0))
    assert isinstance(event.exception(10), et.KernelError)
    with pytest.raises(et.KernelError):
        event.wait()
    event = device.load(KERNELS / "negative_return.elf").launch(et.u64(0))
    error = event.exception(10)
    assert error.cause is None and error.harts[0].value < 0 and error.pc is None


def test_errors_of_dropped_events_are_kept(device):
    stream = device.stream()
    device.load(KERNELS / "trap_load.elf").launch(et.u64(0), stream=stream)
    stream.synchronize(10)
    [text] = stream.take_errors()
    assert "trap_load" in text and stream.take_errors() == []


def test_waits_have_an_end(device, hang):
    event = hang.launch()
    start = time.monotonic()
    for wait in (event.wait, device.default_stream.synchronize, event.exception):
        with pytest.raises(et.TimeoutError):
            wait(0.2)
    with pytest.raises(TimeoutError):
        event.wait(0)
    assert time.monotonic() - start < 5 and not event.done
    assert not device.default_stream.idle
    for wrong in (-1, float("nan")):
        with pytest.raises(et.ArgumentError):
            event.wait(wrong)
    buffer = device.alloc(64)
    with pytest.raises(et.TimeoutError) as caught:
        buffer.to_bytes(timeout=0.1)
    # What is before the copy did not end.
    assert caught.value.operation == "barrier"
    text = f"barrier on {device.locator} did not finish within 100ms"
    assert caught.value.device == device.locator and str(caught.value) == text
    with pytest.raises(et.TimeoutError, match="launch on sim:.* did not finish within 200ms"):
        event.wait(0.2)
    with pytest.raises(et.TimeoutError, match="synchronize on sim:.* within 200ms"):
        device.default_stream.synchronize(0.2)
    event.abort()
    assert isinstance(event.exception(), et.KernelError)


def test_a_wait_that_is_late_is_no_failure_of_the_operation():
    with et.open("sim:compute=null,dram=1GiB") as device:
        buffer, stream = device.alloc(64), device.stream()
        for n in range(20000):
            event = buffer.fill(n % 256, stream=stream)
            try:
                # About as long as it takes, so that the end often comes just after the time.
                assert event.exception(n % 50 * 1e-6) is None
            except et.TimeoutError:
                pass


def test_other_threads_run_during_waits(device, hang):
    event, ticks = hang.launch(), []
    over = threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(time.monotonic())
            over.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    with pytest.raises(et.TimeoutError):
        event.wait(2)
    over.set()
    thread.join()
    # A wait that held the interpreter would leave a gap of its whole length.
    assert len(ticks) > 20 and max(np.diff(ticks)) < 1.5
    event.abort()


@pytest.mark.parametrize("wait", [
    "event.wait()", "stream.synchronize()", "buffer.to_bytes(stream=stream)",
    "buffer.fill(1, stream=stream); stream.record().wait()", "bytes(event.exception() or b'')",
    "device.alloc(32 << 20).copy_from(bytes(32 << 20), stream=stream)",
])
def test_ctrl_c_ends_waits(wait):
    done = run_python(f"""
        import os, signal, threading, time
        device = et.open(SIM, shutdown_timeout=0.1)
        buffer, stream = device.alloc(64), device.stream()
        event = device.load(KERNELS + "/hang.elf").launch(stream=stream)
        def strike():
            time.sleep(0.5)
            global struck
            struck = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=strike).start()
        try:
            {wait}
        except KeyboardInterrupt:
            # Only a wait that goes on takes as long.
            assert time.monotonic() - struck < 10, time.monotonic() - struck
            print("ended")
        """)
    assert done.stdout == "ended\n", done.stderr


def test_streams_are_ordered_by_events(device, saxpy, xy):
    x, y = xy
    first, second = device.stream(), device.stream()
    event = saxpy.launch(x, y, 3.0, 1000, stream=first)
    second.wait_event(event)
    result = np.empty(1000, "f4")
    y.copy_to(result, stream=second)
    np.testing.assert_array_equal(result, expected())
    assert first.id != second.id and first.record().exception() is None
    assert event.times[0] <= event.times[1] <= event.times[2]


def test_callbacks_are_called_once_and_may_fail(device, saxpy, xy, monkeypatch):
    x, y = xy
    failed, called = [], threading.Semaphore(0)
    monkeypatch.setattr("sys.unraisablehook", lambda what: failed.append(what.exc_value))
    event = saxpy.launch(x, y, 3.0, 1000)

    def fail(_):
        raise ValueError("mine")

    seen = []
    event.add_done_callback(fail)
    event.add_done_callback(lambda ended: (seen.append(ended), called.release()))
    assert called.acquire(timeout=10)
    event.add_done_callback(lambda ended: (seen.append(ended), called.release()))
    assert called.acquire(timeout=10)
    assert seen == [event, event] and [str(error) for error in failed] == ["mine"]
    # A callback may use the device, which waits for no callback.
    event.add_done_callback(lambda _: (y.to_numpy(), called.release()))
    assert called.acquire(timeout=10)


def test_recordings(device, saxpy, xy, tmp_path):
    x, y = xy
    profile, trap = device.profile(), device.load(KERNELS / "trap_load.elf")
    with pytest.raises(et.Error):
        profile.records
    device.default_stream.synchronize()
    with profile:
        saxpy.launch(x, y, 3.0, 1000).wait(10)
        trap.launch(et.u64(0)).exception(10)
    names = [record.name for record in profile.records]
    assert "launch" in names[0] and len(profile) == len(names) and profile.dropped == 0
    assert profile.records[-1].failed and not profile.records[0].failed
    profile.save(tmp_path / "trace.json")
    import json
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert profile.records[0].kernel == "saxpy"
    operations = [event["name"] for event in events if event["ph"] == "b" and event["pid"] == 1]
    assert operations == ["saxpy", "trap_load"]
    shown = profile._repr_html_()
    assert shown.startswith("<svg") and shown.count("<rect") == len(names)


def test_many_threads_use_one_device(device, saxpy):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        stream = device.stream()
        for _ in range(10):
            x = rng.random(256, dtype="f4")
            on_device, y = device.array(x, stream=stream), device.array(x, stream=stream)
            saxpy.launch(on_device, y, 1.0, 256, stream=stream)
            if not (y.to_numpy(stream=stream) == x + x).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_device_is_closed_under_other_threads():
    device = et.open(SIM, shutdown_timeout=0.1)
    event = device.load(KERNELS / "hang.elf").launch()
    threading.Timer(0.2, device.close).start()
    with pytest.raises(et.Error):
        event.wait(30)


def test_signals_other_than_ctrl_c_run_their_handlers(device, hang):
    event, seen = hang.launch(), []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(et.TimeoutError):
            event.wait(2)
        [at] = seen
        # Not only when the wait was over.
        assert at - start < 1.5
    finally:
        signal.signal(signal.SIGALRM, before)
        event.abort()
