"""Two http processes over one PostgreSQL and one Redis: what they share, and what each one keeps.

Each process is a whole daemon with pools, caches, Redis connections and a listening socket of its
own. docs/scale.md lists what a process caches; this file shows the bounds over HTTP.
"""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest_asyncio

from ltzd import telemetry
from ltzd.rules.request_signatures import signature
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records
from ltzd.store.database import session
from tests.support.services.postgres import Databases
from tests.support.services.redis import RedisServer, a_redis_server
from tests.support.surfaces.event_surface import (
    EventHandlerResponse,
    EventSurface,
    LiveBrand,
    an_event_surface,
    new_email,
    unlimited_rule,
)
from tests.support.waiting import until

EVENT = "/service-api/manual-event"
TOKEN = "/check-perk-status?collectionId=9&tokenId=7"
MINUTE_LIMIT = 100
"""Requests without a user that an address may send to the relayer in a minute."""
KNOWN_WITHIN_SECONDS = 5.0
"""A change is known within 1 s; a loaded machine is allowed more."""
_MOST_ATTEMPTS = 20
_addresses = itertools.count(1)


@dataclass
class TwoProcesses:
    first: EventSurface
    second: EventSurface
    redis: RedisServer

    async def brand(self, *events: dict[str, Any], **changes: Any) -> LiveBrand:
        """A new brand that both processes know."""
        brand = await self.first.brand(*events, **changes)
        await self.second.refresh()
        return brand

    async def post(self, body: dict[str, Any] | bytes, **headers: str) -> list[int]:
        """Send one event to both processes at once; returns both statuses."""
        answers = await asyncio.gather(
            *(surface.post(body, **headers) for surface in (self.first, self.second))
        )
        return sorted(answer.status for answer in answers)

    async def ask(self, times: int, path: str, **headers: str) -> Counter[int]:
        """Send a GET `times` to each process at once, from an address that has not asked yet."""
        connector = aiohttp.TCPConnector(local_addr=(f"127.0.9.{next(_addresses)}", 0))
        async with aiohttp.ClientSession(connector=connector) as client:
            return await statuses(
                replace(surface, http=client).ask("GET", path, headers=headers)
                for surface in (self.first, self.second)
                for _ in range(times)
            )

    async def while_redis_answers(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Make an attempt, and another one if a process counted in its memory meanwhile.

        A loaded machine may keep Redis from answering within the quarter of a second that a hit
        waits for it.
        """
        for _ in range(_MOST_ATTEMPTS):
            await until(self._is_redis_in_use, 30.0)
            errors = redis_errors()
            try:
                await attempt()
            except AssertionError:
                if redis_errors() == errors:
                    raise
            else:
                return
        raise AssertionError("Redis never answered in time")

    async def _is_redis_in_use(self) -> bool:
        return not any(each.daemon.limits.is_redis_away for each in (self.first, self.second))


def redis_errors() -> float:
    return telemetry.REGISTRY.get_sample_value("ltzd_cache_redis_errors_total") or 0.0


async def statuses(requests: Iterable[Awaitable[EventHandlerResponse]]) -> Counter[int]:
    return Counter(answer.status for answer in await asyncio.gather(*requests))


@pytest_asyncio.fixture(scope="module")
async def running(databases: Databases, tmp_path_factory: Any) -> AsyncIterator[TwoProcesses]:
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    async with (
        a_redis_server() as redis,
        databases.fresh() as url,
        an_event_surface(url, folders[0], redis_url=redis.url) as first,
        an_event_surface(
            url,
            folders[1],
            redis_url=redis.url,
            master_key_file=folders[0] / "master.key",
            identity=identity_of(first),
        ) as second,
    ):
        yield TwoProcesses(first, second, redis)


def identity_of(surface: EventSurface) -> dict[str, Any]:
    """The settings by which another process asks the same identity provider."""
    policy = surface.sandbox.identity_policy()
    names = ("base_url", "app_id", "app_secret", "signer_id", "signer_key")
    return {name: getattr(policy, name) for name in names}


@pytest_asyncio.fixture
async def processes(running: TwoProcesses) -> TwoProcesses:
    """The module's processes, with an empty Redis."""
    async with running.redis.client() as client:
        await client.flushall()
    return running


def signed(brand: LiveBrand, method: str, target: str, body: bytes = b"") -> dict[str, str]:
    timestamp, nonce = str(int(time.time())), uuid4().hex
    made = signature(brand.keys.security_key, timestamp, nonce, method, target.encode(), body)
    names = ("X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature")
    return dict(zip(names, (brand.id, timestamp, nonce, made), strict=True))


# --- what both share -----------------------------------------------------------------------------


async def test_a_users_one_claim_is_granted_by_one_process(processes: TwoProcesses) -> None:
    brand = await processes.brand({"type": "form_submit", "reward": 0})
    for _ in range(5):
        first, second = await processes.post(brand.body(new_email()))
        assert (first, second >= 400) == (200, True)
    assert await brand.events() == 5


async def test_a_total_maximum_holds_over_both_processes(processes: TwoProcesses) -> None:
    brand = await processes.brand(unlimited_rule(max_total_claims=7))
    answers = await statuses(
        surface.post(brand.body())
        for surface in (processes.first, processes.second)
        for _ in range(10)
    )
    assert (answers[200], answers.total()) == (7, 20)
    assert await brand.events() == 7


async def test_events_of_one_address_are_counted_over_both_processes(
    processes: TwoProcesses,
) -> None:
    async def attempt() -> None:
        brand = await processes.brand(unlimited_rule(), events_per_minute_per_ip=7)
        answers = await statuses(
            surface.post(brand.body())
            for surface in (processes.first, processes.second)
            for _ in range(15)
        )
        assert answers == {200: 7, 429: 23}

    await processes.while_redis_answers(attempt)


async def test_requests_without_a_user_are_counted_over_both_processes(
    processes: TwoProcesses,
) -> None:
    async def attempt() -> None:
        assert await processes.ask(60, TOKEN) == {401: MINUTE_LIMIT, 429: 20}

    await processes.while_redis_answers(attempt)


async def test_the_nonce_of_a_signed_event_is_good_at_one_process(processes: TwoProcesses) -> None:
    brand = await processes.brand(unlimited_rule(), signed_bypass=True)
    for _ in range(5):
        raw = json.dumps(brand.body(metadata={"source": "voice_claim"})).encode()
        assert await processes.post(raw, **signed(brand, "POST", EVENT, raw)) == [200, 401]
    assert await brand.events() == 5


async def test_the_nonce_of_a_signed_read_is_good_at_one_process(processes: TwoProcesses) -> None:
    brand = await processes.brand(unlimited_rule())

    async def attempt() -> None:
        answers = await processes.ask(1, TOKEN, **signed(brand, "GET", TOKEN))
        assert answers == {401: 1, 404: 1}

    for _ in range(5):
        await processes.while_redis_answers(attempt)


# --- what each one keeps, and for how long -------------------------------------------------------


async def test_a_brand_that_one_process_disabled_is_soon_unknown_to_the_other(
    processes: TwoProcesses,
) -> None:
    brand = await processes.brand(unlimited_rule())
    assert 200 in await processes.post(brand.body())
    async with session(processes.first.daemon.pools.http) as connection:
        assert await records.switch(connection, brand.brand.address, "disabled", on=True)

    async def is_unknown() -> bool:
        answers = [await each.post(brand.body()) for each in (processes.first, processes.second)]
        return all(answer.status >= 400 for answer in answers)

    await until(is_unknown, KNOWN_WITHIN_SECONDS)


async def test_a_key_that_was_revoked_soon_signs_nothing_at_the_other_process(
    processes: TwoProcesses,
) -> None:
    """Both processes have the key in memory."""
    brand = await processes.brand(unlimited_rule())
    for _ in range(2):
        assert (await processes.ask(1, TOKEN, **signed(brand, "GET", TOKEN)))[404] >= 1
    async with session(processes.first.daemon.pools.http) as connection:
        await brand_keys.rotate(
            connection, brand.brand.address, "security_key", processes.first.sealer, revoke=True
        )

    async def is_revoked() -> bool:
        answers = await processes.ask(1, TOKEN, **signed(brand, "GET", TOKEN))
        return answers == {401: 2}

    await until(is_revoked, KNOWN_WITHIN_SECONDS)


async def test_without_redis_each_process_grants_the_limit_once_and_claims_stay_exact(
    processes: TwoProcesses,
) -> None:
    """The bound of N processes is N times the limit of Redis; PostgreSQL's limits do not change."""
    brand = await processes.brand({"type": "form_submit", "reward": 0})
    await processes.redis.stop()
    try:
        answers = await processes.ask(MINUTE_LIMIT + 10, TOKEN)
        assert answers == {401: 2 * MINUTE_LIMIT, 429: 20}
        first, second = await processes.post(brand.body())
        assert (first, second >= 400) == (200, True)
    finally:
        await processes.redis.start()
