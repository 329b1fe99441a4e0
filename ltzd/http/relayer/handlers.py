"""The relayer's endpoints, spec 4.2: /relay and the state of a relay, at the root.

Checks run in this order: the limit of the address, Origin, JSON, token, fields, and then the checks
of `actions/relayer/relayer.py`. Every response at or below /relay, 404s included, shows a rate
window in X-RateLimit headers: the address's until the user is known, then the user's.
"""

import re

from msgspec.structs import replace
from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.relayer.outcomes import failure_of
from ltzd.errors import (
    Broken,
    ClaimLimitReached,
    ContractNotWhitelisted,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    MissingFields,
    NodeUnavailable,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    RelayPending,
    TransactionFailed,
    Unauthorized,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.relayer.models import RelayResponse, relay_request
from ltzd.http.requests.authorization import bearer_token
from ltzd.http.requests.cors import Cors
from ltzd.http.requests.idempotency_key import key_lines
from ltzd.http.requests.json_body import parse_object, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import RelayService
from ltzd.http.surface import READ_METHODS, Surface
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.values import Hash32, hash_of

PATH = "/relay"

BODY_LIMIT = 65_536
"""Bytes: twice the longest data in hex, with room for the other fields."""

_HASH = re.compile(r"0x[0-9A-Fa-f]{64}")


def surface(relays: RelayService, cors: Cors, explorer_url: str | None) -> Surface:
    handlers = RelayHandlers(relays, cors, explorer_url)
    blueprint = Blueprint("relayer")
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.relay, PATH, ["POST"], ignore_body=True)
    add_route(blueprint, handlers.status, f"{PATH}/<transaction_hash:str>", READ_METHODS)
    return Surface(blueprint)


class RelayHandlers:
    def __init__(self, relays: RelayService, cors: Cors, explorer_url: str | None) -> None:
        self._relays = relays
        self._cors = cors
        self._explorer_url = explorer_url

    @raises(
        BodyUnreadable,
        MissingFields,
        InvalidFields,
        Unauthorized,
        ContractNotWhitelisted,
        ValidationFailed,
        ClaimLimitReached,
        IdempotencyKeyReused,
        BodyTooLarge,
        RateLimited,
        TransactionFailed,
        IdentityUnavailable,
        Broken,
        DatabaseUnavailable,
        NodeUnavailable,
        Unavailable,
        OutcomeUnknown,
        RelayPending,
    )
    async def relay(self, request: Request) -> Reply:
        """200 once the transaction is one block deep, 202 if that takes too long."""
        self._cors.refuse_foreign_origin(request)
        body = parse_object(await read_json(request, BODY_LIMIT))
        user = await self._relays.user_of(bearer_token(request))
        requested = relay_request(body, key_lines(request))
        begun = await self._relays.begin(user, requested)
        request.ctx.window = begun.window()
        relay, request.ctx.window = await self._relays.submit(user, requested, begun)
        if relay.status is RelayStatus.FAILED:
            raise failure_of(relay)
        if relay.status is RelayStatus.FINAL:
            # An idempotent replay after finality: spec 2.7 has only `confirmed` here.
            relay = replace(relay, status=RelayStatus.CONFIRMED)
        status = 202 if relay.status is RelayStatus.PENDING else 200
        return json_reply(RelayResponse.body(relay, self._explorer_url), status)

    @raises(
        Unauthorized,
        ValidationFailed,
        NotFound,
        RateLimited,
        IdentityUnavailable,
        Broken,
        DatabaseUnavailable,
    )
    async def status(self, request: Request, transaction_hash: str) -> Reply:
        """200 also for a relay that failed."""
        self._cors.refuse_foreign_origin(request)
        user = await self._relays.user_of(bearer_token(request))
        relay, request.ctx.window = await self._relays.find(user, _hash(transaction_hash))
        return json_reply(RelayResponse.body(relay, self._explorer_url))


def _hash(text: str) -> Hash32:
    if not _HASH.fullmatch(text):
        raise NotFound("Relay not found")
    return hash_of(text)
