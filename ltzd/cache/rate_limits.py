"""How often somebody may do something, counted in Redis, or in memory while Redis is away.

A window is fixed: it begins with its first hit and ends `seconds` later, and refused hits count
too. Losing Redis makes limits looser, never an error: a hit whose call fails is counted in this
process's memory at once, and Redis is tried again after a pause, by one caller at a time.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from ltzd import telemetry
from ltzd.cache.memory_windows import MAX_WINDOWS, MemoryWindows
from ltzd.cache.redis_windows import FAILURES, RedisWindows
from ltzd.cache.windows import WindowCount, window_name
from ltzd.concurrency.clock import Clock

log = structlog.get_logger()

TIMEOUT_SECONDS = 0.25
RETRY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`name` labels a metric and `seconds` a table, so both come from closed sets of the code's.

    `most` may change: it holds at once, for windows under way too.
    """

    name: str
    max_hits: int
    seconds: int


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """What a hit found. `reset_at` is in Unix seconds."""

    is_within: bool
    limit: int
    remaining: int
    reset_at: float


@dataclass(frozen=True, slots=True)
class _Spent:
    count: int
    ends_at: float


class RateLimits:
    """Raises Misconfigured for a URL that Redis cannot have. None: memory only."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._redis = None if redis_url is None else RedisWindows(redis_url, timeout_seconds)
        self._memory = MemoryWindows(clock)
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._retry_at: float | None = None
        """None while Redis is well."""
        self._spent: OrderedDict[bytes, _Spent] = OrderedDict()

    async def __aenter__(self) -> Self:
        """Ask Redis once, so that a wrong address is in the log from the start."""
        if self._redis is not None:
            try:
                await self._redis.ping()
            except FAILURES as error:
                self._failed(error)
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

    async def hit(self, limit: RateLimit, *key: str) -> RateLimitStatus:
        """Count one more for `key`; refused hits count too, but lengthen nothing."""
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
        """A window of which this process knows that nothing is left. Counts nothing, asks nobody.

        None while there may be something left: the next hit tells.
        """
        exhausted = self._spent.get(window_name(limit.name, limit.seconds, key))
        left_seconds = 0.0 if exhausted is None else exhausted.ends_at - self._clock()
        if exhausted is None or left_seconds <= 0 or exhausted.count < limit.max_hits:
            return None
        telemetry.RATE_LIMIT_HITS.labels(limit.name, "over").inc()
        return RateLimitStatus(False, limit.max_hits, 0, time.time() + left_seconds)

    def _remember(self, name: bytes, counted: WindowCount) -> None:
        self._spent.pop(name, None)
        if len(self._spent) >= MAX_WINDOWS:
            self._spent.popitem(last=False)
        self._spent[name] = _Spent(counted.count, self._clock() + counted.left_seconds)

    async def use_once(
        self, name: str, seconds: int, keys: Sequence[tuple[str, ...]]
    ) -> list[bool]:
        """Use each key up for so long, all in one call; of each whether it was new."""
        names = [window_name(name, seconds, key) for key in keys]
        are_new = await self._spend(names, seconds)
        fresh = sum(are_new)
        telemetry.RATE_LIMIT_HITS.labels(name, "within").inc(fresh)
        telemetry.RATE_LIMIT_HITS.labels(name, "over").inc(len(are_new) - fresh)
        return are_new

    async def _spend(self, names: Sequence[bytes], seconds: int) -> list[bool]:
        if self._redis is not None and self._may_ask():
            try:
                are_new = await self._redis.use_once(names, seconds)
            except FAILURES as error:
                self._failed(error)
            else:
                self._answered()
                return are_new
        return [self._memory.hit(name, seconds).count == 1 for name in names]

    async def _count(self, name: bytes, seconds: int) -> WindowCount:
        if self._redis is None or not self._may_ask():
            return self._memory.hit(name, seconds)
        try:
            counted = await self._redis.hit(name, seconds)
        except FAILURES as error:
            self._failed(error)
            return self._memory.hit(name, seconds)
        self._answered()
        return counted

    def _may_ask(self) -> bool:
        """While Redis is away, who comes when the pause is over tries, and no one waits for him."""
        if self._retry_at is None:
            return True
        now = self._clock()
        if now < self._retry_at:
            return False
        self._retry_at = now + self._retry_seconds
        return True

    def _failed(self, error: BaseException) -> None:
        telemetry.REDIS_ERRORS.inc()
        if self._retry_at is None:
            log.warning("redis.away", reason=_reason(error))
            telemetry.REDIS_UNAVAILABLE.set(1)
        self._retry_at = self._clock() + self._retry_seconds

    def _answered(self) -> None:
        if self._retry_at is not None:
            log.info("redis.back")
            telemetry.REDIS_UNAVAILABLE.set(0)
            self._retry_at = None


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
