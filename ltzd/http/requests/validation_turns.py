"""Leaves turns of the event loop between bodies that take milliseconds to validate.

A regular expression accepts most addresses, and most names of hosts are ASCII. All other texts are
left to libraries, which take up to 3 ms for each. Ten kilobytes of them hold the event loop for
50 ms, and sixty such bodies in one turn would hold it until the process loses its leases.
"""

import asyncio
from collections.abc import Iterable

from ltzd.concurrency.work_slots import released_when_slow
from ltzd.http.requests.fields import PLAIN_EMAIL


def are_slow(texts: Iterable[object]) -> bool:
    """Whether one of these values of a body is a text that a library must judge."""
    for text in texts:
        if isinstance(text, str) and (
            not text.isascii()
            or "--" in text  # as in xn--, the ASCII form of an international name
            or ("@" in text and PLAIN_EMAIL.fullmatch(text) is None)
        ):
            return True
    return False


class ValidationTurns:
    """Gives each turn of the event loop to one caller at most."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Return in a turn that no other caller gets, for a validation without an await.

        A request whose turn is long in coming gives its slot back: many such bodies that name a
        brand would otherwise hold all slots of the brand.
        """
        with released_when_slow():
            async with self._lock:
                await asyncio.sleep(0)
