"""The traffic of brands, users, members and buyers on all surfaces, repeated as clients repeat."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from redis.exceptions import RedisError

from tests.support.instances.asks import Ask
from tests.support.instances.load import Load, a_load
from tests.support.instances.perks import HOLDERS, Perks, signed
from tests.support.instances.relayer import PRICED
from tests.support.relays.signing import transfer
from tests.support.soak.site import SoakSite

_BROKEN = (aiohttp.ClientError, OSError, TimeoutError, ValueError, RedisError)
"""Also a body that is not JSON. Clients of relays empty Redis, which may be away."""
_CHECK_IN_FAILED = "checkin_failed"
"""Sites answer so, with 400, when ltzd cannot tell the database or a provider anything."""
_PAUSE_SECONDS = 0.2
_OUTCOME_SECONDS = 240.0
_RELAYS_OF_A_USER = 30
_BULK = 5
CHARGES = 10
"""Of each token."""


@dataclass
class Traffic:
    """`statuses` counts answers by surface; 0 is a broken connection.

    `redeemed` are the charges that answers say were redeemed, `paid` the sessions of buyers,
    `perhaps_paid` also those whose payment has no answer, and `refused` the answers that blame a
    client, which none of them deserves.
    """

    site: SoakSite
    perks: Perks
    events: Load
    tokens: list[int]
    draw: random.Random
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    redeemed: Counter[int] = field(default_factory=Counter)
    paid: list[str] = field(default_factory=list)
    perhaps_paid: list[str] = field(default_factory=list)
    checked_in: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return self.site.instance.base_url

    async def ask(
        self, surface: str, method: str, path: str, **options: Any
    ) -> tuple[int, Mapping[str, Any]]:
        """The status and body of an answer; 0 and nothing for a broken connection."""
        http = self.site.instance.http
        try:
            async with http.request(method, self.base_url + path, **options) as reply:
                status, body = reply.status, await reply.json()
        except _BROKEN:
            status, body = 0, {}
        self.statuses[surface, status] += 1
        if 400 <= status < 500 and status != 429 and body.get("code") != _CHECK_IN_FAILED:
            self.refused.append(f"{method} {path}: {status} {body}")
        return status, body

    async def until_success(
        self, surface: str, ask: Callable[[], Awaitable[tuple[int, Mapping[str, Any]]]]
    ) -> Mapping[str, Any]:
        """Repeats a request that may be repeated until it succeeds."""
        deadline = time.monotonic() + _OUTCOME_SECONDS
        while True:
            status, body = await ask()
            if status == 200:
                return body
            assert time.monotonic() < deadline, (
                f"{surface}: still {status} {body} after {_OUTCOME_SECONDS:.0f} s; "
                f"ltzd has printed:\n{self.site.instance.printed()[-5_000:]}"
            )
            await asyncio.sleep(_PAUSE_SECONDS)

    # Brands

    async def read(self) -> None:
        """The reads of a brand's server and of its pages."""
        brand = self.site.instance.dev_json["brand"]["brandId"]
        paths = ["/service-api/health", f"/service-api/event-config?brandId={brand}"]
        if self.events.accepted:
            answer = self.draw.choice(self.events.accepted)
            paths.append(f"/service-api/events/{answer.event_id}")
        await self.ask("reads", "GET", self.draw.choice(paths))

    async def bulk(self) -> None:
        brand = self.site.instance.dev_json["brand"]
        events = [
            {"eventType": "account_creation", "userEmail": f"{uuid4().hex}@shop.example"}
            for _ in range(_BULK)
        ]
        body = {"brandId": brand["brandId"], "domain": brand["domain"], "events": events}
        await self.ask("bulk", "POST", "/service-api/bulk-events", json=body)

    async def redeem(self) -> None:
        """Redeems one charge under a key until the outcome is known."""
        token = self.draw.choice(self.tokens)
        if self.redeemed[token] >= CHARGES - 1:
            return
        key = f"till-{uuid4().hex}"
        self.redeemed[token] += 1

        async def ask() -> tuple[int, Mapping[str, Any]]:
            request = self.perks.redemption(token, idempotencyKey=key)
            return await self._send("perk charges", request)

        await self.until_success("redeem-perk", ask)

    async def holders(self) -> None:
        target = f"{HOLDERS}?collectionId={PRICED}"
        await self._send("perk charges", signed(self.perks.brand, "GET", target))

    async def _send(self, surface: str, request: Any) -> tuple[int, Mapping[str, Any]]:
        headers = dict(request.headers)
        if request.body:
            headers["Content-Type"] = "application/json"
        return await self.ask(
            surface, request.method, request.target, data=request.body or None, headers=headers
        )

    # Members of the brand's site

    async def visit(self) -> None:
        """A new member logs in, checks in, and looks at points, perks and the leaderboard."""
        dev_json = self.site.instance.dev_json
        try:
            async with self.site.instance.http.post(
                dev_json["sandbox"]["siteSessionUrl"], json={"username": uuid4().hex[:12]}
            ) as reply:
                member = await reply.json()
        except _BROKEN:
            return
        prefix = f"/{dev_json['site']['restPrefix']}/{dev_json['site']['namespace']}/v1"
        headers = {
            "Cookie": member["cookie"],
            "X-WP-Nonce": member["nonce"],
            "Host": dev_json["site"]["host"],
        }
        for path in ("leaderboard", "perks", "me"):
            await self.ask("site", "GET", f"{prefix}/{path}", headers=headers)
        status, _ = await self.ask("site", "POST", f"{prefix}/checkin", json={}, headers=headers)
        if status == 200:
            self.checked_in.append(member["walletAddress"])

    # Buyers

    async def buy(self) -> None:
        """Opens a checkout, pays it, and asks for the points until they are minted."""
        dev_json = self.site.instance.dev_json
        body = {
            "brandId": dev_json["brand"]["brandId"],
            "amount": 500,
            "userEmail": f"{uuid4().hex}@shop.example",
            "successUrl": "https://shop.example/thanks?session={CHECKOUT_SESSION_ID}",
            "cancelUrl": "https://shop.example/cart",
        }
        status, opened = await self.ask(
            "payments", "POST", "/service-api/create-checkout", json=body
        )
        if status != 200:
            return
        session = str(opened["sessionId"])
        self.perhaps_paid.append(session)
        try:
            async with self.site.instance.http.post(
                dev_json["sandbox"]["payUrl"], json={"sessionId": session}
            ) as reply:
                if reply.status != 200:
                    return
        except _BROKEN:
            return
        self.paid.append(session)
        await self.until_success("payment-mint", lambda: self._mint(session))

    async def _mint(self, session: str) -> tuple[int, Mapping[str, Any]]:
        return await self.ask(
            "payments", "POST", "/service-api/payment-mint", json={"sessionId": session}
        )

    # Users

    async def relay(self) -> None:
        """Transfers 1 LTZ-wei under a key until the outcome is known."""
        site = self.site.nodes
        if len(site.asks) >= _RELAYS_OF_A_USER * len(site.users):
            return
        user = site.users[len(site.asks) % len(site.users)]
        data = await transfer(site.relays.chain, user.account, user.wallet, site.friend, 10**18)
        ask = Ask(user, "LTZ", data, uuid4().hex)
        site.asks.append(ask)

        await self.until_success("relays", lambda: self._relayed(ask))

    async def _relayed(self, ask: Ask) -> tuple[int, Mapping[str, Any]]:
        try:
            answer = await ask.ask(self.site.nodes.relays)
        except _BROKEN:
            answer = None
        status, body = (0, {}) if answer is None else (answer.status, answer.body)
        self.statuses["relays", status] += 1
        return status, body

    # All of them

    def loops(self) -> list[tuple[Callable[[], Awaitable[None]], float]]:
        """What is done again and again, with the seconds between two of it.

        Beside the events of `a_load`: a read for an event, and the rest in the proportions of a
        brand with a site.
        """
        return [
            (self.read, 0.1),
            (self.bulk, 1.0),
            (self.visit, 0.5),
            (self.relay, 1.0),
            (self.redeem, 2.0),
            (self.holders, 1.0),
            (self.buy, 2.0),
        ]

    async def repeat(self, act: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
        while not self.stop.is_set():
            await act()
            await asyncio.sleep(pause_seconds)


@asynccontextmanager
async def traffic_on_all_surfaces(
    site: SoakSite, perks: Perks, tokens: list[int], seed: int, clients: int
) -> AsyncIterator[Traffic]:
    """Runs all loops; at the end each finishes what it has begun."""
    async with a_load(site.instance, clients, pause_seconds=0.1) as events:
        traffic = Traffic(site, perks, events, tokens, random.Random(seed))
        async with asyncio.TaskGroup() as group:
            for act, pause_seconds in traffic.loops():
                group.create_task(traffic.repeat(act, pause_seconds))
            try:
                yield traffic
            finally:
                traffic.stop.set()
