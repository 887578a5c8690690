"""Memory of Python that the device reaches itself."""

import gc
import mmap
import threading
import weakref

import numpy as np
import pytest

import et

from conftest import KERNELS, SIM


class Pages(np.ndarray):
    """An array that can be referred to weakly."""


@pytest.fixture
def pages(device):
    """An array of whole pages."""
    return make(device.import_granule)


def make(nbytes):
    return np.frombuffer(mmap.mmap(-1, nbytes), "u4").view(Pages)


def called(device):
    """Waits until the thread of the callbacks has done what it had to do."""
    seen = threading.Event()
    device.stream().record().add_done_callback(lambda _: seen.set())
    assert seen.wait(60)


def test_the_device_uses_the_memory_itself(device, pages):
    host = device.import_(pages)
    assert host.shape == pages.shape and host.dtype == "uint32" and host.access == "both"
    assert host.base is pages and device.host_empty(4).base is None
    buffer = device.zeros(pages.shape, "u4")
    # Changed after it was lent: what a copy of it would not have seen.
    pages[:] = np.arange(pages.size)
    buffer.copy_from(host).wait(60)
    np.testing.assert_array_equal(buffer.to_numpy(), np.arange(pages.size))
    buffer.fill(7).wait(60)
    buffer.copy_to_host(host).wait(60)
    assert (pages == 0x07070707).all() and (np.asarray(host) == 0x07070707).all()
    assert np.shares_memory(np.asarray(host), pages)
    with pytest.raises(BufferError, match="base"):
        host.__dlpack__()


def test_memory_is_lent_for_one_direction(device, pages):
    pages[:] = 5
    pages.flags.writeable = False
    with pytest.raises(et.ArgumentError, match="read-only"):
        device.import_(pages)
    buffer = device.zeros(pages.shape, "u4")
    source = device.import_(pages, access="read")
    with pytest.raises(et.ArgumentError, match="for the device to read"):
        buffer.copy_to_host(source)
    # It was not lost with that.
    buffer.copy_from(source).wait(60)
    assert (buffer.to_numpy() == 5).all() and memoryview(source).readonly
    target = make(pages.nbytes)
    into = device.import_(target, access="write")
    with pytest.raises(et.ArgumentError, match="for the device to write"):
        buffer.copy_from(into)
    buffer.copy_to_host(into).wait(60)
    assert (target == 5).all()


def test_what_is_not_made_of_whole_pages_is_refused(device, pages):
    whole = pages.view("u1")
    for wrong in (whole[64:], whole[:-64], whole[:0], b"x" * 8192):
        with pytest.raises(et.ArgumentError, match="whole pieces|read-only"):
            device.import_(wrong)
    with pytest.raises(et.ArgumentError, match="contiguous"):
        device.import_(whole[::2])
    with pytest.raises(et.ArgumentError, match="access"):
        device.import_(pages, access="execute")
    with pytest.raises(TypeError):
        device.import_([1, 2, 3])
    with pytest.raises(et.ArgumentError, match="no data type"):
        device.import_(pages.view("c8"))


def test_lent_memory_is_kept(device):
    memory = mmap.mmap(-1, device.import_granule)
    host = device.import_(memory)
    with pytest.raises(BufferError):
        memory.close()
    host.release()
    memory.close()
    host.release()
    with pytest.raises(et.LostError, match="released"):
        device.zeros(host.shape, "u1").copy_from(host)


def test_memory_stays_while_a_copy_uses_it(device, hang):
    pages = make(device.import_granule)
    buffer, stream = device.zeros(pages.shape, "u4"), device.stream()
    hang.launch(stream=stream)
    host = device.import_(pages)
    copy = buffer.copy_to_host(host, stream=stream)
    with pytest.raises(et.BusyError):
        host.release()
    alive = weakref.ref(pages)
    del pages, host, copy
    gc.collect()
    called(device)
    assert alive() is not None
    stream.abort()
    called(device)
    gc.collect()
    assert alive() is None


def test_memory_comes_back_from_a_device_that_closes():
    device = et.open(SIM, shutdown_timeout=0.1)
    pages = make(device.import_granule)
    pages[:] = 3
    buffer, stream = device.empty(pages.shape, "u4"), device.stream()
    device.load(KERNELS / "hang.elf").launch(stream=stream)
    host = device.import_(pages)
    copy = buffer.copy_from(host, stream=stream)
    device.close()
    assert copy.done and (pages == 3).all()
    host.release()
    assert np.asarray(host)[0] == 3
    with pytest.raises(et.ClosedError):
        device.import_(pages)
