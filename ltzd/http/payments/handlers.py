"""Checkout, payment mints and the payment provider's events, spec 4.1 and 2.5 to 2.6.

A checkout counts for its address once it is well-formed: from there on others are asked. A payment
mint counts before it is read, since each may be a question to the payment provider. Payment mints
answer in an envelope of their own (spec 7.4), whatever goes wrong.
"""

import math
import time

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import PaymentRefused, RateLimited
from ltzd.http.errors import PAYMENT_MINT
from ltzd.http.event_handler.handlers import PREFIX
from ltzd.http.payments.models import (
    CheckoutAnswer,
    EventReceived,
    PaidSession,
    PaymentMintAnswer,
    checkout_request,
)
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.json_body import parsed, read_body, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Payments

CHECKOUT = f"{PREFIX}/create-checkout"
WEBHOOK = f"{PREFIX}/payment-webhook"

WEBHOOK_LIMIT = 262_144
"""Bytes of an event (choices.md, Payments)."""

CHECKOUTS_PER_CLIENT = RateLimit("checkout_ip", 600, 60)
"""A brand's server may open all of its customers' checkouts from one address."""

MINTS_PER_CLIENT = RateLimit("payment_mint_ip", 120, 60)
"""Of all requests (choices.md, Transport and other limits)."""

_RECEIVED = EventReceived().model_dump()


def surface(payments: Payments, limits: RateLimits, explorer_url: str | None) -> Blueprint:
    handlers = PaymentsSurface(payments, limits, explorer_url)
    blueprint = Blueprint("payments")
    # ignore_body: the handlers read it, each under its own limit.
    blueprint.add_route(handlers.create_checkout, CHECKOUT, ["POST"], ignore_body=True)
    blueprint.add_route(handlers.payment_mint, PAYMENT_MINT, ["POST"], ignore_body=True)
    blueprint.add_route(handlers.payment_webhook, WEBHOOK, ["POST"], ignore_body=True)
    return blueprint


class PaymentsSurface:
    def __init__(self, payments: Payments, limits: RateLimits, explorer_url: str | None) -> None:
        self._payments = payments
        self._limits = limits
        self._explorer_url = explorer_url

    async def create_checkout(self, request: Request) -> Reply:
        keys = [line.strip(" \t") for line in request.headers.getall("idempotency-key", ())]
        asked = checkout_request(parsed(await read_json(request)), keys)
        await self._count(request, CHECKOUTS_PER_CLIENT, "checkouts")
        return json_reply(CheckoutAnswer.body(await self._payments.open_checkout(asked)))

    async def payment_mint(self, request: Request) -> Reply:
        """Spec 2.6: 200 once the mint is published."""
        await self._count(request, MINTS_PER_CLIENT, "payment mints")
        asked = PaidSession.from_json(parsed(await read_json(request)))
        minted = await self._payments.mint(asked.session_id)
        return json_reply(PaymentMintAnswer.body(minted, self._explorer_url))

    async def payment_webhook(self, request: Request) -> Reply:
        """200 once what the event asks for is committed; else the provider sends it again."""
        raw = await read_body(request, WEBHOOK_LIMIT)
        await self._payments.hear(raw, _signature(request))
        return json_reply(_RECEIVED)

    async def _count(self, request: Request, limit: RateLimit, things: str) -> None:
        """Raises RateLimited."""
        window = await self._limits.hit(limit, client_network(request))
        request.ctx.window = window
        if not window.is_within:
            raise too_many(limit, things, max(1, math.ceil(window.reset_at - time.time())))


def too_many(limit: RateLimit, things: str, seconds: int) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded: an address may ask for {limit.max_hits} {things} a minute; "
        f"try again in {seconds} seconds",
        limit=limit.max_hits,
        retryAfterSeconds=seconds,
    )


def _signature(request: Request) -> str | None:
    given = request.headers.getall("stripe-signature", ())
    if len(given) > 1:
        raise PaymentRefused("Stripe-Signature: must be given once")
    return str(given[0]) if given else None
