"""The service processor, on cards whose sensors the locator sets."""

import threading
import time

import pytest

import et

from conftest import KERNELS, run_python

CARD = ("sim:shires=1,dram=256MiB,serial=A-7,part=42,temperature=55,power=12000,tdp=30,mhz=700")


@pytest.fixture
def card():
    with et.open(CARD, shutdown_timeout=1.0) as device:
        yield device


@pytest.fixture
def management(card):
    return card.management()


def test_the_card_says_what_it_is(management):
    assert management.asset("serial_number") == "A-7"
    assets = management.assets()
    assert assets["serial_number"] == "A-7" and "" not in assets.values()
    versions = management.firmware_versions()
    assert {"release", "master_minion", "boot_loader_2"} <= versions.keys()
    assert all(len(version) == 3 for version in versions.values())
    assert management.uptime() % 60 == 0


def test_sensors_are_those_of_the_card(management):
    temperatures = management.temperatures()
    assert temperatures.minion_lowest_c <= temperatures.minion_average_c == 55
    assert management.highest_temperature_c() >= 55
    assert management.power_mw() == 12000 and management.tdp_watts() == 30
    assert "power" in management.power_state()
    assert management.frequencies().minion_mhz == 700
    assert management.asic_voltages().minion_mv > 0
    assert management.module_voltages()["pcie"] >= 600
    caches = management.cache_config()
    assert caches.scratchpad_kib + caches.l2_kib + caches.l3_kib == 4096
    assert 0 <= management.memory_used_percent() <= 100
    assert management.throttle_residency().total >= management.throttle_residency("up").shortest
    assert management.power_residency("managed").longest >= 0
    names = {of.name: of for of in management.statistics()}
    assert names["minion_power"].unit == "mW"
    assert {of.unit for of in management.statistics("master")} == {"%", "MB/s"}


def test_what_is_set_stays(management):
    management.set_temperature_threshold_c(71)
    management.set_tdp_watts(25)
    assert (management.temperature_threshold_c(), management.tdp_watts()) == (71, 25)
    management.set_power_management(True)
    management.set_frequency_mhz("minions", 500)
    management.set_frequency_mhz("network", 400, by_steps=True)
    clocks = management.frequencies()
    assert (clocks.minion_mhz, clocks.noc_mhz) == (500, 400)
    management.set_error_threshold("dram", 9)


def test_errors_are_counted_by_their_source(management):
    for source in ("dram", "sram", "pcie"):
        counts = management.error_counts(source)
        assert (counts.corrected, counts.uncorrectable) == (0, 0)
        assert counts == management.error_counts(source) and "corrected: 0" in repr(counts)
    assert management.minion_errors().hangs == 0


@pytest.mark.parametrize("ask", [
    lambda m: m.asset("no such"), lambda m: m.error_counts("l1"), lambda m: m.statistics("both"),
    lambda m: m.throttle_residency("full"), lambda m: m.power_residency(""),
    lambda m: m.set_frequency_mhz("memory", 500), lambda m: m.set_error_threshold("l1", 1),
    lambda m: m.event(-1), lambda m: m.event(float("nan")),
])
def test_what_there_is_not_is_an_error_of_the_argument(management, ask):
    with pytest.raises(et.ArgumentError):
        ask(management)


@pytest.mark.parametrize("value", [-1, 256, "hot", None])
def test_values_have_the_range_of_the_command(management, value):
    with pytest.raises((OverflowError, TypeError)):
        management.set_tdp_watts(value)


def test_it_answers_while_kernels_hang(card, management):
    event = card.load(KERNELS / "hang.elf").launch()
    assert management.power_mw() > 0 and not event.done
    event.abort()


def test_events_come_in_order_and_once(card, management):
    # The kernel heats the card over a threshold that it is above anyway.
    management.set_temperature_threshold_c(20)
    event = management.event(timeout=30)
    assert event is not None and event.count >= 1
    assert event.name and event.severity and len(event.syndromes) == 2 and event.seen > 0
    assert management.counters().events >= 1 and management.counters().events_lost == 0
    while management.event(timeout=0) is not None:
        pass


def test_waits_for_events_leave_the_interpreter_to_others(management):
    waiting = threading.Thread(target=management.event, args=(0.5,))
    waiting.start()
    turns = 0
    while waiting.is_alive():
        turns += 1
        time.sleep(0)
    assert turns > 10


def test_ctrl_c_ends_a_wait_for_events():
    done = run_python(f"""
import os, signal, threading
management = et.open({CARD!r}).management()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    management.event(timeout=None)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert done.stdout == "interrupted\n", done.stderr


def test_it_is_opened_alone():
    management = et.open_management(CARD, timeout=30)
    assert management.asset("serial_number") == "A-7" and management.power_mw() == 12000
    with pytest.raises(et.LocatorError):
        et.open_management("nothing:")
    with pytest.raises(TypeError, match="spni"):
        et.open_management(CARD, spni=1)
    with pytest.raises(et.ArgumentError):
        et.open_management(CARD, timeout=-1)


def test_firmware_that_is_none_is_refused(management):
    before = management.firmware_versions()
    for image in (b"no image" * 64, bytearray(64), memoryview(bytes(128))):
        with pytest.raises(et.RefusedError):
            management.update_firmware(image)
    with pytest.raises(et.ArgumentError):
        management.update_firmware(b"")
    with pytest.raises(TypeError):
        management.update_firmware("image.bin")
    assert management.firmware_versions() == before


def test_resets_by_the_service_processor(card, management):
    buffer = card.array(b"8 bytes.")
    card.reset_operations()
    with pytest.raises(et.Error):
        buffer.to_bytes()
    # The endpoint of before still answers.
    assert management.asset("serial_number") == "A-7"
    card.reset_chip()
    assert card.array(b"8 bytes.").to_bytes() == b"8 bytes."
    assert card.management().asset("serial_number") == "A-7"


def test_a_closed_card_answers_nothing(card, management):
    card.close()
    with pytest.raises(et.ClosedError):
        management.power_mw()
    with pytest.raises(et.ClosedError):
        card.management()


def test_a_device_that_works_is_left_alone(card, management):
    graph = et.Graph()
    graph.host(lambda: None)
    executor, buffer = card.executor("streams"), card.array(b"8 bytes.")
    assert card.recover() == (None, [], (False, False, False))
    graph.run(executor)
    assert buffer.to_bytes() == b"8 bytes."


def test_an_endless_kernel_is_aborted_and_all_handles_stay(card):
    buffer, hang = card.array(b"8 bytes."), card.load(KERNELS / "hang.elf")
    event = hang.launch()
    recovery = card.recover(up_to="compute", timeout=60)
    assert isinstance(recovery.ill, et.TimeoutError) and "in flight" in str(recovery.ill)
    assert [(step.remedy, step.error) for step in recovery.steps] == [("abort", None)]
    assert recovery.steps[0].seconds > 0 and not recovery.lost
    assert isinstance(event.exception(), et.Error) and buffer.to_bytes() == b"8 bytes."
    # An executor loses what it had in flight.
    graph = et.Graph()
    graph.add(hang)
    executor = card.executor("streams")
    graph.launch(executor)
    while not card.recover(timeout=60).steps:
        pass
    with pytest.raises(et.ClosedError):
        graph.launch(executor)
    other = et.Graph()
    other.host(lambda: None, reads=[buffer])
    other.run()


# The firmware hangs after the third command since a boot, which is the last one of opening it.
ILL = "sim:shires=1,dram=256MiB,fault=hang:3"


def test_a_device_that_stays_ill_says_what_was_tried():
    with et.open(ILL, shutdown_timeout=0.1) as device:
        with pytest.raises(et.RecoveryError, match="after abort, compute reset: ") as raised:
            device.recover("compute", 0.1)
        error = raised.value
        assert [step.remedy for step in error.steps] == ["abort", "compute reset"]
        assert all(isinstance(step.error, et.TimeoutError) for step in error.steps)
        assert error.lost == (False, True, False) and error.lost and error.device == ILL
        assert isinstance(error.__cause__, et.TimeoutError)
        with pytest.raises(et.RecoveryError) as raised:
            device.recover("chip", timeout=0.1)
        assert raised.value.steps[-1].remedy == "chip reset"
        assert raised.value.lost == (True, True, True)
        for wrong in ({"up_to": "abort"}, {"up_to": ""}, {"timeout": -1}):
            with pytest.raises(et.ArgumentError):
                device.recover(**wrong)
    with pytest.raises(et.ClosedError):
        device.recover()


def test_ctrl_c_ends_the_wait_for_a_recovery():
    """The recovery goes on, and what comes next waits for its end."""
    done = run_python(f"""
import os, signal, threading
device = et.open({ILL!r}, shutdown_timeout=0.1)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    device.recover("compute", timeout=1)
except KeyboardInterrupt:
    print("interrupted", device.closed)
try:
    device.recover("compute", timeout=0.1)
except et.RecoveryError as error:
    print(len(error.steps))
device.close()
print(device.closed)
""")
    assert done.stdout == "interrupted True\n2\nTrue\n", done.stdout + done.stderr
