"""The payment provider's client against a provider that is slow, over real HTTP."""

import asyncio

import pytest
from aiohttp import web

from ltzd.errors import PaymentsUnavailable
from ltzd.providers import payments
from ltzd.providers.checkouts import PaymentsPolicy
from ltzd.providers.payments import PaymentProvider
from ltzd.rules.payments.sessions import CheckoutOrder
from ltzd.values import address_of
from tests.support.services.web_servers import raw_server, sending, served_at
from tests.support.waiting import until

ORDER = CheckoutOrder(
    brand_id=address_of("0x" + "ab" * 20),
    wallet=address_of("0x" + "cd" * 20),
    usd_cents=500,
    email="ann@shop.example",
    success_url="https://shop.example/thanks",
    cancel_url="https://shop.example/cart",
)


async def test_checkouts_that_hang_hold_up_no_paid_session() -> None:
    """Anybody may open checkouts, more of them than the provider's SDK has connections."""
    release, hanging = asyncio.Event(), 0

    async def create(_request: web.Request) -> web.StreamResponse:
        nonlocal hanging
        hanging += 1
        await release.wait()
        return web.json_response({"id": "cs_new", "url": "https://pay.example/cs_new"})

    async def retrieve(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"id": "cs_paid", "payment_status": "paid"})

    async def hang() -> bool:
        return hanging >= 100

    application = web.Application()
    application.router.add_post("/v1/checkout/sessions", create)
    application.router.add_get("/v1/checkout/sessions/cs_paid", retrieve)
    async with served_at(application) as base_url:
        policy = PaymentsPolicy(
            base_url, "sk_test_key", "whsec_key", attempt_seconds=60.0, timeout_seconds=60.0
        )
        async with PaymentProvider(policy) as provider:
            opening = [
                asyncio.create_task(provider.open_session(ORDER, f"key {number}"))
                for number in range(100)
            ]
            await until(hang)
            session = await provider.session("cs_paid")
            release.set()
            await asyncio.gather(*opening)

    assert session is not None
    assert session.payment_status == "paid"


async def test_a_flood_of_interim_answers_is_no_usable_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payments, "_REPEATS", 0)
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 20_000
    session = b'{"id": "cs_paid", "payment_status": "paid"}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(session), session)
    async with raw_server(sending(interim, answer)) as port:
        policy = PaymentsPolicy(f"http://127.0.0.1:{port}", "sk_test_key", "whsec_key")
        async with PaymentProvider(policy) as provider:
            with pytest.raises(PaymentsUnavailable):
                await provider.session("cs_paid")
