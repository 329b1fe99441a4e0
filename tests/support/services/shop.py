"""A shop beside a sandbox: sells through the payment provider's SDK and receives its events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import stripe
from aiohttp import web
from stripe.checkout import Session

from ltzd.dev.sandbox import Sandbox
from tests.support.waiting import until

Json = dict[str, Any]

ORDER: Json = {
    "mode": "payment",
    "line_items": [
        {
            "quantity": 2,
            "price_data": {
                "currency": "usd",
                "unit_amount": 250,
                "product_data": {"name": "5,000 <LTZ>"},
            },
        }
    ],
    "success_url": "https://shop.example/thanks?session={CHECKOUT_SESSION_ID}&é=1",
    "cancel_url": "https://shop.example/cart",
    "customer_email": "ann@shop.example",
    "metadata": {"wallet": "0xab", "usd_amount": "5.00", "ltz_amount": "5000"},
    "payment_intent_data": {"metadata": {"order": "7"}},
}


class Shop:
    """`answers` are the statuses with which the next events are answered; later ones get 200."""

    def __init__(self, data_dir: Path, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.sandbox = Sandbox(data_dir, 0, "http://127.0.0.1:1", None)
        self.events: list[stripe.Event] = []
        self.answers: list[int] = []
        self._data_dir = data_dir
        application = web.Application()
        application.router.add_post("/events", self._take)
        self._runner = web.AppRunner(application, access_log=None)

    async def open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        await self._begin()

    async def restart(self) -> None:
        """Restarts the sandbox, not the shop."""
        await self.sandbox.stop()
        self.sandbox = Sandbox(self._data_dir, 0, "http://127.0.0.1:1", None)
        await self._begin()

    async def close(self) -> None:
        await self.sandbox.stop()
        await self._runner.cleanup()

    async def _begin(self) -> None:
        await self.sandbox.start()
        self.sandbox.set_payment_events_url(
            f"http://127.0.0.1:{self._runner.addresses[0][1]}/events"
        )

    def client(self, key: str | None = None, repeats: int = 2) -> stripe.StripeClient:
        policy = self.sandbox.payments_policy()
        return stripe.StripeClient(
            key or policy.secret_key,
            base_addresses={"api": policy.base_url},
            http_client=stripe.AIOHTTPClient(session=self.http),
            max_network_retries=repeats,
        )

    async def create_session(
        self, key: str | None = None, repeats: int = 2, **changes: object
    ) -> Session:
        """Opens a session for ORDER with these changes; a change to None removes the parameter."""
        fields: Any = {n: value for n, value in {**ORDER, **changes}.items() if value is not None}
        options: stripe.RequestOptions = {} if key is None else {"idempotency_key": key}
        sessions = self.client(repeats=repeats).v1.checkout.sessions
        return await sessions.create_async(fields, options)

    async def read(self, session_id: str, *expand: str) -> Session:
        sessions = self.client().v1.checkout.sessions
        return await sessions.retrieve_async(session_id, {"expand": [*expand]})

    async def create_refund(self, **fields: Any) -> stripe.Refund:
        params: Any = fields
        return await self.client().v1.refunds.create_async(params)

    async def control_payment(self, session_id: object, **fields: object) -> tuple[int, Json]:
        """Posts to the sandbox's `payUrl`."""
        return await self.post(
            self.sandbox.control_endpoints()["payUrl"], {"sessionId": session_id, **fields}
        )

    async def set_fault(self, **fault: object) -> None:
        order = {"service": "payments", "times": 1, **fault}
        assert (await self.post(self.sandbox.control_endpoints()["faultUrl"], order))[0] == 200

    async def post(self, url: str, body: Json) -> tuple[int, Json]:
        async with self.http.post(url, json=body) as reply:
            return reply.status, await reply.json()

    async def _take(self, request: web.Request) -> web.Response:
        """Fails, and so answers 500, for an event that the provider did not sign."""
        body, signature = await request.text(), request.headers["Stripe-Signature"]
        secret = self.sandbox.payments_policy().signing_secret
        self.events.append(stripe.Webhook.construct_event(body, signature, secret))
        status = self.answers.pop(0) if self.answers else 200
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    def events_of(self, kind: str) -> list[Json]:
        return [event.to_dict() for event in self.events if event.type == kind]

    async def wait_for_event(self, kind: str, times: int = 1) -> Json:
        """Waits until `times` events of this kind have come and returns the newest."""

        async def enough() -> list[Json]:
            events = self.events_of(kind)
            return events if len(events) >= times else []

        return (await until(enough))[-1]


@asynccontextmanager
async def a_shop(data_dir: Path) -> AsyncIterator[Shop]:
    async with aiohttp.ClientSession() as http:
        shop = Shop(data_dir, http)
        await shop.open()
        try:
            yield shop
        finally:
            await shop.close()


def priced(unit_amount: object, currency: str = "usd", quantity: object = 1) -> list[Json]:
    """Line items with one position."""
    product = {"name": "LTZ"}
    price = {"currency": currency, "unit_amount": unit_amount, "product_data": product}
    return [{"quantity": quantity, "price_data": price}]
