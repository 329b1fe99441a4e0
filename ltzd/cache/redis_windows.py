"""Fixed windows in Redis, shared by every process: one script call a hit.

The `limits` library needs three calls for what the script answers in one: the count and the
window's end. A call that outlasts our patience has failed, though its hit may count all the same.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from ltzd.cache.windows import WindowCount
from ltzd.errors import Misconfigured

PREFIX = b"ltzd:rl:"
CONNECTIONS = 16

FAILURES = (RedisError, OSError, RuntimeError)
"""How a call fails. uvloop says RuntimeError for a connection that closes under a write."""

_SCRIPT = """
local count = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    left = tonumber(ARGV[1])
end
return {count, left}
"""


# Answers the places of the keys that were there already: nearly always none.
_SPEND_SCRIPT = """
local spent = {}
for at, key in ipairs(KEYS) do
    if not redis.call('SET', key, 1, 'NX', 'PX', ARGV[1]) then
        spent[#spent + 1] = at
    end
end
return spent
"""


class RedisWindows:
    """Raises Misconfigured for a URL that Redis cannot have; connects at the first call."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._patience_seconds = timeout_seconds
        # Its own annotations are incomplete.
        self._redis: Any = Redis.from_pool(_pool(url))
        self._script = self._redis.register_script(_SCRIPT)
        self._spend_script = self._redis.register_script(_SPEND_SCRIPT)

    async def ping(self) -> None:
        async with asyncio.timeout(self._patience_seconds):
            await self._redis.ping()

    async def hit(self, name: bytes, seconds: int) -> WindowCount:
        async with asyncio.timeout(self._patience_seconds):
            count, left_ms = await self._script(keys=[PREFIX + name], args=[seconds * 1000])
        return WindowCount(count, left_ms / 1000)

    async def use_once(self, names: Sequence[bytes], seconds: int) -> list[bool]:
        """Of each whether it was new, in their order; then none is for so long."""
        keys = [PREFIX + name for name in names]
        async with asyncio.timeout(self._patience_seconds):
            exhausted = await self._spend_script(keys=keys, args=[seconds * 1000])
        return [place not in exhausted for place in range(1, len(keys) + 1)]

    async def close(self) -> None:
        await self._redis.aclose()


def _pool(url: str) -> Any:
    try:
        pool: Any = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, retry=Retry(NoBackoff(), 0)
        )
        pool.make_connection()  # which connects nothing, but refuses options that do not exist
    except (ValueError, TypeError, RedisError) as error:
        raise Misconfigured("redis_url has an option that Redis does not know.") from error
    return pool
