"""The two invalidation endpoints of purchase constraints, spec 4.3.

The form at the root may do without a key, so many times a minute for an address; the other may not.
Checks come in one order: that limit, size and JSON, the key, fields.
"""

import math
import time
from typing import Any

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import (
    DatabaseUnavailable,
    InvalidFields,
    LtzdError,
    MissingFields,
    RateLimited,
    Refused,
    Unauthorized,
)
from ltzd.http.constraints.models import Invalidation, InvalidationAnswer, InvalidationRefusal
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, answer_of, invalidation_envelope
from ltzd.http.openapi.operations import AnswerHeader, Operation, Parameter
from ltzd.http.relayer.handlers import bearer_token
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT, parsed, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Constraints

PATH = "/invalidate-external-api"
KEYED_PATH = f"/constraint-updater{PATH}"

KEYLESS_PER_CLIENT = RateLimit("invalidate_ip", 60, 60)


def surface(constraints: Constraints, limits: RateLimits) -> Blueprint:
    handlers = ConstraintsSurface(constraints, limits)
    blueprint = Blueprint("constraints")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.invalidate, PATH, ["POST"], ignore_body=True)
    blueprint.add_route(handlers.invalidate_keyed, KEYED_PATH, ["POST"], ignore_body=True)
    return blueprint


class ConstraintsSurface:
    def __init__(self, constraints: Constraints, limits: RateLimits) -> None:
        self._constraints = constraints
        self._limits = limits

    async def invalidate(self, request: Request) -> Reply:
        """Without a key the results of whoever has this URL go."""
        has_key = "authorization" in request.headers
        if not has_key:
            await self._count(request)
        body = parsed(await read_json(request))
        return await self._answer(bearer_token(request) if has_key else None, body)

    async def invalidate_keyed(self, request: Request) -> Reply:
        body = parsed(await read_json(request))
        return await self._answer(bearer_token(request), body)

    async def _answer(self, key: str | None, body: dict[str, Any]) -> Reply:
        asked = await self._asked(key, body)
        count = await self._constraints.invalidate(
            key, asked.api_url, asked.user, asked.collection_id
        )
        return json_reply(InvalidationAnswer.body(count))

    async def _asked(self, key: str | None, body: dict[str, Any]) -> Invalidation:
        """Raises Unauthorized before MissingFields and InvalidFields."""
        try:
            return Invalidation.from_json(body)
        except Refused:
            # No constraint has the empty URL, so nothing but the key is looked at.
            await self._constraints.invalidate(key, "", None, None)
            raise

    async def _count(self, request: Request) -> None:
        """Every request without a key, broken ones too. Raises RateLimited."""
        window = await self._limits.hit(KEYLESS_PER_CLIENT, client_network(request))
        request.ctx.window = window
        if not window.is_within:
            raise _too_many(max(1, math.ceil(window.reset_at - time.time())))


def _too_many(seconds: int) -> RateLimited:
    most = KEYLESS_PER_CLIENT.max_hits
    return RateLimited(
        f"Rate limit exceeded: without a key an address may ask {most} times a minute; "
        f"try again in {seconds} seconds",
        limit=most,
        retryAfterSeconds=seconds,
    )


def _refusals(**examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(answer.status, {})
        of_status[name.replace("_", " ")] = invalidation_envelope(answer)
    return by_status


_REQUEST = {
    "api_url": "https://api.example/check?user={user_address}",
    "user_address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "collection_id": 7,
}

_EXAMPLES = {
    200: {"invalidated": InvalidationAnswer.body(3), "nothing there": InvalidationAnswer.body(0)},
    **_refusals(
        missing_field=MissingFields(["api_url"]),
        invalid_fields=InvalidFields(
            ["user_address: must be an address, 0x and 40 hex digits"],
        ),
        unreadable_body=BodyUnreadable("Content-Type must be application/json"),
        wrong_key=Unauthorized("The API key is not valid"),
        body_too_large=BodyTooLarge(f"Request body is larger than {EVENT_HANDLER_LIMIT} bytes"),
        internal_error=LtzdError(""),
        database_away=DatabaseUnavailable(""),
    ),
}
_ANSWERS: dict[int, tuple[str, Any]] = {
    200: ("How many cached results are gone, also if none", InvalidationAnswer),
    400: ("Unreadable body, missing or invalid fields", InvalidationRefusal),
    401: ("No API key where one is needed, or a wrong one", InvalidationRefusal),
    413: (f"Body over {EVENT_HANDLER_LIMIT:,} bytes", InvalidationRefusal),
    429: ("Too many requests of the address without a key", InvalidationRefusal),
    500: ("An internal error", InvalidationRefusal),
    503: ("Database unavailable", InvalidationRefusal),
}
_LIMITED = {**_EXAMPLES, **_refusals(too_many=_too_many(42))}
_CHALLENGE = AnswerHeader("WWW-Authenticate", "Bearer", {"type": "string"}, frozenset({401}))
_WAIT = AnswerHeader(
    "Retry-After", "Seconds until the window ends", {"type": "integer"}, frozenset({429})
)


def _key(*, required: bool) -> Parameter:
    return Parameter("Authorization", "header", {"type": "string"}, required)


OPERATIONS = (
    Operation(
        "POST",
        PATH,
        "Forget what a constraint's API said; with a brand's API key (Authorization: Bearer) only "
        "for the brand's own constraints",
        request=Invalidation,
        request_examples={"one user": _REQUEST, "everybody": {"api_url": _REQUEST["api_url"]}},
        parameters=(_key(required=False),),
        answers=_ANSWERS,
        examples=_LIMITED,
        headers=(_CHALLENGE, _WAIT),
    ),
    Operation(
        "POST",
        KEYED_PATH,
        "The same; a brand's API key is required",
        request=Invalidation,
        request_examples={"one user": _REQUEST},
        parameters=(_key(required=True),),
        answers={status: said for status, said in _ANSWERS.items() if status != 429},
        examples=_EXAMPLES,
        headers=(_CHALLENGE,),
    ),
)
