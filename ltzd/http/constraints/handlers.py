"""The two invalidation endpoints of purchase constraints, spec 4.3.

The endpoint at the root works without an API key, under a limit per address; the other requires
one. Checks run in this order: that limit, body size and JSON, the key, fields.
"""

from typing import Any

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import (
    Broken,
    DatabaseUnavailable,
    InvalidFields,
    MissingFields,
    RateLimited,
    Refused,
    Unauthorized,
)
from ltzd.http.constraints.errors import ERRORS
from ltzd.http.constraints.models import InvalidateCacheBody, InvalidateCacheResponse
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.requests.authorization import bearer_token
from ltzd.http.requests.json_body import parse_object, read_json
from ltzd.http.requests.rate_limits import count_request
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import ConstraintService
from ltzd.http.surface import Surface

PATH = "/invalidate-external-api"
KEYED_PREFIX = "/constraint-updater"
KEYED_PATH = f"{KEYED_PREFIX}{PATH}"

KEYED_ERRORS = (
    BodyUnreadable,
    MissingFields,
    InvalidFields,
    Unauthorized,
    BodyTooLarge,
    Broken,
    DatabaseUnavailable,
)


def surface(
    constraints: ConstraintService, limits: RateLimits, keyless_limit: RateLimit
) -> Surface:
    handlers = ConstraintHandlers(constraints, limits, keyless_limit)
    blueprint = Blueprint("constraints")
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.invalidate, PATH, ["POST"], ignore_body=True)
    add_route(blueprint, handlers.invalidate_keyed, KEYED_PATH, ["POST"], ignore_body=True)
    return Surface(blueprint, ((PATH, ERRORS), (KEYED_PREFIX, ERRORS)))


class ConstraintHandlers:
    def __init__(
        self, constraints: ConstraintService, limits: RateLimits, keyless_limit: RateLimit
    ) -> None:
        self._constraints = constraints
        self._limits = limits
        self._keyless_limit = keyless_limit

    @raises(*KEYED_ERRORS, RateLimited)
    async def invalidate(self, request: Request) -> Reply:
        """Without a key, invalidates the results of every brand's constraint with this URL."""
        has_key = "authorization" in request.headers
        if not has_key:
            limit = self._keyless_limit
            await count_request(request, self._limits, limit, keyless_limit_exceeded)
        body = parse_object(await read_json(request))
        return await self._invalidate(bearer_token(request) if has_key else None, body)

    @raises(*KEYED_ERRORS)
    async def invalidate_keyed(self, request: Request) -> Reply:
        body = parse_object(await read_json(request))
        return await self._invalidate(bearer_token(request), body)

    async def _invalidate(self, key: str | None, body: dict[str, Any]) -> Reply:
        cache = await self._validate(key, body)
        count = await self._constraints.invalidate(
            key, cache.api_url, cache.user, cache.collection_id
        )
        return json_reply(InvalidateCacheResponse.body(count))

    async def _validate(self, key: str | None, body: dict[str, Any]) -> InvalidateCacheBody:
        """Raises Unauthorized before MissingFields and InvalidFields."""
        try:
            return InvalidateCacheBody.from_json(body)
        except Refused:
            # No constraint has the empty URL: this call only checks the key.
            await self._constraints.invalidate(key, "", None, None)
            raise


def keyless_limit_exceeded(limit: RateLimit, seconds: int) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded: without a key an address may ask {limit.max_hits} times a minute; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )
