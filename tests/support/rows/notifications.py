"""The notifications that another process receives during a block."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ltzd.store import database
from ltzd.store.wakeups import CHANNELS, WakeupHub, origin
from tests.support.rows.core import running
from tests.support.waiting import until


@asynccontextmanager
async def notifications(url: str, *channels: str) -> AsyncIterator[list[object]]:
    """Collects the payloads of the channels, by default of all; complete after the block."""
    payloads: list[object] = []
    fence = asyncio.Event()
    listener = await database.connect(url, "test")
    try:
        for channel in channels or CHANNELS:
            await listener.add_listener(channel, lambda *received: payloads.append(received[3]))
        await listener.add_listener("fence", lambda *_: fence.set())
        yield payloads
        await listener.execute("NOTIFY fence")
        await asyncio.wait_for(fence.wait(), timeout=20)
    finally:
        await listener.close()


async def until_count(payloads: Sequence[object], count: int) -> None:
    async def are_there() -> bool:
        return len(payloads) >= count

    await until(are_there)


@asynccontextmanager
async def announced(url: str, hub: WakeupHub, channel: str) -> AsyncIterator[None]:
    """Fails unless the block announces the channel, and none of its commits notifies.

    The hub must not listen before: it sends the announcement when the block is over.
    """
    async with notifications(url, channel) as of_commits:
        yield
    assert of_commits == [], "a commit that notifies holds up all others"
    async with notifications(url, channel) as payloads, running(hub.listen()):
        await until_count(payloads, 1)
    assert set(payloads) == {origin()}
