"""Fixed windows in Redis, shared by all processes; a hit is one call of a script.

The `limits` library needs three calls for the count and the end of the window. A call that times
out has failed, although Redis may have counted its hit.
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
_PROBE = PREFIX + b"probe"
"""A key that is never set."""
CONNECTIONS = 16

FAILURES = (RedisError, OSError, RuntimeError)
"""Errors of a call. uvloop raises RuntimeError if a connection closes during a write."""

_HIT_SCRIPT = """
local count = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    left = tonumber(ARGV[1])
end
return {count, left}
"""


# Returns the indexes of the keys that existed, which is almost always an empty list.
_CLAIM_SCRIPT = """
local existing = {}
for index, key in ipairs(KEYS) do
    if not redis.call('SET', key, 1, 'NX', 'PX', ARGV[1]) then
        existing[#existing + 1] = index
    end
end
return existing
"""


class RedisWindows:
    """Connects at the first call. Raises Misconfigured for an invalid URL."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._patience_seconds = timeout_seconds
        # The annotations of redis-py are incomplete.
        self._redis: Any = Redis.from_pool(_pool(url))
        self._hit_script = self._redis.register_script(_HIT_SCRIPT)
        self._claim_script = self._redis.register_script(_CLAIM_SCRIPT)

    async def ping(self) -> None:
        """Asks for a write: a replica that is not promoted answers PING, and refuses every hit."""
        async with asyncio.timeout(self._patience_seconds):
            await self._redis.delete(_PROBE)

    async def hit(self, name: bytes, seconds: int) -> WindowCount:
        async with asyncio.timeout(self._patience_seconds):
            count, left_ms = await self._hit_script(keys=[PREFIX + name], args=[seconds * 1000])
        return WindowCount(count, left_ms / 1000)

    async def use_once(self, names: Sequence[bytes], seconds: int) -> list[bool]:
        """Claims the names for `seconds`; returns of each, in order, whether it was free."""
        keys = [PREFIX + name for name in names]
        async with asyncio.timeout(self._patience_seconds):
            existing = await self._claim_script(keys=keys, args=[seconds * 1000])
        return [index not in existing for index in range(1, len(keys) + 1)]

    async def close(self) -> None:
        await self._redis.aclose()


def _pool(url: str) -> Any:
    try:
        pool: Any = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, retry=Retry(NoBackoff(), 0)
        )
        pool.make_connection()  # Refuses unknown options, and connects nothing.
    except (ValueError, TypeError, RedisError) as error:
        raise Misconfigured("redis_url has an option that Redis does not know.") from error
    return pool
