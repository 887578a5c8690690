"""Memory exchanged with PyTorch by DLPack."""

import gc
import pathlib

import pytest

import et

from conftest import SIM

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# What both name; PyTorch exchanges truth values by DLPack only since its version 2.
TYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def test_tensors_and_host_buffers_share_memory(device):
    host = device.host_empty((2, 3))
    tensor = torch.from_dlpack(host)
    assert tensor.shape == (2, 3) and tensor.dtype == torch.float32
    tensor.copy_(torch.arange(6.0).reshape(2, 3))
    buffer = device.empty((2, 3))
    buffer.copy_from(host).wait()
    tensor.zero_()
    buffer.copy_to_host(host).wait()
    assert tensor.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_tensors_outlive_buffer_and_device():
    with et.open(SIM) as device:
        host = device.host_empty(1024, "i4")
        tensor = torch.from_dlpack(host)
        tensor.fill_(7)
        del host
    gc.collect()
    assert tensor.sum().item() == 7 * 1024


@pytest.mark.parametrize("name", TYPES)
def test_every_type_goes_both_ways(device, name):
    dtype = getattr(torch, name)
    values = torch.arange(12).reshape(3, 4).to(dtype)
    buffer = device.from_dlpack(values)
    assert buffer.dtype == name and buffer.shape == (3, 4)
    host = device.host_empty((3, 4), dtype)
    buffer.copy_to_host(host).wait()
    back = torch.from_dlpack(host)
    assert back.dtype == dtype and torch.equal(back, values)


def test_a_kernel_works_on_tensors(device, saxpy):
    """y = a x + y, from tensors to a tensor."""
    x, y = torch.randn(1000), torch.randn(1000)
    result = device.array(y)
    saxpy.launch(device.array(x), result, 3.0, 1000).wait()
    back = torch.empty(1000)
    result.copy_to(back)
    torch.testing.assert_close(back, 3 * x + y)


def test_a_launch_takes_its_inputs_from_tensors(device, saxpy):
    x, y = torch.randn(1000), torch.randn(1000)
    source, result = device.empty(1000), device.empty(1000)
    host = device.host_empty(1000)
    stream = device.stream()
    event = stream.launch_staged(saxpy, source, result, 3.0, 1000, into=host,
                                 inputs=[(x, source), (y, result)], outputs=[result])
    event.wait()
    torch.testing.assert_close(torch.from_dlpack(host), 3 * x + y)


def test_scalars_rows_and_empty_tensors(device):
    matrix = torch.arange(16.0).reshape(4, 4)
    assert device.from_dlpack(torch.tensor(2.5)).to_numpy() == 2.5
    assert device.from_dlpack(matrix[2]).to_numpy().tolist() == [8, 9, 10, 11]
    assert device.from_dlpack(torch.zeros(0, 4)).shape == (0, 4)
    # A part of a tensor starts where the part does, not where its storage does.
    assert device.from_dlpack(matrix.flatten()[5:7]).to_numpy().tolist() == [5, 6]


def test_what_is_not_taken(device):
    matrix = torch.arange(16.0).reshape(4, 4)
    with pytest.raises(et.ArgumentError, match="contiguous"):
        device.from_dlpack(matrix.T)
    with pytest.raises(BufferError, match="bits"):
        device.from_dlpack(torch.zeros(3, dtype=torch.complex64))
    # What PyTorch itself does not export is its error.
    with pytest.raises((BufferError, RuntimeError), match="grad"):
        device.from_dlpack(torch.zeros(3, requires_grad=True))


def test_device_memory_is_not_taken_for_host_memory(device):
    buffer = device.zeros(4)
    with pytest.raises((BufferError, RuntimeError)):
        torch.from_dlpack(buffer)


def test_the_book(device):
    book = pathlib.Path(__file__).parents[3] / "docs/src/python.md"
    example = book.read_text().split("```python,torch\n")[1].split("```")[0]
    values = {"torch": torch, "device": device}
    exec(example, values)
    assert torch.equal(values["x"], values["y"])
