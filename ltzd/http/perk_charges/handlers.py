"""The perk charge endpoints, spec 4.2: for brands' servers, at the root.

Checks come in one order: the body's size, the signature over the request as it came, JSON, fields,
and then those of `actions/perk_charges.py`. Once its signature is good, a read has used up its
nonce, and so has a redemption together with what it does. A request that is not signed rightly
counts in the relayer's limit of its address; no other counts, or is refused for it.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.perk_charges import SignedReader
from ltzd.errors import Refused, SignatureRefused
from ltzd.http.perk_charges.models import (
    HoldersQuery,
    PerkHoldersAnswer,
    PerkRedemption,
    PerkStatusAnswer,
    RedeemedAnswer,
    StatusQuery,
)
from ltzd.http.relayer.handlers import ClientLimit
from ltzd.http.requests.json_body import parsed, read_body, refuse_what_is_not_json
from ltzd.http.requests.signature_headers import is_signed, signed_of
from ltzd.http.responses import JSON, Reply, encoded, json_reply
from ltzd.http.services import PerkCharges
from ltzd.store.indexer.tokens import TokenPage
from ltzd.values import Address

REDEEM = "/redeem-perk"
STATUS = "/check-perk-status"
HOLDERS = "/list-perk-holders"

BODY_LIMIT = 65_536
"""Bytes, as for /relay."""

READ = ("GET", "HEAD")

Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Reply]]
Query = TypeVar("Query", StatusQuery, HoldersQuery)


def surface(charges: PerkCharges, client_limit: ClientLimit) -> Blueprint:
    handlers = PerkChargesSurface(charges)
    blueprint = Blueprint("perk_charges")
    # ignore_body: `read_body` reads it, of reading requests too, since a signature covers it.
    for path, methods, handler in (
        (REDEEM, ("POST",), handlers.redeem),
        (STATUS, READ, handlers.status),
        (HOLDERS, READ, handlers.holders),
    ):
        limited = _limited(handler, client_limit)
        blueprint.add_route(limited, path, methods, name=handler.__name__, ignore_body=True)
    return blueprint


def _limited(handler: Handler, client_limit: ClientLimit) -> Handler:
    """The handler, with requests that are not signed rightly counted: without any signature
    before their body is read, with a wrong one once that is known."""

    async def limited(request: Request) -> Reply:
        if not is_signed(request):
            await client_limit.count(request)
            return await handler(request)
        try:
            return await handler(request)
        except SignatureRefused:
            await client_limit.count(request)
            raise

    return limited


class PerkChargesSurface:
    def __init__(self, charges: PerkCharges) -> None:
        self._charges = charges
        # Of pages that are kept: most of an answer's cost is in writing it.
        self._bodies: WeakKeyDictionary[TokenPage, bytes] = WeakKeyDictionary()

    async def redeem(self, request: Request) -> Reply:
        """200 once it is one block deep, 202 if that takes too long."""
        raw = await read_body(request, BODY_LIMIT)
        brand, nonce = await self._caller(request, raw)
        refuse_what_is_not_json(request)
        asked = PerkRedemption.from_json(parsed(raw)).asked(brand, nonce)
        redeemed = await self._charges.redeem(asked)
        status = 202 if redeemed.redemption.succeeded is None else 200
        return json_reply(RedeemedAnswer.body(redeemed), status)

    async def status(self, request: Request) -> Reply:
        reader, query = await self._asked(request, StatusQuery)
        token, as_of = await self._charges.token(reader, query.collection_id, query.token_id)
        return json_reply(PerkStatusAnswer.body(token, as_of))

    async def holders(self, request: Request) -> Reply:
        reader, query = await self._asked(request, HoldersQuery)
        # One more than is shown tells whether another page follows.
        page = await self._charges.holders(
            reader, query.collection_id, query.cursor, query.limit + 1
        )
        body = self._bodies.get(page)
        if body is None:
            body = self._bodies[page] = encoded(PerkHoldersAnswer.body(query, page))
        return Reply(body, content_type=JSON)

    async def _asked(self, request: Request, kind: type[Query]) -> tuple[SignedReader, Query]:
        """Who asks, and what; a bad query spends the nonce, too."""
        raw = await read_body(request, BODY_LIMIT)
        reader = SignedReader(*await self._caller(request, raw))
        try:
            return reader, kind.from_text(request.query_string)
        except Refused:
            await self._charges.spend(reader)
            raise

    async def _caller(self, request: Request, raw: bytes) -> tuple[Address, str]:
        """The brand that signed, and its nonce. Raises SignatureRefused."""
        signed = signed_of(request, raw)
        brand = await self._charges.brand_of(signed)
        assert signed is not None, "what is not signed is refused"
        return brand, signed.nonce
