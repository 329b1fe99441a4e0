"""Retention: addresses that are older than the settings allow are erased, the others stay."""

from collections.abc import MutableMapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from ltzd.deliveries.cleanup import Cleanup
from ltzd.store.brands import configurations
from ltzd.store.database import Pool, session
from ltzd.store.retention import expiry
from ltzd.store.retention.expiry import RetentionPolicy
from ltzd.store.retention.refused_rows import RefusedRows
from ltzd.store.users import address_proofs
from ltzd.store.users.address_proofs import ProvenAddress
from ltzd.store.users.erased_addresses import ErasedAddresses
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.everywhere import places_of
from tests.support.surfaces.event_action import SEALER, a_brand
from tests.support.waiting import until

OLD, NEW = "old@shop.example", "new@shop.example"
POLICY = RetentionPolicy(timedelta(days=30), timedelta(days=90), timedelta(days=10))


async def expire(
    pool: Pool,
    policy: RetentionPolicy = POLICY,
    batch: int = expiry.BATCH,
    refused: RefusedRows | None = None,
) -> int:
    async with session(pool) as connection:
        erased = ErasedAddresses(SEALER)
        return await expiry.expire(connection, policy, erased, refused or RefusedRows(), batch)


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


async def a_visit(pool: Pool, user: UUID, email: str, *, days: int) -> None:
    """The user's last log-in at a site, which stores the address with the member."""
    await value(
        pool,
        """
        INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                  wallet, seen_at)
        VALUES ($1, 'shop.example', 1, 'Ann', $2, $3, $4, now() - $5::interval)
        """,
        *(BRAND, email, user, a_wallet(1), timedelta(days=days)),
    )


@pytest.mark.parametrize(("days", "is_kept"), [(100, False), (5, True)])
async def test_an_address_that_an_erased_user_has_left_at_a_site_again_is_erased_when_idle(
    pool: Pool, days: int, is_kept: bool
) -> None:
    user = await a_user(pool, OLD, 400, last_event=200)
    await expire(pool)
    assert await places_of(pool, OLD) == set()
    await a_visit(pool, user, OLD, days=days)

    await expire(pool)

    assert await places_of(pool, OLD) == ({"site_members.email_key"} if is_kept else set())
    erased = await value(pool, "SELECT email_key FROM users")
    assert is_kept or await value(pool, "SELECT email_key FROM site_members") == erased


async def test_a_member_who_still_visits_a_site_keeps_the_address(pool: Pool) -> None:
    user = await a_user(pool, OLD, 400, last_event=100)
    await a_visit(pool, user, OLD, days=1)

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


async def test_proofs_that_no_token_has_shown_for_long_are_forgotten_or_taken_over(
    pool: Pool,
) -> None:
    id_ = await a_user(pool, "user@shop.example", 1, last_event=1)
    async with session(pool) as connection:
        await connection.executemany(
            "INSERT INTO address_proofs VALUES ($1, 'did:a', now() - $2::interval)",
            [
                (OLD, timedelta(days=100)),
                (NEW, timedelta(days=5)),
                ("user@shop.example", timedelta(days=100)),
            ],
        )

    assert await expire(pool) == 2
    assert await expire(pool) == 0

    assert await places_of(pool, OLD) == set()
    assert await places_of(pool, NEW) == {"address_proofs.email_key"}
    assert await value(pool, "SELECT proven_by FROM users WHERE id = $1", id_) == "did:a"


async def test_a_proof_is_as_old_as_the_last_token_that_showed_the_address(pool: Pool) -> None:
    async with session(pool) as connection:
        for person in ("did:a", "did:a", "did:b"):
            await connection.execute("UPDATE address_proofs SET shown_at = now() - interval '1 y'")
            await address_proofs.insert(connection, [ProvenAddress(person, NEW, None)])
            age = await connection.fetchval("SELECT now() - shown_at FROM address_proofs")
            assert (age < timedelta(days=1)) == (person == "did:a")


async def test_a_proof_that_a_token_shows_again_while_it_is_deleted_stays(pool: Pool) -> None:
    days = timedelta(days=1)
    async with session(pool) as connection:
        await address_proofs.insert(connection, [ProvenAddress("did:a", NEW, None)])
        await connection.execute("UPDATE address_proofs SET shown_at = now() - interval '2 days'")
        due = await address_proofs.expired(connection, days, [], 10)
        await address_proofs.insert(connection, [ProvenAddress("did:a", NEW, None)])

        await address_proofs.delete(connection, days, due)

        assert due == [NEW]
        assert await connection.fetchval("SELECT count(*) FROM address_proofs") == 1


async def test_an_erased_address_is_not_kept_as_a_proof_again(pool: Pool) -> None:
    """Its user is found by the erased key, and holds the proof."""
    await a_user(pool, OLD, 400, last_event=100)
    await expire(pool)
    erased = ErasedAddresses(SEALER)
    async with session(pool) as connection:
        hidden = await erased.key_of(connection, OLD)
        await address_proofs.insert(connection, [ProvenAddress("did:a", OLD, hidden)])
        assert await connection.fetchval("SELECT count(*) FROM address_proofs") == 0


async def test_an_address_of_a_custodial_wallet_stays_while_tokens_show_it(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO custodial_users (subject, wallet, key_id, sealed) "
            "VALUES ('ltzd:1', $1, 'k', '\\x00')",
            a_wallet(1),
        )
        await connection.execute(
            "INSERT INTO custodial_accounts (kind, name, subject, verified, created_at) "
            "VALUES ('email', $1, 'ltzd:1', true, now() - interval '1 year')",
            OLD,
        )
        await address_proofs.insert(connection, [ProvenAddress("ltzd:1", OLD, None)])
    assert await expire(pool) == 0

    await value(pool, "UPDATE address_proofs SET shown_at = now() - interval '100 days'")
    assert await expire(pool) == 1
    assert await places_of(pool, OLD) == set()


KEPT = "kept@shop.example"
_REFUSED = {
    "events": f"BEFORE UPDATE ON events FOR EACH ROW WHEN (OLD.email = '{KEPT}')",
    "users": f"BEFORE UPDATE ON users FOR EACH ROW WHEN (OLD.email_key = '{KEPT}')",
    "requests": "BEFORE DELETE ON pregeneration_requests FOR EACH ROW "
    "WHEN (OLD.metadata::text LIKE '%kept%')",
    "proofs": f"BEFORE DELETE ON address_proofs FOR EACH ROW WHEN (OLD.email_key = 'p{KEPT}')",
    "accounts": f"BEFORE UPDATE ON custodial_accounts FOR EACH ROW WHEN (OLD.name = 'a{KEPT}')",
}


async def a_row_of_each_kind(pool: Pool, name: str, days: int) -> None:
    await a_user(pool, f"{name}@shop.example", days, last_event=200)
    async with session(pool) as db:
        await db.execute(
            """
            INSERT INTO pregenerations VALUES ('discord', $1, $1, $2, 'ann#1')
            """,
            *(name, a_wallet(days)),
        )
        await db.execute(
            """
            INSERT INTO pregeneration_requests
                   (brand_id, oauth_provider, oauth_user_id, created_new, metadata, created_at)
            VALUES ($1, 'discord', $2, true, to_jsonb($2::text), now() - $3::interval)
            """,
            *(BRAND, name, timedelta(days=days)),
        )
        await db.execute(
            "INSERT INTO address_proofs VALUES ($1, 'did:a', now() - $2::interval)",
            *(f"p{name}@shop.example", timedelta(days=days)),
        )
        await db.execute(
            "INSERT INTO custodial_users (subject, wallet, key_id, sealed) "
            "VALUES ($1, $2, 'k', '\\x00')",
            *(f"ltzd:{name}", a_wallet(days)),
        )
        await db.execute(
            "INSERT INTO custodial_accounts (kind, name, subject, verified, created_at) "
            "VALUES ('email', $1, $2, true, now() - $3::interval)",
            *(f"a{name}@shop.example", f"ltzd:{name}", timedelta(days=days)),
        )


async def test_a_row_that_postgresql_refuses_to_erase_holds_up_no_other_row(pool: Pool) -> None:
    """An administrator's trigger keeps the row, for example. Each round tries again."""
    for days, name in enumerate(("kept", "one", "two", "three", "four"), start=400):
        await a_row_of_each_kind(pool, name, 900 - days)
    async with session(pool) as db:
        await db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
            "AS $$ BEGIN RAISE 'an auditor wants it'; END $$"
        )
        for name, condition in _REFUSED.items():
            await db.execute(f"CREATE TRIGGER {name} {condition} EXECUTE FUNCTION refuse()")

    with capture_logs() as lines:
        async with running(a_cleanup(pool).run()):
            for name in ("one", "two", "three", "four"):
                await until(partial(is_gone, pool, f"{name}@shop.example"))
            await until(partial(has_failed, lines))
    assert await value(pool, "SELECT count(*) FROM pregeneration_requests") == 1
    refused = [line for line in lines if line["event"] == "retention.row_refused"]
    assert len({line["rule"] for line in refused}) == len(_REFUSED)
    assert KEPT not in str(lines)
    kept = {"events.email", "users.email_key", "address_proofs.email_key", "event_claims.email_key"}
    assert await places_of(pool, KEPT) >= kept

    async with session(pool) as db:
        await db.execute("DROP FUNCTION refuse CASCADE")
    async with running(a_cleanup(pool).run()):
        await until(partial(is_gone, pool, KEPT))


def a_cleanup(pool: Pool) -> Cleanup:
    return Cleanup(pool, ErasedAddresses(SEALER), POLICY)


async def is_gone(pool: Pool, text: str) -> bool:
    return await places_of(pool, text) == set()


async def has_failed(lines: list[MutableMapping[str, Any]]) -> bool:
    """The round is reported as failed, for the alert of cleanups."""
    failed = [line for line in lines if line["event"] == "cleanup.failed"]
    return [line["reason"] for line in failed] == ["PostgreSQL refuses it: P0001"]


async def test_a_refused_event_is_found_again_although_later_pages_were_cleared(pool: Pool) -> None:
    for days, name in enumerate(("kept", "one", "two", "three"), start=400):
        await a_user(pool, f"{name}@shop.example", 900 - days, last_event=900 - days)
    only_events = RetentionPolicy(event_addresses=timedelta(days=30))
    async with session(pool) as db:
        await db.execute("ALTER TABLE events ADD CHECK (email IS NOT NULL OR ltz > 0) NOT VALID")
        await db.execute("UPDATE events SET ltz = 5 WHERE email <> $1", KEPT)
    refused = RefusedRows()

    while await expire(pool, only_events, 2, refused):
        pass

    assert isinstance(refused.error, asyncpg.CheckViolationError)
    assert await value(pool, "SELECT array_agg(email) FROM events WHERE email <> ''") == [KEPT]
    await value(pool, "UPDATE events SET ltz = 5")
    assert await expire(pool, only_events, 2) == 1
    assert await value(pool, "SELECT count(email) FROM events") == 0


async def test_a_refusal_of_every_row_is_not_tried_row_by_row(pool: Pool) -> None:
    calls = []

    async def forbidden(rows: Sequence[int]) -> None:
        calls.append(len(rows))
        raise asyncpg.InsufficientPrivilegeError("not yours")

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await RefusedRows().change("x", range(500), forbidden)
    assert calls == [500]
    with pytest.raises(asyncpg.CheckViolationError):
        await RefusedRows().change("x", range(500), refusing)


async def refusing(_rows: Sequence[int]) -> None:
    raise asyncpg.CheckViolationError("never")
