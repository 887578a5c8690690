"""The ends of processes, and copies of them."""

import os
import subprocess
import sys

import pytest

from conftest import SIM, run_python

WORK = """
device = et.open(SIM, shutdown_timeout=0.2)
buffer, stream = device.array(bytes(64)), device.stream()
host, event = device.host_empty(64), device.load(KERNELS + "/hang.elf").launch(stream=stream)
event.add_done_callback(lambda _: None)
"""


@pytest.mark.parametrize("work", [
    "sys.exit(3)",
    "del device, stream, buffer; sys.exit(3)",
    "import builtins; builtins.kept = [device, buffer, stream, event, host]; sys.exit(3)",
    "import threading; threading.Thread(target=event.exception, daemon=True).start(); sys.exit(3)",
    "g = et.Graph(); g.host(lambda: __import__('time').sleep(0.5)); "
    "run = g.launch(device.executor()); sys.exit(3)",
    "import atexit; atexit.register(lambda: buffer.to_bytes()); sys.exit(3)",
    "import weakref; view = memoryview(host); copy = buffer.view('u1'); del host; sys.exit(3)",
    "mapping = device.stream().map(buffer); mapping[:] = bytes(64); sys.exit(3)",
    "event.add_state_callback('failed', print); import faulthandler; faulthandler.enable(); 1 / 0",
])
def test_the_interpreter_ends_with_work_in_flight(work):
    done = run_python(WORK + work, check=False)
    expected = 1 if "1 / 0" in work else 3
    assert done.returncode == expected, done.stderr
    assert "panicked" not in done.stderr and "Fatal" not in done.stderr


def test_devices_cannot_be_used_after_the_end():
    done = run_python(WORK + """
import atexit
def late():
    try:
        device.alloc(8)
    except et.ClosedError:
        print("closed")
et._et._end()
late()
try:
    et.open(SIM)
except et.ClosedError:
    print("closed")
""")
    assert done.stdout == "closed\nclosed\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("use", [
    "device.alloc(8)", "buffer.to_bytes()", "event.wait(1)", "event.done", "stream.synchronize(1)",
    "memoryview(host)", "device.properties", "device.close()", "graph.run()", "executor.close()",
    "kernel.launch()", "kernel.name", "buffer.address", "host.busy", "event.add_done_callback(print)",
    "run.wait(1)", "with_profile()", "management.power_mw()", "management.event()",
    "mapping[:]", "mapping.unmap()", "event.state", "device.stream().map(buffer)",
])
def test_a_child_of_a_fork_is_told(use):
    done = run_python(WORK + f"""
import os, warnings
warnings.simplefilter("ignore")
kernel, management = device.load(KERNELS + "/saxpy.elf"), device.management()
graph, executor, mapping = et.Graph(), device.executor(), device.stream().map(buffer)
graph.host(lambda: None)
run = graph.launch(executor)
def with_profile():
    with device.profile():
        pass
child = os.fork()
if child == 0:
    try:
        {use}
    except et.ForkError:
        # What belongs to the parent goes, and the child ends as usual.
        del device, buffer, stream, event, host, kernel, graph, executor, run, management
        del mapping
        sys.exit(5)
    os._exit(6)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), buffer.to_bytes(stream=device.stream()) == bytes(64))
event.abort()
""")
    assert done.stdout == "5 True\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_can_open_a_device_of_its_own():
    done = run_python(WORK + """
import os, threading, warnings
warnings.simplefilter("ignore")
if os.fork() == 0:
    with et.open(SIM) as own:
        called = threading.Event()
        ended = own.stream().record()
        ended.add_done_callback(lambda _: called.set())
        assert called.wait(10) and own.array(b"x" * 8).to_bytes() == b"x" * 8
    sys.exit(5)
_, status = os.wait()
print(os.waitstatus_to_exitcode(status))
""")
    assert done.stdout == "5\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_device_closes_while_a_child_of_a_fork_runs():
    done = run_python(WORK + """
import os, warnings
warnings.simplefilter("ignore")
end, alive = os.pipe()
child = os.fork()
if child == 0:
    os.close(alive)
    os.read(end, 1)
    os._exit(5)
event.abort()
device.close()
print(os.waitpid(child, os.WNOHANG))
os.close(alive)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.stdout == "(0, 0)\n5\n", done.stderr


def test_free_threaded_builds_are_refused():
    done = run_python("", check=False)
    assert done.returncode == 0
    code = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; import et"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError" in done.stderr and "free-threaded" in done.stderr


def test_devices_are_closed_when_the_interpreter_ends():
    """Before it does: what was registered earlier is called later, and sees it."""
    code = ("import atexit\natexit.register(lambda: print(device.closed))\n"
            f"import et\ndevice = et.open({SIM!r})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_threads_may_use_free_and_close_at_the_same_time():
    """What one thread frees, closes or resets while others use it is an error for those."""
    done = run_python(WORK + """
import random, threading
event.abort()
kernel, graph = device.load(KERNELS + "/saxpy.elf"), et.Graph()
graph.host(lambda: None)
mapped = device.stream().map(buffer)
shared, wrong = [device.zeros(64) for _ in range(8)], []
uses = [
    lambda one, two: one.copy_from(bytes(256)).wait(5),
    lambda one, two: one.to_bytes(timeout=5),
    lambda one, two: kernel.launch(one, two, et.f32(2), et.u64(64)).wait(5),
    lambda one, two: one[8:].fill(1),
    lambda one, two: memoryview(host).tobytes(),
    lambda one, two: device.management().power_mw(),
    lambda one, two: device.stream().record().add_done_callback(lambda ended: ended.done),
    lambda one, two: graph.run(timeout=5),
    lambda one, two: one.free(),
    lambda one, two: device.stream().map(one, timeout=5).__setitem__(slice(None), two.to_bytes()),
    lambda one, two: (mapped.__setitem__(slice(4), mapped[4:8]), mapped.flush(5)),
    lambda one, two: shared.__setitem__(shared.index(one), device.zeros(64)),
]
def work(seed):
    choose = random.Random(seed)
    for _ in range(60):
        try:
            choose.choice(uses)(*choose.sample(shared, 2))
        except (et.Error, ValueError):
            pass
        except BaseException as error:
            wrong.append(error)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
threads[0].join()
device.reset_compute()
threads[1].join()
device.close()
for thread in threads:
    thread.join()
print(wrong, device.closed)
""", timeout=120)
    assert done.stdout == "[] True\n", done.stdout + done.stderr

HELD = """
import os, signal, threading
device = et.open(SIM, shutdown_timeout=2)
executor, graph, begun, gate = device.executor(), et.Graph(), threading.Event(), threading.Event()
graph.host(lambda: (begun.set(), gate.wait()))
run = graph.launch(executor)
begun.wait()
def interrupted(end):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        end()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("end", [
    "executor.close()", "executor.__exit__(None, None, None)",
    "device.close()", "device.__exit__(None, None, None)",
])
def test_ctrl_c_ends_the_wait_for_a_close(end):
    """The close goes on meanwhile, and another one waits for its end."""
    done = run_python(HELD + f"""
interrupted(lambda: {end})
print(run.done)
gate.set()
{end}
print(run.done)
""")
    assert done.stdout == "interrupted\nFalse\nTrue\n", done.stderr


def test_what_a_close_left_ends_with_the_interpreter():
    done = run_python(HELD + """
interrupted(executor.close)
interrupted(device.close)
threading.Timer(0.2, gate.set).start()
del executor, device, run
sys.exit(3)
""", check=False)
    assert (done.returncode, done.stdout) == (3, "interrupted\ninterrupted\n"), done.stderr
    assert "panicked" not in done.stderr and "Fatal" not in done.stderr


def test_ctrl_c_ends_the_wait_for_a_kernel_at_a_close():
    done = run_python(HELD + """
gate.set()
run.wait()
event = device.load(KERNELS + "/hang.elf").launch()
interrupted(device.close)
print(device.closed, event.done)
device.close()
print(event.done)
""")
    assert done.stdout == "interrupted\nTrue False\nTrue\n", done.stderr


def test_ctrl_c_ends_the_wait_for_a_reset_of_the_cores():
    done = run_python("""
import os, signal, threading, time
device = et.open(SIM + ",fault=hang:3", shutdown_timeout=0.1)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    device.reset_compute(5)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 4)
""")
    assert done.stdout == "interrupted True\n", done.stderr


@pytest.mark.parametrize("end", ["executor.close()", "device.close()", "device.reset()"])
def test_a_host_function_does_not_wait_for_who_waits_for_it(end):
    """It may end what it belongs to; if another does so already, it leaves that to him."""
    done = run_python(HELD + f"""
def last():
    try:
        {end}
    except et.ClosedError:
        pass
    ended.set()
gate.set()
run.wait()
second, ended = et.Graph(), threading.Event()
second.host(last)
second.launch(executor)
print(ended.wait(30))
third, ended, begun, gate = et.Graph(), threading.Event(), threading.Event(), threading.Event()
third.host(lambda: (begun.set(), gate.wait(), last()))
with et.open(SIM) as device:
    executor = device.executor()
    third.launch(executor)
    begun.wait()
    threading.Timer(0.2, gate.set).start()
print(ended.wait(30))
""")
    assert done.stdout == "True\nTrue\n", done.stderr
