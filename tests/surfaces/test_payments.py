"""Checkout, payment mints and the payment webhook over HTTP: the tables of spec 2.5, 2.6, 7.4."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import requests
from msgspec.structs import replace
from schemathesis import GenerationMode

from ltzd.cache.rate_limits import RateLimit
from ltzd.errors import (
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    MintPending,
    PaymentRefused,
    PaymentsUnavailable,
)
from ltzd.http.event_handler.errors import EventHandlerError
from ltzd.http.payments.errors import PaymentMintError
from ltzd.http.payments.handlers import (
    CREATE_CHECKOUT,
    PAYMENT_MINT,
    PAYMENT_WEBHOOK,
    WEBHOOK_LIMIT,
)
from ltzd.http.payments.models import (
    CreateCheckoutBody,
    CreateCheckoutResponse,
    PaymentMintBody,
    PaymentMintResponse,
    PaymentWebhookResponse,
)
from ltzd.http.payments.operations import OPERATIONS
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.services import HttpPolicy
from ltzd.rules.payments.sessions import refused_refund
from ltzd.values import address_of
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    CHECKSUMMED_WALLET,
    MINT,
    RunningSurfaces,
    a_payment,
    a_surface,
)
from tests.support.surfaces.json_response import WINDOW, JsonResponse
from tests.support.surfaces.openapi import assert_examples_fit, assert_headers_described
from tests.surfaces.test_openapi import made_calls

EXPLORER = "https://explorer.example"
GOOD: dict[str, object] = {
    "brandId": BRAND_ID,
    "amount": 500,
    "userEmail": "ada@example.com",
    "successUrl": "https://shop.example/thanks?s={CHECKOUT_SESSION_ID}",
    "cancelUrl": "http://localhost:3000/cart",
}


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface(HttpPolicy(grace_seconds=2.0, explorer_url=EXPLORER)) as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_payments()
    return running


@dataclass(frozen=True)
class PaymentResponse(JsonResponse):
    @property
    def faults(self) -> tuple[int, list[str]]:
        return self.status, self.body["details"]["errors"]


MODELS: dict[str, tuple[Any, Any]] = {
    CREATE_CHECKOUT: (CreateCheckoutResponse, EventHandlerError),
    PAYMENT_MINT: (PaymentMintResponse, PaymentMintError),
    PAYMENT_WEBHOOK: (PaymentWebhookResponse, EventHandlerError),
}


async def post(
    surface: RunningSurfaces, path: str, payload: object, **headers: str
) -> PaymentResponse:
    """Send `payload` as JSON, bytes unchanged. The response must fit its model."""
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    sent = {"Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    async with surface.client.post(surface.url + path, data=raw, headers=sent) as reply:
        answer = PaymentResponse(reply.status, await reply.json(), reply.headers)
    good, bad = MODELS[path]
    (good if reply.status == 200 else bad).model_validate(answer.body)
    return answer


def changed(**changes: object) -> dict[str, object]:
    """A field of `...` is left out."""
    return {name: value for name, value in (GOOD | changes).items() if value is not ...}


# --- create-checkout ----------------------------------------------------------------------------


async def test_a_checkout_is_opened(surface: RunningSurfaces) -> None:
    answer = await post(surface, CREATE_CHECKOUT, GOOD)

    assert answer.status == 200
    assert answer.body == {
        "success": True,
        "checkoutUrl": "https://pay.example/cs_test_0",
        "sessionId": "cs_test_0",
    }
    (checkout,) = surface.payments.opened
    assert (checkout.brand_id, checkout.usd_cents) == (address_of(BRAND_ID), 500)
    assert checkout.email == "ada@example.com"
    assert (checkout.success_url, checkout.cancel_url) == (GOOD["successUrl"], GOOD["cancelUrl"])


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 50},
        {"amount": 500.0},
        {"amount": 99_999_999},
        {"currency": "usd"},
        {"currency": "USD"},
        {"currency": None},
        {"successUrl": "https://shop.example/" + "x" * (2048 - 21)},
        {"unknown": "field"},
    ],
    ids=str,
)
async def test_every_edge_of_a_good_checkout_is_let_in(
    surface: RunningSurfaces, changes: dict[str, object]
) -> None:
    assert (await post(surface, CREATE_CHECKOUT, changed(**changes))).status == 200


AMOUNT = "amount: must be a whole number of cents from 50 to 99999999"
URL_RULE = "must be an http or https URL"
BAD_FIELDS: list[tuple[dict[str, object], str]] = [
    ({"brandId": ...}, "brandId: is required"),
    (
        {"brandId": "0x" + "AB" * 20},
        "brandId: must be 42 characters, 0x and 40 lower-case hex digits",
    ),
    ({"amount": ...}, "amount: is required"),
    ({"amount": 49}, AMOUNT),
    ({"amount": 0}, AMOUNT),
    ({"amount": -500}, AMOUNT),
    ({"amount": 100_000_000}, AMOUNT),
    ({"amount": 10**40}, AMOUNT),
    ({"amount": 500.5}, "amount: must be an integer"),
    ({"amount": float(2**53)}, "amount: must be an integer"),
    ({"amount": "500"}, "amount: must be an integer"),
    ({"amount": True}, "amount: must be an integer"),
    ({"currency": "eur"}, "currency: must be usd"),
    ({"currency": ""}, "currency: must be usd"),
    ({"currency": "\uff35\uff33\uff24"}, "currency: must be usd"),
    ({"currency": 5}, "currency: must be a string"),
    ({"userEmail": ...}, "userEmail: is required"),
    ({"userEmail": "ada"}, "userEmail: must be an e-mail address"),
    ({"userEmail": "a@" + "b" * 250 + ".example"}, "userEmail: must be at most 254 characters"),
    ({"successUrl": ...}, "successUrl: is required"),
    ({"successUrl": "shop.example"}, f"successUrl: {URL_RULE}"),
    ({"successUrl": "javascript:alert(1)"}, f"successUrl: {URL_RULE}"),
    ({"successUrl": "https://{HOST}/"}, "successUrl: "),
    ({"cancelUrl": ...}, "cancelUrl: is required"),
    ({"cancelUrl": "ftp://shop.example"}, f"cancelUrl: {URL_RULE}"),
    ({"cancelUrl": "https://a:b@shop.example"}, "cancelUrl: must be a URL with a host and"),
    ({"cancelUrl": "https://shop.example/" + "x" * 2028}, "cancelUrl: must have at most 2048"),
]


@pytest.mark.parametrize(("changes", "fault"), BAD_FIELDS, ids=lambda given: str(given)[:40])
async def test_a_bad_field_is_named_with_its_rule(
    surface: RunningSurfaces, changes: dict[str, object], fault: str
) -> None:
    answer = await post(surface, CREATE_CHECKOUT, changed(**changes))
    status, faults = answer.faults
    assert (status, len(faults)) == (400, 1)
    assert faults[0].startswith(fault)
    assert surface.payments.opened == []
    assert "X-RateLimit-Limit" not in answer.headers


async def test_every_fault_is_listed_that_of_the_header_too(surface: RunningSurfaces) -> None:
    answer = await post(surface, CREATE_CHECKOUT, {"amount": 1}, Idempotency_Key="k" * 256)
    assert answer.faults == (
        400,
        [
            "brandId: is required",
            AMOUNT,
            "userEmail: is required",
            "successUrl: is required",
            "cancelUrl: is required",
            "Idempotency-Key: must be 1 to 255 printable characters",
        ],
    )


async def test_an_idempotency_key_opens_one_checkout(surface: RunningSurfaces) -> None:
    first = await post(surface, CREATE_CHECKOUT, GOOD, Idempotency_Key="k" * 255)
    again = await post(surface, CREATE_CHECKOUT, GOOD, Idempotency_Key="k" * 255)
    other = await post(surface, CREATE_CHECKOUT, GOOD)
    reused = await post(surface, CREATE_CHECKOUT, changed(amount=600), Idempotency_Key="k" * 255)

    assert first.body == again.body != other.body
    assert reused.status == 409
    assert len(surface.payments.opened) == 2


async def test_two_idempotency_keys_are_none(surface: RunningSurfaces) -> None:
    headers = [("Content-Type", "application/json"), *[("Idempotency-Key", key) for key in "ab"]]
    async with surface.client.post(
        surface.url + CREATE_CHECKOUT, json=GOOD, headers=headers
    ) as answer:
        body = await answer.json()
    assert body["details"]["errors"] == ["Idempotency-Key: must be given once"]


async def test_an_unknown_brand_is_forbidden(surface: RunningSurfaces) -> None:
    answer = await post(surface, CREATE_CHECKOUT, changed(brandId="0x" + "cd" * 20))
    assert (answer.status, answer.body["error"]) == (403, "Unknown brand")


@pytest.mark.parametrize(
    ("refusal", "status", "error"),
    [
        (PaymentsUnavailable("host 10.0.0.1"), 500, "Payment provider unavailable"),
        (IdentityUnavailable("host 10.0.0.1"), 500, "Identity provider unavailable"),
        (DatabaseUnavailable("host 10.0.0.1"), 503, "Database unavailable"),
        (IdempotencyKeyReused("Reused"), 409, "Reused"),
        (InvalidFields(["amount: too much"]), 400, "Validation failed"),
        (RuntimeError("row"), 500, "Internal server error"),
    ],
    ids=lambda given: str(given)[:20],
)
async def test_a_checkout_that_fails_says_so_in_the_surfaces_envelope(
    surface: RunningSurfaces, refusal: Exception, status: int, error: str
) -> None:
    surface.payments.refusal = refusal
    answer = await post(surface, CREATE_CHECKOUT, GOOD)
    assert (answer.status, answer.body["error"]) == (status, error)
    assert "10.0.0.1" not in str(answer.body)
    assert_headers_described(OPERATIONS[0], status, answer.headers)


async def test_an_address_may_open_six_hundred_checkouts_a_minute() -> None:
    assert PER_CLIENT.checkouts == RateLimit("checkout_ip", 600, 60)
    two = replace(PER_CLIENT, checkouts=RateLimit("checkout_ip", 2, 60))
    async with a_surface(HttpPolicy(per_client=two, grace_seconds=2.0)) as surface:
        for left in (1, 0):
            answer = await post(surface, CREATE_CHECKOUT, GOOD)
            limit, remaining, reset = (int(answer.headers[name]) for name in WINDOW)
            assert (limit, remaining) == (2, left)
            assert time.time() - 1 <= reset <= time.time() + 61
        refused = await post(surface, CREATE_CHECKOUT, GOOD)

        assert refused.status == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert [refused.headers[name] for name in WINDOW[:2]] == ["2", "0"]
        assert len(surface.payments.opened) == 2
        malformed = await post(surface, CREATE_CHECKOUT, {})
        assert malformed.status == 400, "only what is well-formed is counted"
        surface.payments.paid["cs_1"] = a_payment("cs_1")
        assert (await post(surface, PAYMENT_MINT, {"sessionId": "cs_1"})).status == 200


# --- payment-mint -------------------------------------------------------------------------------


async def test_an_address_may_ask_for_120_payment_mints_a_minute_broken_ones_too(
    surface: RunningSurfaces,
) -> None:
    """Each request may cost a call to the payment provider."""
    payloads = [b"{", b"", b"x" * (EVENT_HANDLER_LIMIT + 1), {"sessionId": "cs_unknown"}]
    for number in range(120):
        answer = await post(surface, PAYMENT_MINT, payloads[number % 4])
        assert answer.status in {400, 413}
        assert [answer.headers[name] for name in WINDOW[:2]] == ["120", str(119 - number)]
    request_count = len(surface.payments.requests)
    surface.payments.paid["cs_1"] = a_payment("cs_1")
    for body in ({"sessionId": "cs_1"}, b"{"):
        refused = await post(surface, PAYMENT_MINT, body)
        seconds = int(refused.headers["Retry-After"])
        assert 1 <= seconds <= 60
        assert (refused.status, refused.body) == (
            429,
            {
                "success": False,
                "message": "Rate limit exceeded: an address may ask for 120 payment mints a "
                f"minute; try again in {seconds} seconds",
            },
        )
        assert [refused.headers[name] for name in WINDOW[:2]] == ["120", "0"]
    assert len(surface.payments.requests) == request_count
    assert (await post(surface, CREATE_CHECKOUT, GOOD)).status == 200
    assert (
        await post(surface, PAYMENT_WEBHOOK, b"{}", Stripe_Signature="t=1,v1=good")
    ).status == 200


async def test_a_paid_session_is_minted_and_a_repeat_says_so(surface: RunningSurfaces) -> None:
    surface.payments.paid["cs_1"] = a_payment("cs_1")
    first = await post(surface, PAYMENT_MINT, {"sessionId": "cs_1"})
    again = await post(surface, PAYMENT_MINT, {"sessionId": "cs_1"})

    expected = {
        "success": True,
        "message": "5000 LTZ minted",
        "txHash": "0x" + MINT.hex(),
        "blockExplorer": f"{EXPLORER}/tx/0x{MINT.hex()}",
        "walletAddress": CHECKSUMMED_WALLET,
        "usdAmount": 5,
        "ltzAmount": 5_000,
        "paymentIntentId": "pi_1",
    }
    assert (first.status, first.body) == (200, expected)
    repeated = {"message": "Payment already processed", "alreadyProcessed": True}
    assert (again.status, again.body) == (200, expected | repeated)


@pytest.mark.parametrize(
    ("cents", "dollars"),
    [(50, "0.5"), (500, "5"), (1_999, "19.99"), (99_999_999, "999999.99"), (29, "0.29")],
)
async def test_dollars_are_written_exactly(
    surface: RunningSurfaces, cents: int, dollars: str
) -> None:
    surface.payments.paid["cs_1"] = a_payment("cs_1", cents)
    async with surface.client.post(
        surface.url + PAYMENT_MINT, json={"sessionId": "cs_1"}
    ) as answer:
        assert f'"usdAmount":{dollars},' in await answer.text()


async def test_without_an_explorer_there_is_no_link() -> None:
    async with a_surface() as plain:
        plain.payments.paid["cs_1"] = a_payment("cs_1")
        answer = await post(plain, PAYMENT_MINT, {"sessionId": "cs_1"})
        assert answer.body["blockExplorer"] is None


ID_RULE = "sessionId: must be a checkout session's id, cs_ and letters, digits and underscores"
UNREADABLE = "Request body is not valid JSON: "
MINT_REFUSALS: list[tuple[object, int, str]] = [
    ({}, 400, "sessionId: is required"),
    ({"sessionId": 5}, 400, "sessionId: must be a string"),
    ({"sessionId": None}, 400, "sessionId: must be a string"),
    ({"sessionId": ["cs_1"]}, 400, "sessionId: must be a string"),
    *(
        ({"sessionId": text}, 400, ID_RULE)
        for text in (
            *("", "cs_", "pi_1", "CS_1", "cs_1/", "cs_1?x", "cs_../x", "cs_1 ", " cs_1", "cs_%31"),
            *("cs_" + "x" * 251, "cs_\uff11", "cs_test-1", "xcs_1"),
        )
    ),
    ({"sessionId": "cs_unknown"}, 400, "Checkout session not found"),
    ([], 400, "Request body must be a JSON object"),
    (b"", 400, f"{UNREADABLE}it is empty"),
    (b"{", 400, UNREADABLE),
    (b"\xff", 400, UNREADABLE),
    (b"[" * 5_000, 400, "Request body is nested deeper than 32 levels"),
    (b"x" * (EVENT_HANDLER_LIMIT + 1), 413, "Request body is larger than 10240 bytes"),
]


@pytest.mark.parametrize(("payload", "status", "message"), MINT_REFUSALS, ids=lambda g: str(g)[:30])
async def test_what_is_no_session_is_refused_in_the_mints_own_form(
    surface: RunningSurfaces, payload: object, status: int, message: str
) -> None:
    answer = await post(surface, PAYMENT_MINT, payload)
    assert answer.status == status
    assert set(answer.body) == {"success", "message"}
    assert answer.body["success"] is False
    assert answer.body["message"].startswith(message)
    assert surface.payments.requests in ([], ["cs_unknown"])


async def test_a_session_id_may_have_253_characters(surface: RunningSurfaces) -> None:
    session_id = "cs_" + "a_B9" * 62 + "xy"
    assert len(session_id) == 253
    surface.payments.paid[session_id] = a_payment(session_id)
    assert (await post(surface, PAYMENT_MINT, {"sessionId": session_id})).status == 200


@pytest.mark.parametrize(
    ("refusal", "status", "message"),
    [
        (PaymentRefused("Payment not completed", reason="x"), 400, "Payment not completed"),
        (refused_refund(), 400, "The payment was refunded"),
        (
            MintPending("secret"),
            500,
            "The payment is recorded and will be minted; repeat the request",
        ),
        (PaymentsUnavailable("secret"), 500, "Payment provider unavailable"),
        (DatabaseUnavailable("secret"), 503, "Database unavailable"),
        (RuntimeError("secret"), 500, "Internal server error"),
    ],
    ids=lambda given: str(given)[:20],
)
async def test_every_failure_has_the_mints_own_form(
    surface: RunningSurfaces, refusal: Exception, status: int, message: str
) -> None:
    surface.payments.refusal = refusal
    answer = await post(surface, PAYMENT_MINT, {"sessionId": "cs_1"})
    assert (answer.status, answer.body) == (status, {"success": False, "message": message})


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 405),
        ("PUT", {}, 405),
        ("POST", {"Content-Type": "text/plain"}, 400),
        ("POST", {"Content-Encoding": "gzip", "Content-Type": "application/json"}, 400),
    ],
    ids=str,
)
async def test_what_http_itself_refuses_has_the_mints_own_form_too(
    surface: RunningSurfaces, method: str, headers: dict[str, str], status: int
) -> None:
    async with surface.client.request(
        method, surface.url + PAYMENT_MINT, data=b"{}", headers=headers
    ) as answer:
        assert answer.status == status
        assert set(await answer.json()) == {"success", "message"}


@pytest.mark.parametrize("path", [CREATE_CHECKOUT, PAYMENT_MINT, PAYMENT_WEBHOOK])
async def test_a_page_of_the_brand_may_call(surface: RunningSurfaces, path: str) -> None:
    origin = {"Origin": "https://www.shop.example"}
    async with surface.client.options(surface.url + path, headers=origin) as preflight:
        assert preflight.status == 204
    answer = await post(surface, path, {}, **origin)
    assert answer.status == 400
    assert answer.headers["Access-Control-Allow-Origin"] == "https://www.shop.example"


# --- payment-webhook ----------------------------------------------------------------------------


async def test_an_event_is_handed_on_as_it_came(surface: RunningSurfaces) -> None:
    raw = b' {"type" : "x",\n"data":{"object": {"id":"\\u0001"}}} '
    answer = await post(surface, PAYMENT_WEBHOOK, raw, Stripe_Signature="t=1,v1=good")

    assert (answer.status, answer.body) == (200, {"success": True, "received": True})
    assert surface.payments.events == [raw]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "text/plain", ""])
async def test_no_content_type_stops_an_event(surface: RunningSurfaces, kind: str) -> None:
    answer = await post(
        surface, PAYMENT_WEBHOOK, b"{}", Stripe_Signature="t=1,v1=good", Content_Type=kind
    )
    assert answer.status == 200


@pytest.mark.parametrize("signature", ["", "t=1,v1=bad", "t=1,v1=\u00fc"])
async def test_an_event_that_the_provider_did_not_sign_is_refused(
    surface: RunningSurfaces, signature: str
) -> None:
    answer = await post(surface, PAYMENT_WEBHOOK, b"{}", Stripe_Signature=signature)
    assert answer.status == 400
    assert answer.body["error"].startswith("Stripe-Signature: ")
    assert (await post(surface, PAYMENT_WEBHOOK, b"{}")).status == 400


async def test_two_signature_headers_are_none(surface: RunningSurfaces) -> None:
    headers = [("Stripe-Signature", "t=1,v1=good")] * 2
    async with surface.client.post(
        surface.url + PAYMENT_WEBHOOK, data=b"{}", headers=headers
    ) as answer:
        assert (answer.status, (await answer.json())["error"]) == (
            400,
            "Stripe-Signature: must be given once",
        )


async def test_an_event_has_at_most_256_kib(surface: RunningSurfaces) -> None:
    assert WEBHOOK_LIMIT == 256 * 1024
    good = {"Stripe_Signature": "t=1,v1=good"}
    assert (await post(surface, PAYMENT_WEBHOOK, b"x" * WEBHOOK_LIMIT, **good)).status == 200
    answer = await post(surface, PAYMENT_WEBHOOK, b"x" * (WEBHOOK_LIMIT + 1), **good)
    assert (answer.status, answer.body["details"]) == (413, {"maxBytes": WEBHOOK_LIMIT})


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (PaymentsUnavailable(""), 500),
        (DatabaseUnavailable(""), 503),
        (PaymentRefused("The event is malformed: it is not JSON"), 400),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_an_event_that_is_not_done_is_not_received(
    surface: RunningSurfaces, refusal: Exception, status: int
) -> None:
    surface.payments.refusal = refusal
    answer = await post(surface, PAYMENT_WEBHOOK, b"{}", Stripe_Signature="t=1,v1=good")
    assert (answer.status, answer.body["success"]) == (status, False)


# --- the document -------------------------------------------------------------------------------


def test_each_answer_has_examples_that_fit_its_model() -> None:
    for operation in OPERATIONS:
        assert_examples_fit(operation)


def test_the_examples_of_requests_are_good_ones() -> None:
    checkout, mint, _ = OPERATIONS
    for body in checkout.request_examples.values():
        CreateCheckoutBody.model_validate(body)
    for body in mint.request_examples.values():
        PaymentMintBody.from_json(body)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_calls_made_from_the_document_are_answered_as_documented(
    surface: RunningSurfaces, mode: GenerationMode
) -> None:
    with requests.Session() as http:
        run = await asyncio.wait_for(made_calls(surface, list(OPERATIONS), http, mode), 60)
    assert {status for _, status in run.seen} & {200, 400, 403}
