"""Opening, closing, properties."""

import pytest

import et

from conftest import SIM


def test_the_simulator_is_listed():
    [found] = [info for info in et.devices() if info.locator == "sim:"]
    assert "simulated" in found.description and found.holder is None


def test_a_device_says_what_connects_it(device):
    identity = device.identity
    assert identity.backend and identity.backend_version and identity.runtime_version
    assert identity.sharing == "one_each" and identity.driver is None
    assert identity.pci_ids.startswith("1e0a:") and identity.backend in repr(identity)
    with et.open(SIM) as other:
        assert other.identity == identity


def test_an_error_of_opening_names_who_has_the_device():
    with pytest.raises(et.OpenError) as caught:
        et.open("vfio:ffff:ff:1f.7")
    assert caught.value.holder is None
    # Cards that are in use are not to be had here.
    assert et.OpenError("in use", 77).holder == 77


def test_the_way_between_devices(device):
    with et.open(SIM) as other:
        assert device.peer_path(other) == other.peer_path(device)
        path = device.peer_path(other)
        assert path.path == "host" and path.why in ("refused", "not_mapped")
        same = device.peer_path(device)
        assert (same.path, same.why) == ("same_device", None)
    with pytest.raises(et.ClosedError):
        device.peer_path(other)


def test_properties_are_those_of_the_locator(device):
    properties = device.properties
    assert properties.shires == 1 and properties.shire_mask == 1 and properties.harts == 64
    assert properties.memory_bytes <= 128 << 20
    assert "harts: 64" in repr(properties)
    ways = properties.copies
    assert (ways.ordinary, ways.host_buffer) == ("staged", "direct")
    assert (ways.on_device, ways.builtin) == ("staged", "cores")


def test_a_block_closes_the_device():
    with et.open(SIM) as device:
        assert not device.closed and device.locator == SIM
    assert device.closed and "closed" in repr(device)
    with pytest.raises(et.ClosedError) as caught:
        device.alloc(8)
    assert (caught.value.operation, caught.value.device) == ("using the device", SIM)
    device.close()


def test_what_belongs_to_a_device_keeps_it_open():
    buffer = et.open(SIM).array(bytes(8))
    assert not buffer.device.closed
    assert buffer.to_bytes() == bytes(8)
    assert et.open(SIM).management().power_mw() > 0


def test_handles_of_one_device_are_equal(device):
    with et.open(SIM) as other:
        assert device.alloc(8).device == device
        assert hash(device.stream().device) == hash(device)
        assert other != device


@pytest.mark.parametrize("locator", ["", "sim", "nothing:", "sim:shires=x"])
def test_bad_locators_are_value_errors(locator):
    with pytest.raises(et.LocatorError) as caught:
        et.open(locator)
    assert isinstance(caught.value, (et.OpenError, ValueError))


def test_options_have_names():
    with pytest.raises(TypeError, match="spni"):
        et.open(SIM, spni=1)
    with pytest.raises(et.ArgumentError):
        et.open(SIM, watchdog=-1)


def test_versions_of_firmware(device):
    assert len(device.firmware_version()) == 3
    with pytest.raises(et.ArgumentError):
        device.firmware_version("no such")


def test_memory_is_counted_and_given_back(device):
    before = device.memory_stats().used
    buffer = device.alloc(1 << 20)
    assert device.memory_stats().used >= before + (1 << 20)
    del buffer
    assert device.memory_stats().used == before


def test_memory_ends_with_an_exception(device):
    with pytest.raises(et.OutOfMemoryError) as caught:
        device.alloc(1 << 40)
    assert isinstance(caught.value, MemoryError)


def test_after_a_reset_handles_are_stale(device):
    buffer, stream = device.array(bytes(64)), device.stream()
    device.reset()
    with pytest.raises(et.StaleError):
        buffer.to_bytes(stream=stream)
    with pytest.raises(et.StaleError):
        buffer.to_bytes()
    assert device.array(b"new").to_bytes() == b"new"


def test_notebooks_show_devices(device):
    assert "128" in device._repr_html_() and "<table" in device._repr_html_()
    device.close()
    assert "closed" in device._repr_html_()
