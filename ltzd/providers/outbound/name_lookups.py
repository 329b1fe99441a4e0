"""Looks up hosts' names by the machine's resolver, which can be asked in a thread only.

A name whose servers do not answer occupies its thread for half a minute or longer, and the look-up
cannot be cancelled. So each name has a thread of its own, which its callers share, also after they
have given up: the owner of one name delays no other. No thread holds up the end of the process.
"""

import asyncio
import socket
import threading
from contextlib import suppress

from ltzd.concurrency.futures import complete


class NameLookups:
    """`max_names` bounds the names that are looked up at the same time."""

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    def close(self) -> None:
        """Cancel the callers."""
        for lookup in list(self._under_way.values()):
            lookup.cancel()

    async def addresses_of(self, host: str) -> list[str]:
        """Raises OSError, and UnicodeError for a label that DNS cannot hold."""
        lookup = self._under_way.get(host) or self._begin(host)
        return await asyncio.shield(lookup)

    def _begin(self, host: str) -> asyncio.Future[list[str]]:
        if len(self._under_way) >= self._max_names:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()

        def run() -> None:
            outcome = _look_up(host)
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(self._end, host, outcome)

        try:
            threading.Thread(target=run, name="name look-up", daemon=True).start()
        except RuntimeError as error:
            raise OSError("no thread can be started for the look-up") from error
        lookup: asyncio.Future[list[str]] = loop.create_future()
        # Retrieved here, so that asyncio does not log a failure whose callers have given up.
        lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way[host] = lookup
        return lookup

    def _end(self, host: str, outcome: list[str] | Exception) -> None:
        complete(self._under_way.pop(host), outcome)


def _look_up(host: str) -> list[str] | Exception:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        return error
    return [str(address[0]) for *_, address in answers]
