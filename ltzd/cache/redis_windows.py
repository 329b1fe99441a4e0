"""Fixed windows in Redis, shared by all processes; a hit is one call of a script.

The `limits` library needs three calls for the count and the end of the window. Hits that come while
calls are under way share the next call: redis-py takes longer for a call than Redis does. A call
that times out has failed, although Redis may have counted its hits.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from ltzd.cache.windows import WindowCount
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.futures import complete
from ltzd.errors import Misconfigured

PREFIX = b"ltzd:rl:"
_PROBES = (PREFIX + b"probe|1", PREFIX + b"probe|2")
"""Keys that are never set. A Redis Cluster keeps them in two slots, as it does most windows."""
CONNECTIONS = 16

_ALONE = 2
"""Up to this number of hits under way, each hit has a call of its own."""
_Hit = tuple[bytes, int]
"""A window's name, and its seconds."""

FAILURES = (RedisError, OSError, RuntimeError)
"""Errors of a call. uvloop raises RuntimeError if a connection closes during a write."""

_HIT_SCRIPT = """
local counts = {}
for index, key in ipairs(KEYS) do
    local count = redis.call('INCR', key)
    local left = redis.call('PTTL', key)
    if left < 0 then
        redis.call('PEXPIRE', key, ARGV[index])
        left = tonumber(ARGV[index])
    end
    counts[2 * index - 1], counts[2 * index] = count, left
end
return counts
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

_PROBE_SCRIPT = """
for _, key in ipairs(KEYS) do
    redis.call('SET', key, '', 'XX')
end
"""


class RedisWindows:
    """Connects at the first call. Raises Misconfigured for an invalid URL.

    A call that fails raises one of FAILURES, or TimeoutError (an OSError) after `timeout_seconds`.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        # The annotations of redis-py are incomplete.
        self._redis: Any = Redis.from_pool(_pool(url))
        self._hit_script = self._redis.register_script(_HIT_SCRIPT)
        self._claim_script = self._redis.register_script(_CLAIM_SCRIPT)
        self._probe_script = self._redis.register_script(_PROBE_SCRIPT)
        # The URL may have another bound than CONNECTIONS.
        self._free = asyncio.Semaphore(self._redis.connection_pool.max_connections)
        self._connections: list[Any] = []
        """All of them, of which some may be closed."""
        self._idle: list[Any] = []
        self._hits: Batcher[_Hit, WindowCount] = Batcher(self._hit_all)
        self._under_way = 0

    async def ping(self) -> None:
        """Run a script that writes two keys and needs memory, as hits do.

        A replica that is not promoted answers PING, a Redis whose memory is full deletes keys, and
        a user without the right to scripts sets them, but all of them refuse every hit. A Redis
        Cluster refuses most.
        """
        async with asyncio.timeout(self._timeout_seconds):
            await self._run(self._probe_script, _PROBES, [])

    async def evicted_keys(self) -> int:
        """How many keys Redis has deleted since its start for lack of memory, of all programs.

        Raises RedisError if ltzd's user may not ask.
        """
        async with asyncio.timeout(self._timeout_seconds):
            stats = await self._redis.info("stats")
        return int(stats.get("evicted_keys", 0))

    async def hit(self, name: bytes, seconds: int) -> WindowCount:
        self._under_way += 1
        try:
            if self._under_way <= _ALONE:
                return (await self._hit_all([(name, seconds)]))[0]
            return await self._hit_with_others(name, seconds)
        finally:
            self._under_way -= 1

    async def _hit_with_others(self, name: bytes, seconds: int) -> WindowCount:
        hit = self._hits.begin((name, seconds))
        # A bare timer, since asyncio.timeout takes as long as the rest of a hit.
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._timeout_seconds, complete, hit, TimeoutError())
        try:
            return await hit
        finally:
            timer.cancel()

    async def _hit_all(self, hits: Sequence[_Hit]) -> list[WindowCount]:
        async with asyncio.timeout(self._timeout_seconds):
            return await self._call(hits)

    async def _call(self, hits: Sequence[_Hit]) -> list[WindowCount]:
        keys = [PREFIX + name for name, _ in hits]
        answer = await self._run(self._hit_script, keys, [seconds * 1000 for _, seconds in hits])
        return [
            WindowCount(count, left_ms / 1000)
            for count, left_ms in zip(answer[::2], answer[1::2], strict=True)
        ]

    async def use_once(self, names: Sequence[bytes], seconds: int) -> list[bool]:
        """Claim each name for `seconds`; returns in their order whether each was free."""
        keys = [PREFIX + name for name in names]
        async with asyncio.timeout(self._timeout_seconds):
            existing = await self._run(self._claim_script, keys, [seconds * 1000])
        return [index not in existing for index in range(1, len(keys) + 1)]

    async def _run(self, script: Any, keys: Sequence[bytes], arguments: Sequence[int]) -> Any:
        """Run a script on an idle connection, which closes itself if the call fails.

        The client's own call takes twice as long: it can retry, and measures for its own metrics.
        So does taking a connection from its pool, and giving it back.
        """
        pool = self._redis.connection_pool
        async with self._free:
            if not self._idle:
                self._connections.append(pool.make_connection())
                self._idle.append(self._connections[-1])
            connection = self._idle.pop()
            try:
                await pool.ensure_connection(connection)
                return await _evaluate(connection, script, keys, arguments)
            except ResponseError:
                await connection.disconnect(nowait=True)
                await self._close_idle()
                raise
            finally:
                self._idle.append(connection)

    async def _close_idle(self) -> None:
        """Let later calls connect anew, perhaps to another server.

        After a failover the demoted server may live on as a replica, which refuses all hits and
        closes no connection, while the URL's name leads to the new primary.
        """
        for connection in self._idle:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.disconnect()
        await self._redis.aclose()


async def _evaluate(
    connection: Any, script: Any, keys: Sequence[bytes], arguments: Sequence[int]
) -> Any:
    call = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
    try:
        return await _answer(connection, *call)
    except NoScriptError:  # the first call, or Redis has restarted
        await _answer(connection, "SCRIPT LOAD", script.script)
        return await _answer(connection, *call)


async def _answer(connection: Any, *command: Any) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()


def _pool(url: str) -> Any:
    try:
        pool: Any = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, retry=Retry(NoBackoff(), 0)
        )
        pool.make_connection()  # Refuses unknown options, and connects nothing.
    except (ValueError, TypeError, RedisError) as error:
        raise Misconfigured("redis_url has an option that Redis does not know.") from error
    return pool
