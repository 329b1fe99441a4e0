"""Brands with webhook endpoints, rewards that are minted for them, and a receiver on loopback.

from tests.support.services.webhooks import receiver, world  # in a conftest
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest_asyncio
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from ltzd.deliveries.sender import Sender
from ltzd.providers import brand_webhooks
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.database import Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.operator import rewards
from ltzd.store.wakeups import WEBHOOKS, WakeupHub
from ltzd.values import LTZ, Address, reward_reference
from tests.support.rows import reorgs
from tests.support.rows.core import a_hash, a_lane, a_wallet, running
from tests.support.services.web_servers import served_at
from tests.support.waiting import until

SEALER = Sealer([b"\x05" * 32])
EMAIL = "Ada.Lovelace@Shop.Example"

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Post:
    headers: dict[str, str]
    body: bytes
    at: float = 0.0

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content

    def verified_by(self, secret: str) -> bool:
        """Verifies as a brand's server does, without the check of the clock, which tests move."""
        sent_at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), UTC)
        signed = Webhook(secret).sign(self.id, sent_at, self.body.decode())
        return signed in self.headers["webhook-signature"].split(" ")


def answering(status: int, **headers: str) -> Behaviour:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    return answer


async def hanging(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Receiver:
    """Accepts every webhook, or behaves as a test has set for a path."""

    base: str = ""
    posts: dict[str, list[Post]] = field(default_factory=lambda: defaultdict(list))
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    most_at_once: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _at_once: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def url(self, path: str) -> str:
        return f"{self.base}{path}"

    async def take(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        at = asyncio.get_running_loop().time()
        self.posts[path].append(Post(headers, await request.read(), at))
        self._at_once[path] += 1
        self.most_at_once[path] = max(self.most_at_once[path], self._at_once[path])
        try:
            return await self.behaviours.get(path, answering(204))(request)
        finally:
            self._at_once[path] -= 1

    async def got(self, path: str, number: int = 1) -> list[Post]:
        """Waits until `number` posts to this path have come and returns them."""

        async def is_reached() -> bool:
            return len(self.posts[path]) >= number

        await until(is_reached)
        return self.posts[path][:number]


@asynccontextmanager
async def a_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", receiver.take)
    async with served_at(application) as receiver.base:
        yield receiver


@dataclass
class Clock:
    """Real time, ahead by as much as a test says."""

    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class World:
    """A database with brands whose endpoints are paths of the receiver."""

    def __init__(self, url: str, pool: Pool, receiver: Receiver) -> None:
        self.pool = pool
        self.receiver = receiver
        self.wakeups = WakeupHub(url)
        self.clock = Clock()
        self._numbers = count(1)

    async def brand(self, path: str | None = None, url: str | None = None) -> Brand:
        number = next(self._numbers)
        return await self.apply(
            Brand(
                id=f"0x{number:040x}",
                name=f"Brand {number}",
                domains=(f"shop{number}.example",),
                webhook_url=self.receiver.url(path) if path else url,
            )
        )

    async def apply(self, brand: Brand) -> Brand:
        async with session(self.pool) as connection:
            await brands.apply(connection, brand, SEALER)
        return brand

    async def secrets(self, brand: Brand) -> list[str]:
        async with session(self.pool) as connection:
            secrets = await brand_keys.secrets_of(
                connection, brand.address, "webhook_secret", SEALER
            )
        return [secret.text for secret in secrets]

    async def owed(
        self, brand: Brand, ltz: int = 100, kind: int = 1, *, event: bool = True
    ) -> UUID:
        """Inserts a reward that is not minted yet, for a new user."""
        id_, user, number = uuid4(), uuid4(), next(self._numbers)
        wallet = a_wallet(number)
        async with transaction(self.pool) as connection:
            await connection.execute(
                """
                INSERT INTO users (id, email_key, identity_subject, wallet)
                VALUES ($1, $2, '', $3)
                """,
                user,
                f"{number}.{EMAIL.lower()}",
                wallet,
            )
            if event:
                await connection.execute(
                    """
                    INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz)
                    VALUES ($1, $2, 'form_submit', $3, $4, 'shop.example', $5)
                    """,
                    id_,
                    brand.address,
                    EMAIL,
                    user,
                    ltz,
                )
            await connection.execute(
                """
                INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq)
                VALUES ($1, $2, $3, $4, $5, $6)
                """,
                id_,
                kind,
                brand.address,
                wallet,
                ltz,
                number,
            )
        return id_

    async def mint(self, *ids: UUID, block: int = 7) -> None:
        """Inserts the rewards' mints in this block, as the indexer does."""
        async with transaction(self.pool) as connection:
            rows = await connection.fetch(
                "SELECT id, kind, seq, wallet, ltz FROM rewards WHERE id = ANY($1::uuid[])", ids
            )
            mints = [
                RewardMinted(
                    LogPosition(block, a_hash(f"block {block}"), index, a_hash(f"mint in {block}")),
                    Address(row["wallet"]),
                    reward_reference(row["id"], row["kind"], row["seq"]),
                    row["ltz"] * LTZ,
                )
                for index, row in enumerate(rows, next(self._numbers) * 1_000)
            ]
            assert await facts.insert_mints(connection, mints) == len(ids)

    async def minted(self, brand: Brand, number: int = 1, ltz: int = 100) -> list[UUID]:
        ids = [await self.owed(brand, ltz) for _ in range(number)]
        await self.mint(*ids)
        return ids

    async def undo(self, above: int) -> None:
        async with transaction(self.pool) as connection:
            await reorgs.undo_above(connection, above)

    async def fail(self, *ids: UUID, reason: str = "LTZ says: no") -> None:
        lane = await a_lane(self.pool)
        async with session(self.pool) as connection:
            failed = await rewards.fail(connection, lane, dict.fromkeys(ids, reason))
            assert set(failed) == set(ids)

    async def rows(self) -> list[dict[str, Any]]:
        """Returns all webhooks, oldest first."""
        async with session(self.pool) as connection:
            rows = await connection.fetch("SELECT * FROM webhooks ORDER BY created_at, id")
        return [dict(row) for row in rows]

    async def row(self) -> dict[str, Any]:
        (row,) = await self.rows()
        return row

    async def states(self) -> list[str]:
        return [row["state"] for row in await self.rows()]

    async def delivered(self, number: int = 1) -> None:
        async def is_reached() -> bool:
            return (await self.states()).count("delivered") == number

        await until(is_reached)

    def advance(self, by: timedelta) -> None:
        self.clock.ahead += by
        self.wakeups.notify(WEBHOOKS)

    @asynccontextmanager
    async def sending(self, *, by_test_clock: bool = True, **changed: Any) -> AsyncIterator[None]:
        """Runs a sender, which is cancelled at the end of the block as by a kill."""
        if by_test_clock:
            changed["now"] = self.clock.now
        policy = brand_webhooks.guard_policy(allow_loopback=True)
        http = BrandWebhooks(changed.pop("policy", policy), changed.pop("resolve", None))
        sender = Sender(self.pool, self.wakeups, SEALER, http, **changed)
        try:
            async with running(sender.run(), self.wakeups.listen()):
                yield
        finally:
            await http.close()


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with a_receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, receiver: Receiver) -> World:
    return World(database_url, pool, receiver)
