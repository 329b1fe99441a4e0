"""The relayer's limit of requests per client address (spec 8)."""

import time

from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.errors import LtzdError, RateLimited
from ltzd.http.errors import path_of
from ltzd.http.requests.rate_limits import count_request


class AddressLimit:
    """Counts every request at or below `paths` before it is read, malformed ones included.

    A handler elsewhere that counts only some of its requests calls `count` itself.
    """

    def __init__(self, limits: RateLimits, paths: tuple[str, ...], limit: RateLimit) -> None:
        self._limits = limits
        self._limit = limit
        self._paths = frozenset(paths)
        self._prefixes = tuple(f"{path}/" for path in paths)

    def applies_to(self, request: Request) -> bool:
        """False for a preflight, and for a request that was counted.

        Sanic runs the request middleware again for a request that failed before its handler.
        """
        is_covered = self._covers(path_of(request))
        return is_covered and request.method != "OPTIONS" and not hasattr(request.ctx, "window")

    def _covers(self, path: str) -> bool:
        return path in self._paths or path.startswith(self._prefixes)

    def busy_window(self, path: str, refusal: LtzdError) -> RateLimitStatus | None:
        """The window of a request that a busy process refused uncounted, or None for another path.

        Nothing remains until the caller may try again.
        """
        seconds = refusal.details.get("retryAfterSeconds")
        if not self._covers(path) or not isinstance(seconds, int):
            return None
        return RateLimitStatus(
            is_within=False,
            limit=self._limit.max_hits,
            remaining=0,
            reset_at=time.time() + seconds,
        )

    async def count(self, request: Request) -> None:
        """Raises RateLimited."""
        await count_request(request, self._limits, self._limit, too_many_requests)


def too_many_requests(limit: RateLimit, seconds: int) -> RateLimited:
    return RateLimited(
        "Rate limit exceeded",
        message=f"An address may ask {limit.max_hits} times a minute; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )
