"""Waiting under asyncio and trio: for what has `add_done_callback` and `wait`."""

import sys


async def wait(what):
    """Waits for the end; returns and raises as `wait`. Cancelling it cancels the wait only."""
    if not what.done:
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_run():
            await _trio(trio, what)
        else:
            await _asyncio(what)
    # Ended: this only looks.
    what.wait(0)


async def _trio(trio, what):
    ended = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def tell(_):
        try:
            token.run_sync_soon(ended.set)
        except trio.RunFinishedError:
            pass

    what.add_done_callback(tell)
    await ended.wait()


async def _asyncio(what):
    import asyncio

    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end():
        if not ended.done():
            ended.set_result(None)

    def tell(_):
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            # The loop has ended, and the wait with it.
            pass

    what.add_done_callback(tell)
    await ended
