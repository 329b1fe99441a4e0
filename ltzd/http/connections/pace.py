"""Reads refused connections again at a bounded pace, so that refusals never take the whole process.

A caller that repeats a refused request at once, on many connections, would otherwise be read again
at once. Its next requests wait in the kernel, at no cost. A caller that waits as Retry-After says
notices nothing. A trusted proxy's connections carry the requests of many callers, and are exempt.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ltzd.http.admission.gate import Asker
from ltzd.http.admission.turns import Turns

_TICK_SECONDS = 0.02
_A_TICK = 80
"""Connections read again in a tick while the process is late: four thousand a second, which takes
about a tenth of a core."""


class RefusalPace:
    """`is_late` tells whether the event loop is late; if not, all connections are read again.

    `is_exempt` tells of a peer's address whether its connections are always read.
    """

    def __init__(self, is_late: Callable[[], bool], is_exempt: Callable[[str], bool]) -> None:
        self._is_late = is_late
        self._is_exempt = is_exempt
        self._held: Turns[Any] = Turns()

    def hold(self, transport: Any, peer: str, asker: Asker) -> None:
        """Read no more of this connection for a while; parties take turns in being read again."""
        if not self._is_exempt(peer) and not transport.is_closing():
            transport.pause_reading()
            self._held.add(asker.party, asker.caller, transport)

    async def run(self) -> None:
        """Read connections again until cancelled, and all of them at the end."""
        try:
            while True:
                await asyncio.sleep(_TICK_SECONDS)
                self._read_again(_A_TICK if self._is_late() else len(self._held))
        finally:
            self._read_again(len(self._held))

    def _read_again(self, count: int) -> None:
        while self._held and count > 0:
            for party in tuple(self._held.parties()):
                transport = self._held.take(party)
                count -= 1
                if not transport.is_closing():
                    transport.resume_reading()
