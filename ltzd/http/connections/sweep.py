"""Checks every open connection once a second, and ends those that are too slow.

Sanic's own timeouts begin anew with each byte, so a client that sends a byte now and then, or reads
one, would keep its connection for ever.
"""

import asyncio
from collections import Counter

import msgspec

from ltzd import telemetry
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.http.connections.limit import ConnectionLimit
from ltzd.http.connections.protocol import BoundedProtocol

_SLICE = 500
"""Connections that are checked between two turns of the event loop."""
_STATES = ("idle", "receiving", "working", "unread")


class SlownessPolicy(msgspec.Struct, frozen=True):
    """Seconds for a head and a body to arrive whole, and for a client to read some of an answer.

    `buffer_bytes` bounds what all requests that have not arrived hold together.
    """

    head_seconds: float = 15.0
    body_seconds: float = 40.0
    """Longer than the surfaces', which answer in their own format."""
    read_seconds: float = 30.0
    buffer_bytes: int = 64 * 1024 * 1024
    period_seconds: float = 1.0


DEFAULT_SLOWNESS = SlownessPolicy()


class Sweep:
    def __init__(
        self,
        connections: ConnectionLimit,
        policy: SlownessPolicy = DEFAULT_SLOWNESS,
        *,
        is_measured: bool = True,
        clock: Clock = loop_time,
    ) -> None:
        self._is_measured = is_measured
        self._connections = connections
        self._policy = policy
        self._clock = clock

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self._policy.period_seconds)
            await self.sweep()

    async def sweep(self) -> None:
        """Check every connection once."""
        states: Counter[str] = Counter()
        buffered: list[tuple[int, BoundedProtocol]] = []
        for number, connection in enumerate(self._connections.all(), start=1):
            states[self._check(connection, buffered)] += 1
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._bound_buffers(buffered)
        for state in _STATES if self._is_measured else ():
            telemetry.HTTP_CONNECTIONS.labels(state).set(states[state])

    def _check(
        self, connection: BoundedProtocol, buffered: list[tuple[int, BoundedProtocol]]
    ) -> str:
        awaited = connection.awaited
        if awaited is None:
            connection.slowness = None
            return "working" if connection.is_at_work else "idle"
        if connection.slowness is None or connection.slowness[0] != awaited:
            connection.slowness = awaited, self._clock()
        seconds = self._clock() - connection.slowness[1]
        what = awaited[0]
        if what == "read":
            if seconds > self._policy.read_seconds:
                telemetry.HTTP_CONNECTIONS_ENDED.labels("unread").inc()
                connection.abort()  # type: ignore[no-untyped-call]
            return "unread"
        if seconds > (self._policy.head_seconds if what == "head" else self._policy.body_seconds):
            telemetry.HTTP_CONNECTIONS_ENDED.labels("slow").inc()
            connection.end_slow_request()
        buffered.append((connection.kept_bytes, connection))
        return "receiving"

    def _bound_buffers(self, buffered: list[tuple[int, BoundedProtocol]]) -> None:
        """End the connections that hold most until the rest is within the bound."""
        total = sum(size for size, _ in buffered)
        if total <= self._policy.buffer_bytes:
            return
        for size, connection in sorted(buffered, key=lambda pair: -pair[0]):
            telemetry.HTTP_CONNECTIONS_ENDED.labels("memory").inc()
            connection.end_now()
            total -= size
            if total <= self._policy.buffer_bytes:
                return
