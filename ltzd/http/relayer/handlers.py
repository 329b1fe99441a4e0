"""The relayer's surface, spec 4.2: /relay and what became of a relay, at the root.

Checks come in one order: the address's limit, Origin, JSON, token, fields, and then those of
`actions/relayer/relayer.py`. Every answer below /relay, also of what no route takes, shows a rate
window in X-RateLimit headers: the address's until the user's own is known.
"""

import math
import re
import time
from dataclasses import replace

from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.relayer.relayer import failure_of
from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.errors import NotFound, RateLimited, Unauthorized, ValidationFailed
from ltzd.http.errors import path_of
from ltzd.http.relayer.models import RelayedAnswer, relay_request
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.cors import LINKS_PATH, Cors
from ltzd.http.requests.json_body import parsed, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Relays
from ltzd.rules.relayer.calls import RelayStatus, RelayWindow
from ltzd.values import Hash32, hash_of

PATH = "/relay"

BODY_LIMIT = 65_536
"""Bytes: twice the longest data in hex, with room for the rest."""

REQUESTS_PER_CLIENT = RateLimit("relay_ip", 100, 60)
"""Spec 8: API requests to relayer."""

COUNTED_PATHS = (PATH, LINKS_PATH)
"""Every request to these paths counts in the limit of its address, broken ones too."""
_BELOW_COUNTED = tuple(f"{path}/" for path in COUNTED_PATHS)
_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *")
_HASH = re.compile(r"0x[0-9A-Fa-f]{64}")


def surface(relays: Relays, cors: Cors, explorer_url: str | None) -> Blueprint:
    handlers = RelayerSurface(relays, cors, explorer_url)
    blueprint = Blueprint("relayer")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.relay, PATH, ["POST"], ignore_body=True)
    blueprint.add_route(handlers.status, f"{PATH}/<transaction_hash:str>", ["GET", "HEAD"])
    return blueprint


class RelayerSurface:
    def __init__(self, relays: Relays, cors: Cors, explorer_url: str | None) -> None:
        self._relays = relays
        self._cors = cors
        self._explorer_url = explorer_url

    async def relay(self, request: Request) -> Reply:
        """Spec 4.2: 200 once it is one block deep, 202 if that takes too long."""
        refuse_foreign_origin(request, self._cors)
        body = parsed(await read_json(request, BODY_LIMIT))
        user = await self._relays.user_of(bearer_token(request))
        asked = replace(relay_request(body, _key_headers(request)), speaker=user)
        standing = await self._relays.standing(user, asked)
        request.ctx.window = standing.window()
        answer = await self._relays.submit(asked, standing)
        request.ctx.window = answer.window
        relayed = answer.relayed
        if relayed.status is RelayStatus.FAILED:
            raise failure_of(relayed)
        if relayed.status is RelayStatus.FINAL:
            # A key's replay long after: spec 2.7 knows one word for what is done.
            relayed = replace(relayed, status=RelayStatus.CONFIRMED)
        status = 202 if relayed.status is RelayStatus.PENDING else 200
        return json_reply(RelayedAnswer.body(relayed, self._explorer_url), status)

    async def status(self, request: Request, transaction_hash: str) -> Reply:
        """200 whatever became of it."""
        refuse_foreign_origin(request, self._cors)
        user = await self._relays.user_of(bearer_token(request))
        answer = await self._relays.find(user, _hash(transaction_hash))
        request.ctx.window = answer.window
        return json_reply(RelayedAnswer.body(answer.relayed, self._explorer_url))


class ClientLimit:
    """The relayer's limit of an address (spec 8).

    A request below `COUNTED_PATHS` counts before anything is looked at, broken and unknown ones
    too. Where only some requests count, their handler calls `count`.
    """

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits

    def counts(self, request: Request) -> bool:
        """No preflight, and nothing twice: Sanic starts again with what broke on its way."""
        path = path_of(request)
        is_ours = path in COUNTED_PATHS or path.startswith(_BELOW_COUNTED)
        return is_ours and request.method != "OPTIONS" and not hasattr(request.ctx, "window")

    async def count(self, request: Request) -> None:
        """Raises RateLimited."""
        window = await self._limits.hit(REQUESTS_PER_CLIENT, client_network(request))
        request.ctx.window = window
        if window.is_within:
            return
        seconds = max(1, math.ceil(window.reset_at - time.time()))
        raise RateLimited(
            "Rate limit exceeded",
            message=f"An address may ask {window.limit} times a minute; "
            f"try again in {seconds} seconds",
            limit=window.limit,
            retryAfterSeconds=seconds,
        )


def window_headers(window: RateLimitStatus | RelayWindow) -> dict[str, str]:
    """Spec 8: the reset is in Unix seconds."""
    return {
        "X-RateLimit-Limit": str(window.limit),
        "X-RateLimit-Remaining": str(window.remaining),
        "X-RateLimit-Reset": str(math.ceil(window.reset_at)),
    }


def refuse_foreign_origin(request: Request, cors: Cors) -> None:
    """Spec 5. Programs send none; a browser's page cannot leave it out. Raises ValidationFailed."""
    if not all(cors.grants(origin) for origin in request.headers.getall("origin", ())):
        raise ValidationFailed("Origin not allowed")


def bearer_token(request: Request) -> str:
    """The token as it came, of the right form only. Raises Unauthorized."""
    given = request.headers.getall("authorization", ())
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if match is None:
        raise Unauthorized("Authorization must be given once, as Bearer and a token")
    return match[1]


def _key_headers(request: Request) -> list[str]:
    return [line.strip(" \t") for line in request.headers.getall("idempotency-key", ())]


def _hash(text: str) -> Hash32:
    if not _HASH.fullmatch(text):
        raise NotFound("Relay not found")
    return hash_of(text)
