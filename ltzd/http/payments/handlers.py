"""Checkout, payment mints and the payment provider's webhook, spec 4.1.

A checkout counts towards the limit of its address once its body is valid, since opening it costs
a call to the payment provider. A payment mint counts before its body is read.
"""

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import (
    BrandUnknown,
    Broken,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    MintPending,
    PaymentRefused,
    PaymentsUnavailable,
    RateLimited,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.payments.errors import PAYMENT_MINT_ERRORS
from ltzd.http.payments.models import (
    CreateCheckoutResponse,
    PaymentMintBody,
    PaymentMintResponse,
    PaymentWebhookResponse,
    checkout_request,
)
from ltzd.http.requests.idempotency_key import key_lines
from ltzd.http.requests.json_body import parse_object, read_body, read_json
from ltzd.http.requests.rate_limits import PerClientLimits, count_request
from ltzd.http.requests.validation_turns import ValidationTurns, are_slow
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import PaymentService
from ltzd.http.surface import API_PREFIX, Surface

CREATE_CHECKOUT = f"{API_PREFIX}/create-checkout"
PAYMENT_MINT = f"{API_PREFIX}/payment-mint"
PAYMENT_WEBHOOK = f"{API_PREFIX}/payment-webhook"

WEBHOOK_LIMIT = 262_144
"""Bytes of a webhook event of the payment provider."""

_RECEIVED = PaymentWebhookResponse().model_dump()


def surface(
    payments: PaymentService,
    limits: RateLimits,
    per_client: PerClientLimits,
    explorer_url: str | None,
) -> Surface:
    handlers = PaymentHandlers(payments, limits, per_client, explorer_url)
    blueprint = Blueprint("payments")
    # ignore_body: each handler reads the body, under a limit of its own.
    add_route(blueprint, handlers.create_checkout, CREATE_CHECKOUT, ["POST"], ignore_body=True)
    add_route(blueprint, handlers.payment_mint, PAYMENT_MINT, ["POST"], ignore_body=True)
    add_route(blueprint, handlers.payment_webhook, PAYMENT_WEBHOOK, ["POST"], ignore_body=True)
    return Surface(blueprint, ((PAYMENT_MINT, PAYMENT_MINT_ERRORS),))


class PaymentHandlers:
    def __init__(
        self,
        payments: PaymentService,
        limits: RateLimits,
        per_client: PerClientLimits,
        explorer_url: str | None,
    ) -> None:
        self._payments = payments
        self._limits = limits
        self._per_client = per_client
        self._explorer_url = explorer_url
        self._turns = ValidationTurns()

    @raises(
        BodyUnreadable,
        InvalidFields,
        BrandUnknown,
        IdempotencyKeyReused,
        BodyTooLarge,
        RateLimited,
        PaymentsUnavailable,
        IdentityUnavailable,
        Broken,
        DatabaseUnavailable,
    )
    async def create_checkout(self, request: Request) -> Reply:
        body = parse_object(await read_json(request))
        if are_slow(body.values()):
            await self._turns.take()
        checkout = checkout_request(body, key_lines(request))
        limit = self._per_client.checkouts
        await count_request(request, self._limits, limit, too_many_checkouts)
        session = await self._payments.open_checkout(checkout)
        return json_reply(CreateCheckoutResponse.body(session))

    @raises(
        BodyUnreadable,
        InvalidFields,
        PaymentRefused,
        BodyTooLarge,
        RateLimited,
        MintPending,
        PaymentsUnavailable,
        Broken,
        DatabaseUnavailable,
    )
    async def payment_mint(self, request: Request) -> Reply:
        """Spec 2.6: 200 once the mint is published."""
        limit = self._per_client.payment_mints
        await count_request(request, self._limits, limit, too_many_mints)
        body = PaymentMintBody.from_json(parse_object(await read_json(request)))
        minted = await self._payments.mint(body.session_id)
        return json_reply(PaymentMintResponse.body(minted, self._explorer_url))

    @raises(PaymentRefused, BodyTooLarge, PaymentsUnavailable, Broken, DatabaseUnavailable)
    async def payment_webhook(self, request: Request) -> Reply:
        """200 once the event's effects are committed. Otherwise the provider sends it again."""
        raw = await read_body(request, WEBHOOK_LIMIT)
        await self._payments.process_event(raw, _signature(request))
        return json_reply(_RECEIVED)


def too_many_checkouts(limit: RateLimit, seconds: int) -> RateLimited:
    return _too_many(limit, "checkouts", seconds)


def too_many_mints(limit: RateLimit, seconds: int) -> RateLimited:
    return _too_many(limit, "payment mints", seconds)


def _too_many(limit: RateLimit, things: str, seconds: int) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded: an address may ask for {limit.max_hits} {things} a minute; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )


def _signature(request: Request) -> str | None:
    lines = request.headers.getall("stripe-signature", ())
    if len(lines) > 1:
        raise PaymentRefused("Stripe-Signature: must be given once")
    return str(lines[0]) if lines else None
