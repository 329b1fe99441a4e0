"""POST /service-api/pregenerate-user, spec 4.5: an account's wallet before its owner logs in.

Checks come in one order: the address's limit, size and JSON, missing fields, types, the provider,
the form of the id, the brand, its signature where there is one, its limits, and then those of
`actions/pregeneration.py`. So every well-formed request of a known brand counts for the brand,
whatever becomes of it, and every answer to one shows a window of the brand. What is signed wrongly
counts for nobody but its address.
"""

import math
import time

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import RateLimited
from ltzd.http.errors import PREGENERATION
from ltzd.http.pregeneration.models import PregeneratedAnswer, PregenerationOrder
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.json_body import parsed, read_json
from ltzd.http.requests.signature_headers import signed_of
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Pregeneration

REQUESTS_PER_CLIENT = RateLimit("pregenerate_ip", 200, 60)
"""Of all requests, before the brand's own limits (choices.md, Transport and other limits)."""


def surface(pregeneration: Pregeneration, limits: RateLimits) -> Blueprint:
    handlers = PregenerationSurface(pregeneration, limits)
    blueprint = Blueprint("pregeneration")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.pregenerate, PREGENERATION, ["POST"], ignore_body=True)
    return blueprint


class PregenerationSurface:
    def __init__(self, pregeneration: Pregeneration, limits: RateLimits) -> None:
        self._pregeneration = pregeneration
        self._limits = limits

    async def pregenerate(self, request: Request) -> Reply:
        await self._count(request)
        raw = await read_json(request)
        asked = PregenerationOrder.from_json(parsed(raw)).asked()
        request.ctx.window = await self._pregeneration.admit(
            asked.brand_id, signed_of(request, raw)
        )
        recorded = await self._pregeneration.pregenerate(asked)
        return json_reply(PregeneratedAnswer.body(asked.account, recorded))

    async def _count(self, request: Request) -> None:
        """Shows its window only when that is spent. Raises RateLimited."""
        window = await self._limits.hit(REQUESTS_PER_CLIENT, client_network(request))
        if not window.is_within:
            raise too_many(max(1, math.ceil(window.reset_at - time.time())))


def too_many(seconds: int) -> RateLimited:
    most = REQUESTS_PER_CLIENT.max_hits
    return RateLimited(
        f"Rate limit exceeded: an address may ask {most} times a minute; "
        f"try again in {seconds} seconds",
        limit=most,
        retryAfterSeconds=seconds,
    )
