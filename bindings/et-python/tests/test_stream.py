"""What streams do beside launches: priorities, copies between devices, staged launches; and the
kernels that the runtime brings along, and files with several."""

import contextlib
import threading

import numpy as np
import pytest

import et

from conftest import KERNELS, SIM


def test_commands_go_by_priority(device, hang):
    names = ["low", "normal", "high"] * 4
    running, ended, over = hang.launch(), [], threading.Semaphore(0)
    events = []
    for name in names:
        stream = device.stream(priority=name)
        stream.wait_event(running)
        events.append(stream.record())
        events[-1].add_done_callback(lambda event, name=name: (ended.append((event.times[1], name)),
                                                               over.release()))
    # Not waited for, so that one thread alone takes the answers.
    with contextlib.suppress(et.TimeoutError):
        running.abort(timeout=0)
    for _ in names:
        assert over.acquire(timeout=60)
    # Those that were ready at the same time, in the order of the answers.
    last = max(sent for sent, _ in ended)
    together = [name for sent, name in ended if sent == last]
    assert len(together) > 3 and together == sorted(together, key=["high", "normal", "low"].index)
    with pytest.raises(et.ArgumentError, match="priority"):
        device.stream(priority="urgent")


def test_copies_between_devices(device, hang):
    values = np.random.default_rng(1).integers(0, 255, 3 << 20, dtype="u1")
    with et.open(SIM) as other:
        source, target = device.array(values), other.zeros(values.shape, "u1")
        stream, peer = device.stream(), other.stream()
        event = stream.copy_to_peer(source, target, peer=peer)
        event.wait(60)
        np.testing.assert_array_equal(target.to_numpy(), values)
        # It has its place in both streams.
        running = hang.launch(stream=stream)
        late = stream.copy_to_peer(source[:8], target[8:16], peer=peer)
        after = peer.record()
        # There and back in each queue: long enough for what waits for nothing.
        for _ in range(4):
            other.stream().record().wait(60)
        assert not late.done and not after.done
        running.abort()
        after.wait(60)
        late.wait(60)
        np.testing.assert_array_equal(target[8:16].to_numpy(), values[:8])
        device.default_stream.copy_to_peer(source[:8], target[:8]).wait(60)
        with pytest.raises(et.ArgumentError):
            stream.copy_to_peer(source[:8], target[:16])
        with pytest.raises(et.ArgumentError):
            stream.copy_to_peer(target, source)
        with pytest.raises(et.ArgumentError, match="read-only"):
            stream.copy_to_peer(source, target.toreadonly())


def test_one_call_for_inputs_launch_and_outputs(device, saxpy):
    x, y = device.empty(1000), device.empty(1000)
    xs, ys = np.arange(1000, dtype="f4"), np.ones(1000, "f4")
    into = device.host_empty(2048)
    stream = device.stream()
    before = stream.record().id
    event = stream.launch_staged(saxpy, x, y, 3, 1000, inputs=[(xs, x), (ys, y)],
                                 outputs=[y, (x[:2], 8000)], into=into, shires=1)
    # Taken by the call.
    xs[:] = ys[:] = 0
    assert event.id == before + 1
    event.wait(60)
    result = np.asarray(into)
    np.testing.assert_array_equal(result[:1000], 3 * np.arange(1000) + 1)
    assert result[2000:2002].tolist() == [0, 1] and not result[1000:2000].any()
    # One after the other.
    stream.launch_staged(saxpy, x, y, 0, 0, outputs=[x[:4], y[:2]], into=into).wait(60)
    assert result[:6].tolist() == [0, 1, 2, 3, 1, 4]


def test_staged_launches_that_are_wrong(device, saxpy):
    x, y, into = device.zeros(16), device.zeros(16), device.host_empty(16)
    ones = np.ones(16, "f4")
    stage = device.default_stream.launch_staged
    with pytest.raises(et.ArgumentsMismatchError, match="argument 2"):
        stage(saxpy, x, y, "3", 16, inputs=[(ones, x)], outputs=[y], into=into)
    with pytest.raises(et.ArgumentError, match="shape"):
        stage(saxpy, x, y, 3, 16, inputs=[(ones[:8], x)], outputs=[y], into=into)
    with pytest.raises(et.ArgumentError, match="read-only"):
        stage(saxpy, x, y, 3, 16, inputs=[(ones, x.toreadonly())], outputs=[y], into=into)
    with pytest.raises(TypeError):
        stage(saxpy, x, y, 3, 16, outputs=[ones], into=into)
    with pytest.raises(TypeError, match="into"):
        stage(saxpy, x, y, 3, 16, outputs=[y])
    with et.open(SIM) as other, pytest.raises(et.ArgumentError, match="another device"):
        stage(saxpy, x, y, 3, 16, outputs=[y], into=other.host_empty(16))
    assert not x.to_numpy().any()
    trap = device.load(KERNELS / "trap_load.elf")
    with pytest.raises(et.KernelError):
        stage(trap, et.u64(0), inputs=[(ones, x)], outputs=[x], into=into).wait(60)
    assert x.to_numpy().all() and not into.busy


def test_the_cores_copy_and_fill(device):
    builtins = device.builtins()
    listed = {builtin.name: builtin for builtin in et.Builtins.list()}
    assert set(listed) >= {"copy", "fill"} and "uint64_t n" in listed["copy"].arguments
    source, target = device.array(np.arange(200, dtype="u1")), device.zeros(200, "u1")
    # From any byte to any byte, which no copy of the device does.
    builtins.copy(source[3:103], target[50:150]).wait(60)
    stream = device.stream()
    builtins.fill(target[151:160], b"\x01\x02", stream=stream)
    builtins.fill(target[161:165], 9, stream=stream)
    stream.synchronize(60)
    expected = np.zeros(200, "u1")
    expected[50:150] = np.arange(3, 103)
    expected[151:160] = [1, 2, 1, 2, 1, 2, 1, 2, 1]
    expected[161:165] = 9
    np.testing.assert_array_equal(target.to_numpy(), expected)
    builtins.kernel("copy").launch(target, np.uint64(8), source).wait(60)
    assert target[:8].to_bytes() == bytes(range(8))
    for wrong in [lambda: builtins.copy(source, target[:8]), lambda: builtins.copy(source, source),
                  lambda: builtins.fill(target.toreadonly(), 1)]:
        with pytest.raises(et.ArgumentError):
            wrong()
    with pytest.raises(et.UnsupportedError, match="1, 2, 4, 8 or 16"):
        builtins.fill(target, b"123")
    with pytest.raises(et.UnsupportedError):
        builtins.kernel("sort")
    with pytest.raises(OverflowError):
        builtins.fill(target, 256)


def test_copies_by_patterns(device):
    buffer = device.zeros(24, "u1")
    buffer[8:].fill(b"\x01\x02\x03\x04").wait(60)
    assert buffer.to_bytes() == bytes(8) + bytes([1, 2, 3, 4]) * 4
    with pytest.raises(et.UnsupportedError):
        buffer.fill(b"123")


def test_several_kernels_of_one_file(device):
    module = device.load_module(KERNELS / "entries.elf")
    out = device.zeros(1, "u8")
    used = device.memory_stats().used
    kernels = [module.kernel(), module.function("second", signature=[et.Out[et.u64]]),
               module.function("third")]
    assert [kernel.name for kernel in kernels] == ["entries", "entries:second", "entries:third"]
    # The file is there once.
    assert device.memory_stats().used == used and module.nbytes < used
    for number, kernel in enumerate(kernels, 1):
        kernel.launch(out).wait(60)
        assert out.to_numpy()[0] == number
    assert module.device == device and "entries" in repr(module)
    module.loaded.wait(60)
    with pytest.raises(et.ArgumentsMismatchError, match="buffer of uint64"):
        kernels[1].launch(device.zeros(1, "u4"))
    with pytest.raises(et.LoadError, match="fourth"):
        module.function("fourth")
    with pytest.raises(et.LoadError):
        device.load_module(b"no ELF file")
    stated = device.load_module((KERNELS / "saxpy.elf").read_bytes(), name="s")
    assert stated.name == "s" and stated.kernel().signature[3].name == "n"
    with pytest.raises(et.ArgumentsMismatchError):
        stated.kernel(signature=[et.u64])
