"""Counts requests in the limit of their client address.

The window that was counted last is kept in `request.ctx.window`; the application's middleware
shows it in the X-RateLimit headers of the response.
"""

import math
import time
from collections.abc import Callable

import msgspec
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.errors import RateLimited
from ltzd.http.requests.client_address import client_network
from ltzd.rules.relayer.calls import RelayWindow


class PerClientLimits(msgspec.Struct, frozen=True):
    """The limits of one client address, by what is counted."""

    relayer: RateLimit
    """Requests to the relayer (spec 8), to site links, and to perk charges without a signature."""
    keyless_invalidations: RateLimit
    domain_verifications: RateLimit
    checkouts: RateLimit
    """High, since a brand's server may open all of its customers' checkouts from one address."""
    payment_mints: RateLimit
    pregenerations: RateLimit
    """Requests for all brands; the brand's own limits are checked later."""


PER_CLIENT = PerClientLimits(
    relayer=RateLimit("relay_ip", 100, 60),
    keyless_invalidations=RateLimit("invalidate_ip", 60, 60),
    domain_verifications=RateLimit("verify_dns_ip", 300, 60),
    checkouts=RateLimit("checkout_ip", 600, 60),
    payment_mints=RateLimit("payment_mint_ip", 120, 60),
    pregenerations=RateLimit("pregenerate_ip", 200, 60),
)


async def count_request(
    request: Request,
    limits: RateLimits,
    limit: RateLimit,
    exceeded: Callable[[RateLimit, int], RateLimited],
) -> None:
    """Count the request for its address, and show the window in the response.

    Raises what `exceeded` makes of the limit and the seconds until the window ends.
    """
    window = await limits.hit(limit, client_network(request))
    request.ctx.window = window
    if not window.is_within:
        refusal = exceeded(limit, seconds_left(window))
        refusal.reset_at = window.reset_at
        raise refusal


def address_limit_exceeded(limit: RateLimit, seconds: int) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded: an address may ask {limit.max_hits} times a minute; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )


def seconds_left(window: RateLimitStatus) -> int:
    """Whole seconds until the window ends, at least 1."""
    return max(1, math.ceil(window.reset_at - time.time()))


def window_headers(window: RateLimitStatus | RelayWindow) -> dict[str, str]:
    """Spec 8: the reset is in Unix seconds."""
    return {
        "X-RateLimit-Limit": str(window.limit),
        "X-RateLimit-Remaining": str(window.remaining),
        "X-RateLimit-Reset": str(math.ceil(window.reset_at)),
    }
