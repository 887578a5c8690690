"""Graphs: order by use of memory, host functions, failures."""

import gc
import json
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import et

from conftest import KERNELS, SIM


def test_graphs_and_executors_say_what_they_are(device, add):
    graph, a = et.Graph(), device.zeros(8)
    assert repr(graph) == "<et.Graph of 0 tasks>"
    graph.add(add, a, a, device.empty(8), 8)
    assert repr(graph) == f"<et.Graph of 1 task on {SIM}>"
    executor = device.executor("streams")
    assert repr(executor) == f"<et.Executor on {SIM}, place=streams>"
    graph.run(executor, timeout=20)
    assert repr(graph) == f"<et.Graph of 1 task on {SIM}, fixed>"
    executor.close()
    assert repr(executor) == f"<et.Executor on {SIM}, closed>"


@pytest.fixture
def add(device):
    return device.load(KERNELS / "add.elf",
                       signature=[et.In[et.f32], et.In[et.f32], et.Out[et.f32], et.u64])


def test_tasks_are_ordered_by_what_they_use(device, add):
    n = 64
    a, b = device.array(np.full(n, 1, "f4")), device.array(np.full(n, 2, "f4"))
    s, d = device.empty(n), device.empty(n)
    seen = []
    graph = et.Graph()
    graph.add(add, a, b, s, n, name="s = a + b")
    graph.add(add, s, s, d, n, name="d = s + s")
    graph.host(lambda: seen.append(d.to_numpy()[0]), reads=[d], name="look")
    graph.add(add, a, a, s, n)
    assert len(graph) == 4 and graph.edges == 3 and "s = a + b" in graph.to_dot()
    run = graph.run(timeout=20)
    assert seen == [6] and (d.to_numpy() == 6).all() and (s.to_numpy() == 2).all()
    assert run.done and run.progress == (4, 4) and run.elapsed > 0
    graph.run(timeout=20)
    assert seen == [6, 6]
    with pytest.raises(et.GraphError):
        graph.add(add, a, b, s, n)


@pytest.mark.parametrize("place", ["resident", "streams"])
def test_places(device, add, place):
    a, b, s = device.array(np.ones(64, "f4")), device.array(np.ones(64, "f4")), device.empty(64)
    with device.executor(place, cores=4, workers=1) as executor:
        graph = et.Graph()
        graph.add(add, a, b, s, 64)
        run = graph.launch(executor, trace=True, deadline=20)
        run.wait(20)
        assert run.place == place
        [(task, _, start, end)] = run.spans
        assert task == 0 and 0 <= start <= end
    assert (s.to_numpy() == 2).all()
    with pytest.raises(et.ClosedError):
        executor.launch(graph)
    with pytest.raises(et.ArgumentError):
        device.executor("nowhere")


def test_runs_are_profiles(device, add, tmp_path):
    a, s, d = device.array(np.ones(64, "f4")), device.empty(64), device.empty(64)
    graph, raised = et.Graph(), threading.Event()
    graph.add(add, a, a, s, 64, name="s <- a")
    graph.add(add, s, s, d, 64)
    started = threading.Event()
    graph.host(lambda: (started.set(), raised.wait(20), 1 / 0), reads=[d], name="look")
    with device.profile() as profile, device.executor("streams", workers=1) as executor:
        run = graph.launch(executor, trace=True)
        assert started.wait(20)
        assert "running" in run._repr_html_()
        with pytest.raises(et.Error, match="has not ended"):
            run.to_json()
        raised.set()
        with pytest.raises(et.TaskError):
            run.wait(20)
    run.save(tmp_path / "run.json", "overhead", profile=profile)
    document = json.loads((tmp_path / "run.json").read_text())
    named = {}
    for event in document["traceEvents"]:
        named.setdefault(event.get("cat", event["name"]), []).append(event)
    assert [event["name"] for event in named["task"]] == ["s <- a", "task 1", "look"]
    assert len(named["dependency"]) == 2 * 2 and named["device memory"]
    [failed] = document["otherData"]["incomplete"]
    assert failed["name"] == "look" and "ZeroDivisionError" in failed["error"]
    assert "device memory" not in run.to_json()
    shown = run._repr_html_()
    assert shown.count("<rect") == 3 and "s &lt;- a" in shown and "ZeroDivisionError" in shown
    with pytest.raises(et.ArgumentError, match="'all'"):
        run.to_json("all")
    with pytest.raises(et.Error, match="nothing is recorded"):
        run.to_json(profile=device.profile())
    with pytest.raises(OSError):
        run.save(tmp_path / "none" / "run.json")


def test_a_run_without_a_trace_says_what_became_of_it(device, add):
    a, s = device.array(np.ones(64, "f4")), device.empty(64)
    graph = et.Graph()
    graph.add(add, a, a, s, 64)
    run = graph.run(timeout=20)
    document = json.loads(run.to_json())
    assert document["otherData"]["tasks"] == 1 and not document["otherData"]["incomplete"]
    shown = run._repr_html_()
    assert "no trace" in shown and run.place in shown and "<rect" not in shown


@pytest.mark.parametrize("place", ["resident", "streams"])
def test_conditions_decide_what_runs(device, add, place):
    a, s = device.array(np.ones(64, "f4")), device.array(np.zeros(64, "f4"))
    flags = device.array(np.array([-1, 0], "i4"))
    with device.executor(place, cores=4, workers=1) as executor:
        graph = et.Graph()
        graph.add(add, a, a, s, 64, only_if=(flags[0:1], ">=", 0))
        graph.add(add, a, s, s, 64, only_if=(flags[0:1], "<", 0))
        graph.launch(executor).wait(20)
    assert (s.to_numpy() == 1).all(), "the first was skipped, the second ran"
    graph, ran = et.Graph(), []
    graph.host(lambda: ran.append(1), only_if=(flags[1:2], "!=", 0))
    graph.host(lambda: ran.append(2), only_if=(flags[1:2], "==", 0))
    graph.run(timeout=20)
    assert ran == [2]
    for wrong in [(flags, "==", 0), (a[0:1], "==", 0), (flags[0:1], "=", 0)]:
        with pytest.raises(et.ArgumentError):
            et.Graph().add(add, a, a, s, 64, only_if=wrong)


def test_a_task_may_have_parts(device, add):
    a, s = device.array(np.arange(640, dtype="f4")), device.array(np.zeros(640, "f4"))
    with device.executor("resident", cores=4, workers=1) as executor:
        graph = et.Graph()
        graph.add(add, a, a, s, 640, parts=7)
        graph.add(add, s, s, s, 640, parts=3)
        graph.launch(executor).wait(20)
    assert (s.to_numpy() == 4 * np.arange(640)).all()
    with pytest.raises(et.GraphError, match="no parts"):
        et.Graph().add(add, a, a, s, 640, parts=0)


def test_a_graph_has_arrays_of_its_own(device, add):
    a, d = device.array(np.ones(64, "f4")), device.empty(64)
    graph = et.Graph()
    steps = [a, *(graph.transient(device, 64) for _ in range(4)), d]
    with pytest.raises(et.GraphError):
        graph.add(add, steps[1], steps[1], d, 64)
    for before, after in zip(steps, steps[1:]):
        graph.add(add, before, before, after, 64)
    for _ in range(2):
        graph.run(timeout=20)
        assert (d.to_numpy() == 32).all()
    with pytest.raises(et.Error):
        steps[1].to_numpy()


@pytest.mark.parametrize("retain", [False, True])
def test_arrays_of_a_graph_are_kept_for_who_does_not_declare_them(device, add, retain):
    a = device.array(np.ones(64, "f4"))
    out, graph, seen = device.empty(64), et.Graph(), []
    first, second = graph.transient(device, 64), graph.transient(device, 64)
    wrote = graph.add(add, a, a, first, 64)
    looks = graph.host(lambda: seen.append(1))
    graph.edge(wrote, looks, retain=retain)
    # Beside the host function, in the place of the first array unless that one is kept for it.
    graph.add(add, a, a, second, 64, after=[wrote])
    graph.add(add, second, second, out, 64)
    graph.run(timeout=20)
    assert seen == [1] and (out.to_numpy() == 4).all()
    assert graph.transient_nbytes == (512 if retain else 256)
    with pytest.raises(TypeError):
        graph.edge(wrote, looks, True)
    lonely = et.Graph()
    one = lonely.add(add, a, a, out, 64)
    with pytest.raises(et.GraphError):
        lonely.edge(one, one, retain=retain)


@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_any_program_computes_what_numpy_does(device, add, program):
    values = [np.full(16, 1 << index, "f4") for index in range(4)]
    buffers = [device.array(value) for value in values]
    graph = et.Graph()
    for x, y, z in program:
        graph.add(add, buffers[x], buffers[y], buffers[z], 16)
        values[z] = values[x] + values[y]
    if program:
        graph.run(timeout=20)
    for buffer, value in zip(buffers, values):
        np.testing.assert_array_equal(buffer.to_numpy(), value)


def test_a_flow_depends_on_what_it_has_computed(device, add):
    x = device.array(np.full(16, 1, "f4"))
    beside, seen = device.array(np.full(16, 5, "f4")), []
    double = et.Graph()
    double.add(add, x, x, x, 16)
    look = et.Graph()
    look.host(lambda: seen.append(float(beside.to_numpy()[0])), reads=[beside])
    with device.executor() as executor, executor.flow() as flow:
        flow.launch(look)
        steps = 0
        while x.to_numpy()[0] < 100:
            flow.launch(double, trace=True)
            flow.settled(x).wait(20)
            steps += 1
        assert steps == 7 and (x.to_numpy() == 128).all()
    assert seen == [5]


def test_a_flow_fails_until_it_is_finished(device):
    x, seen = device.array(np.full(16, 1, "f4")), []

    def fail():
        raise ValueError("no luck")

    bad, good = et.Graph(), et.Graph()
    bad.host(fail, writes=[x], name="bad")
    good.host(lambda: seen.append(1), reads=[x])
    with device.executor() as executor:
        flow = executor.flow()
        first, behind = flow.launch(bad), flow.launch(good)
        with pytest.raises(et.TaskError, match="task 0 \"bad\" of an earlier graph of the flow"):
            behind.wait(20)
        with pytest.raises(et.TaskError) as caught:
            first.wait(20)
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(et.TaskError, match="earlier graph"):
            flow.settled(x).wait(20)
        with pytest.raises(et.TaskError, match="no luck"):
            flow.finish(20)
        flow.launch(good)
        flow.finish(20)
        assert seen == [1]
        free, gate = threading.Event(), et.Graph()
        gate.host(lambda: free.wait(30), writes=[x])
        flow.launch(gate)
        with pytest.raises(et.TimeoutError, match="100ms"):
            flow.finish(0.1)
        with pytest.raises(ZeroDivisionError), flow:
            1 / 0
        free.set()
        flow.finish(20)
        with pytest.raises(et.TaskError, match="no luck"), flow:
            flow.launch(bad)
    with pytest.raises(et.ClosedError):
        flow.launch(good)


def test_copies(device, add):
    source, target = et.HostData(np.arange(64, dtype="f4")), et.HostData(np.zeros(64, "f4"))
    a, s = device.empty(64), device.empty(64)
    graph = et.Graph()
    graph.copy_in(source, a)
    graph.add(add, a, a, s, 64)
    graph.copy_out(s, target)
    graph.run(timeout=20)
    np.testing.assert_array_equal(target.to_numpy(), 2 * np.arange(64, dtype="f4"))
    source.write(np.ones(64, "f4"))
    graph.run(timeout=20)
    assert (target.to_numpy() == 2).all() and target.nbytes == 256
    with pytest.raises(et.ArgumentError):
        source.write(np.ones(63, "f4"))
    with pytest.raises(et.GraphError):
        et.Graph().copy_in(source, device.empty(63))


def test_what_host_functions_raise_is_the_cause(device):
    graph, seen = et.Graph(), []
    buffer = device.zeros(4)

    def fail():
        raise KeyError("mine")

    task = graph.host(fail, writes=[buffer], name="fails")
    graph.host(lambda: seen.append(1), reads=[buffer])
    with pytest.raises(et.TaskError, match="fails") as caught:
        graph.run(timeout=10)
    assert caught.value.task == task and isinstance(caught.value.__cause__, KeyError)
    assert seen == []


def test_a_kernel_that_fails_is_the_cause(device):
    trap = device.load(KERNELS / "task_trap.elf")
    graph = et.Graph()
    graph.add(trap, et.u64(1), name="trap")
    with pytest.raises(et.TaskError) as caught:
        graph.run(timeout=20)
    assert isinstance(caught.value.__cause__, et.KernelError)
    assert caught.value.__cause__.cause is not None


def test_circles_and_strangers_are_refused(device):
    graph = et.Graph()
    first, second = graph.host(lambda: None), graph.host(lambda: None)
    graph.edge(first, second)
    graph.edge(second, first)
    with device.executor() as executor:
        with pytest.raises(et.GraphError):
            graph.launch(executor)
    graph = et.Graph()
    graph.host(lambda: None)
    for wrong in [(0, 0), (0, 7)]:
        with pytest.raises(et.GraphError):
            graph.edge(*wrong)
    with pytest.raises(et.GraphError, match="executor"):
        graph.launch()


def test_runs_are_cancelled_and_have_deadlines(device):
    free, order = threading.Event(), []
    graph = et.Graph()
    first = graph.host(lambda: free.wait(30))
    graph.host(lambda: order.append(1), after=[first])
    with device.executor(workers=1) as executor:
        run = graph.launch(executor)
        with pytest.raises(et.TimeoutError, match="not done on .* after 100ms: 0 of 2 tasks are; .*"):
            run.wait(0.1)
        run.cancel()
        free.set()
        with pytest.raises(et.CancelledError):
            run.wait(10)
        assert order == []
        free.clear()
        late = graph.launch(executor, deadline=0.2)
        threading.Timer(0.6, free.set).start()
        with pytest.raises(et.DeadlineError) as caught:
            late.wait(10)
        assert isinstance(caught.value, TimeoutError)


def test_an_executor_that_is_closed_waits_for_python(device):
    """Its threads need the interpreter, which whoever closes it must not keep."""
    started, ended = threading.Event(), []

    def work():
        started.set()
        time.sleep(0.3)
        ended.append(1)

    graph = et.Graph()
    graph.host(work)
    executor = device.executor()
    run = graph.launch(executor)
    assert started.wait(10)
    del executor
    run.wait(10)
    del run
    gc.collect()
    executor = device.executor()
    started.clear()
    run = graph.launch(executor)
    assert started.wait(10)
    executor.close()
    assert ended == [1, 1] and run.done


@pytest.mark.parametrize("what", ["executor.close()", "device.close()", "device.reset()"])
def test_a_host_function_may_end_what_runs_it(what):
    device = et.open(SIM, shutdown_timeout=1.0)
    executor = device.executor()
    graph = et.Graph()
    graph.host(lambda: eval(what, {"executor": executor, "device": device}))
    run = executor.launch(graph)
    run.wait(20)
    assert run.done and run.progress == (1, 1)
    device.close()


def test_a_host_function_may_drop_the_last_executor(device):
    kept = [device.executor()]
    graph = et.Graph()
    gate = threading.Event()

    def function():
        gate.wait()
        kept.clear()
        gc.collect()

    graph.host(function)
    run = kept[0].launch(graph)
    gate.set()
    run.wait(20)
    assert run.done and not kept
