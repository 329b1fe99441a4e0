"""An erased address keeps its user: no second wallet, no second first claim, no address left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from ltzd.actions.event_handler.record import EventHandler
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import MaxClaimsReached
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.store.database import Pool, open_pool, session
from ltzd.store.retention import erasure
from ltzd.store.retention.erasure import ErasedRows
from ltzd.store.users.erased_addresses import ErasedAddresses, is_erased
from ltzd.values import Address
from tests.support.rows.core import value
from tests.support.rows.everywhere import places_of
from tests.support.surfaces.event_action import (
    SEALER,
    a_brand,
    a_handler,
    a_request,
    counts,
    kinds,
    record_all,
    two_handlers,
)

EMAIL = "Ann.Example@shop.example"
KEY = EMAIL.lower()


def limited(most: int) -> Brand:
    rule = EventRule(
        type="account_creation", reward=100, max_claims_per_user=most, cooldown_hours=0
    )
    return a_brand(rule, duplicate_window_seconds=0)


@asynccontextmanager
async def another_process(url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(url)
    yield pool
    pool.terminate()


async def hide(pool: Pool, email: str = KEY) -> ErasedRows:
    async with session(pool) as connection:
        return await erasure.hide_addresses(connection, ErasedAddresses(SEALER), [email])


async def wallet_of(handler: EventHandler) -> Address:
    return (await handler.record(a_request(EMAIL))).wallet


async def test_the_next_event_of_an_erased_address_has_the_same_user_wallet_and_claims(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    """In a process that had the user in memory, and in one that had not."""
    async with two_handlers(database_url, sandbox, limited(3)) as (knows, is_new):
        first = await wallet_of(knows)
        assert await hide(pool) == ErasedRows(users=1, claims=1, members=0, accounts=0, proofs=0)

        assert await wallet_of(knows) == first
        assert await wallet_of(is_new) == first
        for handler in (knows, is_new):
            assert kinds(await record_all([handler], [a_request(EMAIL)])) == {"MaxClaimsReached": 1}
    assert await counts(pool) == (3, 3, 1)
    assert is_erased(await value(pool, "SELECT email_key FROM users"))
    assert await value(pool, "SELECT claims FROM event_claims") == 3


async def test_a_limit_of_one_claim_is_not_claimed_again_after_an_erasure(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox, limited(1)) as handler:
        await wallet_of(handler)
        await hide(pool)
        with pytest.raises(MaxClaimsReached):
            await wallet_of(handler)


async def test_events_and_erasures_at_once_stay_within_the_limit(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    emails = [f"{name}@shop.example" for name in ("ada", "bob", "cyd", "dan")]
    async with two_handlers(database_url, sandbox, limited(3)) as handlers:
        for email in emails:
            await handlers[0].record(a_request(email))
        requests = [a_request(email) for _ in range(12) for email in emails]

        erasures = asyncio.gather(*(hide(pool, email) for email in emails))
        outcomes = await record_all(handlers, requests)
        await erasures

    assert kinds(outcomes) == {
        "RecordedEvent": 2 * len(emails),
        "MaxClaimsReached": 10 * len(emails),
    }
    assert await counts(pool) == (3 * len(emails), 3 * len(emails), len(emails))
    assert await value(pool, "SELECT bool_and(claims = 3) FROM event_claims")
    assert await value(pool, "SELECT count(*) FROM event_claims") == len(emails)


async def test_nothing_in_the_database_names_an_erased_user(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox, limited(3)) as handler:
        await handler.record(
            a_request(EMAIL, user_identifier=EMAIL, metadata={"note": f"from {EMAIL}"})
        )
    assert await places_of(pool, KEY) >= {"events.email", "users.email_key"}

    await hide(pool)
    async with session(pool) as connection:
        user = await connection.fetchval("SELECT id FROM users")
        assert await erasure.clear_events(connection, user) == 1

    assert await places_of(pool, KEY) == set()


async def test_an_erasure_does_not_wait_for_a_long_writer(pool: Pool, database_url: str) -> None:
    """And has changed nothing then."""
    async with another_process(database_url) as other, session(other) as busy:
        await busy.execute("BEGIN")
        await busy.execute("LOCK TABLE event_claims IN ROW EXCLUSIVE MODE")
        async with session(pool) as connection:
            with pytest.raises(asyncpg.LockNotAvailableError):
                await erasure.hide_addresses(connection, ErasedAddresses(SEALER), [KEY])
        await busy.execute("ROLLBACK")
    assert await hide(pool) == ErasedRows(users=0, claims=0, members=0, accounts=0, proofs=0)
