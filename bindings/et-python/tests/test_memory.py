"""Device memory, and what goes to and from it."""

import array
import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import et

from conftest import SIM

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_come_back_as_they_went(device, dtype):
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    buffer = device.array(values)
    assert buffer.shape == (2, 3, 4) and buffer.dtype == dtype
    assert buffer.nbytes == values.nbytes and buffer.size == 24 and buffer.ndim == 3
    back = buffer.to_numpy()
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.asarray(buffer), values)


@settings(max_examples=50, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4,
                                                                   min_side=0, max_side=9)))
def test_any_array_comes_back(device, values):
    back = device.array(values).to_numpy()
    assert back.shape == values.shape and back.dtype == values.dtype
    assert back.tobytes() == values.tobytes()


@settings(max_examples=50, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(0, 50), row=st.sampled_from([(), (1,), (3,), (5,), (8,), (3, 2)]),
       start=st.integers(-60, 60), stop=st.integers(-60, 60), dtype=st.sampled_from(DTYPES))
def test_slices_are_those_of_python(device, rows, row, start, stop, dtype):
    values = np.random.default_rng(rows).integers(0, 2, (rows, *row)).astype(dtype)
    buffer = device.array(values)
    part = buffer[start:stop]
    np.testing.assert_array_equal(part.to_numpy(), values[start:stop])
    # There and back, by each way that a copy takes.
    there = np.logical_not(values[start:stop]).astype(dtype)
    part.copy_from(there).wait(60)
    host = device.host_empty(there.shape, dtype)
    part.copy_to_host(host).wait(60)
    np.testing.assert_array_equal(np.asarray(host), there)
    np.asarray(host)[...] = there
    other = device.zeros(values.shape, dtype)
    other[start:stop].copy_from(host).wait(60)
    np.testing.assert_array_equal(other[start:stop].to_numpy(), there)
    other[start:stop].copy_from_buffer(buffer[start:stop]).wait(60)
    values[start:stop] = there
    np.testing.assert_array_equal(buffer.to_numpy(), values)


def test_copies_can_be_held_to_what_cards_are_documented_to_do():
    with et.open(SIM, byte_copies=False) as device:
        assert device.properties.dma_align_bytes == 8
        buffer = device.array(np.arange(5, dtype="f4"))
        np.testing.assert_array_equal(buffer[2:].to_numpy(), [2, 3, 4])
        with pytest.raises(et.ArgumentError, match="aligned to 8 bytes"):
            buffer[1:3].to_numpy()


def test_rows_are_arrays(device):
    values = np.arange(24, dtype="i2").reshape(4, 3, 2)
    buffer = device.array(values)
    for index in [0, 3, -1, -4, np.int64(2)]:
        assert buffer[index].shape == (3, 2) and buffer[index].dtype == "int16"
        np.testing.assert_array_equal(buffer[index].to_numpy(), values[index])
    assert [row.to_numpy().tolist() for row in buffer] == values.tolist()
    assert len(list(device.empty((0, 3)))) == 0
    assert buffer.toreadonly()[1].readonly
    buffer[1][2].copy_from(np.array([-1, -2], "i2")).wait(60)
    assert buffer.to_numpy()[1].tolist() == [[6, 7], [8, 9], [-1, -2]]
    one = buffer[0][0][1]
    assert one.shape == () and one.size == 1 and one.to_numpy() == 1
    for index in [4, -5, 1 << 80, -(1 << 80)]:
        with pytest.raises(IndexError, match="of an array of 4"):
            buffer[index]
    for index in ["x", 1.0, None, (0, 1), ...]:
        with pytest.raises(TypeError, match="integers and slices"):
            buffer[index]
    for wrong in (lambda: one[0], lambda: len(one), lambda: list(one)):
        with pytest.raises(TypeError, match="no dimensions"):
            wrong()
    buffer.free()
    with pytest.raises(et.FreedError):
        buffer[0]


def test_slices_share_memory(device):
    buffer = device.zeros(64, "u1")
    buffer[16:32].copy_from(bytes(range(16))).wait()
    assert buffer.to_bytes() == bytes(16) + bytes(range(16)) + bytes(32)
    assert buffer[8:].address == buffer.address + 8
    with pytest.raises(et.ArgumentError):
        buffer[::2]


def test_shapes_and_types_can_be_looked_at_otherwise(device):
    buffer = device.array(np.arange(12, dtype="f4"))
    assert buffer.reshape(3, -1).shape == (3, 4) and buffer.reshape((2, 6)).shape == (2, 6)
    np.testing.assert_array_equal(buffer.view("u4").to_numpy(), np.arange(12, dtype="f4").view("u4"))
    for wrong in [(5, 5), (-1, -1), (7, -1)]:
        with pytest.raises(et.ArgumentError):
            buffer.reshape(wrong)
    with pytest.raises(et.ArgumentError):
        device.alloc(7).view("f4")


@pytest.mark.parametrize("dtype", ["f4", "<f4", "float32", np.float32, np.dtype("f4"), et.f32])
def test_types_have_many_names(device, dtype):
    assert device.empty(3, dtype).dtype == "float32"


@pytest.mark.parametrize("dtype", ["f3", ">f4", "complex64", "U1", object()])
def test_types_that_memory_does_not_have(device, dtype):
    with pytest.raises(et.ArgumentError):
        device.empty(3, dtype)


@pytest.mark.parametrize("shape", [-1, (2, -3), "x", 1.5, (1 << 40, 1 << 40)])
def test_shapes_that_arrays_do_not_have(device, shape):
    with pytest.raises((et.ArgumentError, TypeError)):
        device.empty(shape, "u1")


def test_arrays_in_pieces_are_refused(device):
    values = np.arange(16, dtype="f4").reshape(4, 4)
    for pieces in (values[:, ::2], values.T):
        with pytest.raises(et.ArgumentError, match="contiguous"):
            device.array(pieces)
        with pytest.raises(et.ArgumentError, match="contiguous"):
            device.empty(pieces.shape).copy_to(pieces)


def test_read_only_arrays_can_be_read_only(device):
    values = np.arange(4, dtype="f4")
    values.flags.writeable = False
    buffer = device.array(values)
    with pytest.raises(et.ArgumentError, match="read-only"):
        buffer.copy_to(values)
    with pytest.raises(et.ArgumentError, match="read-only"):
        buffer.copy_to(bytes(16))


def test_read_only_views_of_device_memory(device):
    buffer = device.array(np.arange(16, dtype="u1"))
    view = buffer.toreadonly()
    assert view.readonly and view[:8].readonly and view.view("u4").readonly and not buffer.readonly
    assert view.address == buffer.address and view.to_bytes() == buffer.to_bytes()
    graph = et.Graph()
    for write in [lambda: view.copy_from(bytes(16)), lambda: view.fill(1),
                  lambda: view.copy_from(device.host_empty(16, "u1")),
                  lambda: view.copy_from_buffer(device.zeros(16, "u1")),
                  lambda: graph.copy_in(et.HostData(bytes(16)), view),
                  lambda: graph.host(print, writes=[view])]:
        with pytest.raises(et.ArgumentError, match="read-only"):
            write()
    assert buffer.to_bytes() == bytes(range(16))
    other = device.zeros(16, "u1")
    other.copy_from_buffer(view).wait()
    assert other.to_bytes() == bytes(range(16))
    graph.host(lambda: None, reads=[view])


def test_other_lengths_and_types_are_refused(device):
    buffer = device.zeros(4, "f4")
    with pytest.raises(et.ArgumentError, match="shape"):
        buffer.copy_from(np.zeros(5, "f4"))
    with pytest.raises(et.ArgumentError, match="int32"):
        buffer.copy_from(np.zeros(4, "i4"))
    with pytest.raises(et.ArgumentError, match="float64"):
        buffer.copy_to(np.zeros(2, "f8"))
    buffer.copy_from(bytes(16)).wait()
    with pytest.raises(et.ArgumentError):
        device.array(np.zeros(3, "c8"))
    with pytest.raises(TypeError):
        device.array([1, 2, 3])


def test_anything_with_a_buffer_will_do(device):
    buffer = device.array(array.array("i", [1, -2, 3]))
    assert buffer.dtype == "int32"
    into = bytearray(12)
    buffer.copy_to(into)
    assert into == array.array("i", [1, -2, 3]).tobytes()
    with pytest.raises(BufferError):
        # Nothing may resize what a copy writes to.
        view = memoryview(into)
        into.append(1)
    del view


def test_freed_memory_is_not_used(device, saxpy):
    before = device.memory_stats().used
    buffer = device.zeros(16)
    part = buffer[:8]
    buffer.free()
    uses = [buffer.to_numpy, buffer.to_bytes, part.to_bytes, lambda: buffer.fill(0),
            lambda: buffer.copy_from(bytes(64)), lambda: buffer[2:4], lambda: buffer.address,
            lambda: saxpy.launch(buffer, buffer, 1.0, 16), lambda: buffer.view("u4")]
    for use in uses:
        with pytest.raises(et.FreedError):
            use()
    buffer.free()
    assert "freed" in repr(buffer)
    del buffer, part, uses, use
    gc.collect()
    assert device.memory_stats().used == before


def test_memory_of_another_device_is_refused(device, saxpy):
    with et.open(SIM) as other:
        foreign = other.zeros(16)
        with pytest.raises(et.ArgumentError, match="another device"):
            saxpy.launch(foreign, foreign, 1.0, 16)
        with pytest.raises(et.ArgumentError):
            foreign.copy_from(bytes(64), stream=device.stream())
        with pytest.raises(et.ArgumentError):
            device.zeros(16).copy_from_buffer(foreign)
        with pytest.raises(et.ArgumentError):
            foreign.copy_from(device.host_empty(16))


def test_copies_within_the_device(device):
    source, target = device.array(np.arange(64, dtype="u1")), device.zeros(64, "u1")
    target.copy_from_buffer(source).wait()
    assert target.to_bytes() == bytes(range(64))
    target.fill(7).wait()
    assert target.to_bytes() == bytes([7]) * 64
    with pytest.raises(et.ArgumentError, match="overlap"):
        source[8:].copy_from_buffer(source[:56])


def test_large_arrays_come_back(device):
    values = np.random.default_rng(0).integers(0, 255, 24 << 20, dtype="u1")
    np.testing.assert_array_equal(device.array(values).to_numpy(), values)


def test_new_arrays_wait_for_nothing_else(device, hang):
    event = hang.launch()
    array = device.array(np.arange(8, dtype="u1"))
    zeros = device.zeros(8, "u1")
    other = device.stream()
    assert array.to_bytes(stream=other, timeout=10) == bytes(range(8))
    assert zeros.to_bytes(stream=other, timeout=10) == bytes(8) and not event.done
    event.abort()
