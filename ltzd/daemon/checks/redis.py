"""The check of Redis, which counts rate limits for all processes together."""

from collections.abc import Sequence
from contextlib import suppress

from redis.exceptions import ResponseError

from ltzd.cache.redis_windows import FAILURES, RedisWindows
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import Misconfigured
from ltzd.rules.checks.findings import Finding, fault, ok, warning
from ltzd.store.connection_errors import reason_of

_SECONDS = 2.0


async def examine(settings: Settings) -> Sequence[Finding]:
    """Whether Redis counts hits as it does for requests; nothing is stored.

    Only the role `http` uses Redis, and starts without it, so an absent Redis is no fault.
    """
    if settings.redis_url is None or "http" not in settings.roles:
        return []
    try:
        windows = RedisWindows(settings.redis_url.get_secret_value(), _SECONDS)
    except Misconfigured as error:
        return [fault("redis", error.message)]
    evicted = 0
    try:
        await windows.ping()
        with suppress(ResponseError):  # The user of ltzd may not ask.
            evicted = await windows.evicted_keys()
    except FAILURES as error:
        sentence = (
            f"Redis counts no rate limits ({_reason(error)}): correct it or redis_url, since each "
            "process counts by itself meanwhile, and N processes admit up to N times as much."
        )
        return [warning("redis", sentence)]
    finally:
        await windows.close()
    if evicted:
        sentence = (
            f"Redis has deleted {evicted} keys for lack of memory since its start, and may delete "
            "ltzd's: a limit then counts from 0 again, and a signed read can be repeated at "
            "another process. Raise maxmemory, or give ltzd a Redis that no other program fills."
        )
        return [warning("redis", sentence)]
    return [ok("redis", "Redis counts rate limits.")]


def _reason(error: BaseException) -> str:
    """The system's reason, which redis-py puts into words of its own, or that of Redis."""
    system = error if isinstance(error, OSError) else error.__context__
    return reason_of(system) if isinstance(system, OSError) else str(error)[:200].rstrip(".")
