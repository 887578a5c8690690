"""Waiting under asyncio and trio."""

import asyncio

import numpy as np
import pytest

import et

from conftest import KERNELS


def test_asyncio_goes_on_while_events_are_awaited(device, saxpy):
    async def main():
        x, y = device.array(np.ones(64, "f4")), device.zeros(64)
        events = [saxpy.launch(x, y, 1.0, 64) for _ in range(20)]
        await asyncio.gather(*(wait(event) for event in events))
        await events[0]
        assert (y.to_numpy() == 20).all()
        with pytest.raises(et.KernelError):
            await device.load(KERNELS / "trap_load.elf").launch(et.u64(0))

    async def wait(event):
        await event

    asyncio.run(main())


def test_asyncio_gives_up_what_never_ends(device, hang):
    async def main():
        event, ticks = hang.launch(), 0
        waiting = asyncio.ensure_future(wait(event))
        for _ in range(20):
            await asyncio.sleep(0.01)
            ticks += 1
        assert not waiting.done()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0.1)
        assert ticks == 20 and not event.done
        event.abort()

    async def wait(event):
        await event

    asyncio.run(main())


def test_an_event_may_end_after_its_loop(device, hang):
    async def main():
        event = hang.launch()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(wait(event)), 0.05)
        return event

    async def wait(event):
        await event

    event = asyncio.run(main())
    event.abort()
    assert event.done


def test_trio(device, saxpy, hang):
    trio = pytest.importorskip("trio", reason="trio is not installed")

    async def main():
        x, y = device.array(np.ones(64, "f4")), device.zeros(64)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(wait, saxpy.launch(x, y, 1.0, 64))
        assert (y.to_numpy() == 5).all()
        with pytest.raises(et.KernelError):
            await device.load(KERNELS / "trap_load.elf").launch(et.u64(0))
        event = hang.launch()
        with trio.move_on_after(0.1) as scope:
            await event
        assert scope.cancelled_caught and not event.done
        event.abort()

    async def wait(event):
        await event

    trio.run(main)


def test_graphs_can_be_awaited(device):
    async def main():
        graph, seen = et.Graph(), []
        graph.host(lambda: seen.append(1))
        with device.executor() as executor:
            run = graph.launch(executor)
            await run
            assert seen == [1] and run.done

    asyncio.run(main())
