"""Payments are minted once and announced by webhooks, on running instances, also through kills.

The sandbox is the payment provider, the name server and the brand's endpoint.
"""

import asyncio
import contextlib
import json
import os
import random
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
import stripe
from standardwebhooks import Webhook

from tests.support.instances.instance import Instance
from tests.support.instances.shared import Instances
from tests.support.waiting import until

CENTS = 500
LTZ_BOUGHT = 5_000


class Shop:
    """Opens, pays and mints checkout sessions of the demo brand, and reads its webhook inbox."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    @property
    def sandbox(self) -> dict[str, str]:
        payload: dict[str, str] = self.instance.dev_json["sandbox"]
        return payload

    @property
    def brand(self) -> dict[str, str]:
        payload: dict[str, str] = self.instance.dev_json["brand"]
        return payload

    async def post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        url = self.instance.base_url + path
        async with self.instance.http.post(url, json=body) as reply:
            return reply.status, await reply.json()

    async def checkout(self, **changes: object) -> tuple[int, dict[str, Any]]:
        body = {
            "brandId": self.brand["brandId"],
            "amount": CENTS,
            "userEmail": f"{uuid4().hex}@shop.example",
            "successUrl": "https://shop.example/thanks?session={CHECKOUT_SESSION_ID}",
            "cancelUrl": "https://shop.example/cart",
        }
        return await self.post("/service-api/create-checkout", body | changes)

    async def session(self, **changes: object) -> str:
        status, opened = await self.checkout(**changes)
        assert status == 200, opened
        return str(opened["sessionId"])

    async def pay(self, session: str, **more: object) -> dict[str, Any]:
        body = {"sessionId": session, **more}
        async with self.instance.http.post(self.sandbox["payUrl"], json=body) as reply:
            assert reply.status == 200, await reply.text()
            payload: dict[str, Any] = await reply.json()
            return payload

    async def mint(self, session: str) -> tuple[int, dict[str, Any]]:
        return await self.post("/service-api/payment-mint", {"sessionId": session})

    async def minted(self, session: str) -> dict[str, Any]:
        """Repeats the request, also after kills, until the status is 200."""

        async def answered() -> dict[str, Any] | None:
            try:
                status, body = await self.mint(session)
            except aiohttp.ClientError:
                return None
            assert status in {200, 500}, body
            return body if status == 200 else None

        payload = await until(answered, 30)
        assert payload is not None
        return payload

    async def inbox(self) -> list[dict[str, Any]]:
        async with self.instance.http.get(self.sandbox["webhookInboxUrl"]) as reply:
            payload: list[dict[str, Any]] = await reply.json()
            return [each for each in payload if each["brandId"] == self.brand["brandId"]]

    async def deliveries_to(self, event: str, wallet: str) -> list[dict[str, Any]]:
        """Returns the accepted deliveries of one event kind about one wallet."""
        return [
            each
            for each in await self.inbox()
            if each["status"] == 200
            and (body := json.loads(each["body"]))["event"] == event
            and body["walletAddress"] == wallet
        ]

    async def delivery_to(self, event: str, wallet: str) -> dict[str, Any]:
        (first, *_) = await until(lambda: self.deliveries_to(event, wallet), 30)
        return first

    async def balance(self, wallet: str) -> int:
        units: int = await self.instance.ask(
            "SELECT coalesce((SELECT amount FROM balances WHERE wallet = $1), 0)::text::numeric",
            bytes.fromhex(wallet[2:]),
        )
        return int(units) // 10**18


@pytest_asyncio.fixture
async def shop(instance: Instance) -> Shop:
    return Shop(instance)


@pytest_asyncio.fixture
async def one_shop(one_instance: Instance) -> Shop:
    return Shop(one_instance)


@contextlib.asynccontextmanager
async def the_provider(shop: Shop) -> AsyncIterator[stripe.StripeClient]:
    """Creates sessions with any metadata at the provider, as another holder of the key would."""
    payments = shop.instance.dev_json["payments"]
    http = stripe.AIOHTTPClient()
    try:
        yield stripe.StripeClient(
            payments["secretKey"],
            base_addresses={"api": payments["apiUrl"]},
            http_client=http,
        )
    finally:
        await http.close_async()  # type: ignore[no-untyped-call]


async def test_fifty_calls_and_a_webhook_for_one_session_mint_once(shop: Shop) -> None:
    session = await shop.session()
    assert (await shop.mint(session))[0] == 400
    paying = asyncio.create_task(shop.pay(session))
    answers = await asyncio.gather(*(shop.mint(session) for _ in range(50)))
    await paying
    last = await shop.minted(session)

    minted = [body for status, body in answers if status == 200]
    assert {status for status, _ in answers} <= {200, 400}
    assert sum("alreadyProcessed" not in body for body in minted) <= 1
    assert {body["txHash"] for body in minted} <= {last["txHash"]}
    assert last["alreadyProcessed"] is True
    assert (last["usdAmount"], last["ltzAmount"]) == (5, LTZ_BOUGHT)
    wallet = last["walletAddress"]

    async def has_balance() -> bool:
        return await shop.balance(wallet) == LTZ_BOUGHT

    await until(has_balance)
    rewards = await shop.instance.ask(
        "SELECT count(*) FROM rewards WHERE wallet = $1", bytes.fromhex(wallet[2:])
    )
    assert rewards == 1
    assert await shop.deliveries_to("ltz_distributed", wallet) == []


async def test_a_session_with_contradicting_metadata_is_never_minted(
    one_shop: Shop,
) -> None:
    wallet = "0x" + uuid4().hex + "00000001"
    async with the_provider(one_shop) as provider:
        for metadata, word in (
            ({"wallet": wallet, "usd_amount": "5.00", "ltz_amount": "5001"}, "mismatch"),
            ({"wallet": wallet, "usd_amount": "6.00", "ltz_amount": "6000"}, "amount"),
            ({"wallet": wallet[:-1], "usd_amount": "5.00", "ltz_amount": "5000"}, "wallet"),
            ({"usd_amount": "5.00", "ltz_amount": "5000"}, "wallet"),
            ({"wallet": wallet, "usd_amount": "five", "ltz_amount": "5000"}, "amount"),
        ):
            opened = await provider.v1.checkout.sessions.create_async(
                {
                    "mode": "payment",
                    "line_items": [
                        {
                            "quantity": 1,
                            "price_data": {
                                "currency": "usd",
                                "unit_amount": CENTS,
                                "product_data": {"name": "LTZ"},
                            },
                        }
                    ],
                    "success_url": "https://shop.example/thanks",
                    "metadata": metadata,
                }
            )
            await one_shop.pay(opened.id)
            status, body = await one_shop.mint(opened.id)
            assert (status, body["success"]) == (400, False), body
            assert word in body["message"].lower(), body
            assert set(body) == {"success", "message"}
    assert await one_shop.balance(wallet) == 0


async def test_a_reward_webhook_has_a_signature_that_the_library_accepts(shop: Shop) -> None:
    email = f"{uuid4().hex}@shop.example"
    answer = await shop.instance.post_event(email)
    wallet = answer.body["walletAddress"]
    delivery = await shop.delivery_to("ltz_distributed", wallet)

    Webhook(shop.brand["webhookSecret"]).verify(delivery["body"], delivery["headers"])
    body = json.loads(delivery["body"])
    assert list(body) == [
        "event",
        "brandId",
        "userId",
        "email",
        "walletAddress",
        "ltzAmount",
        "transactionHash",
        "timestamp",
    ]
    assert body["brandId"] == shop.brand["brandId"]
    assert (body["email"], body["ltzAmount"]) == (email, answer.body["rewardAmount"])
    assert (
        body["transactionHash"] == (await shop.instance.event(answer.event_id))["transactionHash"]
    )
    assert abs(body["timestamp"] / 1000 - time.time()) < 60


async def test_a_failed_webhook_is_sent_again_under_the_same_id(one_shop: Shop) -> None:
    async with one_shop.instance.http.post(
        one_shop.sandbox["webhookInboxUrl"], json={"status": 503, "times": 1}
    ) as reply:
        assert reply.status == 200
    answer = await one_shop.instance.post_event(f"{uuid4().hex}@shop.example")
    wallet = answer.body["walletAddress"]

    taken = await one_shop.delivery_to("ltz_distributed", wallet)
    same = [
        each["status"]
        for each in await one_shop.inbox()
        if each["headers"]["webhook-id"] == taken["headers"]["webhook-id"]
    ]
    assert sorted(same) == [200, 503]


async def test_a_webhook_under_way_at_a_kill_arrives_soon_after_the_restart(
    one_shop: Shop,
) -> None:
    async with one_shop.instance.http.post(
        one_shop.sandbox["webhookInboxUrl"], json={"delaySeconds": 600, "times": 1}
    ) as reply:
        assert reply.status == 200
    answer = await one_shop.instance.post_event(f"{uuid4().hex}@shop.example")
    wallet = answer.body["walletAddress"]

    async def under_way() -> list[str]:
        return [
            each["headers"]["webhook-id"]
            for each in await one_shop.inbox()
            if each["status"] is None and wallet in each["body"]
        ]

    (message_id,) = await until(under_way, 30)
    await one_shop.instance.kill9()
    await one_shop.instance.start_again()

    delivery = await one_shop.delivery_to("ltz_distributed", wallet)
    assert delivery["headers"]["webhook-id"] == message_id


async def test_a_refund_is_announced_and_revokes_no_reward(one_shop: Shop) -> None:
    session = await one_shop.session()
    await one_shop.pay(session)
    minted = await one_shop.minted(session)
    wallet = minted["walletAddress"]
    await one_shop.pay(session, kind="refund", amount=200)

    body = json.loads((await one_shop.delivery_to("payment_reversed", wallet))["body"])
    assert (body["kind"], body["sessionId"]) == ("refund", session)
    assert (body["usdAmount"], body["reversedUsdAmount"], body["ltzAmount"]) == (5, 2, 5000)

    async def has_balance() -> bool:
        return await one_shop.balance(wallet) == LTZ_BOUGHT

    await until(has_balance)


@pytest.mark.parametrize(("kind", "kills"), [("tester", 1), ("anvil", 1)])
async def test_through_kills_payments_are_minted_once_and_rewards_are_announced(
    instances: Instances, kind: str, kills: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or time.time_ns())
    print(f"seed {seed}")
    moments = random.Random(seed)
    shop = Shop(await instances.of(kind))
    earned, bought = [], []
    for _ in range(kills):
        sessions = [await shop.session() for _ in range(4)]
        bought += sessions

        async def earn() -> None:
            with contextlib.suppress(aiohttp.ClientError):
                answer = await shop.instance.post_event(f"{uuid4().hex}@shop.example")
                earned.append(answer.body["walletAddress"])

        async def pay(session: str) -> None:
            await shop.pay(session)
            with contextlib.suppress(aiohttp.ClientError):
                await shop.mint(session)

        # The sandbox runs in the killed process; its journal has the paid sessions.
        doing = [asyncio.create_task(earn()) for _ in range(6)]
        doing += [asyncio.create_task(pay(session)) for session in sessions]
        await asyncio.sleep(moments.uniform(0, 0.6))
        await shop.instance.kill9()
        await asyncio.gather(*doing, return_exceptions=True)
        await shop.instance.start_again()

    for session in bought:
        await shop.pay(session)
        wallet = (await shop.minted(session))["walletAddress"]

        async def has_balance(wallet: str = wallet) -> bool:
            return await shop.balance(wallet) == LTZ_BOUGHT

        await until(has_balance, 30)
    for wallet in earned:
        await shop.delivery_to("ltz_distributed", wallet)
