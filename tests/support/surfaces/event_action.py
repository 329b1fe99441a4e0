"""The `EventHandler` action of one process, on PostgreSQL and the sandbox."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest_asyncio

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.event_handler.policy import EventPolicy
from ltzd.actions.event_handler.record import EventHandler, EventRequest
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.cache.rate_limits import RateLimits
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import LtzdError
from ltzd.providers.identity.client import IdentityClient
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.rows.core import BRAND, running

SEALER = Sealer([bytes(32)])
NO_NODE = "http://127.0.0.1:1"
NO_LIMITS: dict[str, Any] = {"max_claims_per_user": -1, "cooldown_hours": 0}


def a_brand(*events: EventRule, **changes: Any) -> Brand:
    configuration = {"id": "0x" + BRAND.hex(), "name": "Demo", "domains": ("shop.example",)}
    return Brand.model_validate(configuration | {"events": events} | changes)


def a_request(email: str = "ann@shop.example", **changes: Any) -> EventRequest:
    fields: dict[str, Any] = {
        "brand_id": BRAND,
        "event_type": "account_creation",
        "email": email,
        "domain": "shop.example",
        "source_url": None,
        "user_identifier": None,
        "metadata": {},
        "origin": None,
    }
    return EventRequest(**fields | changes)


NO_HASH_WAIT = EventPolicy(hash_wait=0.0)
"""Answers do not wait for the mint's hash."""


@pytest_asyncio.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, NO_NODE, None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@asynccontextmanager
async def a_handler(
    url: str,
    sandbox: Sandbox,
    brand: Brand | None = None,
    capacity: MintCapacity | None = None,
    policy: EventPolicy = NO_HASH_WAIT,
) -> Any:
    """The action with its own pool, identity client and memory, as one process has them."""
    async with AsyncExitStack() as stack:
        pool = await open_pool(url)
        stack.callback(pool.terminate)
        brand_cache = BrandCache()
        async with transaction(pool) as connection:
            await brands.apply(connection, brand or a_brand(), SEALER)
            await brand_cache.refresh(connection)
        identity = await stack.enter_async_context(IdentityClient(sandbox.identity_policy()))
        wakeups = WakeupHub(url)
        handler = EventHandler(
            pool,
            wakeups,
            brand_cache,
            identity,
            MintHashWaiters(pool, wakeups),
            RequestSignatures(pool, SEALER, brand_cache),
            await stack.enter_async_context(RateLimits()),
            capacity or MintCapacity(pool, FakeNode().node, CHAIN_ID, LTZ_AT),
            erased=ErasedAddresses(SEALER),
            policy=policy,
        )
        await stack.enter_async_context(running(handler.run()))
        yield handler


@asynccontextmanager
async def two_handlers(
    url: str, sandbox: Sandbox, brand: Brand | None = None
) -> AsyncIterator[list[EventHandler]]:
    async with a_handler(url, sandbox, brand) as first, a_handler(url, sandbox, brand) as second:
        yield [first, second]


Outcomes = list[RecordedEvent | LtzdError]


async def record_all(handlers: list[EventHandler], requests: list[EventRequest]) -> Outcomes:
    """Record all requests at once, spread over the handlers in turn."""
    answers = await asyncio.gather(
        *(
            handlers[number % len(handlers)].record(request)
            for number, request in enumerate(requests)
        ),
        return_exceptions=True,
    )
    for answer in answers:
        if not isinstance(answer, RecordedEvent | LtzdError):
            raise answer
    return answers  # type: ignore[return-value]


def kinds(outcomes: Sequence[object]) -> Counter[str]:
    return Counter(type(outcome).__name__ for outcome in outcomes)


def recorded(outcomes: Outcomes) -> list[RecordedEvent]:
    return [outcome for outcome in outcomes if isinstance(outcome, RecordedEvent)]


async def counts(pool: Pool) -> tuple[int, int, int]:
    """The numbers of events, rewards and users in the database."""
    async with session(pool) as connection:
        return tuple(
            await connection.fetchrow(
                "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM rewards), "
                "(SELECT count(*) FROM users)"
            )
        )
