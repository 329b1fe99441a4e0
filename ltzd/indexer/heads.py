"""Announcements of new heads, which end the follower's pause between two polls of the head."""

import asyncio
from typing import Protocol

from ltzd.chain.node.answers.typed import Header


class HeadAnnouncements(Protocol):
    """Heads that nodes announce by themselves. An announcement is a hint, never a fact."""

    async def wait(self, seconds: float) -> int | None:
        """The highest height announced since the last call, at once if there is one.

        Returns None if none is announced within `seconds`.
        """

    def observe(self, head: Header) -> None:
        """Record a head that the follower has read from a node."""


class NoAnnouncements:
    """For nodes that announce nothing: every head is found by polling."""

    async def wait(self, seconds: float) -> int | None:
        await asyncio.sleep(seconds)
        return None

    def observe(self, head: Header) -> None:
        pass
