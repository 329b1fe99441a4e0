"""Reads refused connections again at a bounded rate, so that refusals never use the whole process.

A caller could repeat a refused request at once, on many connections. Its next requests wait in the
kernel, at no cost. ltzd refuses bytes that have waited there once more: the length of the wait is
unknown, and a late answer is useless to the caller. A caller that obeys Retry-After is not slowed.
Connections of a trusted proxy carry the requests of many callers, and are exempt.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from ltzd.http.admission.gate import Asker
from ltzd.http.admission.turns import Turns

_TICK_SECONDS = 0.02
_A_TICK = 50
"""Connections read again in a tick while requests are refused: 2,500 a second, with a refusal or
two each, which take about a tenth of a core."""


class HeldConnection(Protocol):
    @property
    def is_open(self) -> bool: ...

    def hold(self) -> None: ...

    def read_again(self) -> None: ...

    def mark_in_time(self) -> None: ...


class RefusalPace:
    """`refuses` tells whether requests are being refused; if not, all connections are read again.

    `is_exempt` tells of a peer's address whether its connections are always read.
    """

    def __init__(self, refuses: Callable[[], bool], is_exempt: Callable[[str], bool]) -> None:
        self._refuses = refuses
        self._is_exempt = is_exempt
        self._held: Turns[HeldConnection] = Turns()
        self._is_any_held = asyncio.Event()

    def hold(self, connection: HeldConnection, peer: str, asker: Asker) -> None:
        """Stop reading this connection for a while; parties take turns in being read again."""
        if not self._is_exempt(peer):
            connection.hold()
            self._held.add(asker.party, asker.caller, connection)
            self._is_any_held.set()

    async def run(self) -> None:
        """Read connections again until cancelled, and all of them at the end."""
        try:
            while True:
                await self._is_any_held.wait()
                await asyncio.sleep(_TICK_SECONDS)
                self._read_again(_A_TICK if self._refuses() else len(self._held))
                if not self._held:
                    self._is_any_held.clear()
        finally:
            self._read_again(len(self._held))

    def _read_again(self, count: int) -> None:
        """Read `count` of the held connections again; ended ones are dropped and not counted.

        If ended connections counted, a flood of them would be held faster than they are taken, and
        fill the memory.
        """
        connections: list[HeldConnection] = []
        while self._held and len(connections) < count:
            taken = [self._held.take(party) for party in tuple(self._held.parties())]
            connections += [connection for connection in taken if connection.is_open]
        for connection in connections:
            connection.read_again()
        if connections:
            # The event loop reads what the kernel holds in its next turn.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, _mark_in_time, connections)


def _mark_in_time(connections: Iterable[HeldConnection]) -> None:
    for connection in connections:
        connection.mark_in_time()
