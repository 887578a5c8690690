"""Host memory that the device reaches, and DLPack."""

import gc
import mmap
import weakref

import numpy as np
import pytest

import et

from conftest import KERNELS, SIM


def test_numpy_sees_the_memory_itself(device):
    host = device.host_empty((4, 8), "u4")
    view = np.asarray(host)
    assert view.shape == (4, 8) and view.dtype == "uint32" and not view.any()
    view[:] = np.arange(32).reshape(4, 8)
    buffer = device.empty((4, 8), "u4")
    buffer.copy_from(host).wait()
    np.testing.assert_array_equal(buffer.to_numpy(), view)
    buffer.fill(0xff).wait()
    buffer.copy_to_host(host).wait()
    assert (view == 0xffffffff).all()
    assert memoryview(host).strides == (32, 4) and memoryview(host).format == "I"


def test_views_outlive_the_buffer_and_the_device():
    device = et.open(SIM)
    host = device.host_empty(1024)
    view = np.asarray(host)
    view[:] = 7
    device.close()
    del device, host
    gc.collect()
    assert view.sum() == 7 * 1024


def test_a_view_outlives_a_copy_that_is_refused(device):
    host = device.host_empty(16)
    view = np.asarray(host)
    view[:] = 3
    buffer = device.empty(16)
    device.close()
    with pytest.raises(et.Error):
        buffer.copy_from(host)
    gc.collect()
    assert view.sum() == 48


def test_a_lent_buffer_is_busy(device, hang):
    host, buffer = device.host_empty(16), device.empty(16)
    stream = device.stream()
    running = hang.launch(stream=stream)
    copy = buffer.copy_from(host, stream=stream)
    assert host.busy
    with pytest.raises(et.BusyError):
        buffer.copy_to_host(host)
    stream.abort()
    assert running.done and isinstance(copy.exception(), et.AbortedError)
    assert not host.busy
    buffer.copy_from(host).wait()


def test_a_view_outlives_a_device_that_closes_with_the_buffer_lent():
    device = et.open(SIM, shutdown_timeout=0.1)
    host, buffer, stream = device.host_empty(16), device.empty(16), device.stream()
    device.load(KERNELS / "hang.elf").launch(stream=stream)
    view = np.asarray(host)
    view[:] = 5
    copy = buffer.copy_from(host, stream=stream)
    device.close()
    assert copy.done and not host.busy
    del host, copy
    gc.collect()
    assert view.sum() == 80


def test_a_buffer_is_released_before_its_views(device):
    host = device.host_empty(8)
    view = np.asarray(host)
    host.release()
    view[:] = 3
    assert view.sum() == 24 and np.asarray(host).sum() == 24
    with pytest.raises(et.LostError, match="released"):
        device.zeros(8).copy_from(host)


def test_exports_keep_the_buffer(device):
    host = device.host_empty(8)
    view = memoryview(host)
    address = id(host)
    del host
    gc.collect()
    assert id(view.obj) == address


def test_dlpack_to_numpy_shares_memory(device):
    host = device.host_empty((3, 5), "i2")
    assert host.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(host)
    assert shared.shape == (3, 5) and shared.dtype == "int16"
    np.asarray(host)[1, 2] = 42
    assert shared[1, 2] == 42
    del host
    gc.collect()
    assert shared[1, 2] == 42


def test_old_and_new_capsules(device):
    host = device.host_empty(4)
    assert "dltensor_versioned" in repr(host.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(host.__dlpack__())
    # Not taken by anyone: freed with the capsule.
    gc.collect()
    for refused in [{"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}]:
        with pytest.raises(BufferError):
            host.__dlpack__(**refused)


class Exporter:
    """As an array library from before version 1 of DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Versioned(Exporter):
    """As an array library of version 1, whose arrays have no buffers."""

    def __dlpack__(self, *, stream=None, max_version=None):
        return self.array.__dlpack__(max_version=max_version)


def test_dlpack_is_enough_wherever_arrays_go(device):
    values = np.arange(30, dtype="f8").reshape(5, 6)
    for kind in (Exporter, Versioned):
        source = kind(values)
        buffer = device.array(source)
        assert buffer.dtype == "float64" and buffer.shape == (5, 6)
        np.testing.assert_array_equal(buffer.to_numpy(), values)
        buffer.fill(0).wait()
        buffer.copy_from(source).wait()
        back = np.zeros((5, 6))
        buffer.copy_to(kind(back))
        np.testing.assert_array_equal(back, values)
        np.testing.assert_array_equal(et.HostData(source).to_numpy(), values)
        with pytest.raises(et.ArgumentError, match="do not fit"):
            buffer.copy_from(kind(values[:2]))
        with pytest.raises(et.ArgumentError, match="do not go with"):
            buffer.copy_from(kind(np.zeros((5, 6), "i8")))


def test_dlpack_memory_that_is_read_only_is_not_written(device):
    values = np.arange(4.0)
    values.flags.writeable = False
    buffer = device.array(Versioned(values))
    with pytest.raises(et.ArgumentError, match="read-only"):
        buffer.copy_to(Versioned(values))


def test_dlpack_memory_is_lent(device):
    """Until the device has given it back, the array is kept."""

    class Values(np.ndarray):
        pass

    pages = mmap.mmap(-1, device.import_granule)
    values = np.frombuffer(pages, "u1").view(Values)
    alive = weakref.ref(values)
    host = device.import_(Versioned(values))
    values[:] = 9
    del values
    gc.collect()
    assert alive() is not None
    buffer = device.empty(device.import_granule, "u1")
    buffer.copy_from(host).wait()
    assert (buffer.to_numpy() == 9).all()
    host.release()
    del host
    gc.collect()
    assert alive() is None


def test_dlpack_from_numpy(device):
    values = np.arange(30, dtype="f8").reshape(5, 6)
    for source in (values, Exporter(values)):
        buffer = et.from_dlpack(source, device)
        assert buffer.dtype == "float64"
        np.testing.assert_array_equal(buffer.to_numpy(), values)
    # One row alone is in one piece, whatever its stride.
    np.testing.assert_array_equal(device.from_dlpack(values[:1]).to_numpy(), values[:1])
    assert device.from_dlpack(np.zeros(())).shape == ()
    assert device.from_dlpack(np.zeros((0, 4))).shape == (0, 4)


def test_dlpack_releases_what_it_has_read(device):
    class Values(np.ndarray):
        pass

    values = np.arange(4.0).view(Values)
    alive = weakref.ref(values)
    device.from_dlpack(values)
    del values
    gc.collect()
    assert alive() is None


def test_dlpack_refuses_what_it_cannot_read(device):
    values = np.arange(16.0).reshape(4, 4)
    with pytest.raises(et.ArgumentError, match="contiguous"):
        device.from_dlpack(values.T)
    with pytest.raises(BufferError, match="64 bits"):
        device.from_dlpack(np.zeros(3, "c8"))
    with pytest.raises(AttributeError):
        device.from_dlpack([1])

    class Elsewhere:
        def __dlpack_device__(self):
            return (2, 0)

    class Nothing(Exporter):
        def __dlpack__(self, **_):
            return "no capsule"

    with pytest.raises(BufferError, match="kind 2"):
        device.from_dlpack(Elsewhere())
    with pytest.raises(BufferError, match="no tensor"):
        device.from_dlpack(Nothing(values))


def test_device_memory_goes_out_as_a_copy_only(device):
    values = np.arange(6, dtype="f4").reshape(2, 3)
    buffer = device.array(values)
    assert buffer.__dlpack_device__()[0] == 12
    with pytest.raises(BufferError, match="copy on the host"):
        buffer.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(buffer, device="cpu"), values)


def test_dlpack_with_jax(device):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    host = device.host_empty((2, 3))
    np.asarray(host)[:] = 5
    array = jax.numpy.from_dlpack(host)
    assert array.sum() == 30
    # JAX keeps the memory as long as it may look at it.
    address = np.asarray(host).ctypes.data
    del host
    gc.collect()
    assert array.unsafe_buffer_pointer() == address and array[1, 2] == 5
    result = jax.jit(lambda values: values * 2 + 1)(array)
    np.testing.assert_array_equal(device.from_dlpack(result).to_numpy(), np.full((2, 3), 11.0))
    half = jax.numpy.ones(3, "float16")
    assert device.from_dlpack(half).dtype == "float16"
