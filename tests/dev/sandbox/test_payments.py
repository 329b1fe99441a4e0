"""The sandbox's payment provider, called by the provider's own client library."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import stripe
from msgspec.structs import replace

from ltzd.dev.contracts import MINT_LIMIT
from ltzd.dev.sandbox import journal
from ltzd.dev.sandbox.payments.forms import Form
from ltzd.dev.sandbox.payments.orders import parse_session
from ltzd.errors import InvalidFields, PaymentsUnavailable
from ltzd.providers.payments import PaymentProvider
from ltzd.rules.payments.sessions import LTZ_PER_CENT, MOST_CENTS, CheckoutOrder, payment_of
from ltzd.values import LTZ, address_of
from tests.support.services.shop import ORDER, Json, Shop, a_shop, priced

ADDRESS = address_of("0x" + "ab" * 20)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with a_shop(tmp_path) as shop:
        yield shop


def test_largest_payments_by_the_hundred_leave_the_dev_instances_mint_limit_unspent() -> None:
    assert MINT_LIMIT.capacity > 100 * MOST_CENTS * LTZ_PER_CENT * LTZ


# --- sessions -----------------------------------------------------------------------------------


async def test_a_made_session_is_open_unpaid_and_what_was_ordered(shop: Shop) -> None:
    made = await shop.create_session()
    read = await shop.read(made.id)

    assert read.to_dict() == made.to_dict()
    assert made.id.startswith("cs_test_")
    assert (made.object, made.mode, made.livemode) == ("checkout.session", "payment", False)
    assert (made.status, made.payment_status, made.payment_intent) == ("open", "unpaid", None)
    assert (made.amount_total, made.currency) == (500, "usd")
    assert made.to_dict()["metadata"] == ORDER["metadata"]
    assert made.customer_email == ORDER["customer_email"]
    assert made.expires_at - made.created == 24 * 3600
    assert made.url == f"{shop.sandbox.url}/pay/{made.id}"


async def test_an_answer_echoes_the_version_and_names_the_request(shop: Shop) -> None:
    made = await shop.create_session()
    retrieve = shop.client().v1.checkout.sessions.retrieve_async
    read = await retrieve(made.id, {}, {"stripe_version": "2025-01-27.acacia"})
    assert read.last_response is not None
    assert read.last_response.headers["Stripe-Version"] == "2025-01-27.acacia"
    assert read.last_response.headers["request-id"].startswith("req_")

    with pytest.raises(stripe.InvalidRequestError) as refused:
        await retrieve(made.id, {}, {"stripe_version": "v1"})
    assert refused.value.request_id is not None


async def test_a_paid_session_shows_its_intent_and_the_intent_its_charge(shop: Shop) -> None:
    made = await shop.create_session()
    await shop.control_payment(made.id)
    await shop.control_payment(made.id, kind="refund", amount=120)

    plain = await shop.read(made.id)
    with_intent = (await shop.read(made.id, "payment_intent")).payment_intent
    with_charge = (await shop.read(made.id, "payment_intent.latest_charge")).payment_intent

    assert (plain.status, plain.payment_status, plain.url) == ("complete", "paid", None)
    assert isinstance(with_intent, stripe.PaymentIntent)
    assert with_intent.id == plain.payment_intent
    assert (with_intent.status, with_intent.amount_received) == ("succeeded", 500)
    assert with_intent.metadata.to_dict() == {"order": "7"}
    assert isinstance(with_charge, stripe.PaymentIntent)
    assert isinstance(with_charge.latest_charge, stripe.Charge)
    assert with_charge.latest_charge.id == with_intent.latest_charge
    assert with_charge.latest_charge.amount_refunded == 120


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"mode": None}, "parameter_missing", "mode"),
        ({"mode": "subscription"}, None, "mode"),
        ({"line_items": None}, "parameter_missing", "line_items"),
        ({"line_items": priced(49)}, "amount_too_small", None),
        ({"line_items": priced(99_999_999, quantity=2)}, "amount_too_large", None),
        (
            {"line_items": priced("5.00")},
            "parameter_invalid_integer",
            "line_items[0][price_data][unit_amount]",
        ),
        (
            {"line_items": priced(500, quantity=0)},
            "parameter_invalid_integer",
            "line_items[0][quantity]",
        ),
        (
            {"line_items": priced(500, currency="ltz")},
            None,
            "line_items[0][price_data][currency]",
        ),
        ({"line_items": [*priced(500), *priced(500, "eur")]}, None, "line_items"),
        ({"success_url": None}, "parameter_missing", "success_url"),
        ({"success_url": ""}, "parameter_invalid_empty", "success_url"),
        ({"success_url": "javascript:alert(1)"}, "url_invalid", "success_url"),
        ({"cancel_url": "https://shop.example/\r\nX: 1"}, "url_invalid", "cancel_url"),
        ({"customer_email": "ann"}, "email_invalid", "customer_email"),
        ({"expires_at": 1}, None, "expires_at"),
        ({"metadata": {"k" * 41: "v"}}, None, f"metadata[{'k' * 41}]"),
        ({"metadata": {"k": "v" * 501}}, None, "metadata[k]"),
        ({"metadata": {f"k{n}": "v" for n in range(51)}}, None, "metadata"),
        ({"metadata": {"k": {"deep": "v"}}}, "parameter_unknown", "metadata[k][deep]"),
        ({"colour": "red"}, "parameter_unknown", "colour"),
        ({"expand": ["customer"]}, None, "expand"),
    ],
    ids=str,
)
async def test_a_bad_parameter_is_named(
    shop: Shop, changes: Json, code: str | None, param: str | None
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        await shop.create_session(**changes)

    error = refused.value
    assert (error.http_status, error.code, error.param) == (400, code, param)


async def test_the_limits_themselves_are_taken(shop: Shop) -> None:
    full = {f"{n:0>40}": "v" * 500 for n in range(50)}
    expires_at = int(time.time()) + 1800

    least = await shop.create_session(line_items=priced(50), expires_at=expires_at)
    most = await shop.create_session(line_items=priced(99_999_999), metadata=full)

    assert (least.amount_total, least.expires_at) == (50, expires_at)
    assert most.amount_total == 99_999_999
    assert most.to_dict()["metadata"] == full


async def test_an_unknown_session_and_an_unknown_path_are_404(shop: Shop) -> None:
    with pytest.raises(stripe.InvalidRequestError) as unknown:
        await shop.read("cs_test_nobody")
    with pytest.raises(stripe.InvalidRequestError) as nowhere:
        await shop.client().v1.customers.retrieve_async("cus_1")

    error = unknown.value
    assert (error.http_status, error.code, error.param) == (404, "resource_missing", "session")
    assert (nowhere.value.http_status, nowhere.value.code) == (404, None)


async def test_another_key_or_none_is_401_and_the_right_one_is_not_told(shop: Shop) -> None:
    policy = shop.sandbox.payments_policy()
    with pytest.raises(stripe.AuthenticationError) as refused:
        await shop.client("sk_test_other").v1.checkout.sessions.retrieve_async("cs_test_x")
    async with shop.http.get(policy.base_url + "/v1/refunds") as reply:
        assert reply.status == 401

    assert policy.secret_key not in str(refused.value.http_body)


async def test_what_is_not_form_encoded_is_refused(shop: Shop) -> None:
    policy = shop.sandbox.payments_policy()
    for content, kind in (
        (b'{"mode": "payment"}', "application/json"),
        (b"mode=%ff", "application/x-www-form-urlencoded"),
        (b"\xff", "application/x-www-form-urlencoded"),
    ):
        headers = {"Authorization": f"Bearer {policy.secret_key}", "Content-Type": kind}
        async with shop.http.post(
            policy.base_url + "/v1/checkout/sessions", data=content, headers=headers
        ) as reply:
            error = (await reply.json())["error"]
            assert (reply.status, error["type"]) == (400, "invalid_request_error")


def test_an_open_session_expires_by_the_clock_and_a_complete_one_does_not() -> None:
    form = Form(
        {
            "mode": "payment",
            "success_url": "https://shop.example",
            "line_items[0][quantity]": "1",
            "line_items[0][price_data][currency]": "usd",
            "line_items[0][price_data][unit_amount]": "500",
            "line_items[0][price_data][product_data][name]": "LTZ",
        }
    )
    session = parse_session(form, 1_000.0)

    assert session.at(1_000 + 86_399.9).status == "open"
    assert session.at(1_000 + 86_400).status == "expired"
    assert replace(session, status="complete").at(1e12).status == "complete"


# --- idempotency --------------------------------------------------------------------------------


async def test_one_key_makes_one_session_however_often_and_at_once(shop: Shop) -> None:
    made = await asyncio.gather(*(shop.create_session("k-1") for _ in range(3)))
    again = await shop.create_session("k-1")

    assert len({session.id for session in [*made, again]}) == 1
    assert again.last_response is not None
    assert again.last_response.headers["Idempotent-Replayed"] == "true"


async def test_a_key_whose_first_request_is_not_kept_yet_is_in_use(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, write = threading.Event(), threading.Event(), journal._write_and_sync

    def slow(descriptor: int, content: bytes) -> None:
        begun.set()
        assert may_end.wait(10)
        write(descriptor, content)

    monkeypatch.setattr(journal, "_write_and_sync", slow)
    first = asyncio.create_task(shop.create_session("k-1"))
    await asyncio.to_thread(begun.wait, 10)
    try:
        with pytest.raises(stripe.APIError) as refused:
            await shop.create_session("k-1", repeats=0)
    finally:
        may_end.set()

    assert (refused.value.http_status, refused.value.json_body) == (
        409,
        {
            "error": {
                "type": "idempotency_error",
                "code": "idempotency_key_in_use",
                "message": "Another request with this idempotency key is in progress.",
            }
        },
    )
    assert (await first).id == (await shop.create_session("k-1")).id


async def test_one_key_with_other_parameters_is_refused_and_a_refusal_keeps_no_key(
    shop: Shop,
) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        await shop.create_session("k-1", mode="setup")
    await shop.create_session("k-1")

    with pytest.raises(stripe.IdempotencyError) as refused:
        await shop.create_session("k-1", customer_email="bob@shop.example")
    assert refused.value.http_status == 400


async def test_a_key_is_good_after_the_payment_and_after_a_restart(shop: Shop) -> None:
    made = await shop.create_session("k-1")
    await shop.control_payment(made.id)
    await shop.restart()

    again = await shop.create_session("k-1")

    assert (again.id, again.status) == (made.id, "open")


async def test_a_lost_answer_is_repaired_by_the_librarys_own_key(shop: Shop) -> None:
    await shop.set_fault(drop="reply")

    made = await shop.create_session()

    async with shop.http.get(shop.sandbox.url + "/pay/") as reply:
        assert (await reply.text()).count("ann@shop.example") == 1
    assert made.last_response is not None
    assert made.last_response.headers["Idempotent-Replayed"] == "true"


# --- refunds ------------------------------------------------------------------------------------


async def test_a_refund_in_parts_is_told_with_what_went_back_so_far(shop: Shop) -> None:
    made = await shop.create_session()
    _, paid = await shop.control_payment(made.id)
    intent = paid["paymentIntentId"]

    part = await shop.create_refund(
        payment_intent=intent, amount=120, reason="duplicate", metadata={"a": "b"}
    )
    rest = await shop.create_refund(payment_intent=intent)

    assert (part.amount, rest.amount, rest.status) == (120, 380, "succeeded")
    await shop.wait_for_event("refund.created", times=2)
    await shop.wait_for_event("charge.refunded", times=2)
    refunds = {event["data"]["object"]["id"]: event for event in shop.events_of("refund.created")}
    refund = refunds[part.id]["data"]["object"]
    assert (refund["amount"], refund["reason"], refund["payment_intent"]) == (
        120,
        "duplicate",
        intent,
    )
    assert refund["metadata"] == {"a": "b"}
    assert refunds[part.id]["request"]["id"].startswith("req_")
    assert refunds[part.id]["request"]["idempotency_key"]
    charges = [event["data"]["object"] for event in shop.events_of("charge.refunded")]
    first, last = sorted(charges, key=lambda charge: int(charge["amount_refunded"]))
    assert (first["amount_refunded"], first["refunded"]) == (120, False)
    assert (last["amount_refunded"], last["refunded"]) == (500, True)
    assert [refund["id"] for refund in last["refunds"]["data"]] == [rest.id, part.id]
    assert last["payment_intent"] == intent
    assert last["id"] == refund["charge"]


@pytest.mark.parametrize(
    ("ask", "status", "code", "param"),
    [
        ({"payment_intent": None}, 400, "parameter_missing", "payment_intent"),
        ({"payment_intent": "pi_x"}, 404, "resource_missing", "payment_intent"),
        ({"amount": 0}, 400, "parameter_invalid_integer", "amount"),
        ({"amount": 501}, 400, None, "amount"),
        ({"reason": "mood"}, 400, None, "reason"),
    ],
    ids=str,
)
async def test_a_bad_refund_is_refused(
    shop: Shop, ask: Json, status: int, code: str | None, param: str
) -> None:
    made = await shop.create_session()
    _, paid = await shop.control_payment(made.id)
    parameters = {"payment_intent": paid["paymentIntentId"], **ask}

    with pytest.raises(stripe.InvalidRequestError) as refused:
        await shop.create_refund(
            **{name: value for name, value in parameters.items() if value is not None}
        )

    error = refused.value
    assert (error.http_status, error.code, error.param) == (status, code, param)


async def test_what_went_back_cannot_go_back_again(shop: Shop) -> None:
    returned, disputed = [await shop.create_session() for _ in range(2)]
    for session, kind, code in (
        (returned, "refund", "charge_already_refunded"),
        (disputed, "dispute", "charge_disputed"),
    ):
        _, paid = await shop.control_payment(session.id)
        await shop.control_payment(session.id, kind=kind)
        with pytest.raises(stripe.InvalidRequestError) as refused:
            await shop.create_refund(payment_intent=paid["paymentIntentId"])
        assert (refused.value.http_status, refused.value.code) == (400, code)


# --- faults, and ltzd itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 503}, stripe.APIError),
        ({"status": 429}, stripe.RateLimitError),
        ({"status": 402}, stripe.CardError),
        ({"status": 403}, stripe.PermissionError),
        ({"drop": True}, stripe.APIConnectionError),
    ],
    ids=str,
)
async def test_an_ordered_fault_reaches_the_library_as_the_providers_own_error(
    shop: Shop, fault: Json, error: type[Exception]
) -> None:
    create = shop.client(repeats=0).v1.checkout.sessions.expire_async
    made = await shop.create_session()
    await shop.set_fault(**fault)

    with pytest.raises(error):
        await create(made.id)
    assert (await create(made.id)).status == "expired"


async def test_ltzds_own_client_sells_and_finds_what_was_paid(shop: Shop) -> None:
    order = CheckoutOrder(
        ADDRESS, ADDRESS, 500, "ann@shop.example", "https://a.example", "https://b.example"
    )
    async with PaymentProvider(shop.sandbox.payments_policy()) as provider:
        opened = await provider.open_session(order, "k-1")
        assert await provider.open_session(order, "k-1") == opened
        await shop.control_payment(opened.id)
        session = await provider.session(opened.id)
        assert session is not None
        assert payment_of(session).ltz == 5_000
        assert await provider.session("cs_test_nobody") is None

        with pytest.raises(InvalidFields) as refused:
            await provider.open_session(replace(order, success_url="ftp://a.example"), "k-2")
        assert "successUrl" in str(refused.value.details)
        await shop.set_fault(status=403)
        with pytest.raises(PaymentsUnavailable):
            await provider.session(opened.id)
