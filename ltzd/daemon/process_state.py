"""The state of this process that no component owns: draining, and faults of outside services."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.daemon.certificates import NO_CERTIFICATES, Certificates

log = structlog.get_logger()

Ping = Callable[[], Awaitable[bool]]

_PING_SECONDS = 5.0
_FAILURES = 2
"""Failures in a row that make a service unavailable: a single one may be a lost packet."""


class ProcessState:
    def __init__(self) -> None:
        self.draining = asyncio.Event()
        """Set once the process has been told to end; requests are still answered then."""
        self._certificates = NO_CERTIFICATES
        self._clock_offset_seconds = 0.0

    @property
    def is_draining(self) -> bool:
        return self.draining.is_set()

    @property
    def certificates(self) -> Certificates:
        return self._certificates

    @property
    def clock_offset_seconds(self) -> float:
        """How far this machine's clock is ahead of the database's, as last measured."""
        return self._clock_offset_seconds

    def begin_drain(self) -> None:
        self.draining.set()

    def serves_with(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def measured_clock(self, offset_seconds: float) -> None:
        self._clock_offset_seconds = offset_seconds


class ServiceWatch:
    """Pings outside services that requests need. `pings` are by the service's name."""

    def __init__(
        self,
        pings: Mapping[str, Sequence[Ping]],
        *,
        period_seconds: float = 15.0,
        clock: Clock = loop_time,
    ) -> None:
        self._pings = pings
        self._period_seconds = period_seconds
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._failing_since: dict[str, float] = {}

    def seconds_away(self, service: str) -> float | None:
        """For how long the service has not answered, or None while it answers."""
        if self._failures.get(service, 0) < _FAILURES:
            return None
        return self._clock() - self._failing_since[service]

    async def run(self) -> None:
        """Ping until cancelled; sooner after a failure."""
        while True:
            await asyncio.gather(*map(self._check, self._pings))
            is_failing = any(self._failures.values())
            await asyncio.sleep(self._period_seconds / 3 if is_failing else self._period_seconds)

    async def _check(self, service: str) -> None:
        answers = await asyncio.gather(*map(_answers, self._pings[service]))
        before = self.seconds_away(service)
        if all(answers):
            self._failures[service] = 0
            self._failing_since.pop(service, None)
        else:
            self._failing_since.setdefault(service, self._clock())
            self._failures[service] = self._failures.get(service, 0) + 1
        after = self.seconds_away(service)
        if (before is None) != (after is None):
            log.warning("service.back" if after is None else "service.away", service=service)


async def _answers(ping: Ping) -> bool:
    try:
        async with asyncio.timeout(_PING_SECONDS):
            return await ping()
    except TimeoutError:
        return False
