"""The relayer's limit of requests per client address (spec 8)."""

from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import RateLimited
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
        path = path_of(request)
        is_covered = path in self._paths or path.startswith(self._prefixes)
        return is_covered and request.method != "OPTIONS" and not hasattr(request.ctx, "window")

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
