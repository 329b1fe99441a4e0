"""The perk charge endpoints, spec 4.2: for brands' servers, at the root.

Checks run in this order: the body's size, the signature over the bytes of the request, its nonce,
JSON, fields, and then the checks of `actions/perk_charges.py`. A correctly signed request spends
its nonce in any case; a redemption does so once more in the transaction that redeems. A request
whose signature is incorrect, or was not verified since its body did not arrive whole, counts
towards the relayer's limit of its address; other requests do not.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from sanic import Blueprint
from sanic.exceptions import RequestTimeout
from sanic.request import Request

from ltzd.actions.perk_charges import SignedCaller
from ltzd.errors import (
    Broken,
    BudgetExhausted,
    CollectionNotFound,
    DatabaseUnavailable,
    HolderChanged,
    IdempotencyKeyReused,
    InvalidFields,
    MissingFields,
    NoChargesRemaining,
    NodeUnavailable,
    OutcomeUnknown,
    RateLimited,
    Refused,
    RelayPending,
    SignatureRefused,
    TokenNotFound,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.perk_charges.models import (
    CheckPerkStatusQuery,
    CheckPerkStatusResponse,
    ListPerkHoldersQuery,
    ListPerkHoldersResponse,
    RedeemPerkBody,
    RedeemPerkResponse,
    TokenQuery,
)
from ltzd.http.relayer.address_limit import AddressLimit
from ltzd.http.requests.json_body import parse_object, read_body, require_json
from ltzd.http.requests.signature_headers import is_signed, signed_request_of
from ltzd.http.responses import JSON, Reply, encoded, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import PerkChargeService
from ltzd.http.surface import READ_METHODS, Surface
from ltzd.store.indexer.tokens import TokenPage

REDEEM = "/redeem-perk"
STATUS = "/check-perk-status"
HOLDERS = "/list-perk-holders"

BODY_LIMIT = 65_536
"""Bytes, as for /relay."""

Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Reply]]
Query = TypeVar("Query", TokenQuery, ListPerkHoldersQuery)

READ_ERRORS = (
    MissingFields,
    InvalidFields,
    SignatureRefused,
    ValidationFailed,
    CollectionNotFound,
    BodyTooLarge,
    RateLimited,
    Broken,
    DatabaseUnavailable,
)


def surface(charges: PerkChargeService, address_limit: AddressLimit) -> Surface:
    handlers = PerkChargeHandlers(charges)
    blueprint = Blueprint("perk_charges")
    # ignore_body: `read_body` reads it, of GET requests too, since the signature covers it.
    for path, methods, handler in (
        (REDEEM, ("POST",), handlers.redeem),
        (STATUS, READ_METHODS, handlers.status),
        (HOLDERS, READ_METHODS, handlers.holders),
    ):
        limited = _limited(handler, address_limit)
        add_route(blueprint, limited, path, methods, name=handler.__name__, ignore_body=True)
    return Surface(blueprint)


def _limited(handler: Handler, address_limit: AddressLimit) -> Handler:
    """Count requests without a correct signature.

    An unsigned request counts before its body is read, a wrongly signed one once that is known. A
    body that is too large or too slow is refused before its signature can be verified.
    """

    async def limited(request: Request) -> Reply:
        if not is_signed(request):
            await address_limit.count(request)
            return await handler(request)
        try:
            return await handler(request)
        except (SignatureRefused, BodyTooLarge, RequestTimeout):
            await address_limit.count(request)
            raise

    return limited


class PerkChargeHandlers:
    def __init__(self, charges: PerkChargeService) -> None:
        self._charges = charges
        # Encoding is most of the cost of a list. The action caches pages, so this caches bodies.
        self._bodies: WeakKeyDictionary[TokenPage, bytes] = WeakKeyDictionary()

    @raises(
        *READ_ERRORS,
        BodyUnreadable,
        TokenNotFound,
        NoChargesRemaining,
        HolderChanged,
        IdempotencyKeyReused,
        BudgetExhausted,
        TransactionFailed,
        NodeUnavailable,
        Unavailable,
        OutcomeUnknown,
        RelayPending,
    )
    async def redeem(self, request: Request) -> Reply:
        """200 once the redemption is one block deep, 202 if that takes too long."""
        raw = await read_body(request, BODY_LIMIT)
        caller = await self._authenticate(request, raw)
        await self._charges.spend(caller)
        require_json(request)
        body = RedeemPerkBody.from_json(parse_object(raw))
        redemption = body.to_request(caller.brand, caller.nonce)
        redeemed = await self._charges.redeem(redemption)
        status = 202 if redeemed.redemption.succeeded is None else 200
        return json_reply(RedeemPerkResponse.body(redeemed), status)

    @raises(*READ_ERRORS, TokenNotFound)
    async def status(self, request: Request) -> Reply:
        caller, query = await self._read_query(request, CheckPerkStatusQuery.from_text)
        token, as_of = await self._charges.token(caller, query.collection_id, query.token_id)
        return json_reply(CheckPerkStatusResponse.body(token, as_of))

    @raises(*READ_ERRORS)
    async def holders(self, request: Request) -> Reply:
        caller, query = await self._read_query(request, ListPerkHoldersQuery.from_text)
        # One token more than the page shows: it tells whether another page follows.
        page = await self._charges.holders(
            caller, query.collection_id, query.cursor, query.limit + 1
        )
        body = self._bodies.get(page)
        if body is None:
            body = self._bodies[page] = encoded(ListPerkHoldersResponse.body(query, page))
        return Reply(body, content_type=JSON)

    async def _read_query(
        self, request: Request, query_of: Callable[[str], Query]
    ) -> tuple[SignedCaller, Query]:
        """The caller and its query. An invalid query spends the nonce too."""
        raw = await read_body(request, BODY_LIMIT)
        caller = await self._authenticate(request, raw)
        try:
            return caller, query_of(request.query_string)
        except Refused:
            await self._charges.spend(caller)
            raise

    async def _authenticate(self, request: Request, raw: bytes) -> SignedCaller:
        """The brand that signed the request, and the unspent nonce. Raises SignatureRefused."""
        signed = signed_request_of(request, raw)
        brand = await self._charges.brand_of(signed)
        assert signed is not None, "brand_of refuses an unsigned request"
        return SignedCaller(brand, signed.nonce)
