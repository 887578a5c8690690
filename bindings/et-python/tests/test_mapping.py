"""Device memory that the host uses like its own, and callbacks for the states of operations."""

import threading

import numpy as np
import pytest

import et

from conftest import SIM


@pytest.mark.parametrize(("options", "path"), [("", "copy"), (",cpu-access=yes", "window")])
def test_rows_are_read_and_written(options, path):
    with et.open(SIM + options) as card:
        values = np.arange(1200, dtype="f4").reshape(300, 4)
        array, stream = card.array(values), card.stream()
        with stream.map(array) as mapping:
            assert (mapping.path, mapping.access) == (path, "update")
            assert (mapping.shape, mapping.dtype, mapping.nbytes, len(mapping)) == (
                (300, 4), "float32", 4800, 300)
            np.testing.assert_array_equal(mapping[:], values)
            rows = mapping[2:5]
            np.testing.assert_array_equal(rows, values[2:5])
            rows[:] = 0  # An array of its own.
            np.testing.assert_array_equal(mapping[2:3], values[2:3])
            mapping[297:] = -values[:3]
            mapping.flush()
            np.testing.assert_array_equal(array.to_numpy()[297:], -values[:3])
            assert mapping[300:].shape == (0, 4)
            mapping[1:2] = np.full((1, 4), 7, "f4")
        expected = values.copy()
        expected[297:], expected[1] = -values[:3], 7
        np.testing.assert_array_equal(array.to_numpy(), expected)
        # Nothing is fetched of what is only written.
        with stream.map(array[:2], "write", timeout=60) as mapping:
            mapping[:] = np.zeros((2, 4), "f4")
            with pytest.raises(et.UnsupportedError, match="not fetched"):
                mapping[:1]
        expected[:2] = 0
        np.testing.assert_array_equal(array.to_numpy(), expected)
        # What is forgotten is written back too.
        mapping = stream.map(array[:2])
        mapping[:] = np.ones((2, 4), "f4")
        del mapping
        expected[:2] = 1
        np.testing.assert_array_equal(array.to_numpy(stream=stream), expected)


def test_mappings_that_are_wrong(device):
    array, stream = device.array(np.arange(8, dtype="i4")), device.stream()
    with pytest.raises(et.ArgumentError, match="\"update\", not \"both\""):
        stream.map(array, "both")
    with pytest.raises(et.ArgumentError, match="timeout"):
        stream.map(array, timeout=-1)
    with pytest.raises(et.ArgumentError, match="read-only"):
        stream.map(array.toreadonly())
    with stream.map(array.toreadonly(), "read") as mapping:
        with pytest.raises(et.UnsupportedError, match="for reading"):
            mapping[:1] = np.zeros(1, "i4")
        np.testing.assert_array_equal(mapping[:], np.arange(8))
    with et.open(SIM) as other, pytest.raises(et.ArgumentError, match="another device"):
        other.stream().map(array)
    mapping = stream.map(array)
    with pytest.raises(et.BusyError):
        stream.map(array[4:], "read")
    for rows, error in [(slice(0, 8, 2), et.ArgumentError), (3, TypeError), ("a", TypeError)]:
        with pytest.raises(error):
            mapping[rows]
        with pytest.raises(error):
            mapping[rows] = np.zeros(4, "i4")
    for source, error in [(np.zeros(3, "i4"), et.ArgumentError), (np.zeros(2, "f4"), et.ArgumentError),
                          (np.zeros(4, "i4")[::2], et.ArgumentError), (1, TypeError)]:
        with pytest.raises(error):
            mapping[:2] = source
    np.testing.assert_array_equal(mapping[:], np.arange(8))
    mapping.unmap(timeout=60)
    for use in [lambda: mapping[:], lambda: mapping.flush(), lambda: mapping.unmap(),
                lambda: mapping.path, lambda: mapping.__setitem__(slice(1), np.zeros(1, "i4"))]:
        with pytest.raises(et.FreedError, match="ended"):
            use()
    with mapping:
        pass  # It may have been unmapped inside.
    # An array that was freed is not reached any more, but what was written goes back.
    mapping = stream.map(array)
    mapping[:1] = np.ones(1, "i4")
    array.free()
    with pytest.raises(et.FreedError):
        mapping[:]
    mapping.unmap()


def test_what_cannot_be_written_back_is_there_still(device):
    array = device.zeros(4, "i4")
    mapping = device.stream().map(array)
    mapping[:] = np.ones(4, "i4")
    device.reset()
    with pytest.raises(et.StaleError):
        mapping.unmap()
    with pytest.raises(et.StaleError):
        mapping.flush()
    repr(mapping)


def test_a_flush_waits_its_time(device, hang):
    array, stream = device.zeros(4, "i4"), device.stream()
    mapping = stream.map(array)
    mapping[:] = np.arange(4, dtype="i4")
    running = hang.launch(stream=stream)
    with pytest.raises(et.TimeoutError):
        stream.map(array[:0], "read", timeout=0.01)
    with pytest.raises(et.TimeoutError, match="did not finish within 10ms"):
        mapping.flush(timeout=0.01)
    # It is on its way, and not to be changed.
    with pytest.raises(et.UnsupportedError, match="written back"):
        mapping[:]
    running.abort()
    mapping.flush(60)
    np.testing.assert_array_equal(mapping[:], np.arange(4))
    np.testing.assert_array_equal(array.to_numpy(), np.arange(4))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_states_are_told_once_each(device, hang):
    stream, told, all_told = device.stream(), [], threading.Semaphore(0)

    def tell(event, state):
        told.append((event, state))
        all_told.release()

    running = hang.launch(stream=stream)
    other = device.stream()
    other.wait_event(running)
    waiting = other.record()
    waiting.add_state_callback("queued", tell)
    running.add_state_callback("ready", tell)
    for _ in range(2):
        assert all_told.acquire(timeout=60)
    assert {state for _, state in told} == {"queued", "ready"} and running.state == "ready"
    assert not running.done and waiting.state == "queued"
    running.add_state_callback("executed", tell)
    running.add_state_callback("failed", tell)
    waiting.add_state_callback("complete", tell)
    running.abort()
    waiting.wait(60)
    for _ in range(3):
        assert all_told.acquire(timeout=60)
    assert {(event.id, state) for event, state in told[2:]} <= {
        (running.id, "executed"), (running.id, "failed"), (waiting.id, "complete")}
    assert [state for event, state in told if event is running][-1] == "failed"
    # Those that come late hear how it ended.
    running.add_state_callback("ready", tell)
    assert all_told.acquire(timeout=60)
    assert told[5:] == [(running, "failed")] and running.state == "failed"
    with pytest.raises(et.ArgumentError, match="\"done\""):
        running.add_state_callback("done", tell)
    # One that raises harms nothing.
    running.add_state_callback("complete", None)
    waiting.add_state_callback("complete", tell)
    assert all_told.acquire(timeout=60)
