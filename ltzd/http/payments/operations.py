"""How checkout, payment mints and the provider's events are described to the OpenAPI document, each
answer with an example.

Examples are made by the code that answers.
"""

from dataclasses import replace

from ltzd.actions.payments import MintedPayment
from ltzd.errors import (
    BrandUnknown,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    LtzdError,
    MintPending,
    PaymentRefused,
    PaymentsUnavailable,
)
from ltzd.http.errors import (
    PAYMENT_MINT,
    BodyTooLarge,
    BodyUnreadable,
    answer_of,
    envelope_of,
)
from ltzd.http.event_handler.models import Refusal
from ltzd.http.openapi.operations import AnswerHeader, Examples, Operation, Parameter
from ltzd.http.payments.handlers import (
    CHECKOUT,
    CHECKOUTS_PER_CLIENT,
    MINTS_PER_CLIENT,
    WEBHOOK,
    WEBHOOK_LIMIT,
    too_many,
)
from ltzd.http.payments.models import (
    CheckoutAnswer,
    CheckoutOrder,
    EventReceived,
    PaidSession,
    PaymentMintAnswer,
    PaymentMintRefusal,
    ProviderEvent,
)
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.providers.payments import CheckoutPage
from ltzd.rules.payments import LEAST_CENTS, MOST_CENTS, Payment, not_found, refused_refund
from ltzd.values import Hash32, address_of

_SESSION = "cs_test_a1B2c3D4e5F6g7H8i9J0"
_BRAND = "0x" + "ab" * 20
_URL = "https://shop.example/thanks?session={CHECKOUT_SESSION_ID}"
_EXPLORER = "https://explorer.example"

_MINTED = MintedPayment(
    Payment(
        _SESSION,
        address_of(_BRAND),
        address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
        500,
        "pi_3Q2w1E4r5T6y7U8i",
    ),
    Hash32(b"\x22" * 32),
    already_processed=False,
)
_ORDER = {
    "brandId": _BRAND,
    "amount": 500,
    "userEmail": "ada@example.com",
    "successUrl": _URL,
    "cancelUrl": "https://shop.example/cart",
}
_PAID = {
    "id": "evt_1Q2w3E4r5T6y7U8i",
    "object": "event",
    "type": "checkout.session.completed",
    "data": {
        "object": {"id": _SESSION, "object": "checkout.session", "payment_status": "paid"},
    },
}


def _refusals(path: str, **examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(answer.status, {})
        of_status[name.replace("_", " ")] = envelope_of(path)(answer)
    return by_status


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"Request body is larger than {limit} bytes", maxBytes=limit)


_CHECKOUT_EXAMPLES: dict[int, Examples] = {
    200: {"opened": CheckoutAnswer.body(CheckoutPage(_SESSION, f"https://pay.example/{_SESSION}"))},
    **_refusals(
        CHECKOUT,
        invalid_fields=InvalidFields(
            [
                f"amount: must be a whole number of cents from {LEAST_CENTS} to {MOST_CENTS}",
                "userEmail: is required",
            ]
        ),
        beyond_the_mint_limit=InvalidFields(
            ["amount: buys more LTZ than can be minted at once; at most 1000000 cents"]
        ),
        unreadable_body=BodyUnreadable("Content-Type must be application/json"),
        unknown_brand=BrandUnknown("Unknown brand"),
        another_body=IdempotencyKeyReused("This idempotency key came with another request before"),
        body_too_large=_too_large(EVENT_HANDLER_LIMIT),
        too_many=too_many(CHECKOUTS_PER_CLIENT, "checkouts", 42),
        provider_away=PaymentsUnavailable(""),
        identity_provider_away=IdentityUnavailable(""),
        internal_error=LtzdError(""),
        database_away=DatabaseUnavailable(""),
    ),
}
_MINT_EXAMPLES: dict[int, Examples] = {
    200: {
        "minted": PaymentMintAnswer.body(_MINTED, _EXPLORER),
        "already processed": PaymentMintAnswer.body(
            replace(_MINTED, already_processed=True), _EXPLORER
        ),
    },
    **_refusals(
        PAYMENT_MINT,
        not_found=not_found(),
        not_completed=PaymentRefused("Payment not completed"),
        refunded=refused_refund(),
        invalid_fields=InvalidFields(["sessionId: is required"]),
        unreadable_body=BodyUnreadable("Content-Type must be application/json"),
        body_too_large=_too_large(EVENT_HANDLER_LIMIT),
        too_many=too_many(MINTS_PER_CLIENT, "payment mints", 42),
        mint_pending=MintPending(""),
        provider_away=PaymentsUnavailable(""),
        internal_error=LtzdError(""),
        database_away=DatabaseUnavailable(""),
    ),
}
_WEBHOOK_EXAMPLES: dict[int, Examples] = {
    200: {"received": EventReceived().model_dump()},
    **_refusals(
        WEBHOOK,
        not_signed=PaymentRefused("Stripe-Signature: must be given once"),
        malformed=PaymentRefused("The event is malformed: it is not JSON"),
        body_too_large=_too_large(WEBHOOK_LIMIT),
        provider_away=PaymentsUnavailable(""),
        internal_error=LtzdError(""),
        database_away=DatabaseUnavailable(""),
    ),
}


def _window(statuses: frozenset[int] | None) -> tuple[AnswerHeader, ...]:
    return tuple(
        AnswerHeader(name, description, {"type": "integer"}, statuses)
        for name, description in (
            ("X-RateLimit-Limit", "How many an address may ask for a minute"),
            ("X-RateLimit-Remaining", "How many of them are left"),
            ("X-RateLimit-Reset", "Unix seconds when the window ends"),
        )
    )


_WAIT = AnswerHeader(
    "Retry-After", "Seconds until the window ends", {"type": "integer"}, frozenset({429})
)

OPERATIONS = (
    Operation(
        "POST",
        CHECKOUT,
        "Open a checkout session in which a user buys LTZ",
        request=CheckoutOrder,
        request_examples={"five dollars": _ORDER},
        parameters=(
            Parameter(
                "Idempotency-Key",
                "header",
                {"type": "string", "minLength": 1, "maxLength": 255},
                required=False,
            ),
        ),
        answers={
            200: ("Opened; the same for the same idempotency key and body", CheckoutAnswer),
            400: ("Unreadable body, invalid fields, or more than can be minted at once", Refusal),
            403: ("Unknown brand", Refusal),
            409: ("The idempotency key came with another body before", Refusal),
            413: (f"Body over {EVENT_HANDLER_LIMIT:,} bytes", Refusal),
            429: ("Too many checkouts of the address, or new wallets of the brand", Refusal),
            500: ("Payment or identity provider unavailable, or an internal error", Refusal),
            503: ("Database unavailable", Refusal),
        },
        examples=_CHECKOUT_EXAMPLES,
        headers=(*_window(frozenset({200, 403, 409, 429})), _WAIT),
    ),
    Operation(
        "POST",
        PAYMENT_MINT,
        "Mint the LTZ of a paid checkout session, once however often it is asked for",
        request=PaidSession,
        request_examples={"a session": {"sessionId": _SESSION}},
        answers={
            200: ("Minted, now or before", PaymentMintAnswer),
            400: ("Not a session that is minted, and why", PaymentMintRefusal),
            413: (f"Body over {EVENT_HANDLER_LIMIT:,} bytes", PaymentMintRefusal),
            429: ("Too many requests of the address", PaymentMintRefusal),
            500: ("Ask again: not published yet, or provider unavailable", PaymentMintRefusal),
            503: ("Database unavailable", PaymentMintRefusal),
        },
        examples=_MINT_EXAMPLES,
        headers=(*_window(None), _WAIT),
    ),
    Operation(
        "POST",
        WEBHOOK,
        "The payment provider's signed events: paid sessions, refunds and disputes",
        request=ProviderEvent,
        request_examples={"a paid session": _PAID},
        parameters=(Parameter("Stripe-Signature", "header", {"type": "string"}),),
        answers={
            200: ("Done and committed, or nothing to do", EventReceived),
            400: ("Not signed by the provider within 300 seconds, or no event", Refusal),
            413: (f"Body over {WEBHOOK_LIMIT:,} bytes", Refusal),
            500: ("Payment provider unavailable, or an internal error: send it again", Refusal),
            503: ("Database unavailable: send it again", Refusal),
        },
        examples=_WEBHOOK_EXAMPLES,
    ),
)
