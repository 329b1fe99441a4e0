"""Rate limits, counted in Redis, or in memory while Redis is unavailable.

A window is fixed: it begins with its first hit and ends `seconds` later. Refused hits count too.
Losing Redis makes limits looser and is never an error: a hit whose call fails is counted in this
process's memory, and one caller at a time tries Redis again after a pause.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
import structlog

from ltzd import telemetry
from ltzd.cache.memory_windows import MAX_WINDOWS, MemoryWindows
from ltzd.cache.redis_windows import FAILURES, RedisWindows
from ltzd.cache.windows import WindowCount, window_name

log = structlog.get_logger()

TIMEOUT_SECONDS = 0.25
RETRY_SECONDS = 3.0


class RateLimit(msgspec.Struct, frozen=True):
    """At most `max_hits` in `seconds`.

    `name` labels a metric and `seconds` selects a table: both are constants of the program.

    `max_hits` may change; the new value applies to windows that have begun, too.
    """

    name: str
    max_hits: int
    seconds: int


class RateLimitStatus(msgspec.Struct, frozen=True):
    """The window after a hit. `reset_at` is in Unix seconds."""

    is_within: bool
    limit: int
    remaining: int
    reset_at: float


class _Exhausted(msgspec.Struct, frozen=True):
    count: int
    ends_at: float


class RateLimits:
    """Counts in memory only if `redis_url` is None. Raises Misconfigured for an invalid URL.

    `max_remembered` bounds the exhausted windows that this process remembers.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        max_remembered: int = MAX_WINDOWS,
    ) -> None:
        self._redis = None if redis_url is None else RedisWindows(redis_url, timeout_seconds)
        self._memory = MemoryWindows()
        self._retry_seconds = retry_seconds
        self._max_remembered = max_remembered
        self._retry_at: float | None = None
        """The time of the next call to Redis, or None while Redis answers."""
        self._exhausted: OrderedDict[bytes, _Exhausted] = OrderedDict()

    async def __aenter__(self) -> Self:
        """Ping Redis, so that a wrong address is logged at the start."""
        if self._redis is not None:
            try:
                await self._redis.ping()
            except FAILURES as error:
                self._note_failure(error)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._redis is not None:
            try:
                await self._redis.close()
            except FAILURES as error:
                log.info("redis.not_closed", reason=_reason(error))

    @property
    def is_redis_away(self) -> bool:
        """Whether hits are counted in this process's memory because Redis does not answer."""
        return self._retry_at is not None

    async def watch(self, period_seconds: float = RETRY_SECONDS) -> None:
        """Ping Redis until cancelled, so that its state is known without any request."""
        while True:
            await asyncio.sleep(period_seconds)
            if self._redis is None:
                continue
            try:
                await self._redis.ping()
            except FAILURES as error:
                self._note_failure(error)
            else:
                self._note_success()

    async def hit(self, limit: RateLimit, *key: str) -> RateLimitStatus:
        """Count one hit of `key`. Refused hits count too, but do not lengthen the window."""
        name = window_name(limit.name, limit.seconds, key)
        counted = await self._count(name, limit.seconds)
        if counted.count >= limit.max_hits:
            self._remember(name, counted)
        is_within = counted.count <= limit.max_hits
        outcome = "within" if is_within else "over"
        telemetry.RATE_LIMIT_HITS.labels(limit.name, outcome).inc()
        return RateLimitStatus(
            is_within=is_within,
            limit=limit.max_hits,
            remaining=max(0, limit.max_hits - counted.count),
            reset_at=time.time() + counted.left_seconds,
        )

    def exhausted(self, limit: RateLimit, *key: str) -> RateLimitStatus | None:
        """The window, if this process knows that no hits are left in it.

        Counts no hit and does not ask Redis. Returns None while hits may be left.
        """
        exhausted = self._exhausted.get(window_name(limit.name, limit.seconds, key))
        left_seconds = 0.0 if exhausted is None else exhausted.ends_at - time.monotonic()
        if exhausted is None or left_seconds <= 0 or exhausted.count < limit.max_hits:
            return None
        telemetry.RATE_LIMIT_HITS.labels(limit.name, "over").inc()
        return RateLimitStatus(False, limit.max_hits, 0, time.time() + left_seconds)

    def _remember(self, name: bytes, counted: WindowCount) -> None:
        self._exhausted.pop(name, None)
        if len(self._exhausted) >= self._max_remembered:
            self._exhausted.popitem(last=False)
        self._exhausted[name] = _Exhausted(counted.count, time.monotonic() + counted.left_seconds)

    async def use_once(
        self, name: str, seconds: int, keys: Sequence[tuple[str, ...]]
    ) -> list[bool]:
        """Claim each key for `seconds`, all in one call; returns in order whether each was free.

        `name` labels a metric. A key is free if nobody has claimed it in the last `seconds`. While
        Redis is away, and after it has lost its data, the claims of this process still count.
        """
        names = [window_name(name, seconds, key) for key in keys]
        are_new = await self._claim(names, seconds)
        new = sum(are_new)
        telemetry.RATE_LIMIT_HITS.labels(name, "within").inc(new)
        telemetry.RATE_LIMIT_HITS.labels(name, "over").inc(len(are_new) - new)
        return are_new

    async def _claim(self, names: Sequence[bytes], seconds: int) -> list[bool]:
        are_new = [self._memory.hit(name, seconds).count == 1 for name in names]
        if self._redis is not None and self._take_attempt():
            try:
                are_new_there = await self._redis.use_once(names, seconds)
            except FAILURES as error:
                self._note_failure(error)
            else:
                self._note_success()
                return [here and there for here, there in zip(are_new, are_new_there, strict=True)]
        return are_new

    async def _count(self, name: bytes, seconds: int) -> WindowCount:
        if self._redis is None or not self._take_attempt():
            return self._memory.hit(name, seconds)
        try:
            counted = await self._redis.hit(name, seconds)
        except FAILURES as error:
            self._note_failure(error)
            return self._memory.hit(name, seconds)
        self._note_success()
        return counted

    def _take_attempt(self) -> bool:
        """Take the one attempt of each pause while Redis is away; return whether it was free."""
        if self._retry_at is None:
            return True
        now = time.monotonic()
        if now < self._retry_at:
            return False
        self._retry_at = now + self._retry_seconds
        return True

    def _note_failure(self, error: BaseException) -> None:
        telemetry.REDIS_ERRORS.inc()
        if self._retry_at is None:
            log.warning("redis.away", reason=_reason(error))
            telemetry.REDIS_UNAVAILABLE.set(1)
        self._retry_at = time.monotonic() + self._retry_seconds

    def _note_success(self) -> None:
        if self._retry_at is not None:
            log.info("redis.back")
            telemetry.REDIS_UNAVAILABLE.set(0)
            self._retry_at = None


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
