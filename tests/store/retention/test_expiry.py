"""Retention: addresses that are older than the settings allow are erased, the others stay."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from ltzd.store.brands import configurations
from ltzd.store.database import Pool, session
from ltzd.store.retention import expiry
from ltzd.store.retention.expiry import RetentionPolicy
from ltzd.store.users.erased_addresses import ErasedAddresses
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.rows.everywhere import places_of
from tests.support.surfaces.event_action import SEALER, a_brand

OLD, NEW = "old@shop.example", "new@shop.example"
POLICY = RetentionPolicy(timedelta(days=30), timedelta(days=90), timedelta(days=10))


async def expire(pool: Pool, policy: RetentionPolicy = POLICY, batch: int = expiry.BATCH) -> int:
    async with session(pool) as connection:
        return await expiry.expire(connection, policy, ErasedAddresses(SEALER), batch)


async def a_user(pool: Pool, email: str, days: int, *, last_event: int) -> UUID:
    """A user of this age with one event, and the event's claim."""
    id_ = uuid4()
    async with session(pool) as db:
        if not await db.fetchval("SELECT EXISTS (SELECT FROM brands)"):
            async with db.transaction():
                await configurations.apply(db, a_brand(), SEALER)
        ages = timedelta(days=days), timedelta(days=last_event)
        await db.execute(
            """
            INSERT INTO users (id, email_key, identity_subject, wallet, created_at)
            VALUES ($1, $2, 'did:x', $3, now() - $4::interval)
            """,
            *(id_, email, a_wallet(days), ages[0]),
        )
        await db.execute(
            """
            INSERT INTO events (id, brand_id, event_type, email, user_id, domain, metadata, ltz,
                                user_identifier, created_at)
            VALUES (gen_random_uuid(), $1, 'x', $2, $3, 'shop.example', '{}', 0, $2,
                    now() - $4::interval)
            """,
            *(BRAND, email, id_, ages[1]),
        )
        await db.execute(
            "INSERT INTO event_claims VALUES ($1, 'x', $2, 1, NULL, now() - $3::interval)",
            *(BRAND, email, ages[1]),
        )
    return id_


async def test_addresses_of_old_events_and_idle_users_are_erased(pool: Pool) -> None:
    old = await a_user(pool, OLD, 400, last_event=100)
    await a_user(pool, NEW, 400, last_event=5)

    assert await expire(pool) == 2
    assert await expire(pool) == 0

    assert await places_of(pool, OLD) == set()
    assert await places_of(pool, NEW) == {
        *("events.email", "events.user_identifier"),
        *("users.email_key", "event_claims.email_key"),
    }
    async with session(pool) as connection:
        kept = await ErasedAddresses(SEALER).find_user(connection, OLD)
    assert kept is not None
    assert kept.id == old


async def test_without_days_everything_is_kept(pool: Pool) -> None:
    await a_user(pool, OLD, 4_000, last_event=4_000)

    assert await expire(pool, expiry.KEEP_ALL) == 0

    assert "users.email_key" in await places_of(pool, OLD)


async def test_a_small_batch_comes_to_every_row_in_the_end(pool: Pool) -> None:
    for number in range(7):
        await a_user(pool, f"{number}@old.example", 400 + number, last_event=200)

    for _ in range(6):
        await expire(pool, batch=3)

    assert await places_of(pool, "@old.example") == set()


async def test_a_member_who_still_visits_a_site_keeps_the_address(pool: Pool) -> None:
    user = await a_user(pool, OLD, 400, last_event=100)
    async with session(pool) as db:
        await db.execute(
            """
            INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                      wallet, seen_at)
            VALUES ($1, 'shop.example', 1, 'Ann', $2, $3, $4, now() - interval '1 day')
            """,
            *(BRAND, OLD, user, a_wallet(1)),
        )

    await expire(pool)

    assert await places_of(pool, OLD) == {
        *("users.email_key", "event_claims.email_key", "site_members.email_key"),
    }


@pytest.mark.parametrize(("age_days", "left"), [(11, 0), (9, 1)])
async def test_old_pregeneration_requests_are_deleted(pool: Pool, age_days: int, left: int) -> None:
    await a_user(pool, NEW, 1, last_event=1)
    async with session(pool) as db:
        await db.execute(
            "INSERT INTO pregenerations VALUES ('discord', '7', 'did:x', $1, 'ann#1')", a_wallet(1)
        )
        await db.execute(
            """
            INSERT INTO pregeneration_requests
                   (brand_id, oauth_provider, oauth_user_id, created_new, created_at)
            VALUES ($1, 'discord', '7', true, now() - $2::interval)
            """,
            *(BRAND, timedelta(days=age_days)),
        )

    await expire(pool)

    assert await value(pool, "SELECT count(*) FROM pregeneration_requests") == left
    assert await value(pool, "SELECT count(oauth_username) FROM pregenerations") == left
    assert await value(pool, "SELECT count(*) FROM pregenerations") == 1
