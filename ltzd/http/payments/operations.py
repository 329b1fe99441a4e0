"""Checkout, payment mints and the payment webhook as the OpenAPI document describes them."""

from msgspec.structs import replace

from ltzd.actions.payments import MintedPayment
from ltzd.errors import InvalidFields, PaymentRefused
from ltzd.http.event_handler.errors import ERRORS
from ltzd.http.openapi.operations import (
    IDEMPOTENCY_KEY,
    Operation,
    Parameter,
    RateWindow,
    Response,
)
from ltzd.http.payments.errors import PAYMENT_MINT_ERRORS
from ltzd.http.payments.handlers import (
    CREATE_CHECKOUT,
    PAYMENT_MINT,
    PAYMENT_WEBHOOK,
    WEBHOOK_LIMIT,
    PaymentHandlers,
    too_many_checkouts,
    too_many_mints,
)
from ltzd.http.payments.models import (
    CreateCheckoutBody,
    CreateCheckoutResponse,
    PaymentMintBody,
    PaymentMintResponse,
    PaymentWebhookBody,
    PaymentWebhookResponse,
)
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.providers.checkouts import CheckoutPage
from ltzd.rules.payments.sessions import LEAST_CENTS, MOST_CENTS, Payment, not_found, refused_refund
from ltzd.values import Hash32, address_of

_SESSION = "cs_test_a1B2c3D4e5F6g7H8i9J0"
_BRAND = "0x" + "ab" * 20
_SUCCESS_URL = "https://shop.example/thanks?session={CHECKOUT_SESSION_ID}"
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
_CHECKOUT = {
    "brandId": _BRAND,
    "amount": 500,
    "userEmail": "ada@example.com",
    "successUrl": _SUCCESS_URL,
    "cancelUrl": "https://shop.example/cart",
}
_PAID_EVENT = {
    "id": "evt_1Q2w3E4r5T6y7U8i",
    "object": "event",
    "type": "checkout.session.completed",
    "data": {
        "object": {"id": _SESSION, "object": "checkout.session", "payment_status": "paid"},
    },
}


OPERATIONS = (
    Operation(
        PaymentHandlers.create_checkout,
        "POST",
        CREATE_CHECKOUT,
        "Open a checkout session in which a user buys LTZ",
        request=CreateCheckoutBody,
        request_examples={"five dollars": _CHECKOUT},
        parameters=(IDEMPOTENCY_KEY,),
        success={
            200: Response(
                "Opened. The same idempotency key and body return the same session",
                CreateCheckoutResponse,
                {
                    "opened": CreateCheckoutResponse.body(
                        CheckoutPage(_SESSION, f"https://pay.example/{_SESSION}")
                    )
                },
            ),
        },
        errors=ERRORS,
        error_examples={
            "invalid fields": InvalidFields(
                [
                    f"amount: must be a whole number of cents from {LEAST_CENTS} to {MOST_CENTS}",
                    "userEmail: is required",
                ]
            ),
            "over the mint limit": InvalidFields(
                ["amount: buys more LTZ than can be minted at once; at most 1000000 cents"]
            ),
            "too many checkouts": too_many_checkouts(PER_CLIENT.checkouts, 42),
        },
        rate_window=RateWindow(
            "Checkouts of an address a minute, once the body is valid",
            frozenset({200, 400, 403, 409, 429, 500, 503}),
        ),
    ),
    Operation(
        PaymentHandlers.payment_mint,
        "POST",
        PAYMENT_MINT,
        "Mint the LTZ of a paid checkout session. A repeated request does not mint again",
        request=PaymentMintBody,
        request_examples={"a session": {"sessionId": _SESSION}},
        success={
            200: Response(
                "Minted, now or before",
                PaymentMintResponse,
                {
                    "minted": PaymentMintResponse.body(_MINTED, _EXPLORER),
                    "already processed": PaymentMintResponse.body(
                        replace(_MINTED, already_processed=True), _EXPLORER
                    ),
                },
            ),
        },
        errors=PAYMENT_MINT_ERRORS,
        error_examples={
            "not found": not_found(),
            "not completed": PaymentRefused("Payment not completed"),
            "refunded": refused_refund(),
            "invalid fields": InvalidFields(["sessionId: is required"]),
            "too many mints": too_many_mints(PER_CLIENT.payment_mints, 42),
        },
        rate_window=RateWindow("Payment mints of an address a minute"),
    ),
    Operation(
        PaymentHandlers.payment_webhook,
        "POST",
        PAYMENT_WEBHOOK,
        "Receive the payment provider's signed events: paid sessions, refunds and disputes",
        request=PaymentWebhookBody,
        request_examples={"a paid session": _PAID_EVENT},
        parameters=(Parameter("Stripe-Signature", "header", {"type": "string"}),),
        success={
            200: Response(
                "The event's effects are committed, or it has none",
                PaymentWebhookResponse,
                {"received": PaymentWebhookResponse().model_dump()},
            ),
        },
        errors=ERRORS,
        error_examples={
            "not signed": PaymentRefused("Stripe-Signature: must be given once"),
            "malformed": PaymentRefused("The event is malformed: it is not JSON"),
        },
        body_limit=WEBHOOK_LIMIT,
    ),
)
